"""Kubernetes: the real kubectl against an API of this file, and our manifests against the schemas of five versions."""

from __future__ import annotations

import contextlib
import copy
import functools
import http.server
import json
import os
import signal
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.fleet.machines import node, silent
from tests.invoking import program, sysperf

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy/kubernetes"
VERSIONS = ("1.33.0", "1.34.0", "1.35.0", "1.36.0", "1.37.0")
KUBECTL = program("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="no kubectl: apt-get install kubernetes-client")
PIECE = 16 << 10


def of_node(name: str, ready: str = "True") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def of_pod(name: str, on: str, phase: str = "Running") -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "sysperf-record"}
    container = {"name": "record", "image": "sysperf"}
    meta = {"name": name, "namespace": "sysperf", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": phase},
    }


class Api:
    """What a cluster answers, and what it was asked."""

    def __init__(self) -> None:
        self.nodes = [of_node("n1"), of_node("n2"), of_node("n3", "Unknown"), of_node("n4"), of_node("n5"), of_node("n6")]
        self.pods = [
            of_pod(f"sysperf-record-{number}", f"n{number}", "Pending" if number == 4 else "Running") for number in (1, 2, 3, 4, 6)
        ]
        line = json.dumps(node("n1"))
        big = json.dumps({**node("n2"), "problem": "", "unknown": [{"area": "x", "why": "y" * 100_000}]})
        self.logs = {
            "sysperf-record-1": f"noise\n{json.dumps(node('n1', sysperf='0.0.1'))}\n{line}\n",
            "sysperf-record-2": f"{big}\n",
            "sysperf-record-6": "starting\n",
        }
        self.asked: list[tuple[str, str]] = []

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """A list, a pod, a log; None: there is none."""
        core = "/api/v1"
        discovery = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            core: {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource("nodes", "Node"), resource("pods", "Pod")]},
        }
        if path in discovery:
            return discovery[path]
        self.asked.append((path, query.get("labelSelector", [""])[0]))
        if path == f"{core}/nodes":
            return {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": self.nodes}
        if path == f"{core}/namespaces/sysperf/pods":
            return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.pods}
        name, _, rest = path.removeprefix(f"{core}/namespaces/sysperf/pods/").partition("/")
        if rest == "log":
            return self.tail(name, int(query["tailLines"][0]))
        return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

    def tail(self, name: str, lines: int) -> str | None:
        """As a kubelet counts: pieces of 16 KiB."""
        text = self.logs.get(name)
        if text is None:
            return None
        pieces = [line[at : at + PIECE] for line in text.splitlines(keepends=True) for at in range(0, len(line), PIECE)]
        return "".join(pieces[-lines:])


def resource(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "singularName": "", "namespaced": name == "pods", "kind": kind, "verbs": ["get", "list"]}


class Handler(http.server.BaseHTTPRequestHandler):
    """One question."""

    def __init__(self, api: Api, *words: Any) -> None:
        self.api = api
        super().__init__(*words)

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path)
        answer = self.api.answer(path.path, urllib.parse.parse_qs(path.query))
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "it is gone", "reason": "NotFound", "code": 404}
        body = answer if isinstance(answer, str) else json.dumps(missing if answer is None else answer)
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A cluster of six nodes, to which kubectl is led."""
    answers = Api()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, answers)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "current-context": "c"}
        (tmp_path / "config").write_text(json.dumps({**config, "users": [{"name": "u", "user": {}}]}))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("HOME", str(tmp_path))  # kubectl keeps what it discovered there
        yield answers
        server.shutdown()


def audited(*words: str) -> dict[str, Any]:
    done = sysperf("fleet", "audit", "--engine", "kubernetes", "--json", *words)
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@needs_kubectl
def test_the_last_record_of_each_pod(api: Api) -> None:
    """Also one of many pieces; who has no pod, or one that does not run, or that printed nothing, is silent with its reason."""
    fleet = audited()

    assert (fleet["asked"], fleet["answered"]) == (6, 2), fleet["silent"]
    assert silent(fleet) == {
        "n3": ("unreachable", "the cluster says that it is not ready"),
        "n4": ("unreachable", "its pod is Pending"),
        "n5": ("unreachable", "no pod of sysperf runs there in namespace sysperf"),
        "n6": ("late", "its pod has printed no record yet"),
    }


@needs_kubectl
def test_what_is_asked_is_what_the_role_grants(api: Api) -> None:
    """Nodes and pods are listed, logs are read; nothing else."""
    audited()
    used = {_right(path) for path, _ in api.asked if path.startswith("/api/v1/")}
    roles = [each for each in documents(FOLDER / "record/collector.yaml") if each["kind"] in ("Role", "ClusterRole")]
    granted = {(what, verb) for role in roles for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}

    assert used == granted
    assert {selector for path, selector in api.asked if path.endswith("/pods")} == {"app.kubernetes.io/name=sysperf-record"}


def _right(path: str) -> tuple[str, str]:
    parts = path.removeprefix("/api/v1/").removeprefix("namespaces/sysperf/").split("/")
    return ("pods/log" if parts[-1] == "log" else parts[0], "get" if len(parts) > 1 else "list")


@needs_kubectl
def test_named_nodes_and_strangers(api: Api) -> None:
    """Only these are read."""
    fleet = audited("--hosts", "n1,n9")

    assert (fleet["asked"], fleet["answered"]) == (2, 1)
    assert [(each["reason"], each["nodes"]) for each in fleet["silent"]] == [("the cluster does not have it", ["n9"])]
    assert [path for path, _ in api.asked if path.endswith("/log")] == ["/api/v1/namespaces/sysperf/pods/sysperf-record-1/log"]


@needs_kubectl
def test_a_cluster_that_does_not_answer_is_an_error(api: Api, tmp_path: Path) -> None:
    """No empty fleet."""
    config = (tmp_path / "config").read_text()
    (tmp_path / "config").write_text(config.replace("http://127.0.0.1:", "http://127.0.0.2:1"))
    done = sysperf("fleet", "audit", "--engine", "kubernetes")

    assert done.returncode == 2
    assert "kubectl get nodes" in done.stderr


@needs_kubectl
@pytest.mark.parametrize(("words", "said"), [(("audit", "--all"), "no namespace"), (("bench",), "no `bench`")])
def test_what_is_refused(api: Api, words: tuple[str, ...], said: str) -> None:
    """A namespace that is an option, a verb that pods do not have."""
    done = (
        sysperf("fleet", words[0], "--engine", "kubernetes", "--", *words[1:])
        if words[1:]
        else sysperf("fleet", *words, "--engine", "kubernetes")
    )

    assert done.returncode == 2
    assert said in done.stderr


def test_without_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    done = sysperf("fleet", "audit", "--engine", "kubernetes")

    assert done.returncode == 2
    assert "kubectl: No such file" in done.stderr


# ---------------------------------------------------------------------- manifests


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


MANIFESTS = [
    pytest.param(each, id=f"{path.parent.name}-{each['kind']}-{each['metadata']['name']}")
    for path in sorted(FOLDER.rglob("*.yaml"))
    if path.name != "kustomization.yaml"
    for each in documents(path)
]


@pytest.mark.parametrize("manifest", MANIFESTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_their_schema(manifest: dict[str, Any], version: str) -> None:
    """Strictly: a field that is not there is an error."""
    kubernetes_validate.validate(manifest, version, strict=True)

    wrong = {**manifest, "specc": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_a_misspelt_field_of_a_container_is_an_error() -> None:
    """Strictness reaches as deep as that."""
    (daemon_set,) = (each for each in documents(FOLDER / "record/daemonset.yaml"))
    wrong = copy.deepcopy(daemon_set)
    wrong["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", ["record", "npd"])
def test_pods_may_next_to_nothing(name: str) -> None:
    """The Pod Security Standard `restricted`, and more: nothing can be written but a small folder in memory."""
    (daemon_set,) = (each for each in documents(FOLDER / name / "daemonset.yaml") if each["kind"] == "DaemonSet")
    (namespace,) = documents(FOLDER / name / "namespace.yaml")
    pod = daemon_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert daemon_set["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is False if name == "record" else pod["serviceAccountName"] == "sysperf-npd"
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert [each.get("hostPath") for each in pod["volumes"]] == [None] * len(pod["volumes"])
    assert "ports" not in container


def test_the_loop_prints_records(tmp_path: Path) -> None:
    """The very words of the container, which end when they are told to."""
    (daemon_set,) = documents(FOLDER / "record/daemonset.yaml")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    (tmp_path / "sysperf").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "sysperf").chmod(0o755)
    words = [*container["command"], *container["args"]]
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NODE_NAME": "n7"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environ, start_new_session=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "node record --node n7 --limit 60\n"
        started.terminate()
        assert started.wait(10) == 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # its sleep, which a container takes with it


@needs_kubectl
@pytest.mark.parametrize(("name", "kinds"), [("record", 7), ("npd", 5)])
def test_kustomize_builds_them(name: str, kinds: int) -> None:
    """With the image's version, and the configuration as a ConfigMap whose name says its content."""
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(FOLDER / name)], capture_output=True, text=True, check=False)
    built = [each for each in yaml.safe_load_all(done.stdout) if each]
    (daemon_set,) = (each for each in built if each["kind"] == "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]

    assert (len(built), done.stderr) == (kinds, "")
    assert ":" in pod["containers"][0]["image"]
    for each in built:
        kubernetes_validate.validate(each, VERSIONS[-1], strict=True)
    if name == "npd":
        (config,) = (each for each in built if each["kind"] == "ConfigMap")
        assert json.loads(config["data"]["sysperf.json"])["source"] == "sysperf"
        assert {"name": "config", "configMap": {"name": config["metadata"]["name"]}} in pod["volumes"]

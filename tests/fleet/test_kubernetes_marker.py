"""Marks in Kubernetes: the real kubectl against an API that keeps versions, that merges as kubectl does, and in which others write meanwhile.

kmock 0.8 keeps no versions, and its patches replace lists: it has no conflict, and would lose the other conditions.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import http.server
import json
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sysperf.fleet.markers import kubernetes
from sysperf.model.errors import SysperfError
from tests.fleet.marks_inside import KILLER
from tests.fleet.test_kubernetes import FOLDER, documents, needs_kubectl, of_node
from tests.invoking import program, sysperf

pytestmark = needs_kubectl
OURS = "sysperf: node gpu.fell-off-bus; sysperf explain gpu.fell-off-bus"
WHY = ("--why", "gpu.fell-off-bus")
CORE = "/api/v1/nodes"
KUBECTL = str(program("kubectl"))


NODES = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list", "patch"]}
DISCOVERY = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [NODES, {**NODES, "name": "nodes/status"}]},
}
"""What any API server tells everybody about itself."""


class Cluster:
    """Nodes with versions. What is written at an old version is a conflict, and of a status only the status is taken."""

    def __init__(self, count: int = 4) -> None:
        self.nodes = {f"n{number}": of_node(f"n{number}") for number in range(1, count + 1)}
        for each in self.nodes.values():
            each["metadata"] |= {"resourceVersion": "1", "labels": {"node.kubernetes.io/instance-type": "p5"}}
            each["status"] |= {"capacity": {"cpu": "8"}, "images": [{"names": ["a\u202eb"], "sizeBytes": 2**53 + 1}]}
        self.used: set[tuple[str, str]] = set()
        self.meanwhile: Callable[[str], object] = lambda _: None
        """What others do after our last look: kubectl reads the status, and patches it then."""

    def get(self, path: str, query: dict[str, list[str]]) -> Any:
        if path in DISCOVERY:
            return DISCOVERY[path]
        if path == CORE:
            self.used.add(("nodes", "list"))
            first, many = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
            following = {"continue": str(first + many)} if first + many < len(self.nodes) else {}
            return {"kind": "NodeList", "apiVersion": "v1", "metadata": following, "items": list(self.nodes.values())[first : first + many]}
        name, of_status = path.removeprefix(f"{CORE}/").removesuffix("/status"), path.endswith("/status")
        self.used.add(("nodes/status" if of_status else "nodes", "get"))
        found = copy.deepcopy(self.nodes.get(name))
        if of_status:
            self.meanwhile(name)
        return found

    def patch(self, path: str, body: str) -> tuple[int, Any]:
        """Apply a strategic merge patch. A version in it is a precondition (kubernetes/kubernetes#63104)."""
        self.used.add(("nodes/status", "patch"))
        name = path.removeprefix(f"{CORE}/").removesuffix("/status")
        node = self.nodes[name]
        if json.loads(body).get("metadata", {}).get("resourceVersion", (version := node["metadata"]["resourceVersion"])) != version:
            return 409, status("the object has been modified", "Conflict", 409)
        merged = [KUBECTL, "patch", "--local", "--type=strategic", "--output=json", "--filename=-", f"--patch={body}"]
        done = subprocess.run(merged, input=json.dumps(node), capture_output=True, text=True, check=True)
        self.write(name, json.loads(done.stdout)["status"])
        return 200, node

    def write(self, name: str, state: dict[str, Any]) -> None:
        node = self.nodes[name]
        node["status"] = state
        node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)

    def beat(self, name: str) -> None:
        """What a kubelet writes."""
        conditions = copy.deepcopy(self.nodes[name]["status"]["conditions"])
        conditions[0]["lastHeartbeatTime"] = self.nodes[name]["metadata"]["resourceVersion"]
        self.write(name, {**self.nodes[name]["status"], "conditions": conditions})

    def said(self, name: str, text: str) -> None:
        """Set the condition by somebody else."""
        others = [each for each in self.nodes[name]["status"]["conditions"] if each["type"] != "SysperfMark"]
        theirs = {"type": "SysperfMark", "status": "True", "message": text}
        self.write(name, {**self.nodes[name]["status"], "conditions": [*others, theirs]})

    def conditions(self, name: str) -> dict[str, str]:
        return {each["type"]: each.get("message", "") for each in self.nodes[name]["status"]["conditions"]}


def status(message: str, reason: str, code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code}


class Handler(http.server.BaseHTTPRequestHandler):
    """One question or one change."""

    def __init__(self, cluster: Cluster, *words: Any) -> None:
        self.cluster = cluster
        super().__init__(*words)

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path)
        found = self.cluster.get(path.path, urllib.parse.parse_qs(path.query))
        self.answer(404 if found is None else 200, status("not found", "NotFound", 404) if found is None else found)

    def do_PATCH(self) -> None:
        assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
        self.answer(*self.cluster.patch(self.path.partition("?")[0], self.rfile.read(int(self.headers["Content-Length"])).decode()))

    def answer(self, code: int, what: Any) -> None:
        body = json.dumps(what).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(answers: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, answers)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [there], "contexts": [context], "current-context": "c"}
        (folder / "config").write_text(json.dumps({**config, "users": [{"name": "u", "user": {}}]}))
        monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
        monkeypatch.setenv("HOME", str(folder))
        (folder / "journal").mkdir()
        monkeypatch.setenv("STATE_DIRECTORY", str(folder / "journal"))
        yield
        server.shutdown()


@functools.lru_cache(1)
def can_patch() -> bool:
    """Whether this kubectl is one of 1.24 or later; that of Debian 12 is not."""
    return "--subresource" in subprocess.run([KUBECTL, "patch", "--help"], capture_output=True, text=True, check=False).stdout


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of four nodes, to which kubectl is led."""
    if not can_patch():
        pytest.skip("kubectl is older than 1.24: it patches no status of a node")
    answers = Cluster()
    with serving(answers, tmp_path, monkeypatch):
        yield answers


def fleet(*words: str) -> tuple[int, str]:
    done = sysperf("fleet", *words, "--scheduler", "kubernetes")
    return done.returncode, done.stdout + done.stderr


def test_a_mark_is_a_condition_and_nothing_else_changes(cluster: Cluster) -> None:
    """It is listed, and goes; numbers and texts of others stay as they were. What was used is what the role grants."""
    before = copy.deepcopy(cluster.nodes["n1"]["status"])
    code, said = fleet("mark", "n1", *WHY, "--yes")
    marked = copy.deepcopy(cluster.nodes["n1"]["status"])
    listed = json.loads(fleet("marks", "--json")[1])["marks"]
    undone, _ = fleet("unmark", "n1")
    (role,) = documents(FOLDER / "marker/marker.yaml")

    assert (code, undone) == (0, 0), said
    mark, *others = sorted(marked["conditions"], key=lambda each: each["type"] != "SysperfMark")
    assert {**marked, "conditions": others} == before
    assert (mark["type"], mark["status"]) == ("SysperfMark", "True")
    assert [(each["node"], each["how"], each["text"], each["verdict"]) for each in listed] == [("n1", "mark", OURS, "holds")]
    assert cluster.nodes["n1"]["status"] == before
    assert cluster.used == {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}


def test_a_heartbeat_meanwhile_is_kept(cluster: Cluster) -> None:
    """It makes a conflict; the status is read and tried again."""
    beats = iter(range(3))
    cluster.meanwhile = lambda name: cluster.beat(name) if next(beats, None) is not None else None
    code, said = fleet("mark", "n1", *WHY, "--yes")
    conditions = {each["type"]: each for each in cluster.nodes["n1"]["status"]["conditions"]}

    assert code == 0, said
    assert conditions["Ready"]["lastHeartbeatTime"] == "3"
    assert conditions["SysperfMark"]["message"] == OURS


def test_a_status_that_never_stands_still(cluster: Cluster) -> None:
    """It is left alone, and the journal has nothing in force."""
    cluster.meanwhile = cluster.beat
    code, said = fleet("mark", "n1", *WHY, "--yes")

    assert code == 4
    assert "others change its status faster" in said
    assert cluster.conditions("n1").keys() == {"Ready"}
    assert json.loads(fleet("marks", "--json")[1])["marks"] == []


def test_somebody_elses_words_stay(cluster: Cluster) -> None:
    """Those that stood before, those that came between the last look and the change, and those that replaced ours."""
    cluster.said("n1", "by hand")
    assert fleet("mark", "n1", *WHY, "--yes")[0] == 3
    fleet("mark", "n2", *WHY, "--yes", "--at-most", "4")
    cluster.said("n2", "mine now")
    assert fleet("unmark", "n2")[0] == 3
    cluster.meanwhile = lambda name: cluster.said(name, "just now") if "SysperfMark" not in cluster.conditions(name) else None
    assert fleet("mark", "n3", *WHY, "--yes", "--at-most", "4")[0] == 4

    assert [cluster.conditions(name)["SysperfMark"] for name in ("n1", "n2", "n3")] == ["by hand", "mine now", "just now"]


def test_the_brake_counts_nodes_of_one_type(cluster: Cluster) -> None:
    """One of four; a type of its own is a group of its own."""
    cluster.nodes["n3"]["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "login"

    assert fleet("mark", "n1", *WHY, "--yes")[0] == 0
    code, said = fleet("mark", "n2", *WHY, "--yes")
    assert code == 3
    assert "partition p5: 2 of 3 nodes" in said
    assert fleet("mark", "n3", *WHY, "--yes")[0] == 0


def test_it_drains_nothing(cluster: Cluster) -> None:
    """No right to cordon is asked for."""
    code, said = fleet("mark", "n1", *WHY, "--drain", "--yes")

    assert code == 2
    assert "leave --drain out" in said
    with pytest.raises(SysperfError, match="no mark that Kubernetes takes"):
        kubernetes.write("n1", "drain", OURS)


def test_a_node_that_is_not_there(cluster: Cluster) -> None:
    """It is told, and so is a cluster that does not answer."""
    assert "does not have this node" in fleet("mark", "n9", *WHY, "--yes")[1]
    with pytest.raises(SysperfError, match="does not have it"):
        kubernetes.write("n9", "mark", OURS)
    assert kubernetes.states(["../x"]) == {}


def test_an_old_kubectl_is_told(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian 12's of version 1.20 complains."""
    complaint = "Error: unknown flag: --subresource\nSee 'kubectl patch --help' for usage."
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").write_text(f'#!/bin/sh\n[ "$1" = patch ] || exec {KUBECTL} "$@"\necho "{complaint}" >&2\nexit 1\n')
    (tmp_path / "bin/kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    with pytest.raises(SysperfError, match=r"older than 1\.24"):
        kubernetes.write("n1", "mark", OURS)
    assert "SysperfMark" not in cluster.conditions("n1")


def test_many_nodes_are_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them."""
    with serving(Cluster(601), tmp_path, monkeypatch):
        assert len(kubernetes.states()) == 601


def test_a_cluster_that_lies(cluster: Cluster, tmp_path: Path) -> None:
    """What is no node, or one without a version, changes nothing; one that does not answer is an error."""
    del cluster.nodes["n2"]["metadata"]["resourceVersion"]
    with pytest.raises(SysperfError, match="no version"):
        kubernetes.write("n2", "mark", OURS)
    cluster.nodes["n1"]["status"] = {"conditions": "none"}
    with pytest.raises(SysperfError, match="cannot be read"):
        kubernetes.states()
    with pytest.raises(SysperfError, match="cannot be read"):
        kubernetes.write("n1", "mark", OURS)
    (tmp_path / "config").write_text((tmp_path / "config").read_text().replace("http://127.0.0.1:", "http://127.0.0.2:1"))
    with pytest.raises(SysperfError, match="kubectl get"):
        kubernetes.states()


@pytest.mark.slow
def test_killed_at_any_call(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark is whole and in the journal, or absent; `unmark` ends what was begun."""
    path = tmp_path / "bin"
    path.mkdir()
    (path / "kubectl").write_text(KILLER.replace("{folder}", str(tmp_path)).replace("{scontrol}", KUBECTL))
    (path / "kubectl").chmod(0o755)
    before = copy.deepcopy(cluster.nodes["n1"]["status"])
    codes = []
    for when in (f"{word} {number}" for number in range(1, 16) for word in ("before", "after")):
        (tmp_path / "calls").write_text("0")
        with monkeypatch.context() as killing:
            killing.setenv("KILL", when)
            killing.setenv("PATH", f"{path}:/usr/local/bin:/usr/bin:/bin")
            codes.append(fleet("mark", "n1", *WHY, "--yes")[0])
        marked = cluster.nodes["n1"]["status"] != before
        listed = json.loads(fleet("marks", "--json")[1])["marks"]
        assert not marked or listed[0]["transaction"]
        assert fleet("unmark", "--all")[0] == 0
        assert cluster.nodes["n1"]["status"] == before
        shutil.rmtree(tmp_path / "journal/changes", ignore_errors=True)
        if codes[-1] == 0:
            break

    assert set(codes) == {-9, 0}

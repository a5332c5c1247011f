"""Nodes by Ray: a real cluster of four nodes on this machine, one of which dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sysperf_ray
from sysperf_ray import Known, named

from sysperf.model.errors import UsageError
from sysperf.model.node import Asked
from tests.agent.states import eventually
from tests.fleet.machines import script, silent
from tests.invoking import sysperf, with_variable

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("SYSPERF_RAY_PYTHON", "")
needs_ray = pytest.mark.skipif(not PYTHON, reason="SYSPERF_RAY_PYTHON names no interpreter with ray")


class Cluster(NamedTuple):
    """A cluster that runs."""

    folder: Path
    address: str
    process: subprocess.Popen[str]

    def script(self, name: str, line: str) -> Path:
        """What is started as sysperf on a node."""
        return script(self.folder, name, line)

    def words(self, verb: str, program: str, *words: str) -> list[str]:
        """The words of a command about its nodes."""
        return ["fleet", verb, self.address, "--engine", "ray", "--json", "--sysperf", str(self.folder / program), *words]

    @property
    def environment(self) -> dict[str, str]:
        """With `ray` on the path, and not in our interpreter."""
        return {**os.environ, "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}"}

    def asked(self, program: str, *words: str) -> dict[str, Any]:
        """What an audit says."""
        done = sysperf(*self.words("audit", program, "--fail-on", "never", "--node-limit", "60", *words), env=self.environment)
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("ray")
    sockets = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a socket's path has at most 107 bytes
    words = (PYTHON, str(ROOT / "tests/fleet/ray_cluster.py"))
    os.mkdir(f"{sockets}/ray")
    environment = {**os.environ, "RAY_TMPDIR": sockets, "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("OMP_NUM_THREADS", None)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        address = next((line.split()[1] for line in lines if line.startswith("at ")), "")
        assert address, (folder / "log").read_text()[-3_000:]
        made = Cluster(folder, address, process)
        made.script("sysperf", f'PYTHONPATH={ROOT} exec {sys.executable} -m sysperf "$@"')
        yield made
    finally:
        process.communicate(timeout=120)
        shutil.rmtree(sockets, ignore_errors=True)


@needs_ray
@pytest.mark.slow
@pytest.mark.xdist_group("ray")
class TestRay:
    """One cluster answers all; the last test kills a node of it."""

    def test_all_nodes_answer_under_the_names_that_they_were_given(self, cluster: Cluster) -> None:
        """They are four Rays on one machine, so its host name is no name of theirs; a stranger is told."""
        fleet = cluster.asked("sysperf")
        some = cluster.asked("sysperf", "--hosts", "n[2-3],n9")

        assert (fleet["engine"], fleet["asked"], fleet["answered"]) == ("ray", 4, 4), fleet["silent"]
        assert [each["nodes"] for each in fleet["classes"]] == [["n1", "n2", "n3", "n4"]]
        assert (some["answered"], silent(some)) == (2, {"n9": ("unreachable", "Ray does not have it")})

    def test_what_ray_sets_for_tasks_is_given_back(self, cluster: Cluster) -> None:
        """OMP_NUM_THREADS is that of whoever started Ray there, and no GPU is hidden."""
        cluster.script("told", f'env >{cluster.folder}/env-$(echo "$@" | sed "s/.* //"); exec {cluster.folder}/sysperf "$@"')
        assert cluster.asked("told")["answered"] == 4
        seen = {
            name: dict(line.partition("=")[::2] for line in (cluster.folder / f"env-{name}").read_text().splitlines())
            for name in ("n1", "n2")
        }

        assert [each.get("OMP_NUM_THREADS") for each in seen.values()] == [None, "3"]
        assert not any("CUDA_VISIBLE_DEVICES" in each for each in seen.values())

    def test_what_is_no_answer(self, cluster: Cluster) -> None:
        """Too late, too much, not there, and with an error: each with its reason."""
        cases = 'case "$*" in *n1) sleep 100;; *n2) head -c 400000 /dev/zero;; *n3) echo it broke >&2; exit 7;; esac; exec /nowhere/sysperf'
        cluster.script("broken", cases)
        told = silent(cluster.asked("broken", "--node-limit", "4"))
        gone = silent(cluster.asked("not-there"))

        assert told["n1"] == ("late", "no answer within 4 s")
        assert told["n2"] == ("refused", "it printed more than 320 KiB")
        assert told["n3"] == ("refused", "it broke")
        assert told["n4"][0] == "refused"
        assert "sysperf is not where it was looked for" in gone["n1"][1]

    def test_nodes_measure(self, cluster: Cluster) -> None:
        """One after the other where only one is asked at a time."""
        words = cluster.words("bench", "sysperf", "--only", "start", "--at-once", "1", "--node-limit", "120")
        bench = json.loads(sysperf(*words, env=cluster.environment).stdout)

        assert (bench["engine"], bench["answered"]) == ("ray", 4), bench["silent"]
        assert bench["figures"] == 8

    def test_a_killed_collector_leaves_nothing_on_the_nodes(self, cluster: Cluster) -> None:
        """Ray ends the tasks, and what they started ends as nobody reads its output any more."""
        mark = f"MEASURED_FOR={cluster.folder}"
        cluster.script("long", f'{mark} exec {cluster.folder}/sysperf "$@" --runs 1000')
        words = cluster.words("bench", "long", "--only", "start", "--node-limit", "600")
        collector = subprocess.Popen(
            [sys.executable, "-m", "sysperf", *words], env=cluster.environment, stdout=subprocess.DEVNULL, cwd=ROOT
        )
        assert eventually(lambda: sum(b"ceilings.py" in line for line in with_variable(mark)) == 4, 120)
        collector.send_signal(signal.SIGKILL)
        collector.wait()

        assert eventually(lambda: not with_variable(mark)), with_variable(mark)

    def test_ctrl_c_shows_what_is_there(self, cluster: Cluster) -> None:
        """Who answered is reported, who did not is late."""
        cluster.script("mixed", f'case "$*" in *n3) sleep 60;; esac; {cluster.folder}/sysperf "$@"; touch {cluster.folder}/done-$$')
        words = cluster.words("audit", "mixed", "--node-limit", "90")
        collector = subprocess.Popen(
            [sys.executable, "-m", "sysperf", *words], env=cluster.environment, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert eventually(lambda: len(list(cluster.folder.glob("done-*"))) == 3, 90)
        assert not eventually(lambda: collector.poll() is not None, 2)
        collector.send_signal(signal.SIGINT)
        fleet = json.loads(collector.communicate(timeout=60)[0])

        assert fleet["interrupted"]
        assert (fleet["answered"], {name: state for name, (state, _) in silent(fleet).items()}) == (3, {"n3": "late"})

    def test_a_node_that_died_costs_its_own_answer_only(self, cluster: Cluster) -> None:
        """Whether Ray knows by then or not."""
        assert cluster.process.stdin is not None
        assert cluster.process.stdout is not None
        cluster.process.stdin.write("n4\n")
        cluster.process.stdin.flush()
        assert cluster.process.stdout.readline() == "killed\n"
        at_once = cluster.asked("sysperf", "--node-limit", "20")
        assert eventually(lambda: "Ray says that it died" in silent(cluster.asked("sysperf")).get("n4", ("", ""))[1])

        assert (at_once["asked"], at_once["answered"]) == (4, 3), at_once["silent"]
        assert silent(at_once)["n4"][0] in ("unreachable", "late")


@needs_ray
def test_no_cluster_is_started() -> None:
    """Where none answers, that is an error, and at once."""
    environment = {**os.environ, "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}"}
    done = sysperf("fleet", "audit", "127.0.0.1:1", "--engine", "ray", env=environment)

    assert done.returncode == 2
    assert done.stderr.startswith("sysperf: Ray: ConnectionRefusedError: ")


def test_without_ray(tmp_path: Path) -> None:
    """It says what is missing."""
    (tmp_path / "python3").symlink_to(sys.executable)
    done = sysperf("fleet", "audit", "--engine", "ray", env={"PATH": str(tmp_path)})

    assert done.returncode == 2
    assert "No module named 'ray'" in done.stderr


@pytest.mark.parametrize("address", ["local", "-x", "ray://", "a b:1", "10.0.0.1"])
def test_what_is_no_address(address: str) -> None:
    """Above all nothing that would start a cluster here."""
    with pytest.raises(UsageError):
        sysperf_ray.nodes(Asked(where=address))


def test_names() -> None:
    """The first that no other node has; one that died is missed unless it is back, or was taken out of the cluster."""
    lost = "unexpected_termination"
    listed = [
        Known("a" * 20, ("host", "10.0.0.1")),
        Known("b" * 20, ("host", "10.0.0.2")),
        Known("c" * 20, ("n3", "host3", "10.0.0.3")),
        Known("d" * 20, ("\x1b[2J", "host", "10.0.0.1")),
        Known("e" * 20, ("n5", "host5"), alive=False, death=lost),
        Known("f" * 20, ("n3", "host3", "10.0.0.3"), alive=False, death=lost),
        Known("e" * 20, ("n5", "host5"), alive=False, death=lost),
        Known("g" * 20, ("n7", "host7"), alive=False, death="expected_termination"),
        Known("h" * 20, ("host", "10.0.0.1")),
    ]

    assert {name: each.id[0] for name, each in named(listed).items()} == {
        "node-aaaaaaaaaaaa": "a",
        "10.0.0.2": "b",
        "n3": "c",
        "node-dddddddddddd": "d",
        "n5": "e",
        "node-hhhhhhhhhhhh": "h",
    }

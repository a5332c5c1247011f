"""Facts about the programs of two users, seen by root's audit, and by the agent and the daily audit with and without `see-all-users`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.systemd.inside import PYTHON, SYSPERF, fact, journal, run, show, unit, wait

AGENT = "sysperf-agent.service"
AUDIT = "sysperf-audit.service"
SOCKET = "/run/sysperf/agent.sock"
REPORT = Path("/audit.json")
PROGRAM = """
import mmap, sys, time
kept = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE))
kept.append(mmap.mmap(-1, 512 << 20))
time.sleep(600)
"""


def environment(folder: str, uid: int, version: str) -> list[str]:
    """A user's own environment with a PyTorch that is a name, private as homes are; the libraries to map."""
    site = Path(folder, "venv/lib/python3.11/site-packages")
    libraries = [site / "torch/lib/libtorch_cpu.so", site / "torch/lib/libgomp.so.1", site / "intel/libiomp5.so"]
    for library in libraries:
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"\x7fELF" + bytes(4092))
    (site / "torch/version.py").write_text(f"__version__ = '{version}'\ncuda = None\ngit_version = 'none'\n")
    Path(folder, "venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n")
    for path in (Path(folder), *Path(folder).rglob("*")):
        shutil.chown(path, uid, uid)
    os.chmod(folder, 0o700)
    return [str(library) for library in libraries]


def start(folder: str, uid: int, version: str, *, nice: int = 0, **variables: str) -> int:
    words = ["nice", f"-n{nice}", "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", PYTHON, "-c", PROGRAM]
    given = {"PATH": os.environ["PATH"], "HOME": folder, "VIRTUAL_ENV": f"{folder}/venv", **variables}
    return subprocess.Popen([*words, *environment(folder, uid, version)], cwd="/", env=given).pid


def started() -> tuple[int, int]:
    """A program in a home, one in /tmp."""
    os.makedirs("/home/alice")
    pids = (
        start("/home/alice", 4321, "1.8.0", nice=15, LD_PRELOAD="/home/alice/gone.so"),
        start("/tmp/bob", 4322, "2.9.0", MALLOC_CHECK_="3", OMP_NUM_THREADS="64"),
    )
    wait(lambda: all(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) > 500 for pid in pids), 10)
    time.sleep(1)
    return pids


PIDS = started()


def findings(outcomes: list[dict[str, Any]]) -> list[list[str]]:
    """Findings about programs and environments, as rule and subject. Those about the machine change from second to second."""
    return sorted(
        [outcome["rule"], f"{outcome['subject'].get('name', '')} {outcome['subject'].get('pid', '')}".strip()]
        for outcome in outcomes
        if outcome["state"] == "finding" and outcome["scope"] != "host"
    )


def audited() -> dict[str, Any]:
    """The report of the daily audit's unit, in its sandbox."""
    line = show(AUDIT, "ExecStart")["ExecStart"].partition("argv[]=")[2].partition(" ;")[0].removesuffix(" --format json")
    REPORT.unlink(missing_ok=True)
    unit(f"{AUDIT}.d/test.conf", f"[Service]\nExecStart=\nExecStart={line} --format json\nStandardOutput=file:{REPORT}\n")
    run("systemctl", "start", AUDIT, seconds=60, check=True)
    report: dict[str, Any] = json.loads(REPORT.read_text())
    return report


def ask(path: str) -> Any:
    return json.loads(run("curl", "--silent", "--fail", "--max-time", "10", "--unix-socket", SOCKET, f"http://agent{path}")["out"])


def watched() -> list[list[str]]:
    return findings([finding["outcome"] for finding in ask("/v1/findings")["findings"]])


@fact
def by_root() -> list[list[str]]:
    return findings(json.loads(run(SYSPERF, "audit", "--json", "--fail-on", "never", seconds=60)["out"])["outcomes"])


@fact
def audit_alone() -> dict[str, Any]:
    run(SYSPERF, "service", "install", "--now", check=True)
    run("systemctl", "start", AUDIT, seconds=60, check=True)
    return {"text": journal(AUDIT), "findings": findings(audited()["outcomes"])}


@fact
def agent_alone() -> dict[str, Any]:
    wait(lambda: ask("/v1/status")["problems"], 30)
    return {"problems": ask("/v1/status")["problems"], "findings": watched(), "status": run(SYSPERF, "agent", "status")["out"]}


@fact
def audit_with_the_drop_in() -> list[list[str]]:
    run(SYSPERF, "service", "install", "--with", "see-all-users", check=True)
    return findings(audited()["outcomes"])


@fact
def agent_with_the_drop_in() -> list[list[str]]:
    run("systemctl", "restart", AGENT, seconds=60, check=True)
    wait(lambda: watched() == by_root(), 40)
    return watched()

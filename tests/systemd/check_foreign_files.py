"""Facts about an unprivileged user who binds root's file over what sysperf reads of his program, and about what comes out of each unit."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.systemd.inside import PYTHON, SYSPERF, fact, journal, run, show, unit, wait

USER = 4321
SECRET = "9.8.7+only.root.may.read.this"  # noqa: S105 - it is that to the user only
SHADOW = Path("/etc/only-root")
HIDDEN = Path("/etc/only-root.d")
BASE = Path("/srv/theirs")
SITE = BASE / "venv/lib/python3.11/site-packages"
TORCH = SITE / "torch"
COVERED = (TORCH / "version.py", TORCH / "build-version", BASE / "venv/pyvenv.cfg", SITE / "torch-2.9.0.dist-info/METADATA")
VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TORCH_HOME", "LD_PRELOAD")
SOCKET = "/run/sysperf/agent.sock"
AUDIT = "sysperf-audit.service"
OUTPUTS = Path("/outputs")
PROGRAM = """
import mmap, os, sys, time
os.chdir(sys.argv[1])
kept = [mmap.mmap(-1, 512 << 20)]
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE))
os.open("torch", os.O_PATH)
time.sleep(600)
"""


def attacked() -> int:
    """The process of the attacker: its environ, maps, root, cwd, fd and site-packages all lead to the file of root."""
    SHADOW.write_text(f"{SECRET}\n__version__ = '{SECRET}'\nName: {SECRET}\nhome = /{SECRET}\n")
    SHADOW.chmod(0o600)
    HIDDEN.mkdir(mode=0o700)
    (HIDDEN / SECRET).write_text(SECRET)
    (TORCH / "lib").mkdir(parents=True)
    (TORCH / "lib/libtorch_cpu.so").write_bytes(b"\x7fELF" + bytes(4092))
    for file in COVERED:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    for path in (BASE, *BASE.rglob("*")):
        os.chown(path, USER, USER)
    binds = "".join(f"mount --bind {SHADOW} {file} && " for file in COVERED)
    line = f"{binds}exec {PYTHON} -E -c '{PROGRAM}' {SITE} {TORCH}/lib/libtorch_cpu.so"
    words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "--user", "--map-root-user", "--mount"]
    given = {"PATH": os.environ["PATH"], **{name: f"{HIDDEN}/{SECRET}" if name == "LD_PRELOAD" else str(HIDDEN) for name in VARIABLES}}
    given |= {"VIRTUAL_ENV": str(BASE / "venv")}
    attacker = subprocess.Popen([*words, "sh", "-c", line], env=given, stderr=subprocess.DEVNULL).pid
    wait(lambda: "libtorch_cpu" in Path(f"/proc/{attacker}/maps").read_text(), 20)
    time.sleep(1)
    return attacker


PID = attacked()


def output(*command: str, seconds: float = 60) -> str:
    """What a command prints, on both streams."""
    done = run(*command, seconds=seconds)
    return str(done["out"]) + str(done["err"])


def ask(path: str, *options: str) -> str:
    return output("curl", "--silent", "--max-time", "20", *(options or ("--unix-socket", SOCKET)), f"http://agent{path}")


def leaks(texts: dict[str, str]) -> list[str]:
    """Which of them hold a part of the secret that is not in the environment of the attacker."""
    return [name for name, text in texts.items() if "only.root.may.read" in text.replace(f"{HIDDEN}/{SECRET}", "")]


@fact
def the_attack_works() -> dict[str, Any]:
    """Root, without any check, reads the secret through the doors."""
    doors = [f"/proc/{PID}/root{TORCH}/version.py", f"/proc/{PID}/cwd/torch/build-version"]
    maps = Path(f"/proc/{PID}/maps").read_text()
    return {"read": [SECRET in Path(door).read_text() for door in doors], "maps": "libtorch_cpu.so" in maps}


@fact
def by_root() -> dict[str, Any]:
    """The commands that root runs: whether they see the program, and which of them leak."""
    OUTPUTS.mkdir()
    run(SYSPERF, "capture", str(OUTPUTS / "capture.tar"), seconds=60, check=True)
    texts = {
        "facts": output(SYSPERF, "facts", "--json"),
        "audit": output(SYSPERF, "audit", "--json", "--fail-on", "never"),
        "ps": output(SYSPERF, "ps", "--json"),
        "capture": (OUTPUTS / "capture.tar").read_bytes().decode("latin-1"),
    }
    return {"leaks": leaks(texts), "seen": [name for name, text in texts.items() if str(PID) in text or "theirs" in text]}


def by_units() -> dict[str, Any]:
    """What the agent's API, its metrics port and the daily audit tell."""
    run("systemctl", "restart", "sysperf-agent.service", seconds=60, check=True)
    run("systemctl", "start", "sysperf-metrics.socket", check=True)
    wait(lambda: json.loads(ask("/v1/status") or "{}").get("samples", 0) > 2, 30)
    wait(lambda: str(PID) in ask("/v1/processes"), 20)
    run("systemctl", "start", AUDIT, seconds=90)
    paths = ("/v1/snapshot", "/v1/findings", "/v1/processes", "/v1/workers", "/v1/status", "/metrics")
    texts = {path: ask(path) for path in paths}
    texts["port"] = ask("/metrics", "--connect-to", "agent:80:127.0.0.1:9109")
    texts["audit"] = journal(AUDIT)
    texts["log"] = journal("sysperf-agent.service")
    return {
        "leaks": leaks(texts),
        "port": "sysperf_" in texts["port"],
        "sees": str(PID) in texts["/v1/processes"],
        "audit": show(AUDIT, "Result")["Result"],
    }


@fact
def alone() -> dict[str, Any]:
    run(SYSPERF, "service", "install", "--now", check=True)
    return by_units()


@fact
def with_all_users() -> dict[str, Any]:
    """The units that may read what every user has: the most that they can be made to tell."""
    run(SYSPERF, "service", "install", "--now", "--with", "see-all-users", check=True)
    return by_units()


@fact
def helper_and_restore() -> dict[str, Any]:
    """They read no file of a process at all; what they say is the journal's."""
    unit("sysperf-restore.service.d/test.conf", "[Unit]\nDescription=as shipped\n")
    run("systemctl", "start", "sysperf-restore.service", seconds=60)
    texts = {
        "changes": output(SYSPERF, "changes", "--json"),
        "plan": output(SYSPERF, "plan", "--json"),
        "restore": journal("sysperf-restore.service"),
        "helper": journal("sysperf-helper.service"),
    }
    return {"leaks": leaks(texts), "restore": show("sysperf-restore.service", "Result")["Result"]}

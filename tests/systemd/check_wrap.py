"""Facts about `ExecStart=sysperf wrap -- python …`: what systemd sees of the program, and the program of its unit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.systemd.inside import SYSPERF, fact, run, show, unit, wait

OUT = Path("/var/lib/wrapped.json")
SITE = Path("/opt/env/lib/python3.11/site-packages/torch")
PROGRAM = Path("/opt/env/program.py")

PROGRAM_TEXT = """
import json, os, signal, socket, sys

told = {
    "pid": os.getpid(),
    "threads": os.environ.get("OMP_NUM_THREADS"),
    "cpus": sorted(os.sched_getaffinity(0)),
    "uid": os.getuid(),
    "fds": os.environ.get("LISTEN_FDS") if os.environ.get("LISTEN_PID") == str(os.getpid()) else None,
    "passed": [socket.socket(fileno=3).getsockname()] if "LISTEN_FDS" in os.environ else [],
}
print(json.dumps(told), flush=True)

def notify(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(text, os.environ["NOTIFY_SOCKET"])

def ended(*_):
    print("ended in order", flush=True)
    sys.exit(0)

if sys.argv[1] == "serve":
    signal.signal(signal.SIGTERM, ended)
    notify(b"READY=1\\nSTATUS=serving")
    while True:
        signal.pause()
sys.exit(int(sys.argv[1]))
"""


def prepared() -> None:
    """An environment with a torch, as far as files tell, and a program in it."""
    (SITE / "lib").mkdir(parents=True)
    (SITE / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    (SITE / "lib/libgomp.so.1").touch()
    Path("/opt/env/bin").mkdir()
    base = os.path.realpath(sys.executable)
    Path("/opt/env/pyvenv.cfg").write_text(f"home = {os.path.dirname(base)}\n")
    Path("/opt/env/bin/python").symlink_to(base)
    PROGRAM.write_text(PROGRAM_TEXT)


prepared()


def started(argument: str, settings: str = "", name: str = "wrapped.service") -> dict[str, Any]:
    """Run a wrapped program as a unit: what it told, and what systemd says of it."""
    OUT.unlink(missing_ok=True)
    words = f"{SYSPERF} wrap -- /opt/env/bin/python {PROGRAM} {argument}"
    unit(name, f"[Service]\nExecStart={words}\nStandardOutput=file:{OUT}\nStandardError=journal\n{settings}\n")
    done = run("systemctl", "start", name)
    wait(lambda: OUT.exists() and OUT.read_text().count("\n") > 0)
    properties = show(name, "MainPID", "ActiveState", "StatusText", "Result", "ExecMainStatus")
    return {"start": done["code"], "told": json.loads(OUT.read_text().splitlines()[0]), **properties}


@fact
def cpus() -> int:
    return len(os.sched_getaffinity(0))


@fact
def half_a_cpu() -> dict[str, Any]:
    return started("0", "Type=oneshot\nCPUQuota=50%")


@fact
def one_and_a_half_cpus() -> dict[str, Any]:
    return started("0", "Type=oneshot\nCPUQuota=150%")


@fact
def one_cpu_of_the_mask() -> dict[str, Any]:
    return started("0", "Type=oneshot\nCPUAffinity=0")


@fact
def serves() -> dict[str, Any]:
    return started("serve", "Type=notify\nNotifyAccess=main")


@fact
def main_process() -> str:
    return os.readlink(f"/proc/{show('wrapped.service', 'MainPID')['MainPID']}/exe")


@fact
def processes_of_the_unit() -> list[str]:
    lines = Path(f"/proc/{show('wrapped.service', 'MainPID')['MainPID']}/cgroup").read_text().splitlines()
    group = next(line.rpartition(":")[2] for line in lines if line.rpartition(":")[2].endswith("wrapped.service"))
    folders = (f"/sys/fs/cgroup/{name}{group}" for name in ("systemd", ""))
    return next(Path(folder, "cgroup.procs").read_text().split() for folder in folders if os.path.isdir(folder))


@fact
def stopped() -> list[Any]:
    done = run("systemctl", "stop", "wrapped.service")
    return [done["code"], show("wrapped.service", "Result", "ExecMainStatus", "ActiveState"), OUT.read_text().splitlines()[-1]]


@fact
def fails() -> dict[str, str]:
    started("7", "Type=exec", "failing.service")
    wait(lambda: show("failing.service", "ActiveState")["ActiveState"] == "failed")
    return show("failing.service", "Result", "ExecMainStatus", "ExecMainCode")


@fact
def in_a_sandbox() -> dict[str, Any]:
    sandbox = "DynamicUser=yes\nProtectHome=yes\nPrivateTmp=yes\nMemoryDenyWriteExecute=yes\nSystemCallFilter=@system-service"
    return started("0", f"Type=oneshot\n{sandbox}", "sandboxed.service")


@fact
def socket_passed() -> dict[str, Any]:
    unit("passed.service", "[Service]\nExecStart=true\n")
    unit("passed.socket", "[Socket]\nListenStream=/run/passed.sock\n")
    run("systemctl", "start", "passed.socket", check=True)
    return started("serve", "Type=notify", "passed.service")

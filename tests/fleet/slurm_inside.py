"""A Slurm of four nodes on this machine, in namespaces of its own: run as a program in one, it answers facts as JSON.

unshare --mount --net --uts --pid --fork --mount-proc python -m tests.fleet.slurm_inside FOLDER
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.agent.states import eventually
from tests.invoking import SBIN, with_variable

NODES = 4
ROOT = Path(__file__).resolve().parent.parent.parent
CONF = """\
ClusterName=four
SlurmctldHost=ctl(10.98.0.1)
SlurmUser=root
AuthType=auth/{auth}
CredType=cred/{auth}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort=17100
SlurmdTimeout=300
{extra}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def run(*argv: str, seconds: float = 60, **variables: str) -> dict[str, Any]:
    """Code, output and time of a command."""
    begun = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False, env={**os.environ, **variables})
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr, "seconds": round(time.monotonic() - begun, 2)}


def started(folder: Path, extra: str = "") -> list[subprocess.Popen[bytes]]:
    """The daemons: a controller, then the nodes n1 to n4."""
    os.environ["PATH"] += f":{SBIN}"
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    run("hostname", "ctl")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", "10.98.0.1/32", "dev", "lo")  # names are looked up only where there is an address besides the loopback's
    (folder / "hosts").write_text("127.0.0.1 localhost\n10.98.0.1 ctl n1 n2 n3 n4\n")
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    for number in range(1, NODES + 1):
        (folder / f"spool-n{number}").mkdir()
    (folder / "state").mkdir()
    nodes = "\n".join(
        f"NodeName=n{number} NodeHostname=ctl NodeAddr=10.98.0.1 Port={17000 + number} CPUs=1 State=UNKNOWN"
        for number in range(1, NODES + 1)
    )
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, nodes=nodes, extra=extra, auth="none"))
    with (folder / "daemons.log").open("wb") as log:
        words = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"n{number}"] for number in range(1, NODES + 1))]
        daemons = [subprocess.Popen(each, stdout=log, stderr=log, stdin=subprocess.DEVNULL) for each in words]
    for _ in range(300):
        if run("sinfo", "-h", "-o", "%D %T")["out"].split() == [str(NODES), "idle"]:
            return daemons
        time.sleep(0.1)
    raise AssertionError([run("sinfo")["out"], *(path.read_text()[-2_000:] for path in folder.glob("*.log"))])


def killed_collector(*before: str) -> dict[str, Any]:
    """What of `fleet bench` runs, and which jobs there are, before and some seconds after `kill -9` of it."""
    mark = f"MEASURED_FOR={'-'.join(before) or 'nothing'}"
    words = (*before, sys.executable, "-m", "sysperf", "fleet", "bench", "--engine", "slurm", "--only", "start", "--runs", "100")
    with subprocess.Popen(["env", mark, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        measuring = eventually(lambda: sum(b"ceilings.py" in line for line in with_variable(mark)) == NODES, 60)
        (collector,) = [pid for pid in processes(b"\0fleet\0bench\0") if b"salloc" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
        jobs = run("squeue", "-h", "-o", "%j")["out"].split()
        os.kill(collector, signal.SIGKILL)
        gone = eventually(lambda: not with_variable(mark) and not run("squeue", "-h")["out"], 30)
    return {"measuring": measuring, "jobs": jobs, "gone": gone}


def paired() -> dict[str, Any]:
    """What `fleet bench --pairs` says, where an environment has torch; nothing where none has."""
    if not (python := os.environ.get("SYSPERF_TORCH_PYTHON")):
        return {}
    words = ("--engine", "slurm", "--pairs", "--json")
    return run(sys.executable, "-m", "sysperf", "fleet", "bench", *words, seconds=300, VIRTUAL_ENV=str(Path(python).parent.parent))


def processes(words: bytes) -> list[int]:
    """Those with this in their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if words in path.read_bytes() else []
    return found


def main(folder: Path) -> dict[str, Any]:
    """Facts, one after the other."""
    health = folder / "health"
    command = f"PYTHONPATH={ROOT} {sys.executable} -m sysperf check --as slurm-health --no-agent --budget 30s"
    health.write_text(f"#!/bin/sh\nenv >{folder}/$SLURMD_NODENAME.env\n{command} >{folder}/said\necho $? >{folder}/code\n")
    health.chmod(0o755)
    daemons = started(folder, f"HealthCheckProgram={health}\nHealthCheckInterval=2")
    sysperf = (sys.executable, "-m", "sysperf", "fleet", "audit", "--json", "--fail-on", "never")
    facts = {"whole": run("salloc", f"-N{NODES}", *sysperf)}
    facts["idle"] = run(*sysperf, "--engine", "slurm")
    run("salloc", f"-N{NODES}", "--no-shell")
    (job,) = run("squeue", "-h", "-o", "%i")["out"].split()
    facts["job"] = run(sys.executable, "-m", "sysperf", "fleet", "job", job, "--engine", "slurm", "--json")
    run("scancel", job)
    facts["collector killed"] = {"outside": killed_collector(), "inside": killed_collector("salloc", f"-N{NODES}")}
    facts["pairs"] = paired()
    run("scontrol", "update", "nodename=n1", "state=drain", "reason=by hand")
    facts["states"] = run(*sysperf, "--engine", "slurm")
    run("scontrol", "update", "nodename=n1", "state=resume")
    inner = f"kill -9 {daemons[NODES].pid}; exec {' '.join(sysperf)} --node-limit 30"
    facts["killed"] = run("salloc", f"-N{NODES}", "sh", "-c", inner, seconds=120)
    facts["health"] = {name: (folder / name).read_text() for name in ("code", "said", "n1.env")}
    daemons[0].kill()
    daemons[0].wait()
    facts["dead"] = run(*sysperf, "--engine", "slurm")
    return facts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

"""Facts about `srun sysperf wrap -- python …` with a real Slurm of one node."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.systemd.inside import SYSPERF, fact, run, wait

ADDRESS = "10.99.0.1"
CPUS = os.cpu_count() or 1
SHOW = (
    "import os, json; print(json.dumps({'rank': int(os.environ['SLURM_PROCID']), 'cpus': sorted(os.sched_getaffinity(0)),"
    " 'threads': os.environ.get('OMP_NUM_THREADS'), 'pid': os.getpid() == int(os.environ['SLURM_TASK_PID'])}))"
)
CONF = f"""
ClusterName=one
SlurmctldHost=one({ADDRESS})
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ReturnToService=2
MpiDefault=none
NodeName=one NodeAddr={ADDRESS} CPUs={CPUS} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def prepared() -> None:
    """One node that is its own controller, under a name of its own."""
    run("hostname", "one", check=True)
    run("ip", "link", "set", "lo", "up", check=True)
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo", check=True)
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} one\n")
    for folder in (
        "/etc/slurm",
        "/var/spool/slurmctld",
        "/var/spool/slurmd",
        "/run/munge",
        "/etc/munge",
        "/var/log/munge",
        "/var/lib/munge",
    ):
        os.makedirs(folder, exist_ok=True)
    Path("/etc/slurm/slurm.conf").write_text(CONF)
    munge = pwd.getpwnam("munge")
    Path("/etc/munge/munge.key").write_bytes(os.urandom(128))
    for path in ("/etc/munge", "/etc/munge/munge.key", "/run/munge", "/var/log/munge", "/var/lib/munge"):
        os.chown(path, munge.pw_uid, munge.pw_gid)
    os.chmod("/etc/munge/munge.key", 0o400)
    run("setpriv", f"--reuid={munge.pw_uid}", f"--regid={munge.pw_gid}", "--clear-groups", "munged", check=True)
    subprocess.Popen(["slurmctld", "-D"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    subprocess.Popen(["slurmd", "-D", "-N", "one"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait(lambda: "idle" in run("sinfo", "-h", "-o", "%T")["out"], 20)


prepared()


def srun(*options: str) -> dict[str, Any]:
    """What each rank says, by rank, and what srun gave back."""
    done = run("srun", *options, SYSPERF, "wrap", "--", "/opt/sysperf/bin/python", "-c", SHOW, seconds=40)
    ranks = [json.loads(line) for line in done["out"].splitlines() if line.startswith("{")]
    return {"code": done["code"], "ranks": sorted(ranks, key=lambda rank: int(rank["rank"])), "err": done["err"]}


@fact
def state() -> str:
    return str(run("sinfo", "-h", "-o", "%T %c")["out"])


@fact
def unbound() -> dict[str, Any]:
    return srun("-n2", "--cpu-bind=none")


@fact
def bound() -> dict[str, Any]:
    return srun("-n2", "--cpu-bind=rank")


@fact
def exit_code() -> int:
    return int(run("srun", "-n1", SYSPERF, "wrap", "--", "sh", "-c", "exit 7", seconds=40)["code"])


@fact
def cancelled() -> list[Any]:
    script = "trap 'echo ended in order; exit 0' TERM; echo up; sleep 60 & wait"
    with Path("/out").open("w") as out:
        job = subprocess.Popen(["srun", "-n1", SYSPERF, "wrap", "--", "sh", "-c", script], stdout=out, stderr=subprocess.DEVNULL)
        wait(lambda: "up" in Path("/out").read_text())
        begun = time.monotonic()
        run("scancel", "--state=RUNNING", "--user=root")
        job.wait(30)
    return [Path("/out").read_text(), time.monotonic() - begun]

"""Start a program of the clinic and ask sysperf about it: ``python watch.py ILLNESS STATE FOLDER RULE``; prints JSON.

Runs in a PID namespace of its own where that is allowed, so that PyTorch programs of others are no part of what is judged.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLINIC = Path(__file__).parent / "clinic.py"
LIMIT_S = 30.0
"""From the start of a sick program until its illness is named, where the machine has a CPU for it."""
MAX_LIMIT_S = 100.0
TWO_LOOKS = {"memory_grows", "synced_writes", "pool_made_again", "compiles_late"}
"""What shows only between two looks: an agent's, or those of --deep."""
SITE_RULES = """
schema = 1
pack = {id = "clinic", version = "1"}
[[override]]
rule = "compile.recompiles"
params = {late_s = 20}
"""
"""Late is after a quarter of an hour, for which this does not wait."""
MAX_LISTINGS = 3
"""States of threads, and what only two looks tell, are told anew by each listing: on a busy machine one may fall between."""
FIRST_S = 9.0
HEALTHY_S = {"compiles_late": 45.0}
"""Where a healthy program is looked at later than others: its first compilation takes half a minute on a busy machine."""
HEALTHY_AGE_S = 20.0
"""A healthy program is looked at when it is older than any rule's least age."""


@contextlib.contextmanager
def running(python: str, illness: str, state: str, folder: str) -> Iterator[None]:
    """The program, or three of it where the illness is one of several; all ended at the end."""
    command = [str(CLINIC), illness, state, folder]
    if illness == "unequal_ranks":
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "KMP_", "GOMP_"))}
    count = 3 if (illness, state) == ("oversubscribed", "sick") else 1
    programs = [
        subprocess.Popen((python, *command), start_new_session=True, stderr=subprocess.DEVNULL, env=environment) for _ in range(count)
    ]
    try:
        yield
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def limit_s() -> float:
    """The limit, longer where so many others want the CPUs that the program itself takes longer to begin."""
    crowd = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(MAX_LIMIT_S, LIMIT_S * max(1.0, crowd / 2))


def sysperf(*args: str) -> str:
    return subprocess.run((sys.executable, "-m", "sysperf", *args), capture_output=True, text=True, check=False, timeout=60).stdout


def options(illness: str, folder: str) -> tuple[str, ...]:
    """How sysperf looks for this illness."""
    rules = Path(folder) / "rules.toml"
    rules.write_text(SITE_RULES)
    return ("--deep", "--rules", str(rules)) if illness in TWO_LOOKS else ()


def said_of(folder: str, *options: str) -> list[str]:
    """The findings about the programs that have this folder in their command line."""
    report: dict[str, Any] = json.loads(sysperf("audit", "--format", "json", *options))
    programs = report["snapshot"]["areas"]["process"]["facts"]["processes"]
    ours = {program["pid"] for program in programs if folder in (program["command"] or "")}
    findings = [outcome for outcome in report["outcomes"] if outcome["state"] == "finding" and outcome["scope"] == "process"]
    return sorted({outcome["rule"] for outcome in findings if outcome["subject"]["pid"] in ours})


def watch(python: str, illness: str, state: str, folder: str, rule: str) -> dict[str, Any]:
    """What is said of a sick program until its illness is named, or of a healthy one when it is old enough, and by `ps`."""
    start, last_s, words = time.monotonic(), limit_s(), options(illness, folder)
    with running(python, illness, state, folder):
        time.sleep(FIRST_S if state == "sick" else HEALTHY_S.get(illness, 0.0) * last_s / LIMIT_S or HEALTHY_AGE_S)
        while True:
            findings, after_s = said_of(folder, *words), time.monotonic() - start
            if state == "healthy" or rule in findings or after_s > last_s:
                break
            time.sleep(1)
        in_ps = rule in findings and any(rule in sysperf("ps", "--format", "json", *words) for _ in range(MAX_LISTINGS if words else 1))
    return {"rules": findings, "after_s": after_s, "in_ps": in_ps}


if __name__ == "__main__":
    json.dump(watch(*sys.argv[1:6]), sys.stdout)

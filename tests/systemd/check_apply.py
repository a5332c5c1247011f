"""Facts about the agent's mode `apply`: the agent asks, the helper changes, and nothing outlives the agent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.systemd.inside import SYSPERF, fact, journal, run, show, unit, wait

AGENT = "sysperf-agent.service"
BASE = os.getpriority(os.PRIO_PROCESS, 0)
WISHED = BASE + 7
SLEEPER = subprocess.Popen(("sleep", "600"))
RULE = f"""
[[rule]]
id = "test.always"
title = "True on any machine"
scope = "host"
severity = "hint"
when = "kernel.release != ''"
message = "A rule of the tests."
explain = "It is there so that there is something to fix."
refs = ["https://docs.kernel.org/admin-guide/sysctl/vm.html#swappiness"]
fix = [{{ kind = "setting", knob = "process.nice", value = {WISHED}, item = "{SLEEPER.pid}", safety = "caution" }}]
"""
CONFIG = '[agent]\nmode = "apply"\napply = ["test.always"]\nlease_s = 30\n'


def nice() -> int:
    """Its priority beside what processes here start with."""
    return os.getpriority(os.PRIO_PROCESS, SLEEPER.pid) - BASE


@fact
def applied() -> list[int]:
    Path("/etc/sysperf/rules.d").mkdir(parents=True)
    Path("/etc/sysperf/rules.d/test.toml").write_text(RULE)
    Path("/etc/sysperf/config.toml").write_text(CONFIG)
    unit(f"{AGENT}.d/alone.conf", "[Service]\nRestart=no\n")
    run(SYSPERF, "service", "install", "--with", "apply", "--now", check=True)
    before = nice()
    wait(lambda: nice() == 7, 20)
    return [before, nice()]


@fact
def who_did_it() -> str:
    return str(run(SYSPERF, "changes")["out"])


@fact
def renewed() -> list[str | int]:
    wait(lambda: nice() != 7, 45)
    return [show(AGENT, "ActiveState")["ActiveState"], nice()]


@fact
def killed() -> list[str | int]:
    run("systemctl", "kill", "--signal=KILL", AGENT, check=True)
    wait(lambda: nice() == 0, 45)
    return [show(AGENT, "ActiveState")["ActiveState"], nice()]


@fact
def agent_said() -> str:
    return journal(AGENT)


@fact
def helper_said() -> str:
    return journal("sysperf-helper.service")

"""Facts about the agent's mode `apply`: the agent asks, the helper changes, and nothing outlives the agent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.systemd.inside import PYTHON, SYSPERF, fact, journal, run, show, unit, wait

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


ASK = """
import os, sys
os.setgroups([int(sys.argv[2])]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
from sysperf.fix import helper_protocol
from sysperf.model.record import from_json
try:
    answer = helper_protocol.ask(from_json(sys.argv[1].encode(), helper_protocol.Ask))
    print("done", answer)
except helper_protocol.HelperError as error:
    print("refused", error)
"""


@fact
def taken_over() -> dict[str, str]:
    """What a program gets that has the agent's user and group."""
    pid = show(AGENT, "MainPID")["MainPID"]
    uid = next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:"))
    group = run("getent", "group", "sysperf")["out"].split(":")[2]
    other = subprocess.Popen(("sleep", "600"))
    mine = run(SYSPERF, "apply", "--yes", "--set", f"process.nice@{other.pid}={BASE + 3}", check=True)
    assert mine["code"] == 0

    def ask(question: str) -> str:
        return str(run(PYTHON, "-I", "-c", ASK, question, group, uid)["out"])

    paranoid = '{"verb":"apply","settings":[{"knob":"kernel.perf_event_paranoid","value":"-1","rule":"test.always"}],"lease_s":60}'
    init = f'{{"verb":"apply","settings":[{{"knob":"process.nice","value":"{WISHED}","item":"1","rule":"test.always"}}],"lease_s":60}}'
    return {
        "paranoid": ask(paranoid),
        "init": ask(init),
        "undo root's": ask('{"verb":"undo","number":2}'),
        "list": ask('{"verb":"list"}'),
        "nice": str(os.getpriority(os.PRIO_PROCESS, other.pid) - BASE),
        "nice of init": str(os.getpriority(os.PRIO_PROCESS, 1) - BASE),
    }


@fact
def killed() -> list[str | int]:
    run("systemctl", "kill", "--signal=KILL", AGENT, check=True)
    wait(lambda: nice() == 0, 60)
    return [show(AGENT, "ActiveState")["ActiveState"], nice()]


@fact
def agent_said() -> str:
    return journal(AGENT)


@fact
def helper_said() -> str:
    return journal("sysperf-helper.service")

"""Facts about the helper as a service: started by a question, and gone when it is no longer needed."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from tests.systemd.inside import PYTHON, SYSPERF, as_user, crash, fact, journal, run, show, unit, wait

HELPER = "sysperf-helper.service"
MEMBER = 4321
ASK = """
import sys
from sysperf.fix import helper_protocol
from sysperf.model.record import from_json, to_json
sys.stdout.buffer.write(to_json(helper_protocol.ask(from_json(sys.argv[1].encode(), helper_protocol.Ask))))
"""


INTERRUPTED = """
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import StepStarted
from sysperf.fix.lease import boot_id
from sysperf.host import Host
from sysperf.model.change import Change
journal, host = Journal("/var/lib/sysperf"), Host()
with journal.locked(), journal.begin(boot=boot_id(), by="root", why="test", taken_at="") as log:
    item = f"{log.number:06}"
    change = Change("persist.sysctl", item, f"/etc/sysctl.d/90-sysperf-{item}.conf", before="", after="vm.swappiness = 10\\n")
    log.add(StepStarted(0, change))
    host.settings.create(change.target, change.after)
"""


def prepared() -> int:
    """Services, with a helper that leaves sooner, and a program of the user that asks."""
    run(SYSPERF, "service", "install", check=True)
    exec_start = show(HELPER, "ExecStart")["ExecStart"].partition("argv[]=")[2].partition(" ;")[0]
    unit(f"{HELPER}.d/soon.conf", f"[Service]\nExecStart=\nExecStart={exec_start} --idle 2\n")
    run("systemctl", "enable", "--now", "sysperf-helper.socket", "sysperf-restore.service", check=True)
    return subprocess.Popen(["setpriv", f"--reuid={MEMBER}", f"--regid={MEMBER}", "--clear-groups", "sleep", "600"]).pid


PID = prepared()
GROUP = run("getent", "group", "sysperf")["out"].split(":")[2]


BASE = os.getpriority(os.PRIO_PROCESS, 0)
"""What processes start with, where the tests themselves run at low priority."""


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, PID) - BASE


def asked(groups: str = GROUP, **question: Any) -> dict[str, Any]:
    """Ask the helper as the user does; its answer, or the error."""
    done = as_user(MEMBER, PYTHON, "-I", "-c", ASK, json.dumps(question), groups=groups)
    return dict(json.loads(done["out"])) if done["code"] == 0 else {"error": done["err"].splitlines()[-1]}


def applied(value: int, groups: str = GROUP, **more: Any) -> dict[str, Any]:
    return asked(groups, verb="apply", settings=[{"knob": "process.nice", "value": str(BASE + value), "item": str(PID)}], **more)


@fact
def before() -> list[Any]:
    return [show(HELPER, "ActiveState")["ActiveState"], nice()]


@fact
def member_changes() -> list[Any]:
    done = applied(5)
    return [done, nice(), show(HELPER, "ActiveState")["ActiveState"]]


@fact
def journal_of_changes() -> list[Any]:
    names = sorted(os.listdir("/var/lib/sysperf/changes"))
    return [names, os.stat("/var/lib/sysperf/changes").st_uid, as_user(MEMBER, SYSPERF, "changes")["out"]]


@fact
def member_takes_it_back() -> list[Any]:
    answer = asked(verb="undo", number=1)
    return [answer, nice()]


@fact
def member_uses_the_commands() -> list[Any]:
    """Plan and undo of what only root may do, without sudo."""
    plan = as_user(MEMBER, SYSPERF, "plan", "--set", "vm.swappiness=11", groups=GROUP)
    number = applied(2)["transaction"]["number"]
    set_to = nice()
    undo = as_user(MEMBER, SYSPERF, "undo", "--machine", str(number), groups=GROUP)
    return [plan, set_to, undo, nice()]


@fact
def stranger() -> list[Any]:
    return [applied(7, groups=""), nice()]


@fact
def not_on_the_list() -> dict[str, Any]:
    return asked(verb="apply", settings=[{"knob": "kernel.core_pattern", "value": "|/bin/sh"}])


@fact
def leaves() -> list[Any]:
    wait(lambda: show(HELPER, "ActiveState")["ActiveState"] == "inactive", 15)
    return [show(HELPER, "ActiveState", "Result"), show("sysperf-helper.socket", "ActiveState")["ActiveState"]]


@fact
def lease_ends() -> list[Any]:
    done = applied(6, lease_s=3)
    during = nice()
    wait(lambda: nice() != during, 15)
    return [done, during, nice()]


@fact
def killed() -> list[Any]:
    """Killed while a lease runs: systemd starts it again, and the lease still ends."""
    done = applied(4, lease_s=20)
    before = show(HELPER, "MainPID")["MainPID"]
    run("systemctl", "kill", "--signal=SIGKILL", HELPER)
    wait(lambda: show(HELPER, "MainPID")["MainPID"] not in ("0", before), 18)
    during = nice()
    wait(lambda: nice() != during, 30)
    return [done, during, nice(), show(HELPER, "NRestarts")["NRestarts"]]


@fact
def stopped() -> list[Any]:
    """Helper and socket are stopped while a lease runs: its timer ends it."""
    done = applied(9, lease_s=3)
    timers = run("systemctl", "list-timers", "--all", "--no-legend", "--plain", "sysperf-lease-*")["out"]
    run("systemctl", "stop", "sysperf-helper.socket", HELPER, check=True)
    during = nice()
    wait(lambda: nice() != during, 20)
    answers = [done, timers.count(".timer"), during, nice(), show(HELPER, "ActiveState")["ActiveState"]]
    run("systemctl", "start", "sysperf-helper.socket", check=True)
    return answers


@fact
def apply_inside_a_service() -> list[Any]:
    """The process that would end the lease is killed with the service that started it."""
    setting = f"process.nice@{PID}={BASE + 8}"
    done = run("systemd-run", "--wait", "--collect", "--quiet", SYSPERF, "apply", "--yes", "--set", setting, "--lease", "4s")
    during = nice()
    wait(lambda: nice() != during, 20)
    return [done, during, nice()]


@fact
def crashes_often() -> list[Any]:
    """Six times one after the other: the socket still answers."""
    for _ in range(6):
        applied(1)
        run("systemctl", "kill", "--signal=SIGKILL", HELPER)
        wait(lambda: show(HELPER, "ActiveState")["ActiveState"] != "active", 5)
        run("systemctl", "restart", HELPER)
    answer = asked(verb="list")
    for transaction in answer["transactions"]:
        if transaction["state"] == "applied":
            asked(verb="undo", number=transaction["number"])
    return [answer.get("problem"), show("sysperf-helper.socket", "ActiveState")["ActiveState"], nice()]


@fact
def interrupted_persist() -> list[Any]:
    """As a kill leaves it: the file that sets something at every start is there, and its transaction is open."""
    run(PYTHON, "-I", "-c", INTERRUPTED, check=True)
    before = os.listdir("/etc/sysctl.d")
    run("systemctl", "restart", "sysperf-restore.service")
    return [before, os.listdir("/etc/sysctl.d"), show("sysperf-restore.service", "Result")["Result"], run(SYSPERF, "changes")["out"]]


@fact
def everything_in_the_journal() -> str:
    return journal(HELPER)


@fact
def power_is_lost() -> list[Any]:
    """The machine goes down while a lease runs, and nobody ends it."""
    done = applied(3, lease_s=2)
    crash()
    return [done, nice()]

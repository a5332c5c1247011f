"""Facts about the agent as a service."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.systemd.inside import SYSPERF, as_user, fact, journal, run, show, wait

AGENT = "sysperf-agent.service"
SOCKET = "/run/sysperf/agent.sock"
HISTORY = Path("/var/lib/private/sysperf-agent/history.db")


def agent(*names: str) -> dict[str, str]:
    return show(AGENT, *names)


def pid() -> int:
    return int(agent("MainPID")["MainPID"])


def active() -> bool:
    return agent("ActiveState", "SubState") == {"ActiveState": "active", "SubState": "running"}


def ask(path: str) -> Any:
    return json.loads(
        run("curl", "--silent", "--fail", "--max-time", "10", "--unix-socket", SOCKET, f"http://agent{path}", check=True)["out"]
    )


def events() -> list[str]:
    """What the history says about the agent itself, as stored."""
    with sqlite3.connect(f"file:{HISTORY}?mode=ro", uri=True) as database:
        return [text for (text,) in database.execute("SELECT text FROM event WHERE kind = 'agent' ORDER BY id")]


@fact
def start() -> list[Any]:
    begun = time.monotonic()
    installed = run(SYSPERF, "service", "install", "--now")
    return [installed, agent("ActiveState", "SubState", "Result", "NRestarts"), time.monotonic() - begun]


@fact
def status_text() -> str:
    wait(lambda: "finding" in agent("StatusText")["StatusText"], 15)
    return agent("StatusText")["StatusText"]


@fact
def who() -> dict[str, str]:
    status = Path(f"/proc/{pid()}/status").read_text()
    return {
        key: value.strip()
        for key, _, value in (line.partition(":") for line in status.splitlines())
        if key in ("Uid", "CapEff", "Groups", "NoNewPrivs")
    }


@fact
def group() -> str:
    return str(run("getent", "group", "sysperf")["out"].split(":")[2])


@fact
def member_asks() -> dict[str, Any]:
    return as_user(4321, "curl", "--silent", "--unix-socket", SOCKET, "http://agent/v1/status", groups=group())


@fact
def stranger_asks() -> dict[str, Any]:
    return as_user(4321, "curl", "--silent", "--unix-socket", SOCKET, "http://agent/v1/status")


@fact
def member_uses_the_command() -> dict[str, Any]:
    return as_user(4321, SYSPERF, "agent", "status", groups=group())


@fact
def metrics_on_a_port() -> list[Any]:
    """Started by the first scrape: nothing runs for it before."""
    run("systemctl", "start", "sysperf-metrics.socket", check=True)
    before = show("sysperf-metrics.service", "ActiveState")["ActiveState"]
    answers = [run("curl", "--silent", "--max-time", "10", f"http://127.0.0.1:9109{path}")["out"] for path in ("/metrics", "/v1/snapshot")]
    return [before, *answers, show("sysperf-metrics.service", "ActiveState", "SubState", "NRestarts")]


@fact
def stranger_and_figures() -> dict[str, Any]:
    return as_user(4321, "curl", "--silent", "--unix-socket", "/run/sysperf/metrics.sock", "http://agent/metrics")


@fact
def findings() -> list[str]:
    wait(lambda: ask("/v1/status")["samples"] > 0)
    return [finding["outcome"]["rule"] for finding in ask("/v1/findings")["findings"]]


@fact
def history_file() -> list[Any]:
    status = HISTORY.stat()
    return [oct(status.st_mode & 0o777), status.st_uid == os.stat(f"/proc/{pid()}").st_uid, oct(HISTORY.parent.stat().st_mode & 0o777)]


@fact
def reload() -> list[Any]:
    before = pid()
    done = run("systemctl", "reload", AGENT)
    wait(active, 5)
    return [done["code"], pid() == before, active(), [text for text in journal(AGENT).splitlines() if text.startswith("reloaded")] != []]


@fact
def killed() -> list[Any]:
    before = pid()
    wait(lambda: len(events()) > 0, 15)
    had = events()
    os.kill(before, signal.SIGKILL)
    wait(lambda: pid() not in (0, before) and active(), 20)
    wait(lambda: len(events()) > len(had), 15)
    return [pid() != before, agent("NRestarts", "ActiveState"), had, events()]


@fact
def hung() -> list[Any]:
    folder = Path(f"/etc/systemd/system/{AGENT}.d")
    folder.mkdir()
    (folder / "soon.conf").write_text("[Service]\nWatchdogSec=3\n")
    run("systemctl", "daemon-reload", check=True)
    run("systemctl", "restart", AGENT, check=True)
    before, restarts = pid(), int(agent("NRestarts")["NRestarts"])
    time.sleep(4)
    fed = pid() == before and active()
    os.kill(before, signal.SIGSTOP)
    wait(lambda: pid() not in (0, before) and active(), 25)
    return [fed, pid() != before, int(agent("NRestarts")["NRestarts"]) - restarts, "atchdog" in journal(AGENT)]


@fact
def stop() -> list[Any]:
    begun = time.monotonic()
    done = run("systemctl", "stop", AGENT)
    return [done["code"], agent("ActiveState", "Result"), time.monotonic() - begun, events()[-1]]


@fact
def started_by_a_question() -> list[Any]:
    before = agent("ActiveState")["ActiveState"]
    version = ask("/v1/status")["version"]
    wait(active, 10)
    return [before, bool(version), agent("ActiveState")["ActiveState"]]


@fact
def private_folder() -> list[str]:
    return sorted(os.listdir("/run/sysperf"))


@fact
def everything_in_the_journal() -> str:
    return journal(AGENT)


@fact
def uninstalled() -> list[Any]:
    done = run(SYSPERF, "service", "uninstall")
    return [done["code"], agent("ActiveState", "LoadState"), os.path.exists("/run/sysperf")]

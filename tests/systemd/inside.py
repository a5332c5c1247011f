"""Runs inside the booted copy: a check script's facts, one after the other, into a JSON file.

A check script is a module with functions marked `@fact`, which run in the order in which they stand. What one returns
is what `SystemdMachine.boot` gives back under its name; what one raises fails the test that looks at it, and no other.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path("/opt/sysperf-checks")
SYSPERF = "/opt/sysperf/bin/sysperf"
PYTHON = "/opt/sysperf/bin/python"

Fact = Callable[[], Any]
FACTS: dict[str, Fact] = {}


def fact(function: Fact) -> Fact:
    """Mark a function of a check script as a fact."""
    FACTS[function.__name__] = function
    return function


def run(*command: str, seconds: float = 20, check: bool = False) -> dict[str, Any]:
    """Run a command: its exit code, stdout and stderr."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=check, errors="replace")
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def show(unit: str, *properties: str) -> dict[str, str]:
    """A unit's properties by name, as `systemctl show` prints them."""
    out = run("systemctl", "show", unit, *(f"--property={name}" for name in properties))["out"]
    return dict(line.partition("=")[::2] for line in out.splitlines())


def wait(question: Callable[[], Any], seconds: float = 10) -> Any:
    """Ask until the answer is true; the last answer."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(0.05)


def journal(unit: str) -> str:
    """What the journal has of a unit, the messages only."""
    run("journalctl", "--sync")
    return str(run("journalctl", "--unit", unit, "--output=cat", "--no-pager")["out"])


def unit(name: str, text: str) -> None:
    """Write a unit and let systemd read it."""
    Path("/etc/systemd/system", name).parent.mkdir(parents=True, exist_ok=True)
    Path("/etc/systemd/system", name).write_text(text)
    run("systemctl", "daemon-reload", check=True)


def as_user(uid: int, *command: str, groups: str = "") -> dict[str, Any]:
    """Run a command as another user, with these groups only."""
    return run("setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={groups}" if groups else "--clear-groups", *command)


def crash() -> None:
    """End this boot as a power failure would, once all facts are written: no service is stopped."""
    (FOLDER / "crash").touch()


def main(script: str) -> None:
    """Run a script's facts. The file is written after each, so that a hang shows how far it came."""
    results: dict[str, Any] = {}
    importlib.import_module(script)
    for name, function in FACTS.items():
        try:
            results[name] = {"is": function()}
        except Exception:  # noqa: BLE001 - the test that looks at this fact shows it
            results[name] = {"raised": traceback.format_exc()}
        _write(results)
    _write(results)
    if (FOLDER / "crash").exists():
        (FOLDER / "crash").unlink()
        run("systemctl", "poweroff", "--force", "--force")


def _write(results: dict[str, Any]) -> None:
    temporary = FOLDER / "result.new"
    temporary.write_text(json.dumps(results, default=str))
    os.replace(temporary, FOLDER / "result.json")


if __name__ == "__main__":
    # The module that check scripts import is another one than this: its list is the one with facts in it.
    importlib.import_module("tests.systemd.inside").main(sys.argv[1])

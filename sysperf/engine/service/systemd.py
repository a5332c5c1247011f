"""What systemd is asked to do, and what it says of a unit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from sysperf.engine.service import units
from sysperf.model.errors import UsageError

_SHOWN = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "NRestarts", "StatusText", "FragmentPath", "DropInPaths")
_SECONDS = 60


def is_running() -> bool:
    """Whether systemd is this machine's init."""
    return os.path.isdir("/run/systemd/system")


def start(names: list[str]) -> None:
    """Enable and start. Raises UsageError that names what did not start."""
    try:
        run("systemctl", "enable", "--now", *names)
    except UsageError:
        failed = [name for name in names if problem(shown(name)) or shown(name).get("ActiveState") == "activating"]
        if not failed:
            raise
        raise UsageError(f"{', '.join(failed)} did not start", f"journalctl -e -u {failed[0]}") from None


def run(tool: str, *words: str, quiet: bool = False) -> None:
    """Run a tool of systemd. Raises UsageError when it fails, unless `quiet`."""
    path = shutil.which(tool)
    if path is None:
        if quiet:
            return
        raise UsageError(f"no {tool} here", "it comes with systemd; the files that were written stay")
    try:
        done = subprocess.run([path, *words], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{tool} {words[0]} did not end within {_SECONDS} s", "`systemctl list-jobs` shows what it waits for") from None
    if done.returncode and not quiet:
        raise UsageError(f"{tool} {words[0]}: {done.stderr.strip() or done.returncode}", "`sysperf service status` shows how far it came")


def shown(name: str) -> dict[str, str]:
    """Return what systemd says of a unit, by property."""
    out = _output("systemctl", "show", name, f"--property={','.join(_SHOWN)}")
    return dict(line.partition("=")[::2] for line in out.splitlines())


def problem(facts: dict[str, str]) -> str:
    """Return what is wrong with a unit, in words; "" where nothing is."""
    if facts.get("LoadState") != "loaded":
        return f"systemd cannot load it ({facts.get('LoadState', 'unknown')})"
    if facts.get("ActiveState") == "failed":
        return f"it failed ({facts.get('Result', 'unknown')})"
    if facts.get("NRestarts", "0") not in ("0", ""):
        return f"it was restarted {facts['NRestarts']} times"
    return ""


def exposure(name: str) -> str:
    """The score that systemd gives the sandbox: 0 is closed, 10 open."""
    match = re.search(r"exposure level for \S+: ([0-9.]+)", _output("systemd-analyze", "security", "--no-pager", name))
    return match[1] if match else "unknown"


def drift() -> list[units.File]:
    """What is installed, compared with what this sysperf would write where a service can run it."""
    there = {file.path: file for file in units.written()}
    try:
        now = {file.path: file for file in units.wanted(units.this_program(), drop_ins=units.DROP_INS)}
    except UsageError:
        now = {}  # this sysperf is not the one that was installed: only changes by hand can be told
        return [file for file in there.values() if file.state == "changed"]
    return [now.get(path, file) for path, file in there.items()]


def _output(tool: str, *words: str) -> str:
    path = shutil.which(tool)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *words], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout

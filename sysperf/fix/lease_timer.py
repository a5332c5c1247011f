"""A timer of systemd for each lease: it ends the lease when the process that should have ended it was killed or stopped.

systemd  https://www.freedesktop.org/software/systemd/man/latest/systemd-run.html
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable

import sysperf
from sysperf import paths
from sysperf.fix.journal import Journal
from sysperf.model.errors import SysperfError, UsageError

_SYSTEM = "/run/systemd/system"
_FOLDERS = "/usr/bin:/bin"
_TIMEOUT_S = 15
_LATER_S = 1
"""The process that keeps the lease comes first."""
_UNIT = (
    # an error is tried again, for half an hour
    "--property=Restart=on-failure",
    "--property=RestartSec=30",
    "--property=StartLimitIntervalSec=3600",
    "--property=StartLimitBurst=60",
    "--timer-property=AccuracySec=1s",
)


def unavailable() -> str:
    """Why no timer can be made here; "" when one can."""
    if not os.path.isdir(_SYSTEM):
        return "systemd does not run here"
    if shutil.which("systemd-run", path=_FOLDERS) is None:
        return "there is no systemd-run here"
    if os.geteuid() != 0 and not os.path.exists(f"{paths.runtime_home()}/systemd/private"):
        return "this user has no systemd of their own"
    return ""


def dies_with_a_service() -> bool:
    """Whether systemd ends every process of ours when the service that we are in ends: then no process can keep a lease."""
    try:
        with open("/proc/self/cgroup") as file:
            text = file.read(4_096)
    except OSError:
        return False
    return os.path.isdir(_SYSTEM) and any(line.rpartition("/")[2].endswith(".service") for line in text.splitlines() if "user@" not in line)


def start(journal: Journal, number: int, lease_s: float) -> str:
    """Have systemd end the lease of a transaction so many seconds from now, instead of when it was to before. Returns why it cannot."""
    if problem := unavailable():
        return problem
    name = _name(journal, number)
    if os.path.exists(f"{_transient()}/{name}.timer"):
        _run("systemctl", "stop", f"{name}.timer")
    package = os.path.dirname(os.path.dirname(os.path.abspath(sysperf.__file__)))
    return _run(
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={name}",
        f"--description=sysperf: undo transaction {number} when its lease ends",
        f"--on-active={math.ceil(lease_s) + _LATER_S}s",
        *_UNIT,
        f"--setenv=STATE_DIRECTORY={os.path.dirname(journal.folder)}",
        f"--setenv=PYTHONPATH={package}",
        sys.executable,
        "-m",
        "sysperf",
        "undo",
        "--expired",
    )


def unguarded() -> str:
    """Why nobody but the process that stays behind would end a lease; "" when systemd would. Raises UsageError when nobody would."""
    problem = unavailable()
    if problem and dies_with_a_service():
        raise UsageError(
            f"nobody would end the lease: this service's processes end with it, and {problem}", "run it outside of the service, or as root"
        )
    return problem


def guard(journal: Journal, lease_s: float) -> Callable[[int], None]:
    """Has systemd end a lease too, where it can."""

    def start_timer(number: int) -> None:
        problem = start(journal, number, lease_s)
        if problem and not unavailable():
            raise SysperfError(f"{problem}; nothing was changed", "without --lease, or with a look at `systemctl status`")

    return start_timer


def renew(journal: Journal, number: int, lease_s: float) -> None:
    """The lease ends later than its timer, if it has one."""
    if os.path.exists(f"{_transient()}/{_name(journal, number)}.timer"):
        start(journal, number, lease_s)


def stop(journal: Journal, number: int) -> None:
    """The lease is over: its timer is not needed any more. One that stays does nothing."""
    name = _name(journal, number)
    if os.path.exists(f"{_transient()}/{name}.timer"):
        _run("systemctl", "stop", f"{name}.timer")


def _name(journal: Journal, number: int) -> str:
    folder = os.path.dirname(journal.folder)
    other = "" if folder == paths.SYSTEM_STATE else f"-{zlib.crc32(folder.encode()):08x}"
    return f"sysperf-lease{other}-{number:06}"


def _transient() -> str:
    return "/run/systemd/transient" if os.geteuid() == 0 else f"{paths.runtime_home()}/systemd/transient"


def _run(tool: str, *words: str) -> str:
    """Why it failed; "" when it did not."""
    path = shutil.which(tool, path=_FOLDERS)
    if path is None:
        return f"there is no {tool} here"
    user = [] if os.geteuid() == 0 else ["--user"]
    try:
        done = subprocess.run([path, *user, *words], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool}: {error}"
    return f"{tool}: {done.stderr.strip()[:300] or done.returncode}" if done.returncode else ""

"""The files of `sysperf service`: units for this program, written so that one can tell later who changed them.

The first line of each says which sysperf wrote it and the checksum of the rest. A file whose checksum differs was changed
by somebody, one without that line was never ours: both stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Literal

import sysperf
from sysperf import __version__
from sysperf.host import files
from sysperf.host.commands import others_write
from sysperf.model.errors import UsageError
from sysperf.model.record import Record

UNITS = "/etc/systemd/system"
SYSUSERS = "/etc/sysusers.d"
PACKAGED = "/usr/lib/systemd/system"
PROGRAM = "@SYSPERF@"

AGENT = ("sysperf-agent.socket", "sysperf-agent.service")
AUDIT = ("sysperf-audit.service", "sysperf-audit.timer")
HELPER = ("sysperf-helper.socket", "sysperf-helper.service", "sysperf-restore.service")
METRICS = ("sysperf-metrics.socket", "sysperf-metrics.service")
ALL = (*AGENT, *AUDIT, *HELPER, *METRICS)
DROP_INS = {
    # name of the choice: the units that it changes
    "see-all-users": ("sysperf-agent.service", "sysperf-audit.service"),
    "apply": ("sysperf-agent.service",),
    "more-settings": ("sysperf-helper.service",),
}
STARTED = ("sysperf-agent.socket", "sysperf-agent.service", "sysperf-audit.timer", "sysperf-helper.socket", "sysperf-restore.service")
"""What is enabled. These start the rest, but for the metrics, which open a port: who wants them enables their socket."""

_FIRST_LINE = re.compile(r"# Written by sysperf (\S+), sha256 ([0-9a-f]{64})\. .*\n")
_PLAIN = re.compile(r"/[A-Za-z0-9/._+@-]+")
_HIDDEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 - by ProtectHome= and PrivateTmp= of the units
_MAX_BYTES = 1 << 20

State = Literal["missing", "ours", "older", "changed", "foreign"]
"""ours: as this sysperf writes it; older: as another version, or with other choices, wrote it; changed: by somebody since."""


class File(Record):
    """One file that `sysperf service install` writes."""

    path: str
    content: str
    state: State
    now: str = ""
    """What is there."""


def wanted(program: str, *, helper: bool = True, drop_ins: Iterable[str] = (), root: str = "") -> list[File]:
    """The files for this program below `root`, and what is there now. Raises UsageError."""
    names = [name for name in ALL if helper or name not in HELPER]
    files = [_file(f"{root}{UNITS}/{name}", _shipped(name).replace(PROGRAM, program)) for name in names]
    for name in drop_ins:
        for unit in DROP_INS[name]:
            files.append(_file(f"{root}{UNITS}/{unit}.d/sysperf-{name}.conf", _shipped(f"{unit}.d/{name}.conf.example")))  # noqa: PERF401 - two loops read better
    return [_file(f"{root}{SYSUSERS}/sysperf.conf", _shipped("sysusers.d/sysperf.conf")), *files]


def packaged(program: str, prefix: str) -> list[File]:
    """The same for a package: below ``PREFIX/usr/lib``, without a first line of ours, the drop-ins as examples."""
    files = [(f"{PACKAGED}/{name}", _shipped(name).replace(PROGRAM, program)) for name in ALL]
    files += [(f"/usr/lib/{name}", _shipped(name)) for name in ("sysusers.d/sysperf.conf",)]
    for name, units in DROP_INS.items():
        files += [(f"/usr/share/doc/sysperf/{unit}.d/{name}.conf.example", _shipped(f"{unit}.d/{name}.conf.example")) for unit in units]
    return [File(prefix + path, content, "missing", read(prefix + path) or "") for path, content in files]


def written(root: str = "") -> Iterator[File]:
    """The files that some sysperf wrote and that are still there."""
    for folder in (SYSUSERS, UNITS, *(f"{UNITS}/{unit}.d" for unit in sorted({unit for units in DROP_INS.values() for unit in units}))):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(root + folder)):
                now = read(f"{root}{folder}/{name}") if name.startswith("sysperf") else None
                if now and _FIRST_LINE.match(now):
                    yield File(f"{root}{folder}/{name}", "", _state("", now), now)


def write(path: str, content: str) -> None:
    """Write a file in one step, readable by all. Raises OSError and leaves nothing behind."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    files.write_whole(path, lambda file: file.write(content.encode()), mode=0o644, exact=True, sync=True)


def remove(path: str) -> None:
    """Remove a file, and the folder of drop-ins when it was the last there. Raises OSError."""
    os.unlink(path)
    folder = os.path.dirname(path)
    if folder.endswith(".d") and folder.startswith(os.path.dirname(folder) + "/sysperf-"):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def read(path: str) -> str | None:
    """The text of a regular file; None for all else, such as the link by which a unit is masked."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def this_program() -> str:
    """The command that starts this sysperf, as a unit spells it. Raises UsageError where a service could not, or must not, run it."""
    python = os.path.abspath(sys.executable)  # not resolved: a virtual environment is known by the path of its link
    package = os.path.dirname(os.path.abspath(sysperf.__file__))
    for path in (python, os.path.realpath(python), os.path.realpath(sys.base_prefix), package, os.path.realpath(package)):
        problem = unfit(path)
        if problem:
            raise UsageError(
                problem,
                "install it where only root writes: sudo python3 -m venv /opt/sysperf"
                " && sudo /opt/sysperf/bin/pip install PATH-TO-ITS-SOURCE && sudo /opt/sysperf/bin/sysperf service install",
            )
    return f"{python} -I -m sysperf"


def unfit(path: str) -> str:
    """Why a service cannot, or must not, run what lies there; "" when it can."""
    if not _PLAIN.fullmatch(path):
        return f"{path}: a unit would need quotes for this path"
    if f"{path}/".startswith(_HIDDEN):
        return f"{path}: services do not see this folder"
    while True:
        problem = _writable_by_others(path)
        if problem or path == "/":
            return problem
        path = os.path.dirname(path)


def _writable_by_others(path: str) -> str:
    """A helper that runs as root must not run what others can write."""
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if status.st_uid != 0:
        return f"{path} belongs to user {status.st_uid}: who owns it could change what runs as root"
    if others_write(status):
        return f"{path} can be written by users other than root: they could change what runs as root"
    return ""


def _file(path: str, text: str) -> File:
    content = _signed(path, text)
    now = read(path)
    if now is None and not os.path.lexists(path):
        return File(path, content, "missing")
    return File(path, content, _state(content, now or ""), now or "")


def _state(content: str, now: str) -> State:
    if now == content:
        return "ours"
    match = _FIRST_LINE.match(now)
    if not match:
        return "foreign"
    return "older" if match[2] == _checksum(now[match.end() :]) else "changed"


def _signed(path: str, text: str) -> str:
    how = f"Change it by `systemctl edit {os.path.basename(path)}`." if path.endswith((".service", ".socket", ".timer")) else "Do not edit."
    return f"# Written by sysperf {__version__}, sha256 {_checksum(text)}. {how}\n{text}"


def _checksum(text: str) -> str:
    import hashlib  # noqa: PLC0415 - only where services are installed

    return hashlib.sha256(text.encode()).hexdigest()


def _shipped(name: str) -> str:
    """A file of systemd/: inside the installed package, or beside it in a checkout."""
    package = os.path.dirname(os.path.abspath(sysperf.__file__))
    for folder in (f"{package}/systemd", f"{os.path.dirname(package)}/systemd"):
        text = read(f"{folder}/{name}")
        if text is not None:
            return text
    raise UsageError(f"this sysperf has no {name}", "install it again: its package is not complete")

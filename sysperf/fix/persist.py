"""Settings that are set again at every start, by the system's own means: sysctl.d and tmpfiles.d.

One file a transaction: undoing it removes the file, and what an administrator wrote is never touched.

Kernel  https://man7.org/linux/man-pages/man5/sysctl.d.5.html  https://man7.org/linux/man-pages/man5/tmpfiles.d.5.html
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.change import Change
from sysperf.model.knob import KNOBS, PERSISTED, SYSCTLS, SYSFS, Knob
from sysperf.startup import lazy

_TMPFILES = lazy(r"w (\S+) - - - - (\S+)")
_COMMENT = lazy(r"# [ -~]*")
"""Nothing that ends a line: to systemd, NUL does."""
_HEAD = "# sysperf wrote this with transaction {number}; `sysperf undo {number}` removes it.\n"


class Drop(Target):
    """A file of ours; its value is its content, and "" means that there is none."""

    def __init__(self, host: Host, knob: Knob, item: str) -> None:
        self.host, self.knob = host, knob
        self.path = knob.path.replace("{item}", item)

    def read(self) -> str:
        """Return its content."""
        text = self.host.text(self.path)
        if text is None and self.host.exists(self.path):
            raise OSError(self.host.sources[-1].error or "it can not be read")
        return text or ""

    def write(self, value: str) -> None:
        """Write it; "" removes it."""
        if value:
            _check(value)
            self.host.settings.create(self.path, value)
        elif self.host.exists(self.path):
            self.host.settings.remove(self.path)

    def problem(self) -> str:
        """Only root may write there."""
        return "" if os.geteuid() == 0 else "only root may write it"


def files(changes: Iterable[Change], number: int) -> Iterator[Change]:
    """The files that set these changes again at every start, as changes of their own."""
    changes = list(changes)
    lines = {
        "persist.sysctl": [f"{change.knob} = {change.after}" for change in changes if KNOBS[change.knob].kind == "sysctl"],
        "persist.tmpfiles": [f"w {change.target} - - - - {change.after}" for change in changes if KNOBS[change.knob].kind == "sysfs"],
    }
    for name, settings in lines.items():
        if settings:
            item = f"{number:06}"
            content = _HEAD.format(number=number) + "\n".join(settings) + "\n"
            yield Change(name, item, PERSISTED[name].path.replace("{item}", item), before="", after=content)


def _check(content: str) -> None:
    """Only what `files` makes is ever written. Raises OSError."""
    for line in content.splitlines():
        knob, value = _line(line)
        if not _COMMENT.fullmatch(line) and not (knob and knob.accepts(value)):
            raise PermissionError(errno.EPERM, "it would set what sysperf may not change")


def _line(line: str) -> tuple[Knob | None, str]:
    """The setting of a line and its value."""
    if match := _TMPFILES.fullmatch(line):
        return next((knob for knob in SYSFS.values() if knob.covers(match[1])), None), match[2]
    key, _, value = line.partition(" = ")
    return SYSCTLS.get(key), value


def lasting(change: Change) -> bool:
    """Whether the system has a mechanism to set it again."""
    return KNOBS[change.knob].kind in ("sysctl", "sysfs")

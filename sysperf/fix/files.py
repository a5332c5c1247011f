"""Settings that are files of the kernel: sysctl and sysfs.

Kernel  https://docs.kernel.org/admin-guide/sysctl/  https://docs.kernel.org/filesystems/sysfs.html
"""

from __future__ import annotations

import errno
import os

from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.knob import Knob
from sysperf.startup import lazy

_CHOSEN = lazy(r"\[([^\[\]\s]+)\]")
_VALUE = lazy(r"[A-Za-z0-9_+.-]{1,64}")


class File(Target):
    """One file that holds one value, or a list of words with the chosen one in brackets."""

    def __init__(self, host: Host, knob: Knob, path: str) -> None:
        self.host, self.knob, self.path = host, knob, path

    def read(self) -> str:
        """The value in force."""
        text = read(self.host, self.path)
        chosen = _CHOSEN.search(text)
        value = chosen[1] if chosen else text
        if not _VALUE.fullmatch(value):
            raise OSError(errno.EINVAL, f"it reads {text[:80]!r}, which could not be put back")
        return value

    def write(self, value: str) -> None:
        """Set it."""
        if not _VALUE.fullmatch(value):
            raise OSError(errno.EINVAL, "not a value of one word")
        self.host.settings.write(self.path, value)

    def offers(self) -> tuple[str, ...] | None:
        """The words that this machine takes; None when the kernel does not list them."""
        if self.knob.offers:
            text = self.host.text(f"{self.path.rpartition('/')[0]}/{self.knob.offers}")
        else:
            text = self.host.text(self.path)
            text = text if text and _CHOSEN.search(text) else None
        return None if text is None else tuple(text.replace("[", " ").replace("]", " ").split())

    def problem(self) -> str:
        """Why it can not be written here, as far as that is known without trying."""
        if self.knob.yields_to and self.read() == "0":
            return f"{self.knob.yields_to} is in force instead"
        return self.host.settings.refusal(self.path)


def read(host: Host, path: str) -> str:
    """The word in a file. Raises OSError with the reason why there is none."""
    word = host.word(path)
    if word is None:
        raise OSError(host.sources[-1].error or os.strerror(errno.ENOENT))
    return word

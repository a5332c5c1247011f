"""/proc/pressure/* and *.pressure of control groups: the share of time in which work waited for a resource (PSI).

Kernel  https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

from sysperf.model.record import Record
from sysperf.procfs.numbers import decimal, whole
from sysperf.startup import lazy

_LINE = r" avg10=([0-9]{1,3}\.[0-9]{2}) avg60=([0-9]{1,3}\.[0-9]{2}) avg300=([0-9]{1,3}\.[0-9]{2}) total=([0-9]{1,19})\n"
_AS_DOCUMENTED = lazy(f"some{_LINE}(?:full{_LINE})?")


class Stall(Record):
    """Shares of the last 10, 60 and 300 s, and microseconds since boot; None where the text does not say."""

    avg10: float | None
    avg60: float | None
    avg300: float | None
    total_us: int | None


class Pressure(Record):
    """`some`: at least one task waited; `full`: all of them did. None where the text has no such line."""

    some: Stall | None = None
    full: Stall | None = None


def parse(text: str | bytes | None) -> Pressure:
    """``some avg10=0.00 avg60=1.50 avg300=0.74 total=7879859`` is 0.015 in the last minute."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    if match := _AS_DOCUMENTED.fullmatch(text or ""):
        words = match.groups()
        return Pressure(_known_stall(*words[:4]), _known_stall(*words[4:]) if words[4] else None)
    lines = {line.partition(" ")[0]: line for line in (text or "").splitlines()[:4]}
    return Pressure(*(_stall(lines[name]) if name in lines else None for name in ("some", "full")))


def _known_stall(avg10: str, avg60: str, avg300: str, total: str) -> Stall:
    """The usual text, which is read each second, at a third of the cost."""
    return Stall(min(float(avg10) / 100, 1.0), min(float(avg60) / 100, 1.0), min(float(avg300) / 100, 1.0), int(total))


def _stall(line: str) -> Stall:
    fields = dict(word.partition("=")[::2] for word in line.split()[1:5])
    return Stall(_share(fields.get("avg10")), _share(fields.get("avg60")), _share(fields.get("avg300")), whole(fields.get("total")))


def _share(percent: str | None) -> float | None:
    number = decimal(percent)
    return None if number is None else min(number / 100, 1.0)

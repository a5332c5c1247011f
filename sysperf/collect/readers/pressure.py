"""Pressure stall information: the share of time in which work waited for a resource.

Kernel  https://docs.kernel.org/accounting/psi.html
"""

from sysperf.host import Host
from sysperf.startup import lazy

_PERCENT = lazy(r" avg60=(\d{1,3}\.\d{1,4})(?= |$)")


def waited(host: Host, path: str) -> tuple[float | None, float | None]:
    """(some, full): the share of the last 60 s in which some tasks, and all of them, waited; None where nobody says."""
    text = host.text(path)
    lines = {line.partition(" ")[0]: line for line in (text or "").splitlines()[:4]}
    return _share(lines.get("some", "")), _share(lines.get("full", ""))


def _share(line: str) -> float | None:
    """``some avg10=0.00 avg60=1.50 avg300=0.74 total=7879859`` is 0.015."""
    found = _PERCENT.search(line)
    return min(float(found[1]) / 100, 1.0) if found else None

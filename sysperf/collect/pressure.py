"""Pressure stall information: the share of time in which work waited for a resource.

Kernel  https://docs.kernel.org/accounting/psi.html
"""

from sysperf.host import Host


def waited(host: Host, path: str) -> tuple[float | None, float | None]:
    """(some, full): the share of the last 60 s in which some tasks, and all of them, waited; None where nobody says."""
    text = host.text(path)
    lines = {line.partition(" ")[0]: line for line in (text or "").splitlines()[:4]}
    return _share(lines.get("some", "")), _share(lines.get("full", ""))


def _share(line: str) -> float | None:
    """``some avg10=0.00 avg60=1.50 avg300=0.74 total=7879859`` is 0.015."""
    for word in line.split()[1:]:
        name, _, value = word.partition("=")
        if name == "avg60":
            try:
                percent = float(value)
            except ValueError:
                return None
            return percent / 100 if 0 <= percent <= 100 else None
    return None

"""Pressure stall information of the machine or of a control group."""

from sysperf.host import Host
from sysperf.procfs import psi


def waited(host: Host, path: str) -> tuple[float | None, float | None]:
    """(some, full): the share of the last 60 s in which some tasks, and all of them, waited; None where nobody says."""
    pressure = psi.parse(host.text(path))
    return (pressure.some.avg60 if pressure.some else None), (pressure.full.avg60 if pressure.full else None)

"""Pressure stall information of the machine or of a control group."""

from sysperf.host import Host
from sysperf.procfs import psi


def waited(host: Host, path: str) -> tuple[float | None, float | None]:
    """(some, full): the share of the last 60 s in which some tasks, and all of them, waited; None where nobody says."""
    pressure = psi.parse(host.text(path))
    return pressure.some and pressure.some.avg60, pressure.full and pressure.full.avg60

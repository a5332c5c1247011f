"""/proc/cpuinfo, read once a machine: some kernels take 10 ms for it.

Reads   /proc/cpuinfo
"""

from sysperf.host import Host
from sysperf.procfs.cpuinfo import CPUINFO, MAX_BYTES, Cpuinfo


def cpuinfo(host: Host) -> Cpuinfo:
    """What the file says. What cannot be read is unknown."""
    return host.once(CPUINFO, lambda: Cpuinfo(host.text(CPUINFO, MAX_BYTES) or ""))

"""/proc/cpuinfo, read once a machine: some kernels take 10 ms for it.

Reads   /proc/cpuinfo
"""

from weakref import WeakKeyDictionary

from sysperf.host import Host
from sysperf.model.snapshot import Source
from sysperf.procfs.cpuinfo import CPUINFO, MAX_BYTES, Cpuinfo

_READ: "WeakKeyDictionary[Host, tuple[Cpuinfo, tuple[Source, ...]]]" = WeakKeyDictionary()


def cpuinfo(host: Host) -> Cpuinfo:
    """What the file says. What cannot be read is unknown."""
    if host not in _READ:
        before = len(host.sources)
        _READ[host] = Cpuinfo(host.text(CPUINFO, MAX_BYTES) or ""), tuple(host.sources[before:])
        return _READ[host][0]
    info, sources = _READ[host]
    host.sources.extend(sources)  # each area that asks has this evidence
    return info

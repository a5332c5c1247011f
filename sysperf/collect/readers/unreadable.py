"""Telling a file that is not there, for which another may stand, from one that is there and cannot be read."""

from sysperf.host import Host


def is_unreadable(host: Host, path: str) -> bool:
    """Whether a file or folder that gave no answer is there all the same: then what it would say is unknown."""
    return host.exists(path) is True

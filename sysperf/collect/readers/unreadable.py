"""Telling a file that is not there, for which another may stand, from one that is there and cannot be read."""

from sysperf.host import Host


def is_unreadable(host: Host, path: str) -> bool:
    """Whether a file or folder that gave no answer is there all the same: then what it would say is unknown."""
    return host.exists(path) is True


def any_unreadable(host: Host, folder: str, names: tuple[str, ...]) -> bool:
    """Whether one of these files of a folder is there and cannot be read. They are read again: ask only where an answer is missing."""
    return any(host.text(f"{folder}/{name}") is None and is_unreadable(host, f"{folder}/{name}") for name in names)

"""The library that the dynamic loader finds by a name. `allocator` and `openmp` ask.

Reads   /etc/ld.so.cache
"""

from collections.abc import Sequence

from sysperf.host import Host

CACHE = "/etc/ld.so.cache"


def cached(host: Host, wanted: Sequence[str]) -> dict[str, str] | None:
    """Paths of the wanted libraries by their file names; None when the cache cannot be read."""
    from sysperf.procfs.ldcache import FLAGS, MAX_BYTES, parse  # noqa: PLC0415 - struct costs 0.5 ms; few launches look here

    raw = host.data(CACHE, MAX_BYTES)
    if raw is None:
        return None
    uname = host.uname()
    try:
        paths = parse(raw, frozenset(name.encode() for name in wanted), FLAGS.get(uname[1] if uname else ""))
    except ValueError as error:
        host.refuse(CACHE, str(error)[:200])
        return None
    return {name.decode("utf-8", "replace"): path.decode("utf-8", "replace") for name, path in paths.items()}


def first_there(host: Host, names: Sequence[str], folders: Sequence[str], cache: dict[str, str] | None) -> str | None:
    """The path of the first of these names: in the folders, else where the loader finds it."""
    for folder in folders:
        for name in names:
            if host.exists(f"{folder}/{name}"):
                return f"{folder}/{name}"
    return next((path for name in names if (path := (cache or {}).get(name)) and host.exists(path) is not False), None)

"""allocator: which allocators can be preloaded here, and what programs started from this shell will get.

Reads   /etc/ld.so.cache  $CONDA_PREFIX/lib  $VIRTUAL_ENV/lib  /usr/local/lib  /proc/self/environ
Loader  https://man7.org/linux/man-pages/man8/ld.so.8.html
glibc   https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html
"""

from __future__ import annotations

import os
from typing import Annotated

from sysperf.collect.readers.libraries import CACHE, cached, first_there
from sysperf.collect.readers.shell_environment import ENVIRON, shell_variables
from sysperf.host import Host
from sysperf.model.record import Record, fact

GLIBC = "confstr:CS_GNU_LIBC_VERSION"
PREFIXES = ("MALLOC_", "TCMALLOC_", "MIMALLOC_", "THP_MEM_ALLOC_", "JE_MALLOC_CONF", "GLIBC_TUNABLES", "LD_PRELOAD")
FOLDERS = ("/usr/local/lib", "/usr/local/lib64")
KNOWN = {
    # logical name -> file names, the newest ABI first
    "tcmalloc_minimal": ("libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so"),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"),
    "mimalloc": ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"),
    "tcmalloc": ("libtcmalloc.so.4", "libtcmalloc.so"),
}


class Library(Record):
    """An allocator that can be preloaded."""

    name: Annotated[str, fact("tcmalloc_minimal, jemalloc, mimalloc or tcmalloc", CACHE)]
    path: Annotated[str, fact("its file", CACHE)]


class Allocator(Record):
    """Allocators at hand, and this shell's settings of the C library's own."""

    libraries: Annotated[tuple[Library, ...] | None, fact("allocators that can be preloaded; glibc's own needs none", CACHE)]
    glibc_version: Annotated[str | None, fact("version of glibc; empty with another C library, which may not preload", GLIBC)] = None
    variables: Annotated[dict[str, str] | None, fact("allocator variables of this shell", ENVIRON)] = None
    preload: Annotated[tuple[str, ...] | None, fact("entries of LD_PRELOAD in this shell", ENVIRON)] = None
    preload_missing: Annotated[
        tuple[str, ...] | None, fact("entries of LD_PRELOAD in this shell that are found nowhere", ENVIRON, CACHE)
    ] = None


def collect(host: Host) -> Allocator:
    """Look for allocators by the loader's cache and in the active environment."""
    from sysperf.collect.openmp import environment_folders  # noqa: PLC0415 - each launch needs the record above, few the facts

    variables = shell_variables(host, PREFIXES)
    preload = None if variables is None else tuple(variables.get("LD_PRELOAD", "").replace(":", " ").split())
    plain = [entry for entry in preload or () if "/" not in entry]
    cache = cached(host, [*(name for names in KNOWN.values() for name in names), *plain])
    folders = [*environment_folders(host), *FOLDERS]
    places = ((name, first_there(host, files, folders, cache)) for name, files in KNOWN.items())
    libraries = tuple(Library(name, path) for name, path in places if path)
    return Allocator(
        libraries=libraries if libraries or cache is not None else None,
        glibc_version=_glibc_version(host),
        variables=variables,
        preload=preload,
        preload_missing=None if preload is None else _missing(host, preload, cache),
    )


def _missing(host: Host, preload: tuple[str, ...], cache: dict[str, str] | None) -> tuple[str, ...] | None:
    """The entries that no file answers to; None when a capture does not say."""
    missing = []
    for entry in preload[:32]:
        is_there = _is_there(host, entry, cache)
        if is_there is None:
            return None
        if not is_there:
            missing.append(entry)
    return tuple(missing)


def _is_there(host: Host, entry: str, cache: dict[str, str] | None) -> bool | None:
    """Whether the loader will find an entry. What it resolves itself ($LIB), or from the program's folder, is given the benefit."""
    if "$" in entry or ("/" in entry and not entry.startswith("/")):
        return True
    return host.exists(entry) if entry.startswith("/") else None if cache is None else _in_folders(host, entry, cache)


def _in_folders(host: Host, name: str, cache: dict[str, str]) -> bool:
    """Whether the loader finds a plain name: in its cache, or in a folder of LD_LIBRARY_PATH."""
    folders = (shell_variables(host, ("LD_LIBRARY_PATH",)) or {}).get("LD_LIBRARY_PATH", "").split(":")
    return name in cache or any(host.exists(f"{folder.rstrip('/')}/{name}") for folder in folders[:32] if folder.startswith("/"))


def _glibc_version(host: Host) -> str | None:
    answer = host.call(GLIBC, _confstr)
    return None if answer is None else str(answer).partition(" ")[2][:40] if str(answer).startswith("glibc ") else ""


def _confstr() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:  # musl knows no such name
        return ""

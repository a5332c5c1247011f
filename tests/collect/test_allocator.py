"""Allocators that can be preloaded, and what a shell's LD_PRELOAD will do."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.allocator import collect
from sysperf.procfs import ldcache
from tests.conftest import MakeMachine
from tests.invoking import program

LIB = "/usr/lib/x86_64-linux-gnu"
X86, I386 = 0x0303, 0x0003
CALLS: dict[str, object] = {"uname": ["6.1.0", "x86_64"], "sudo": False, "confstr:CS_GNU_LIBC_VERSION": "glibc 2.41"}


def cache(entries: dict[str, str], flags: int = X86, *, old: bool = False) -> bytes:
    """The loader's cache with these libraries, as ldconfig writes it."""
    size, head = (12, 16) if old else (24, 48)
    strings, rows = b"", []
    start = 0 if old else head + size * len(entries)
    for name, path in entries.items():
        rows.append((flags, start + len(strings), start + len(strings) + len(name) + 1))
        strings += f"{name}\0{path}\0".encode()
    if old:
        return b"ld.so-1.7.0\0" + struct.pack("<I", len(rows)) + b"".join(struct.pack("<iII", *row) for row in rows) + strings
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(rows), len(strings)) + b"\2" + bytes(19)
    return header + b"".join(struct.pack("<iIIIQ", *row, 0, 0) for row in rows) + strings


def test_allocators_are_found_where_the_loader_finds_them(machine: MakeMachine) -> None:
    """By the names of their current ABI, under the logical names that rules use."""
    raw = cache({"libjemalloc.so.2": f"{LIB}/libjemalloc.so.2", "libtcmalloc_minimal.so.4": f"{LIB}/libtcmalloc_minimal.so.4"})
    files = {"/etc/ld.so.cache": raw, f"{LIB}/libjemalloc.so.2": b"", f"{LIB}/libtcmalloc_minimal.so.4": b""}

    facts = collect(machine(files, calls=CALLS))

    assert {library.name: library.path for library in facts.libraries or ()} == {
        "tcmalloc_minimal": f"{LIB}/libtcmalloc_minimal.so.4",
        "jemalloc": f"{LIB}/libjemalloc.so.2",
    }
    assert facts.glibc_version == "2.41"


def test_the_active_environment_comes_first(machine: MakeMachine) -> None:
    """conda's copy is the one that a program of that environment should get."""
    files = {
        "/proc/self/environ": "CONDA_PREFIX=/conda/envs/train\0",
        "/conda/envs/train/lib/libjemalloc.so.2": b"",
        "/etc/ld.so.cache": cache({"libjemalloc.so.2": f"{LIB}/libjemalloc.so.2"}),
    }
    (library,) = collect(machine(files, calls=CALLS)).libraries or ()

    assert library.path == "/conda/envs/train/lib/libjemalloc.so.2"


def test_entries_of_a_stale_cache_and_of_other_machines_are_left_out(machine: MakeMachine) -> None:
    """A library that was removed since, and a 32-bit one, cannot be preloaded."""
    removed = machine({"/etc/ld.so.cache": cache({"libjemalloc.so.2": f"{LIB}/libjemalloc.so.2"})}, calls=CALLS)
    small = machine(
        {"/etc/ld.so.cache": cache({"libjemalloc.so.2": "/lib/libjemalloc.so.2"}, I386), "/lib/libjemalloc.so.2": b""}, calls=CALLS
    )

    assert collect(removed).libraries == collect(small).libraries == ()


def test_without_a_cache_nothing_is_known(machine: MakeMachine) -> None:
    """A capture without it does not say that there is no allocator; neither does one that is damaged."""
    host = machine({"/etc/ld.so.cache": b"glibc-ld.so.cache1.1\xff\xff"}, calls=CALLS)

    assert collect(machine({}, calls=CALLS)).libraries is None
    assert collect(host).libraries is None
    assert any(source.path == "/etc/ld.so.cache" and source.error for source in host.sources)


def test_a_preload_of_the_shell_is_looked_up_as_the_loader_does(machine: MakeMachine) -> None:
    """By path, by the cache, by LD_LIBRARY_PATH; what the loader resolves itself is given the benefit."""
    preload = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.1:libjemalloc.so.2 mine.so other.so $LIB/x.so ./y.so"
    files = {
        "/proc/self/environ": f"{preload}\0LD_LIBRARY_PATH=/opt/lib\0",
        "/etc/ld.so.cache": cache({"libjemalloc.so.2": f"{LIB}/libjemalloc.so.2"}),
        "/opt/lib/mine.so": b"",
    }
    facts = collect(machine(files, calls=CALLS))

    assert facts.preload_missing == ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.1", "other.so")
    assert len(facts.preload or ()) == 6


def test_another_c_library_is_told(machine: MakeMachine) -> None:
    """musl has no version that confstr tells."""
    assert collect(machine({}, calls={**CALLS, "confstr:CS_GNU_LIBC_VERSION": ""})).glibc_version == ""
    assert collect(machine({})).glibc_version is None


def test_the_old_format_and_both_in_one_file_are_read() -> None:
    """Distributions of before 2020 write the new format behind the old one."""
    entries = {"libjemalloc.so.2": "/a/libjemalloc.so.2", "libc.so.6": "/a/libc.so.6"}
    wanted = frozenset((b"libjemalloc.so.2",))
    expected = {b"libjemalloc.so.2": b"/a/libjemalloc.so.2"}

    assert ldcache.parse(cache(entries, old=True), wanted, 0x0300) == expected
    assert ldcache.parse(cache({}, old=True) + cache(entries), wanted, 0x0300) == expected


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
@settings(max_examples=30)
def test_any_cache_is_read_or_refused(head: bytes, tail: bytes, old: bool) -> None:
    """Counts and offsets out of a hostile file lead nowhere but to a ValueError."""
    good = cache({"libx.so": "/lib/libx.so"}, old=old)
    for raw in (head, good[: len(head)] + tail, good + tail, good[:20] + head + good[20:]):
        try:
            paths = ldcache.parse(raw, frozenset((b"libx.so",)))
        except ValueError:
            continue
        assert all(path.startswith(b"/") for path in paths.values())


@pytest.mark.skipif(
    not Path("/etc/ld.so.cache").exists() or not program("ldconfig"),
    reason="needs glibc's ldconfig (libc-bin)",
)
def test_this_machines_cache_is_read_as_ldconfig_prints_it() -> None:
    """Every 64-bit library that ldconfig lists is found under the same path."""
    printed = subprocess.run((program("ldconfig") or "", "-p"), capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in printed.splitlines() if "=>" in line and "x86-64" in line]
    expected: dict[bytes, bytes] = {}
    for words in lines:
        expected.setdefault(words[0].encode(), words[-1].encode())

    paths = ldcache.parse(Path("/etc/ld.so.cache").read_bytes(), frozenset(expected), 0x0300)

    assert paths == expected

"""Allocators to preload: files that are there, and programs that will take them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest

from sysperf.collect import allocator
from sysperf.engine.tune import space
from sysperf.engine.wrap import allocator as wrap_allocator
from sysperf.launch import profile
from sysperf.launch.preload import FILES, _elf, candidates, refusal
from sysperf.model.rule import Preload

LIBRARY = os.path.realpath(next(iter(Path("/lib").glob("*/libc.so.6")), Path("/lib/libc.so.6")))
PROGRAM = os.path.realpath(sys.executable)


def test_every_room_knows_the_same_allocators() -> None:
    """What a rule may name has files, a package to install, a collector that finds it, and a place in profiles and in `tune`.

    They are lists of their own because a launch imports only what it needs.
    """
    known = set(get_args(Preload.__annotations__["library"]))

    assert known == set(FILES) == set(wrap_allocator.PACKAGES) == set(space.PRELOADED) == set(space.ASKED_BY)
    assert known <= set(allocator.KNOWN)
    assert known <= set(profile.ALLOCATORS)


def test_only_files_that_are_there(tmp_path: Path) -> None:
    """The environment's own library comes first; what the loader knows second; what is not there never."""
    (tmp_path / "libjemalloc.so.2").touch()
    (tmp_path / "system.so").touch()

    assert candidates("jemalloc", [str(tmp_path), ""], {"jemalloc": f"{tmp_path}/system.so"}) == [
        f"{tmp_path}/libjemalloc.so.2",
        f"{tmp_path}/system.so",
    ]
    assert candidates("jemalloc", ["/nowhere"], {"jemalloc": "/nowhere/libjemalloc.so.2"}) == []


@pytest.mark.skipif(not os.path.exists(LIBRARY), reason="no libc.so.6 below /lib")
def test_a_program_that_takes_it() -> None:
    """This Python and this C library are made for each other; a script is as good as its interpreter."""
    assert refusal(LIBRARY, PROGRAM) == ""
    assert refusal(LIBRARY, __file__) == ""
    assert refusal(LIBRARY, "/nowhere") == ""


@pytest.mark.skipif(not os.path.exists(LIBRARY), reason="no libc.so.6 below /lib")
def test_programs_that_ignore_it(tmp_path: Path) -> None:
    """Set-user-ID and static programs, and those of another machine."""
    copy = tmp_path / "program"
    shutil.copy(PROGRAM, copy)
    copy.chmod(0o4755)
    assert "rights of its own" in refusal(LIBRARY, str(copy))

    raw = bytearray(Path(PROGRAM).read_bytes())
    raw[18:20] = b"\x02\x00"  # e_machine: SPARC
    copy.chmod(0o755)
    copy.write_bytes(raw)
    assert "another machine" in refusal(LIBRARY, str(copy))

    raw = bytearray(Path(PROGRAM).read_bytes())
    raw[56:58] = b"\x00\x00"  # e_phnum: no loader is named
    copy.write_bytes(raw)
    assert "statically" in refusal(LIBRARY, str(copy))


@pytest.mark.skipif(not os.path.exists(LIBRARY), reason="no libc.so.6 below /lib")
def test_a_library_that_the_loader_refuses(tmp_path: Path) -> None:
    """A damaged file passes a glance at its header; the loader is asked before the program is started."""
    damaged = tmp_path / "libjemalloc.so.2"
    damaged.write_bytes(Path(LIBRARY).read_bytes()[:4096])

    reason = refusal(str(damaged), PROGRAM)
    assert "cannot be preloaded" in reason or "does not take" in reason


@pytest.mark.skipif(not os.path.exists(LIBRARY), reason="no libc.so.6 below /lib")
def test_a_loader_of_the_programs_own_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its name: only the system's lists what it would load, and nothing is to run before the user's command does."""
    raw = Path(PROGRAM).read_bytes()
    systems = _elf(PROGRAM)
    assert systems
    folder, name = os.path.split(systems[2])
    own = tmp_path / ("e" * (len(folder) - 2)) / name
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    program = tmp_path / "program"
    program.write_bytes(raw.replace(systems[2].encode(), f"./{own.parent.name}/{name}".encode(), 1))
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.posix_spawn", lambda *_, **__: pytest.fail("it was started"))

    assert refusal(LIBRARY, str(program)) == ""


def test_what_is_no_library(tmp_path: Path) -> None:
    """An empty or foreign file is not preloaded."""
    (tmp_path / "libtcmalloc_minimal.so.4").write_bytes(b"\x7fELF")

    assert "no shared library" in refusal(str(tmp_path / "libtcmalloc_minimal.so.4"), PROGRAM)


def with_loader(tmp_path: Path, loader: str) -> str:
    """A program that this loader starts: /bin/true with another interpreter written into it."""
    content = Path("/bin/true").read_bytes()
    start = content.index(b"/lib64/ld-linux")
    stop = content.index(b"\0", start)
    assert len(loader) <= stop - start
    path = tmp_path / "program"
    path.write_bytes(content[:start] + loader.encode().ljust(stop - start, b"\0") + content[stop:])
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the loader's name of another machine is longer or shorter")
def test_a_program_of_another_c_library(tmp_path: Path) -> None:
    """musl's loader does not skip a library that needs glibc: the program would end with 127."""
    program = with_loader(tmp_path, "/lib/ld-musl-x86_64.so.1")
    glibc_library, musl_library = tmp_path / "libjemalloc.so.2", tmp_path / "libmusl.so"
    elf = Path("/bin/true").read_bytes()
    glibc_library.write_bytes(elf)
    musl_library.write_bytes(elf.replace(b"libc.so.6\0", b"libc.musl\0"))

    assert refusal(str(glibc_library), program) == f"{program} is started by /lib/ld-musl-x86_64.so.1, and {glibc_library} needs glibc"
    assert refusal(str(musl_library), program) == ""

"""For which GPUs a library was built is read from the library itself, and nothing hostile in its place is believed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.host.gpu_code import gpu_code

LIST = b"sm_70 sm_75 sm_90a compute_120"


def library(constants: bytes, names: bytes = b"\0.rodata\0") -> bytes:
    """A small shared library: a header, the constants, the sections' names, and the table of sections."""
    start = 64
    table = start + len(constants) + len(names)
    header = struct.pack("<16s2HI3QI6H", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    empty = bytes(64)
    rodata = struct.pack("<2I4Q2I2Q", 1, 1, 2, 0, start, len(constants), 0, 0, 1, 0)
    strings = struct.pack("<2I4Q2I2Q", 0, 3, 0, 0, start + len(constants), len(names), 0, 0, 1, 0)
    return header + constants + names + empty + rodata + strings


@pytest.mark.parametrize(
    ("constants", "code"),
    [
        (b"words\0" + LIST + b"\0more", LIST.decode().split()),
        (b"\0gfx90a gfx942 gfx1100\0", ["gfx90a", "gfx942", "gfx1100"]),
        (b"\0sm_80 is too old\0needs sm_80\0ipc_hsm_80 sm_90\0", ["sm_80", "sm_90"]),
        (b"\0sm_90a\0", ["sm_90a"]),
        (b"\0nothing of GPUs\0", []),
        (b"\0sm_80 sm_90", []),
    ],
    ids=["CUDA", "ROCm", "sentences before", "one target", "a build for CPUs", "not ended"],
)
def test_the_list_is_read_from_the_constants(tmp_path: Path, constants: bytes, code: list[str]) -> None:
    (path := tmp_path / "libtorch_python.so").write_bytes(library(constants))

    assert gpu_code(str(path)) == code


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x7fELF\x02\x01" + bytes(58), library(b"\0sm_80\0", b"\0.rodatb\0"), library(LIST)[:-8]]
)
def test_what_is_no_library_is_refused(tmp_path: Path, content: bytes) -> None:
    """Absent, a text, a header without sections, sections without constants, a file that is cut short."""
    (path := tmp_path / "libtorch_python.so").write_bytes(content)

    with pytest.raises(OSError, match=r"is no 64-bit|has no|is cut short"):
        gpu_code(str(path))


@settings(max_examples=25)
@given(st.integers(0, 255), st.integers(0, 300), st.binary(max_size=8))
def test_no_library_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, at: int, cut: int, bytes_: bytes) -> None:
    """Whatever stands in its header: a list of targets, or a refusal."""
    content = bytearray(library(b"\0" + LIST + b"\0"))
    content[at : at + len(bytes_)] = bytes_
    (path := tmp_path_factory.mktemp("lib") / "x.so").write_bytes(content[: len(content) - cut])

    try:
        code = gpu_code(str(path))
    except OSError:
        return
    assert all(target.startswith(("sm_", "compute_", "gfx")) for target in code)

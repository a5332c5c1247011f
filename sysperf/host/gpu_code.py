"""GPU targets of a PyTorch library, by a text inside of it: what ``torch.cuda.get_arch_list()`` prints.

Reads   */torch/lib/libtorch_python.so: its header and the section of constants, a megabyte of thirty
Format  https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
PyTorch torch/csrc/cuda/Module.cpp, _cuda_getArchFlags
"""

import os
import re
import struct
from collections.abc import Iterator

from sysperf.host.plain_files import open_plain

MAX_SECTIONS = 256
MAX_FILE = 1 << 40
MAX_CONSTANTS = 32 << 20
_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_TARGET = rb"(?:sm_|compute_)[0-9]{2,3}[af]?|gfx[0-9a-f]{3,5}"


def gpu_code(path: str) -> list[str]:
    """The targets in their order: ``sm_80``, ``compute_120``, ``gfx942``; empty in a build for CPUs. Raises OSError for no such library."""
    handle = open_plain(path)
    try:
        constants = _constants(handle, path)
    finally:
        os.close(handle)
    return max(_lists(constants), key=len, default=[])


def _lists(constants: bytes) -> Iterator[list[str]]:
    """Each text that is a list of targets. A search for the beginnings takes 1 ms, one for the whole pattern 50."""
    pattern = re.compile(rb"(?:%s)(?: (?:%s))*\0" % (_TARGET, _TARGET))
    for start in (b"sm_", b"compute_", b"gfx"):
        at = constants.find(start)
        while at >= 0:
            match = pattern.match(constants, at)
            if match:
                yield match[0][:-1].decode().split()
            at = constants.find(start, match.end() if match else at + 1)


def _constants(handle: int, path: str) -> bytes:
    """The section .rodata of a 64-bit little-endian library."""
    header = os.pread(handle, _HEADER.size, 0)
    if len(header) < _HEADER.size or header[:6] != b"\x7fELF\x02\x01":
        raise OSError(f"{path} is no 64-bit ELF library")
    fields = _HEADER.unpack(header)
    table, size, count, names = fields[6], fields[11], fields[12], fields[13]
    if table > MAX_FILE or size != _SECTION.size or not names < count <= MAX_SECTIONS:
        raise OSError(f"{path} has no table of sections")
    raw = os.pread(handle, size * count, table)
    if len(raw) < size * count:
        raise OSError(f"{path} is cut short")
    sections = [_SECTION.unpack_from(raw, size * index) for index in range(count)]
    texts = os.pread(handle, min(sections[names][5], 1 << 16), min(sections[names][4], MAX_FILE))
    for name, _, _, _, offset, length, *_ in sections:
        if texts[name : name + 8] == b".rodata\0":
            return os.pread(handle, min(length, MAX_CONSTANTS), min(offset, MAX_FILE))
    raise OSError(f"{path} has no section of constants")

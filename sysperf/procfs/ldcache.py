"""/etc/ld.so.cache: where the dynamic loader finds a library by its name, in the format of glibc 2.2 and later and in the older one.

Format  https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-cache.h
"""

import struct

MAX_BYTES = 16 << 20
MAX_ENTRIES = 100_000
_NEW, _OLD = b"glibc-ld.so.cache1.1", b"ld.so-1.7.0"
_OLD_ENTRY, _NEW_ENTRY = struct.Struct("<iII"), struct.Struct("<iIIIQ")  # flags, name, path; and OS version, hardware
FLAGS = {"x86_64": 0x0300, "aarch64": 0x0A00, "ppc64le": 0x0500, "s390x": 0x0400, "riscv64": 0x1000}
"""What an entry for 64-bit programs carries, by machine (sysdeps/generic/ldconfig.h)."""


def parse(raw: bytes, wanted: frozenset[bytes], flags: int | None = None) -> dict[bytes, bytes]:
    """Paths by file name of those wanted, the loader's first choice of each. Raises ValueError when it is no cache."""
    start = raw.find(_NEW) if raw.startswith((_NEW, _OLD)) else -1
    if start >= 0:
        layout, count, base, offsets = _NEW_ENTRY, _count(raw, start + 20), start, start + 48
    elif raw.startswith(_OLD):
        layout, count = _OLD_ENTRY, _count(raw, 12)
        offsets, base = 16, 16 + count * layout.size
    else:
        raise ValueError("not a cache of the dynamic loader")
    if count > MAX_ENTRIES or offsets + count * layout.size > len(raw):
        raise ValueError(f"{count} entries do not fit into {len(raw)} bytes")
    paths: dict[bytes, bytes] = {}
    for kind, name_at, path_at, *_ in layout.iter_unpack(raw[offsets : offsets + count * layout.size]):
        if flags is not None and kind & 0xFF00 != flags:
            continue
        name = _text(raw, base + name_at)
        if name in wanted and name not in paths:
            paths[name] = _text(raw, base + path_at)
    return {name: path for name, path in paths.items() if path.startswith(b"/")}


def _count(raw: bytes, at: int) -> int:
    if len(raw) < at + 4:
        raise ValueError("the cache ends in its header")
    return int.from_bytes(raw[at : at + 4], "little")


def _text(raw: bytes, at: int) -> bytes:
    end = raw.find(b"\0", at, at + 4096)
    return raw[at:end] if end >= 0 else b""

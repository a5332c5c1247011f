"""Compressed files that unpack to much more than they are, made in a moment."""

from __future__ import annotations

import functools
import struct
import zlib


def repeated(block: bytes, times: int, first: bytes = b"") -> bytes:
    """Return a gzip stream of one member (RFC 1952) with the same block many times, which is compressed once."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    head, again = (deflate.compress(part) + deflate.flush(zlib.Z_FULL_FLUSH) for part in (first, block))
    checksum = functools.reduce(lambda sum_, _: zlib.crc32(block, sum_), range(times), zlib.crc32(first))
    size = (len(first) + len(block) * times) & 0xFFFFFFFF
    return b"\x1f\x8b\x08" + bytes(7) + head + again * times + b"\x03\x00" + struct.pack("<II", checksum, size)

"""The datagrams in which a PyTorch program asks its tracing daemon for work.

A message is a u64 size, a type of 32 characters and a body of that size, in the machine's own byte order:
https://github.com/facebookincubator/dynolog/blob/main/dynolog/src/ipcfabric/FabricManager.h

``ctxt``  {i32 gpu, i32 pid, i64 job}           "I am here"; wants an i32 back
``req``   {i32 type, i32 n, i64 job, i32[n]}    every 5 s: "anything to do?"; wants a configuration back, empty for no
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MAX_BYTES = 4_096
"""A request lists the program's ancestors: this is enough for 1,000."""

_HEAD = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")
_CONTEXT = struct.Struct("=iiq")
_NUMBER = struct.Struct("=i")
_ACTIVITIES = 2


class Request(NamedTuple):
    """A request of a process. Its sender is known from the socket's credentials, not from the message."""

    kind: str
    free: bool = False
    """It could start a trace now: its profiler is not at work."""


def parse(datagram: bytes) -> Request | None:
    """What a datagram says; None when it is no message of this protocol."""
    if len(datagram) < _HEAD.size:
        return None
    size, kind = _HEAD.unpack_from(datagram)
    body = datagram[_HEAD.size :]
    kind, _, _ = kind.partition(b"\0")
    if size != len(body):
        return None
    if kind == b"ctxt":
        return Request("ctxt") if len(body) == _CONTEXT.size else None
    if kind != b"req" or len(body) < _REQUEST.size:
        return None
    types, count, _ = _REQUEST.unpack_from(body)
    if count < 0 or len(body) != _REQUEST.size + count * _NUMBER.size:
        return None
    return Request("req", bool(types & _ACTIVITIES))


def reply(request: Request, config: str = "") -> bytes:
    """The answer to it: a number of instances, or a configuration."""
    body = _NUMBER.pack(1) if request.kind == "ctxt" else config.encode()
    return _HEAD.pack(len(body), request.kind.encode()) + body

"""Asking the privileged helper for changes: one request and one answer a connection, JSON behind its length.

The helper (`sysperf.agent.helper_server`) plans by itself: a client names knobs of the allow-list and values, nothing else.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Annotated

import msgspec

from sysperf.model.change import Plan, Setting, Transaction, Undone
from sysperf.model.errors import SysperfError
from sysperf.model.record import Record, fact, from_json, to_json
from sysperf.paths import HELPER_SOCKET

MAX_BYTES = 1 << 20
TIMEOUT_S = 60.0
_LENGTH = struct.Struct("!I")

Seconds = Annotated[float, msgspec.Meta(gt=0, le=31 * 86_400)]


class HelperError(SysperfError):
    """The helper says no."""


class Unreachable(HelperError):
    """The helper is not there, or breaks off."""


class AskPlan(Record, tag="plan", tag_field="verb", kw_only=True):
    """What would these settings change?"""

    settings: Annotated[tuple[Setting, ...], msgspec.Meta(max_length=256)]
    force: bool = False


class AskApply(Record, tag="apply", tag_field="verb", kw_only=True):
    """Do it."""

    settings: Annotated[tuple[Setting, ...], msgspec.Meta(min_length=1, max_length=256)]
    why: Annotated[str, msgspec.Meta(max_length=500)] = ""
    force: bool = False
    persist: bool = False
    lease_s: Seconds | None = None
    automatic: Annotated[bool, fact("no person asks: what somebody else has set since sysperf did is left to them")] = False


class AskRenew(Record, tag="renew", tag_field="verb", kw_only=True):
    """Let a lease end so many seconds from now."""

    number: int
    lease_s: Seconds


class AskUndo(Record, tag="undo", tag_field="verb", kw_only=True):
    """Take a transaction back."""

    number: int
    force: bool = False


class AskList(Record, tag="list", tag_field="verb"):
    """What has sysperf changed?"""


class AskVerify(Record, tag="verify", tag_field="verb"):
    """Is it still so? What somebody else has set since becomes theirs."""


Ask = AskPlan | AskApply | AskRenew | AskUndo | AskList | AskVerify


class Holding(Record):
    """How a step of a transaction stands now."""

    number: int
    step: int
    now: str
    verdict: str


class Answer(Record, kw_only=True):
    """What the helper says; `problem` when it did not do it."""

    problem: str = ""
    hint: str = ""
    plan: Plan | None = None
    transaction: Transaction | None = None
    transactions: tuple[Transaction, ...] = ()
    undone: tuple[Undone, ...] = ()
    holdings: Annotated[tuple[Holding, ...], fact("answer to `verify`")] = ()


def available(path: str = HELPER_SOCKET) -> bool:
    """Whether there is a helper that this user may ask."""
    return os.access(path, os.W_OK)


def ask(question: Ask, path: str = HELPER_SOCKET) -> Answer:
    """Ask the helper. Raises HelperError when it says no, and its kind Unreachable when it is not there or breaks off."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(path)
            send(connection, to_json(question))
            answer: Answer = from_json(receive(connection), Answer)
    except (OSError, ValueError) as error:
        raise Unreachable(f"{path}: {error}", "`systemctl status sysperf-helper.socket` tells more; root needs no helper") from None
    if answer.problem:
        raise HelperError(answer.problem, answer.hint)
    return answer


def send(connection: socket.socket, content: bytes) -> None:
    """One frame. Raises OSError."""
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive(connection: socket.socket, limit: int = MAX_BYTES, within_s: float = TIMEOUT_S) -> bytes:
    """One frame. Raises OSError when it is larger than `limit`, cut short, or not there in time."""
    end = time.monotonic() + within_s
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, end))
    if length > limit:
        raise OSError(f"a message of {length} bytes; at most {limit} are read")
    return _exactly(connection, length, end)


def _exactly(connection: socket.socket, size: int, end: float) -> bytes:
    content = bytearray()
    while len(content) < size:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        part = connection.recv(min(size - len(content), 65_536))
        if not part:
            raise OSError("the other side broke off")
        content += part
    return bytes(content)

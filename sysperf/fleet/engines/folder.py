"""Records that a site has gathered by whatever it has: files ``NODE.json`` of a folder, or one record a line from stdin.

pdsh, clush, Ansible, flux, `kubectl logs`, or cron and a shared folder can feed it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

import msgspec

from sysperf.fleet.names import MAX_NODES
from sysperf.host.plain_files import list_folder, read_named
from sysperf.model.errors import UsageError
from sysperf.model.node import MAX_RECORD_BYTES, Answer, Asked, Node, Verb, is_name
from sysperf.model.record import DecodeError, from_json
from sysperf.plugin import Deliver

_SUFFIX = ".json"
_HINT = "`sysperf node record --output FOLDER/$(hostname).json` on each node, or a line of each through a pipe: `… | sysperf fleet audit -`"


class _Named(msgspec.Struct):
    """What of a line says whose record it is."""

    node: str


def nodes(asked: Asked) -> tuple[Node, ...]:
    """Return the nodes of which there are files, and those that were to be there. From stdin nobody is known before it is read."""
    if asked.where in ("", "-"):
        return tuple(map(Node, asked.hosts))
    try:
        files = [name.removesuffix(_SUFFIX) for name in list_folder(asked.where, MAX_NODES) if name.endswith(_SUFFIX)]
    except OSError as error:
        raise UsageError(f"{asked.where}: {error.strerror or error}", _HINT) from None
    if not files and not asked.hosts:
        raise UsageError(f"{asked.where}: no record in it", _HINT)
    there = sorted(set(files) & set(asked.hosts) if asked.hosts else files)
    return (*map(Node, there), *(Node(name, "unreachable", "no record of it") for name in asked.hosts if name not in set(files)))


def run(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """Deliver what lies there. Raises UsageError where something is to be measured: nobody can be asked."""
    if verb in ("bench", "pair"):
        raise UsageError("records in a folder can be read, and nothing can be measured there", "choose another engine with --engine")
    for answer in _lines(nodes) if asked.where in ("", "-") else (_file(asked.where, node) for node in nodes):
        deliver(answer)


def _file(folder: str, node: Node) -> Answer:
    if node.state != "answered":
        return Answer(node.name, node.state, node.reason)
    if not is_name(node.name):
        return Answer(node.name, "refused", "the file's name is no name of a node")
    try:
        return Answer(node.name, data=read_named(os.path.join(folder, node.name + _SUFFIX), MAX_RECORD_BYTES))
    except OSError as error:
        return Answer(node.name, "refused", f"its record cannot be read: {error.strerror or error}")


def _lines(nodes: Sequence[Node]) -> Iterator[Answer]:
    """One record a line. Of two with one name neither is known to be the right one: the first is taken back."""
    expected, seen = {node.name for node in nodes}, dict[str, int]()
    for number, line in enumerate(_bounded_lines(), 1):
        if number > MAX_NODES:
            raise UsageError(f"more than {MAX_NODES} lines from stdin", "ask a part of the nodes at a time")
        name = _name_of(line)
        if not name:
            yield Answer(f"line-{number}", "refused", "no record of a node")
        elif not expected or name in expected:
            count = seen[name] = seen.get(name, 0) + 1
            yield Answer(name, data=line) if count == 1 else Answer(name, "refused", f"{count} records have its name")
    yield from (Answer(name, "unreachable", "no record of it") for name in sorted(expected - seen.keys()))


def _name_of(line: bytes) -> str:
    try:
        name = from_json(line, _Named).node
    except DecodeError:
        return ""
    return name if is_name(name) else ""


def _bounded_lines() -> Iterator[bytes]:
    """Lines of stdin; of one that is too long only a beginning, which is no record."""
    stream = sys.stdin.buffer
    while line := stream.readline(MAX_RECORD_BYTES + 1):
        whole = line.endswith(b"\n") or len(line) <= MAX_RECORD_BYTES
        yield line.strip() if whole else b"{"
        while not whole and (rest := stream.readline(MAX_RECORD_BYTES)):
            whole = rest.endswith(b"\n")

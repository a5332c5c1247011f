"""Nodes by ssh: OpenSSH as a subprocess, which knows names, keys and configurations. It never asks; who would have to is refused."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sysperf.fleet.engines import programs
from sysperf.model.errors import UsageError
from sysperf.model.node import Answer, Asked, Node, NodeState, Verb, record_line
from sysperf.plugin import Deliver

CONNECT_S = 10
UNREACHABLE = 255
NOT_FOUND = (126, 127)
_OPTIONS = ("-T", "-n", "-x", "-o", "BatchMode=yes", "-o", "ForwardAgent=no", "-o", "ClearAllForwardings=yes", "-o", "LogLevel=ERROR")
_REFUSALS = ("host key verification failed", "permission denied", "identification has changed", "too many authentication failures")


def nodes(asked: Asked) -> tuple[Node, ...]:
    """Return the hosts that are named. Raises UsageError without any."""
    if not asked.hosts:
        raise UsageError("no hosts are named", "name them with --hosts 'n[1-32]'")
    return tuple(map(Node, asked.hosts))


def run(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """Ask as many at a time as is said, and once more who could not be reached."""
    for answer in programs.each(lambda node: _answer(node.name, verb, asked), nodes, asked.at_once):
        deliver(answer)


def command(node: str, verb: Verb, asked: Asked) -> tuple[str, ...]:
    """The one line that runs on a node; it ends by itself, also where nobody waits for it any more."""
    return (*asked.command, *asked.words(verb), "--node", node)


def _answer(node: str, verb: Verb, asked: Asked) -> Answer:
    argv = ("ssh", *_OPTIONS, "-o", f"ConnectTimeout={min(CONNECT_S, int(asked.node_limit_s) + 1)}", "--", node)
    for _ in range(2):
        ended = programs.run((*argv, shlex.join(command(node, verb, asked))), asked.node_limit_s)
        if (state := _state(ended)) != "unreachable":
            break
    data = record_line(ended.output) if state == "answered" else b""
    return Answer(node, state, _reason(ended), data, round(ended.took_s, 2))


def _state(ended: programs.Ended) -> NodeState:
    if ended.code == 0:
        return "answered"
    if ended.code is None:
        return "refused" if "printed" in ended.problem else "late"
    if ended.code == UNREACHABLE:
        return "refused" if any(words in ended.complaint.lower() for words in _REFUSALS) else "unreachable"
    return "refused"


def _reason(ended: programs.Ended) -> str:
    if ended.code == 0:
        return ""
    if ended.code in NOT_FOUND:
        return f"sysperf is not where it was looked for (--sysperf): {ended.last_words}"
    return ended.problem or ended.last_words or f"ssh ended with code {ended.code}"

"""Marks in Slurm: the comment of a node, or a drain with its reason. One call sets both state and reason, so there is no half mark.

Slurm keeps a reason only of nodes that are drained, down or failing. A mark without a drain is a comment therefore.

scontrol  https://slurm.schedmd.com/scontrol.html#SECTION_NODES---SPECIFICATIONS-FOR-UPDATE-COMMAND
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sysperf.fleet.engines import programs
from sysperf.model.errors import SysperfError
from sysperf.model.mark import MAX_MARK, How, NodeMark
from sysperf.model.node import is_name
from sysperf.startup import lazy

ASK_S = 10.0
MAX_BYTES = 64 << 20
_STAMP = lazy(r"(.*) \[([^\[\]]{1,256}@[^\[\]]{1,64})\]", re.DOTALL)
_WORDS = lazy(r"[ -~]*")
_NO_JOBS = frozenset(
    ("DOWN", "UNKNOWN", "FUTURE", "ERROR", "DRAIN", "FAIL", "NOT_RESPONDING", "MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "INVALID_REG")
)


def states(nodes: Sequence[str] = ()) -> Mapping[str, NodeMark]:
    """What Slurm says of these nodes, of all where none is named; whom it does not have is missing. Raises SysperfError."""
    alone = nodes[0] if len(nodes) == 1 else ""
    if alone and not _can_be_meant(alone):
        return {}
    ended = programs.run(("scontrol", "show", "node", *([alone] if alone else [])), ASK_S, most=MAX_BYTES)
    printed = ended.output.decode("utf-8", "replace")
    if alone and f"Node {alone} not found" in printed + ended.complaint:
        return {}
    if ended.code != 0:
        raise _refused("show", ended)
    found = {each.node: each for each in map(_described, re.split(r"^(?=NodeName=)", printed, flags=re.MULTILINE)) if each}
    return {name: mark for name, mark in found.items() if not nodes or name in nodes}


def write(node: str, how: How, text: str) -> None:
    """Set a comment, or drain with a reason; an empty text takes either back. Raises SysperfError."""
    if not _can_be_meant(node) or len(text) > MAX_MARK or not _WORDS.fullmatch(text):
        raise SysperfError(f"{node[:80]}: no node, or no words that Slurm takes", "name one node as Slurm does")
    words = (f"comment={text}",) if how == "mark" else ("state=drain", f"reason={text}") if text else ("state=undrain",)
    ended = programs.run(("scontrol", "update", f"nodename={node}", *words), ASK_S)
    if ended.code != 0:
        raise _refused("update", ended)


def _can_be_meant(node: str) -> bool:
    """Whether a name is that of one node: ``ALL`` is every one of them."""
    return is_name(node) and node.upper() != "ALL"


def _refused(what: str, ended: programs.Ended) -> SysperfError:
    why = ended.problem or ended.last_words or f"code {ended.code}"
    hint = "run it where `sinfo` answers, such as on a login node" if what == "show" else "nothing was changed; ask Slurm's administrator"
    return SysperfError(f"`scontrol {what}`: {why}", hint)


def _described(block: str) -> NodeMark | None:
    """A node of `scontrol show node`: a field's line begins with three spaces, and what a person's words go on with with more."""
    name = re.match(r"NodeName=(\S+)", block)
    state = re.search(r"^ {3}State=(\S+)", block, re.MULTILINE)
    if not name or not is_name(name[1]) or not state:
        return None
    stamped = _STAMP.fullmatch(reason := _field(block, "Reason"))
    first, _, rest = reason.partition("\n")  # the stamp ends the first line, whatever follows
    if rest and (stamped := _STAMP.fullmatch(first)):
        reason = f"{stamped[1]}\n{rest}"
    elif stamped:
        reason = stamped[1]
    partitions = _field(block, "Partitions").strip()
    return NodeMark(
        node=name[1],
        partitions=tuple(partitions.split(",")) if partitions else (),
        state=state[1],
        usable=not _NO_JOBS & set(re.findall(r"[A-Z_]+", state[1])) and "*" not in state[1],
        comment=_field(block, "Comment"),
        reason=reason or ("drained without a reason" if "DRAIN" in state[1] else ""),
        by=stamped[2] if stamped else "",
    )


def _field(block: str, name: str) -> str:
    found = re.search(rf"^ {{3}}{name}=(.*(?:\n {{4,}}.*)*)", block, re.MULTILINE)
    return "\n".join(line.strip() if number else line for number, line in enumerate(found[1].split("\n"))) if found else ""

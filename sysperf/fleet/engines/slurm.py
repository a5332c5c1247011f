"""Nodes by Slurm: a step over the nodes of the allocation that this runs in; outside of one, a job of one node on each that is idle.

Never one allocation over all nodes: one that died a moment ago would hold it up for a minute. Within an allocation the living answer at
once, and the step ends when Slurm gives up on the dead.

srun  https://slurm.schedmd.com/srun.html   sinfo  https://slurm.schedmd.com/sinfo.html
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Sequence

from sysperf.fleet.engines import programs
from sysperf.host.commands import sysperf_command
from sysperf.model.errors import SysperfError
from sysperf.model.node import MAX_OUTPUT_BYTES, MAX_RECORD_BYTES, Answer, Asked, Node, NodeState, Verb, is_name, record_line
from sysperf.model.record import DecodeError, JsonObject, from_json
from sysperf.model.text import neutral
from sysperf.plugin import Deliver
from sysperf.startup import lazy

ASK_S = 15.0
IMMEDIATE_S = 5
_LABELLED = lazy(rb" *([0-9]{1,7}): (.*)")
_FAILED = lazy(r"(?:failed on node|on node|error: Node failure on) ([A-Za-z0-9_.-]{1,253}):? *(.*)")
_STATES: dict[str, NodeState] = {"idle": "answered", "drained": "drained", "draining": "drained", "drain": "drained", "maint": "drained"}
_GONE = ("down", "unknown", "fail", "failing", "error", "powered_down", "powering_down", "power_down", "rebooting", "reboot", "future")


def nodes(asked: Asked) -> tuple[Node, ...]:
    """Return the nodes of the allocation, else all that the scheduler has, with their states. Raises SysperfError."""
    wanted = set(asked.hosts)
    if job := _other_job(asked):
        found = _named(_ask("squeue", "-h", "-j", job, "-o", "%N").strip())
    else:
        found = _of_allocation() if os.environ.get("SLURM_JOB_NODELIST") else _of_cluster()
    strangers = tuple(
        Node(name, "unreachable", "the scheduler does not have it") for name in asked.hosts if name not in {n.name for n in found}
    )
    return (*(node for node in found if not wanted or node.name in wanted), *strangers)


def run(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """Ask those that can be asked."""
    askable = [node for node in nodes if node.state == "answered"]
    for node in nodes:
        if node.state != "answered":
            deliver(Answer(node.name, node.state, node.reason))
    if os.environ.get("SLURM_JOB_NODELIST") or _other_job(asked):
        _step(askable, verb, asked, deliver)
    else:
        for answer in programs.each(lambda node: _job(node.name, verb, asked), askable, asked.at_once):
            deliver(answer)


def _ask(*argv: str) -> str:
    """What a command of Slurm prints. A scheduler that does not answer is an error, never an empty fleet."""
    ended = programs.run(argv, ASK_S, most=8 << 20)
    if ended.code != 0:
        why = ended.problem or ended.last_words or f"code {ended.code}"
        raise SysperfError(f"`{' '.join(argv[:2])}`: {why}", "ask Slurm's administrator, or name nodes for another engine")
    return ended.output.decode("utf-8", "replace")


def _other_job(asked: Asked) -> str:
    """The job in which a step is made; empty: the one that this runs in, or none."""
    return asked.job if asked.job[:1].isdigit() and asked.job != os.environ.get("SLURM_JOB_ID") else ""


def _of_allocation() -> tuple[Node, ...]:
    return _named(os.environ["SLURM_JOB_NODELIST"])


def _named(folded: str) -> tuple[Node, ...]:
    """The nodes of Slurm's ``n[1-4]``."""
    return tuple(Node(name) for name in _ask("scontrol", "show", "hostnames", folded).split() if is_name(name)) if folded else ()


def _of_cluster() -> tuple[Node, ...]:
    found: dict[str, Node] = {}
    for line in _ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
        name, _, state = line.strip().partition(" ")
        if is_name(name):
            found[name] = _known(name, state)
    return tuple(found.values())


def _known(name: str, text: str) -> Node:
    """A node by what the scheduler says of it: ``idle``, ``mixed``, ``down*``."""
    state = neutral(text, 60)
    word = re.sub(r"[^a-z_].*", "", text.lower())
    if "*" in text or word in _GONE:
        return Node(name, "unreachable", f"the scheduler says {state}")
    known = _STATES.get(word, "busy")
    return Node(name, known, "" if known == "answered" else f"the scheduler says {state}")


def _program(verb: Verb, asked: Asked) -> tuple[str, ...]:
    """How sysperf starts on a node: as here, where nothing else is said, since clusters share their programs."""
    started = asked.command if asked.command != ("sysperf",) else sysperf_command()
    return (*started, *asked.words(verb))


def _step(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """One step beside the job's own, whose tasks say their number before each line: the node is the record's, checked against it."""
    names = [node.name for node in nodes]
    pieces: dict[str, bytes] = {}
    answered: set[str] = set()

    def line(text: bytes) -> None:
        """Take a piece: srun cuts long lines, and labels each piece."""
        match = _LABELLED.fullmatch(text)
        if not match or int(match[1]) >= len(names) or (name := names[int(match[1])]) in answered:
            return
        whole = (pieces.get(name, b"") + match[2])[: MAX_RECORD_BYTES + 1]
        pieces[name] = whole if whole.startswith(b'{"') else b""  # what a shell or a prolog says before it
        if _is_json(pieces[name]):
            answered.add(name)
            deliver(Answer(name, data=pieces.pop(name)))

    if not names:
        return
    options = ("--overlap", "--kill-on-bad-exit=0", "--label", "--input=none", f"--nodes={len(names)}", f"--ntasks={len(names)}")
    where = ("--ntasks-per-node=1", f"--nodelist={','.join(names)}", "--distribution=block")
    within = (f"--jobid={job}",) if (job := _other_job(asked)) else ()
    argv = ("srun", *within, *options, *where, *_program(verb, asked))
    ended = programs.run(argv, asked.node_limit_s, most=len(names) * MAX_OUTPUT_BYTES, line=line)
    said = {match[1]: match[2] for match in map(_FAILED.search, ended.complaint.splitlines()) if match}
    for name in names:
        if pieces.get(name):
            deliver(Answer(name, "refused", "its record is cut off"))
        elif name not in answered:
            state: NodeState = "unreachable" if name in said or not ended.problem else "late"
            deliver(Answer(name, state, neutral(said.get(name, ""), 200) or ended.problem or ended.last_words or "no answer"))


def _is_json(text: bytes) -> bool:
    """Whether all of it is there."""
    if not text.endswith(b"}"):
        return False
    with contextlib.suppress(DecodeError):
        from_json(text, JsonObject)
        return True
    return False


def _job(name: str, verb: Verb, asked: Asked) -> Answer:
    """A job of its own on one idle node, for all to see; where the node is taken meanwhile it is busy."""
    where = (
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={name}",
        f"--immediate={IMMEDIATE_S}",
        f"--time={math.ceil(asked.node_limit_s / 60) + 1}",
        "--job-name=sysperf",
        "--input=none",
    )
    ended = programs.run(("srun", *where, *_program(verb, asked)), asked.node_limit_s)
    took_s = round(ended.took_s, 2)
    if ended.code == 0:
        return Answer(name, data=record_line(ended.output), took_s=took_s)
    if "allocate resources" in ended.complaint.lower() or "immediate" in ended.complaint.lower():
        return Answer(name, "busy", ended.last_words, took_s=took_s)
    return Answer(name, "late" if ended.code is None else "unreachable", ended.problem or ended.last_words, took_s=took_s)

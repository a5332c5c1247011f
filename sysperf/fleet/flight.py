"""PyTorch's Flight Recorder dumps beside each other: which rank did not join the collective that the others wait in.

A dump is a pickle or JSON that each rank writes when a collective takes too long. It is untrusted: no object of a pickle is made, only
numbers, strings, lists and dictionaries.

Format  https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import pickletools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sysperf.model.fleet import Hang
from sysperf.model.record import DecodeError, Json, JsonObject, from_json
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_DUMP_BYTES = 32 << 20
MAX_VALUES = 5_000_000
"""Ten thousand collectives, each with its stack, have fewer. So many take up to half a gigabyte of memory."""
MAX_RANKS = 65_536
TOO_MANY = f"a dump of more than {MAX_VALUES} values"
_RANK = lazy(r".*?([0-9]{1,5})(?:\.[A-Za-z]{1,10})?")
_OURS = "torch/distributed/"


class Unreadable(ValueError):
    """Raised for what is no dump, with the reason."""


class Operation(NamedTuple):
    """One collective that a rank has begun."""

    name: str
    sizes: str
    place: str
    """``train.py:10 in step``; empty where the dump does not say it."""

    @property
    def like(self) -> tuple[str, str]:
        """What has to be equal on all ranks."""
        return self.name, self.sizes


class Group(NamedTuple):
    """What one rank says of one of its process groups."""

    begun: int
    """Number of its last collective; 0: none."""
    completed: int | None
    operations: Mapping[int, Operation]
    """By number, as far as the recorder's buffer reaches."""


class Dump(NamedTuple):
    """What one rank recorded."""

    members: Mapping[str, tuple[int, ...]]
    groups: Mapping[str, Group]


def rank_of(file: str) -> int | None:
    """The rank that a file's name ends with: ``nccl_trace_rank_3``, ``dump-3.json``."""
    match = _RANK.fullmatch(file)
    return int(match[1]) if match and int(match[1]) < MAX_RANKS else None


def parse(data: bytes) -> Dump:
    """The dump of one rank. Raises Unreadable."""
    try:
        raw = _json(data) if data[:1] in b"{ \n" else _unpickled(data)
    except DecodeError as error:
        raise Unreadable(neutral(str(error), 160)) from None
    entries = raw.get("entries") if isinstance(raw, dict) else None
    if not isinstance(entries, list):
        raise Unreadable("no dump of the Flight Recorder: it has no entries")
    config, status = _objects(raw, "pg_config"), _objects(raw, "pg_status")
    names = {_text(group.get("desc")) or name or "default": group for name, group in config.items()}
    members = {name: ranks for name, group in names.items() if (ranks := _ranks(group.get("ranks")))}
    return Dump(members, _groups(entries, status))


def _groups(entries: Sequence[Json], status: Mapping[str, JsonObject]) -> dict[str, Group]:
    """The groups of a rank, by their names."""
    operations: dict[str, dict[int, Operation]] = {}
    done: dict[str, int] = {}
    numbers: dict[str, str] = {}
    for entry in entries:
        number = entry.get("collective_seq_id") if isinstance(entry, dict) else None
        if not isinstance(number, int) or entry.get("is_p2p") is not False or number < 1:
            continue
        name = _group_name(entry)
        operations.setdefault(name, {})[number] = Operation(
            _text(entry.get("profiling_name")), neutral(str(_flat(entry.get("input_sizes"))), 80), _place(entry.get("frames"))
        )
        numbers[name] = _text(entry.get("pg_id"))
        if entry.get("state") == "completed":
            done[name] = max(done.get(name, 0), number)
    found: dict[str, Group] = {}
    for name, begun in operations.items():
        said = status.get(numbers[name], {})
        enqueued = said.get("last_enqueued_collective")
        completed = [value for value in (said.get("last_completed_collective"), done.get(name)) if isinstance(value, int) and value >= 0]
        found[name] = Group(max(enqueued if isinstance(enqueued, int) else 0, *begun), max(completed, default=None), begun)
    return found


def _group_name(entry: Mapping[str, Json]) -> str:
    """What people call a process group; ranks of different groups of one kind may share it, and number them alike."""
    group = entry.get("process_group")
    words = [_text(word) for word in group[:2]] if isinstance(group, (list, tuple)) else []
    return next((word for word in reversed(words) if word and word != "undefined"), "default")


def _objects(raw: JsonObject, key: str) -> dict[str, JsonObject]:
    value = raw.get(key)
    return {_text(name): one for name, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _ranks(value: Json) -> tuple[int, ...]:
    """``"[0, 1, 2, 3]"``, or a list."""
    if isinstance(value, str):
        try:
            value = from_json(value, list[int])
        except DecodeError:
            return ()
    ranks = value if isinstance(value, list) else []
    return tuple(sorted({rank for rank in ranks[:MAX_RANKS] if isinstance(rank, int) and 0 <= rank < MAX_RANKS}))


def _flat(value: Json) -> list[list[int]]:
    """Sizes of tensors."""
    rows = value if isinstance(value, (list, tuple)) else []
    return [[size for size in row[:16] if isinstance(size, int)] for row in rows[:16] if isinstance(row, (list, tuple))]


def _place(frames: Json) -> str:
    """The innermost line that is not PyTorch's own."""
    for frame in frames[:64] if isinstance(frames, (list, tuple)) else ():
        if isinstance(frame, dict) and _OURS not in (file := _text(frame.get("filename"), 400)) and file:
            return f"{file.rpartition('/')[2]}:{_text(frame.get('line'))} in {_text(frame.get('name'))}"
    return ""


def _text(value: Json, limit: int = 80) -> str:
    return neutral(str(value), limit) if isinstance(value, (str, int)) else ""


def hangs(dumps: Mapping[int, Dump]) -> tuple[Hang, ...]:
    """The collectives in which ranks wait, by group; causes before what follows from them."""
    members: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        for name in dump.groups:
            members.setdefault(name, set()).update((rank, *dump.members.get(name, ())))
    found = [hang for name, ranks in sorted(members.items()) if (hang := _hang(name, sorted(ranks), dumps))]
    waiting = {rank for hang in found for rank in hang.waiting}
    return tuple(sorted(found, key=lambda hang: (bool(waiting.intersection(hang.absent)), not hang.absent, -len(hang.waiting))))


def _hang(name: str, members: Sequence[int], dumps: Mapping[int, Dump]) -> Hang | None:
    """The first collective of a group that not all have completed; None: nobody waits."""
    groups = {rank: dumps[rank].groups.get(name, Group(0, None, {})) for rank in members if rank in dumps}
    last = max(group.begun for group in groups.values())
    completed = [group.completed for group in groups.values() if group.completed is not None]
    stuck = min(completed) + 1 if completed else last
    waiting = tuple(rank for rank, group in groups.items() if group.begun >= stuck and (group.completed or 0) < stuck)
    absent = tuple(rank for rank, group in groups.items() if group.begun < stuck)
    if not waiting or stuck > last:
        return None
    begun = {rank: groups[rank].operations[stuck] for rank in waiting if stuck in groups[rank].operations}
    usual = Counter(each.like for each in begun.values()).most_common(1)
    example = next((each for each in begun.values() if each.like == usual[0][0]), None) if usual else None
    return Hang(
        group=name,
        number=stuck,
        collective=example.name if example else "",
        place=example.place if example else "",
        waiting=waiting,
        absent=absent,
        other=tuple(rank for rank, each in begun.items() if each.like != usual[0][0]),
        silent=tuple(rank for rank in members if rank not in dumps),
        last=tuple(_last(rank, groups[rank]) for rank in absent[:8]),
    )


def _last(rank: int, group: Group) -> str:
    """What a rank did last that was recorded."""
    operation = group.operations.get(group.begun)
    if operation is None:
        return f"rank {rank} began {f'number {group.begun}' if group.begun else 'none'}"
    return f"rank {rank} began {operation.name} number {group.begun}{f' at {operation.place}' if operation.place else ''}"


def _json(data: bytes) -> Json:
    """The values of a text. Raises Unreadable, also where they would take far more memory than the text."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Unreadable(TOO_MANY)
    return from_json(data, JsonObject)


_MARK = object()


def _unpickled(data: bytes) -> Json:
    """The plain values of a pickle. Raises Unreadable for whatever makes an object, or is cut off."""
    stack: list[Json] = []
    memo: dict[int, Json] = {}
    try:
        for count, (operation, value, _) in enumerate(pickletools.genops(data)):
            if count > MAX_VALUES:
                raise Unreadable(TOO_MANY)
            _step(operation.name, value, stack, memo)
            if operation.name == "STOP":
                return stack.pop()
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Unreadable(f"no dump of the Flight Recorder: {neutral(str(error), 120)}") from None
    raise Unreadable("a pickle that is cut off")


_SCALARS = frozenset(
    (
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "INT",
        "LONG",
        "FLOAT",
        "UNICODE",
    )
)
_CONSTANTS: dict[str, Json] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SHORT_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _step(name: str, value: Json, stack: list[Json], memo: dict[int, Json]) -> None:  # noqa: C901, PLR0912 - one branch an operation
    """One operation of a pickle."""
    if name in _SCALARS:
        stack.append(value)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[value] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[value])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("EMPTY_LIST", "EMPTY_DICT"):
        stack.append([] if name == "EMPTY_LIST" else {})
    elif name in _SHORT_TUPLES:
        stack.append([*reversed([stack.pop() for _ in range(_SHORT_TUPLES[name])])])
    elif name in ("TUPLE", "LIST"):
        stack.append([*_since_mark(stack)])
    elif name in ("APPEND", "APPENDS"):
        added = [stack.pop()] if name == "APPEND" else [*_since_mark(stack)]
        stack[-1].extend(added)
    elif name in ("SETITEM", "SETITEMS", "DICT"):
        added = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else [*_since_mark(stack)]
        if name == "DICT":
            stack.append({})
        for key, one in zip(added[::2], added[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise Unreadable("a pickle with a key that is neither text nor a number")
            stack[-1][key] = one
    elif name not in ("PROTO", "FRAME", "STOP"):
        raise Unreadable("a pickle that makes objects, which no dump of the Flight Recorder does")


def _since_mark(stack: list[Json]) -> Iterator[Json]:
    """Take what was put there since the last mark."""
    taken = []
    while (each := stack.pop()) is not _MARK:
        taken.append(each)
    return reversed(taken)

"""Flight Recorder dumps: real ones in shape, generated ones, and what is none."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.fleet import flight
from tests.fuzzing import fuzz
from tests.invoking import sysperf

FRAMES = [
    {"name": "all_reduce", "filename": "/env/torch/distributed/distributed_c10d.py", "line": 3245},
    {"name": "step", "filename": "/home/me/train.py", "line": 10},
]


def entry(number: int, group: Sequence[str] = ("0", "default_pg"), **fields: Any) -> dict[str, Any]:
    """One collective as PyTorch 2.13 records it."""
    return {
        "collective_seq_id": number, "p2p_seq_id": 0, "pg_id": int(group[0]), "process_group": tuple(group), "frames": FRAMES,
        "profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "state": "scheduled", "is_p2p": False, **fields,
    }  # fmt: skip


def dump(begun: int, completed: int, ranks: int = 4, entries: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """What a rank records of one group."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}},
        "pg_status": {"0": {"last_enqueued_collective": begun, "last_started_collective": -1, "last_completed_collective": completed}},
        "entries": [entry(number) for number in range(1, begun + 1)] if entries is None else list(entries),
    }


def hangs(*dumps: dict[str, Any] | None) -> tuple[Any, ...]:
    return flight.hangs({rank: flight.parse(pickle.dumps(each, 2)) for rank, each in enumerate(dumps) if each is not None})


def test_the_rank_that_did_not_join_is_named() -> None:
    """With what the others wait in, and what it did last."""
    (hang,) = hangs(dump(4, 3), dump(4, 3), dump(3, 3), dump(4, 3))

    assert (hang.number, hang.waiting, hang.absent, hang.silent) == (4, (0, 1, 3), (2,), ())
    assert (hang.collective, hang.place) == ("nccl:all_reduce", "train.py:10 in step")
    assert hang.last == ("rank 2 began nccl:all_reduce number 3 at train.py:10 in step",)


def test_ranks_may_run_ahead() -> None:
    """Collectives are begun before those before them are over: the first that is not completed counts."""
    (hang,) = hangs(dump(9, 3), dump(7, 3), dump(3, 3), dump(9, 3))

    assert (hang.number, hang.absent) == (4, (2,))


def test_a_rank_without_a_dump_is_told() -> None:
    """It may be the one that died."""
    (hang,) = hangs(dump(4, 3), dump(4, 3), None, dump(4, 3))

    assert (hang.absent, hang.silent) == ((), (2,))


def test_another_collective_under_the_same_number() -> None:
    """Nobody is late, and they will never end."""
    odd = dump(4, 3, entries=[entry(4, profiling_name="nccl:broadcast")])
    (hang,) = hangs(dump(4, 3), odd, dump(4, 3), dump(4, 3))

    assert (hang.absent, hang.other, hang.collective) == ((), (1,), "nccl:all_reduce")


def test_the_cause_stands_before_what_follows_from_it() -> None:
    """Rank 1 is absent from the first group because it waits in the second, which rank 2 did not join."""

    def two(first: int, second: int, *, has: bool = True) -> dict[str, Any]:
        both = dump(first, 1, 4)
        both["pg_config"]["1"] = {"name": "1", "desc": "tp", "ranks": "[1, 2]"}
        both["pg_status"]["1"] = {"last_enqueued_collective": second, "last_completed_collective": 1}
        both["entries"] += [entry(number, ("1", "tp")) for number in range(1, second + 1)] if has else []
        return both

    found = hangs(two(2, 0, has=False), two(1, 2), two(1, 1), two(2, 0, has=False))

    assert [(hang.group, hang.absent) for hang in found] == [("tp", (2,)), ("default_pg", (1, 2))]


def test_who_completed_everything_does_not_wait() -> None:
    assert hangs(dump(4, 4), dump(4, 4), dump(4, 4), dump(4, 4)) == ()


def test_without_a_status_the_last_begun_counts() -> None:
    """Older recorders do not say what was completed."""
    plain = [{**dump(number, 0), "pg_status": {}} for number in (4, 4, 3, 4)]

    assert [hang.absent for hang in hangs(*plain)] == [(2,)]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("dump-12.json", 12),
        ("trace0", 0),
        ("n7_rank_2.pkl", 2),
        ("README", None),
        ("rank_99999", None),
        ("1.2.3", 3),
    ],
)
def test_ranks_by_file_name(name: str, rank: int | None) -> None:
    """Names vary by version and by what the user set; the last number is the rank."""
    assert flight.rank_of(name) == rank


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def listed(value: Any) -> Any:
    """The same with lists for tuples."""
    if isinstance(value, dict):
        return {key: listed(each) for key, each in value.items()}
    return [listed(each) for each in value] if isinstance(value, (list, tuple)) else value


@given(VALUES, st.integers(2, 5))
def test_plain_pickles_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    """In all protocols, with what occurs twice."""
    value = [value, value]
    assert flight._unpickled(pickle.dumps(value, protocol)) == listed(value)


@fuzz
@given(
    st.binary(max_size=200)
    | st.builds(lambda head, tail: pickle.dumps(dump(2, 1))[:head] + tail, st.integers(0, 900), st.binary(max_size=20))
)
def test_any_bytes_are_a_dump_or_unreadable(data: bytes) -> None:
    """And nothing else comes of them."""
    with contextlib.suppress(flight.Unreadable):
        flight.hangs({0: flight.parse(data)})


ODD = st.none() | st.integers(-2, 5) | st.text(max_size=4) | st.lists(st.integers(0, 3), max_size=3)


@fuzz
@given(st.lists(st.dictionaries(st.sampled_from(sorted(entry(1))), ODD, max_size=9), max_size=4), st.dictionaries(st.text(max_size=2), ODD))
def test_any_entries_are_survived(entries: list[dict[str, Any]], config: dict[str, Any]) -> None:
    """Fields of another type, and none."""
    odd = [{**entry(number), **fields} for number, fields in enumerate(entries, 1)]
    said = {**dump(2, 1, entries=odd), "pg_config": config}
    flight.hangs({0: flight.parse(json.dumps(said).encode()), 1: flight.parse(pickle.dumps(dump(3, 1)))})


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch /tmp/sysperf-was-here",)


def test_no_object_is_made() -> None:
    """A pickle can call anything; this one may not."""
    for evil in (Evil(), [Evil()], {"entries": [Evil()]}):
        with pytest.raises(flight.Unreadable):
            flight.parse(pickle.dumps(evil))
    assert not os.path.lexists("/tmp/sysperf-was-here")


def test_a_deep_pickle_is_no_end() -> None:
    """A million lists in each other, as a value and as a key."""
    for deep in (b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", b"\x80\x02}" + b")" * 10 + b"\x85" * 100_000 + b"Ns."):
        with pytest.raises(flight.Unreadable):
            flight.parse(deep)


@pytest.mark.slow
@pytest.mark.parametrize("raw", [b"]" * (16 << 20), b'{"entries":[' + b"[]," * (5 << 20) + b"[]]}"], ids=["pickle", "json"])
def test_a_dump_takes_no_more_memory_than_a_dump_can(raw: bytes) -> None:
    """Sixteen megabytes of empty lists took a gigabyte."""
    with pytest.raises(flight.Unreadable, match="more than"):
        flight.parse(raw)


def test_the_command_reads_a_folder(tmp_path: Path) -> None:
    """What is no dump is named, and what rank it is of twice."""
    for rank, begun in enumerate((4, 4, 3, 4)):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump(begun, 3), 2))
    (tmp_path / "notes\x1b[2J").write_text("no dump")
    done = sysperf("fleet", "job", "4242", "--dumps", str(tmp_path))

    assert done.returncode == 1, done.stderr
    assert "rank 2 did not join nccl:all_reduce number 4 of group default_pg, in which ranks [0-1,3] wait" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout
    (tmp_path / "other_2").write_bytes(b"")
    twice = json.loads(sysperf("fleet", "job", "4242", "--dumps", str(tmp_path), "--json").stdout)
    assert twice["hangs"][0]["silent"] == [2]
    assert sum("2 files are of rank 2" in problem for problem in twice["problems"]) == 2


def test_an_empty_folder_is_not_fine(tmp_path: Path) -> None:
    """Nothing is known; a folder that is not there is an error."""
    assert sysperf("fleet", "job", "4242", "--dumps", str(tmp_path)).returncode == 3
    missing = sysperf("fleet", "job", "4242", "--dumps", str(tmp_path / "none"))
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)

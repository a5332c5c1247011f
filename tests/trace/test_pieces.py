"""Two CPUs read a large file: what the other one does must not change what is read."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf.trace import pieces, read, scan
from sysperf.trace.timeline import Timeline

from .synthetic import Machine, steps

HALF = 200_000


@pytest.fixture(scope="module")
def text() -> bytes:
    """A trace of some 10 MB in which devices' events follow the host's, as Kineto writes them."""

    def step(machine: Machine) -> None:
        for _ in range(1_000):
            machine.think(10)
            machine.kernel(7)

    trace = steps(Machine(), 16, step).trace()
    return json.dumps(trace).encode()


def columns(timeline: Timeline) -> tuple[object, ...]:
    rows = timeline.operations, timeline.calls, timeline.ranges
    return *(sorted(zip(row.start, row.end, row.name, strict=True)) for row in rows), timeline.damage.truncated, timeline.cut


def index_of(path: Path, offset: int) -> list[tuple[int, int, int]]:
    done = subprocess.run([sys.executable, "-I", "-S", scan.__file__, str(path), str(offset)], capture_output=True, check=True)
    return list(scan.ENTRY.iter_unpack(done.stdout))


def test_the_index_has_every_event_once_and_its_earliest_time(tmp_path: Path, text: bytes) -> None:
    """Its parts follow each other without a hole, each is a list of whole events, and none is earlier than the index says."""
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    index = index_of(path, HALF)

    assert index[0][0] >= HALF
    assert all(before[1] == after[0] for before, after in itertools.pairwise(index))
    for start, end, earliest in index:
        events = json.loads(b"[" + text[start:end].rstrip(b" \t\r\n,") + b"]")
        if earliest == scan.EARLY:
            assert any(word in text[start:end] for word in scan.KEPT)
        else:
            assert earliest == int(min(event["ts"] for event in events))


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize("rows", [4_000, 1_000_000])
def test_a_second_process_changes_nothing_that_is_read(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, cpus: int, rows: int
) -> None:
    """Plain, packed, with a helper and without: the same rows, also where only a part of them is kept."""
    path, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    path.write_bytes(text)
    packed.write_bytes(gzip.compress(text, 1))
    monkeypatch.setattr("sysperf.trace.part.WHOLE_ROWS", rows)
    alone = read(str(path))
    monkeypatch.setattr(pieces, "SCANNED_BYTES", 1)
    monkeypatch.setattr(pieces, "AHEAD_BYTES", 1)
    monkeypatch.setattr(pieces, "_cpus", lambda: cpus)

    assert columns(read(str(path))) == columns(alone)
    assert columns(read(str(packed))) == columns(alone)
    assert (alone.cut is None) == (rows == 1_000_000)


def test_the_helper_reads_the_file_that_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may lead elsewhere by now: what is skipped is told by the text itself."""
    event = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":%d,"dur":1},\n'
    path, text = tmp_path / "trace.json", b'{"traceEvents":[\n' + b"".join(event % at for at in range(10_000, 70_000))
    path.write_bytes(text)
    monkeypatch.setattr(pieces, "SCANNED_BYTES", 1)
    monkeypatch.setattr(pieces, "_cpus", lambda: 2)
    starts: list[int] = []

    def wanted(start: int) -> bool:
        starts.append(start)
        return False

    with path.open("rb") as file:
        path.rename(tmp_path / "moved.json")
        path.write_bytes(text.replace(b'"ts":', b'"ts":9'))
        whole = b"".join(pieces.Text(file, lambda _: None).pieces(wanted))

    assert whole == text
    assert starts
    assert max(starts) < 70_000


@pytest.mark.parametrize("part", [0.3, 0.6, 0.999])
def test_a_file_cut_anywhere_is_read_as_far_as_it_goes_by_two(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """The helper sees the cut too, and the last whole event is in."""
    path = tmp_path / "cut.json"
    path.write_bytes(text[: int(len(text) * part)])
    alone = read(str(path))
    monkeypatch.setattr(pieces, "SCANNED_BYTES", 1)
    monkeypatch.setattr(pieces, "_cpus", lambda: 2)

    assert columns(read(str(path))) == columns(alone)
    assert alone.damage.truncated


def test_a_helper_that_cannot_start_is_not_missed(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    alone = read(str(path))
    monkeypatch.setattr(pieces, "SCANNED_BYTES", 1)
    monkeypatch.setattr(pieces, "_cpus", lambda: 2)
    for program in ("/nonexistent/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", program)
        assert columns(read(str(path))) == columns(alone)


def test_a_damaged_compressed_file_gives_what_came_before(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a thread unpacks it."""
    packed = gzip.compress(text, 1)
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * 100 + packed[len(packed) // 2 + 100 :])
    alone = read(str(path))
    monkeypatch.setattr(pieces, "AHEAD_BYTES", 1)

    assert columns(read(str(path))) == columns(alone)
    assert "compression" in alone.damage.truncated

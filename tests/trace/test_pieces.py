"""Two CPUs read a large file: what the other one does must not change what is read."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.trace import account, read
from sysperf.trace.accounting import window
from sysperf.trace.reading import part as part_of_file
from sysperf.trace.reading import pieces, scan
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


def index_of(path: Path, offset: int, limit: int, latest: int) -> list[tuple[int, int, bool]]:
    numbers = map(str, (offset, limit, latest))
    done = subprocess.run([sys.executable, "-I", "-S", scan.__file__, str(path), *numbers], capture_output=True, check=True)
    return list(scan.ENTRY.iter_unpack(done.stdout))


def test_the_index_has_every_event_once_and_skips_only_what_is_later(tmp_path: Path, text: bytes) -> None:
    """Its parts follow each other without a hole, each is a list of whole events, and nothing that is wanted is called later."""
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    times = sorted(event["ts"] for event in json.loads(text)["traceEvents"])
    limit = int(times[len(times) // 2])
    index = index_of(path, HALF, limit, int(times[-1]))

    assert index[0][0] >= HALF
    assert all(before[1] == after[0] for before, after in itertools.pairwise(index))
    assert any(is_later for _, _, is_later in index)
    for start, end, is_later in index:
        events = json.loads(b"[" + text[start:end].rstrip(b" \t\r\n,") + b"]")
        assert not is_later or not any(word in text[start:end] for word in scan.KEPT)
        assert not is_later or min(event["ts"] for event in events) > limit


@given(
    limit=st.integers(0, 1 << 60),
    distance=st.integers(-(1 << 60), 1 << 60) | st.integers(-99, 99),
    latest=st.integers(0, 1 << 61),
    form=st.sampled_from(
        ['"ts": %d,', '"ts":%d}', '"ts" : %d,', '"ts": %d.125,', '"ts": -%d,', '"ts": "%d"', '"ts":\n%d,', '"ts": %de-9,', '"ts": %d']
    ),
)
def test_only_a_time_that_is_surely_later_is_called_later(limit: int, distance: int, latest: int, form: str) -> None:
    """However it is written, and whatever is expected: what is in doubt is decoded."""
    time = max(0, limit + distance)
    not_later = scan.not_later_than(limit, latest)
    is_later = not_later.search((form % time).encode()) is None

    assert not is_later or (time > limit and form in ('"ts": %d,', '"ts":%d}', '"ts": %d.125,'))


@pytest.mark.parametrize("latest", [0, 1_700_000_060_000_000, 1_800_000_000_000_000, 1])
@pytest.mark.parametrize(("limit", "time"), [(1_700_000_000_000_000, 1_700_000_000_020_000), (5, 1_000), (99_999, 100_000)])
def test_what_is_later_by_some_milliseconds_is_skipped(limit: int, time: int, latest: int) -> None:
    """Also where the latest time is another one than expected."""
    assert scan.not_later_than(limit, latest).search(b'{"ts": %d, "dur": 1}' % time) is None


@pytest.mark.parametrize("rows", [4_000, 1_000_000])
def test_a_packed_file_is_read_as_a_plain_one(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Also where a thread unpacks it, and only a part of it is kept."""
    path, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    path.write_bytes(text)
    packed.write_bytes(gzip.compress(text, 1))
    monkeypatch.setattr("sysperf.trace.reading.part.WHOLE_ROWS", rows)
    alone = read(str(path))
    monkeypatch.setattr(pieces, "AHEAD_BYTES", 1)

    assert columns(read(str(packed))) == columns(alone)
    assert (alone.cut is None) == (rows == 1_000_000)


@pytest.mark.parametrize("cpus", [1, 2])
def test_of_a_large_file_what_starts_before_the_sampled_cut_is_read(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, cpus: int
) -> None:
    """With a helper and without: no row before the cut is missing, none behind it is there, and all marked steps are."""
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    whole = read(str(path))
    sample(monkeypatch, cpus)
    part = read(str(path))

    assert whole.cut is None
    assert part.cut is not None
    for every, kept in ((whole.operations, part.operations), (whole.calls, part.calls), (whole.ranges, part.ranges)):
        wanted = [
            (start, end, whole.names.texts[name])
            for start, end, name in zip(every.start, every.end, every.name, strict=True)
            if start <= part.cut or whole.names.texts[name].startswith("ProfilerStep")
        ]
        assert sorted(wanted) == sorted(zip(kept.start, kept.end, [part.names.texts[name] for name in kept.name], strict=True))
    assert len(part.operations) < len(whole.operations) / 2


def test_a_sample_that_holds_too_few_steps_is_read_again(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the steps' times are known: the part ends behind enough of them."""
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    sample(monkeypatch, 2, rows=1_500)
    timeline = read(str(path))

    assert timeline.cut is not None
    assert sum(end <= timeline.cut for _, end in window.steps(timeline)) >= part_of_file.MIN_STEPS
    assert account(timeline).steps.count >= part_of_file.MIN_STEPS - 1


def sample(monkeypatch: pytest.MonkeyPatch, cpus: int, rows: int = 15_000) -> None:
    """Treat a small file as a large one."""
    monkeypatch.setattr(part_of_file, "WHOLE_BYTES", 1)
    monkeypatch.setattr(part_of_file, "SAMPLED_ROWS", rows)
    monkeypatch.setattr(pieces, "_cpus", lambda: cpus)


def test_the_helper_reads_the_file_that_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may lead elsewhere by now: what is skipped is told by the text itself."""
    event = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":%d,"dur":1},\n'
    path, text = tmp_path / "trace.json", b'{"traceEvents":[\n' + b"".join(event % at for at in range(10_000, 70_000))
    path.write_bytes(text)
    monkeypatch.setattr(pieces, "_cpus", lambda: 2)

    with path.open("rb") as file:
        path.rename(tmp_path / "moved.json")
        path.write_bytes(text.replace(b'"ts":', b'"ts":9'))
        whole = b"".join(pieces.Text(file, lambda _: None).pieces(part_of_file.Cut(70_000_000)))

    assert whole == text


@pytest.mark.parametrize("part", [0.3, 0.6, 0.999])
def test_a_file_cut_anywhere_is_read_as_far_as_it_goes_by_two(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """The helper sees the cut too, and the last whole event is in."""
    path = tmp_path / "cut.json"
    path.write_bytes(text[: int(len(text) * part)])
    sample(monkeypatch, 1, rows=3_000)
    alone = read(str(path))
    sample(monkeypatch, 2, rows=3_000)

    assert columns(read(str(path))) == columns(alone)
    assert alone.damage.truncated


def test_a_helper_that_cannot_start_is_not_missed(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    sample(monkeypatch, 1)
    alone = read(str(path))
    sample(monkeypatch, 2)
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


def test_where_every_event_is_kept_all_is_decoded() -> None:
    """Looking for the place of each of a million names of threads would take an hour."""
    late = b'{"ph":"X","name":"aten::add","ts":99999999999.0,"dur":1},\n'
    name = b'{"ph":"M","name":"thread_name","ts":99999999999.0,"args":{"name":"x"}},\n'
    few, many = late * 50 + name + late * 50, (late + name) * 100
    not_later = scan.not_later_than(1_000_000)

    assert [is_later for _, _, is_later in scan.parts(few, len(few), not_later)] == [True, False, True]
    assert list(scan.parts(many, len(many), not_later)) == [(0, len(many), False)]

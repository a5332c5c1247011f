"""The agent's memory on real files: what it keeps, what it lets go, and what no damage or full disk does to it."""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.agent import database, history, samples
from sysperf.agent.store import Event, Point, Store

START = 1_800_000_000.0  # a full minute
DICE = random.Random(1)


def fill(store: Store, seconds: int, start: float = START, name: str = "cpu.busy", flush: int = 10) -> None:
    """One sample a second, whose value is the second."""
    for second in range(seconds):
        store.append(start + second, {name: float(second)})
        if second % flush == flush - 1:
            store.flush()
    store.flush()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "history.db")


def test_samples_come_back_one_by_one(path: str) -> None:
    """Within a short span, every sample is a point, with its own time and value."""
    store = Store.open(path)
    fill(store, 100)

    points = store.history("cpu.busy", START, START + 99)

    assert [point.mean for point in points] == [float(second) for second in range(100)]
    assert points[7] == Point(START + 7, 7.0, 7.0, 7.0)
    assert store.problem == ""


def test_samples_that_wait_are_history_too() -> None:
    """What was appended is there before the next flush."""
    store = Store.open(None)
    store.append(START, {"cpu.busy": 0.5})

    assert store.series() == ("cpu.busy",)
    assert store.history("cpu.busy", START - 1, START + 1) == (Point(START, 0.5, 0.5, 0.5),)


def test_points_are_means_with_lows_and_highs(path: str) -> None:
    """600 samples on 10 points: each tells the mean of 60, the lowest and the highest."""
    store = Store.open(path)
    fill(store, 600)

    points = store.history("cpu.busy", START, START + 600, 10)

    assert [(point.mean, point.low, point.high) for point in points] == [
        (60 * minute + 29.5, 60 * minute, 60 * minute + 59) for minute in range(10)
    ]


def test_minutes_remain_when_seconds_are_gone(path: str) -> None:
    """The roll-ups say what the samples said: no sample is lost or counted twice, whichever width is asked for."""
    store = Store.open(path)
    store._archive.keep = history.Keep(raw_system=14)
    fill(store, 1_200)
    store.prune()

    coarse = store.history("cpu.busy", START, START + 1_200, 10)
    fine = store.history("cpu.busy", START, START + 1_200, 1_200)

    assert [point.mean for point in coarse] == [120 * number + 59.5 for number in range(10)]
    assert len(fine) == 18 + 120
    assert (fine[0].mean, fine[0].low, fine[0].high) == (29.5, 0, 59)
    assert [point.mean for point in fine[-120:]] == list(range(1_080, 1_200))


def test_history_is_there_after_a_restart(path: str) -> None:
    """The unfinished minute too."""
    store = Store.open(path)
    fill(store, 95)
    store.close()

    again = Store.open(path)

    assert len(again.history("cpu.busy", START, START + 95)) == 95
    assert again.series() == ("cpu.busy",)
    assert [round(point.mean, 1) for point in again.history("cpu.busy", START, START + 120, 2)] == [29.5, 77.0]


def test_the_unfinished_minute_is_kept_at_the_end(path: str) -> None:
    """Its mean remains when its samples are gone."""
    store = Store.open(path)
    fill(store, 30)
    store.close()
    store = Store.open(path)
    store._archive.keep = history.Keep(raw_system=0)
    store.prune()

    assert store.history("cpu.busy", START, START + 60) == (Point(START + 30, 14.5, 0, 29),)


def test_killed_in_mid_flight_loses_no_more_than_the_last_flush(path: str) -> None:
    """A process that dies at once leaves a sound file with all that was flushed."""
    code = (
        "import os, sys; from sysperf.agent.store import Store; store = Store.open(sys.argv[1])\n"
        f"for second in range(95):\n  store.append({START} + second, {{'cpu.busy': 1.0}})\n  second % 10 == 9 and store.flush()\nos._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False, timeout=300)

    store = Store.open(path)

    assert store.problem == ""
    assert len(store.history("cpu.busy", START, START + 95)) == 90


def test_what_is_no_number_is_no_sample() -> None:
    """NaN and infinities are gaps, as is a time that is none."""
    store = Store.open(None)
    store.append(START, {"a": math.nan, "b": math.inf, "c": 1e300, "d": 1.0, "e" * 201: 1.0, "f\ud800": 1.0})
    store.append(math.nan, {"d": 2.0})
    store.flush()

    assert store.series() == ("d",)
    assert [point.mean for point in store.history("d", START - 1, START + 1)] == [1.0]


def test_series_that_come_and_go_keep_their_times(path: str) -> None:
    """A series that is missing in some samples has no points there."""
    store = Store.open(path)
    for second in range(60):
        store.append(START + second, {"always": 1.0, **({"slow": float(second)} if second % 10 == 3 else {})})
    store.flush()

    assert [point.at - START for point in store.history("slow", START, START + 60)] == [3, 13, 23, 33, 43, 53]
    assert len(store.history("always", START, START + 60)) == 60


@given(
    st.lists(st.tuples(st.integers(0, 600), st.dictionaries(st.sampled_from("abc"), st.floats(-1e6, 1e6, width=32))), max_size=60),
    st.integers(1, 20),
)
@settings(max_examples=25)
def test_any_samples_in_any_order_are_all_there(samples: list[tuple[int, dict[str, float]]], every: int) -> None:
    """Whatever the clock does between samples, each is found at its time, and points hold the lowest and highest."""
    store = Store.open(None)
    for place, (second, values) in enumerate(samples):
        store.append(START + second, values)
        if place % every == 0:
            store.flush()

    for name in "abc":
        given_values = [values[name] for _, values in samples if name in values]
        points = store.history(name, START - 1, START + 601, 602)
        assert min((point.low for point in points), default=None) == min(given_values, default=None)
        assert max((point.high for point in points), default=None) == max(given_values, default=None)
        assert [point.at for point in points] == sorted(point.at for point in points)
    assert store.problem == ""


@pytest.mark.parametrize("jump_s", [-86_400 * 400, -3_600, -5, 5, 3_600, 86_400 * 4_000])
def test_a_clock_that_jumps_loses_nothing(path: str, jump_s: float) -> None:
    """Samples before and after the jump are both there, over pruning and a restart; the newest go last."""
    store = Store.open(path)
    fill(store, 300)
    fill(store, 300, START + 299 + jump_s, "cpu.busy")
    store.prune()
    store.close()
    store = Store.open(path)
    store.prune()

    before = store.history("cpu.busy", START, START + 290, 290)
    after = store.history("cpu.busy", START + 299 + jump_s, START + 599 + jump_s, 300)

    assert len(before) > 250
    assert len(after) > 250
    assert after[-1].high == 299


def test_only_the_oldest_rows_make_room(path: str) -> None:
    """After a jump into the future and back, what was written last is kept, not what has the latest time."""
    store = Store.open(path)
    store._archive.keep = history.Keep(20, 20, 9, 9)
    fill(store, 600, START + 86_400 * 365, flush=10)
    fill(store, 600, START, flush=10)
    store.prune()

    assert len(store.history("cpu.busy", START + 400, START + 600, 200)) >= 180
    assert store.history("cpu.busy", START + 86_400 * 365, START + 86_400 * 365 + 300, 300) == ()


def test_dead_processes_are_forgotten(path: str) -> None:
    """30,000 short processes leave a bounded number of names and a small file; the machine's own series stay whole."""
    store = Store.open(path)
    for second in range(3_000):
        pids = range(second * 10, second * 10 + 10)
        store.append(START + second, {"cpu.busy": 0.5, **{f"process.{pid}.cpu": 1.0 for pid in pids}})
        if second % 10 == 9:
            store.flush()
    store.prune()

    assert len(store.series()) <= history.MAX_SERIES
    assert os.path.getsize(path) < 4 << 20
    assert len(store.history("cpu.busy", START, START + 3_000, 3_000)) == 3_000
    assert store.history("process.29999.cpu", START, START + 3_000)
    assert store.history("process.7.cpu", START, START + 3_000) == ()
    assert store.problem == ""


def test_a_sample_of_too_many_series_is_cut() -> None:
    """Processes go first."""
    store = Store.open(None)
    store.append(START, {**{f"process.{pid}.cpu": 1.0 for pid in range(5_000)}, "cpu.busy": 1.0})
    store.flush()

    assert len(store.series()) == samples.MAX_IN_SAMPLE
    assert "cpu.busy" in store.series()


def test_the_file_stays_within_its_size(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, the oldest rows go, and free pages are given back."""
    monkeypatch.setattr("sysperf.agent.store.MAX_BYTES", 200_000)
    store = Store.open(path)
    for second in range(1_500):
        store.append(START + second, {f"series.{number}": DICE.random() for number in range(40)})
        if second % 10 == 9:
            store.flush()
    store.prune()

    assert store.size_bytes() <= 200_000
    assert store.history("series.1", START + 1_400, START + 1_500)


def test_a_day_of_forty_series_is_small(path: str) -> None:
    """An hour takes no more than a twentieth of what 24 h may take: 40 MB."""
    store = Store.open(path)
    for second in range(3_600):
        store.append(START + second, {f"series.{number}": DICE.random() * 1e9 for number in range(40)})
        if second % 10 == 9:
            store.flush()
    store.close()

    assert os.path.getsize(path) < 2_000_000


def test_events_are_numbered_and_kept(path: str) -> None:
    """Who knows the number of the last event gets those after it, over restarts."""
    store = Store.open(path)
    first = store.event(START, "finding", "GPU 0", "came", {"rule": "gpu.link-narrow"})
    second = store.event(START + 1, "gone", "GPU 0", "went\x1b[2J\ud800", {"odd": [1, 2]})
    store.close()
    store = Store.open(path)
    third = store.event(START + 2, "agent", "", "started")

    assert first < second < third
    assert store.events(first)[0] == Event(second, START + 1, "gone", "GPU 0", "went\\x1b[2J\\ud800", {"odd": [1, 2]})
    assert [event.id for event in store.events(0, limit=2)] == [first, second]
    assert store.events(third) == store.events(1 << 80) == ()
    assert store.last_event() == third


def test_events_are_bounded(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay."""
    monkeypatch.setattr("sysperf.agent.store.MAX_EVENTS", 10)
    store = Store.open(path)
    for number in range(50):
        store.event(START, "finding", "", str(number))
    store.prune()

    assert [event.text for event in store.events()] == [str(number) for number in range(40, 50)]


def test_what_cannot_be_encoded_is_left_out(path: str) -> None:
    """An event without its data is still an event."""
    store = Store.open(path)
    store.event(START, "finding", "", "text", object())
    store.event(START, "finding", "", "text", "x" * 100_000)

    assert [event.data for event in store.events()] == [None, None]
    assert store.problem == ""


def test_the_first_time_of_a_finding_outlives_restarts(path: str) -> None:
    """First is the earliest, last the latest."""
    store = Store.open(path)
    assert store.first_seen("abc") is None
    store.remember("abc", START)
    store.flush()
    store.close()
    store = Store.open(path)
    store.remember("abc", START + 100)

    assert (store.first_seen("abc"), store.last_seen("abc")) == (START, START + 100)


def test_findings_remembered_are_bounded(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprints of processes that are gone do not grow for ever; those seen last stay."""
    monkeypatch.setattr("sysperf.agent.store.MAX_SEEN", 100)
    store = Store.open(path)
    for number in range(300):
        store.remember("kept", START + number)
        store.remember(f"print-{number}", START + number)
    store.flush()
    store.prune()
    store.close()
    store = Store.open(path)

    assert store.first_seen("kept") == START
    assert store.first_seen("print-299") == START + 299
    assert store.first_seen("print-3") is None


# ---------------------------------------------------------------------- damage


def flip(path: str, offset: int, length: int = 64) -> None:
    """Damage a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        data = file.read(length)
        file.seek(offset)
        file.write(bytes(byte ^ 0xFF for byte in data))


@pytest.mark.parametrize("offset", [0, 20, 100, 4_096])
def test_a_damaged_file_is_set_aside(path: str, offset: int) -> None:
    """It is kept under another name, the reason is said, and a new history begins."""
    store = Store.open(path)
    fill(store, 300)
    store.close()
    flip(path, offset)

    store = Store.open(path)
    fill(store, 20)

    assert "history.db.corrupt-1" in store.problem
    assert os.path.exists(f"{path}.corrupt-1")
    assert len(store.history("cpu.busy", START, START + 20)) == 20


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be looked at" * 100, b"SQLite format 3\0" + b"\0" * 100])
def test_another_file_is_set_aside(path: str, content: bytes) -> None:
    """What is there is never overwritten."""
    Path(path).write_bytes(content)

    assert "corrupt-1" in Store.open(path).problem
    assert Path(f"{path}.corrupt-1").read_bytes() == content


def test_another_database_is_set_aside(path: str) -> None:
    """Nobody else's tables are touched."""
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine(x)")
    other.close()

    assert "not a history of sysperf" in Store.open(path).problem


@pytest.mark.root(users=True)
def test_a_history_behind_another_users_link_is_kept_in_memory(tmp_path: Path) -> None:
    """He could have root write into, or set aside, any file."""
    (tmp_path / "roots").mkdir()
    (tmp_path / "theirs").symlink_to("roots")
    os.lchown(tmp_path / "theirs", 65_531, 65_531)
    store = Store.open(str(tmp_path / "theirs/history.db"))

    assert "another user" in store.problem
    assert "in memory" in store.problem
    assert [*(tmp_path / "roots").iterdir()] == []


def test_an_empty_file_is_a_new_history(path: str) -> None:
    """As a crash can leave it."""
    Path(path).touch()
    store = Store.open(path)
    fill(store, 10)

    assert store.problem == ""


def test_two_damaged_files_are_kept(path: str) -> None:
    """The newest two: damage that comes back does not fill the disk."""
    for _ in range(4):
        Store.open(path).close()
        flip(path, 0)
    Store.open(path).close()

    assert sorted(name for name in os.listdir(os.path.dirname(path)) if "corrupt" in name) == [
        "history.db.corrupt-3",
        "history.db.corrupt-4",
    ]


def test_a_newer_history_is_set_aside(path: str) -> None:
    """An older sysperf does not write into what it does not know."""
    Store.open(path).close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()

    store = Store.open(path)

    assert "newer" in store.problem
    assert "99" in store.problem
    assert os.path.exists(f"{path}.newer-1")


@given(st.data())
@settings(max_examples=25)
def test_no_damage_raises(data: st.DataObject) -> None:
    """Flipped anywhere, cut anywhere: opening, asking and writing work, in this file or a new one."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/history.db"
        store = Store.open(path)
        fill(store, 120)
        store.event(START, "finding", "", "text", {"a": 1})
        store.remember("abc", START)
        store.close()
        size = os.path.getsize(path)
        for _ in range(data.draw(st.integers(1, 3))):
            flip(path, data.draw(st.integers(0, size - 1)), data.draw(st.sampled_from([1, 8, 500])))
        if data.draw(st.booleans()):
            os.truncate(path, data.draw(st.integers(0, size)))

        store = Store.open(path)
        store.history("cpu.busy", START, START + 120)
        store.history("cpu.busy", START, START + 120, 2)
        store.events()
        fill(store, 20, START + 500)
        store.prune()

        assert len(store.history("cpu.busy", START + 500, START + 520)) == 20
        store.close()


def test_damage_while_it_runs_is_survived(path: str) -> None:
    """A file that breaks under a running agent: the session goes on in memory, and the reason is said."""
    store = Store.open(path)
    fill(store, 600)
    store._archive.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for offset in range(0, os.path.getsize(path), 4_096):
        flip(path, offset, 4_096)
    store._archive.database.execute("PRAGMA shrink_memory").fetchall()
    store._archive.database.execute("PRAGMA cache_size = 1").fetchall()
    store.history("cpu.busy", START, START + 600)
    fill(store, 30, START + 1_000)

    assert "goes on in memory" in store.problem
    assert len(store.history("cpu.busy", START + 1_000, START + 1_030)) == 30


def test_a_check_that_takes_too_long_is_left(path: str) -> None:
    """A large file on a slow disk does not hold up the start."""
    store = Store.open(path)
    for second in range(600):
        store.append(START + second, {f"series.{number}": DICE.random() for number in range(200)})
        store.flush()
    store.close()

    file, problem = database.open_file(path, 0.0)

    assert problem == ""
    file.close()


# ---------------------------------------------------------------------- no disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.root(mounts=True)
def test_a_full_disk_degrades_to_memory_and_back(small_disk: Path) -> None:
    """The session goes on in memory; when there is room again, everything moves to the file."""
    path = str(small_disk / "history.db")
    store = Store.open(path)
    fill(store, 60)
    store.event(START, "finding", "", "before")
    store.remember("abc", START)
    (small_disk / "filler").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4_096 - 4_096))
    store.retry_s = math.inf
    second = 60
    while not store.problem and second < 3_000:
        store.append(START + second, {f"series.{number}": DICE.random() for number in range(200)} | {"cpu.busy": 1.0})
        store.flush()
        second += 1
    fallen = second
    store.event(START + second, "finding", "", "while full")
    fill(store, 50, START + fallen + 100)

    assert "full" in store.problem
    assert len(store.history("cpu.busy", START + fallen + 100, START + fallen + 150)) == 50
    assert [event.text for event in store.events()] == ["while full"]

    (small_disk / "filler").unlink()
    store._retry_at = 0.0
    store.flush()

    assert store.problem == ""
    assert [event.text for event in store.events()] == ["before", "while full"]
    assert len(store.history("cpu.busy", START, START + 60)) >= 60
    assert len(store.history("cpu.busy", START + fallen + 100, START + fallen + 150)) == 50
    assert store.first_seen("abc") == START
    store.close()
    assert len(Store.open(path).history("cpu.busy", START + fallen + 100, START + fallen + 150)) == 50


def test_a_file_size_limit_degrades_to_memory(path: str) -> None:
    """Where no file system can be made small, the kernel's limit on file sizes does the same."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Store.open(path)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
        for second in range(600):
            store.append(START + second, {f"series.{number}": DICE.random() for number in range(200)})
            store.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert "goes on in memory" in store.problem
    assert store.history("series.1", START + 590, START + 600)


@pytest.mark.parametrize("bad", ["/proc/no/such/place/history.db", "/dev/null/history.db", "/proc/version", "/"])
def test_no_place_for_a_file_is_memory(bad: str) -> None:
    """A path that cannot be is a problem that is said, not an agent that does not start."""
    store = Store.open(bad)
    fill(store, 20)

    assert bad in store.problem
    assert len(store.history("cpu.busy", START, START + 20)) == 20
    store.close()


def test_a_file_in_use_is_waited_for(path: str) -> None:
    """Somebody holds the file: samples go to memory, and move to the file when it is free."""
    store = Store.open(path)
    fill(store, 10)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    fill(store, 10, START + 100)
    assert "locked" in store.problem
    other.execute("ROLLBACK")
    other.close()
    store._retry_at = time.monotonic()
    store.flush()

    assert store.problem == ""
    assert len(store.history("cpu.busy", START, START + 200, 200)) == 20


def test_a_disk_that_comes_late_takes_over(tmp_path: Path) -> None:
    """Started without one: what happened meanwhile goes behind what the file has, under new numbers; first times are the earliest."""
    path = str(tmp_path / "mounted/history.db")
    store = Store.open(path)
    for text in ("one", "two", "three"):
        store.event(START, "finding", "", text)
    store.remember("abc", START)
    store.flush()
    store.close()
    os.rename(tmp_path / "mounted", tmp_path / "away")
    (tmp_path / "mounted").write_text("no folder")
    store = Store.open(path)
    store.event(START + 100, "agent", "", "started without a disk")
    store.remember("abc", START + 100)
    fill(store, 20, START + 100)
    assert store.problem

    os.unlink(tmp_path / "mounted")
    os.rename(tmp_path / "away", tmp_path / "mounted")
    store._retry_at = 0.0
    store.flush()

    assert store.problem == ""
    assert [event.text for event in store.events()] == ["one", "two", "three", "started without a disk"]
    assert store.event(START + 130, "agent", "", "on") == 5
    assert (store.first_seen("abc"), store.last_seen("abc")) == (START, START + 100)
    assert len(store.history("cpu.busy", START + 100, START + 120)) == 20


def test_memory_is_bounded() -> None:
    """Without a disk, the past is shorter."""
    store = Store.open(None)
    fill(store, 20_000)
    store.prune()

    assert store.size_bytes() < 1 << 20
    assert len(store.history("cpu.busy", START + 19_000, START + 20_000, 1_000)) == 1_000

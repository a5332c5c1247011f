"""The agent's history behind a thread: a disk that hangs costs history and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sysperf.agent import async_store
from sysperf.agent.async_store import AsyncStore, Hanging
from sysperf.agent.client import Client
from tests.privileges import AS_ROOT

START = 1_700_000_000.0
T = TypeVar("T")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which `frozen` can make hang as a dying disk does."""
    if os.geteuid() != 0:
        pytest.skip(f"{AS_ROOT}: a real file system is mounted and frozen")
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no loop devices")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """Every write waits, and no signal ends the wait."""
    subprocess.run(["fsfreeze", "-f", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", folder], check=True)


def within(seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """Run it; a loop that stands still fails."""

    async def scenario() -> T:
        gaps, last = [0.0], time.monotonic()

        async def beat() -> None:
            nonlocal last
            while True:
                await asyncio.sleep(0.01)
                gaps.append(time.monotonic() - last)
                last = time.monotonic()

        beating = asyncio.ensure_future(beat())
        try:
            result = await asyncio.wait_for(work(), seconds)
        finally:
            beating.cancel()
        assert max(gaps) < 1, "the loop stood still"
        return result

    return asyncio.run(scenario())


def test_what_is_handed_over_is_kept_in_order(tmp_path: Path) -> None:
    """Samples, events under the numbers that were told, and since when a finding holds; also over a restart."""

    async def first() -> list[int]:
        kept = await AsyncStore.open(str(tmp_path / "history.db"))
        for second in range(50):
            kept.append(START + second, {"cpu.busy": second / 100})
            if second % 20 == 0:
                kept.flush()
        numbers = [kept.event(START, "finding", "", text) for text in "abc"]
        kept.remember("f1", START + 3)
        assert [event.text for event in await kept.events()] == ["a", "b", "c"]
        assert kept.last_event == 3
        assert await kept.series() == ("cpu.busy",)
        assert kept.size_bytes > 0
        await kept.close()
        return numbers

    async def second() -> tuple[list[int], int, float | None]:
        kept = await AsyncStore.open(str(tmp_path / "history.db"))
        numbers = [event.id for event in await kept.events()]
        history = await kept.history(("cpu.busy",), START - 1, START + 60, 100)
        number = kept.event(START + 60, "gone", "", "d")
        await kept.close()
        assert number == 4
        return numbers, len(history["cpu.busy"]), kept.first_seen("f1")

    numbers = within(10, first)
    events_kept, points, since = within(10, second)
    assert events_kept == numbers == [1, 2, 3]
    assert points == 50
    assert since == START + 3


def test_a_disk_that_hangs_stops_nobody(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it hangs, that is said and nobody waits; afterwards what was taken meanwhile is written."""
    monkeypatch.setattr(async_store, "HANGING_S", 0.3)

    async def scenario() -> tuple[str, list[str], int]:
        kept = await AsyncStore.open(str(disk / "history.db"))
        kept.append(START, {"cpu.busy": 0.1})
        await kept.flush()
        with frozen(disk):
            kept.append(START + 1, {"cpu.busy": 0.2})
            writing = kept.flush()
            await asyncio.sleep(0.5)
            problem = kept.problem
            with pytest.raises(Hanging):
                await kept.series()
            kept.append(START + 2, {"cpu.busy": 0.3})
            kept.event(START + 2, "finding", "", "meanwhile")
            assert kept.flush() is writing
        await writing
        await kept.flush()
        assert kept.problem == ""
        events = [event.text for event in await kept.events()]
        points = (await kept.history(("cpu.busy",), START - 1, START + 10))["cpu.busy"]
        await kept.close()
        return problem, events, len(points)

    problem, events, points = within(30, scenario)
    assert "does not answer" in problem
    assert events == ["meanwhile"]
    assert points == 3


def test_a_disk_that_hangs_at_the_start_is_done_without(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history is in memory, and says why."""
    monkeypatch.setattr(async_store, "OPEN_S", 0.5)

    async def scenario() -> tuple[str, int]:
        with frozen(disk):
            kept = await AsyncStore.open(str(disk / "history.db"))
        number = kept.event(START, "agent", "", "started")
        await kept.flush()
        problem = kept.problem
        await kept.close()
        return problem, number

    problem, number = within(20, scenario)
    assert "does not answer" in problem
    assert number == 1


@pytest.mark.slow
def test_the_agent_goes_on_while_its_disk_hangs(disk: Path, tmp_path: Path) -> None:
    """It samples and answers; when the disk is back, the history is, too."""
    socket = tmp_path / "agent.sock"
    command = [sys.executable, "-m", "sysperf", "agent", "--interval=0.2", f"--socket={socket}", f"--history={disk}/history.db"]
    agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        client = Client(str(socket))
        _until(lambda: socket.exists() and client.get("/v1/status")["samples"] > 0)
        with frozen(disk):
            time.sleep(12)  # the first flush comes after ten seconds
            before = client.get("/v1/status")["samples"]
            _until(lambda: client.get("/v1/status")["samples"] > before)
            assert client.get("/v1/findings")["findings"] is not None
        _until(lambda: "agent.late_s" in {entry["name"] for entry in client.get("/v1/history")["series"]})
    finally:
        agent.terminate()
        assert agent.wait(20) == 0


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(150):
        with contextlib.suppress(OSError):
            if holds():
                return
        time.sleep(0.1)
    raise AssertionError("it did not happen within 15 s")

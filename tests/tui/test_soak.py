"""Many updates: memory does not grow, and only what changed is drawn."""

from __future__ import annotations

import asyncio
import gc
import math
import tracemalloc

import pytest

from sysperf.tui.now import KEPT, Now
from sysperf.tui.source import Facts, Meters
from tests.tui.conftest import dashboard, settled
from tests.tui.machines import START, meters, server

WARM = 300
GROWN = 150_000
"""Bytes: what Python's own caches may take; a list of samples would take megabytes."""


def sample(base: dict[str, float], number: int) -> Meters:
    """Every meter moves; programs come and go."""
    moved = {name: value * (1 + 0.3 * math.sin(number / 7 + len(name))) for name, value in base.items()}
    moved[f"process.{10_000 + number}.cpu"] = 1.0
    return Meters(START + number, moved)


@pytest.mark.parametrize("updates", [700, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_samples_keep_no_memory(updates: int) -> None:
    """What is kept of each series has an end, and series of programs that ended go."""
    now, base = Now(), meters(server())
    now.take(Facts(server()))
    tracemalloc.start()  # before the samples that others push out: those count, too
    for number in range(WARM):
        now.take(sample(base, number))
    now.remember(f"process.{10_000 + WARM - 1}.cpu", 1.0)  # somebody looks at this program
    before = _used()
    for number in range(WARM, updates):
        now.take(sample(base, number))
    grown = _used() - before
    tracemalloc.stop()
    assert grown < GROWN
    assert all(len(past) <= KEPT for past in now.past.values())
    assert len([name for name in now.meters if name.startswith("process.1")]) == 1
    assert f"process.{10_000 + WARM - 1}.cpu" not in now.past


@pytest.mark.slow
def test_updates_on_the_screen_keep_no_memory() -> None:
    """The same through the whole dashboard, with fewer samples: drawing costs more than keeping."""

    async def run() -> int:
        app, base = dashboard(server()), meters(server())
        async with app.run_test(size=(120, 40)) as pilot:
            for screen in "13":
                await pilot.press(screen)
                for number in range(100):
                    app.take(sample(base, number))
                await settled(pilot)
            tracemalloc.start()
            before = _used()
            for number in range(100, 400):
                app.take(sample(base, number))
                if number % 50 == 0:
                    await pilot.pause()
            await settled(pilot)
            grown = _used() - before
            tracemalloc.stop()
            return grown

    assert asyncio.run(run()) < 3 * GROWN


def _used() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

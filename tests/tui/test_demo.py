"""`tui --demo`: a machine to learn on. Five cards, real rules, and nothing of this machine is read or changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import judging
from sysperf.model.change import Setting
from sysperf.tui import decode, demo
from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from tests.golden import Golden
from tests.tui.conftest import screen_text, settled
from tests.tui.machines import meters, rule, server
from tests.tui.test_same_name import press, until


def test_the_recorded_server_is_read_whole(golden: Golden) -> None:
    """Its facts were written down from the server of these tests: each area is known, and the meters are those of its GPUs and programs."""
    kept = json.loads(demo.RECORDED.read_bytes())
    known = decode.SnapshotDecoder().decode(json.dumps(kept["snapshot"]).encode())
    assert known is not None
    assert {name: area.problem for name, area in known.areas.items() if area.problem} == {}
    assert len(MachineFacts(known.areas).gpu.devices or ()) == 8  # type: ignore[union-attr]
    golden(demo.RECORDED, json.dumps(kept | {"meters": dict(sorted(meters(server()).items()))}, separators=(",", ":")))


def drive(tmp_path: Path, do: Callable[[Dashboard, Any], Any]) -> None:
    played = demo.Demo(lambda: judging.Terms(judging.load_rules()), str(tmp_path))
    actions = Actions(played, rule, lambda: demo.DemoChanger(str(tmp_path)), diagnose=demo.diagnose)

    async def run() -> None:
        app = Dashboard(actions, cards=demo.CARDS)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await until(pilot, lambda: bool(app.now.meters and app.now.findings()))
            await do(app, pilot)

    asyncio.run(run())


def test_five_cards_lead_through_it(tmp_path: Path) -> None:
    """n turns to the next one, N back; behind the last one there is none."""

    async def do(app: Dashboard, pilot: Any) -> None:
        assert len(demo.CARDS) == 5
        for number in range(1, 6):
            assert f"Card {number} of 5" in screen_text(app)
            await press(pilot, "n")
        assert "Card" not in screen_text(app)
        await press(pilot, "N", "2")
        assert "Card 5 of 5" in screen_text(app)

    drive(tmp_path, do)


def test_a_change_of_the_demo_is_seen_and_taken_back(tmp_path: Path) -> None:
    """The finding goes, the meters since are counted, the change is in the list; undone, the finding is back."""

    async def do(app: Dashboard, pilot: Any) -> None:
        def found() -> bool:
            return any(finding.rule == "numa.balancing-on" for finding in app.now.findings())

        app.action_open_finding(next(finding.key for finding in app.now.findings() if finding.rule == "numa.balancing-on"))
        await settled(pilot)
        await press(pilot, "a")
        assert "kernel.numa_balancing" in screen_text(app)
        await press(pilot, "y")
        await until(pilot, lambda: not found())
        assert (tmp_path / demo.FILE).read_text().strip() == "0"
        assert "what else changes meanwhile counts, too" in screen_text(app)
        await press(pilot, "escape", "6")
        assert "1 → 0" in screen_text(app)
        await press(pilot, "u", "y")
        await until(pilot, found)

    drive(tmp_path, do)


def test_nothing_but_its_own_setting_is_changed(tmp_path: Path) -> None:
    """The number of a recorded program may be that of a real one here."""
    changer = demo.DemoChanger(str(tmp_path))
    planned = changer.plan([Setting("process.nice", "0", "4242")])
    assert not planned.changes
    assert "the demo changes" in planned.skipped[0].reason


def test_a_diagnosis_names_the_line(tmp_path: Path) -> None:
    """d on a program shows what was written down, signal by signal."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "G", "d")
        await until(pilot, lambda: "Confirmed" in screen_text(app))
        assert "train.py:31" in screen_text(app)

    drive(tmp_path, do)

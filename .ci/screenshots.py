"""Write docs/pictures: screens of `sysperf tui --demo` as SVG.

.venv-dev/bin/python .ci/screenshots.py
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"

from sysperf.engine import judging  # noqa: E402 - Textual reads the variable when it is imported
from sysperf.tui import demo  # noqa: E402
from sysperf.tui.actions import Actions  # noqa: E402
from sysperf.tui.app import Dashboard  # noqa: E402

SCREENS = {"overview": "1", "findings": "2"}
SIZE = (120, 40)
SETTLED_S = 3.0


async def draw(folder: str) -> None:
    """Show each screen, and write it down."""
    terms = judging.Terms(judging.load_rules())
    actions = Actions(
        demo.Demo(lambda: terms, folder), lambda name: judging.find(terms.ruleset, name, []), lambda: demo.DemoChanger(folder)
    )
    app = Dashboard(actions)
    async with app.run_test(size=SIZE) as pilot:
        for name, key in SCREENS.items():
            await asyncio.sleep(SETTLED_S)
            await pilot.press(key)
            await pilot.pause()
            picture = ROOT / f"docs/pictures/dashboard-{name}.svg"
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(app.export_screenshot(title="sysperf tui --demo"), encoding="utf-8")


with tempfile.TemporaryDirectory() as place:
    asyncio.run(draw(place))

"""Facts about docs/agent.md."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sysperf.live.metrics import METERS
from sysperf.model.agent_settings import MODES, Settings
from tests.golden import Golden

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/agent.md"
BEGIN, END = "<!-- meters: written by `make generated` -->\n", "<!-- end of meters -->"


def table() -> str:
    rows = "".join(f"| `{name}` | {metric.help} |\n" for name, metric in METERS.items())
    return f"| series | what it says |\n|---|---|\n{rows}"


def test_every_meter_is_in_the_documentation(golden: Golden) -> None:
    """The page lists all series with the words that /metrics uses."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    golden(PAGE, f"{head}{BEGIN}{table()}{END}{tail}")


def test_every_setting_and_mode_is_in_the_documentation() -> None:
    """Each key of [agent], each mode."""
    text = PAGE.read_text()

    assert all(f"\n{field.name} " in text for field in msgspec.structs.fields(Settings))
    assert all(f"| `{mode}` |" in text for mode in MODES)

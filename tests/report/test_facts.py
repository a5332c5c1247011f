"""Facts as text."""

from __future__ import annotations

from hypothesis import given, settings

from sysperf.model.snapshot import Area, Snapshot, Source
from sysperf.report import facts
from sysperf.report.terminal import cells
from tests.report import reports
from tests.report.hostile import harmless, texts


def test_facts_have_the_names_that_rules_use() -> None:
    """Each on a line of its own, sizes in units."""
    lines = facts.render(reports.snapshot(), width=80).splitlines()

    assert any(line.split() == ["numa.nodes[1].cpus", "96-191"] for line in lines)
    assert any(line.split() == ["memory.total_bytes", "1.5", "TiB"] for line in lines)
    assert max(map(cells, lines)) <= 80


def test_unknown_facts_and_areas_say_so() -> None:
    """None is *unknown*; an area that could not be read gives its reason, a file its error."""
    areas = {
        "gpu": Area(problem="no driver"),
        "memory": Area(
            {"free_bytes": None, "swaps": []}, failures=tuple(Source(f"/proc/{i}", error="Permission denied") for i in range(7))
        ),
    }
    text = facts.render(Snapshot(taken_at="", areas=areas))

    assert "  unknown: no driver\n" in text
    assert "  memory.free_bytes  unknown\n" in text
    assert "  memory.swaps       none\n" in text
    assert "  could not read /proc/4: Permission denied\n  and 2 other files; --verbose lists them\n" in text
    assert "/proc/6" in facts.render(Snapshot(taken_at="", areas=areas), verbose=True)


@given(text=texts)
@settings(max_examples=20)
def test_foreign_text_is_printable(text: str) -> None:
    """Names of areas, keys of mappings and values are all neutral."""
    snapshot = Snapshot(
        taken_at="", areas={text: Area({text: {text: text}, "list": [text, {"x": [text]}]}, failures=(Source(text, error=text),))}
    )

    assert harmless(facts.render(snapshot))

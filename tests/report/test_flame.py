"""Samples for viewers: collapsed lines, speedscope's document, a flame graph."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from sysperf.model.profile import Frame, Sample, Samples
from sysperf.report.profiling import flame

STEP, MAIN = Frame("step", "/home/me/train.py", 31), Frame("<module>", "/home/me/train.py", 40)
TAKEN = Samples(7, 2, 50, (Sample(7, "MainThread", (STEP, MAIN), 60), Sample(7, "MainThread", (MAIN,), 40), Sample(9, "a;b", (STEP,), 10)))
EVIL = Samples(7, 1, 50, (Sample(7, "</text><script>", (Frame("\x1b[31m;<b>&", "/x\n.py", 1),), 5),))


def test_a_line_is_a_stack_from_outside_to_inside() -> None:
    """A semicolon within a name would be another call."""
    assert flame.folded(TAKEN).splitlines() == [
        "MainThread;<module> (train.py:40);step (train.py:31) 60", "MainThread;<module> (train.py:40) 40", "a,b;step (train.py:31) 10",
    ]  # fmt: skip


def test_speedscope_has_a_profile_a_thread() -> None:
    """Each sample's weight is its time; frames are named once."""
    document = json.loads(flame.speedscope(TAKEN))

    assert [one["name"] for one in document["shared"]["frames"]] == ["step", "<module>"]
    main, other = document["profiles"]
    assert (main["samples"], main["weights"], main["endValue"]) == ([[1, 0], [1]], [1.2, 0.8], 2.0)
    assert (other["name"], other["weights"]) == ("a;b 9", [0.2])


def test_what_is_wide_took_long() -> None:
    """Widths are shares; a call stands below its caller; tooltips have name and share."""
    picture = re.search(r"<svg.*?</svg>", flame.page(TAKEN), re.DOTALL)
    assert picture
    boxes = {group.findtext("title"): group.find("rect") for group in ET.fromstring(picture[0]).iter("g")}  # noqa: S314 - our own page

    assert list(boxes) == [
        "all: 100.0 %", "MainThread: 90.9 %", "<module> (train.py:40): 90.9 %", "step (train.py:31): 54.5 %", "a,b: 9.1 %",
        "step (train.py:31): 9.1 %",
    ]  # fmt: skip
    assert [rect.get("y") for rect in boxes.values() if rect is not None] == ["0", "18", "36", "54", "18", "36"]


def test_foreign_names_are_text() -> None:
    """A program may call its threads and functions what it likes."""
    for form in (flame.folded, flame.speedscope, flame.page):
        written = form(EVIL)
        assert "\x1b" not in written
        assert "<script>" not in written or form is not flame.page
    assert len(flame.folded(EVIL).splitlines()) == 1


FRAMES = st.builds(Frame, st.text(max_size=20), st.text(max_size=20), st.none() | st.integers(0, 9_999))


@given(
    st.lists(
        st.builds(Sample, st.none() | st.integers(1, 9), st.text(max_size=9), st.lists(FRAMES, max_size=6).map(tuple), st.integers(1, 99))
    )
)
def test_no_samples_are_too_strange(samples: list[Sample]) -> None:
    """Empty stacks, no samples at all, names of any kind: one line a stack, a document, a picture."""
    taken = Samples(7, 1, 50, tuple(samples))

    assert len(flame.folded(taken).split("\n")) == len(samples) + 1
    assert sum(len(one["samples"]) for one in json.loads(flame.speedscope(taken))["profiles"]) == len(samples)
    assert flame.page(taken).count("<svg") == 1

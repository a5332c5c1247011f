"""GitHub workflow commands."""

from __future__ import annotations

import re

from hypothesis import given, settings

from sysperf.model.finding import Place
from sysperf.model.text import neutral
from sysperf.report.formats import render
from tests.report import reports
from tests.report.hostile import texts

COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def commands(text: str) -> list[tuple[str, str, str]]:
    """(command, title, text) of every line, unescaped as the runner does it; each line must be one."""
    annotations = []
    for line in text.removesuffix("\n").split("\n"):
        match = COMMAND.fullmatch(line)
        assert match, line
        annotations.append((match[1], _plain(match[2]), _plain(match[3])))
    return annotations


def _plain(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_findings_become_annotations() -> None:
    """Errors and warnings by their names, the rest as notices, the verdict at the end."""
    annotations = commands(render(reports.sick(), "github"))

    assert [name for name, _, _ in annotations] == ["error"] * 3 + ["warning"] + ["notice"] * 5
    assert annotations[3][1] == "numa.balancing-on"
    assert "sudo sysctl -w kernel.numa_balancing=0" in annotations[3][2].split("\n")
    assert annotations[-1][2].startswith("3 errors and 1 warning cost speed here")


def test_titles_and_texts_are_escaped() -> None:
    """A colon or comma would end the title, a percent sign would be decoded."""
    text = render(reports.report(reports.balancing(subject=reports.named("a:b,c%0A"), message="100 %0A: x, y")), "github")

    assert text.startswith("::warning title=numa.balancing-on (a%3Ab%2Cc%250A)::100 %250A: x, y%0Aobserved: numa.balancing = 1 from /proc")


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_starts_no_command(text: str) -> None:
    """Every line is a command of ours, and gives the text back."""
    annotations = commands(render(reports.hostile(text), "github"))

    assert len(annotations) == 4
    assert annotations[0][2].split("\n")[0] == neutral(text)


def test_an_annotation_stands_beside_the_line_that_is_known() -> None:
    """A trace knows no column; a place in an installed package is in no file of this repository."""
    text = render(reports.report(reports.balancing(places=(Place("train.py", 42, "step"),))), "github")
    installed = render(reports.report(reports.balancing(places=(Place("lightning/loop.py", 3, package="lightning"),))), "github")

    assert "file=train.py,line=42,title=" in text
    assert "file=" not in installed

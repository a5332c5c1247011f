"""The words that all formats share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sysperf.model.finding import Evidence, Tally
from sysperf.model.rule import Impact
from sysperf.report import words
from sysperf.report.formats import as_html, as_sarif
from sysperf.report.reference import explain
from tests.report import reports
from tests.shipped import rules


@pytest.mark.parametrize(
    ("outcomes", "passed", "sentence"),
    [
        ((), 74, "Healthy: nothing found that slows PyTorch down, all 74 checks passed."),
        ((), 1, "Healthy: nothing found that slows PyTorch down, the only check passed."),
        ((), 0, "Nothing was checked."),
        ((reports.UNKNOWNS[0],), 0, "Cannot tell yet: 1 of 1 check could not be made (Permission denied)."),
        (
            (reports.UNKNOWNS[0],),
            19,
            "Nothing found that slows PyTorch down: 19 checks passed. 1 check could not be made: power.rapl-capped.",
        ),
        ((reports.UNKNOWNS[0],), 8, "Cannot tell yet: 1 of 9 checks could not be made (Permission denied)."),
        (reports.UNKNOWNS, 2, "Cannot tell yet: 3 of 5 checks could not be made (Permission denied and only read with --deep)."),
        (
            (*reports.UNKNOWNS, reports.brief("a.b", "hint", "x")),
            2,
            "Cannot tell yet: 3 of 6 checks could not be made (Permission denied and only read with --deep). 1 smaller thing could be better.",
        ),
        ((reports.balancing(),), 9, "1 warning costs speed here."),
        ((reports.balancing(), reports.narrow_link(0)), 9, "1 error and 1 warning cost speed here."),
        ((reports.brief("a.b", "hint", "x"),), 9, "No errors and no warnings; 1 smaller thing could be better."),
    ],
)
def test_the_verdict_is_one_honest_sentence(outcomes: Any, passed: int, sentence: str) -> None:
    """It counts what was found, and claims health only of what was seen."""
    assert words.verdict(reports.report(*outcomes, passed=passed)) == sentence


@pytest.mark.parametrize(
    ("process", "outcomes", "passed", "sentence"),
    [
        (
            {"unreadable": 3},
            (),
            9,
            "Nothing found that slows PyTorch down: 9 checks passed. 3 programs of other users could not be examined; ",
        ),
        ({"unreadable": 1}, (), 0, "Nothing was checked. 1 program of other users could not be examined; root can."),
        ({"unreadable": 3}, reports.UNKNOWNS, 2, "--deep). 3 programs of other users could not be examined; root can."),
        (
            {"unreadable": 3},
            (reports.brief("a.b", "hint", "x"),),
            9,
            "could be better. 3 programs of other users could not be examined; root",
        ),
        (
            {"unreadable": 3},
            (reports.brief("a.b", "warning", "x"),),
            9,
            "1 warning costs speed here. 3 programs of other users could not be examined; root can.",
        ),
        ({"hidden": True}, (reports.brief("a.b", "error", "x"),), 9, "1 error costs speed here. /proc hides the processes"),
        ({"hidden": True}, (), 9, "9 checks passed. /proc hides the processes of other users (hidepid); root sees them."),
    ],
)
def test_programs_that_could_not_be_examined_are_in_the_verdict(process: Any, outcomes: Any, passed: int, sentence: str) -> None:
    """A machine is healthy as far as somebody looked; what was not looked at counts as not read."""
    report = reports.report(*outcomes, passed=passed, machine=reports.snapshot(process=process))

    assert sentence in words.verdict(report)
    assert "Healthy" not in words.verdict(report)
    assert not words.all_examined(report)


@pytest.mark.parametrize("process", [{"unreadable": 0, "hidden": False}, {"unreadable": 0, "hidden": None}, {}])
def test_all_programs_examined_is_healthy(process: Any) -> None:
    """Nothing is added where nothing was left out."""
    report = reports.report(passed=9, machine=reports.snapshot(process=process))

    assert words.verdict(report) == "Healthy: nothing found that slows PyTorch down, all 9 checks passed."
    assert words.all_examined(report)


@pytest.mark.parametrize(
    ("outcomes", "passed", "mood"),
    [
        ((), 5, "good"),
        ((), 0, "unknown"),
        (reports.UNKNOWNS, 2, "unknown"),
        (reports.UNKNOWNS, 56, "unknown"),
        (reports.UNKNOWNS, 57, "good"),
        (reports.UNKNOWNS[:1], 8, "unknown"),
        (reports.UNKNOWNS[:1], 18, "good"),
        ((reports.balancing(),), 0, "warning"),
        ((reports.balancing(), reports.narrow_link(0)), 0, "error"),
    ],
)
def test_the_mood_is_good_only_when_most_was_seen(outcomes: Any, passed: int, mood: str) -> None:
    """Green is a claim too."""
    assert words.mood(reports.report(*outcomes, passed=passed)) == mood


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (None, "x", "unknown"),
        (True, "x", "true"),
        (1 << 30, "memory.total_bytes", "1 GiB"),
        (1 << 30, "memory.pages", "1073741824"),
        (0.5, "x", "0.5"),
        ("", "x", '""'),
        ([], "x", "none"),
        ([1, 2], "x", "1, 2"),
        ({"a": [1]}, "x", '{"a":[1]}'),
        ("a\x1bb", "x", "a\\x1bb"),
    ],
)
def test_values_are_for_people(data: Any, name: str, expected: str) -> None:
    """Sizes have units, an empty list is *none*, and None is *unknown*, never nothing."""
    assert words.value(data, name) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/proc/meminfo", "/proc/meminfo"),
        ("nvml:DeviceGetName(0)", "NVML DeviceGetName(0)"),
        ("run:lspci", "command lspci"),
        ("space:/dev/shm", "file system of /dev/shm"),
        ("uname", "uname"),
        ("", ""),
    ],
)
def test_origins_name_who_was_asked(source: str, expected: str) -> None:
    """A file by its path, a library or command by its name."""
    assert words.origin(Evidence("a.b", 1, source)) == expected


def test_a_borrowed_figure_is_never_a_promise() -> None:
    """Unmeasured stays the first word; the claim comes with its basis and its source."""
    finding = reports.balancing(impact=Impact("step time", "upper-bound", "up to 20 %", "RULES M5"))

    assert words.gain(finding) == "unmeasured; acts on step time (up to 20 %, upper bound, RULES M5)"


def test_short_reasons_end_with_a_sentence() -> None:
    """About two lines, never cut in a sentence; the first sentence is always whole."""
    assert words.short("One. Two is here. " + "Three is long " * 20) == "One. Two is here."
    assert words.short("Word " * 60 + "end. Next.") == "Word " * 60 + "end."
    assert words.short("") == ""


def test_tally_agrees_with_itself() -> None:
    """The last line counts every answer."""
    report = reports.report(tally=Tally(5, 1, 1, 1, 1, 1), took_ms=3.0)

    assert words.tally(report) == "5 checks in 3 ms: 1 finding, 1 passed, 1 unknown, 1 suppressed, 1 not applicable"


@pytest.mark.parametrize(
    "ref", ["javascript:alert(1)", "https://a b", 'https://x/"onclick=', "sysperf RULES M5", "https://x/<y>", "//x", ""]
)
def test_only_web_addresses_become_links(ref: str) -> None:
    """Anything else is shown as text."""
    assert not words.is_link(ref)
    assert words.is_link(reports.KERNEL_DOC)


@pytest.mark.parametrize(("base", "address"), [
    ("https://docs.example/sysperf/", "https://docs.example/sysperf/causes/#numa.balancing-on"),
    ("", ""),
    ("javascript:alert(1)//", ""),
])  # fmt: skip
def test_a_rule_leads_to_its_place_in_the_catalogue(base: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a site has put the documentation: in `explain`, SARIF and web pages alike; the page has a place of that name."""
    monkeypatch.setenv("SYSPERF_DOCS", base)
    report = reports.report(reports.balancing())

    assert words.page_of("numa.balancing-on") == address
    assert (f'"helpUri": "{address}"' in as_sarif.render(report)) is bool(address)
    assert (f'<a href="{address}">' in as_html.render(report)) is bool(address)
    rule = next(each for each in rules() if each.id == "numa.balancing-on")
    assert (f"page      {address}" in explain.render(rule, color=False, width=100)) is bool(address)
    assert '<a id="numa.balancing-on"></a>' in (Path(__file__).parents[2] / "docs/causes.md").read_text()

"""The report for a terminal."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings

from sysperf.model.finding import Gap, Remedy, Rewrap, Subject
from sysperf.report.formats import render
from sysperf.report.terminal import cells
from tests.report import reports
from tests.report.hostile import harmless, texts

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def lines(machine: str = "sick", **options: object) -> list[str]:
    """The lines of a report's text."""
    return render(reports.MACHINES[machine](), "text", **options).splitlines()  # type: ignore[arg-type]


def test_a_healthy_machine_fits_one_screen() -> None:
    """24 lines of 80 columns hold the machine, the verdict, the hints and what could not be read."""
    screen = lines("healthy", width=80)

    assert len(screen) <= 24
    assert max(map(cells, screen)) <= 80


def test_of_programs_that_lack_the_same_no_command_is_left_out_in_silence() -> None:
    """One is shown for all that are started alike; of others it is said that there are some."""
    report = reports.MACHINES["healthy"]()
    a, b = (Rewrap(pid, f"sysperf wrap -- python {name}.py", ("OMP_NUM_THREADS=2",), ()) for pid, name in ((7, "one"), (8, "two")))
    alike = msgspec.structs.replace(b, pid=9)

    def said(*programs: Rewrap, verbose: bool = False) -> str:
        return render(msgspec.structs.replace(report, rewraps=programs), "text", verbose=verbose)

    assert "and 1 more command; --verbose shows all" in said(a, b, alike)
    assert said(a, b, alike, verbose=True).count("two.py") == 1
    assert "more command" not in said(b, alike)


def test_a_perfect_machine_is_called_healthy() -> None:
    """Nothing found and nothing unknown: the verdict says so in one sentence."""
    assert "Healthy: nothing found that slows PyTorch down, all 74 checks passed." in lines("perfect")


def test_a_machine_nobody_could_read_is_not_called_healthy() -> None:
    """All unknown is no verdict."""
    text = "\n".join(lines("silent"))

    assert "Healthy" not in text
    assert "Cannot tell" in text


def test_worst_comes_first() -> None:
    """Errors before warnings before what is worth knowing before hints before what is unknown."""
    heads = [line for line in lines() if re.fullmatch(r"[A-Z][a-z ]+ \(\d+\)", line)]

    assert heads == ["Errors (3)", "Warnings (1)", "Worth knowing (2)", "Hints (1)", "Could not be read (3)"]


def test_a_finding_shows_value_file_reason_command_undo_and_gain() -> None:
    """All that a person needs to believe it, act on it and take it back."""
    text = "\n".join(lines(width=100))

    assert "numa.balancing = 1  from /proc/sys/kernel/numa_balancing" in text
    assert "Balancing unmaps pages" in text
    assert re.search(r"\n +sudo sysctl -w kernel.numa_balancing=0\n", text)
    assert "undo      sudo sysctl -w kernel.numa_balancing=1\n" in text
    assert "gain      unmeasured; acts on step time (documented)\n" in text


def test_one_rule_on_several_gpus_is_told_once() -> None:
    """The first GPU in full, the others by a line each; --verbose tells all in full."""
    assert sum("Every copy between host and GPU" in line for line in lines(width=100)) == 1
    assert sum("Every copy between host and GPU" in line for line in lines(width=100, verbose=True)) == 3
    assert sum(line.strip().endswith("The link runs with 4 of 16 lanes.") for line in lines(width=100)) == 3


def test_unknowns_are_grouped_by_reason_with_a_remedy() -> None:
    """Two files that need root are one line, with what to do."""
    text = "\n".join(lines(width=100))

    assert "? Permission denied (2 checks): power.rapl_limit_watts and memory.slab_bytes\n  → run it as root: `sudo sysperf audit`" in text


def test_it_ends_with_the_next_step() -> None:
    """The last line names the costliest finding."""
    assert lines()[-1].startswith("Next: sysperf explain gpu.link-narrow")


def test_suppressed_ones_are_counted_and_told_on_request() -> None:
    """The count always, the reason with --verbose."""
    assert any("1 suppressed" in line for line in lines())
    assert any("the machine is shared; agreed until 2027" in line for line in lines(verbose=True))


def test_color_changes_nothing_but_color() -> None:
    """Without the escapes, the coloured text is the plain one; without `color`, there is no escape."""
    plain, colored = render(reports.sick(), "text"), render(reports.sick(), "text", color=True)

    assert "\x1b" not in plain
    assert ANSI.sub("", colored) == plain
    assert "\x1b[1;31m✗\x1b[0m" in colored


@pytest.mark.parametrize("width", [20, 40, 61, 80, 120, 160])
def test_only_commands_are_wider_than_the_terminal(width: int) -> None:
    """A command stays whole, so that it can be copied; everything else wraps."""
    for line in lines(width=width):
        assert cells(line) <= max(width, 40) or "sudo " in line or "nvidia-smi" in line


def test_a_long_command_is_whole_and_on_a_line_of_its_own() -> None:
    """A command cut short is another command."""
    command = "sudo " + "x" * 3_000
    finding = reports.balancing(fixes=(Remedy("advice", "do it", "safe", command=command),))

    assert any(line.strip() == command for line in render(reports.report(finding), "text", width=80).splitlines())


def test_an_unknown_without_a_gap_still_counts() -> None:
    """An outcome that names no fact does not break the page."""
    assert "1 unknown" in render(reports.report(reports.unknown("a.b")), "text")


def test_reasons_that_differ_by_file_only_are_one() -> None:
    """200 processes that may not be read are one line."""
    gaps = [
        reports.unknown(
            "process.x", Gap("proc.env", f"/proc/{pid}/environ: Permission denied"), subject=Subject("process", "python", pid=pid)
        )
        for pid in range(200)
    ]

    text = render(reports.report(*gaps), "text", width=80)

    assert "? Permission denied (200 checks): proc.env\n" in text


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_never_reaches_the_terminal(text: str) -> None:
    """Whatever a name holds, a report is printable lines, and colours are only ours."""
    rendered = render(reports.hostile(text), "text", color=True, width=80, verbose=True)

    rest = ANSI.sub("", rendered)
    assert harmless(rest)
    assert set(ANSI.findall(rendered)) <= {f"\x1b[{code}m" for code in ("0", "1", "2", "32", "35", "36", "1;31", "1;32", "1;33", "1;36")}

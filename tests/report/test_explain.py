"""A rule in words."""

from __future__ import annotations

import re
from functools import cache

import msgspec
import pytest

from sysperf.engine import judging
from sysperf.model.rule import Advice, AnyFix, Env, Experiment, Guard, Impact, Preload, Rule, Sysctl
from sysperf.report.reference import explain
from sysperf.report.terminal import cells
from tests.golden import ROOT, Golden
from tests.report import reports
from tests.rules.test_catalogue import causes
from tests.shipped import ruleset as rules

FOLDER = ROOT / "tests/report/golden"

RULE = Rule(
    id="numa.balancing-on",
    title="Automatic NUMA balancing is on",
    scope="host",
    severity="info",
    message="kernel.numa_balancing={numa.balancing}",
    applies="numa.nodes_with_cpus > 1",
    when="numa.balancing >= p.limit",
    unless=(Guard("container.inside", "a host setting, not changeable from this container"),),
    params={"limit": 1},
    explain=reports.balancing().why,
    impact=Impact("step time", "documented", "1 to 5 %", "RULES M5"),
    measure=Experiment("ab-memory", 0.01),
    fix=(
        Sysctl(key="kernel.numa_balancing", value=0, safety="caution", needs="root"),
        Advice(by="command", text="bind the job to a node", command="numactl -N 0 -m 0 python train.py", undo="start it without numactl"),
    ),
    refs=(reports.KERNEL_DOC,),
    file="rules/numa.toml",
)


@cache
def told_of(name: str) -> str:
    """What is told of a rule or a cause in 100 columns."""
    return explain.render(judging.find(rules(), name), color=False, width=100)


def test_a_rule_is_told_whole(golden: Golden) -> None:
    """When it is reported and when not, why, what to do, how to take it back, who says so."""
    text = explain.render(RULE, color=False, width=80, verbose=True)

    golden(FOLDER / "explain.txt", text)
    assert all(cells(line) <= 80 or "https://" in line for line in text.splitlines())


def test_a_fix_is_told_with_all_that_a_person_needs() -> None:
    """The variables that are meant, the allocator, and what must be done before the command is typed."""
    fixes: tuple[AnyFix, ...] = (
        Env(set={"OMP_NUM_THREADS": "{cpu.cores}"}, unset=("OMP_PLACES",)),
        Preload(library="tcmalloc_minimal"),
        Advice(by="package", title="install another", text="Write down the version first.", command="pip install x"),
    )
    text = explain.render(msgspec.structs.replace(RULE, fix=fixes), color=False, width=100)

    assert "unset OMP_PLACES; export OMP_NUM_THREADS='…'" in text
    assert "preload tcmalloc_minimal" in text
    assert "Write down the version first." in text


def test_conditions_are_shown_when_they_are_asked_for() -> None:
    """What to do comes first; who writes rules asks for more."""
    text = explain.render(RULE, color=False, width=80)

    assert "numa.balancing >= p.limit" not in text
    assert text.index("numactl") < text.index("step time")


def test_a_cause_is_one_story() -> None:
    """What it is, where it shows, what to do; without blanks that only a finding fills in."""
    for cause in causes():
        told = told_of(cause.id)
        words = " ".join(told.split())
        said = [signal.says.partition("{")[0].strip() for witness in cause.witness for signal in witness.signals]

        assert told.startswith(f"{cause.id}\n{cause.title[:40]}"), cause.id
        assert [witness.from_ for witness in cause.witness if f"{witness.from_} " not in told] == [], cause.id
        assert [begin for begin in said if begin not in words] == [], cause.id
        assert not re.search(r"……|\. …\.\s", told), cause.id
        assert "{" not in told.replace(cause.explain, "") or cause.example is not None, cause.id
        assert [part for part in (*cause.explains, *cause.explains_where_most) if part not in words] == [], cause.id


@pytest.mark.parametrize(
    ("cause", "fixes"), [("dataloader.inline", 2), ("dataloader.total-over-cpus", 3), ("limits.slurm-cpus-per-task-lost", 1)]
)
def test_a_fix_that_witnesses_fill_in_is_told_once(cause: str, fixes: int) -> None:
    """With what stands there where nothing was seen."""
    told = told_of(cause)

    assert told.count("\n  fix ") == fixes
    assert "\n  fix       … (" not in told


def test_no_fix_of_a_cause_is_told_twice() -> None:
    """Nor as two that begin alike."""
    for cause in causes():
        told = told_of(cause.id).split("\n  fix ")[1:]
        assert len({text.strip()[:30] for text in told}) == len(told), cause.id


@pytest.mark.parametrize(
    ("cause", "gain", "measure"),
    [
        ("dataloader.inline", "`sysperf analyze` replays the step", "verify --a 'BEFORE' --b 'AFTER'"),
        ("program.sleeps", "`sysperf diagnose`", "verify --a 'BEFORE' --b 'AFTER'"),
        ("dataloader.program-waits", "1.33 s with 2", "tune --fix dataloader.program-waits"),
    ],
)
def test_a_story_ends_with_what_is_gained_and_how_that_is_measured(cause: str, gain: str, measure: str) -> None:
    """By the cause itself, or by the commands that tell it of a program."""
    told = " ".join(told_of(cause).split())

    assert gain in told.partition(" gain ")[2].partition(" measure ")[0]
    assert measure in told.partition(" measure ")[2].partition(" explains ")[0]


def test_what_is_no_cause_to_be_cured_promises_nothing() -> None:
    """A damaged file has neither a gain nor a fix to measure."""
    told = told_of("trust.file-damaged")

    assert " gain " not in told
    assert " measure " not in told


def test_a_consequence_of_nearly_everything_names_a_few_of_its_causes() -> None:
    """With --verbose all of them."""
    what = judging.find(rules(), "threads.one-busy")
    short, whole = (" ".join(explain.render(what, color=False, width=100, verbose=each).split()) for each in (False, True))

    assert re.search(r"and \d+ more, which --verbose shows", short)
    assert "transfer.link-full" not in short
    assert "transfer.link-full" in whole


def test_sources_are_named_in_words() -> None:
    """Rules have short names for them."""
    told = told_of("dataloader.inline")

    assert "for, by machine code:" in told
    assert "for, by I/O:" in told


def test_of_one_and_several_one_form_is_told() -> None:
    """Not both."""
    told = told_of("ddp.unequal-ranks")

    assert "Ranks … cause … % of the waiting" in told

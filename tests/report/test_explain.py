"""A rule in words."""

from __future__ import annotations

import re

import msgspec
import pytest

from sysperf.engine import judging
from sysperf.model.cause import Cause
from sysperf.model.rule import Advice, AnyFix, Env, Experiment, Guard, Impact, Preload, Rule, Sysctl
from sysperf.report import explain
from sysperf.report.terminal import cells
from tests.golden import ROOT, Golden
from tests.report import reports
from tests.rules.test_catalogue import causes
from tests.shipped import ruleset as rules

FOLDER = ROOT / "tests/report/golden"
CAUSES = causes()

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

    assert "env -u OMP_PLACES OMP_NUM_THREADS=… python …" in text
    assert "preload tcmalloc_minimal" in text
    assert "Write down the version first." in text


def test_conditions_are_shown_when_they_are_asked_for() -> None:
    """What to do comes first; who writes rules asks for more."""
    text = explain.render(RULE, color=False, width=80)

    assert "numa.balancing >= p.limit" not in text
    assert text.index("numactl") < text.index("step time")


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_a_cause_is_one_story(cause: Cause) -> None:
    """What it is, where it shows, what to do; without blanks that only a finding fills in."""
    told = explain.render(judging.find(rules(), cause.id), color=False, width=100)

    assert told.startswith(f"{cause.id}\n{cause.title[:40]}")
    assert all(f"{witness.from_} " in told for witness in cause.witness)
    said = [signal.says.partition("{")[0].strip() for witness in cause.witness for signal in witness.signals]
    assert all(begin in " ".join(told.split()) for begin in said), said
    assert not re.search(r"……|\. …\.\s", told), cause.id
    assert "{" not in told.replace(cause.explain, "") or cause.example is not None
    assert all(part in " ".join(told.split()) for part in (*cause.explains, *cause.explains_where_most))


@pytest.mark.parametrize(
    ("cause", "fixes"), [("dataloader.inline", 1), ("dataloader.total-over-cpus", 2), ("limits.slurm-cpus-per-task-lost", 1)]
)
def test_a_fix_that_witnesses_fill_in_is_told_once(cause: str, fixes: int) -> None:
    """With what stands there where nothing was seen."""
    told = explain.render(judging.find(rules(), cause), color=False, width=100)

    assert told.count("\n  fix ") == fixes
    assert "\n  fix       … (" not in told


def test_no_fix_of_a_cause_is_told_twice() -> None:
    """Nor as two that begin alike."""
    for cause in CAUSES:
        told = explain.render(judging.find(rules(), cause.id), color=False, width=100).split("\n  fix ")[1:]
        assert len({text.strip()[:30] for text in told}) == len(told), cause.id

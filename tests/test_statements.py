"""What is said of the articles' statements follows from the records in benchmarks/results, in docs and in the program alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.cli import main
from sysperf.engine import statements
from sysperf.model.ladder import Ladder, RungResult
from sysperf.model.record import from_json, to_json
from sysperf.model.statement import Effect, Measured
from sysperf.model.trial import Verdict
from sysperf.report.reference import statements as report
from tests.golden import ROOT, Golden
from tests.invoking import sysperf
from tests.shipped import rules

RECORDS = sorted((ROOT / "benchmarks/results").glob("trainer-*.json"))
PAGE = ROOT / "docs/seeds.md"
BEGIN, END = "<!-- statements -->\n", "<!-- end -->\n"
EFFECTS: dict[Verdict, Effect] = {"faster": "helps", "same": "does nothing", "slower": "harms", "unclear": "unclear"}


def recorded() -> list[Measured]:
    return [one for path in RECORDS for one in of_ladder(from_json(path.read_bytes(), Ladder), path.name)]


def of_ladder(ladder: Ladder, record: str) -> list[Measured]:
    """Return what a record says of the articles' statements."""
    machine = ladder.machine.get("cpu.model_name", "") if ladder.device == "cpu" else ladder.device
    cpus = ladder.machine.get("cpu.cores", "")
    return [
        one
        for rung in ladder.rungs
        if (one := _of_rung(rung, ladder, record, f"{machine}, {cpus} cores" if ladder.device == "cpu" and cpus else machine)) is not None
    ]


def _of_rung(rung: RungResult, ladder: Ladder, record: str, machine: str) -> Measured | None:
    comparison = rung.trial("added", "at the bottom")
    if not rung.seeds or comparison is None or comparison.ratio is None or comparison.low is None or comparison.high is None:
        return None
    effect: Effect = "unclear" if rung.outcome == "losses differ" else EFFECTS[comparison.verdict]
    return Measured(
        seeds=rung.seeds, rung=rung.id, workload=ladder.workload, effect=effect, ratio=comparison.ratio, low=comparison.low,
        high=comparison.high, pairs=comparison.pairs, mechanism=rung.mechanism, machine=machine, torch=ladder.torch, record=record,
    )  # fmt: skip


def test_what_sysperf_says_is_what_the_records_say(golden: Golden) -> None:
    """The package has the verdicts, the repository has the runs."""
    golden(ROOT / "sysperf/statements/measured.json", to_json(recorded(), indent=1).decode() + "\n")


def test_the_page_has_each_statement_with_its_verdict(golden: Golden) -> None:
    """Generated: a table, and the machines of its records."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    told = report.table(statements.statements(), recorded())
    golden(PAGE, f"{head}{BEGIN}{told}\n{report.machines(recorded())}{END}{tail}")


@pytest.mark.parametrize("seed", [seed for one in statements.statements() for seed in one.ids])
def test_each_statement_can_be_explained(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what it says and what is true of it."""
    assert main(["explain", "--seed", seed]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(statements.statement(seed).name)
    assert "  measured" in printed or "  here" in printed  # here: whoever runs this has climbed the ladder


def test_a_rule_names_the_statement_that_it_covers(tmp_path: Path) -> None:
    """And what was measured of it where that was."""
    done = sysperf("explain", "openmp.affinity-pins-workers", env={"PATH": "/usr/bin:/bin", "STATE_DIRECTORY": str(tmp_path)})

    assert "S0.7c" in done.stdout
    assert "**" not in sysperf("explain", "compile.recompiles").stdout
    assert "GOMP_CPU_AFFINITY=0-3" in done.stdout


def test_every_seed_of_a_rule_is_a_statement() -> None:
    """A typing error would be an article's statement that nobody finds."""
    known = {seed for one in statements.statements() for seed in one.ids}

    assert {seed for rule in rules() for seed in rule.seeds} <= known


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--seed", "S9.9"), "no such statement"),
        ((), "a rule's id, or a statement"),
        (("--seed", "S0.3a", "numa.balancing-on"), "one of them"),
    ],
)
def test_what_is_no_statement_is_an_error(argv: tuple[str, ...], message: str) -> None:
    """With what to do."""
    done = sysperf("explain", *argv, env={"PATH": "/usr/bin:/bin"})

    assert done.returncode == 2
    assert message in done.stderr

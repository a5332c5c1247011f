"""The ladder as data: what sysperf knows of a trainer without torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import sysperf_trainer
from sysperf_trainer import showing
from sysperf_trainer.chosen import Chosen, UnknownRung
from sysperf_trainer.rung import DOUBTFUL, LADDER, MEMORY, VARIANT, WORKLOADS
from sysperf_trainer.rungs import BY_ID, RUNGS

from sysperf import plugin
from sysperf.model.record import to_json
from sysperf.trace.facts import Rank
from tests import shipped
from tests.golden import Golden

PACKAGE = Path(sysperf_trainer.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "trainer.md"
BEGIN, END = "<!-- rungs: written by `make generated` -->\n", "<!-- end of rungs -->"
IN_CODE = [rung for rung in RUNGS if rung.launch is None]


def test_a_rung_is_asked_for_in_one_file_and_once() -> None:
    """A reader who searches for an id finds its description and the line that it changes, and nothing else."""
    places = {rung.id: showing.places(rung.id) for rung in IN_CODE}

    assert {name: found for name, found in places.items() if len(found) != 1} == {}


def test_code_asks_for_no_unknown_rung() -> None:
    """Each text that is looked up in the chosen rungs is an id of the ladder."""
    asked = [
        word
        for path in PACKAGE.rglob("*.py")
        for word in re.findall(r'"([\w-]+)" (?:not )?in (?:self\.)?(?:options\.)?(?:chosen|rungs)', path.read_text())
    ]

    assert len(asked) >= len(IN_CODE)
    assert set(asked) <= set(BY_ID)


def test_ids_are_unique_and_lead_to_known_rungs() -> None:
    """What a rung requires, replaces and excludes exists, and so does its role."""
    assert len(BY_ID) == len(RUNGS)
    assert {other for rung in RUNGS for other in (*rung.requires, *rung.excludes, rung.instead_of) if other} <= set(BY_ID)
    assert {rung.role for rung in RUNGS} <= {LADDER, VARIANT, MEMORY, DOUBTFUL}
    assert all(rung.title and rung.workloads and set(rung.workloads) <= set(WORKLOADS) for rung in RUNGS)


def test_rules_and_statements_of_rungs_exist() -> None:
    """The rules are shipped, and docs/seeds.md has the statements."""
    seeds = (Path(__file__).parents[2] / "docs" / "seeds.md").read_text()
    known = {rule.id for rule in shipped.rules()}

    assert {rule for rung in RUNGS for rule in rung.rules} <= known
    assert {rule for rung in RUNGS if rung.launch for rule in rung.launch.wrap_rules} <= known
    numbers = {seed.split(".")[0] + "." + re.match(r"\d+", seed.split(".")[1])[0] for rung in RUNGS for seed in rung.seeds}  # type: ignore[index]
    assert {number for number in numbers if number not in seeds and not _in_a_range(number, seeds)} == set()


def _in_a_range(number: str, text: str) -> bool:
    """Whether a statement is one of a range such as S1.11-S1.13."""
    article, index = number.split(".")
    ranges = re.findall(r"(S\d)\.(\d+)\w?–(?:S\d\.)?(\d+)?", text)
    return any(article == first and int(low) <= int(index) <= int(high or low) for first, low, high in ranges)


def test_the_page_lists_each_rung(golden: Golden) -> None:
    """With the cause whose cure it is, and how far losses may differ."""
    table = "| rung | what it does | role | causes | articles | losses may differ by |\n|---|---|---|---|---|---|\n"
    for rung in RUNGS:
        role = f"variant of `{rung.instead_of}`" if rung.role == VARIANT and rung.instead_of else rung.role
        causes = ", ".join(f"`{rule}`" for rule in rung.rules)
        only = f" ({rung.workloads[0]})" if len(rung.workloads) == 1 else ""
        bound = f"{100 * rung.loss_bound:g} %" if rung.loss_bound else "nothing"
        table += f"| `{rung.id}`{only} | {rung.title} | {role} | {causes} | {', '.join(rung.seeds)} | {bound} |\n"
    head, _, rest = PAGE.read_text().partition(BEGIN)
    golden(PAGE, f"{head}{BEGIN}{table}{END}{rest.partition(END)[2]}")


def test_figures_and_predictions_of_rungs_exist() -> None:
    """Each figure is one that analyze writes, and each prediction one that its replay makes."""
    figures = {sign.figure for rung in RUNGS for sign in rung.signs}
    assert {figure for figure in figures if not _has(Rank, figure.split("."))} == set()
    assert {rung.predicted_by for rung in RUNGS if rung.predicted_by} <= {rule.predict for rule in shipped.rules()}


def _has(record: type, names: list[str]) -> bool:
    """Whether a record has a field of this name, and what is in it the fields of the other names."""
    kind = get_type_hints(record).get(names[0])
    if kind is None or len(names) == 1:
        return kind is not None
    return any(_has(inner, names[1:]) for inner in (kind, *get_args(kind)) if isinstance(inner, type) and inner is not type(None))


def test_what_does_not_go_together_is_refused() -> None:
    """A variant beside what it replaces, a rung without what it needs, one of the other workload, and a misspelt one."""
    for ids, reason in {
        ("compile", "compile-max-autotune"): "takes the place of compile",
        ("compile-max-autotune", "torchscript"): "choose one",
        ("static-graph", "no-sync", "accumulation"): "does not work beside no-sync",
        ("non-blocking",): "without pinned-memory",
        ("channels-last",): "no meaning for the text workload",
    }.items():
        with pytest.raises(UnknownRung, match=reason):
            Chosen(ids).check("text")
    with pytest.raises(UnknownRung, match="did you mean `compile`"):
        Chosen(["compil"])
    with pytest.raises(UnknownRung):
        "bf61" in Chosen(["bf16"])  # noqa: B015


def test_the_start_joins_the_rungs_of_the_launch() -> None:
    """One `wrap` with the rules of all, the articles' variables and prefixes, and each rank wrapped by itself."""
    start = plugin.trainer().start(
        "python",
        "text",
        ("wrap-cores", "wrap-allocator", "gomp-cpu-affinity", "numactl-node-0", "bf16"),
        ("--seed", "2"),
        ranks=2,
        sysperf=("sysperf",),
    )

    words = " ".join(start.argv)
    assert words.startswith(
        "python -m torch.distributed.run --standalone --nproc-per-node 2 --no-python numactl --cpunodebind=0 --membind=0 sysperf wrap"
    )
    assert words.count("--only") == 1
    assert words.endswith("-- python " + str(PACKAGE / "__main__.py") + " --workload text --rungs bf16 --seed 2")
    assert start.environment == {"GOMP_CPU_AFFINITY": "0-3"}


def test_the_ladder_needs_no_torch_and_prints_where_a_rung_is() -> None:
    """`--show` runs where neither torch nor sysperf is installed."""
    shown = subprocess.run((sys.executable, "-I", str(PACKAGE), "--show", "set-to-none"), capture_output=True, text=True, check=True).stdout

    assert "optimizer.py:" in shown
    assert "zero_grad" in shown
    assert "optimizer.zero-grad-fills" in shown


def test_an_environment_without_torch_is_told_in_a_line() -> None:
    """And how to install it there."""
    done = subprocess.run((sys.executable, "-I", str(PACKAGE), "--workload", "text"), capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "pip install torch" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_module_of_the_ladder_prints_a_traceback_for_a_wrong_command() -> None:
    """All files parse, and the ladder can be written as JSON for whoever shows it."""
    assert all(ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py"))
    assert to_json([rung._asdict() for rung in RUNGS])

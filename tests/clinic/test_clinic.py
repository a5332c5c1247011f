"""`sysperf diagnose` on sick programs, their cured twins, and healthy ones that look suspicious: it names the illness, and nothing else.

They need the machine for themselves, since a neighbour is an illness too: `make clinic` runs them one at a time and prints the table.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator

import pytest

from tests.clinic.clinic import CASES, HEALTHY, PYTHON, Case, Cure, Seen, examine, lacks, printed_cure

LIMIT_S = 30.0
OTHERS_DOING = {"threads.neighbour", "threads.programs-compete", "threads.team-beside-others"}
"""True of any program on a machine that others keep busy."""
NOISE_PCT = 5.0
AGAIN = 2
"""Further pairs, sick and cured by turns, where the first one is not as predicted: their median counts."""
RESULTS: list[tuple[str, bool, set[str], Seen]] = []
PREDICTED: list[tuple[str, Cure, tuple[float, float] | None, float | None]] = []
"""Predicted against measured, with what applied the printed fix."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.clinic,
    pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]


@pytest.fixture(scope="module", autouse=True)
def _score(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print precision and recall over what ran, and the longest time."""
    yield
    right = sum(sick and CASES[name].cause in named for name, sick, named, _ in RESULTS)
    wrong = sum(len(named - ({CASES[name].cause} if sick else set())) for name, sick, named, _ in RESULTS)
    ill = sum(sick for _, sick, _, _ in RESULTS)
    longest = max((seen.took_s for *_, seen in RESULTS), default=0)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for words, is_twin in (("the printed fix", False), ("a cured twin, where the fix is a change by hand", True)):
            both = [
                (low_high, gained) for _, cure, low_high, gained in PREDICTED if low_high and gained is not None and cure.is_twin is is_twin
            ]
            inside, negative = sum(low <= gained <= high for (low, high), gained in both), sum(gained < 0 for _, gained in both)
            print(f"\nwith {words}: {inside} of {len(both)} gains are as predicted, {negative} are negative")
        print(f"twins: {', '.join(name for name, cure, *_ in PREDICTED if cure.is_twin)}")
        print(f"recall {right} of {ill}; precision {right} of {right + wrong}; longest {longest:.1f} s")


def said(seen: Seen, name: str) -> set[str]:
    """The causes that were named; what is as true of the program counts as its illness."""
    case = CASES.get(name, Case(""))
    return {case.cause if cause in case.also else cause for cause in set(seen.causes) - (OTHERS_DOING - {case.cause})}


@pytest.mark.parametrize("name", CASES)
def test_an_illness_is_named_and_nothing_else(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Within half a minute; with the fix that was printed it is faster, by about as much as was predicted, and never slower."""
    if lack := lacks(CASES[name]):
        pytest.skip(lack)
    sick = examine(name, "sick")
    cure = printed_cure(sick.document, CASES[name])
    gained = measured(sick, examine(name, "cured", diagnose=False, cure=cure))
    if not is_as_predicted(sick.predicted, gained):
        pairs = [measured(examine(name, "sick", diagnose=False), examine(name, "cured", diagnose=False, cure=cure)) for _ in range(AGAIN)]
        gained = statistics.median([pair for pair in (gained, *pairs) if pair is not None])
    named = said(sick, name)
    RESULTS.append((name, True, named, sick))
    PREDICTED.append((name, cure, sick.predicted, gained))
    with capsys.disabled():
        print(f"\n{line(name, sick, gained, cure)}")

    assert named == {CASES[name].cause}
    assert sick.took_s < LIMIT_S
    assert gained is None or gained > -NOISE_PCT


def measured(sick: Seen, cured: Seen) -> float | None:
    """How much of the step's time the cure saved, in percent."""
    return 100 * (1 - sick.steps_per_s / cured.steps_per_s) if sick.steps_per_s and cured.steps_per_s else None


def is_as_predicted(predicted: tuple[float, float] | None, gained: float | None) -> bool:
    """Whether a measured gain lies in its interval; of what was not predicted or not measured, nothing is expected."""
    return predicted is None or gained is None or predicted[0] <= gained <= predicted[1]


def line(name: str, sick: Seen, gained: float | None, cure: Cure) -> str:
    """What was named, how long it took, and predicted against measured gain of the step's time."""
    predicted = "-" if sick.predicted is None else f"{sick.predicted[0]:.0f} to {sick.predicted[1]:.0f} %"
    cost = "-" if gained is None else f"{gained:.0f} %"
    causes = ", ".join(f"{cause} ({state})" for cause, state in sick.causes.items()) or "nothing"
    return f"{name:<24} {sick.took_s:4.1f} s  predicted {predicted:<12} measured {cost:<6} by {cure.how:<11} {causes}"


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_is_left_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It looks suspicious, and is not ill."""
    seen = examine(name, "cured")
    RESULTS.append((name, False, said(seen, name), seen))
    with capsys.disabled():
        print(f"\n{name:<24} {seen.took_s:4.1f} s  {seen.verdict}")

    assert said(seen, name) == set()

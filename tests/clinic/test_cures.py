"""What the clinic makes of a printed fix, without a program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clinic.clinic import Case, Cure, printed_cure


@pytest.mark.parametrize(
    ("fixes", "cure"),
    [
        ([{"title": "", "start": {"set": {"OMP_NUM_THREADS": "2"}}}], Cure("environment", env=(("OMP_NUM_THREADS", "2"),))),
        ([{"title": "unset", "start": {"unset": ["OMP_PROC_BIND"]}}], Cure("environment", unset=("OMP_PROC_BIND",))),
        (
            [{"title": "bind", "start": {"wrap": ["--cpus", "0"]}}, {"title": "bind", "start": {"wrap": ["--cpus", "1"]}}],
            Cure("wrap", wraps=(("--cpus", "0"), ("--cpus", "1"))),
        ),
        (
            [{"title": "DataLoader(..., num_workers=2, persistent_workers=True) and torch.set_num_threads(1)", "start": None}],
            Cure("text", patch=(("num_workers", 2), ("threads", 1))),
        ),
        (
            [{"title": "keep them", "start": None}, {"title": "a diff", "source": {"rule": "dataloader.workers-made-again"}}],
            Cure("lint --fix", rule="dataloader.workers-made-again"),
        ),
        ([{"title": "log every 50 steps", "start": None}], Cure()),
    ],
)
def test_a_printed_fix_is_what_the_sick_program_gets(fixes: list[dict[str, Any]], cure: Cure) -> None:
    """As it was printed; of a text, what the program can be told, and else the cured twin."""
    document = {"causes": [{"rule": "other", "fixes": []}, {"rule": "it", "fixes": fixes}]}
    follows = ("num_workers", "threads")

    assert printed_cure(document, Case("it", follows=follows)) == cure
    assert printed_cure(document, Case("as true", frozenset(("it",)), follows=follows)) == cure

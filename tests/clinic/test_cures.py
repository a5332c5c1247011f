"""What the clinic makes of a printed fix, without a program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clinic.clinic import Cure, printed_cure


@pytest.mark.parametrize(
    ("fix", "cure"),
    [
        ({"title": "set OMP_NUM_THREADS", "start": {"set": {"OMP_NUM_THREADS": "2"}}}, Cure("sick", (("OMP_NUM_THREADS", "2"),))),
        ({"title": "unset", "start": {"unset": ["OMP_PROC_BIND"]}}, Cure("sick", unset=("OMP_PROC_BIND",))),
        ({"title": "bind", "start": {"wrap": ["--cpus", "0"]}}, Cure("sick", wrap=("--cpus", "0"))),
        (
            {"title": "DataLoader(..., num_workers=2, persistent_workers=True) and torch.set_num_threads(1)", "start": None},
            Cure("sick", (("CLINIC_WORKERS", "2"), ("CLINIC_THREADS", "1"))),
        ),
        ({"title": "log every 50 steps", "start": None}, Cure()),
    ],
)
def test_a_printed_fix_is_what_the_sick_program_gets(fix: dict[str, Any], cure: Cure) -> None:
    """Its variables and numbers as they were printed; else what its text describes."""
    assert printed_cure({"causes": [{"rule": "other", "fixes": []}, {"rule": "it", "fixes": [fix]}]}, "it") == cure

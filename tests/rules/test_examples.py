"""The examples of causes: the slow source shows the cause, the better one does not, and `lint --fix` turns one into the other."""

from __future__ import annotations

import pytest

from sysperf.engine import lint as engine
from sysperf.engine.lint import fix
from sysperf.model.cause import Cause
from sysperf.script.changes.codemods import CODEMODS
from sysperf.script.file import File
from sysperf.script.source import Source
from tests.rules.test_catalogue import causes
from tests.script.scripts import hits, shipped

IN_SOURCE = [cause for cause in causes() if "source" in {witness.from_ for witness in cause.witness}]
WITHOUT = {"precision.bfloat16-unsupported"}
"""It looks at the machine's GPUs, too: no source shows it by itself."""
each = pytest.mark.parametrize("cause", [cause for cause in IN_SOURCE if cause.example], ids=lambda cause: cause.id)


def test_every_cause_that_source_shows_has_an_example() -> None:
    """Printed by `sysperf explain`."""
    assert {cause.id for cause in IN_SOURCE if cause.example is None} == WITHOUT


@each
def test_the_slow_source_shows_the_cause_and_the_better_one_does_not(cause: Cause) -> None:
    """Judged as `sysperf lint` does it, from the source on."""
    assert cause.example is not None

    assert cause.id in hits(cause.example.bad)
    assert cause.id not in hits(cause.example.good)


@pytest.mark.parametrize("cause", [cause for cause in IN_SOURCE if cause.id in CODEMODS], ids=lambda cause: cause.id)
def test_fix_turns_the_slow_source_into_the_better_one(cause: Cause) -> None:
    """Byte for byte."""
    assert cause.example is not None
    file = File(Source("train.py", cause.example.bad.encode()))
    own = tuple(hypothesis for hypothesis in engine.judged(file, shipped()).hypotheses if hypothesis.rule == cause.id)

    assert fix.fixed(file, own).after.decode() == cause.example.good

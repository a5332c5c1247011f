"""The articles' statements: what is true of them, and what measuring them gave, in records and on this machine."""

from __future__ import annotations

import os

import msgspec
import tomli

import sysperf
from sysperf.model.errors import UsageError
from sysperf.model.record import convert, from_json
from sysperf.model.statement import Measured, Statement
from sysperf.model.trial import Trial

FOLDER = f"{os.path.dirname(os.path.abspath(sysperf.__file__))}/statements"


class _File(msgspec.Struct):
    statement: tuple[Statement, ...]


def statements() -> tuple[Statement, ...]:
    """Return all statements, in the articles' order."""
    with open(f"{FOLDER}/statements.toml", "rb") as file:
        content: _File = convert(tomli.load(file), _File)
    return content.statement


def statement(seed: str) -> Statement:
    """Return the statement of this id. Raises UsageError."""
    found = next((one for one in statements() if seed in one.ids), None)
    if found is None:
        raise UsageError(f"--seed {seed}: the articles have no such statement", "docs/seeds.md lists them, from S0.1a to S1.18")
    return found


def measured() -> tuple[Measured, ...]:
    """Return what the records that sysperf comes with say."""
    with open(f"{FOLDER}/measured.json", "rb") as file:
        return tuple(from_json(file.read(), tuple[Measured, ...]))


def measured_here(seeds: tuple[str, ...]) -> list[tuple[str, Trial]]:
    """Return (rung, its latest result on this machine) for each rung of the trainer that follows one of these statements."""
    from sysperf import plugin  # noqa: PLC0415 - only who asks about the articles pays for plugins
    from sysperf.engine import gains  # noqa: PLC0415 - as above

    rungs = {rung.id for rung in plugin.trainer().rungs("") if set(seeds) & set(rung.seeds)}
    kept = gains.kept()
    latest = {trial.what: trial for trial in kept.results if trial.experiment == "ladder" and not kept.is_stale(trial)}
    return [(what, trial) for what, trial in latest.items() if what.partition(": ")[2] in rungs]

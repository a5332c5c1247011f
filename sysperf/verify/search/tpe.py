"""Proposals of Optuna's Tree-structured Parzen Estimator, where optuna is installed (extra `prove`).

Its study lives in memory and is made anew from our runs for each proposal, so that one file, ours, holds all that was measured.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence

from sysperf.model.tuning import Choice

MIN_RUNS = 30
"""With fewer runs in all, the model alone does better."""


def available() -> bool:
    """Whether Optuna can be imported."""
    return importlib.util.find_spec("optuna") is not None


def propose(sizes: Sequence[int], values: Sequence[tuple[Choice, float]], seed: int) -> Choice:
    """Propose a choice from (choice, log ratio to plain) of all runs so far."""
    import optuna  # noqa: PLC0415 - 0.5 s and 100 MB, which only this command pays

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ranges = {f"{factor}": optuna.distributions.CategoricalDistribution(list(range(size))) for factor, size in enumerate(sizes)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(multivariate=True, n_startup_trials=0, seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for choice, value in values:
        params = {f"{factor}": level for factor, level in enumerate(choice)}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, value=value))
    asked = study.ask(ranges)
    return tuple(int(asked.params[f"{factor}"]) for factor in range(len(sizes)))

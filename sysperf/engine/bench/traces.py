"""A short trace of a configuration: the figures by which a rung's mechanism shows, and what a replay predicts for the next one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sysperf.engine import analyze
from sysperf.engine.verify import measuring
from sysperf.model.comparison import Variant
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.ladder import Mechanism, Sign
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.trace.replay.fixes import BY_NAME, CPU_WORDS, MIN_COST_PCT
from sysperf.verify import run as verify_run

if TYPE_CHECKING:
    from sysperf.engine.bench.trainer import Trainer
    from sysperf.trace.facts import Rank

TRACED_STEPS = 5
STEPS = 12
"""That a traced run makes: five that wait, two that warm the profiler up, five that are traced."""
LIMIT_S = 900.0
MIN_CHANGE, MIN_POINTS = 0.1, 1.0
"""A figure has changed when it did by a tenth, and a share by a point of percent."""
NSYS = ("nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true", "--stats=false")


class Traced(Record, kw_only=True):
    """What the trace of a configuration says."""

    configuration: tuple[str, ...]
    path: str = ""
    problem: str = ""
    """Why there is no trace, or none that can be read."""
    figures: dict[str, float] = {}
    """Those that rungs name."""
    predictions: dict[str, tuple[float, float]] = {}
    """Percent of the step that taking a cause away would gain, by its name: low, high."""
    device: str = "cpu"
    verdict: str = ""


def take(trainer: Trainer, configuration: tuple[str, ...], number: int) -> Traced:
    """Run a configuration under a profiler and read what it wrote. What goes wrong is the answer."""
    name = f"{number:02}-{configuration[-1] if configuration else 'bottom'}"
    try:
        path = _by_nsys(trainer, configuration, name) if trainer.request.traces_with == "nsys" else _by_torch(trainer, configuration, name)
        return _read(trainer, configuration, path)
    except SysperfError as error:
        return Traced(configuration=configuration, problem=neutral(f"{error}: {error.hint}", 400))


def _by_torch(trainer: Trainer, configuration: tuple[str, ...], name: str) -> str:
    path = f"{_folder(trainer)}/{name}.json.gz"
    options = ("--max-steps", str(STEPS), "--trace", path, "--trace-steps", str(TRACED_STEPS), "--seed", str(trainer.request.seed))
    _run(trainer.variant(configuration, *options, "--no-progress"))
    return path


def _by_nsys(trainer: Trainer, configuration: tuple[str, ...], name: str) -> str:
    """Have Nsight Systems trace the whole of a short run, with NVTX ranges for steps and phases, and export what it wrote."""
    if not shutil.which("nsys"):
        raise UsageError("--traces-with nsys: nsys is not installed", "install Nsight Systems, or leave the option out")
    path = f"{_folder(trainer)}/{name}"
    variant = trainer.variant(configuration, "--max-steps", str(STEPS), "--ranges", "nvtx", "--no-progress")
    _run(Variant(variant.name, (*NSYS, f"--output={path}", *variant.argv), variant.env))
    _run(
        Variant("nsys export", ("nsys", "export", "--type=sqlite", "--force-overwrite=true", f"--output={path}.sqlite", f"{path}.nsys-rep"))
    )
    return f"{path}.sqlite"


def _folder(trainer: Trainer) -> str:
    folder = trainer.request.folder
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SysperfError(f"{folder}: {error.strerror}", "name another folder with --traces") from None
    return folder


def _run(variant: Variant) -> None:
    """Run a program to its end. Raises RunFailed."""
    try:
        done = verify_run.run(variant.argv, variant.environment(dict(os.environ)), limit_s=LIMIT_S)
    except OSError as error:
        raise SysperfError(f"{variant.name}: {error}", "run it again") from None
    measuring.check(
        variant, msgspec.structs.replace(done, left_behind=0), LIMIT_S
    )  # nsys leaves a daemon, which was ended; nothing is timed here


def _read(trainer: Trainer, configuration: tuple[str, ...], path: str) -> Traced:
    rank = analyze.account_for(path).facts()
    wanted = {figure for rung in trainer.rungs for figure, _, _ in rung.signs}
    figures = {figure: value for figure in sorted(wanted) if (value := figure_of(rank, figure)) is not None}
    # a cause that costs less than a hundredth of the step is not replayed: taking it away gains less
    all_names = BY_NAME if rank.has_device else CPU_WORDS
    predictions = dict.fromkeys(all_names, (0.0, MIN_COST_PCT)) if rank.replay.usable else {}
    predictions |= {one.fix: (one.low, one.high) for one in rank.replay.predictions if rank.replay.usable}
    return Traced(
        configuration=configuration, path=path, figures=figures, predictions=predictions,
        device="cuda" if rank.has_device else "cpu", verdict=rank.verdict,
    )  # fmt: skip


def figure_of(rank: Rank, figure: str) -> float | None:
    """Return a figure by its name below `facts`; None where the trace does not tell."""
    value: object = rank
    for name in figure.split("."):
        value = getattr(value, name, None)
    return float(value) if isinstance(value, int | float) else None


def signs_of(signs: Sequence[tuple[str, str, str]], before: Traced | None, after: Traced | None) -> tuple[Sign, ...]:
    """Return how the figures of a rung changed; those of another kind of device are left out."""
    if before is None or after is None:
        return ()
    here = [(figure, change) for figure, change, device in signs if device in ("any", after.device)]
    return tuple(
        Sign(figure, change, old := before.figures.get(figure), new := after.figures.get(figure), _has_changed(figure, change, old, new))
        for figure, change in here
    )


def _has_changed(figure: str, change: str, before: float | None, after: float | None) -> bool | None:
    if before is None or after is None:
        return None
    apart = (before - after) if change == "falls" else (after - before)
    least = MIN_POINTS if figure.endswith("_pct") else 0.0
    return apart > max(least, MIN_CHANGE * abs(before))


def mechanism(signs: Sequence[Sign]) -> Mechanism:
    """Return whether a rung's mechanism was seen: in one of its figures at least."""
    known = [sign.seen for sign in signs if sign.seen is not None]
    return "unknown" if not known else "seen" if any(known) else "not seen"

"""One measured run of a variant: its metric, what others took meanwhile, and the steps and the loss that the probe saw."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sysperf import paths
from sysperf.host import Host
from sysperf.host.scratch import Scratch
from sysperf.model.comparison import Conditions, Metric, Variant
from sysperf.model.errors import SysperfError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.verify import noise, probe, watch
from sysperf.verify.output import MAX_SEARCH_CPU_S, Match
from sysperf.verify.run import Finished, Meanwhile, run

LIMIT_FACTOR, MIN_LIMIT_S = 10.0, 60.0
"""A run is ended after ten times the longest run of its variant so far, and not within a minute, where --limit does not say less."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - each run has a folder of its own there
MIN_MEMORY_BYTES = 16 << 20
PREPARING = "--prepare"
STAYS = "a program that goes on in the background cannot be timed; have it stay in the foreground"
PREPARING_STAYS = "what prepares a run must end before it begins: start before sysperf what has to stay"
LIMIT_HINT = f"a run may take {LIMIT_FACTOR:g} times the longest one of its kind before it, and no more than --limit"


class RunFailed(SysperfError):
    """A run whose time says nothing."""


class Measured(Record):
    """One run that ended well."""

    value: float
    """The metric; of several instances together."""
    wall_s: float
    cpu_s: float
    load: noise.Load | None = None
    step_times_s: tuple[float, ...] = ()
    """When each step of the process with most steps ended."""
    loss: float | None = None
    """The mean of its last losses; None where the probe saw none."""
    page_faults: int | None = None
    conditions: Conditions | None = None
    unwatched: tuple[str, ...] = ()
    """What could not be seen of the machine meanwhile, and why."""
    agreed_steps: int = 0
    """The steps that a run of a given length was found to have; 0 where it ended by itself, or that is not asked."""

    def bounding(self, metric: Metric) -> Metric:
        """Return the metric by which all runs after this one make as many steps."""
        return msgspec.structs.replace(metric, max_steps=self.agreed_steps) if self.agreed_steps else metric


def measure(
    variant: Variant,
    metric: Metric,
    limit_s: float,
    warm_up: int = 0,
    instances: int = 1,
    meanwhile: Meanwhile | None = None,
    *,
    show_output: bool = False,
) -> Measured:
    """Run a variant once. Raises RunFailed when its time says nothing, SysperfError where the probe has no folder."""
    with _folder() as folder:
        environment = variant.environment(dict(os.environ))
        if metric.counts:
            environment.update(probe.environment(folder, environment, metric.max_steps, metric.counts, run_s=metric.run_s))
        with watch.watching() as ended:
            before = noise.read(Host())
            finished = _finished(variant, environment, limit_s, metric.pattern, meanwhile, show_output=show_output)
            load = noise.between(before, noise.read(Host()), finished.cpu_s)
            watched = ended()
        check(variant, finished, limit_s)
        processes = probe.read(folder, instances) if metric.counts else []
        loss = probe.read_loss(folder) if metric.counts else None
        agreed = probe.agreed_steps(folder) if metric.counts else 0
    value = _value(variant, metric, finished, processes, warm_up, instances)
    times = tuple(processes[0].times) if processes else ()
    seen = (watched.conditions, watched.unknown)
    return Measured(value, finished.wall_s, finished.cpu_s, load, times, loss, finished.page_faults, *seen, agreed_steps=agreed)


def prepare(command: str, limit_s: float, meanwhile: Meanwhile | None = None, *, show_output: bool = False) -> float:
    """Have sh run this, and return how long it took. Raises RunFailed where it fails."""
    variant = Variant(PREPARING, ("sh", "-c", command))
    finished = _finished(variant, dict(os.environ), limit_s, meanwhile=meanwhile, show_output=show_output)
    check(variant, finished, limit_s)
    return finished.wall_s


def _finished(
    variant: Variant,
    environment: Mapping[str, str],
    limit_s: float,
    pattern: str = "",
    meanwhile: Meanwhile | None = None,
    *,
    show_output: bool,
) -> Finished:
    try:
        return run(variant.argv, environment, limit_s=limit_s, pattern=pattern, meanwhile=meanwhile, show_output=show_output)
    except OSError as error:
        raise RunFailed(f"{variant.name}: {error}", "run it again") from None


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder for what the probe writes, removed after the run. Raises SysperfError.

    It lies in memory, where there is room and TMPDIR names no other: no disk that fills up then costs a step.
    """
    try:
        place = _in_memory() or paths.temporary_home()
        folder = Scratch("verify", place)
    except OSError as error:
        raise SysperfError(
            f"there is no folder for the run's files: {error.strerror or error}", "make room there, or set TMPDIR to another folder"
        ) from None
    with folder as path:
        yield path


def _in_memory() -> str | None:
    """A file system in memory with room for the steps of many processes; None: the usual folder."""
    if "TMPDIR" in os.environ or not os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        return None
    room = os.statvfs(SHARED_MEMORY)
    return SHARED_MEMORY if room.f_bavail * room.f_frsize >= MIN_MEMORY_BYTES else None


def limit_s(most_s: float, earlier_s: Sequence[float]) -> float:
    """Return how long a run may take: `most_s`, and no more than ten times the longest run before it."""
    return min(most_s, max(MIN_LIMIT_S, LIMIT_FACTOR * max(earlier_s))) if earlier_s else most_s


def check(variant: Variant, finished: Finished, limit_s: float) -> None:
    """Raise RunFailed for a run whose time says nothing."""
    command = neutral(shlex.join(variant.argv), 300)
    if finished.error:
        as_script = f"a script is run as: python {command}" if variant.argv[0].endswith(".py") and os.path.isfile(variant.argv[0]) else ""
        raise RunFailed(f"{variant.name}: {neutral(finished.error, 300)}", as_script or f"the command is: {command}")
    if finished.match and finished.match.took_too_long:
        raise RunFailed(
            f"the pattern takes more than {MAX_SEARCH_CPU_S:g} s on what {variant.name} printed: {neutral(finished.match.text)}",
            "repeat no group that repeats, such as (a+)+",
        )
    if finished.timed_out:
        raise RunFailed(f"{variant.name} was ended after {limit_s:g} s: {command}", LIMIT_HINT)
    if finished.left_behind:
        raise RunFailed(
            f"{variant.name} left something running, which was ended ({finished.left_behind}): {command}",
            PREPARING_STAYS if variant.name == PREPARING else STAYS,
        )
    if finished.exit_code:
        how = f"was ended by signal {-finished.exit_code}" if finished.exit_code < 0 else f"ended with exit code {finished.exit_code}"
        last = [line for line in finished.tail.splitlines() if line.strip()][-3:]
        raise RunFailed(
            f"{variant.name} {how}: {command}", "its last words: " + neutral(" | ".join(last), 600) if last else "it printed nothing"
        )


def _value(variant: Variant, metric: Metric, finished: Finished, processes: Sequence[probe.Steps], warm_up: int, instances: int) -> float:
    """The metric; what several instances do together: the sum of their rates, or the wall time for one of them."""
    if metric.counts:
        return sum(_rate(variant, metric, steps, warm_up) for steps in processes or (probe.Steps(()),))
    value = _printed(variant, metric.pattern, finished.match) if metric.pattern else finished.wall_s / instances
    if not (math.isfinite(value) and value > 0):
        raise RunFailed(f"{variant.name} printed {value:g}, of which no ratio can be made", "the value must be greater than 0")
    return value


def _printed(variant: Variant, pattern: str, match: Match | None) -> float:
    """The number that the pattern matched last."""
    pattern = neutral(pattern, 200)
    if match is None:
        raise RunFailed(f"nothing that {variant.name} printed matches {pattern}", "the pattern's last group is the number")
    if match.value is None:
        raise RunFailed(
            f"what {pattern} matched last is no number: '{neutral(match.text)}'",
            "its last group is the number: 'speed: ([0-9.]+)'; a comma may only set thousands apart",
        )
    return match.value


def _rate(variant: Variant, metric: Metric, steps: probe.Steps, warm_up: int) -> float:
    rate = probe.steps_per_s(steps, warm_up)
    if rate is not None:
        return rate
    what = "calls of a model" if metric.counts == "forward" else "optimizer steps"
    if not steps.times:
        raise RunFailed(
            f"{variant.name} made no {what} that could be counted",
            "it must run in a Python that reads PYTHONPATH, with torch 2.0 or newer; for inference, --steps forward",
        )
    raise RunFailed(f"{variant.name} made only {len(steps.times)} {what}", f"a run needs {probe.MIN_STEPS} or more after its warm-up")

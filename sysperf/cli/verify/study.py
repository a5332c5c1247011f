"""A study of `sysperf verify` while it runs: the question before it, the file to resume it from, the line on stderr."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Protocol, TypeVar

import msgspec

from sysperf import paths
from sysperf.cli import _options
from sysperf.engine import change
from sysperf.engine.verify import Plan, State, resuming
from sysperf.host import files
from sysperf.host.plain_files import read_orders
from sysperf.model.change import Setting
from sysperf.model.comparison import Arm, Metric
from sysperf.model.errors import UsageError
from sysperf.model.record import Record, from_json, to_json
from sysperf.report import changes
from sysperf.report.experiments import comparison
from sysperf.report.terminal import clip
from sysperf.report.words import count
from sysperf.verify.stats import LOOKS
from sysperf.verify.study import Study

MAX_STATE_BYTES = 16 << 20
USUAL_COLUMNS = 80
"""Of a terminal that does not know its size, such as that of `script` or of a container."""


class _Sound(Protocol):
    def is_sound(self) -> bool: ...


_T = TypeVar("_T", bound=_Sound)


def confirm(settings: tuple[Setting, ...]) -> None:
    """Show what would be changed during B's runs, and ask, where that is anything. Raises UsageError where nobody agrees."""
    planned = change.Changer().plan(settings)
    if not planned.changes:
        return
    sys.stderr.write(changes.plan(planned, color=False, width=_options.width()))
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed: it was not confirmed", "look at the plan, then add --yes")
    if not _options.agreed(f"Change {changes.count(planned.changes)} during each run of B, and undo it after it?"):
        raise UsageError("nothing was changed: it was declined", "`sysperf verify` without --fix and --set changes no settings")


def state_path(plan: Plan) -> str:
    """Return where a study of these commands in this folder is kept."""
    metric = msgspec.structs.replace(plan.metric, max_steps=0) if plan.metric.run_s else plan.metric  # its first run says how many
    key = [os.getcwd(), plan.a, plan.b, metric, *([plan.settings] if plan.settings else []), *([plan.prepare] if plan.prepare else [])]
    return f"{paths.state_folder()}/verify/{hashlib.sha256(to_json(key)).hexdigest()[:16]}.json"


def begun(plan: Plan, *, resume: bool) -> State:
    """Return the study of these commands as it was left, with this plan, or a new one. Raises UsageError."""
    machine = resuming.machine()
    state = StudyFile(state_path(plan)).read(State) if resume else None
    if state is None:
        return State(plan=plan, machine=machine)
    resuming.check(state.machine, machine)
    if plan.one_look != state.plan.one_look:  # the level of a look depends on how many there are
        how, hint = ("with", "add it, too") if state.plan.one_look else ("without", "leave it out")
        raise UsageError(f"the study was begun {how} --one-look", f"{hint}, or run it without --resume")
    return msgspec.structs.replace(state, plan=msgspec.structs.replace(plan, seed=state.plan.seed))


class StudyFile:
    """The file of a study in progress. It never holds more than can be read again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_kept = True

    def read(self, kind: type[_T]) -> _T | None:
        """Return the study as it was left; None where there is none. Raises UsageError."""
        try:
            state: _T = from_json(read_orders(self._path, MAX_STATE_BYTES), kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._path}: {getattr(error, 'strerror', None) or error}", "run it without --resume") from None
        if not state.is_sound():
            raise UsageError(f"{self._path}: its figures cannot be those of runs", "run it without --resume")
        return state

    def write(self, state: Record) -> None:
        """Keep it. Where that fails, say so once: a study goes on without."""
        problem = self._problem(to_json(state))
        if problem and self._is_kept:
            sys.stderr.write(f"sysperf: {self._path}: {problem}: the study goes on, but --resume will not find it all\n")
        self._is_kept = not problem

    def _problem(self, content: bytes) -> str:
        """Write it; return why that is not possible, or ""."""
        if len(content) > MAX_STATE_BYTES:
            return f"the study has more than {MAX_STATE_BYTES >> 20} MiB"
        try:
            files.make_folder(os.path.dirname(self._path))
            files.write_whole(self._path, lambda file: file.write(content), mode=0o600)
        except OSError as error:
            return error.strerror or str(error)
        return ""


def say_nothing_new() -> None:
    """Say on stderr that a study that is gone on with had ended: its result was kept when it was new."""
    sys.stderr.write("sysperf: this study had ended: its result is shown again, and not kept anew; without --resume it is done again\n")


class Progress:
    """Keeps the study after each run, and says on stderr how it stands: one line that is rewritten on a terminal."""

    def __init__(self, plan: Plan) -> None:
        self._file = StudyFile(state_path(plan))
        self._rewrites = not plan.show_output
        say(ahead(plan), is_over=False, rewrites=self._rewrites)

    def __call__(self, state: State) -> None:
        self._file.write(state)
        say(progress_line(state), is_over=is_over(state), rewrites=self._rewrites)


def ahead(plan: Plan) -> str:
    """Return what is to come before anything has run: how long a run is, and when the study ends."""
    first = plan.max_pairs if plan.one_look else min(LOOKS[0], plan.max_pairs)
    looks = f"looked at after {first} pairs, {plan.max_pairs} at most"
    until = f"{plan.budget_s / 60:.3g} min at most, {looks}" if plan.budget_s else looks
    return f"{run_length(plan.metric)}; {until}"


def run_length(metric: Metric) -> str:
    """Return how long each run is, as far as that is known before the first one."""
    if metric.run_s:
        return f"each run makes {metric.run_s:g} s of steps"
    if metric.max_steps:
        return f"each run makes {metric.max_steps} steps; the first one tells how long that takes"
    return f"each run goes on until the program ends{' (--run-seconds 10 ends it sooner)' if metric.counts else ''}"


def tick(state: State, arm: Arm | None, seconds: float) -> None:
    """Show on a terminal what runs, for how long, and what is known of the time that is left."""
    if state.plan.show_output or not _options.rewrites_lines(sys.stderr):
        return
    plan = state.plan
    name = "--prepare" if arm is None else (plan.a if arm == "a" else plan.b).name
    pair_s = state.pair_s()
    left = f"; a pair takes {pair_s:.0f} s" if pair_s else f"; {run_length(plan.metric)}" if not state.runs else ""
    so_far = progress_line(state) if state.runs and state.runs[-1].pair else "warming caches"
    say(f"{name} runs, {seconds:.0f} s{left}; {so_far}", is_over=False)


def say(line: str, *, is_over: bool, rewrites: bool = True) -> None:
    """Write where a study stands on stderr: one line that is rewritten on a terminal, and taken away when it is over."""
    terminal = rewrites and _options.rewrites_lines(sys.stderr)
    if terminal:  # a line that wraps could not be rewritten
        line = clip(line, (os.get_terminal_size(sys.stderr.fileno()).columns or USUAL_COLUMNS) - len("sysperf: ") - 1)
    sys.stderr.write(f"\r\x1b[Ksysperf: {line}" if terminal else f"sysperf: {line}\n")
    if terminal and is_over:
        sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def is_over(state: State) -> bool:
    """Whether the study needs no more runs."""
    return state.study().progress().verdict is not None


def progress_line(state: State) -> str:
    """Return where the study stands, with the estimate so far."""
    study, last = state.study(), state.runs[-1]
    phase = _phase(study, state.plan) if last.pair else "warming caches"
    interval = study.progress().interval
    estimate = ""
    if interval is not None:
        low, middle, high = interval.ratios()
        sure = f"; so far {comparison.percent(middle)} % [{comparison.percent(low)}, {comparison.percent(high)}]"
        estimate = f"; the gain is {comparison.UNKNOWN}" if comparison.between(low, high) == comparison.UNKNOWN else sure
    needed = study.pairs_needed()
    hint = f"; {needed} pairs would be needed" if needed and needed > state.plan.max_pairs else ""
    dropped = f"; {study.dropped} dropped" if study.dropped else ""
    return f"{phase}; last run {last.wall_s:.2f} s{estimate}{dropped}{hint}"


def _phase(study: Study, plan: Plan) -> str:
    if study.is_early():
        return f"clear; measuring the gain on fresh pairs, {len(study.fresh)} of {study.fresh_pairs()}"
    pairs = count(len(study.pairs), "pair")
    if study.decided():
        return f"{pairs}, the last look"
    or_end = ", or when the time is over" if plan.budget_s else ""
    return f"{pairs}, next look at {study.next_look()}{or_end}"

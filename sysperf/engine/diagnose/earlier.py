"""What was said of the same program some minutes before, and what has changed since, where the answer is another one."""

from __future__ import annotations

import contextlib
import os
import time

from sysperf import paths
from sysperf.diagnosis.facts import Diagnosis, Program
from sysperf.diagnosis.verdict import Verdict
from sysperf.engine.diagnose.verdict import OTHERS_DOING
from sysperf.host import files
from sysperf.host.plain_files import read_orders
from sysperf.model.record import Record, from_json, to_json

FILE = "diagnosed.json"
KEPT_S, MAX_KEPT = 600.0, 32
MAX_BYTES = 1 << 20
CHANGED, MIN_CHANGE = 0.25, 0.1
"""A figure has changed by a quarter of it, and by a tenth of a CPU or of the time."""


class Answer(Record, kw_only=True):
    """One diagnosis of a program, as far as the next one is compared with it."""

    pid: int
    start_ticks: int
    """With its number, the name of this very process."""
    at: float
    word: str
    first: str
    """The rule of its first cause; empty where it has none."""
    own: str = ""
    """That of its first cause in the program itself, where others are said first."""
    sentence: str
    figures: dict[str, float] = {}


class _File(Record, kw_only=True):
    answers: tuple[Answer, ...] = ()


def changed(verdict: Verdict, start_ticks: int) -> str:
    """Return how the answer differs from an earlier one, and keep it for the next one; "" where they agree, or there is none."""
    path, now = f"{paths.state_folder()}/{FILE}", time.time()
    kept = [answer for answer in _read(path) if 0 <= now - answer.at < KEPT_S]
    said = answer_of(verdict, start_ticks, now)
    same = [answer for answer in kept if (answer.pid, answer.start_ticks) == (said.pid, said.start_ticks)]
    others = tuple(answer for answer in kept if answer not in same)
    with contextlib.suppress(OSError):
        files.make_folder(os.path.dirname(path))
        whole = to_json(_File(answers=(*others, said)[-MAX_KEPT:]))
        files.write_whole(path, lambda file: file.write(whole), mode=0o600)
    return since(same[-1], said) if same else ""


def answer_of(verdict: Verdict, start_ticks: int, at: float) -> Answer:
    """Return what the next diagnosis of this program is compared with."""
    causes = [cause.rule for cause in verdict.causes]
    return Answer(
        pid=verdict.pid, start_ticks=start_ticks, at=at, word=verdict.verdict, first=next(iter(causes), ""),
        own=next((rule for rule in causes if rule not in OTHERS_DOING), ""), sentence=verdict.sentence, figures=_figures(verdict.facts),
    )  # fmt: skip


def since(before: Answer, now: Answer) -> str:
    """Say what was answered before, and which figures have changed; "" where the answer is the same."""
    if (before.word, before.first, before.own) == (now.word, now.first, now.own):
        return ""
    both = ((name, before.figures[name], value) for name, value in now.figures.items() if name in before.figures)
    moved = [f"{name} {was:.2f} → {value:.2f}" for name, was, value in both if abs(value - was) >= max(MIN_CHANGE, CHANGED * abs(was))]
    why = ", ".join(moved) or "nothing that was counted has changed much, so that both answers are near each other"
    return f"{max(1.0, now.at - before.at):.0f} s ago the answer was: {before.sentence} Since then: {why}."


def _figures(facts: Diagnosis) -> dict[str, float]:
    machine = facts.machine
    computing = max((program for program in facts.programs), key=lambda program: program.threads.used_cpus or 0.0, default=Program(pid=0))
    stacks = computing.stacks
    figures = {
        "CPUs of other PyTorch programs": machine.torch_cpus, "CPUs of other programs": machine.others_cpus, "idle CPUs": machine.idle_cpus,
        "its CPUs": computing.threads.used_cpus, "its main thread's wait for a CPU": computing.main.waited,
        "GPU": computing.gpu.utilization if computing.gpu is not None else None,
        "its stacks seen (1) or not (0)": float(stacks is not None),
        "its wait for the loader": stacks.loader_wait if stacks is not None else None,
        "in its own Python": stacks.python if stacks is not None else None,
        "loader workers": float(computing.workers.count), "memory pressure": machine.memory_pressure,
    }  # fmt: skip
    return {name: round(value, 3) for name, value in figures.items() if value is not None}


def _read(path: str) -> tuple[Answer, ...]:
    """Return what is kept; nothing where it cannot be read, or is somebody else's."""
    try:
        return from_json(read_orders(path, MAX_BYTES), _File).answers
    except (OSError, ValueError):
        return ()

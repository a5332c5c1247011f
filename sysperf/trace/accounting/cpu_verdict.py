"""What bounds a program on the CPU."""

from __future__ import annotations

from sysperf.trace.accounting.answers import Verdict, cannot, counted, of_stage
from sysperf.trace.accounting.causes import MIN_BUSY_PCT, MIN_EXPOSED_PCT
from sysperf.trace.facts import Rank
from sysperf.trace.host_facts import Cpu

MIN_CPU_OPERATORS = 50
MAX_OTHERS_PCT = 50.0
"""Of the time of a program on the CPU: where something else had more, the rest decides, and operators only as nearly all of it."""


def of_cpu(rank: Rank) -> Verdict:
    cpu = rank.cpu
    if cpu is None or cpu.operators + rank.dataloader_calls < MIN_CPU_OPERATORS:
        few = counted(cpu.operators if cpu else 0, "operator")
        return cannot(f"{few} and no device: too little to conclude from; profile some whole steps")
    scattered = rank.hole.scattered_pct or 0.0
    left = max(1.0, 100 - scattered) if scattered >= MAX_OTHERS_PCT else 100.0
    aside = f", without the {scattered:.0f} % in which something else had the CPU" if left < 100 else ""
    python = min(100.0, 100 * (cpu.python_recurring_pct + cpu.gc_pct + cpu.compile_recurring_pct) / left)
    causes = {
        "input-bound": (
            rank.loader_recurring_pct or 0.0,
            f"the main thread {'makes batches' if rank.dataloader_workers == '0' else 'waits for the loader'}",
        ),
        "comm-bound": (cpu.communication_pct, _exchanging(rank)),
        "host-bound": (python, _beside(cpu, python)),
    }
    verdict, (share, words) = max(causes.items(), key=lambda item: item[1][0])
    pauses = (rank.hole.pct or 0.0) if rank.hole.recurring_pct is None else 0.0
    if share >= MIN_EXPOSED_PCT and verdict == "host-bound" and pauses >= 1:
        return _with_pauses(f"{words} {share:.0f} % of the time", share, pauses, certain=rank.steps.steady)
    if share >= MIN_EXPOSED_PCT and verdict == "comm-bound":
        return _communicating_on_cpu(rank, words, share)
    if share >= MIN_EXPOSED_PCT and (rank.steps.steady or verdict != "host-bound"):
        return verdict, f"{words} {share:.0f} % of {f'a median step{aside}' if verdict == 'host-bound' else 'the time'}"
    loading = cpu.loader_pct if rank.loader_recurring_pct is None else rank.loader_recurring_pct
    running = 100 - loading - cpu.communication_pct - python
    is_others = left < 100 and 100 * (cpu.operator_pct - cpu.interrupted_pct) < MIN_BUSY_PCT * (left - cpu.interrupted_pct)
    return _running(cpu, running, aside, others_pct=scattered if is_others else 0.0)


def _running(cpu: Cpu, running: float, aside: str, *, others_pct: float) -> Verdict:
    """The verdict where no cause has enough of the time: operators run, or something else had the CPU for so much of it."""
    if others_pct:
        return cannot(f"something else had the CPU {others_pct:.0f} % of the time: trace it again when the machine is quiet")
    if running >= MIN_BUSY_PCT:
        of_what = f" of a median step{aside}" if running > cpu.operator_pct + 1 else ""
        return "compute-bound", f"operators run {running:.0f} % of the time{of_what}"
    return cannot(f"operators run {cpu.operator_pct:.0f} % of the time, and no single cause has {MIN_EXPOSED_PCT:.0f} % of the rest")


def _communicating_on_cpu(rank: Rank, words: str, share: float) -> Verdict:
    """The verdict where a program on the CPU waits for what ranks exchange."""
    own = rank.collectives.own_pct
    if 2 * (rank.collectives.sent_pct or 0.0) > share:
        return of_stage(share, own)
    waiting = share - own if own is not None else 0.0
    aside = f", and {own:.0f} % without waiting for other ranks" if waiting >= 1 else ""
    return "comm-bound", f"{words} {share:.0f} % of the time{aside}"


def _with_pauses(why: str, share: float, pauses: float, *, certain: bool) -> Verdict:
    """The verdict where pauses have a part of which nobody knows whether it comes back."""
    told = f"{why}; pauses of 1 ms and more have {pauses:.0f} %, and without two steps nobody knows whether they come back"
    return ("host-bound", told) if certain and share - pauses >= MIN_EXPOSED_PCT else cannot(told)


def _beside(cpu: Cpu, python: float) -> str:
    """What a program on the CPU does that is neither an operator nor the loader."""
    is_compiling = 2 * cpu.compile_recurring_pct > python
    return "torch.compile compiles" if is_compiling else "the main thread runs Python, or waits, between operators"


def _exchanging(rank: Rank) -> str:
    """What a program on the CPU does that is in communication; a single file does not tell waiting for others from the exchange."""
    return (
        "the program waits for collectives or for other ranks" if rank.collectives.own_pct is None else "the program waits for collectives"
    )

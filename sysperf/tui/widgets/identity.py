"""Which machine this is, and the versions that matter."""

from __future__ import annotations

from typing import Any

from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral
from sysperf.report.machine import facts, identity, look
from sysperf.report.terminal import wrap
from sysperf.tui.source import HERE
from sysperf.tui.widgets.line import Lines, Span, line, padded, span

LABEL = 9
MOST_INSTALLS = 4


def draw(snapshot: Snapshot | None, width: int, origin: str = "") -> Lines:
    """Kernel, CPU, memory, GPU and the PyTorch of each environment, one line each; first, who told it, if not this process."""
    if snapshot is None:
        return [line(span("reading this machine …", "dim"))]
    rows = [("source", origin)] if origin not in ("", HERE) else []
    rows += [(label, told) for label, told in identity(snapshot) if label != "PyTorch"]
    rows += _installs(snapshot, dict(identity(snapshot))["PyTorch"])
    out: Lines = []
    for label, told in rows:
        style = "unknown" if told == "unknown" or told.startswith("unknown:") else ""
        for number, part in enumerate(wrap(neutral(told), max(width - LABEL, 20)) or [""]):
            out.append(line(Span(padded("" if number else label, LABEL), "dim"), span(part, style)))
    return out


def _installs(snapshot: Snapshot, told: str) -> list[tuple[str, str]]:
    installs = look(facts(snapshot, "torch"), "installs") or ()
    if not installs:
        return [("PyTorch", told)]
    active_first = sorted(installs, key=lambda install: (not look(install, "active"), look(install, "version") is None))
    rows = [("PyTorch" if number == 0 else "", _install(one)) for number, one in enumerate(active_first[:MOST_INSTALLS])]
    rest = len(active_first) - MOST_INSTALLS
    return [*rows, ("", f"and {rest} more")] if rest > 0 else rows


def _install(one: Any) -> str:
    def text(name: str) -> str:
        return neutral(str(look(one, name) or ""), 60)

    built = (
        f"CUDA {text('cuda')}" if text("cuda") else f"ROCm {text('hip')}" if text("hip") else "CPU only" if look(one, "cuda") == "" else ""
    )
    more = [built, *(f"{label} {text(name)}" for label, name in (("cuDNN", "cudnn"), ("NCCL", "nccl")) if text(name))]
    known = ", ".join(part for part in more if part)
    return f"{text('release') or 'unknown version'}{f' ({known})' if known else ''} in {text('prefix')}"

"""Which machine this is, and the versions that matter, in a line or two."""

from __future__ import annotations

import re

from sysperf.collect.machine_facts import MachineFacts
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral
from sysperf.report.machine import identity
from sysperf.tui.source import HERE
from sysperf.tui.widgets.line import Lines, Span, fitted, line, span, width_of

TABS_WIDE = 100
"""From so many columns on, the line of tabs says where facts come from."""
_NOISE = r"\((?:R|TM)\)|\b\d+-Core |\bProcessor\b ?| CPU(?= @)| @ [\d.]+GHz"
_ORDER = ("source", "GPU", "CPU", "memory", "kernel", "PyTorch")


def draw(snapshot: Snapshot | None, width: int, origin: str = "", most: int = 2) -> Lines:
    """GPUs, CPUs, memory, kernel and PyTorch; first, who told it, if not this process. What does not fit into `most` lines is left out."""
    if snapshot is None:
        return [line(span("reading this machine …", "dim"))]
    facts, known = MachineFacts(snapshot.areas), dict(identity(snapshot))
    known["PyTorch"] = _torch(snapshot, known["PyTorch"])
    known["CPU"] = re.sub(_NOISE, "", known["CPU"]).replace(" ,", ",")
    if facts.gpus:
        del known["GPU"]  # they have a frame of their own
    elif known["GPU"] == "none":
        known["GPU"] = "no GPU"
    if facts.memory and facts.memory.total_bytes is not None:
        known["memory"] = known["memory"].partition(", ")[0]
    known |= {"source": origin} if origin not in ("", HERE) and width < TABS_WIDE else {}
    return _flowed([(name, neutral(known[name], 160)) for name in _ORDER if name in known], width)[:most]


def _flowed(parts: list[tuple[str, str]], width: int) -> Lines:
    rows: list[list[Span]] = [[]]
    for name, text in parts:
        lost = text == "unknown" or text.startswith("unknown:")
        shown = span(f"{name} {text}" if lost or name in ("source", "memory", "PyTorch") else text, "unknown" if lost else "dim")
        between = Span(" · ", "dim")
        if rows[-1] and width_of((*rows[-1], between, shown)) > width:
            rows.append([])
        rows[-1] += [between, shown] if rows[-1] else [shown]
    return [fitted(line(*row), width) for row in rows]


def _torch(snapshot: Snapshot, summary: str) -> str:
    torch = MachineFacts(snapshot.areas).torch
    if torch is None or not torch.installs:
        return summary
    first, *rest = sorted(torch.installs, key=lambda install: (not install.active, install.version is None))
    built = f"CUDA {first.cuda}" if first.cuda else f"ROCm {first.hip}" if first.hip else "CPU only" if first.cuda == "" else ""
    versions = [built, *(f"{label} {version}" for label, version in (("cuDNN", first.cudnn), ("NCCL", first.nccl)) if version)]
    known = ", ".join(part for part in versions if part)
    more = f", and {len(rest)} more" if rest else ""
    version = first.release or (first.version or "unknown version").partition("+")[0]
    return f"{version}{f' ({known})' if known else ''} in {first.prefix}{more}"

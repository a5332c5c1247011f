"""Which machine this is, and the versions that matter."""

from __future__ import annotations

from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.torch.records import Install
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral
from sysperf.report.machine import identity
from sysperf.report.terminal import wrap
from sysperf.tui.source import HERE
from sysperf.tui.widgets.line import Lines, Span, line, padded, span

LABEL = 9
MAX_INSTALLS = 4


def draw(snapshot: Snapshot | None, width: int, origin: str = "") -> Lines:
    """Kernel, CPU, memory, GPU and the PyTorch of each environment, one line each; first, who told it, if not this process."""
    if snapshot is None:
        return [line(span("reading this machine …", "dim"))]
    rows = [("source", origin)] if origin not in ("", HERE) else []
    rows += [(label, text) for label, text in identity(snapshot) if label != "PyTorch"]
    rows += _installs(snapshot, dict(identity(snapshot))["PyTorch"])
    out: Lines = []
    for label, text in rows:
        style = "unknown" if text == "unknown" or text.startswith("unknown:") else ""
        for number, part in enumerate(wrap(neutral(text), max(width - LABEL, 20)) or [""]):
            out.append(line(Span(padded("" if number else label, LABEL), "dim"), span(part, style)))
    return out


def _installs(snapshot: Snapshot, summary: str) -> list[tuple[str, str]]:
    torch = MachineFacts(snapshot).torch
    if torch is None or not torch.installs:
        return [("PyTorch", summary)]
    active_first = sorted(torch.installs, key=lambda install: (not install.active, install.version is None))
    rows = [("PyTorch" if number == 0 else "", _install(install)) for number, install in enumerate(active_first[:MAX_INSTALLS])]
    rest = len(active_first) - MAX_INSTALLS
    return [*rows, ("", f"and {rest} more")] if rest > 0 else rows


def _install(install: Install) -> str:
    labelled = [f"{label} {_short(version)}" for label, version in (("cuDNN", install.cudnn), ("NCCL", install.nccl)) if version]
    known = ", ".join(part for part in (_built_for(install), *labelled) if part)
    return f"{_short(install.release) or 'unknown version'}{f' ({known})' if known else ''} in {_short(install.prefix)}"


def _built_for(install: Install) -> str:
    if install.cuda:
        return f"CUDA {_short(install.cuda)}"
    return f"ROCm {_short(install.hip)}" if install.hip else "CPU only" if install.cuda == "" else ""


def _short(text: object) -> str:
    return neutral(str(text or ""), 60)

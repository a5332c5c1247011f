"""The labelled traces: those in the tree, and those in a folder `traces` where SYSPERF_FIXTURES says."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from sysperf.engine.analyze import Result, analyze
from sysperf.engine.judging import load_rules
from sysperf.evaluate.ruleset import Ruleset

from .synthetic import Machine, written

HERE = Path(__file__).parent.parent / "traces"
CODES = {
    "T0": (
        "trust.file-damaged",
        "trust.clock-impossible",
        "trust.launches-missing",
        "trust.events-dropped",
        "trust.events-missing",
        "trust.device-events-missing",
        "trust.programs-mixed",
    ),
    "T1": ("dataloader.inline", "dataloader.program-waits", "dataloader.batches-too-small-for-workers"),
    "T2": ("device.launch-bound",),
    "T3": ("device.tiny-kernels",),
    "T4": ("sync.per-step", "transfer.back-pageable"),
    "T5": ("dataloader.pin-memory-off",),
    "T6": ("transfer.exposed",),
    "T7": ("precision.tensor-cores-unused",),
    "T8": ("kernels.sizes-not-aligned",),
    "T9": ("optimizer.unfused",),
    "T10": ("optimizer.zero-grad-fills",),
    "T11": ("kernels.elementwise-heavy",),
    "T12": ("kernels.layout-conversions", "kernels.cpu-copies"),
    "T13": ("kernels.cast-churn", "kernels.cpu-copies"),
    "T14": ("attention.unfused",),
    "T15": ("device.modules-loaded",),
    "T16": ("device.allocator-stalls",),
    "T17": ("ddp.communication",),
    "T18": ("ddp.collectives-many",),
    "T19": ("ddp.unequal-ranks",),
    "T20": ("ddp.dataparallel",),
    "T21": ("program.step-outliers", "program.checkpoint-in-step"),
    "T22": ("device.waves-small",),
    "T23": ("device.queue-full",),
    "T24": ("compile.recompiles", "compile.graph-breaks"),
    "T25": ("device.mfu-low",),
    "T26": (
        "dataloader.inline",
        "dataloader.batches-too-small-for-workers",
        "dataloader.program-waits",
        "ddp.communication",
        "program.python-bound",
        "program.hole",
        "program.pauses-scattered",
        "kernels.cpu-fallback",
        "kernels.cpu-copies",
        "optimizer.unfused",
    ),
    "T27": ("device.memory-near-limit",),
    "T28": ("profiler.inflation", "profiler.overhead"),
    "T29": ("device.healthy",),
    "T32": ("ddp.collectives-uneven",),
    "T33": ("ddp.rank-kernels-slow",),
    "T34": ("ddp.straggler-rotates",),
    "T35": ("device.modules-loaded",),
    "T36": ("program.garbage-collection",),
    "T37": ("attention.not-flash",),
    "T38": ("program.region-heavy",),
    "T39": ("program.evaluation-share",),
    "N1": ("program.hole", "device.idle-although-queued"),
    "N2": ("dataloader.inline", "dataloader.program-waits", "device.launch-bound", "program.hole"),
    "N3": ("sync.per-step",),
    "N4": ("dataloader.pin-memory-off",),
    "N5": ("device.launch-calls-slow",),
    "N6": ("device.idle",),
    "N7": ("device.tensor-pipe-idle",),
    "N8": ("device.launcher-waits-for-cpu",),
    "N9": ("threads.share-lock",),
    "N10": ("ddp.communication",),
    "N11": ("device.unified-memory-moves",),
    "N12": ("device.modules-loaded",),
}
"""The codes that labels use, as causes."""


def traces() -> list[Path]:
    """All labelled traces, each once."""
    beside = (os.environ.get("SYSPERF_FIXTURES") or str(HERE.parent.parent.parent / "shared/fixtures"), "traces")
    by_name = {path.name: path for folder in (HERE, Path(*beside)) for path in sorted(folder.glob("*.truth.json"))}
    return [path.parent / path.name.removesuffix(".truth.json") for _, path in sorted(by_name.items())]


def truth(path: Path) -> dict[str, Any]:
    """What is known of a trace."""
    known: dict[str, Any] = json.loads(path.with_name(f"{path.name}.truth.json").read_text())
    return known


@cache
def rules() -> Ruleset:
    return load_rules()


@cache
def result(path: Path) -> Result:
    """The analysis of a labelled trace, made once."""
    return analyze([str(path)], rules())


def analyzed(folder: Path, machine: Machine, **more: object) -> Result:
    """What is said of what a machine recorded."""
    return analyze([written(folder, machine.trace(**more))], rules())


def found(result: Result) -> set[str]:
    """The rules of all findings."""
    return {finding.rule for finding in result.analysis.findings}


def detected(result: Result) -> set[str]:
    """The codes of all findings."""
    return {code for code, causes in CODES.items() if found(result) & {*causes}}

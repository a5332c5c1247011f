"""What a run leaves: the record that `--json` writes. Unknown values are null."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

SCHEMA = 1


class Record(NamedTuple):
    """One run, of the first rank."""

    workload: str
    rungs: list[str]
    skipped: dict[str, str]
    """With `--rungs all`: the rungs that this machine cannot have, and why."""
    device: str
    """The device's name, such as ``NVIDIA H100 80GB HBM3``, or ``cpu``."""
    torch: str
    ranks: int
    size: str
    data: str
    batch: int
    """Samples a step and rank."""
    units_per_sample: int
    unit: str
    weights: int
    seed: int
    threads: int
    """Of torch, for computing."""
    loader_workers: int
    flop_per_sample: int | None = None
    """Floating-point operations of forward and backward pass of the naive model, for MFU: an addition and a multiplication are two."""
    first_step: int = 0
    """Beyond 0 after `--resume`."""
    steps: int = 0
    """That this run made."""
    parts: int = 1
    """Into how many parts a batch was split at the end: by accumulation, or because memory was short."""
    losses: list[float] = []
    step_ends_s: list[float] = []
    """When each step ended on the host, in seconds from the beginning of the first one. Without waiting for a GPU."""
    units_per_s: float | None = None
    """Of this rank, after the warm-up, with the device waited for at both ends; null where too few steps were made, or under a trace."""
    flop_per_s: float | None = None
    """What the naive model would need for as many units: MFU is this by the peak of a matrix product."""
    peak_memory_bytes: int | None = None
    """Of a GPU's allocator; on a CPU the largest resident size of the process."""
    damaged_samples: int = 0
    checkpoints: int = 0
    checkpoint_error: str = ""
    interrupted: bool = False
    error: str = ""


def write(record: Record, path: str) -> None:
    """Write a record as JSON to a file, or to stdout for ``-``. Raises OSError."""
    text = json.dumps({"schema": SCHEMA, **record._asdict()}, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def summary(record: Record) -> str:
    """Return one line on a run."""
    per_second = f"{record.units_per_s:.1f} {record.unit}/s" if record.units_per_s else f"too few steps for {record.unit}/s"
    loss = f"loss {record.losses[-1]:.4f}" if record.losses else "no loss"
    left_out = f", {record.damaged_samples} damaged samples left out" if record.damaged_samples else ""
    return f"{record.workload}: {record.steps} steps, {per_second}, {loss}{left_out}"

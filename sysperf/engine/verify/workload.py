"""The built-in programs that `verify` and `tune` run where the user gives none, in an interpreter of the user's that has torch."""

from __future__ import annotations

import os

from sysperf import verify
from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import reading
from sysperf.host import Host, interpreters
from sysperf.model.comparison import Metric
from sysperf.model.errors import UsageError
from sysperf.model.experiment import EXPERIMENTS

FILE = f"{os.path.dirname(os.path.abspath(verify.__file__))}/workloads/programs.py"
NAMES = (
    "small_mlp",
    "transformer_inference",
    "convolution_training",
    "loader_bound",
    "allocation_heavy",
    "memory_bandwidth",
    "file_reading",
    "host_to_device",
    "pageable_copies",
    "pinned_copies",
)
SECONDS = 3.0
METRIC = Metric("seconds per step", "s", higher_is_better=False, pattern="^([0-9.]+)$")


def command(name: str, python: str = "") -> tuple[str, ...]:
    """Return the command that runs a program, with this interpreter or the one that the shell would take. Raises UsageError."""
    if name not in NAMES:
        raise UsageError(f"--workload {name}: no such program", f"programs are {', '.join(NAMES)}")
    return (interpreter(python), FILE, name, f"{SECONDS:g}")


def of_experiment(experiment: str) -> str:
    """Return the program of an experiment; "" where only the user's own tells."""
    return EXPERIMENTS.get(experiment, "")


def interpreter(python: str = "") -> str:
    """Return the interpreter that is named, else one that has torch: the active one first. Raises UsageError."""
    if python:
        return interpreters.program(python)
    torch = MachineFacts(reading.snapshot(Host(), ("torch",)).areas).torch
    with_torch = [install for install in (torch.installs if torch else ()) if install.interpreter and install.version]
    if not with_torch:
        raise UsageError("no interpreter with torch was found, which a built-in program needs", "name one with --python")
    return str(max(with_torch, key=lambda install: install.active).interpreter)

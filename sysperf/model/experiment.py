"""The experiments that a rule's `measure` field may name, and the program that each runs where the user gives none."""

from __future__ import annotations

from sysperf.model.rule import Advice, Rule

OWN_PROGRAM = "own-program"
EXPERIMENTS = {
    "ab-launch": "convolution_training",
    "ab-allocator": "allocation_heavy",
    "ab-environment": "small_mlp",
    "ab-power": "convolution_training",
    "ab-huge-pages": "allocation_heavy",
    "ab-memory": "memory_bandwidth",
    "ab-readahead": "file_reading",
    "tune-threads": "convolution_training",
    "tune-loader-workers": "loader_bound",
    "pinned-copies": "pinned_copies",
    "h2d-bandwidth": "host_to_device",
    "numa-bandwidth": "memory_bandwidth",
    OWN_PROGRAM: "",
}
"""By name; a program of sysperf/verify/workloads/programs.py, or "" where only the user's own program can tell."""
TUNED = {"tune-threads": "threads", "tune-loader-workers": "loader workers"}
"""Experiments that `tune` does, of one factor."""
BANDWIDTHS = {"numa-bandwidth": "memory", "h2d-bandwidth": "gpu"}
"""Experiments that measure ceilings of this machine: a group of `sysperf bench host`."""
COPIES = "pinned-copies"
"""The experiment of two programs of sysperf's own, also for rules whose advice only a person can follow."""


def choice(rule: Rule) -> str:
    """Return the factor of `tune` of which a rule advises to find the best level; "" where it says what to set."""
    return TUNED.get(rule.measure.experiment, "") if rule.measure and all(isinstance(fix, Advice) for fix in rule.fix) else ""

"""The experiments that a rule's `measure` field may name, and the program that each runs where the user gives none."""

from __future__ import annotations

OWN_PROGRAM = "own-program"
EXPERIMENTS = {
    "ab-launch": "convolution_training",
    "ab-allocator": "allocation_heavy",
    "ab-environment": "small_mlp",
    "ab-power": "convolution_training",
    "ab-huge-pages": "allocation_heavy",
    "ab-memory": "memory_bandwidth",
    "ab-readahead": "file_reading",
    "thread-sweep": "convolution_training",
    "loader-sweep": "loader_bound",
    "pinned-copies": "pinned_copies",
    "h2d-bandwidth": "host_to_device",
    "numa-bandwidth": "memory_bandwidth",
    OWN_PROGRAM: "",
}
"""By name; a program of sysperf/verify/workloads/programs.py, or "" where only the user's own program can tell."""
SWEEPS = {"thread-sweep": "threads", "loader-sweep": "loader workers"}
"""Experiments that try one factor of `tune` at several levels."""
BANDWIDTHS = {"numa-bandwidth": "memory", "h2d-bandwidth": "gpu"}
"""Experiments that measure ceilings of this machine: a group of `sysperf bench host`."""
COPIES = "pinned-copies"
STANDALONE = (*SWEEPS, *BANDWIDTHS, COPIES)
"""Experiments that need no fix to try: `verify --experiment NAME`."""

"""What a run is asked to do: the command line as a record."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.rung import WORKLOADS


class Options(NamedTuple):
    """One run."""

    workload: str
    rungs: Chosen
    device: str = "cpu"
    size: str = "auto"
    """``small`` for a CPU, ``full`` for a GPU, ``large`` (text: 760 million weights), ``tiny`` for tests; ``auto``: by the device."""
    data: str = "real"
    """``cached``: the first batch again and again, which is the ceiling that a loader can reach."""
    max_steps: int = 50
    batch: int = 0
    """Samples a step and rank; 0: what fits the size."""
    seed: int = 1
    deterministic: bool = False
    cache: str = ""
    """The folder of tokens and images; empty: the user's own cache."""
    checkpoints: str = ""
    checkpoint_every: int = 0
    resume: bool = False
    json: str = ""
    tensorboard: str = ""
    trace: str = ""
    """Where to write a trace of `trace_steps` steps after the warm-up, by torch.profiler."""
    trace_steps: int = 5
    ranges: str = "none"
    """``profiler`` or ``nvtx``: steps and phases are named in traces of torch.profiler, or of Nsight Systems."""
    lines: bool = True
    """Print a line every ten steps."""
    progress: bool = False


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from sysperf_trainer import __doc__ as text  # noqa: PLC0415 - the help is what the package says of itself

    options = argparse.ArgumentParser("sysperf_trainer", description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = options.add_argument
    add("--workload", choices=WORKLOADS, help="train a GPT-2 on Python's sources, or a ResNet on JPEG files")
    add("--rungs", default="", metavar="ID,…", help="switch these on; `all`: every one of the ladder that this machine can have")
    add("--without", default="", metavar="ID,…", help="with `--rungs all`: all but these, and what needs them")
    add("--list", action="store_true", help="print the rungs, and why one cannot be had here; with --json as JSON")
    add("--show", metavar="ID", help="print the lines that a rung changes")
    add("--device", default="auto", help="cuda, cpu or auto (default)")
    add("--size", choices=("auto", "tiny", "small", "full", "large"), default="auto", help="default: small on a CPU, full on a GPU")
    add("--data", choices=("real", "cached"), default="real", help="cached: the first batch again and again, a loader's ceiling")
    add("--max-steps", type=int, default=50, metavar="N", help="optimizer steps (default: 50)")
    add("--batch", type=int, default=0, metavar="N", help="samples a step and rank")
    add("--seed", type=int, default=1)
    add("--deterministic", action="store_true", help="refuse operations whose result is not the same in each run")
    add("--cache", default="", metavar="FOLDER", help="keep tokens and images there")
    add("--checkpoints", default="", metavar="FOLDER", help="write checkpoints there")
    add("--checkpoint-every", type=int, default=0, metavar="N", help="after so many steps (default: at the end only)")
    add("--resume", action="store_true", help="go on from the last complete checkpoint")
    add("--json", default="", metavar="FILE", help="write the record of the run; -: to stdout, with nothing else")
    add("--tensorboard", default="", metavar="FOLDER", help="write event files for TensorBoard")
    add("--trace", default="", metavar="FILE", help="write a trace of a few steps by torch.profiler")
    add("--trace-steps", type=int, default=5, metavar="N")
    add("--ranges", choices=("none", "profiler", "nvtx"), default="none", help="name steps and phases in traces (default: none)")
    add("--debug", action="store_true", help="show where an error came from")
    add("--no-progress", action="store_true", help="no bar on a terminal")
    return options


def ids(text: str) -> Sequence[str]:
    """Return the ids of a list with commas."""
    return [word for word in text.replace(" ", ",").split(",") if word]

"""How the trainer is started: the interpreter that has torch, the rungs of the launch, and ranks.

`sysperf wrap` does what its rules say; what only the articles advise is set as they set it. Nothing here needs torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sysperf_trainer.chosen import ALL, Chosen

PROGRAM = f"{os.path.dirname(os.path.abspath(__file__))}/__main__.py"
"""Runs in any interpreter that has torch: it finds its own modules, and puts nothing else on the path."""
SYSPERF = ("sysperf",)


class Start(NamedTuple):
    """A command, and the variables that it needs beside those of its caller."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def start(
    python: str,
    workload: str,
    rungs: Iterable[str] = (),
    arguments: Sequence[str] = (),
    *,
    ranks: int = 1,
    sysperf: Sequence[str] = SYSPERF,
) -> Start:
    """Return how to run these rungs in this interpreter. Raises UnknownRung.

    `all` stands for every rung of the ladder that changes the code. `arguments` are further ones of the trainer; `sysperf` is the
    command that wraps. Of several ranks each one is wrapped.
    """
    asked = tuple(rungs)
    chosen = Chosen(rung for rung in asked if rung != ALL)
    chosen.check(workload)
    in_code = ALL if ALL in asked else ",".join(rung.id for rung in chosen if rung.launch is None)
    program = (python, PROGRAM, "--workload", workload, *(("--rungs", in_code) if in_code else ()), *arguments)
    launches = [rung.launch for rung in chosen if rung.launch is not None]
    wrap_rules = ",".join(rule for launch in launches for rule in launch.wrap_rules)
    wrap_options = tuple(option for launch in launches for option in launch.wrap_options)
    wrap = (*sysperf, "wrap", "--quiet", "--only", wrap_rules, *wrap_options, "--") if wrap_rules else ()
    prefix = tuple(word for launch in launches for word in launch.prefix)
    torchrun = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--no-python") if ranks > 1 else ()
    return Start((*torchrun, *prefix, *wrap, *program), dict(pair for launch in launches for pair in launch.variables))

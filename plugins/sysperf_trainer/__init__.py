"""A small, fast trainer in which each piece of advice is one rung: a flag that is off, and one place in the code.

sysperf's own plugin of kind `trainers`: `rungs` says which advice there is, `start` how to run some of it. Both are data and need no
torch. The trainer itself runs in the interpreter that has torch, where sysperf need not be installed:

    python plugins/sysperf_trainer --workload text                             the naive loop: all rungs off
    python plugins/sysperf_trainer --workload text --rungs bf16,compile        two rungs
    python plugins/sysperf_trainer --workload vision --rungs all --json r.json   as fast as we can make it, and a record
    python plugins/sysperf_trainer --workload text --list                      the rungs, and what this machine lacks for which
    python plugins/sysperf_trainer --show bf16                                 the lines that a rung changes

It prints a line every ten steps on stdout, and an error in one line on stderr. It exits 0 when all steps were made, 2 when the command
is wrong, 3 when a rung cannot be had here, 1 when training failed, 130 after Ctrl-C. `--json FILE` writes what `record.py` describes:
losses, times of steps, units (tokens or images) a second, floating-point operations a step, peak memory; also after Ctrl-C.
Optimizer steps are counted by `sysperf verify --steps optimizer`, because `optimizer.step` is torch's own.

Where to read: `train.py` is the loop, and every file beside it one concern (`data.py`, `step.py`, `precision.py` ...);
`rungs.py` lists the ladder; `text/` and `vision/` are the two workloads.
"""

from sysperf_trainer.launch import Start, start
from sysperf_trainer.rungs import rungs

__all__ = ["Start", "rungs", "start"]

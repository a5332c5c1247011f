"""Compare many machines: which one is bad, different, or silent.

examples:
  sysperf fleet audit records/                      records that nodes wrote: `sysperf node record`
  sysperf fleet audit --hosts 'gpu[001-032]'        by ssh
  salloc -N4 sysperf fleet audit                    the nodes of this Slurm job
  pdsh -N -w n[1-64] sysperf node record | sysperf fleet audit -
  sysperf fleet diff records/ --golden node:n1      what differs from a good node
  sysperf fleet bench --hosts 'n[1-32]'             which node is slow, by runs of suspects beside controls
  sysperf fleet job 4242 --hosts 'n[1-4]'           which rank and which node hold this job up
  sysperf fleet golden records/ --output policy.toml  what most nodes are like, as a policy
  sysperf fleet mark n7 --drain --why gpu.fell-off-bus  tell the scheduler; `marks` lists, `unmark` takes back

exit codes:
  0  nothing at or above --fail-on, nobody differs
  1  a finding at or above --fail-on, or a node that differs from its class
  2  the command line or a file is wrong
  3  with --strict: a node did not answer
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.fleet import audit, bench, diff, golden, job, mark, marks, unmark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_actions(parser, _ACTIONS)


def run(args: argparse.Namespace) -> int:
    return _options.run_action(args, _ACTIONS)


_ACTIONS = {"audit": audit, "diff": diff, "golden": golden, "bench": bench, "job": job, "marks": marks, "mark": mark, "unmark": unmark}

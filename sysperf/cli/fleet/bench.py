"""Which of many nodes is slow: short runs of all, then fresh runs of suspects beside nodes that are as usual.

The worst of a thousand figures look bad by chance. So a first look only chooses suspects: far below the median of their class. Those are
measured again beside three controls, in up to twelve rounds at different times, and named where they are at least 2 % slower. In a class of
fewer than four nodes nobody is named. Nodes that run jobs are left alone under Slurm; with ssh, choose idle ones.

With --pairs the network is measured: all-reduce and send-recv over gloo, or NCCL where nodes have GPUs, between random pairs of nodes,
each with two partners. A node that is slow with both is measured again, as is a link that is slow though its ends are not. Both are named
from 10 % on. One of a pair listens on a port for these seconds, open to whoever reaches it. Nodes must know each other by the names that
are given here.

examples:
  sysperf fleet bench --hosts 'n[1-32]' --only memory
  sysperf fleet bench --hosts 'n[1-32]' --pairs
  sysperf fleet bench --engine slurm
  sysperf fleet bench records/          records of `sysperf node bench --runs 77`: the first five runs of a figure choose, the rest judge
  sysperf fleet bench --engine slurm --runs 15        where runs scatter much
"""

from __future__ import annotations

import argparse

import msgspec

from sysperf.cli import _options
from sysperf.cli.fleet import _nodes
from sysperf.engine.fleet import bench
from sysperf.model.errors import Exit, UsageError
from sysperf.report.fleet import bench as report

NODE_LIMIT_S = 180.0
MAX_RUNS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _nodes.add_arguments(parser, limit_s=NODE_LIMIT_S)
    parser.add_argument("--only", default="memory,matmul,gpu", metavar="GROUPS", help="groups of figures (default: memory,matmul,gpu)")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of each figure at a look (default: 5; 6 in a round)")
    parser.add_argument("--pairs", action="store_true", help="measure what lies between nodes, by pairs, instead of each node")
    parser.add_argument("--strict", action="store_true", help="exit 3 when a node did not answer")
    _options.add_format(parser, *report.FORMATS)
    _options.add_output(parser, verbose="suspects that turned out to be as usual, too")


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.runs <= MAX_RUNS:
        raise UsageError(f"--runs {args.runs}: not between 1 and {MAX_RUNS}", "5 are a good number; 15 where runs scatter by 3 %")
    engine, asked = _nodes.asked(args)
    asked = msgspec.structs.replace(asked, runs=args.runs)
    result = bench.bench(engine, asked, _nodes.say, between=args.pairs)
    _nodes.said()
    text = report.render(result, args.format, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)
    _options.write(text, args)
    if result.slow:
        return Exit.FINDINGS
    unknown = not result.figures or result.interrupted or (args.strict and (result.answered < result.asked or result.unknown))
    return Exit.PARTIAL if unknown else Exit.CLEAN

"""Run a program in two ways, in turn, until it is clear which is faster.

Without options the two are the program plain, and under `sysperf wrap`.

The unit is one launch of the program. Both variants run in pairs, in random order; the first pair only warms caches. Pairs are
looked at after 6, 9, 13, 19, 28 and 40, so that a program is called different from itself in at most 5 % of the studies. A pair
during which others took CPUs is dropped whole. Short noisy runs need many pairs: have a run take seconds. Ctrl-C ends the study
with what is there; --resume goes on with it.

exit codes:
  0  faster or the same; with --ranks any clear answer; with --fail-if-slower: certainly not slower by more than that
  1  slower; with --fail-if-slower: certainly slower by more than that
  2  the command line is wrong, or a run failed
  3  unclear

examples:
  sysperf verify -- python train.py                                   plain against `sysperf wrap`
  sysperf verify --steps optimizer --run-seconds 10 -- python train.py  the same by steps per second, without the start
  sysperf verify --a "python old.py" --b "python new.py"              two commands
  sysperf verify --env ~/venv-2.12 --env ~/venv-2.13 -- python train.py  two interpreters: slower after the upgrade?
  sysperf verify --metric 'steps/s: ([0-9.]+)' --higher-is-better -- python train.py
  sysperf verify --fix numa.balancing-on -- python train.py                is what an audit advises worth it here?
  sysperf verify --fix numa.balancing-on                                   the same by a built-in program
  sysperf verify --all -- python train.py                                  every safe fix that an audit finds
  sysperf verify --ranks 1,4 -- python train.py                            how well does it scale?
  sysperf verify --set vm.swappiness=10 -- python train.py
  sysperf verify --prepare "rm -rf checkpoints" --a "python old.py" --b "python new.py"  each run begins alike
  sysperf verify --fail-if-slower 2 --a "python main.py" --b "python branch.py"  in CI
"""

from __future__ import annotations

import argparse

from sysperf.cli import _measuring, _options
from sysperf.cli.verify import all as verify_all
from sysperf.cli.verify import output
from sysperf.cli.verify import plan as verify_plan
from sysperf.cli.verify import study as verify_study
from sysperf.engine import change
from sysperf.engine.verify import lease, workload
from sysperf.model.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what is compared")
    what.add_argument("--a", type=_measuring.quoted_command, metavar="COMMAND", help="the first command, in quotes, instead of -- COMMAND")
    what.add_argument("--b", type=_measuring.quoted_command, metavar="COMMAND", help="the second command, in quotes")
    what.add_argument("--env", action="append", default=[], metavar="PATH", help="twice: run COMMAND with this interpreter or environment")
    what.add_argument(
        "--wrap-options",
        type=_options.quoted,
        default="",
        metavar="OPTIONS",
        help="options of `sysperf wrap` for wrapped runs, in quotes",
    )
    what.add_argument("--fix", metavar="ID", help="try this rule's fix: its part of `wrap`, or its setting of this machine")
    what.add_argument("--all", action="store_true", help="try every safe fix that an audit finds here, each alone and all together")
    what.add_argument("--ranks", metavar="N,M", help="how efficiently M ranks work, compared with N: steps of each rank per second")
    what.add_argument(
        "--workload", default="", metavar="WORKLOAD", help=f"a built-in program instead of a command: {', '.join(workload.NAMES)}"
    )
    what.add_argument("--python", default="", metavar="PATH", help="the interpreter with torch that runs a built-in program")
    what.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="try this setting of the machine, as `apply` has it")
    what.add_argument("--yes", action="store_true", help="with --fix or --set: change the machine during B's runs without a question")
    what.add_argument(
        "--prepare",
        type=_options.quoted,
        default="",
        metavar="COMMAND",
        help="run this by sh before each run, in quotes; its time does not count: --prepare 'rm -rf checkpoints'",
    )
    measure = _measuring.add_metric(parser)
    measure.add_argument(
        "--margin", type=_measuring.percent, default=1.0, metavar="PERCENT", help="smaller differences are called the same (default: 1)"
    )
    when = parser.add_argument_group("when it stops")
    when.add_argument("--max-pairs", type=int, metavar="N", help="at most so many pairs that count (default: 40)")
    when.add_argument(
        "--one-look", action="store_true", help="use all --minutes, or --max-pairs, and judge once, at the end: the narrowest interval"
    )
    when.add_argument("--keep-disturbed", action="store_true", help="count pairs during which others took CPUs, too")
    when.add_argument("--minutes", type=float, metavar="MINUTES", help="stop when this time is over: the last look is then")
    _measuring.add_limit(when)
    when.add_argument("--resume", action="store_true", help="go on with the study of the same commands that was interrupted")
    when.add_argument("--seed", type=int, default=None, metavar="N", help="of the random order within pairs (default: from the clock)")
    when.add_argument(
        "--fail-if-slower", type=_measuring.percent, metavar="PERCENT", help="exit with 1 only when B is slower by more than this"
    )
    parser.add_argument("--show-output", action="store_true", help="what the runs print goes to stderr, too, while they run")
    _options.add_format(parser, "text", "json", "markdown", "html")
    _options.add_output(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT …]", help="the program and its arguments")
    parser.usage = "sysperf verify [options] -- COMMAND [ARGUMENT …]\n       sysperf verify [options] --a COMMAND --b COMMAND"


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    if args.all:
        return verify_all.run(args)
    plan = verify_plan.planned(args)
    state = verify_study.begun(plan, resume=args.resume)
    if args.resume and not state.runs:
        raise UsageError("there is no interrupted study of these commands", "run it without --resume")
    if plan.settings:
        lease.planned_changes(change.Changer(), plan.settings)
    if plan.settings and not args.yes:
        verify_study.confirm(plan.settings)
    return output.compare(plan, state, args)

"""Print what this machine says of itself to a fleet, as a line of JSON.

A site gathers these lines as it likes, by a job, a cron table or a shell over all nodes, and `sysperf fleet` compares them.
Reads only; nothing is changed.

examples:
  sysperf node record
  sysperf node bench --only memory
  sysperf node bench --format prometheus --output /var/lib/node_exporter/textfile/sysperf-node.prom
  sysperf node ranks --job 4242 --output /shared/job/$(hostname).json
  sysperf node record --output /shared/records/$(hostname).json
"""

from __future__ import annotations

import argparse
import contextlib
import select
import signal
import sys
import threading
from collections.abc import Sequence

import msgspec

from sysperf import plugin
from sysperf.cli import _options, _signals, plugins
from sysperf.engine import judging
from sysperf.engine.configuration import read_config
from sysperf.engine.fleet import record
from sysperf.fleet.names import is_job
from sysperf.host import Host
from sysperf.model.errors import Exit, SysperfError, UsageError
from sysperf.model.node import NodeRecord, is_name
from sysperf.model.record import to_json
from sysperf.report.fleet import node as report

MAX_RUNS = 1_000
LIMIT_S = 120.0
"""For traces of ranks and for pairs, where nobody says how long that may take."""
MIN_PORT = 1_024
MIN_LIMIT_S, MAX_LIMIT_S = 0.1, 3_600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    texts = {
        "record": "an audit, and the facts that matter for speed",
        "bench": "the same with measured figures, as `bench host` takes them",
        "ranks": "the same with what traces of the ranks of a job show, which `fleet job` compares",
        "pair": "what this node and another one reach together, for `fleet bench --pairs`",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=__doc__, formatter_class=_options.formatter)
        action.add_argument(
            "--node", default="", metavar="NAME", help="its name in the fleet (default: SLURMD_NODENAME, else its host name)"
        )
        action.add_argument("--limit", type=_seconds, metavar="SECONDS", help="end after so long, whoever waits for it")
        if name in ("bench", "pair"):
            action.add_argument("--runs", type=int, default=5, metavar="N", help="short runs of each figure (default: 5)")
        if name == "bench":
            action.add_argument(
                "--only", default="memory,matmul,gpu", metavar="GROUPS", help="groups of figures (default: memory,matmul,gpu)"
            )
        if name == "ranks":
            action.add_argument("--job", required=True, metavar="ID", help="the scheduler's job, or torchrun's --rdzv-id")
            action.add_argument("--seconds", type=_seconds, default=3.0, metavar="SECONDS", help="how long they are traced (default: 3)")
            action.add_argument("--begin", type=int, default=0, metavar="MS", help="when, in ms since 1970 (default: in 20 s)")
            plugins.add_choice(action, plugin.TRACES)
        if name == "pair":
            action.add_argument("--pairs", required=True, metavar="NAMES", help="as n1:n2,n3:n4; the first of this node's pair listens")
            action.add_argument("--only", default="all-reduce,send-recv", metavar="FIGURES", help="figures (default: all-reduce,send-recv)")
            action.add_argument("--port", type=int, required=True, metavar="PORT", help="of the first pair; each further one has the next")
        _options.add_machine(action)
        _options.add_rule_files(action)
        action.add_argument("--config", metavar="FILE", help="use only this configuration file")
        _options.add_format(action, "json", "prometheus")
        _options.add_output(action)


def run(args: argparse.Namespace) -> int:
    if args.node and not is_name(args.node):
        raise UsageError(f"--node {args.node[:80]}: no name of a node", "names have letters, digits, dots and hyphens")
    if args.limit:
        signal.setitimer(signal.ITIMER_REAL, args.limit)  # its signal ends us: nothing stays on a node that nobody asks any more
        threading.Thread(target=_end_unheard, args=(threading.get_ident(),), daemon=True).start()
    if not 1 <= getattr(args, "runs", 1) <= MAX_RUNS:
        raise UsageError(f"--runs {args.runs}: not between 1 and {MAX_RUNS}", "5 are a good number")
    said = _paired(args) if args.action == "pair" else _said(args)
    _options.write(report.prometheus(said) if args.format == "prometheus" else to_json(said).decode(), args)
    return Exit.CLEAN


def _end_unheard(thread: int) -> None:
    """End as the limit does once nobody reads our output: sshd closes it where the collector was killed."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    output.poll()
    signal.pthread_kill(thread, signal.SIGALRM)


def _said(args: argparse.Namespace) -> NodeRecord:
    """What this machine says of itself. Raises SysperfError."""
    config = read_config(args.config)
    terms = judging.load_terms(config, judging.machine_rules(config, args.rules))
    said = record.record(_options.host(args), terms, args.node)
    if args.action == "bench":
        said = record.with_ceilings(said, tuple(_options.listed([args.only])), args.runs)
    return _with_ranks(said, args) if args.action == "ranks" else said


def _paired(args: argparse.Namespace) -> NodeRecord:
    """What it reaches with its partner. Raises UsageError."""
    from sysperf.engine.fleet import pair  # noqa: PLC0415 - a record without figures does not pay for it
    from sysperf.engine.fleet.pairs import METRICS  # noqa: PLC0415 - as above

    pairs = [tuple(each.split(":")) for each in args.pairs.split(",")]
    if not all(len(each) == 2 and all(map(is_name, each)) for each in pairs):
        raise UsageError("--pairs: no pairs of names of nodes", "pairs look like n1:n2,n3:n4")
    if not MIN_PORT <= args.port <= pair.MAX_PORT - len(pairs):
        raise UsageError(f"--port {args.port}", f"from {MIN_PORT} on")
    metrics = _options.listed([args.only])
    if unknown := sorted(set(metrics) - set(METRICS)):
        raise UsageError(f"--only {', '.join(unknown)[:80]}: no such figure", f"figures are {', '.join(METRICS)}")
    return pair.measured(args.node, [(one, other) for one, other in pairs], args.port, metrics, args.runs, args.limit or LIMIT_S)


def _with_ranks(said: NodeRecord, args: argparse.Namespace) -> NodeRecord:
    """The record with the ranks of a job. Raises SysperfError."""
    from sysperf.engine.fleet import ranks  # noqa: PLC0415 - reading traces takes as long to import as a record takes

    if not is_job(args.job):
        raise UsageError(f"--job {args.job[:80]}: no name of a job", "names have letters, digits and . _ : [ ] -")
    said = msgspec.structs.replace(said, job=args.job)
    host, tracer = _options.host(args), plugin.tracer(args.traces_plugin)
    found = ranks.find(host, args.job)
    if not found:
        return said
    traces = getattr(tracer, "trace_all", None)
    if traces is None:
        raise UsageError("this plugin traces one program at a time", "leave --traces-plugin out")
    become_owner(host, [each.pid for each in found], tracer)
    _signals.exit_through_cleanup()
    signal.signal(signal.SIGALRM, lambda number, _: sys.exit(128 + number))  # the limit, too, leaves no traces behind
    limit_s = args.limit or LIMIT_S
    return ranks.fitted(said, ranks.traced(host, found, traces, args.seconds, args.begin, 0.8 * limit_s))


def become_owner(host: Host, pids: Sequence[int], tracer: plugin.Tracer) -> None:
    """Become the user of these processes, as root. One that cannot be traced says why later."""
    from sysperf.cli import trace  # noqa: PLC0415 - as above

    for pid in pids:
        with contextlib.suppress(SysperfError):
            trace.become(*tracer.owner(host, pid))
            return


def _seconds(text: str) -> float:
    """Return a time. Raises ArgumentTypeError, which argparse tells."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not MIN_LIMIT_S <= seconds <= MAX_LIMIT_S:
        raise argparse.ArgumentTypeError(f"between {MIN_LIMIT_S:g} and {MAX_LIMIT_S:g}")
    return seconds

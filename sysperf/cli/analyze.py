"""Read a trace, say what took its time, and what each fix would gain.

Takes traces of torch.profiler (.json, .json.gz), exports of Nsight Systems (.sqlite) and, where nsys is installed, its own
reports (.nsys-rep). Several files are the ranks of one job. With --against, two files are one program before and after
a change; several of both are its ranks.
Shares are exposed time: what the device, or on a CPU the main thread, really waited. docs/analyze.md defines them.

exit codes:
  0  nothing at or above --fail-on
  1  at least one finding at or above --fail-on
  2  the command line, a rule file or a trace is wrong

examples:
  sysperf analyze step.json.gz                       the verdict and what costs most
  sysperf analyze rank*.json.gz                      the ranks of one job, and who is late
  sysperf analyze new.json.gz --against old.json.gz  what a change did; also of ranks: new*.json --against old*.json
  sysperf analyze step.json.gz --format html --output step.html --format text
  sysperf analyze step.json.gz --annotate seen.json  for https://ui.perfetto.dev
"""

from __future__ import annotations

import argparse
import os
import sys

from sysperf.cli import _options
from sysperf.engine import analyze as engine
from sysperf.engine import judging
from sysperf.engine.configuration import read_config
from sysperf.model.errors import Exit, UsageError
from sysperf.model.rule import SEVERITIES
from sysperf.report import formats


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="a trace, or one of each rank")
    parser.add_argument(
        "--against",
        nargs="+",
        metavar="TRACE",
        help="compare with these traces of the same program, one for each, in the same order: what did the change do?",
    )
    parser.add_argument("--annotate", metavar="FILE", help="also write the trace with the findings as rows of their own, for Perfetto")
    _options.add_rules(parser)
    _options.add_output(parser, verbose="all of each finding, and what the file cannot tell", several=True)
    _options.add_format(parser, *formats.FORMATS)
    _options.add_schema(parser)
    parser.add_argument("--fail-on", choices=(*SEVERITIES, "never"), default="never", help="exit 1 from this severity on (default: never)")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from sysperf.trace.output import analysis  # noqa: PLC0415 - no analysis needs it

        return _options.write_schema(analysis.schema(), args)
    _keep(args)
    if not args.traces:
        hint = "name the new traces before --against" if args.against else "`sysperf trace PID` takes one of a running program"
        raise UsageError("no trace is named", hint)
    select, ignore = _options.listed(args.select), _options.listed(args.ignore)
    ruleset = judging.trace_rules(read_config(args.config), args.rules, select=select, ignore=ignore)
    if args.against is not None:
        return _compare(args)
    progress = Progress()
    try:
        every_gain = any(one.format == "json" for one in _options.reports(args))
        result = engine.analyze(args.traces, ruleset, progress, every_gain=every_gain)
    finally:
        progress.close()
    if args.annotate:
        _annotate(args, result)
    _options.write_reports(args, lambda one: render(one, result))
    return Exit.FINDINGS if result.report.reaches(args.fail_on) else Exit.CLEAN


def _keep(args: argparse.Namespace) -> None:
    """Raises UsageError where a report, or the annotated trace, would replace a trace."""
    outputs = [("--output", one.output) for one in _options.reports(args)]
    for option, output in (*outputs, ("--annotate", args.annotate)):
        for trace in (*args.traces, *(args.against or ())):
            if output and os.path.exists(output) and os.path.exists(trace) and os.path.samefile(output, trace):
                raise UsageError(f"{option} {output}: is the trace itself", "name another file: the trace stays as it is")


def render(args: argparse.Namespace, result: engine.Result) -> str:
    """The analysis in the format that is asked for."""
    if args.format == "text":
        from sysperf.report.profiling import analysis  # noqa: PLC0415 - for this format only

        return analysis.render(result.analysis, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)
    if args.format == "json":
        from sysperf import __version__  # noqa: PLC0415 - for this format only
        from sysperf.report.formats import as_json  # noqa: PLC0415 - as above
        from sysperf.trace.output.analysis import document  # noqa: PLC0415 - as above

        return as_json.dump(document(result.analysis, __version__))
    if args.format == "html":
        from sysperf.report.profiling import timeline  # noqa: PLC0415 - for this format only
        from sysperf.trace.output.drawing import draw  # noqa: PLC0415 - as above

        return timeline.render(result.analysis, draw(*engine.subjects(result, args.traces)))
    return formats.render(result.report, args.format)


def _annotate(args: argparse.Namespace, result: engine.Result) -> None:
    if len(args.traces) > 1:
        raise UsageError("--annotate takes one trace", "name the rank whose trace is to be annotated")
    from sysperf.trace.output import annotate  # noqa: PLC0415 - for this option only

    annotate.write(args.traces[0], args.annotate, result.accounting or engine.account_for(args.traces[0]), result.analysis)


def _compare(args: argparse.Namespace) -> int:
    if len(args.traces) != len(args.against):
        raise UsageError(
            f"--against compares as many traces: {len(args.traces)} and {len(args.against)} are named",
            "sysperf analyze NEW --against OLD; of a job's ranks, all of both: new*.json --against old*.json",
        )
    if len(_options.reports(args)) > 1:
        raise UsageError("--against writes one report", "give --format and --output once")
    if args.format not in ("text", "json"):
        raise UsageError(f"--against has no format {args.format}", "choose text or json")
    from sysperf.report.formats import as_json  # noqa: PLC0415 - for this option only
    from sysperf.report.profiling import difference as trace_difference  # noqa: PLC0415 - for this option only
    from sysperf.trace.output.difference import Comparisons, compare  # noqa: PLC0415 - as above

    progress = Progress()
    try:
        pairs = zip(args.against, args.traces, strict=True)
        ranks = tuple(compare(engine.account_for(old, progress), engine.account_for(new, progress)) for old, new in pairs)
    finally:
        progress.close()
    mixed = next((one for one in ranks if len({one.rank_before, one.rank_after} - {None}) > 1), None)
    if mixed and len(ranks) > 1:
        raise UsageError(
            f"{mixed.before} is of rank {mixed.rank_before}, {mixed.after} of rank {mixed.rank_after}",
            "name the ranks in the same order, before and behind --against: each pair is compared",
        )
    if args.format == "json":
        text = as_json.dump(ranks[0] if len(ranks) == 1 else Comparisons(ranks=ranks))
    else:
        text = trace_difference.render(ranks, color=_options.wants_color(args), width=_options.width())
    _options.write(text, args)
    return Exit.CLEAN


class Progress:
    """A bar on a terminal; nothing elsewhere."""

    _WIDTH = 30

    def __init__(self) -> None:
        self._terminal = _options.rewrites_lines(sys.stderr)
        self._last = -1

    def __call__(self, path: str, part: float) -> None:
        """Show how far a file was read."""
        cells = int(part * self._WIDTH)
        if not self._terminal or cells == self._last:
            return
        self._last = cells
        name = path.rpartition("/")[2][-40:]
        printable = "".join(char if char.isprintable() else "?" for char in name)
        sys.stderr.write(f"\r\x1b[K{printable} {'█' * cells}{'·' * (self._WIDTH - cells)}")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the bar."""
        if self._terminal and self._last >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

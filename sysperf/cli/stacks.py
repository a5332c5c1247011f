"""Show what the threads of a running Python program do now. Or how its main thread spends its time.

py-spy reads the program's memory; the program is neither stopped nor changed. It needs root
where the program belongs to somebody else or the machine demands it (kernel.yama.ptrace_scope). `--with perf` samples machine
code instead.

examples:
  sysperf stacks 4242                where each thread is now
  sysperf stacks 4242 --seconds 5    shares of loader, forward, backward, optimizer in the main thread's time
  sysperf stacks 4242 --json
  sysperf stacks 4242 --seconds 10 --format html --output flame.html         a flame graph
  sysperf stacks 4242 --seconds 10 --format speedscope --output stacks.json  for https://www.speedscope.app
"""

from __future__ import annotations

import argparse

from sysperf import plugin
from sysperf.cli import _options, plugins
from sysperf.host import Host
from sysperf.model.errors import Exit, UsageError
from sysperf.model.profile import Split, Stacks
from sysperf.report.formats import as_json
from sysperf.report.profiling import flame, profile

SAMPLED = {"folded": flame.folded, "speedscope": flame.speedscope, "html": flame.page}
"""Forms of samples, for viewers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="`sysperf ps` lists the PyTorch programs")
    parser.add_argument(
        "--seconds", type=int, metavar="SECONDS", help="sample for so long, 50 times a second, and print the share of each phase"
    )
    plugins.add_choice(parser, plugin.STACKS)
    _options.add_format(parser, "text", "json", *SAMPLED)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.format in SAMPLED:
        if args.seconds is None:
            raise UsageError(f"--format {args.format} shows samples", "add --seconds 5")
        samples = plugin.stack_taker(args.stacks_plugin).sample(Host(), args.pid, args.seconds)
        _options.write(SAMPLED[args.format](samples), args)
        return Exit.CLEAN
    stacks = taken(args.pid, args.seconds, args.stacks_plugin)
    text = as_json.dump(stacks) if args.format == "json" else rendered(stacks, color=_options.wants_color(args), width=_options.width())
    _options.write(text, args)
    return Exit.CLEAN


def taken(pid: int, seconds: int | None, name: str = "") -> Stacks | Split:
    """Return the stacks of now, or the split of so many seconds, from the plugin of this name. Raises SysperfError."""
    taker = plugin.stack_taker(name)
    if seconds is None:
        return taker.dump(Host(), pid)
    from sysperf.diagnosis import phases  # noqa: PLC0415 - where there are samples

    return phases.split(taker.sample(Host(), pid, seconds))


def rendered(stacks: Stacks | Split, *, color: bool, width: int) -> str:
    """Render as text for people."""
    if isinstance(stacks, Split):
        return profile.split(stacks, color=color, width=width)
    return profile.stacks(stacks, color=color, width=width)

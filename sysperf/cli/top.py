"""Print once what the dashboard shows, as text or JSON. Meters, programs and findings.

examples:
  sysperf top --once             the overview and the PyTorch programs as text
  sysperf top --once --json      the same for scripts: latest meters, programs, findings
  sysperf top                    the dashboard itself
"""

from __future__ import annotations

import argparse
import queue
import time
from typing import TYPE_CHECKING

from sysperf.cli import _options, tui
from sysperf.model.errors import Exit, UsageError

if TYPE_CHECKING:
    from sysperf.tui.now import Now
    from sysperf.tui.source import Source, SourceUpdate

WAIT_S = 30.0
SAMPLES, MAX_SAMPLES = 2, 6
"""Rates need two; an agent has them. Between two samples the kernel may not have counted a tick: then one more is taken, but not
without end, where /proc/stat cannot be read."""
RATE = "cpu.busy"
NO_AGENT = "`sysperf agent` starts one; without --connect this machine is sampled here"
OTHER_SOURCE = "without --connect this machine is sampled here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tui.add_source(parser)
    parser.add_argument("--once", action="store_true", help="print it once and stop")
    parser.add_argument("--json", action="store_true", help="with --once: as JSON")
    _options.add_output(parser)
    parser.set_defaults(theme="", read_only=False)


def run(args: argparse.Namespace) -> int:
    if not args.once:
        if args.json:
            raise UsageError("--json goes with --once", "sysperf top --once --json")
        return tui.run(args)
    with tui.source(args) as origin:
        now = gathered(origin)
        origin.close()
    text = _json(now) if args.json else _text(now, args)
    _options.write(text, args)
    return Exit.CLEAN


def gathered(source: Source, wait_s: float = WAIT_S) -> Now:
    """What a source tells until there are facts and rates. Raises UsageError when it tells nothing."""
    from sysperf.tui.now import Now  # noqa: PLC0415 - with the dashboard's other parts
    from sysperf.tui.source import Problem  # noqa: PLC0415

    news: queue.SimpleQueue[SourceUpdate] = queue.SimpleQueue()
    now, samples, end = Now(), 0, time.monotonic() + wait_s
    now.origin, now.here = source.name, source.local
    source.start(news.put)
    samples_here = source.live and not source.remembers
    needed = SAMPLES if samples_here else 1
    while now.report is None or samples < needed or (samples_here and RATE not in now.meters and samples < MAX_SAMPLES):
        try:
            update = news.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise UsageError(
                now.problem or f"{source.name}: nothing came within {wait_s:.0f} s", "try again, or sample in this process: --no-agent"
            ) from None
        samples += now.take(update) and (now.report is not None or needed == 1)
        if isinstance(update, Problem) and update.text and now.report is None:
            raise UsageError(update.text, NO_AGENT if update.again else OTHER_SOURCE if source.remembers else "")
    return now


def _text(now: Now, args: argparse.Namespace) -> str:
    from sysperf.report.terminal import Ink  # noqa: PLC0415 - as above
    from sysperf.tui.widgets import overview, programs  # noqa: PLC0415
    from sysperf.tui.widgets.line import BLANK  # noqa: PLC0415

    ink, width = Ink(_options.wants_color(args)), _options.width()
    lines = overview.printed(now, width)
    if now.processes():
        lines += [BLANK, programs.head(now, width), *programs.draw(now, now.processes(), width)]
    return "\n".join(
        "".join(ink(_STYLES.get(part.style, part.style or "plain"), part.text) for part in line.spans).rstrip() for line in lines
    )


_STYLES = {
    "cool": "good", "calm": "good", "warm": "warning", "caution": "warning", "hot": "error", "alarm": "error",
    "title": "strong", "mark": "strong", "key": "strong", "frame": "dim",
}  # fmt: skip


def _json(now: Now) -> str:
    from sysperf.report import words  # noqa: PLC0415 - as above
    from sysperf.report.formats import as_json  # noqa: PLC0415 - as above

    data: dict[str, object] = {
        "schema": 1,
        "source": now.origin,
        "at": now.at,
        "verdict": words.verdict(now.report) if now.report and (now.counted or now.findings()) else "",
        "meters": now.meters,
        "unknown": now.unknown,
        "processes": now.processes(),
        "findings": now.findings(),
        "problem": now.problem,
    }
    return as_json.dump(data)

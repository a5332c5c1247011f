"""Which nodes are slow, with intervals; of whom it cannot be told, and what would tell."""

from __future__ import annotations

from collections.abc import Iterator

from sysperf.fleet.names import fold
from sysperf.model.fleet import FleetBench, SlowNode
from sysperf.model.text import neutral
from sysperf.report.formats import as_json
from sysperf.report.formats.as_markdown import code, escape
from sysperf.report.terminal import Ink, Page, table
from sysperf.report.words import count

FORMATS = ("text", "json", "markdown")
MAX_LINKS = 8
MORE_RUNS = "more of them would: `sysperf fleet bench --runs 15`, for records those of `sysperf node bench --runs 195`"
WORDS = {
    "slow": "slow",
    "slower": "slower than most, too little to be called slow",
    "usual": "as its class",
    "unclear": "unclear",
    "not measured": "suspect, not measured again",
}


def render(bench: FleetBench, format: str = "text", *, color: bool = False, width: int = 100, verbose: bool = False) -> str:  # noqa: A002 - the option's name
    """The result in one of `FORMATS`."""
    if format == "json":
        return as_json.dump(bench)
    return _markdown(bench, verbose) if format == "markdown" else _text(bench, Page(Ink(color), width), verbose)


def headline(bench: FleetBench) -> str:
    """``512 of 512 nodes, 6,144 figures: n310 is slow``."""
    silent = "; ".join(f"{each.state}: {fold(each.nodes, 8)}" for each in bench.silent)
    nodes = dict.fromkeys(each.node for each in bench.slow if not each.to)
    links = dict.fromkeys(_name(each) for each in bench.slow if each.to)
    who = ", ".join([*([fold(nodes, 8)] if nodes else []), *list(links)[:MAX_LINKS]])
    nobody = "nobody is called slow" if bench.figures else "nothing was measured"
    said = f"{who} {'is' if len(nodes) + len(links) == 1 else 'are'} slow" if who else nobody
    stopped = ", interrupted" if bench.interrupted else ""
    of = f"{bench.figures:,} figures" if bench.pairs is None else f"{count(bench.pairs, 'pair')}, {bench.figures:,} figures"
    return f"{bench.answered} of {count(bench.asked, 'node')}{f' ({silent})' if silent else ''}, {of}{stopped}: {said}"


def _name(each: SlowNode) -> str:
    """``n7``, or a link by its ends."""
    return neutral(f"link {each.node} – {each.to}" if each.to else each.node, 120)


def _shown(bench: FleetBench, verbose: bool) -> list[SlowNode]:
    return [each for each in bench.suspects if verbose or each.verdict != "usual"]


def _row(each: SlowNode) -> tuple[str, str, str, str]:
    if not each.runs:
        return _name(each), neutral(each.metric, 60), "", WORDS[each.verdict]
    beside = f"{each.runs} runs beside {fold(each.beside, 4)}"
    interval = f"{each.middle_pct:+.1f} % ({each.low_pct:+.1f} to {each.high_pct:+.1f} %)"
    return _name(each), neutral(each.metric, 60), interval, f"{WORDS[each.verdict]}; {beside}"


def _notes(bench: FleetBench) -> Iterator[str]:
    if not bench.figures:
        yield "No pair gave a figure." if bench.pairs is not None else "No figures: nodes give them with `sysperf node bench`."
    for unknown in bench.unknown[:MAX_LINKS]:
        yield f"Not measured between {neutral(' and '.join(unknown.nodes), 160)}: {neutral(unknown.why, 200)}."
    if len(bench.unknown) > MAX_LINKS:
        yield f"So it is between {count(len(bench.unknown) - MAX_LINKS, 'further pair')}."
    if unclear := [each for each in bench.suspects if each.verdict == "unclear"]:
        worst = max(each.tells_from_pct for each in unclear)
        least = f"below {worst:g} %" if worst < 100 else "at all"
        more = MORE_RUNS if bench.pairs is None else "a network that nobody else uses would"
        yield f"Of {count(len(unclear), 'suspect')} these runs cannot tell {least}; {more}."
    if any(each.verdict == "not measured" for each in bench.suspects):
        yield "A suspect that was not measured again is bad by chance as often as not. Measure it and its controls again."
    for name in bench.small:
        yield f"A class of fewer than four nodes, of which nobody is named: {neutral(name)}."
    for each in bench.silent[:MAX_LINKS]:
        yield f"Nothing is known of {fold(each.nodes, 8)}, {each.state}: {neutral(each.reason, 200)}."


def _text(bench: FleetBench, page: Page, verbose: bool) -> str:
    page.paragraph(headline(bench), "error" if bench.slow else "strong")
    page.line()
    if shown := _shown(bench, verbose):
        for line in table(("node", "figure", "beside its class", "verdict"), map(_row, shown), page.ink, page.width):
            page.line(line)
        page.line()
    for note in _notes(bench):
        page.paragraph(note, "unknown")
    least, harmless = (2, 1) if bench.pairs is None else (10, 5)
    page.paragraph(
        f"slow: at least {least} % below its controls, and certainly not less than {harmless} %, at 5 % for all suspects together", "dim"
    )
    return str(page)


def _markdown(bench: FleetBench, verbose: bool) -> str:
    rows = [f"| {' | '.join(code(cell, cell=True) for cell in _row(each))} |" for each in _shown(bench, verbose)]
    table_lines = ["", "| Node | Figure | Beside its class | Verdict |", "|---|---|---|---|", *rows] if rows else []
    return "\n".join([f"## {escape(headline(bench))}", *table_lines, "", *(escape(note) + "\n" for note in _notes(bench))])

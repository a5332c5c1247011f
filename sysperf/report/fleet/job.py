"""Which rank and which node hold a job up: the verdict in a sentence, what says so, and what could not be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sysperf.fleet.names import fold
from sysperf.model.fleet import FleetJob, Hang, JobWindow
from sysperf.model.text import neutral
from sysperf.report.formats import as_json
from sysperf.report.formats.as_markdown import escape
from sysperf.report.terminal import Ink, Page
from sysperf.report.words import count

FORMATS = ("text", "json", "markdown")
ASK_AGAIN = "Ask again for more windows, `--windows 10` with `--every` so many seconds, and for longer ones, `--seconds 10`."
MAX_RANKS = 16
MAX_UNKNOWN = 12


def render(job: FleetJob, format: str = "text", *, color: bool = False, width: int = 100) -> str:  # noqa: A002 - the option's name
    """The result in one of `FORMATS`."""
    if format == "json":
        return as_json.dump(job)
    if format == "markdown":
        return "\n".join([f"## {escape(headline(job))}", "", *(f"- {escape(line)}" for _, line in _lines(job)), ""])
    page = Page(Ink(color), width)
    page.paragraph(headline(job), "good" if job.verdict == "nobody" else "unknown" if job.verdict == "cannot tell" else "error")
    page.line()
    for kind, line in _lines(job):
        page.paragraph(line, kind)
    return str(page)


def headline(job: FleetJob) -> str:
    """``job 4242: n7 holds it up, by rank 3, in 10 of 10 windows (chronic)``."""
    return f"job {neutral(job.job, 80)}: {_said(job)}{', interrupted' if job.interrupted else ''}"


def _said(job: FleetJob) -> str:
    if job.verdict == "hang":
        return _of_hang(job.hangs[0])
    if job.verdict == "nobody":
        return "no rank waits in a collective" if job.engine == "dumps" else "no rank holds it up"
    if job.verdict == "cannot tell":
        return f"cannot tell{f': {why}' if (why := _why_not(job)) else ''}"
    times = sum(each.late == job.late for each in job.windows)
    often = f"in {times} of {count(len(job.windows), 'window')}"
    word = {True: "chronic", False: "not chronic", None: "once; ten windows over ten minutes tell whether it is chronic"}[job.chronic]
    who = (
        f"{neutral(job.node, 80)} holds it up, by rank {job.late}"
        if job.verdict == "node"
        else f"rank {job.late} on {neutral(job.node, 80)} is late"
    )
    return f"{who}, {often} ({word})"


def _why_not(job: FleetJob) -> str:
    if job.engine == "dumps":
        return "of some ranks there is no dump that can be read"
    if not job.windows or not job.windows[-1].ranks:
        return "no rank was traced"
    if job.late is not None:
        return f"of the ranks that were seen, rank {job.late} on {neutral(job.node, 80)} comes last, and others are not known"
    if job.windows[-1].ranks < 2 or not job.windows[-1].matched:
        return "the traces have no collectives in common"
    if job.windows[-1].is_open:
        return "its ranks wait, and for whom is not clear"
    return "of the ranks that were seen, none holds it up"


def _of_hang(hang: Hang) -> str:
    what = f"{hang.collective or 'collective'} number {hang.number} of group {hang.group}"
    if hang.absent:
        return f"{_ranks(hang.absent)} did not join {what}, in which {_ranks(hang.waiting)} wait"
    if hang.other:
        return f"{_ranks(hang.other)} called another collective or other sizes as {what}"
    if hang.silent:
        return f"{_ranks(hang.waiting)} wait in {what}; {_ranks(hang.silent)} left no dump"
    return f"all have joined {what}, and it does not end: the network between them, or a GPU"


def _ranks(ranks: Sequence[int]) -> str:
    shown = fold([f"rank {rank}" for rank in ranks[:MAX_RANKS]]).replace("rank [", "ranks [")
    return shown + (f" and {len(ranks) - MAX_RANKS} more" if len(ranks) > MAX_RANKS else "")


def _lines(job: FleetJob) -> Iterator[tuple[str, str]]:
    for hang in job.hangs:
        yield "plain", _of_hang(hang) + (f"; called at {neutral(hang.place)}" if hang.place else "")
        for last in hang.last:
            yield "plain", neutral(last)
        if hang.silent and (hang.absent or hang.other):
            yield "unknown", f"{_ranks(hang.silent)} left no dump, and may be the cause as well"
    yield from _of_windows(job)
    if job.asked > job.answered and job.engine != "dumps":
        yield "unknown", "; ".join(f"{each.state}: {fold(each.nodes, 8)} ({neutral(each.reason)})" for each in job.silent)
    unknown = list(dict.fromkeys((*job.problems, *(line for each in job.windows for line in each.unknown))))
    for line in unknown[:MAX_UNKNOWN]:
        yield "unknown", f"not known: {neutral(line)}"
    if len(unknown) > MAX_UNKNOWN:
        yield "dim", f"and {len(unknown) - MAX_UNKNOWN} more"
    if job.engine != "dumps":
        yield "dim", f"{job.answered} of {count(job.asked, 'node')}, {job.windows[-1].ranks if job.windows else 0} ranks traced"


def _of_windows(job: FleetJob) -> Iterator[tuple[str, str]]:
    named = [each for each in job.windows if each.late is not None and each.late == job.late]
    waits = [each.lost_pct or 0.0 for each in job.windows if each.is_open]
    if named:
        yield from _of_late(job, named[-1])
    if job.verdict == "nobody" and job.windows:
        yield "plain", _rotating(job.windows[-1])
    if job.verdict == "cannot tell" and waits:
        often = f"In {count(len(waits), 'window')} ranks wait up to {max(waits):.0f} % of their time"
        again = "Take longer records: `sysperf node ranks --seconds 10`." if job.engine == "folder" else ASK_AGAIN
        yield "unknown", f"{often}, and it is clear neither for whom nor that they take turns. {again}"


def _of_late(job: FleetJob, last: JobWindow) -> Iterator[tuple[str, str]]:
    who = f"With {_ranks(last.beside)}, it" if last.beside else "It"
    share = "" if last.share_pct is None else f"{who} causes {last.share_pct:.0f} % of the lateness"
    lost = "" if last.lost_pct is None else f"{'; the' if share else 'The'} others wait {last.lost_pct:.0f} % of their time"
    yield "plain", f"{share}{lost}."
    if last.cause:
        yield "plain", f"It has more {last.cause} than the others."
    for signal in last.signals:
        yield "plain", f"Second signal: {signal}."
    if job.verdict == "rank":
        yield (
            "plain",
            "One signal alone: its share of work, its loader, or its node. `sysperf fleet bench` measures the node beside others.",
        )


def _rotating(last: JobWindow) -> str:
    if last.rotates and last.lost_pct:
        return f"Ranks wait {last.lost_pct:.0f} % of their time for one rank and then another."
    return f"They wait {last.lost_pct or 0:.0f} % of their time for each other."

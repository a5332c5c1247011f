"""An analysis for people at a terminal, in one screen: the verdict, where a step goes, what acting would gain."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.model.finding import Finding
from sysperf.model.text import neutral
from sysperf.report.formats.as_text import MARKS
from sysperf.report.profiling import tables
from sysperf.report.terminal import Ink, Page, clip, pad, table
from sysperf.report.words import count
from sysperf.trace.accounting.causes import MIN_BUSY_PCT, MIN_EXPOSED_PCT
from sysperf.trace.accounting.cpu_verdict import MIN_CPU_OPERATORS
from sysperf.trace.accounting.verdict import MIN_KERNELS, MIN_UNLAUNCHED_PCT, unexplained_pct
from sysperf.trace.facts import Rank
from sysperf.trace.host_facts import Cpu, Site
from sysperf.trace.output.analysis import MIN_GAIN_PCT, Analysis

MOST_FINDINGS = 5
MOST_ROWS = 5
MIN_SPREAD_PCT = 0.1
BAR = 60
PARTS = (
    ("busy", "gpu_busy_pct_mean", "█", "good"),
    ("loader", "dataloader_exposed_pct", "▓", "error"),
    ("synchronisation", "sync_exposed_pct", "▒", "warning"),
    ("copy calls", "copy_api_exposed_pct", "▒", "info"),
    ("host", "host_exposed_pct", "░", "unknown"),
)
CPU_PARTS = (
    ("operators", "operator_pct", "█", "good"),
    ("loader", "loader_pct", "▓", "error"),
    ("compilation", "compile_pct", "▒", "warning"),
    ("communication", "communication_pct", "▒", "info"),
    ("between operators", "python_pct", "░", "unknown"),
)


def render(analysis: Analysis, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The whole analysis; without `verbose`, the findings that cost most, one line for each other."""
    page = Page(Ink(color), width)
    several = len(analysis.trace.ranks) > 1
    for rank in analysis.trace.ranks if verbose or not several else ():
        _rank(page, rank, several=several)
    if several:
        _matrix(page, analysis)
        _skew(page, analysis)
    page.line()
    word = analysis.trace.verdict
    style = "good" if word in ("healthy", "compute-bound") else "unknown" if word == "cannot-tell" else "warning"
    joint = ", because" if word == "cannot-tell" else ":"
    page.paragraph(f"{tables.HEADLINES[word]}{joint} {neutral(analysis.trace.why)}.", style)
    _findings(page, analysis, verbose)
    _tables(page, analysis, verbose)
    _foot(page, analysis, verbose)
    return str(page)


def _rank(page: Page, rank: Rank, *, several: bool) -> None:
    ink = page.ink
    number = f"rank {rank.rank}  " if several and rank.rank is not None else ""
    page.line(f"{ink('strong', clip(number + neutral(rank.file, 200), page.width))}")
    page.paragraph(_about(rank), "dim", indent="  ")
    bar, legend = _bar(page, rank)
    if bar:
        page.line(f"  {bar}")
        page.paragraph(legend, indent="  ")
    if not several and (operators := tables.longest_operators(rank)):
        page.paragraph(f"operators by their own time: {' · '.join(map(_operator, operators))}", "dim", indent="  ")
        page.paragraph(_computing(rank.cpu) if rank.cpu else "", "dim", indent="  ")


def _computing(cpu: Cpu) -> str:
    """What the operators are, and how many threads run them. A file does not show the threads within an operator."""
    outside = f" ({cpu.fallback_pct:.1f} % outside oneDNN and BLAS)" if cpu.fallback_pct >= 0.05 else ""
    threads = count(cpu.threads, "thread")
    return f"products and convolutions {cpu.matmul_pct:.1f} %{outside} · operators on {threads}, besides those of OpenMP within them"


def _operator(site: Site) -> str:
    at = f" ({neutral(site.where.text, 60)})" if site.where else ""
    return f"{neutral(site.what, 60)} {site.exposed_pct:.1f} %{at}"


def _about(rank: Rank) -> str:
    """Which device, how many steps, and which part of the file is judged."""
    no_device = "a device that was not recorded" if rank.trust.device_missing else "no device"
    parts = [neutral(rank.gpu, 60) if rank.gpu else no_device if not rank.has_device else count(len(rank.devices), "device")]
    if rank.steps.by and rank.steps.median_ms is not None:
        parts.append(f"{count(rank.steps.count, 'iteration')} of {rank.steps.median_ms:.1f} ms by {rank.steps.by}")
    if rank.window_ms is not None:
        parts.append(f"window {rank.window_ms:.1f} ms ({rank.window_rule.replace('_', ' ')})")
    if rank.kept_until_us is not None:
        parts.append("the first part of a large file")
    if rank.other_programs:
        parts.append(f"one of {rank.other_programs + 1} programs in the file")
    if rank.replay.error_pct is not None and rank.has_device:
        parts.append(f"replay {rank.replay.error_pct:.1f} % off")
    return " · ".join(parts)


def _bar(page: Page, rank: Rank) -> tuple[str, str]:
    """(a bar of where the time goes, its parts in words); empty where nothing is known of it."""
    facts: object = rank.figures if rank.has_device else rank.cpu
    parts = [(label, getattr(facts, name, None), sign, style) for label, name, sign, style in (PARTS if rank.has_device else CPU_PARTS)]
    if rank.has_device and rank.figures.host_exposed_pct is None and rank.figures.gpu_busy_pct_mean is not None:
        parts[-1] = ("idle", unexplained_pct(rank.figures), *parts[-1][2:])
    if rank.trust.uncorrelated_pct >= MIN_UNLAUNCHED_PCT:
        parts = [("idle" if label == "host" else label, value, sign, style) for label, value, sign, style in parts]
    known = [(label, float(value), sign, style) for label, value, sign, style in parts if value and value >= 0.05]
    if facts is None or not known:
        return "", ""
    size = min(BAR, page.width - 4)
    drawn, used, total = "", 0, 0.0
    for _, value, sign, style in known:
        total += value
        cells = max(0, min(size, round(total / 100 * size)) - used)
        drawn += page.ink(style, sign * cells)
        used += cells
    return drawn, " · ".join(f"{sign} {label} {value:.1f} %" for label, value, sign, _ in known)


def _skew(page: Page, analysis: Analysis) -> None:
    skew = analysis.trace.skew
    if skew.late and skew.lost_pct is not None:
        what = f"{skew.matched} collectives matched; ranks" if skew.stages_pct is None else "stages of a pipeline"
        page.paragraph(f"{what} wait {skew.lost_pct:.1f} % for {skew.who}.", "dim", indent="  ")


def _matrix(page: Page, analysis: Analysis) -> None:
    heads, rows = tables.matrix(analysis)
    for line in table(heads, rows, page.ink, page.width, right=range(6)):
        page.line(f"  {line}")


def _tables(page: Page, analysis: Analysis, verbose: bool) -> None:
    """Tables of what takes the kernels' time, of a device that is busy, and of collectives that take time."""
    rank = analysis.trace.ranks[0]
    most = None if verbose else MOST_ROWS
    if rank.busy and (verbose or (rank.figures.kernel_busy_pct or 0.0) >= MIN_BUSY_PCT):
        _table(page, "where the kernels' time goes", tables.BUSY_HEADS, tables.busy_rows(rank)[:most])
    if rank.collectives.kinds and (verbose or (rank.figures.nccl_pct or 0.0) >= MIN_GAIN_PCT):
        _table(page, "collectives by kind and size", tables.EXCHANGE_HEADS, tables.exchange_rows(rank)[:most])

    if rank.modules and verbose:
        _table(page, "modules by the time of what they compute", tables.MODULE_HEADS, tables.module_rows(rank))


def _table(page: Page, title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    page.line()
    page.line(page.ink("strong", title))
    for line in table(heads, rows, page.ink, page.width - 2, right=range(len(heads) - 1)):
        page.line(f"  {line}")


def grouped(findings: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """Findings of one rule about several ranks as one, the one that costs or gains most, with all of them."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.severity), []).append(finding)
    return [(group[0], group) for group in groups.values()]


def _findings(page: Page, analysis: Analysis, verbose: bool) -> None:
    groups = grouped(analysis.findings)
    serious = [finding for finding, _ in groups if _is_worth_a_look(finding)]
    listed = list(analysis.findings) if verbose else serious[:MOST_FINDINGS]
    ranks = len(analysis.trace.ranks)
    for finding in listed:
        group = [] if verbose else next(group for first, group in groups if first is finding)
        _finding(page, finding, verbose, of_ranks(group, ranks))
    rest = [] if verbose else [finding for finding, _ in groups if finding not in listed]
    if rest:
        page.line()
    column = min(30, max((len(finding.rule) for finding in rest), default=0))
    for finding in rest:
        mark = page.ink("info", MARKS[finding.severity])
        gain = f"gains {finding.gain.interval}: " if finding.gain.interval else ""
        line = clip(gain + _line(finding), page.width - column - 4)
        page.line(f"{mark} {page.ink('strong', pad(clip(finding.rule, column), column))}  {line}")
    if analysis.together is not None and listed:
        page.line()
        page.paragraph(f"Together: {analysis.together.text()} of the step ({neutral(analysis.together.assumes)}).", "strong")


def _is_worth_a_look(finding: Finding) -> bool:
    return finding.severity in ("error", "warning") or (finding.gain.middle or 0.0) >= MIN_GAIN_PCT


def _line(finding: Finding) -> str:
    subject = f"{neutral(finding.about, 60)}: " if finding.about else ""
    return f"{subject}{neutral(finding.message)}"


def of_ranks(group: Sequence[Finding], ranks: int) -> str:
    """What findings of one rule say of several ranks: how many, and what it costs them."""
    if ranks < 2 or not group or not group[0].about:
        return ""
    costs = [cost for finding in group if (cost := finding.cost_pct if finding.cost_pct is not None else finding.work_pct) is not None]
    spread = f", {min(costs):.1f} to {max(costs):.1f} %" if len(costs) > 1 and max(costs) - min(costs) >= MIN_SPREAD_PCT else ""
    return f"{len(group)} of {ranks} ranks{spread}"


def _finding(page: Page, finding: Finding, verbose: bool, ranks: str = "") -> None:
    ink = page.ink
    page.line()
    cost = f"  {ranks}" if ranks else ""
    cost += f"  costs {finding.cost_pct:.1f} %" if finding.cost_pct is not None else ""
    cost += f"  busy with it {finding.work_pct:.1f} %" if finding.work_pct is not None else ""
    gain = f"  gains {finding.gain.interval}" if finding.gain.interval else ""
    mark = ink(finding.severity, MARKS[finding.severity])
    page.line(f"{mark} {ink('strong', finding.rule)}{ink('warning', cost)}{ink('good', gain)}")
    page.paragraph(_line(finding), indent="  ")
    for number, where in enumerate(finding.places):
        page.verbatim("" if number else "where", neutral(where.text, 200))
    if verbose and finding.gain.assumes:
        page.labelled("if", neutral(finding.gain.assumes), "dim")
    for number, fix in enumerate(finding.fixes[: None if verbose else 1]):
        page.labelled("or" if number else "fix", neutral(fix.title or fix.note))
    if verbose:
        page.labelled("why", neutral(" ".join(finding.why.split()), 2_000))
        for reference in finding.refs:
            page.verbatim("read", neutral(reference), "dim")


def _foot(page: Page, analysis: Analysis, verbose: bool) -> None:
    page.line()
    replay = next((rank.replay for rank in analysis.trace.ranks if rank.replay.why), None)
    if replay is not None:
        page.paragraph(f"No gain is predicted: {neutral(replay.why)}.", "dim")
    if analysis.unknown:
        names = ", ".join(analysis.unknown) if verbose else ""
        page.paragraph(f"{count(len(analysis.unknown), 'rule')} cannot be answered from this file{': ' + names if names else ''}.", "dim")
    if analysis.trace.verdict == "cannot-tell":
        page.paragraph(f"Next: {_next_step(analysis)}", "strong")
    elif analysis.findings:
        page.paragraph(
            f"Next: sysperf explain {neutral(analysis.findings[0].rule)}{'' if verbose else '; --verbose shows everything'}", "strong"
        )


def _next_step(analysis: Analysis) -> str:
    """What would tell what these files do not; where they tell enough and nothing stands out, what to do about it."""
    ranks = analysis.trace.ranks
    if ranks and all(map(_tells_enough, ranks)) and not any(map(_lacking, ranks)):
        first = f"; `sysperf explain {neutral(analysis.findings[0].rule)}`" if analysis.findings else ""
        return f"another trace says the same: change what the findings name one at a time, and measure each with `sysperf verify`{first}"
    longer = "profile 5 steps or more, with both activities and schedule(wait=1, warmup=1, active=5); or `sysperf trace PID`"
    return next(filter(None, map(_lacking, ranks)), longer)


def _lacking(rank: Rank) -> str:
    """What would tell what one file does not, where more steps of the same would not; else empty."""
    trust, queued = rank.trust, rank.figures.idle_queued_pct or 0.0
    known = (
        (trust.mixed_programs, "analyze the file that the profiler wrote for each program, together where they are ranks of one job"),
        (
            (rank.host.capture_pct or 0.0) >= MIN_EXPOSED_PCT,
            "profile the replays: start the profiler behind the capture, and record several steps",
        ),
        (
            trust.device_missing and trust.truncated != "",
            "take the trace again, of few steps, into a file of its own, and wait until it is written",
        ),
        (
            trust.device_missing and trust.calls_recorded,
            "let the profiler observe the device, as `sysperf explain trust.device-events-missing` tells",
        ),
        (trust.device_missing and rank.form == "nsys", "record the device, too: nsys profile --trace cuda,nvtx,osrt COMMAND"),
        (trust.device_missing, "profile with the device's activity, too: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"),
        (
            rank.steps.steady and queued >= MIN_EXPOSED_PCT,
            "analyze the traces of all ranks together, or one of Nsight Systems: nsys profile --trace cuda,nvtx,osrt COMMAND",
        ),
    )
    return next((text for is_so, text in known if is_so), "")


def _tells_enough(rank: Rank) -> bool:
    """Whether a rank has steps, and enough of what they consist of."""
    operations = (
        (rank.figures.kernels or 0) >= MIN_KERNELS if rank.has_device else (rank.cpu.operators if rank.cpu else 0) >= MIN_CPU_OPERATORS
    )
    return (
        rank.steps.steady
        and rank.steps.count > 1
        and operations
        and not rank.trust.unrecorded
        and rank.trust.uncorrelated_pct < MIN_UNLAUNCHED_PCT
    )

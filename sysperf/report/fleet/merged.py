"""Many machines on a page: who answered, what is found on whom, who differs from its class; names folded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from sysperf.fleet.names import fold
from sysperf.model.fleet import Fleet, FleetDifference, Held, Policy
from sysperf.model.rule import SEVERITIES, Severity
from sysperf.model.text import neutral
from sysperf.report import frame
from sysperf.report.formats import as_json
from sysperf.report.formats.as_html import MARKS
from sysperf.report.formats.as_markdown import code, escape
from sysperf.report.formats.as_prometheus import Sample, gauge
from sysperf.report.terminal import Ink, Page, cells, pad
from sysperf.report.words import count

FORMATS = ("text", "json", "markdown", "html", "prometheus")
MAX_PARTS, MAX_VALUES, MAX_CLASSES, MAX_LINES = 8, 4, 8, 40
MAX_VALUE = 80


def render(fleet: Fleet, format: str = "text", *, color: bool = False, width: int = 100, verbose: bool = False) -> str:  # noqa: A002 - the option's name
    """The fleet in one of `FORMATS`."""
    if format == "json":
        return as_json.dump(fleet)
    if format == "markdown":
        return _markdown(fleet)
    if format == "html":
        return _html(fleet)
    return _prometheus(fleet) if format == "prometheus" else _text(fleet, Page(Ink(color), width), verbose=verbose)


def headline(fleet: Fleet) -> str:
    """``509 of 512 nodes (2 unreachable: n[017,301]; 1 late: n044), 2 classes``."""
    groups: dict[str, list[str]] = {}
    for silent in fleet.silent:
        groups.setdefault(silent.state, []).extend(silent.nodes)
    unheard = "; ".join(f"{len(nodes)} {state}: {fold(nodes, MAX_PARTS)}" for state, nodes in groups.items())
    classes = count(len(fleet.classes), "class").replace("classs", "classes")
    stopped = ", interrupted" if fleet.interrupted else ""
    return f"{fleet.answered} of {count(fleet.asked, 'node')}{f' ({unheard})' if unheard else ''}, {classes}{stopped}"


def verdict(fleet: Fleet) -> str:
    """What was found, in a sentence; it never says fine of who was silent."""
    if not fleet.answered:
        return "Nothing is known: no node answered."
    named = {node for difference in fleet.differing for held in difference.values for node in held.nodes}
    grave = {node for finding in fleet.findings if finding.severity in ("error", "warning") for node in finding.nodes}
    parts = [f"{count(len(grave), 'node')} with errors or warnings"] if grave else []
    parts += [f"{count(len(named), 'node')} unlike {'its' if len(named) == 1 else 'their'} class"] if named else []
    sentence = f"{' and '.join(parts)}." if parts else "No node differs from its class, and none has errors or warnings."
    return sentence + (f" Of {count(fleet.asked - fleet.answered, 'node')} nothing is known." if fleet.asked > fleet.answered else "")


def _lines(fleet: Fleet) -> Iterator[tuple[str, str, str, str]]:
    """(mark, what, on whom, what of it), what is worst first."""
    numbers = {each.name: number for number, each in enumerate(fleet.classes, 1)} if len(fleet.classes) > 1 else {}
    for finding in fleet.findings:
        where = "" if finding.alike else f"such as on {neutral(finding.nodes[0], 80)}: "
        yield finding.severity, finding.rule, fold(finding.nodes, MAX_PARTS), where + neutral(finding.message)
    for difference in fleet.differences:
        who = [node for held in difference.values for node in held.nodes] if difference.kind == "differs" else []
        yield "warning" if who else "info", difference.fact, fold(who, MAX_PARTS) or "no majority", _said(difference, numbers)
    for unknown in fleet.unknown:
        yield "unknown", unknown.area, fold(unknown.nodes, MAX_PARTS), f"not known: {neutral(unknown.why)}"
    for silent in fleet.silent:
        yield "unknown", "*", fold(silent.nodes, MAX_PARTS), f"{silent.state}: {neutral(silent.reason)}"


def _said(difference: FleetDifference, classes: Mapping[str, int]) -> str:
    others = [held for held in difference.values if held.value != difference.expected]
    doubt = "; the missing nodes could change this" if difference.doubtful else ""
    of_class = f" of class {classes[difference.of_class]}" if difference.of_class in classes else ""
    if difference.kind == "groups":
        more = f" and {len(others) - MAX_VALUES} more values" if len(others) > MAX_VALUES else ""
        values = "; ".join(f"{_value(held.value)}: {fold(held.nodes, MAX_PARTS)}" for held in others[:MAX_VALUES])
        return f"{values}{more}{of_class}{doubt}"
    agreeing = difference.known - sum(held.count for held in others)
    if difference.basis == "golden":
        expected = f"expected is {_value(difference.expected)}"
    else:
        expected = f"{agreeing} of {difference.known} nodes{of_class} {'have' if agreeing > 1 else 'has'} {_value(difference.expected)}"
    return f"{_values(others)}; {expected}{doubt}"


def _values(others: Sequence[Held]) -> str:
    if len(others) == 1:
        return _value(others[0].value)
    more = f" and {len(others) - MAX_VALUES} more values" if len(others) > MAX_VALUES else ""
    return ", ".join(f"{_value(held.value)} ({fold(held.nodes, 3)})" for held in others[:MAX_VALUES]) + more


def _value(value: str) -> str:
    return neutral(value, MAX_VALUE)


def _text(fleet: Fleet, page: Page, *, verbose: bool) -> str:
    page.paragraph(headline(fleet), "strong")
    page.paragraph(verdict(fleet), "good" if fleet.answered == fleet.asked and not fleet.reaches("warning") else "plain")
    page.line()
    lines = [*_lines(fleet)]
    shown = lines if verbose else lines[:MAX_LINES]
    what = min(max((cells(line[1]) for line in shown), default=0), 40)
    who = min(max((cells(line[2]) for line in shown), default=0), 24)
    marks = dict[str, str]([*MARKS.items(), ("unknown", "?")])
    for kind, subject, nodes, said in shown:
        head = f"{page.ink(kind, marks[kind])} {pad(neutral(subject), what)}  {pad(nodes, who)}"
        if cells(neutral(subject)) <= what and cells(nodes) <= who and cells(said) + what + who + 6 <= page.width:
            page.line(f"{head}  {said}")
        else:
            page.line(head.rstrip())
            page.paragraph(said, indent="    ")
    if len(lines) > len(shown):
        page.line(page.ink("dim", f"and {len(lines) - len(shown)} more; --verbose shows all"))
    page.line()
    for number, each in enumerate(fleet.classes if verbose else fleet.classes[:MAX_CLASSES], 1):
        names = f": {fold(each.nodes)}" if verbose else ""
        page.paragraph(f"class {number}, {count(each.count, 'node')}: {neutral(each.name)}{names}", "dim")
    if len(fleet.classes) > MAX_CLASSES and not verbose:
        page.line(page.ink("dim", f"and {len(fleet.classes) - MAX_CLASSES} more classes"))
    for line in _foot(fleet):
        page.paragraph(line, "dim")
    return str(page)


def _foot(fleet: Fleet) -> Iterator[str]:
    compared = "the majority of its class (two thirds and three nodes)" if fleet.reference == "majority" else neutral(fleet.reference)
    yield f"compared with {compared}"
    if fleet.oldest:
        yield f"records of {fleet.oldest}" + (f" to {fleet.newest}" if fleet.newest != fleet.oldest else "")
    if fleet.slowest:
        yield "slowest: " + ", ".join(f"{neutral(name, 80)} {seconds:g} s" for name, seconds in fleet.slowest)


def _markdown(fleet: Fleet) -> str:
    rows = [f"| {kind} | {code(what, cell=True)} | {code(who, cell=True)} | {escape(said)} |" for kind, what, who, said in _lines(fleet)]
    table = ["", "| | What | Nodes | Observed |", "|---|---|---|---|", *rows] if rows else []
    classes = [f"- class {number}, {count(each.count, 'node')}: {escape(each.name)}" for number, each in enumerate(fleet.classes, 1)]
    foot = f"<sub>{escape(', '.join(_foot(fleet)))}</sub>"
    return "\n".join([f"## {escape(headline(fleet))}", "", escape(verdict(fleet)), *table, "", *classes, "", foot, ""])


def _html(fleet: Fleet) -> str:
    version, when = frame.text(fleet.sysperf), frame.text(fleet.taken_at)
    lines = [
        f'<header class="{_mood(fleet)}"><p class="name"><b>sysperf</b> {version}<span>{when}</span></p>',
        f"<h1>{frame.text(headline(fleet))}</h1>",
        *frame.paragraphs(verdict(fleet)),
        "</header><main>",
        frame.table(("", "What", "Nodes", "Observed"), _lines(fleet)),
        "<h2>Classes</h2>",
        frame.table(
            ("Class", "Nodes", "Hardware", "Names"),
            ((str(number), str(each.count), each.name, fold(each.nodes, 64)) for number, each in enumerate(fleet.classes, 1)),
        ),
        "</main><footer>",
        *frame.paragraphs(*_foot(fleet)),
        "</footer>",
    ]
    return frame.framed(f"sysperf: {headline(fleet)}", lines)


def _mood(fleet: Fleet) -> str:
    worst: list[Severity] = [severity for severity in SEVERITIES[:2] if fleet.reaches(severity)]
    return worst[0] if worst else "good" if fleet.answered == fleet.asked else "unknown"


def _prometheus(fleet: Fleet) -> str:
    """Series for Prometheus, none with the name of a job: dashboards join by node."""
    states: dict[str, float] = {"answered": fleet.answered}
    silent: list[Sample] = []
    for each in fleet.silent:
        states[each.state] = states.get(each.state, 0) + len(each.nodes)
        silent += [({"node": node, "state": each.state}, 1) for node in each.nodes]
    classes = [({"class": each.name}, each.count) for each in fleet.classes]
    members = [({"node": node, "class": each.name}, 1) for each in fleet.classes for node in each.nodes]
    found = [({"rule": each.rule, "severity": each.severity, "node": node}, 1) for each in fleet.findings for node in each.nodes]
    unlike = [({"fact": each.fact, "node": node}, 1) for each in fleet.differing for held in each.values for node in held.nodes]
    dark = [({"area": each.area, "node": node}, 1) for each in fleet.unknown for node in each.nodes]
    families = [
        gauge("fleet_nodes", "Nodes that were asked, by what came of them.", [({"state": state}, many) for state, many in states.items()]),
        gauge("fleet_silent", "A node of which nothing is known.", silent),
        gauge("fleet_class_nodes", "Nodes of equal hardware.", classes),
        gauge("node_info", "The class of a node.", members),
        gauge("fleet_finding", "What a rule found on a node.", found),
        gauge("fleet_difference", "A fact in which a node differs from its class.", unlike),
        gauge("fleet_unknown", "What could not be read on a node.", dark),
        gauge("fleet_seconds", "How long asking and merging took.", [({}, fleet.took_ms / 1e3)]),
        gauge("build_info", "The version that made this audit.", [({"version": fleet.sysperf}, 1)]),
    ]
    return "".join(families)


def policy_toml(policy: Policy) -> str:
    """What nodes should be like, for people to edit."""
    lines = ["# What nodes of each class should be like; `sysperf fleet audit --golden FILE` names those that are not.", "schema = 1"]
    for each in policy.classes:
        lines += [
            "",
            "[[class]]",
            f"hardware = {{ {', '.join(f'{_key(part)} = {_string(what)}' for part, what in each.hardware.items())} }}",
        ]
        lines += ["[class.facts]", *(f"{_key(fact)} = {_string(value)}" for fact, value in each.facts.items())]
    return "\n".join([*lines, ""])


def _string(text: str) -> str:
    """A TOML basic string, which JSON's are but for what a terminal acts on."""
    return json.dumps(neutral(text, 1_000), ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else _string(name)

"""Nodes of a fleet as rows: by class, the worst first; and all that is known of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sysperf.model.fleet import Fleet, FleetDifference, FleetFinding, FleetUnknown, Held
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import natural, neutral
from sysperf.report.fleet import merged as report
from sysperf.report.formats.as_html import MARKS
from sysperf.report.words import count
from sysperf.tui.widgets.line import BLANK, Line, Lines, fitted, line, padded, paragraph, span

MAX_NAME, MAX_SHOWN, MAX_VALUE = 24, 2, 80
PLAIN = len(SEVERITIES)
"""Behind every severity: nothing is found on it."""


class Node(NamedTuple):
    """What the fleet says of one node."""

    name: str
    findings: tuple[FleetFinding, ...] = ()
    differences: tuple[tuple[FleetDifference, Held], ...] = ()
    unknown: tuple[FleetUnknown, ...] = ()
    silent: str = ""
    """Why nothing is known of it."""

    @property
    def worst(self) -> int:
        """The place of its severest finding; one that differs has a warning."""
        return min([SEVERITIES.index(finding.severity) for finding in self.findings] + [1] * bool(self.differences), default=PLAIN)


def nodes(fleet: Fleet) -> dict[str, Node]:
    """What is said of each node that was asked."""
    found: dict[str, list[FleetFinding]] = {}
    unlike: dict[str, list[tuple[FleetDifference, Held]]] = {}
    dark: dict[str, list[FleetUnknown]] = {}
    for finding in fleet.findings:
        for name in finding.nodes:
            found.setdefault(name, []).append(finding)
    for difference in fleet.differing:
        for held in difference.values:
            for name in held.nodes:
                unlike.setdefault(name, []).append((difference, held))
    for unknown in fleet.unknown:
        for name in unknown.nodes:
            dark.setdefault(name, []).append(unknown)
    silent = {name: Node(name, silent=f"{each.state}: {each.reason}") for each in fleet.silent for name in each.nodes}
    return silent | {
        name: Node(name, tuple(found.get(name, ())), tuple(unlike.get(name, ())), tuple(dark.get(name, ())))
        for of_class in fleet.classes
        for name in of_class.nodes
    }


def head(fleet: Fleet, width: int) -> Lines:
    """Say who answered, and what was found, in two sentences."""
    fine = fleet.answered == fleet.asked and not fleet.reaches("warning")
    return [*paragraph(report.headline(fleet), width, "strong"), *paragraph(report.verdict(fleet), width, "good" if fine else "plain")]


def draw(fleet: Fleet, known: Mapping[str, Node], width: int) -> Lines:
    """A row a node: those that are silent, then each class, the worst first."""
    name_width = min(MAX_NAME, max(map(len, known), default=0))
    silent = [known[name] for each in fleet.silent for name in each.nodes]
    out: Lines = [line(span(count(len(silent), "silent node"), "title"))] if silent else []
    out += [_row(node, name_width, width) for node in sorted(silent, key=lambda node: natural(node.name))]
    for number, of_class in enumerate(fleet.classes, 1):
        title = f"class {number}, {count(of_class.count, 'node')}: {of_class.name}"
        out += [*([BLANK] if out else []), fitted(line(span(title, "title")), width)]
        ours = [difference for difference in fleet.differences if difference.of_class == of_class.name]
        groups = [difference.fact for difference in ours if difference.kind == "groups"]
        out += [fitted(line(span(f"  no majority: {_few(groups)}", "unknown")), width)] if groups else []
        members = sorted((known[name] for name in of_class.nodes), key=lambda node: (node.worst, not node.unknown, natural(node.name)))
        out += [_row(node, name_width, width) for node in members]
    return out


def _row(node: Node, name_width: int, width: int) -> Line:
    style = "unknown" if node.silent else SEVERITIES[node.worst] if node.worst < PLAIN else ""
    mark = "?" if node.silent else MARKS[SEVERITIES[node.worst]] if node.worst < PLAIN else " "
    name = span(padded(node.name, name_width), "strong" if style else "plain")
    return fitted(line(span(f"{mark} ", style), name, span(f"  {_said(node)}", "plain" if style else "dim"), key=node.name), width)


def _said(node: Node) -> str:
    """What is to be said of a node, in a line."""
    if node.silent:
        return neutral(node.silent)
    unlike = [f"{difference.fact} {held.value[:MAX_VALUE]}, not {difference.expected[:MAX_VALUE]}" for difference, held in node.differences]
    parts = [_few([finding.rule for finding in node.findings]), _few(unlike)]
    parts.append(f"{count(len(node.unknown), 'area')} not known" if node.unknown else "")
    return "; ".join(filter(None, parts)) or "as its class"


def _few(texts: list[str]) -> str:
    more = f" and {len(texts) - MAX_SHOWN} more" if len(texts) > MAX_SHOWN else ""
    return ", ".join(texts[:MAX_SHOWN]) + more


def detail(node: Node | None, width: int) -> Lines:
    """All that is known of one node."""
    if node is None:
        return []
    return [line(span(node.name, "title")), *_about(node, width)]


def _about(node: Node, width: int) -> Iterator[Line]:
    if node.silent:
        yield from paragraph(f"Nothing is known of it. {node.silent}", width, "unknown")
    for finding in sorted(node.findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        yield line(span(f"{MARKS[finding.severity]} {finding.rule}", finding.severity))
        where = "" if finding.alike else f"such as on {finding.nodes[0]}: "
        yield from paragraph(where + finding.message, width, indent="  ")
    for difference, held in node.differences:
        yield line(span(f"! {difference.fact}", "warning"))
        doubt = "; the missing nodes could change this" if difference.doubtful else ""
        text = f"{held.value[:MAX_VALUE]}; expected is {difference.expected[:MAX_VALUE]}{doubt}"
        yield from paragraph(f"{text}. {difference.matters}" if difference.matters else text, width, indent="  ")
    for unknown in node.unknown:
        yield from paragraph(f"{unknown.area} is not known: {unknown.why}", width, "unknown")
    if not (node.silent or node.findings or node.differences or node.unknown):
        yield line(span("Nothing was found on it, and it is as its class.", "good"))

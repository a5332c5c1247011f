"""What may be asked: eleven tools, each one of sysperf's own commands with fixed words, or what its agent knows. None changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sysperf.mcp import answers
from sysperf.mcp.answers import AREAS_SHOWN, MAX_OBSERVED_S, inside
from sysperf.mcp.pages import Answer
from sysperf.model.errors import UsageError
from sysperf.model.record import Json, JsonObject, Record
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import neutral


class Allowed(Record):
    """What the one who started the server allows."""

    folders: tuple[str, ...] = ()
    observe: bool = False


class Tool(NamedTuple):
    """One tool as a client sees it, and what it does."""

    name: str
    description: str
    parameters: dict[str, JsonObject]
    required: tuple[str, ...]
    run: Callable[..., Answer]


_TEXT: JsonObject = {"type": "string", "maxLength": 1_000}
_NUMBER: JsonObject = {"type": "integer", "minimum": 1}
PAGING: dict[str, JsonObject] = {"cursor": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 50}}


def tools(allowed: Allowed) -> tuple[Tool, ...]:
    """The tools; what is not allowed is not among them."""
    path = {**_TEXT, "description": "below a folder that was allowed with --allow"}
    observes = "with samples and a trace" if allowed.observe else "from outside only"
    return (
        Tool(
            "findings",
            "What slows PyTorch down on this machine, worst first.",
            {"min_severity": {"enum": list(SEVERITIES)}, "rule": _TEXT, "scope": {"enum": ["host", "gpu", "process", "python"]}},
            (),
            answers.findings,
        ),
        Tool("explain_rule", "Why a rule matters and what to do, in its own words.", {"rule": _TEXT}, ("rule",), answers.explain_rule),
        Tool("programs", "Running PyTorch programs.", {}, (), answers.programs),
        Tool("facts", "What is known of one area of this machine.", {"area": {"enum": list(AREAS_SHOWN)}}, ("area",), answers.facts),
        Tool(
            "diagnose",
            f"What slows a running program down, seen {observes}.",
            {"pid": _NUMBER, "seconds": {**_NUMBER, "maximum": MAX_OBSERVED_S}},
            ("pid",),
            lambda pid, seconds=5: answers.diagnose(pid, seconds, observe=allowed.observe),
        ),
        Tool(
            "trace_report",
            "What a trace's time was lost to.",
            {"path": path, "top": _NUMBER},
            ("path",),
            lambda path, top=50: answers.trace_report(inside(path, allowed.folders), top),
        ),
        Tool(
            "trace_compare",
            "What changed from trace a to trace b of one program.",
            {"a": path, "b": path},
            ("a", "b"),
            lambda a, b: answers.trace_compare(inside(a, allowed.folders), inside(b, allowed.folders)),
        ),
        Tool(
            "lint_script",
            "What may be slow in a script, by its source alone; nothing is run.",
            {"path": path},
            ("path",),
            lambda path: answers.lint_script(inside(path, allowed.folders)),
        ),
        Tool(
            "plan",
            "Which settings `sysperf apply` would change; nothing is changed.",
            {"rules": {"type": "array", "items": _TEXT, "maxItems": 20}},
            (),
            answers.plan,
        ),
        Tool("studies", "What was measured here by verify, tune and bench trainer, with intervals.", {"name": _TEXT}, (), answers.studies),
        Tool(
            "fleet_report",
            "Records of many nodes merged: who is bad, who differs, who is silent.",
            {"folder": path, "class": _TEXT, "node": _TEXT},
            ("folder",),
            lambda folder, node="", **given: answers.fleet_report(inside(folder, allowed.folders), node, given.get("class", "")),
        ),
    )


def arguments(tool: Tool, given: Mapping[str, Json]) -> dict[str, Json]:
    """The arguments of a call, checked. Raises UsageError with what is wrong."""
    known = {**tool.parameters, **PAGING}
    if strange := sorted(set(given) - set(known)):
        raise UsageError(f"{tool.name} has no argument {neutral(strange[0], 60)}", f"it takes {', '.join(known)}")
    if missing := [name for name in tool.required if name not in given and "cursor" not in given]:
        raise UsageError(f"{tool.name} needs {', '.join(missing)}")
    for name, value in given.items():
        if problem := _problem(known[name], value):
            raise UsageError(f"{name}: {problem}")
    return dict(given)


def _problem(schema: Mapping[str, Json], value: Json) -> str:
    """Why a value is none of what a schema of ours allows."""
    if "enum" in schema:
        return "" if value in schema["enum"] else f"one of {', '.join(schema['enum'])}"
    kinds: dict[str, type] = {"string": str, "integer": int, "array": list}
    if not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool):
        return f"not of type {schema['type']}"
    if isinstance(value, str) and (len(value) > schema.get("maxLength", 200) or "\0" in value):
        return "too long, or not text"
    if isinstance(value, int) and not schema.get("minimum", 1) <= value <= schema.get("maximum", 1 << 31):
        return f"between {schema.get('minimum', 1)} and {schema.get('maximum', 1 << 31)}"
    if isinstance(value, list) and (len(value) > schema["maxItems"] or any(_problem(schema["items"], each) for each in value)):
        return "not a short list of texts"
    return ""

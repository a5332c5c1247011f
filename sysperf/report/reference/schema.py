"""The JSON schema of a report, generated from the records, so that it cannot lag behind them."""

from __future__ import annotations

from collections.abc import Mapping

from sysperf.model.finding import Report
from sysperf.model.record import Json, JsonObject, document_schema, json_schema

_DEFS = "#/$defs/"


def report_schema(areas: Mapping[str, type] | None = None) -> JsonObject:
    """The schema (JSON Schema 2020-12) of ``--format json``; `areas` gives the record of each area's facts."""
    root = document_schema("report", Report)
    definitions = root["$defs"]
    described = {}
    for name, record in (areas or {}).items():
        described[name] = {"allOf": [{"$ref": f"{_DEFS}Area"}, {"properties": {"facts": _facts(name, record, definitions)}}]}
    definitions["Snapshot"]["properties"]["areas"]["properties"] = described
    return {**root, "$defs": dict(sorted(definitions.items()))}


def _facts(area: str, record: type, definitions: JsonObject) -> JsonObject:
    """Add the records of one area, under names of its own: several areas have a ``Device``."""
    own = json_schema(record)
    for name, definition in own["$defs"].items():
        definitions[f"{area}.{name}"] = _moved(definition, area)
    return {"anyOf": [_moved({"$ref": own["$ref"]}, area), {"type": "null"}]}


def _moved(node: Json, area: str) -> Json:
    """The schema with references into this area's definitions."""
    if isinstance(node, list):
        return [_moved(item, area) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: f"{_DEFS}{area}.{value.removeprefix(_DEFS)}" if key == "$ref" and isinstance(value, str) else _moved(value, area)
        for key, value in node.items()
    }

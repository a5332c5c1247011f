"""The report as JSON, and its schema."""

from __future__ import annotations

import json
from typing import Annotated, Any

import jsonschema
import pytest
from hypothesis import given, settings

from sysperf.collect import collect, record_types
from sysperf.model.cpuset import CpuSet
from sysperf.model.finding import Report
from sysperf.model.record import Record, fact, from_json, plain
from sysperf.model.snapshot import Area, Snapshot
from sysperf.report.formats import render
from sysperf.report.reference.schema import report_schema
from tests.conftest import MakeMachine
from tests.report import reports
from tests.report.hostile import texts


class Device(Record):
    """A thing of an area; another area has one of the same name."""

    size_bytes: Annotated[int | None, fact("its size", "/sys/size")]


class Inner(Record):
    """Facts of an area."""

    devices: tuple[Device, ...]
    cpus: CpuSet | None = None


class Other(Record):
    """Facts of another area."""

    device: Device | None = None


AREAS: dict[str, type] = {"pcie": Inner, "gpu": Other}


@pytest.mark.parametrize("machine", reports.MACHINES)
def test_a_report_satisfies_its_schema(machine: str) -> None:
    """Every report, whatever it holds, is valid by the published schema."""
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)

    jsonschema.validate(json.loads(render(reports.MACHINES[machine](), "json")), schema)


def test_the_schema_describes_the_facts_of_areas() -> None:
    """A fact of the wrong type is an error with its path; an area that could not be read is none."""
    schema = report_schema(AREAS)
    big: Any = "big"
    good = reports.snapshot(pcie=Inner((Device(1),), CpuSet([1])), gpu="no driver")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    assert validator.is_valid(json.loads(render(reports.report(machine=good), "json")))
    (error,) = validator.iter_errors(
        json.loads(render(reports.report(machine=reports.snapshot(pcie=Inner((Device(big),), CpuSet([1])), gpu="x")), "json"))
    )
    assert "pcie" in list(error.absolute_path)


def test_areas_with_records_of_one_name_do_not_collide() -> None:
    """The documentation of facts is in the schema, under names of the area."""
    schema = report_schema(AREAS)

    assert schema["$defs"]["pcie.Device"]["properties"]["size_bytes"]["description"] == "its size"
    assert {"gpu.Other", "gpu.Device", "pcie.Inner", "Report"} <= set(schema["$defs"])
    assert (schema["$schema"], schema["title"]) == ("https://json-schema.org/draft/2020-12/schema", "sysperf report")
    assert schema["$id"] == "urn:sysperf:report:1"


def test_a_report_reads_back_as_itself() -> None:
    """What is written is the record, whole."""
    report = reports.report(reports.balancing(), machine=reports.snapshot())

    again = from_json(render(report, "json"), Report)

    assert again.outcomes == report.outcomes
    assert again.snapshot.areas["kernel"] == Area(plain(report.snapshot.areas["kernel"].facts), took_ms=1.25)


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_survives_as_data(text: str) -> None:
    """It parses, gives the same text back, and shows no control or direction character to a terminal."""
    rendered = render(reports.hostile(text), "json")

    message = json.loads(rendered)["outcomes"][0]["message"]
    assert message == text.encode("utf-16", "surrogatepass").decode("utf-16", "backslashreplace") or message.encode() == text.encode(
        "utf-8", "backslashreplace"
    )
    assert all(line.isprintable() or not set(line) & set("\x1b\x7f\x9b\u202e\u2066\u200b") for line in rendered.split("\n"))


def test_the_published_schema_describes_every_area(machine: MakeMachine) -> None:
    """The facts of an empty machine, as every collector gives them, satisfy the schema made of their records."""
    schema = report_schema(record_types())
    jsonschema.Draft202012Validator.check_schema(schema)
    facts = Snapshot(taken_at="2026-11-21T03:10:12Z", areas=collect(machine()))

    jsonschema.validate(json.loads(render(reports.report(machine=facts), "json")), schema)
    assert set(record_types()) <= set(schema["$defs"]["Snapshot"]["properties"]["areas"]["properties"])

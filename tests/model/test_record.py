"""Records are frozen, strictly decoded, and describe themselves."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, convert, fact, from_json, json_schema, plain, to_json
from sysperf.model.version import Version


class Part(Record):
    """A record for this test."""

    cpus: Annotated[CpuSet | None, fact("CPUs", "/sys/a", "/sys/b*")]
    version: Version | None = None
    names: tuple[str, ...] = ()


def test_a_record_goes_through_json() -> None:
    """CPU sets and versions are text there."""
    part = Part(CpuSet.parse("0-3,8"), Version("2.13.0+cpu"), ("a", "b"))

    assert to_json(part) == b'{"cpus":"0-3,8","version":"2.13.0+cpu","names":["a","b"]}'
    assert from_json(to_json(part, indent=2), Part) == part
    assert convert(plain(part), Part) == part


@given(st.frozensets(st.integers(0, 500)), st.lists(st.text()))
def test_any_record_goes_through_json(cpus: frozenset[int], names: list[str]) -> None:
    """Nothing is lost."""
    part = Part(CpuSet(cpus), None, tuple(names))

    assert from_json(to_json(part), Part) == part == convert(plain(part), Part)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b'{"cpus": 5}', "$.cpus"), (b'{"cpus": "3-1"}', "$.cpus"), (b'{"cpus": null, "version": [1]}', "$.version"), (b'{"cpus": null, "version": "x"}', "$.version"),
        (b'{"cpus": null, "more": 1}', "more"), (b"{}", "cpus"), (b'{"cpus": null, "names": [1]}', "$.names"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: bytes, where: str) -> None:
    """A wrong type, a wrong text, a field too many or too few."""
    with pytest.raises(msgspec.ValidationError, match=where.replace("$", r"\$")):
        from_json(text, Part)


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b'"\\ud800"'])
def test_what_is_no_json_is_one_kind_of_error(text: bytes) -> None:
    """Nested a hundred thousand deep included."""
    with pytest.raises(msgspec.DecodeError):
        from_json(text, object)


def test_a_record_cannot_change() -> None:
    """Facts are what was read."""
    with pytest.raises(AttributeError):
        Part(None).cpus = CpuSet()  # type: ignore[misc]  # what mypy says, too


def test_a_record_describes_itself() -> None:
    """The schema has the documentation, and the annotation what is read."""
    schema = json_schema(Part)["$defs"]["Part"]["properties"]
    (cpus,) = (field for field in msgspec.structs.fields(Part) if field.name == "cpus")

    assert schema["cpus"]["description"] == "CPUs"
    assert schema["version"]["anyOf"][0]["type"] == "string"
    assert cpus.type.__metadata__[0].extra == {"reads": ("/sys/a", "/sys/b*")}


def test_other_types_have_no_json() -> None:
    """A mistake in our own code is loud."""
    for make in (lambda: to_json(object()), lambda: from_json(b"1", frozenset[complex]), lambda: json_schema(complex)):
        with pytest.raises((NotImplementedError, TypeError, msgspec.ValidationError)):
            make()


OF_A_PLUGIN = """
from sysperf import startup
startup.import_msgspec()
import uuid
from decimal import Decimal
import msgspec
from sysperf.model.record import Record, convert, from_json, json_schema, plain, to_json

class Run(Record):
    id: uuid.UUID
    loss: Decimal | None = None

def refusal(data):
    try:
        return from_json(data, Run)
    except msgspec.ValidationError as error:
        return str(error)

run = Run(uuid.UUID("12345678-1234-5678-1234-567812345678"), Decimal("0.10"))
print(to_json(run).decode())
print(from_json(to_json(run), Run) == run, convert(plain(run), Run) == run, Run(run.id) == convert({"id": str(run.id)}, Run))
print(from_json(b'{"id": "12345678-1234-5678-1234-567812345678", "loss": 2}', Run).loss)
print(refusal(b'{"id": "no number"}').rpartition(" - ")[2])
print(refusal(b'{"id": "12345678-1234-5678-1234-567812345678", "loss": "much"}').rpartition(" - ")[2])
print(sorted(json_schema(Run)["$defs"]["Run"]["properties"]))
"""


@pytest.mark.parametrize("first", ["", "import msgspec"], ids=["as commands start", "msgspec imported before"])
def test_a_plugins_record_may_hold_a_uuid_and_a_decimal(first: str) -> None:
    """A start leaves both modules out of msgspec, which then knows neither type: a record is the same with and without them."""
    done = subprocess.run([sys.executable, "-c", f"{first}\n{OF_A_PLUGIN}"], capture_output=True, text=True, timeout=300, check=False)

    assert done.stdout.splitlines() == [
        '{"id":"12345678-1234-5678-1234-567812345678","loss":"0.10"}',
        "True True True",
        "2",
        "at `$.id`",
        "at `$.loss`",
        "['id', 'loss']",
    ], done.stderr


RACE = """
import sys, threading, types
from sysperf.model import record
FIELDS = "".join(f"    f{number}: int | None = None\\n" for number in range(12))
CLASSES = "".join(f"class P{number}(Record):\\n{FIELDS}" + f"    inner: P{number - 1} | None = None\\n" * (number > 0) for number in range(6))
CLASSES += "class Whole(Record):\\n    part: P5 | None = None\\n"
sys.setswitchinterval(1e-6)
for number in range(60):
    module = sys.modules[f"made{number}"] = types.ModuleType(f"made{number}")
    module.Record = record.Record
    exec("from __future__ import annotations\\n" + CLASSES, module.__dict__)
    start = threading.Barrier(4)
    def ask():
        start.wait()
        record.from_json(b'{"part": {"f0": 1}}', module.Whole)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_may_read_a_type_for_the_first_time_at_once() -> None:
    """Two clients whose questions came at once ended the helper: msgspec's look at a type is not made for that."""
    done = subprocess.run((sys.executable, "-c", RACE), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")

"""Fuzzers of the trace readers: whatever is in a file, `analyze` gives a report, or one error with a hint."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine.analyze import analyze
from sysperf.model.errors import TraceError
from sysperf.report.formats import as_json
from sysperf.report.profiling import analysis as text
from sysperf.trace.output import annotate
from tests.fuzzing import fuzz
from tests.mutation import NUMBERS, TEXTS, damaged_bytes, damaged_json

from .labelled import HERE, rules
from .synthetic import Machine, exported, steps


def step(machine: Machine) -> None:
    machine.copy(20)
    machine.kernel(50, "ncclDevKernel_AllReduce", stream=20)
    for _ in range(3):
        machine.think(10)
        machine.kernel(30)
    machine.synchronize()


GOOD = steps(Machine(), 3, step).trace()
GOOD_BYTES = json.dumps(GOOD).encode()
RULES = rules()
MOCK = HERE / "nsysai_mock.sqlite"
TABLES = {
    table: [row[1] for row in sqlite3.connect(MOCK).execute(f'PRAGMA table_info("{table}")')]
    for (table,) in sqlite3.connect(MOCK).execute("SELECT name FROM sqlite_master WHERE type = 'table'")
}


def answered(name: str, write: Callable[[Path], object]) -> None:
    """The file that `write` makes is analyzed and shown, or is one error with a hint."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        try:
            result = analyze([str(path)], RULES)
        except TraceError as error:
            assert error.hint  # noqa: PT017 - most drawn files are traces, some are none
            return
        assert text.render(result.analysis)
        json.loads(as_json.dump(result.analysis))
        assert result.accounting is not None
        with contextlib.suppress(TraceError):
            annotate.write(str(path), f"{folder}/annotated.json", result.accounting, result.analysis)


@fuzz
@given(damaged_bytes(GOOD_BYTES), st.booleans())
def test_damaged_chrome_traces(raw: bytes, packed: bool) -> None:
    """Bytes of the text, before it is compressed."""
    answered("trace.json", lambda path: path.write_bytes(gzip.compress(raw, 1) if packed else raw))


@fuzz
@given(damaged_bytes(gzip.compress(GOOD_BYTES, 1)))
def test_damaged_compression(raw: bytes) -> None:
    answered("trace.json.gz", lambda path: path.write_bytes(raw))


@fuzz
@given(damaged_json(GOOD))
def test_chrome_traces_with_values_of_any_kind(trace: Any) -> None:
    """Each value stands where its decoder wants another."""
    answered("trace.json", lambda path: path.write_text(json.dumps(trace)))


@fuzz
@given(st.lists(st.tuples(st.sampled_from([(table, column) for table, names in TABLES.items() for column in names]), NUMBERS | TEXTS | st.binary(max_size=9)), min_size=1, max_size=4))  # fmt: skip
def test_exports_with_values_of_any_kind(changes: list[tuple[tuple[str, str], Any]]) -> None:
    """SQLite's columns hold values of any type and size."""

    def write(path: Path) -> None:
        shutil.copyfile(MOCK, path)
        with contextlib.closing(sqlite3.connect(path)) as export:
            for (table, column), value in changes:
                with contextlib.suppress(sqlite3.Error, OverflowError):
                    export.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 3 = 0', (value,))  # noqa: S608 - names of the file
            export.commit()

    answered("export.sqlite", write)


@fuzz
@given(damaged_bytes(MOCK.read_bytes()))
def test_damaged_exports(raw: bytes) -> None:
    """Pages of the database itself."""
    answered("export.sqlite", lambda path: path.write_bytes(raw))


@fuzz
@given(st.lists(st.tuples(st.sampled_from(["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"]), st.integers(0, 6), NUMBERS), max_size=4))  # fmt: skip
def test_exports_of_a_program_with_numbers_of_any_size(changes: list[tuple[str, int, Any]]) -> None:
    """Times, processes and correlations of an export that is a whole program's."""

    def write(path: Path) -> None:
        made = exported(path.parent, steps(Machine(), 3, step))
        with contextlib.closing(sqlite3.connect(made)) as export:
            for table, place, value in changes:
                names = [row[1] for row in export.execute(f"PRAGMA table_info({table})")]
                with contextlib.suppress(OverflowError):
                    export.execute(f'UPDATE {table} SET "{names[place % len(names)]}" = ? WHERE rowid % 2 = 0', (value,))  # noqa: S608
            export.commit()
        shutil.move(made, path)

    answered("x.sqlite", write)

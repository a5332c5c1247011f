"""Files that are broken, strange or meant to harm: an answer or one clear error, in bounded memory, never a traceback."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.cli import main
from sysperf.engine.analyze import analyze
from sysperf.model.errors import TraceError
from sysperf.report.profiling.analysis import render
from sysperf.trace import account, read
from sysperf.trace.reading import kineto, part
from sysperf.trace.reading.scan import last_cut
from sysperf.trace.timeline import MAX_NAME, MAX_THREADS
from tests.privileges import as_a_user

from .labelled import HERE, rules
from .synthetic import Machine, steps, written


def good(count: int = 5) -> dict[str, Any]:
    def step(machine: Machine) -> None:
        for _ in range(20):
            machine.think(10)
            machine.kernel(50)
        machine.synchronize()

    return steps(Machine(), count, step).trace()


@pytest.mark.parametrize("marks", [0, 3])
@pytest.mark.parametrize("workers", [True, False])
def test_events_of_one_time_are_no_traceback(tmp_path: Path, marks: int, workers: bool) -> None:
    """From one batch to the next, and from one step to the next, it takes no time."""
    machine = Machine()
    for _ in range(5):
        machine.load(100, workers=workers)
        machine.work(10)
    for number in range(marks):
        machine.event("user_annotation", f"ProfilerStep#{number}", 0, 0)
    for event in machine.events:
        event["ts"] = 5.0

    assert account(read(written(tmp_path, json.dumps(machine.trace())))).trust.same_stream_overlaps


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
def test_a_cut_file_tells_that_it_is_cut(tmp_path: Path, part: float) -> None:
    """What came before the cut is read; T0 says so."""
    text = json.dumps(good())
    rank = account(read(written(tmp_path, text[: int(len(text) * part)])))

    assert rank.trust.truncated
    result = analyze([str(tmp_path / "trace.json")], rules())
    assert "trust.file-damaged" in [finding.rule for finding in result.analysis.findings]


@pytest.mark.parametrize("part", [0.3, 0.7, 0.99])
def test_a_cut_compressed_file_tells_that_it_is_cut(tmp_path: Path, part: float) -> None:
    path = tmp_path / "trace.json.gz"
    packed = gzip.compress(json.dumps(good()).encode())
    path.write_bytes(packed[: int(len(packed) * part)])

    assert account(read(str(path))).trust.truncated


def test_broken_compression_is_no_traceback(tmp_path: Path) -> None:
    """A byte in the middle is another one."""
    path = tmp_path / "trace.json.gz"
    packed = bytearray(gzip.compress(json.dumps(good(200)).encode()))
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)

    assert account(read(str(path))).trust.truncated


@pytest.mark.parametrize("damage", ["a byte in the middle", "the checksum", "the length"])
def test_what_was_unpacked_before_the_damage_is_read(tmp_path: Path, damage: str) -> None:
    """Also of a small file, which is unpacked in one piece."""
    path, text = tmp_path / "trace.json.gz", json.dumps(good())
    packed = bytearray(gzip.compress(text.encode()))
    packed[{"a byte in the middle": len(packed) // 2, "the checksum": -8, "the length": -4}[damage]] ^= 0xFF
    path.write_bytes(packed)
    rank = account(read(str(path)))

    assert "compression is damaged" in rank.trust.truncated
    if damage == "a byte in the middle":
        assert rank.trust.gpu_ops >= 20
    else:
        assert rank.figures == account(read(written(tmp_path, text))).figures


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (gzip.compress(b"{}" * 100)[:12], "compression breaks off"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 40, "compression is damaged"),
        (gzip.compress(gzip.compress(json.dumps({"traceEvents": []}).encode())), "compressed twice"),
    ],
    ids=["a header alone", "no data of gzip", "packed twice"],
)
def test_a_file_that_cannot_be_unpacked_says_why(tmp_path: Path, packed: bytes, words: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed)

    with pytest.raises(TraceError, match=words):
        read(str(path))


@pytest.mark.parametrize("escaped", ["\\ud800x", "x\\udfff", "\\uDC00\\uD800", "a\\ud83d \\ude00"])
def test_half_a_character_of_utf_16_is_shown_as_a_mark(tmp_path: Path, escaped: str) -> None:
    """Python and Chrome write and read such; the events keep their times, and other names stay as they are."""
    text = json.dumps(good()).replace("ampere_bf16_s16816gemm", f"{escaped} gemm \\\\ud800 \\ud83d\\ude00")
    whole, timeline = account(read(written(tmp_path, good()))), read(written(tmp_path, text))

    assert account(timeline).trust == whole.trust
    assert account(timeline).figures.gpu_busy_pct_mean == whole.figures.gpu_busy_pct_mean
    (name,) = [text for text in timeline.names.texts if "gemm" in text]
    assert name.endswith(" gemm \\ud800 😀")
    assert "�" in name


STRANGE = {
    "NaN": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": NaN, "dur": 5}',
    "infinite": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": Infinity}',
    "beyond 64 bits": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 99999999999999999999999999, "dur": 5}',
    "huge exponent": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1e400, "dur": 5}',
    "no duration": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5}',
    "negative": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1000000100, "dur": -50}',
    "a week": '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1000000100, "dur": 604800000000}',
    "no object": '"ph"',
    "nested deeply": '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"a": ' + "[" * 50_000 + "]" * 50_000 + "}}",
}


@pytest.mark.parametrize("event", STRANGE.values(), ids=STRANGE.keys())
def test_a_strange_event_is_left_out_and_counted(tmp_path: Path, event: str) -> None:
    """The figures are those of the other events."""
    trace = good()
    text = json.dumps(trace)
    usual = account(read(written(tmp_path, trace)))
    damaged = account(read(written(tmp_path, text[:-2] + f", {event}]}}")))

    assert damaged.figures.gpu_busy_pct_mean == pytest.approx(usual.figures.gpu_busy_pct_mean)
    assert damaged.trust.damaged_events + damaged.trust.bad_durations == 1 or event == '"ph"' or "[[" in event


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ('"name"', ' name"'),
        ("}}, {", "}}, "),
        ("}}, {", "} , {"),
        ("}}, {", '}}, ["], {'),
        ("}}, {", "}}, ]"),
        ("}}, {", "}}], {x"),
        ('"args"', "'args\\"),
        ('{"ph"', '{"pd"'),
    ],
    ids=["quote", "opening", "closing", "more", "end", "end and more", "escape", "phase"],
)
def test_one_wrong_byte_costs_one_event(tmp_path: Path, found: str, instead: str) -> None:
    """Quotes and brackets do not match from there on: the events behind it are whole, and no time in which nothing happened."""
    text = json.dumps(good())
    at = text.index(found, len(text) // 4)
    usual = read(written(tmp_path, text))
    damaged = read(written(tmp_path, text[:at] + instead + text[at + len(found) :]))
    rows = [sum(map(len, (timeline.operations, timeline.calls, timeline.ranges))) for timeline in (usual, damaged)]

    assert rows[1] >= rows[0] - 2
    assert 1 <= damaged.damage.events <= 2
    assert not damaged.damage.breaks_off
    assert damaged.devices == usual.devices


def test_times_as_text_and_large_correlations_are_read(tmp_path: Path) -> None:
    """Other writers: numbers as text, correlations beyond 64 bits, which are unknown."""
    trace = good()
    usual = account(read(written(tmp_path, trace)))
    for event in trace["traceEvents"]:
        event["ts"], event["dur"] = str(event["ts"]), str(event["dur"])
    assert account(read(written(tmp_path, trace))).figures == usual.figures
    for event in trace["traceEvents"]:
        if "correlation" in event["args"]:
            event["args"]["correlation"] = 10**30 + event["args"]["correlation"]
    damaged = account(read(written(tmp_path, trace)))
    assert damaged.figures.gpu_busy_pct_mean == usual.figures.gpu_busy_pct_mean
    assert damaged.trust.uncorrelated_pct == 100


def test_bad_text_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names with broken UTF-8, escapes and markup reach no terminal and no page."""
    trace = good()
    for event in trace["traceEvents"]:
        if event["cat"] == "kernel":
            event["name"] = "\x1b[31m</script><script>alert(1)</script>\u202e gemm"
    raw = json.dumps(trace, ensure_ascii=False).encode().replace(b"gemm", b"ge\xff\xfemm")
    path = tmp_path / "a</title>\x1b[0m.json"
    (tmp_path / "trace.json").write_bytes(raw)

    for form in ("text", "html", "json", "markdown", "github", "sarif"):
        assert main(["analyze", str(tmp_path / "trace.json"), "--format", form]) == 0
        output = capsys.readouterr().out
        assert "\x1b" not in output
        assert "\u202e" not in output
        assert "<script>alert" not in output
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"{", b"[", b"null", b"\x1f\x8b", b'{"traceEvents": []}', b'{"traceEvents": 5}', b"SQLite format 3\0", b"\0" * 100],
)
def test_no_trace_is_one_clear_error(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)

    assert main(["analyze", str(path)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("sysperf: ")
    assert "Traceback" not in output


@pytest.mark.parametrize("wish", [["missing.json"], ["."], []])
def test_what_is_no_file_is_one_clear_error(wish: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *wish]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_folder_is_answered_with_what_lies_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Profilers for TensorBoard write one, with a file of each rank."""
    assert main(["analyze", f"{tmp_path}/"]) == 2
    assert f"{tmp_path}/*.json*" in capsys.readouterr().err


@pytest.mark.parametrize("wish", [["analyze"], ["audit", "--from"], ["audit", "--root"]])
def test_a_file_of_somebody_else_says_who_may_read_it(tmp_path: Path, wish: list[str]) -> None:
    """Another name, or another capture, is no next step."""
    path = tmp_path / "trace.json"
    path.touch(mode=0)

    argv = (*as_a_user(), sys.executable, "-m", "sysperf", *wish, str(path))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Permission denied\n" in done.stderr
    assert "its owner can read it" in done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wish", ["{pipe}", "{pipe} --against {trace}", "{trace} --against {pipe}", "{trace} {pipe}"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, wish: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody writes into it, and what is read of one cannot be read again."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    assert main(["analyze", *wish.format(pipe=pipe, trace=written(tmp_path, good())).split()]) == 2
    output = capsys.readouterr().err
    assert f"{pipe} is no file" in output
    assert "hint: save the trace as a file" in output


def test_one_event_is_enough_for_an_answer(tmp_path: Path) -> None:
    """It is not enough for a verdict."""
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 5}
    rank = account(read(written(tmp_path, {"traceEvents": [event]})))

    assert (rank.verdict, rank.figures.gpu_busy_pct_mean) == ("cannot-tell", 100.0)


def test_an_array_alone_is_a_trace_also_without_its_end(tmp_path: Path) -> None:
    """Chrome's format allows both."""
    events = json.dumps(good()["traceEvents"])

    assert account(read(written(tmp_path, events))).figures == account(read(written(tmp_path, events[:-1]))).figures


@settings(max_examples=25)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_trace_or_one_error(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(b'{"traceEvents": [' + content)
        file.flush()
        with contextlib.suppress(TraceError):
            account(read(file.name))


EVENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["ph", "cat", "name", "ts", "dur", "pid", "tid", "args", "correlation", "stream", "device", "Input Dims", "Call stack"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=25)
@given(st.lists(EVENTS, max_size=5))
def test_any_json_is_a_trace_or_one_error(events: list[Any]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}, *events]}, file)
        file.flush()
        account(read(file.name))


# ---------------------------------------------------------------------- SQLite

MOCK = HERE / "nsysai_mock.sqlite"


def changed(folder: Path, *statements: str) -> str:
    """A copy of an export with other tables or columns."""
    path = folder / "export.sqlite"
    shutil.copyfile(MOCK, path)
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return str(path)


@pytest.mark.parametrize(
    "table",
    [
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "StringIds",
        "TARGET_INFO_GPU",
        "PROFILER_OVERHEAD",
        "CUPTI_ACTIVITY_KIND_KERNEL",
    ],
)
def test_an_absent_table_is_unknown(tmp_path: Path, table: str) -> None:
    rank = account(read(changed(tmp_path, f"DROP TABLE {table}")))

    assert rank.verdict == "cannot-tell"
    if table == "CUPTI_ACTIVITY_KIND_RUNTIME":
        assert rank.trust.uncorrelated_pct == 100


@pytest.mark.parametrize("column", ["graphNodeId", "shortName", "gridX", "correlationId", "globalPid", "streamId"])
def test_an_absent_column_is_unknown(tmp_path: Path, column: str) -> None:
    """Older and newer schemas lack some."""
    account(read(changed(tmp_path, f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN {column} TO somethingElse")))


def test_ranges_of_emit_nvtx_have_one_name_whatever_their_numbers(tmp_path: Path) -> None:
    """`emit_nvtx` writes the numbers of each call behind the name: without them, a range that comes back is one region."""
    texts = ("Mine, seq = 1, op_id = 7", "Mine, seq = 2, op_id = 9", "Mine, op_id = 11", "aten::mm, seq = 3, op_id = 12", ", seq = 4")
    insert = "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, '{}', NULL, 1)"
    table = "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT)"
    timeline = read(changed(tmp_path, table, *(insert.format(text) for text in texts)))

    assert [timeline.names.texts[name] for name in timeline.ranges.name] == ["Mine", "Mine", "Mine", "aten::mm", ", seq = 4"]


def test_texts_and_nulls_where_numbers_belong(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'x', streamId = 'y' WHERE rowid = 1",
        "INSERT INTO StringIds VALUES (99999, x'fffe')",
    )
    assert account(read(path)).trust.damaged_events == 1


def test_texts_in_tables_that_few_exports_have(tmp_path: Path) -> None:
    """The scheduler's events, and what is said of a device: what is no number is unknown."""
    path = changed(
        tmp_path,
        "CREATE TABLE SCHED_EVENTS (start, isSchedIn, globalTid, threadState)",
        "INSERT INTO SCHED_EVENTS VALUES (5, 0, 77, 0), ('x', 1, 77, 0), (9, 1, 77, 0), (NULL, 0, 77, 0)",
        "UPDATE TARGET_INFO_GPU SET totalMemory = 'much', computeMinor = 'x', smCount = x'00'",
    )
    rank = account(read(path))

    assert rank.memory.total_bytes is None
    assert rank.capability == 8


def test_of_a_large_export_the_first_part_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are kept until a time that a sample tells, of every table, so that calls and what they launched stay together."""
    monkeypatch.setattr("sysperf.trace.reading.nsys_export.WHOLE_ROWS", 5_000)
    monkeypatch.setattr("sysperf.trace.reading.nsys_export.MAX_UNMARKED_ROWS", 2_000)
    path = changed(
        tmp_path,
        "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        "SELECT 1000000 + i * 100 AS start, 1000090 + i * 100 AS end, 0 AS deviceId, 7 AS streamId, i AS correlationId, "
        "77 << 24 AS globalPid, 1 AS shortName FROM n",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME AS SELECT start - 100 AS start, end - 140 AS end, globalPid AS globalTid, "
        "correlationId, 1 AS nameId FROM CUPTI_ACTIVITY_KIND_KERNEL",
    )
    timeline = read(path)
    rank = account(timeline)

    assert timeline.cut is not None
    assert rank.kept_until_us == timeline.cut / 1e3
    assert 900 < len(timeline.operations) < 1_200
    assert 900 < len(timeline.calls) < 1_200
    assert max(timeline.operations.start) <= timeline.cut
    assert rank.trust.uncorrelated_pct < 1


def test_any_number_of_threads_takes_bounded_memory(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": n, "tid": f"t{n}", "ts": n, "dur": 1} for n in range(12_000)]
    timeline = read(written(tmp_path, {"traceEvents": events}))

    assert len(timeline.threads) == MAX_THREADS
    assert account(timeline).verdict


LONG_TEXT = "CAST(zeroblob({} << 20) AS TEXT)"
WITH_TEXTS = {
    "StringIds": "INSERT INTO StringIds (id, value) VALUES (9999999, {})",
    "devices": "INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) VALUES (77, {}, 1)",
    "ranges": "CREATE TABLE NVTX_EVENTS AS SELECT 1 AS start, 2 AS end, 59 AS eventType, 1 AS globalTid, {} AS text",
}
INSERT = "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); connection.execute(sys.argv[2]); connection.commit()"
needs_limit = pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python 3.11, which can tell SQLite how long a value may be")


@pytest.mark.parametrize("place", WITH_TEXTS)
@pytest.mark.parametrize(("size_mib", "words"), [(60, ""), pytest.param(140, "larger than 128 MiB", marks=(needs_limit, pytest.mark.slow))])
def test_a_long_text_in_an_export_takes_its_own_room_at_most(tmp_path: Path, place: str, size_mib: int, words: str) -> None:
    """Names are read as far as names go, and a value that no export has is one error."""
    path = changed(tmp_path)
    subprocess.run([sys.executable, "-c", INSERT, path, WITH_TEXTS[place].format(LONG_TEXT.format(size_mib))], check=True)

    code, errors, peak_mib = limited("analyze", path)

    assert words in errors
    assert code in ((2,) if words else (0, 1))
    assert "Traceback" not in errors
    assert peak_mib < 100 + (0 if words else size_mib)


def limited(*words: str) -> tuple[int, str, float]:
    """(exit code, stderr, MiB of memory at most) of a command."""
    measured = (
        "import re, sys; from sysperf.cli import main; code = main(sys.argv[1:]); "
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", measured, *words], capture_output=True, text=True, check=False)
    *errors, peak_kib = done.stderr.splitlines()
    return done.returncode, "\n".join(errors), float(peak_kib) / 1024


@pytest.mark.parametrize(
    "table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"]
)
@pytest.mark.parametrize("value", [2**62 - 1, -(2**62) + 1, 2**63 - 1, -(2**63), 2**47, 1e300])
def test_numbers_of_any_size_stand_where_processes_and_calls_are_named(tmp_path: Path, table: str, value: float) -> None:
    """They fit, or are unknown: a process has 24 bits of them."""
    columns = (
        "globalPid",
        "globalTid",
        "correlationId",
        "deviceId",
        "streamId",
        "graphNodeId",
        "bytes",
        "gridX",
        "copyKind",
        "nameId",
        "textId",
    )
    known = {row[1] for row in sqlite3.connect(MOCK).execute(f"PRAGMA table_info({table})")}
    path = changed(tmp_path, *(f"UPDATE {table} SET {column} = {value}" for column in columns if column in known))  # noqa: S608

    assert account(read(path)).verdict


def test_an_export_that_is_locked_is_read(tmp_path: Path) -> None:
    """Its writer may still have it open."""
    path = changed(tmp_path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        assert account(read(path)).trust.gpu_ops == 3
    finally:
        connection.close()


MANY = 23_000
"""More than are kept of any file, where `few` makes that a twentieth."""
CROWDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "operators of one moment": lambda _: {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 7, "dur": 1},
    "steps": lambda n: {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": n, "dur": 1},
    "changes of memory": lambda n: {"ph": "i", "name": "[memory]", "ts": n, "pid": 1, "args": {"Device Type": 1, "Total Allocated": n, "Total Reserved": n}},
    "overhead": lambda n: {"ph": "X", "cat": "overhead", "name": "x", "pid": 1, "tid": 1, "ts": n, "dur": 1},
    "functions of one moment": lambda _: {"ph": "X", "cat": "python_function", "name": "f", "pid": 1, "tid": 1, "ts": 7, "dur": 1},
}  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_ROWS", "WHOLE_ROWS", "MAX_UNMARKED_ROWS", "MAX_STEPS", "MAX_FUNCTIONS"):
        monkeypatch.setattr(part, limit, getattr(part, limit) // 20)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", CROWDS)
def test_too_much_of_anything_is_left_out(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a file has too much of, it is gone through once: rows are dropped by half each time, or no more of them are kept."""
    sorts = list[int]()
    middle = part._middle

    def counted(times: Iterable[int]) -> int:
        sorts.append(1)
        return middle(times)

    monkeypatch.setattr(part, "_middle", counted)
    timeline = read(written(tmp_path, '{"traceEvents":[' + ",".join(json.dumps(CROWDS[kind](n)) for n in range(MANY)) + "]}"))

    assert len(sorts) <= 4
    assert len(timeline.ranges) + len(timeline.memory) + len(timeline.overhead) <= part.WHOLE_ROWS
    assert account(timeline).verdict == "cannot-tell"


@pytest.mark.usefixtures("few")
def test_events_of_one_moment_are_said_to_be_the_reason(tmp_path: Path) -> None:
    event = json.dumps(CROWDS["operators of one moment"](0))
    timeline = read(written(tmp_path, '{"traceEvents":[' + ",".join([event] * MANY) + "]}"))

    assert timeline.damage.truncated == "more than 10,000 of its first events start at one time"


@pytest.mark.parametrize(("host_ms", "verdict"), [(0, "healthy"), (6, "host-bound")])
def test_steps_whose_kernels_a_cut_file_lost_are_not_idle(tmp_path: Path, host_ms: float, verdict: str) -> None:
    """A profiler writes down last what devices did: of eight steps, the file has the host's side of all, and the kernels of five and a half."""

    def step(machine: Machine) -> None:
        for _ in range(100):
            machine.kernel(100)
        machine.synchronize("cudaStreamSynchronize")
        machine.log(host_ms * 1_000)

    events = steps(Machine(), 8, step).trace()["traceEvents"]
    kernels = [event for event in events if event["cat"] == "kernel"]
    kept = [event for event in events if event["cat"] != "kernel"] + kernels[:550]
    cut = json.dumps({"schemaVersion": 1, "traceEvents": kept})[:-40]

    facts = account(read(written(tmp_path, cut)))

    assert (facts.verdict, facts.steps.count) == (verdict, 4)
    assert "breaks off" in facts.trust.truncated


def test_calls_that_end_before_they_begin_are_replayed(tmp_path: Path) -> None:
    """One launch of ten has a negative length; the program has no loader to which such a one could belong."""
    trace = steps(Machine(), 6, lambda machine: machine.work(40)).trace()
    for event in [event for event in trace["traceEvents"] if event["cat"] == "cuda_runtime"][::10]:
        event["dur"] = -50.0

    assert account(read(written(tmp_path, json.dumps(trace)))).verdict in ("compute-bound", "healthy")


def marked(mark: str) -> list[dict[str, Any]]:
    """The events of eight iterations of 100 kernels each, whose ranges have such names."""
    machine = Machine()
    for number in range(8):
        start = machine.now
        machine.load(50) if mark == "loader" else None
        for _ in range(100):
            machine.kernel(100)
        machine.synchronize("cudaStreamSynchronize")
        end = machine.now
        machine.think(5)
        machine.range(mark.format(number), end if mark.startswith("Optimizer") else start) if mark != "loader" else None
    return machine.events


def with_kernels(events: list[dict[str, Any]], count: int, **more: object) -> dict[str, Any]:
    """A file of the host's side of all of it, and of so many kernels."""
    kernels = [event for event in events if event["cat"] == "kernel"]
    return {"schemaVersion": 1, **more, "traceEvents": [event for event in events if event["cat"] != "kernel"] + kernels[:count]}


@pytest.mark.parametrize(
    ("mark", "by", "count", "of_whole"),
    [
        ("Optimizer.step#AdamW.step", "optimizer", 3, 6),
        ("loader", "loader", 4, 6),
        ("train_step {}", "NVTX", 5, 7),
        ("work", "NVTX", 5, 7),
    ],
)
def test_iterations_whose_kernels_a_cut_file_lost_are_none(tmp_path: Path, mark: str, by: str, count: int, of_whole: int) -> None:
    """As of marked steps: those after the first whose kernels are not all there do not count, however they were found."""
    events = marked(mark)
    cut = account(read(written(tmp_path, json.dumps(with_kernels(events, 550))[:-40])))
    whole = account(read(written(tmp_path, json.dumps(with_kernels(events, 800)))))

    assert (cut.steps.by, cut.steps.count) == (by, count)
    assert (whole.steps.by, whole.steps.count) == (by, of_whole)
    assert (cut.figures.gpu_busy_pct_mean or 0) > 98


def test_steps_whose_launches_a_cut_file_lost_with_their_kernels_are_none(tmp_path: Path) -> None:
    """PyTorch 1.9 wrote each call beside its kernel, behind all ranges: of eight steps, the file has launches of five and a half."""
    events = sorted(marked("ProfilerStep#{}"), key=lambda event: event["cat"] != "user_annotation")
    kept = events[: 8 + 5 * 201 + 100]

    facts = account(read(written(tmp_path, json.dumps({"schemaVersion": 1, "traceEvents": kept})[:-40])))

    assert (facts.verdict, facts.steps.count) == ("healthy", 4)


@pytest.mark.parametrize(("mark", "kernels", "by", "count"), [("train_step {}", 350, "NVTX", 2), ("", 550, "kernels", 5)])
def test_a_cut_file_of_a_host_far_ahead_has_the_iterations_that_the_device_did(
    tmp_path: Path, mark: str, kernels: int, by: str, count: int
) -> None:
    """All was launched before the device was done with a first step: launches that were lost are no part of what ranges must cover."""
    machine = Machine()
    for number in range(8):
        start = machine.now
        machine.kernel(100, "embedding")
        for _ in range(99):
            machine.kernel(100)
        machine.range(mark.format(number), start) if mark else None

    steps = account(read(written(tmp_path, json.dumps(with_kernels(machine.events, kernels))[:-40]))).steps

    assert (steps.by, steps.count) == (by, count)


@pytest.mark.parametrize(
    ("more", "cut", "count"),
    [
        ({}, 0, 7),
        ({}, 1, 7),
        ({"WARNING": "12 records dropped"}, 0, 6),
        ({}, 40, 6),
    ],
)
def test_a_last_launch_without_its_kernel_is_a_loss_where_events_are_lost(
    tmp_path: Path, more: dict[str, Any], cut: int, count: int
) -> None:
    """A whole file may have one that did not run, and one that breaks off behind its events has all of them."""
    text = json.dumps(with_kernels(marked("ProfilerStep#{}"), 799, **more))

    assert account(read(written(tmp_path, text[: len(text) - cut]))).steps.count == count


def stepped(*, with_operators: bool, count: int = 8) -> list[list[dict[str, Any]]]:
    """The events of steps of 100 kernels each, that of their range first."""
    machine, each = Machine(), []
    for number in range(count):
        start, known = machine.now, len(machine.events)
        for _ in range(100):
            at = machine.now
            machine.kernel(100)
            machine.range("aten::mm", at, "cpu_op") if with_operators else None
        machine.synchronize("cudaStreamSynchronize")
        machine.range(f"ProfilerStep#{number}", start)
        each.append([machine.events[-1], *machine.events[known:-1]])
    return each


OF_DEVICE = ("kernel", "cuda_runtime")


@pytest.mark.parametrize(
    ("buffers", "count"),
    [((0, 1, 2, 5, 6, 7), 2), ((0, 1, 3, 4, 5, 7), 3), ((0, 1, 2, 3, 4, 5), 4), ((0, 1, 2), 1), ((0, 1), 0), ((3, 4), 0)],
)
def test_steps_whose_calls_and_kernels_a_cut_file_lost_are_none(tmp_path: Path, buffers: tuple[int, ...], count: int) -> None:
    """Buffers are not written in the order of time: of eight steps, the file has the operators, and of some the calls and kernels."""
    each = stepped(with_operators=True)
    of_host = [event for events in each for event in events if event["cat"] not in OF_DEVICE]
    of_device = [event for number in buffers for event in each[number] if event["cat"] in OF_DEVICE]

    facts = account(read(written(tmp_path, json.dumps({"schemaVersion": 1, "traceEvents": of_host + of_device})[:-40])))

    assert (facts.steps.count, facts.verdict) == (count, "healthy" if count else "cannot-tell")
    assert count or "no two iterations" in facts.why


@pytest.mark.parametrize(("lost", "count"), [(4, 7), (6, 4)])
def test_a_step_of_which_a_lossy_file_has_nearly_all_kernels_is_whole(tmp_path: Path, lost: int, count: int) -> None:
    """Of the fourth of eight steps, four or six of a hundred kernels are in a buffer that was lost: steps behind it go on."""
    each = stepped(with_operators=False)
    of_host = [event for events in each for event in events if event["cat"] != "kernel"]
    kernels = [[event for event in events if event["cat"] == "kernel"] for events in each]
    kernels[3] = kernels[3][lost:]
    order = [event for events in kernels for event in events]

    lossy = {"schemaVersion": 1, "WARNING": "12 records dropped", "traceEvents": [*of_host, *order]}
    facts = account(read(written(tmp_path, lossy)))

    assert facts.steps.count == count


@pytest.mark.parametrize(("second", "verdict"), [("", "cannot-tell"), ("without marks", "healthy"), ("another trace", "healthy")])
def test_kernels_of_a_part_of_the_first_step_tell_nothing(tmp_path: Path, second: str, verdict: str) -> None:
    """What comes back in them is no step of a file whose own steps are all cut; without marks it is, and in front of another trace."""
    first = [event for events in stepped(with_operators=False) for event in events]
    marks = [event for event in first if event["cat"] not in OF_DEVICE]
    kernels = [event for event in first if event["cat"] in OF_DEVICE]
    for number, event in enumerate(event for event in kernels if event["cat"] == "kernel"):
        event["name"] = "embedding" if number % 10 == 0 else event["name"]
    if second == "another trace":
        text = json.dumps([*marks[:1], *kernels[:201]]) + json.dumps(kernels)
    else:
        text = json.dumps({"schemaVersion": 1, "traceEvents": [*(() if second else marks), *kernels[:160]]})[:-40]

    facts = account(read(written(tmp_path, text)))

    assert facts.verdict == verdict


def test_a_cut_file_of_one_marked_step_has_it(tmp_path: Path) -> None:
    """All of it is there, and a kernel behind it."""
    machine = Machine()
    steps(machine, 1, lambda machine: machine.work(100))
    for _ in range(9):
        machine.kernel(100)

    facts = account(read(written(tmp_path, json.dumps(with_kernels(machine.events, 108))[:-40])))

    assert (facts.steps.by, facts.steps.count, facts.verdict) == ("ProfilerStep", 1, "healthy")


def test_a_cut_file_without_operators_may_have_steps_of_more_kernels(tmp_path: Path) -> None:
    """Each third step has an evaluation: how many launches a step should have is not in the file."""
    machine = Machine()
    for number in range(8):
        start = machine.now
        machine.work(100 if number % 3 else 200)
        machine.range(f"ProfilerStep#{number}", start)

    assert account(read(written(tmp_path, json.dumps(with_kernels(machine.events, 1_000))[:-40]))).steps.count == 5


def test_launches_of_a_kind_that_never_has_a_number_are_not_lost(tmp_path: Path) -> None:
    """Not every driver says what a graph's launch did: of eight steps whose kernels are all there, a cut file has the first six at least."""
    machine = Machine()
    for number in range(8):
        start = machine.now
        for _ in range(100):
            machine.kernel(100)
        for _ in range(9):
            machine.call("cudaGraphLaunch", 5)
        machine.synchronize()
        machine.range(f"ProfilerStep#{number}", start)

    assert account(read(written(tmp_path, json.dumps(with_kernels(machine.events, 750))[:-40]))).steps.count == 6


@pytest.mark.parametrize("mark", ["ProfilerStep#{}", ""])
def test_in_front_of_another_trace_nothing_is_lost(tmp_path: Path, mark: str) -> None:
    """The first one is whole, also where its last launch has no kernel, or it has no steps."""
    events = with_kernels(marked(mark), 799)["traceEvents"]

    facts = account(read(written(tmp_path, json.dumps(events) + json.dumps(events))))

    assert "another trace" in facts.trust.truncated
    assert (facts.verdict, facts.steps.count) == ("healthy", 7 if mark else 0)


def test_what_a_profiler_dropped_does_not_cut_the_trace_in_front_of_another(tmp_path: Path) -> None:
    """The last step ends behind the last call, as steps do."""
    trace = with_kernels(marked("ProfilerStep#{}"), 800, WARNING="12 records dropped")

    facts = account(read(written(tmp_path, json.dumps(trace) + json.dumps(trace))))

    assert ("another trace" in facts.trust.truncated, facts.trust.dropped_events, facts.steps.count) == (True, 12, 7)


def test_a_cut_file_with_two_whole_iterations_of_a_loader_is_judged(tmp_path: Path) -> None:
    """They are enough for a window, and are its iterations."""
    facts = account(read(written(tmp_path, json.dumps(with_kernels(marked("loader"), 350))[:-40])))

    assert (facts.window_rule, facts.steps.by, facts.verdict) == ("loader", "loader", "healthy")


def test_a_marked_step_without_length_does_not_hide_others(tmp_path: Path) -> None:
    """The file is whole, so what comes back in it are its iterations."""
    events = marked("Optimizer.step#AdamW.step")
    events.append({**events[-1], "name": "ProfilerStep#7", "ts": events[0]["ts"], "dur": 0})

    facts = account(read(written(tmp_path, with_kernels(events, 800))))

    assert (facts.steps.by, facts.steps.count) == ("optimizer", 6)


def test_launches_of_which_none_has_a_kernel_tell_nothing_of_a_cut_file(tmp_path: Path) -> None:
    """The writer did not number them: all steps count but the first."""
    trace = with_kernels(marked("ProfilerStep#{}"), 800)
    for event in trace["traceEvents"]:
        if event["cat"] == "kernel":
            del event["args"]["correlation"]

    assert account(read(written(tmp_path, json.dumps(trace)[:-40]))).steps.count == 7


def test_of_a_cut_file_of_the_cpu_alone_all_steps_count(tmp_path: Path) -> None:
    """There is no device whose work could be lost: what the host did is in the order of time."""
    machine = Machine()
    for number in range(8):
        begun = machine.now
        for _ in range(40):
            start = machine.now
            machine.think(500)
            machine.range("aten::mm", start, "cpu_op")
        machine.range(f"ProfilerStep#{number}", begun)

    whole = machine.trace()
    without_devices = {key: value for key, value in whole.items() if key != "deviceProperties"}
    facts, maybe = (account(read(written(tmp_path, json.dumps(trace)[:-40]))) for trace in (without_devices, whole))

    assert (facts.verdict, facts.steps.count, facts.has_device) == ("compute-bound", 6, False)
    assert "breaks off" in facts.trust.truncated
    assert (account(read(written(tmp_path, whole))).verdict, maybe.verdict) == ("compute-bound", "cannot-tell")
    assert "names a device" in maybe.why


def test_of_two_devices_a_cut_file_counts_the_steps_that_both_have_done(tmp_path: Path) -> None:
    """One thread launches on both in turn, and their kernels are written down as they end."""
    machines = [Machine(device=number) for number in range(2)]
    for number in range(8):
        start = machines[0].now
        for _ in range(100):
            for machine in machines:
                machine.kernel(100)
        for machine in machines:
            machine.synchronize("cudaStreamSynchronize")
        machines[0].range(f"ProfilerStep#{number}", start)
    for event in machines[1].events:
        event["args"]["correlation"] += 1_000_000
    both = sorted(machines[0].events + machines[1].events, key=lambda event: event["ts"] + event["dur"])

    facts = account(read(written(tmp_path, json.dumps(with_kernels(both, 1_100))[:-40])))

    assert (facts.verdict, facts.steps.count, len(facts.devices)) == ("healthy", 4, 2)
    assert min(device.busy_pct or 0 for device in facts.devices) > 95


@pytest.mark.parametrize(("is_cut", "why"), [(True, "it breaks off within the events"), (False, "another trace follows")])
def test_a_file_that_is_not_whole_and_has_no_kernels_does_not_blame_the_profiler(tmp_path: Path, is_cut: bool, why: str) -> None:
    """The host's side of eight steps, and nothing else: what is lost may be all that the device did."""
    events = [event for event in good(8)["traceEvents"] if event["cat"] != "kernel"]
    whole = json.dumps({"schemaVersion": 1, "traceEvents": events})
    result = analyze([written(tmp_path, whole[:-40] if is_cut else whole + whole)], rules()).analysis

    assert f"what that did is not in the file, which is not whole: {why}" in result.trace.why
    assert {finding.rule for finding in result.findings} == {"trust.file-damaged"}
    assert "into a file of its own, and wait until it is written" in " ".join(render(result).split())


def test_a_file_without_a_possible_duration_is_not_said_to_hold_nothing_known(tmp_path: Path) -> None:
    """200 operators and as many kernels end before they begin."""
    events = [
        {"ph": "X", "cat": cat, "name": "k", "pid": 1, "tid": 1, "ts": at * 10, "dur": -5}
        for at in range(200)
        for cat in ("kernel", "cpu_op")
    ]

    facts = account(read(written(tmp_path, {"traceEvents": events})))

    assert facts.verdict == "cannot-tell"
    assert facts.trust.bad_durations == 200
    assert "the file is damaged" in facts.why


@pytest.mark.parametrize(
    ("events", "cut"), [('{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": "x", "dur": []}, ', 0), ("", 30)]
)
def test_a_damaged_file_without_anything_that_lasts_says_that_it_is_damaged(tmp_path: Path, events: str, cut: int) -> None:
    """An event that cannot be read, or an end that is lost; of a whole file no damage is told."""
    moment = '{"ph": "i", "cat": "cpu_instant_event", "name": "x", "pid": 1, "tid": 1, "ts": 1.0, "s": "t"}'

    def why(more: str, end: int) -> str:
        text = '{"schemaVersion": 1, "traceEvents": [%s%s, %s]}' % (more, moment, moment)  # noqa: UP031 - braces are the text's own
        return account(read(written(tmp_path, text[: len(text) - end]))).why

    assert "the file is damaged" in why(events, cut)
    assert "of a kind that sysperf knows" in why("", 0)


def test_a_long_text_in_an_event_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no event ends, as much again is read before it is looked for one; a name is kept as far as names go."""
    seen = list[int]()

    def counted(text: bytes) -> int:
        seen.append(len(text))
        return last_cut(text)

    monkeypatch.setattr(kineto, "last_cut", counted)
    events = [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 7, "dur": 1} for name in ("a", "b" * (40 << 20), "c")]
    timeline = read(written(tmp_path, json.dumps({"traceEvents": events})))

    assert sum(seen) < 6 * (40 << 20)
    assert len(timeline.ranges) == 3
    assert max(map(len, timeline.names.texts)) == MAX_NAME


@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_a_cut_export_is_one_error_or_an_answer(tmp_path: Path, part: float) -> None:
    raw = MOCK.read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(raw[: int(len(raw) * part)])
    with contextlib.suppress(TraceError):
        account(read(str(path)))


@pytest.mark.parametrize(
    ("name", "raw", "what_next"),
    [
        ("cut.sqlite", MOCK.read_bytes()[:100_000], "copy it again from where it was written, or export it again"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": [')[:-9], "copy it again from where it was written, or take the trace again"),
        ("empty.json", b"", "take the trace again, and wait until it is written"),
    ],
    ids=["export", "compressed", "empty"],
)
def test_of_a_file_that_was_cut_too_early_is_said_what_to_do(tmp_path: Path, name: str, raw: bytes, what_next: str) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(TraceError) as error:
        read(str(path))

    assert what_next in error.value.hint


def test_a_report_of_nsight_systems_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nsys is not installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"\x00\x01 a report")

    assert main(["analyze", str(path)]) == 2
    assert "nsys export --type sqlite" in capsys.readouterr().err


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: ranks are read by one process")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_worker_outlives_an_analysis_of_ranks(tmp_path: Path, number: signal.Signals) -> None:
    """Whoever waits for the end of its output would wait for ever."""
    event = json.dumps({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1})
    paths = [written(tmp_path, f'{{"traceEvents": [{",".join([event] * 50_000)}]}}', f"{rank}.json") for rank in range(4)]
    running = subprocess.Popen([sys.executable, "-m", "sysperf", "analyze", *paths], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None and len(children.read_text().split()) < 2:
        time.sleep(0.01)
    assert running.poll() is None, "it ended before it had workers"
    running.send_signal(number)
    running.communicate(timeout=300)  # until nobody holds its pipes

    assert running.returncode == -number

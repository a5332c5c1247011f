"""Fuzzers of what profilers print, and of what programs say to the tracer: records, one error, or nothing."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import sysperf_perf.reading
import sysperf_pyspy.reading
from hypothesis import given
from hypothesis import strategies as st
from sysperf_torch import wire

from sysperf.model.profile import Split
from sysperf.report.formats import as_json
from sysperf.report.profiling import profile
from tests.fuzzing import fuzz
from tests.mutation import damaged_bytes, damaged_json

PERF = b"""python 4242
            7f12ab34 py::train:/home/me/train.py (/tmp/perf-4242.map)
            55d0f00d _PyEval_EvalFrameDefault+0x12 (/usr/bin/python3.11 (deleted))

python 4243 7f12ab34 at::native::add (libtorch_cpu.so)
"""
DUMP: list[dict[str, Any]] = [
    {
        "pid": 4242, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 4242, "active": True, "owns_gil": True,
        "frames": [{"name": "step", "filename": "/home/me/train.py", "module": None, "short_filename": "train.py", "line": 31, "locals": None}],
    }
]  # fmt: skip
RAW = b"thread (0x7f1): MainThread;<module> (train.py:9);step (/home/me/train.py:31) 17\nthread (4243);run (threading.py:982) 3\n"


def shown(printed: object) -> None:
    """As text and as JSON."""
    json.loads(as_json.dump(printed))


@fuzz
@given(damaged_bytes(PERF) | st.binary(max_size=300))
def test_perf_script(printed: bytes) -> None:
    """Symbols come out of other programs' files."""
    samples = sysperf_perf.reading.samples(printed)
    shown(samples)
    assert all(sample.count > 0 for sample in samples)


@fuzz
@given(damaged_json(DUMP))
def test_py_spy_dump(dump: Any) -> None:
    """Names and numbers of any kind."""
    read(json.dumps(dump).encode())


@fuzz
@given(damaged_bytes(json.dumps(DUMP).encode()) | st.binary(max_size=300))
def test_py_spy_dump_of_any_bytes(printed: bytes) -> None:
    read(printed)


def read(printed: bytes) -> None:
    with contextlib.suppress(ValueError, sysperf_pyspy.reading.Torn):
        stacks = sysperf_pyspy.reading.stacks(printed, 4242)
        shown(stacks)
        assert profile.stacks(stacks, color=False, width=80)


@fuzz
@given(damaged_bytes(RAW) | st.binary(max_size=300))
def test_py_spy_record(printed: bytes) -> None:
    samples = sysperf_pyspy.reading.samples(printed)
    shown(samples)
    assert not isinstance(samples, Split)


@fuzz
@given(damaged_bytes(wire._HEAD.pack(24, b"req") + wire._REQUEST.pack(2, 2, 1) + b"\0" * 8) | st.binary(max_size=120))
def test_datagrams_of_programs(datagram: bytes) -> None:
    """Any process may send any; what is no request is nothing, and every answer can be packed."""
    request = wire.parse(datagram)
    if request is not None:
        assert wire.parse(datagram + b"\0") is None
        assert wire.reply(request, "ACTIVITIES_DURATION_MSECS=1\n")

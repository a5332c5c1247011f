"""Large and growing files: a page stays small enough to be opened, and a file is read as far as it went."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sysperf.engine.analyze import analyze
from sysperf.report.profiling import timeline
from sysperf.trace import account
from sysperf.trace.output.drawing import MAX_EVENTS, Subject, draw
from sysperf.trace.reading import part
from sysperf.trace.reading.readers import read

from .labelled import rules
from .synthetic import Machine, steps, written

EVENT = (
    '{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":7,"ts":{ts}.{part:03},"dur":5.5,'
    '"args":{{"device":0,"stream":7,"correlation":{number}}}}}'
)


def large(path: Path, events: int) -> str:
    """A trace with so many events: launches and kernels, one after the other."""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for number in range(events // 2):
            at = 1_000_000 + number * 10
            call = EVENT.format(cat="cuda_runtime", name="cudaLaunchKernel", pid=1, ts=at - 20, part=number % 1000, number=number)
            kernel = EVENT.format(cat="kernel", name=f"gemm_{number % 50}", pid=0, ts=at, part=number % 1000, number=number)
            file.write(f"{call},\n{kernel}{',' if number + 1 < events // 2 else ''}\n")
        file.write("]}")
    return str(path)


@pytest.mark.slow
def test_a_page_of_a_hundred_thousand_events_is_bounded(tmp_path: Path) -> None:
    """The drawing holds a part of them, says how many it leaves out, and the page is no larger than a picture."""
    path = large(tmp_path / "large.json", 100_000)
    result = analyze([path], rules())
    assert result.accounting is not None
    drawing = draw(Subject(result.accounting))
    page = timeline.render(result.analysis, drawing)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert data is not None
    drawn = sum(len(row["start"]) for row in json.loads(data[1])["rows"])

    assert drawn == sum(len(row.events) for row in drawing.rows)
    assert drawn + drawing.left_out >= 100_000
    assert drawn == MAX_EVENTS
    assert len(page) < 10 << 20


def test_a_sample_finds_the_start_of_a_long_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hundredth of it is wanted, which is less than lies between two samples' places."""
    monkeypatch.setattr(part, "WHOLE_BYTES", 1)
    monkeypatch.setattr(part, "SAMPLED_ROWS", 60)
    path = Path(large(tmp_path / "long.json", 60_000))
    with path.open("rb") as file:
        cut = part.sampled_cut(file.fileno(), path.stat().st_size)

    assert cut is not None
    assert 40 <= 2 * (cut.at / 1_000 - 1_000_000) / 10 <= 90


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_it_went(tmp_path: Path) -> None:
    """Its writer adds events, and its end, meanwhile: what was there at the start is in, and nothing is counted twice."""

    def step(machine: Machine) -> None:
        for _ in range(2_000):
            machine.think(10)
            machine.kernel(50)

    text = json.dumps(steps(Machine(), 5, step).trace())
    whole = account(read(written(tmp_path, text, "whole.json"))).trust.gpu_ops
    half = len(text) // 2
    path = Path(written(tmp_path, text[:half], "growing.json"))
    start = account(read(str(path))).trust.gpu_ops
    added = False

    def grow(_: int) -> None:
        nonlocal added
        if not added:
            added = True
            with path.open("a") as file:
                file.write(text[half : half + half // 2])

    rank = account(read(str(path), grow))

    assert added
    assert start <= rank.trust.gpu_ops < whole == 10_000
    assert rank.trust.truncated

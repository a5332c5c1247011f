"""What call stacks name: functions and their lines, and waiting for another thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.model.finding import Finding, Place
from sysperf.report.profiling import analysis as text
from sysperf.trace import frames

from .labelled import rules
from .synthetic import MS, Machine, steps, written

LOCK = "<built-in method acquire of _thread.lock object at 0x7f7cffdd{}>"


def pausing(folder: Path, pauses: list[str], *, caller: str = "server.py(18): serve") -> Result:
    """Six steps on the CPU of 40 operators and, after them, 4 ms in each of these functions, called by one that was open at the beginning."""
    machine = Machine()
    begin = machine.now
    machine.event("python_function", "torch/autograd/profiler.py(414): _start_trace", begin, 100)
    machine.think(200)
    number = 0

    def step(machine: Machine) -> None:
        nonlocal number
        for _ in range(40):
            machine.event("cpu_op", "aten::addmm", machine.now, 100)
            machine.think(105)
        for pause in pauses:
            number += 1
            machine.event("python_function", pause.format(f"{number:04x}"), machine.now, 4 * MS)
            machine.think(4 * MS)

    steps(machine, 6, step)
    machine.event("python_function", caller, begin - 5, machine.now - begin + 10)
    return analyze([written(folder, {"traceEvents": machine.events})], rules())


def pause_of(result: Result) -> Finding:
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "program.hole"]
    return finding


def test_a_function_that_was_open_when_the_recording_began_has_no_line(tmp_path: Path) -> None:
    """PyTorch writes the line that began the recording, as `profiler.step()`, for it; of one called later, the line of its `def`."""
    assert pause_of(pausing(tmp_path, ["<built-in function sleep>"])).places == (Place("server.py", function="serve"),)
    assert pause_of(pausing(tmp_path, ["server.py(7): save"])).places == (Place("server.py", 7, "save"),)


def test_places_that_differ_by_an_address_alone_are_one(tmp_path: Path) -> None:
    """A lock is a new object in each step of a queue."""
    result = pausing(tmp_path, [LOCK])

    assert result.analysis.trace.ranks[0].hole.cause == "<built-in method acquire of _thread.lock>"
    assert len(pause_of(result).places) == 1


def test_a_collection_of_garbage_is_no_other_pause(tmp_path: Path) -> None:
    """`gc.collect()` in each step has a rule and a gain of its own, and its time is no part of the pause beside it."""
    result = pausing(tmp_path, ["<built-in function collect>", "<built-in function sleep>"], caller="train.py(18): train")
    costs = {finding.rule: finding.cost_pct for finding in result.analysis.findings}
    collections = next(finding for finding in result.analysis.findings if finding.rule == "program.garbage-collection")

    assert result.analysis.trace.verdict == "host-bound"
    assert costs == {"program.garbage-collection": pytest.approx(32.8, abs=0.5), "program.hole": pytest.approx(32.8, abs=0.5)}
    assert collections.gain.interval
    assert collections.gain.high == pytest.approx(32.8, abs=0.5)
    assert collections.places == (Place("train.py", function="train"),)


def test_a_place_counts_how_often_the_program_was_there(tmp_path: Path) -> None:
    """And not at how many moments it was looked for."""
    (site,) = pausing(tmp_path, ["<built-in function sleep>"]).analysis.trace.ranks[0].hole_sites

    assert site.count == 5


@pytest.mark.parametrize(("pauses", "least"), [([LOCK], 0), ([LOCK, "<built-in function sleep>"], 26), (["<built-in function sleep>"], 39)])
def test_waiting_for_another_thread_is_no_gain_that_is_promised(tmp_path: Path, pauses: list[str], least: float) -> None:
    """What the other thread did, and whether it could be done sooner, is not in the file."""
    gain = pause_of(pausing(tmp_path, pauses)).gain

    assert gain is not None
    assert gain.low == pytest.approx(least, abs=2)
    assert gain.high == pytest.approx(65 if len(pauses) == 2 else 48, abs=2)


@pytest.mark.parametrize(
    ("stack", "told"),
    [
        # what torch 2.13 records of a script in a folder, of `python -m mylib.run`, and of a package in site-packages
        (["train.py(14): <module>", "train.py(12): main", "mylib/engine.py(7): pause"], "mylib/engine.py:7 (pause)"),
        (["<frozen runpy>(88): _run_code", "mylib/run.py(12): main", "mylib/engine.py(7): pause"], "mylib/engine.py:7 (pause)"),
        (["/home/me/train.py(9): main", "torch/optim/adam.py(30): step"], "/home/me/train.py:9 (main)"),
        (["train.py(12): main", "lightning/pytorch/loops/fit_loop.py(140): advance"], "train.py:12 (main), in lightning"),
        (
            [
                "train.py(12): main",
                "lightning/pytorch/loops/fit_loop.py(140): advance",
                "train.py(31): training_step",
                "typing.py(9): cast",
            ],
            "train.py:31 (training_step)",
        ),
        (["train.py(5): main", "/opt/venv/lib/python3.12/site-packages/fancy/a.py(6): fit"], "train.py:5 (main), in fancy"),
        (["train.py(5): main", "/opt/venv/lib/python3.12/site-packages/fancy.py(6): fit"], "train.py:5 (main), in fancy"),
        (["threading.py(9): run", "PIL/Image.py(40): open"], "PIL/Image.py:40 (open), of the package PIL"),
        (["datasets/coco.py(3): decode"], "datasets/coco.py:3 (decode)"),
        (["train.py(5): main", "/usr/lib/python3.11/json/encoder.py(6): encode"], "train.py:5 (main)"),
        (["/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py(6): _call_impl"], ""),
    ],
)
def test_lines_are_the_programs_own(stack: list[str], told: str) -> None:
    """The innermost line that is of neither PyTorch nor an installed package, which is named where it goes on in there."""
    place = frames.innermost(map(frames.line, stack))

    assert place == frames.of_stack(";".join(reversed(stack)))
    assert (place.text if place else "") == told


def test_a_pause_in_a_package_names_the_programs_line_and_the_package(tmp_path: Path) -> None:
    result = pausing(tmp_path, ["lightning/pytorch/loops/fit_loop.py(140): advance"])

    assert pause_of(result).places == (Place("server.py", function="serve", calls="lightning"),)


def test_of_one_step_nobody_knows_whether_a_pause_comes_back(tmp_path: Path) -> None:
    """It is not counted to the short times between operators, and the verdict says what would tell."""
    machine = Machine()

    def step(machine: Machine) -> None:
        for _ in range(60):
            machine.event("cpu_op", "aten::addmm", machine.now, 100)
            machine.think(105)
        machine.think(10 * MS)

    steps(machine, 1, step)
    result = analyze([written(tmp_path, {"traceEvents": machine.events})], rules())

    assert result.analysis.trace.verdict == "cannot-tell"
    assert "pauses of 1 ms and more have 61 %" in result.analysis.trace.why
    assert "Next: profile 5 steps or more" in text.render(result.analysis)
    assert result.analysis.findings == ()


def test_short_times_between_operators_have_lines(tmp_path: Path) -> None:
    """0.4 ms of Python after each operator are no pauses, and stacks say where they are."""
    machine = Machine()

    def step(machine: Machine) -> None:
        for _ in range(20):
            machine.event("cpu_op", "aten::addmm", machine.now, 100)
            machine.think(105)
            machine.event("python_function", "train.py(40): tokenise", machine.now, 400)
            machine.think(400)

    steps(machine, 6, step)
    (finding,) = analyze([written(tmp_path, {"traceEvents": machine.events})], rules()).analysis.findings

    assert (finding.rule, finding.places) == ("program.python-bound", (Place("train.py", 40, "tokenise"),))

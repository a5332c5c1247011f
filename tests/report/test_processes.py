"""The table of running programs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from sysperf.cli import ps
from sysperf.cli._options import WHOLE_LINES
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process.records import Process, Processes
from sysperf.model.errors import UsageError
from sysperf.model.finding import Finding, Gap, Report, Rewrap, Subject, Tally
from sysperf.model.snapshot import Area, Snapshot
from sysperf.report import processes
from sysperf.report.terminal import cells
from tests.golden import ROOT, Golden
from tests.report import reports
from tests.report.hostile import harmless, texts

FOLDER = ROOT / "tests/report/golden"

TRAIN: dict[str, Any] = {
    "pid": 4242,
    "name": "python",
    "age_s": 11_100.0,
    "torch": {"version": "2.13.0+cu130", "prefix": "/opt/conda/envs/train"},
    "cuda_used": True,
    "gpu_bus_ids": ["0000:60:00.0", "0000:61:00.0"],
    "affinity": {"now": "0-47"},
    "threads": {"count": 52},
    "workers": {"count": 2},
    "memory": {"rss_bytes": 13_207_000_000},
    "command": "python train.py --model gpt2 --data /data/openwebtext --batch-size 32 --compile",
    "env": {"OMP_NUM_THREADS": "8"},
    "loaded": {"allocator": "glibc", "openmp": [{"name": "libgomp.so.1"}]},
    "job": {"rank": 0, "world_size": 2},
}
SERVE: dict[str, Any] = {
    **TRAIN,
    "pid": 77,
    "age_s": 61,
    "cuda_used": False,
    "gpu_bus_ids": None,
    "workers": {"count": 0},
    "command": "serve",
    "env": None,
}
DEVICES = [{"index": index, "bus_id": f"0000:{index + 0x60:02X}:00.0", "name": "H100"} for index in range(2)]


def snapshot(*programs: dict[str, Any], **facts: Any) -> Snapshot:
    """A machine that runs these."""
    return reports.snapshot(process={"processes": [*programs], "scanned": 134, "unreadable": 0, **facts}, gpu={"devices": DEVICES})


def about(pid: int, **changes: Any) -> Finding:
    """A finding about a program."""
    return reports.balancing(
        **{
            "rule": "process.workers-few",
            "subject": Subject("process", "python", pid=pid),
            "message": "2 DataLoader workers for 48 CPUs.",
            **changes,
        }
    )


def render(facts: Snapshot, outcomes: tuple[Finding, ...], rewraps: tuple[Rewrap, ...] = (), **options: Any) -> str:
    """The table of what was read and judged."""
    report = Report(sysperf="1.2.3", snapshot=facts, outcomes=outcomes, tally=Tally(), rewraps=rewraps)
    return processes.render(report, **options)


OUTCOMES = (
    about(4242),
    reports.unknown(
        "process.remote-memory", Gap("proc.memory.nodes", "only read with --deep"), subject=Subject("process", "python", pid=4242)
    ),
)


@pytest.mark.parametrize("width", [80, 120])
def test_programs_with_their_findings(width: int, golden: Golden) -> None:
    """A row a program, what is wrong below it."""
    text = render(snapshot(TRAIN, SERVE, unreadable=3), OUTCOMES, width=width)

    golden(FOLDER / f"processes-{width}.txt", text)
    assert max(map(cells, text.splitlines())) <= width


def test_verbose_tells_how_it_was_started(golden: Golden) -> None:
    """Environment, allocator, rank and the commands that help."""
    golden(FOLDER / "processes-verbose.txt", render(snapshot(TRAIN, SERVE), OUTCOMES, width=100, verbose=True))


def test_a_finding_stands_under_its_own_program() -> None:
    """Process 42 is not process 4242."""
    rows = render(snapshot(TRAIN, {**SERVE, "pid": 42}), (about(42),), width=100).splitlines()

    assert next(index for index, row in enumerate(rows) if "process.workers-few" in row) == 3
    assert rows[2].split()[0] == "42"


def test_a_program_reads_whole_lines() -> None:
    """Through a pipe nothing is cut, so that grep and logs have the rest; a terminal has a line a finding."""
    long = (about(77, message="a long message " * 20),)

    assert "a long message " * 19 in render(snapshot(SERVE), long, width=WHOLE_LINES)
    assert max(map(cells, render(snapshot(SERVE), long, width=100).splitlines())) <= 100


def test_programs_of_one_user() -> None:
    """With what was found of them, and nothing of others; a user is a name or a number."""
    mine, other = Process(pid=7, ppid=1, name="python", user=1000), Process(pid=8, ppid=1, name="python", user=0)
    machine = Snapshot(taken_at="", areas={"process": Area(Processes(processes=(mine, other)))})
    report = ps.of_user(reports.report(about(7), about(8), machine=machine), 1000)

    assert [process.pid for process in MachineFacts(report.snapshot.areas).programs] == [7]
    assert [outcome.subject.pid for outcome in report.outcomes] == [7]
    assert (ps.number_of("root"), ps.number_of("1000")) == (0, 1000)
    with pytest.raises(UsageError, match="no such user"):
        ps.number_of("nobody-of-this-name")


def test_no_program_is_an_answer() -> None:
    """It says among how many processes it looked."""
    assert render(snapshot(), ()) == "No PyTorch program is running among 134 processes.\n"


def test_processes_that_may_not_be_read_are_told() -> None:
    """Unknown is not absent."""
    text = render(snapshot(unreadable=3), ())

    assert "3 large programs of other users could not be examined → run it as root: `sudo sysperf ps`" in text


def test_an_unread_area_gives_its_reason() -> None:
    """Without /proc nothing is known."""
    assert render(reports.snapshot(process="no /proc"), ()) == "PyTorch programs are unknown: no /proc\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (61, "1 min"), (11_100, "3 h 05"), (200_000, "2 d 07 h"), (None, "?"), (-1, "?")]
)
def test_ages_are_short(seconds: Any, text: str) -> None:
    """Two units at most."""
    assert processes.age(seconds) == text


def test_gpus_are_numbers_where_they_are_known() -> None:
    """Bus addresses are matched whatever their case; unknown is a question mark, none is a dash."""
    text = render(snapshot(TRAIN, SERVE, {**TRAIN, "gpu_bus_ids": None}, {**TRAIN, "gpu_bus_ids": ["0000:99:00.0"]}), (), width=120)

    assert [line.split("2.13.0")[1].split()[0] for line in text.splitlines()[1:5]] == ["0,1", "-", "?", "0000:99:00.0"]


@given(text=texts)
@settings(max_examples=20)
def test_foreign_text_is_printable(text: str) -> None:
    """A process chooses its name, command line and environment itself."""
    program = {**TRAIN, "name": text, "command": text, "torch": {"version": text, "prefix": text}}
    program |= {"env": {text: text}, "gpu_bus_ids": [text], "loaded": {"allocator": text, "openmp": [{"name": text}]}}

    again = Rewrap(4242, text, (text,))
    rendered = render(snapshot(program), (about(4242, message=text, rule=text),), (again,), verbose=True)

    assert harmless(rendered)


def test_what_wrap_would_have_set_stands_under_its_program() -> None:
    """One line; with --verbose also the command line to start it again with."""
    again = Rewrap(4242, "sysperf wrap -- python train.py", ("OMP_NUM_THREADS=24", "CPUs 0-47"), ("wrap.threads",))
    rows = render(snapshot(TRAIN, SERVE), (), (again,), width=100).splitlines()
    assert rows[2].strip() == "→ wrap would have set OMP_NUM_THREADS=24 and CPUs 0-47"
    assert sum("wrap would" in row for row in rows) == 1
    assert "sysperf wrap -- python train.py" in render(snapshot(TRAIN), (), (again,), width=100, verbose=True)

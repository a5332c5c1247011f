"""`sysperf fleet job`: ranks as nodes tell of them, windows, second signals, and four real ranks on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine.fleet import job, ranks
from sysperf.fleet.names import is_job
from sysperf.model.fleet import FleetJob, JobWindow
from sysperf.model.node import MAX_RECORD_BYTES, Asked, NodeRecord, RankRecord
from sysperf.model.record import to_json
from sysperf.report.fleet import job as report
from sysperf.trace.rank_summary import Entry, RankSummary, aligned
from tests.fleet.machines import node, record, write
from tests.fuzzing import fuzz
from tests.invoking import sysperf
from tests.plugins.programs import sockets

MS = 1_000_000
PROGRAM = Path(__file__).with_name("gloo_ranks.py")


def summary(rank: int, ends_ms: Sequence[float], took_ms: Sequence[float], clock_ms: float = 0) -> RankSummary:
    """Collectives that end at these times, by a clock of its own."""
    entries = []
    for end, took in zip(ends_ms, took_ms, strict=True):
        first, last = round((end - took + clock_ms) * MS), round((end + clock_ms) * MS)
        entries.append(Entry("gloo:all_reduce", first, last, [(first, last)]))
    return RankSummary(rank, round(1_000 * MS), entries, {})


def told(rank: int, took_ms: float = 10.0, count: int = 40, size: int = 4, **fields: Any) -> RankRecord:
    """A rank whose collectives take so long."""
    ends = [25.0 * number + (number * number % 7) for number in range(1, count + 1)]
    plain = RankRecord(rank=rank, pid=100 + rank, world_size=size, **{"waits_pct": 5.0, "throttled_pct": 0.0, "nice": 0, **fields})
    return ranks.packed(plain, summary(rank, ends, [took_ms] * count), {"time in operators": 30.0 if took_ms < 5 else 20.0})


def unclear(size: int) -> JobWindow:
    """Half of the waiting of ranks that are treated alike is for one rank once, the rest for two others."""
    ends = [25.0 * number for number in range(1, 41)]
    took = [[10.0] * 40 for _ in range(size)]
    took[2][5], took[1][20], took[3][30] = 0.1, 4.0, 4.0
    for rank in {*range(size)} - {2}:
        took[rank][5] = 300.0
    plain = [RankRecord(rank=rank, pid=100 + rank, world_size=size, waits_pct=5.0, throttled_pct=0.0, nice=0) for rank in range(size)]
    return seen(held(*(ranks.packed(each, summary(each.rank, ends, took[each.rank]), {"time in operators": 20.0}) for each in plain)))


def held(*each: RankRecord, name: str = "n1", findings: Sequence[dict[str, Any]] = ()) -> NodeRecord:
    return msgspec.structs.replace(record(name, findings=list(findings)), ranks=each, job="4242")


def seen(*records: NodeRecord) -> JobWindow:
    return job.window({each.node: each for each in records}, "4242")


def verdict(windows: Sequence[JobWindow], span_s: float = 600.0) -> FleetJob:
    found = FleetJob(sysperf="0", taken_at="", engine="ssh", job="4242", asked=1, answered=1, windows=tuple(windows))
    return job.judged(found, span_s)


LATE = [told(0), told(1), told(2, 1.0), told(3)]


def test_the_rank_that_waits_least_is_late() -> None:
    """With one signal it is the rank: its share of work, its loader, or its node."""
    window = seen(held(*LATE))
    found = verdict([window])

    assert (window.late, window.node, window.cause, window.signals, window.unknown) == (2, "n1", "time in operators", (), ())
    assert (found.verdict, found.late, found.chronic) == ("rank", 2, None)
    assert "its share of work, its loader, or its node" in " ".join(report.render(found).split())


@pytest.mark.parametrize(
    ("fields", "signal"),
    [
        ({"throttled_pct": 80.0}, "its CPU quota stops it in 80 % of periods, the others in 0 %"),
        ({"nice": 19}, "its priority is nice 19, that of the others 0"),
        ({"waits_pct": 60.0}, "it waits for a CPU 60 % of the time in which it wants one, the others 5 %"),
    ],
)
def test_a_second_signal_names_the_node(fields: dict[str, Any], signal: str) -> None:
    """How the kernel treats it, beside the others."""
    window = seen(held(*LATE[:2], told(2, 1.0, **fields), LATE[3]))

    assert window.signals == (signal,)
    assert (verdict([window]).verdict, verdict([window]).node) == ("node", "n1")


def test_ranks_that_are_late_together_name_their_node_where_they_are_all_of_it() -> None:
    """Late ranks of two nodes are told, and accuse neither."""
    quick, slow = [told(rank) for rank in range(4)], [told(rank, 1.0) for rank in range(4)]
    node = seen(held(*quick[:2]), held(*slow[2:], name="n2"))
    apart = seen(held(quick[0], slow[1]), held(quick[2], slow[3], name="n2"))

    assert (node.late, node.beside, node.node, node.signals) == (2, (3,), "n2", ("all 2 of its ranks are late, and no other is",))
    assert (verdict([node]).verdict, verdict([node]).node) == ("node", "n2")
    assert (apart.late, apart.beside, apart.signals, verdict([apart]).verdict) == (1, (3,), (), "rank")
    assert "With rank 3, it causes 100 % of the lateness" in " ".join(report.render(verdict([apart])).split())


def test_what_is_unknown_is_no_signal() -> None:
    """Neither of the late rank, nor of the others."""
    nothing: dict[str, Any] = {"waits_pct": None, "throttled_pct": None, "nice": None}
    assert job.treated(told(2, **nothing), [told(0), told(1)]) == ()
    assert job.treated(told(2, waits_pct=90.0, nice=19), [told(0, **nothing)]) == ()


def test_a_finding_of_its_node_alone_is_a_signal() -> None:
    """What all nodes have explains nothing."""
    ecc = {"rule": "gpu.ecc-uncorrectable", "severity": "error", "subject": "GPU 3", "message": "GPU 3 had 2 uncorrected errors."}
    swap = {"rule": "memory.swapping", "severity": "warning", "subject": "", "message": "It swaps."}
    one, two = held(told(0), told(1), findings=[swap]), held(told(2, 1.0), told(3), name="n2", findings=[ecc, swap])

    assert seen(one, two).signals == ("gpu.ecc-uncorrectable: GPU 3 had 2 uncorrected errors.",)
    assert seen(held(*LATE, findings=[ecc])).signals == ()


def test_nobody_is_late_where_all_wait_alike() -> None:
    found = verdict([seen(held(*map(told, range(4))))])

    assert (found.verdict, found.late) == ("nobody", None)


@pytest.mark.parametrize("size", [4, 8])
def test_waiting_that_one_window_does_not_explain_leaves_it_open(size: int) -> None:
    """Neither is a rank late, nor do they take turns: the report says how to find out, and more windows that are clear decide."""
    window, even = unclear(size), seen(held(*(told(rank, size=size) for rank in range(size))))
    found = verdict([window])
    said = " ".join(report.render(found).split())

    assert (window.late, window.rotates, window.unknown, found.verdict) == (None, False, (), "cannot tell")
    assert "its ranks wait, and for whom is not clear" in said
    assert f"In 1 window ranks wait up to {window.lost_pct:.0f} % of their time" in said
    assert "`--windows 10` with `--every` so many seconds" in said
    assert "`sysperf node ranks --seconds 10`" in " ".join(report.render(msgspec.structs.replace(found, engine="folder")).split())
    assert verdict([window, even]).verdict == "cannot tell"
    assert verdict([window, even, even]).verdict == "nobody"
    assert "`--windows 10`" not in report.render(verdict([window, even, even]))
    assert verdict([window, even, seen(held(told(0, size=size)))]).verdict == "cannot tell"


def test_ranks_that_are_missing_leave_it_open() -> None:
    """One of them may be later than the late one: a rank that gets no CPU is the likeliest to miss its trace."""
    alike, late = seen(held(*map(told, range(3)))), seen(held(told(0), told(1), told(2, 1.0)))

    assert verdict([alike]).verdict == "cannot tell"
    assert (verdict([late]).verdict, verdict([late]).late) == ("cannot tell", 2)
    assert "of the ranks that were seen, rank 2 on n1 comes last" in " ".join(report.render(verdict([late])).split())
    assert "one of the others may be later" in late.unknown[0]
    assert verdict([seen(held())]).verdict == verdict([seen()]).verdict == "cannot tell"


def test_a_rank_that_two_claim_is_neither() -> None:
    """And one whose trace failed is told with its reason."""
    window = seen(held(*LATE), held(told(2, 20.0), name="n2"))
    failed = seen(held(*LATE[:3], told(3, problem="it ended\x1b[2J", count=0)))

    assert window.ranks == 3
    assert sum("2 processes say that they are this rank" in line for line in window.unknown) == 2
    assert any("it ended" in line for line in failed.unknown)
    assert "\x1b" not in report.render(verdict([failed]))


def test_a_record_of_another_job_is_left_out() -> None:
    other = msgspec.structs.replace(held(*LATE), job="77")

    assert seen(other).unknown[0] == "n1: it tells of another job"


@pytest.mark.parametrize(
    ("late", "span_s", "expected"),
    [
        ([2] * 10, 600.0, ("rank", True)),
        ([2] * 8 + [None, 1], 600.0, ("rank", True)),
        ([2] * 7 + [None] * 3, 600.0, ("rank", False)),
        ([2] * 9, 600.0, ("rank", None)),
        ([2] * 10, 60.0, ("rank", None)),
        ([0, 1, 2, 3] * 3, 600.0, ("nobody", None)),
    ],
)
def test_chronic_or_once(late: Sequence[int | None], span_s: float, expected: tuple[str, bool | None]) -> None:
    """The same rank in 8 of 10 windows over ten minutes."""
    found = verdict([JobWindow(taken_at="", ranks=4, matched=40, late=each, node="n1", lost_pct=9.0) for each in late], span_s)

    assert (found.verdict, found.chronic) == expected


@given(st.integers(-30, 30), st.integers(-(10**9), 10**9), st.lists(st.floats(1, 60), min_size=80, max_size=80))
def test_windows_that_begin_apart_are_laid_over_each_other(shift: int, clock_ms: int, steps: Sequence[float]) -> None:
    """By when ranks leave collectives together, whatever their clocks show."""
    ends = [sum(steps[:number]) for number in range(1, 81)]
    first, second = slice(max(0, shift), 50 + max(0, shift)), slice(max(0, -shift), 50 + max(0, -shift))
    one, two = aligned([summary(0, ends[first], [0.5] * 50), summary(1, ends[second], [0.5] * 50, clock_ms)])
    by_key = {entry.key: entry.end for entry in one.collectives}
    apart = {entry.end - by_key[entry.key] for entry in two.collectives if entry.key in by_key}

    assert max(apart) - min(apart) <= 2
    assert len(by_key.keys() & {entry.key for entry in two.collectives}) >= 20


def test_numbers_of_a_process_group_stay() -> None:
    """NCCL's collectives are known by their numbers."""
    numbered = RankSummary(0, MS, [Entry(f"0#{number}", number, number + 1, []) for number in range(9)], {})

    assert aligned([numbered, numbered._replace(rank=1)]) == [numbered, numbered._replace(rank=1)]
    assert aligned([]) == []


def test_a_record_has_room_for_all_its_ranks() -> None:
    """Of eight with thousands of collectives the first ones travel, with their part of the window."""
    many = [told(rank, count=4_000) for rank in range(8)]
    whole = ranks.fitted(record("n1"), many)

    assert len(to_json(whole)) <= MAX_RECORD_BYTES
    assert {len(rank.collectives) for rank in whole.ranks} == {len(whole.ranks[0].collectives)}
    assert len(whole.ranks[0].collectives) > 100
    assert ranks.unpacked(whole.ranks[0]).collectives[0].took == 10 * MS


def test_stages_of_a_pipeline_are_told_by_what_two_exchange() -> None:
    """Each of three waits in what it receives for the rest of a step of 10 ms, also where its record was sent."""
    records = []
    for number, waiting_ms in enumerate((6, 1, 6)):
        entries = [
            Entry("recv", at * 10 * MS, at * 10 * MS + waiting_ms * MS, [(at * 10 * MS, at * 10 * MS + waiting_ms * MS)], True)
            for at in range(40)
        ]
        records.append(
            ranks.packed(
                RankRecord(rank=number, world_size=3), RankSummary(number, 400 * MS, entries, {}), {"kernel time": 90.0 - 10 * waiting_ms}
            )
        )
    window = seen(held(*records))

    assert window.late == 1
    assert window.lost_pct == pytest.approx(50, abs=1)
    assert ranks.unpacked(records[0]).collectives[0].is_between_two


NUMBERS = st.integers(-(2**63), 2**63 - 1)


@fuzz
@given(st.lists(st.tuples(NUMBERS | st.integers(0, 2), NUMBERS, NUMBERS, st.lists(NUMBERS, max_size=5).map(tuple)), max_size=5), NUMBERS)
def test_whatever_a_node_sends_is_compared_or_told(rows: list[Any], window_ns: int) -> None:
    """No traceback, and no time below 0."""
    hostile = RankRecord(rank=1, world_size=2, window_ns=window_ns, names=("a", "b"), collectives=tuple(rows))
    window = seen(held(told(0, size=2), hostile))
    report.render(verdict([window]))

    assert window.lost_pct is None or window.lost_pct >= 0


def test_only_words_of_ours_reach_a_node() -> None:
    """A job's name is none that a shell acts on."""
    asked = Asked(job="4242", window_s=2.0, begin_ms=7)

    assert asked.words("ranks") == ("node", "ranks", "--job", "4242", "--seconds", "2", "--begin", "7", "--limit", "20")
    assert all(map(is_job, ("4242", "77_[1-3]", "123.pbs-server", "run:1")))
    assert not any(map(is_job, ("", "-x", "a b", "$(id)", "1;2", "a" * 99, "a\n")))
    done = sysperf("fleet", "job", "$(id)", "--hosts", "n1")
    assert (done.returncode, "no name of a job" in done.stderr) == (2, True)


def test_the_command_reads_records_of_a_folder(tmp_path: Path) -> None:
    """As text, JSON and Markdown; who sent nothing is told."""
    late = [{**node("n1"), "job": "4242", "ranks": json.loads(to_json(LATE[:2]))}]
    late += [{**node("n2"), "job": "4242", "ranks": json.loads(to_json([told(2, 1.0, nice=19), told(3)]))}]
    folder = write(tmp_path / "records", late)
    words = ("fleet", "job", "4242", str(folder), "--hosts", "n[1-3]")
    done = sysperf(*words)

    assert done.returncode == 1, done.stderr
    assert "job 4242: n2 holds it up, by rank 2, in 1 of 1 window" in done.stdout
    assert "unreachable: n3" in done.stdout
    assert json.loads(sysperf(*words, "--json").stdout)["verdict"] == "node"
    assert "## job 4242: n2 holds it up" in sysperf(*words, "--format", "markdown").stdout


def test_a_machine_without_ranks_of_the_job_says_so() -> None:
    """A record without ranks, of that job."""
    answer = json.loads(sysperf("node", "ranks", "--job", "no-such-job", "--node", "n1").stdout)

    assert (answer["job"], answer["ranks"]) == ("no-such-job", [])


# ---------------------------------------------------------------------- four real ranks


@contextlib.contextmanager
def running(sick: str, folder: Path, sockets_at: str) -> Iterator[subprocess.Popen[bytes]]:
    """Four ranks by torchrun; rank 2 is the sick one."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON")
    if not python:
        pytest.skip("SYSPERF_TORCH_PYTHON names no Python with torch")
    torchrun = (python, "-m", "torch.distributed.run", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    variables = {**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": sockets_at, "TORCH_FR_BUFFER_SIZE": "200"}
    words = (*torchrun, "--rdzv-id=fleet-job", str(PROGRAM), sick, "2", str(folder))
    job = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield job
    finally:
        job.terminate()
        job.wait(60)


def examined(sick: str, tmp_path: Path) -> dict[str, Any]:
    """What the commands say of them."""
    records = tmp_path / "records"
    records.mkdir()
    with sockets() as sockets_at, running(sick, tmp_path, sockets_at) as process:
        while len(list(tmp_path.glob("ready-*"))) < 4:
            assert process.poll() is None
            time.sleep(0.2)
        for _ in range(3):  # Kineto drops a trace whose beginning its own thread slept through, as on a loaded machine
            done = sysperf("node", "ranks", "--job", "fleet-job", "--node", "n1")
            assert done.returncode == 0, done.stderr
            (records / "n1.json").write_text(done.stdout)
            answer: dict[str, Any] = json.loads(sysperf("fleet", "job", "fleet-job", str(records), "--json").stdout)
            if answer["verdict"] != "cannot tell":
                break
    return answer


@pytest.mark.slow
def test_a_rank_that_the_kernel_holds_back_is_its_nodes_fault(tmp_path: Path) -> None:
    """It shares one CPU with something of higher priority: two signals say so."""
    answer = examined("starved", tmp_path)
    (window,) = answer["windows"]

    assert (answer["verdict"], answer["late"], answer["node"], window["ranks"]) == ("node", 2, "n1", 4), str(answer)
    assert any(signal.startswith("its priority is nice") for signal in window["signals"])


@pytest.mark.slow
def test_a_rank_with_more_work_is_late(tmp_path: Path) -> None:
    """Its node is as the others'."""
    answer = examined("work", tmp_path)

    assert (answer["verdict"], answer["late"], answer["windows"][0]["cause"]) == ("rank", 2, "time in operators"), str(answer)


@pytest.mark.slow
def test_the_flight_recorder_names_the_rank_that_did_not_join(tmp_path: Path) -> None:
    """Three ranks wait in the fourth collective, which rank 2 never begins."""
    with sockets() as sockets_at, running("hang", tmp_path, sockets_at) as process:
        process.wait(120)
    answer = json.loads(sysperf("fleet", "job", "fleet-job", "--dumps", str(tmp_path), "--json").stdout)
    (hang,) = answer["hangs"]

    assert (answer["verdict"], hang["number"], hang["waiting"], hang["absent"]) == ("hang", 4, [0, 1, 3], [2])
    assert hang["collective"] == "gloo:all_reduce"
    assert hang["place"].startswith("gloo_ranks.py:")

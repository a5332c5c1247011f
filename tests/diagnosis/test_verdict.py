"""From facts to a verdict: signals, states, consequences, and what is said when there is no cause."""

from __future__ import annotations

import json
import re
import shlex
import sys
from functools import cache
from pathlib import Path

import jsonschema
import msgspec
import pytest

from sysperf.cli import main
from sysperf.cli.diagnose import _Progress
from sysperf.diagnosis import programs
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import (
    Diagnosis,
    Faults,
    Gpu,
    Hit,
    Io,
    LoaderPlan,
    Machine,
    MainThread,
    Memory,
    Native,
    Program,
    Ranks,
    Threads,
    Traced,
    Workers,
)
from sysperf.diagnosis.verdict import Verdict
from sysperf.engine import diagnose, judging
from sysperf.engine.diagnose import verdict as diagnose_verdict
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.cpuset import CpuSet
from sysperf.model.finding import Finding, Gain, Place, Subject
from sysperf.model.record import convert
from sysperf.report import diagnosis

ROOT = Path(__file__).resolve().parent.parent.parent
RUNNING: dict[str, dict[str, object]] = {
    "main": {"ran": 0.9, "waited": 0.05, "slept": 0.05},
    "threads": {"used_cpus": 1.9, "waited_share": 0.02, "team": 2},
}
PARTS = {"main": MainThread, "threads": Threads, "faults": Faults, "io": Io, "memory": Memory}
EVIL = "</title><script>alert(1)</script>\x1b[31m"


@cache
def rules() -> Ruleset:
    return judging.load_rules()


def program(**facts: object) -> Program:
    known = {
        "pid": 7,
        "name": "python",
        "command": "python train.py",
        "started": "python train.py",
        "rank": -1,
        "world_size": 1,
        "debug": (),
    }
    parts = {name: convert({**RUNNING.get(name, {}), **given(facts, name)}, part) for name, part in PARTS.items()}
    return Program(**{**known, **facts, **parts})


def given(facts: dict[str, object], name: str) -> dict[str, object]:
    """The facts of a part that a test gives."""
    part = facts.get(name, {})
    assert isinstance(part, dict)
    return part


def judged(*programs: Program, machine: Machine | None = None, ranks: Ranks | None = None) -> diagnose_verdict.Judged:
    around = machine or Machine(cpus=2, idle_cpus=0.1, others_cpus=0.0, other_programs=0, cpu_pressure=0.1)
    return diagnose_verdict.judged(Diagnosis(programs=programs, machine=around, ranks=ranks or Ranks()), rules())


def states(verdict: diagnose_verdict.Judged) -> dict[str, str]:
    return {cause.rule: cause.state for cause in verdict.causes}


def subjects(cause: Finding) -> list[Subject]:
    """All programs that show it."""
    return [cause.subject, *cause.also]


def test_two_sources_confirm_and_one_makes_likely() -> None:
    """Two signals of one source are one witness."""
    waits = Stacks(samples=300, locking=0.3, forward=0.3, backward=0.2)

    assert states(judged(program(stacks=waits, main={"slept": 0.3, "futex": 0.3}))) == {"program.waits-for-threads": "confirmed"}
    assert states(judged(program(debug=("CUDA_LAUNCH_BLOCKING=1", "PYTHONDEVMODE=1")))) == {"program.debugging-on": "likely"}


def test_a_leak_and_a_sleep_beside_it_are_told_apart() -> None:
    """The line that sleeps, where most of the time goes, keeps nothing; and a leak has no speed to compare."""
    grows = {
        "age_s": 100.0,
        "memory": {"growth_bytes_per_s": 5e7, "growth_later_bytes_per_s": 5e7, "limit_bytes": 8 << 30, "bytes": 2 << 30},
    }
    sleep = Place("train.py", 14, "main", "time.sleep(0.02)", "sleeping", 0.8)
    waits = Stacks(samples=300, sleeping=0.8, other=0.95, forward=0.01, backward=0.02, optimizer=0.02, lines=(sleep,))
    found = judged(program(stacks=waits, main={"ran": 0.15, "slept": 0.8, "waited": 0.05, "sleeping": 0.8}, **grows))

    assert states(found) == {"memory.grows": "likely", "program.sleeps": "confirmed"}
    assert {cause.rule: [place.line for place in cause.places] for cause in found.causes} == {"memory.grows": [], "program.sleeps": [14]}
    assert {cause.rule: bool(cause.verify) for cause in found.causes}["memory.grows"] is False


def test_variables_that_are_on_are_unset_by_a_line_to_paste() -> None:
    """The line starts the program with the rest of them."""
    (cause,) = judged(program(debug=("CUDA_LAUNCH_BLOCKING=1",), env={"CUDA_LAUNCH_BLOCKING": "1", "OMP_NUM_THREADS": "2"})).causes

    assert [fix.command for fix in cause.fixes] == ["env -u CUDA_LAUNCH_BLOCKING python train.py"]
    assert cause.verify.endswith("--a 'python train.py' --b 'env -u CUDA_LAUNCH_BLOCKING python train.py'")


def test_of_a_command_that_cannot_be_pasted_the_shell_is_changed() -> None:
    """A secret in it is not shown, and ``…`` in its place is an argument to a shell."""
    found = judged(
        program(
            debug=("CUDA_LAUNCH_BLOCKING=1",), env={"CUDA_LAUNCH_BLOCKING": "1"}, started="", command="python train.py '--key=<hidden>'"
        )
    )

    assert [fix.command for fix in found.causes[0].fixes] == ["unset CUDA_LAUNCH_BLOCKING"]


def test_what_only_stacks_show_is_likely() -> None:
    """That a program has no workers, or that its thread sleeps at all, is no second witness."""
    fetches = Stacks(samples=300, inline_fetch=0.6, forward=0.3)
    sleeps = Stacks(samples=300, sleeping=0.5, forward=0.3)
    waits = Stacks(samples=300, locking=0.5, forward=0.3)
    grows = {
        "age_s": 100.0,
        "memory": {"growth_bytes_per_s": 5e7, "growth_since_start": 4e7, "limit_bytes": 8 << 30, "bytes": 2 << 30},
    }

    assert states(judged(program(stacks=fetches))) == {"dataloader.inline": "likely"}
    assert states(judged(program(stacks=sleeps, main={"slept": 0.5}))) == {"program.sleeps": "likely"}
    assert states(judged(program(stacks=waits, main={"slept": 0.5}))) == {"program.waits-for-threads": "likely"}
    assert states(judged(program(**grows))) == {"memory.grows": "likely"}


def test_what_the_kernel_saw_too_is_confirmed() -> None:
    """A sleep in a call that sleeps, fetching outside of PyTorch's libraries, memory that all of the machine loses."""
    fetches = Stacks(samples=300, inline_fetch=0.6, forward=0.3)
    sleeps = Stacks(samples=300, sleeping=0.5, forward=0.3)
    grows = {
        "age_s": 100.0,
        "memory": {"growth_bytes_per_s": 5e7, "growth_since_start": 4e7, "limit_bytes": 8 << 30, "bytes": 2 << 30},
    }
    shrinks = Machine(cpus=2, idle_cpus=0.1, others_cpus=0.0, other_programs=0, available_growth_bytes_per_s=-6e7)

    elsewhere = Native(samples=300, python=0.5, torch=0.3, math=0.3)
    assert states(judged(program(stacks=fetches, native=elsewhere))) == {"dataloader.inline": "confirmed"}
    assert states(judged(program(stacks=sleeps, main={"slept": 0.5, "sleeping": 0.48}))) == {"program.sleeps": "confirmed"}
    assert states(judged(program(**grows), machine=shrinks)) == {"memory.grows": "confirmed"}


def test_a_consequence_is_not_said_twice() -> None:
    """A main thread that makes its batches is Python-bound, too: only the loader is named, and why."""
    verdict = judged(program(stacks=Stacks(samples=300, inline_fetch=0.6, python=0.6, forward=0.2), native=Native(samples=300, python=0.6)))

    assert list(states(verdict)) == ["dataloader.inline"]
    assert [(cause.rule, cause.because) for cause in verdict.dropped] == [("program.python-bound", "a consequence of dataloader.inline")]
    assert verdict.word == "slowed"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_consequence_stands_below_its_cause(form: str) -> None:
    """Whoever saw it himself finds it there, and not as something else that is wrong."""
    asked = program(stacks=Stacks(samples=300, inline_fetch=0.6, python=0.6, forward=0.2), native=Native(samples=300, python=0.6))
    found = judged(asked)
    whole = Verdict(sysperf="1", pid=7, verdict=found.word, sentence=found.sentence, causes=found.causes, dropped=found.dropped)
    page = diagnosis.render(whole, form)

    cause, _, below = page.partition("plains")
    assert "main thread makes the batches" in cause
    assert "Python between operators takes the time" in below
    assert "Python between operators" not in cause


@pytest.mark.parametrize(("fetching", "causes"), [(0.1, ["program.python-bound", "dataloader.inline"]), (0.4, ["dataloader.inline"])])
def test_a_cause_hides_another_only_if_it_explains_most_of_it(fetching: float, causes: list[str]) -> None:
    """A loader that takes a tenth does not explain a loop that takes two thirds; what is left of the loop is its gain."""
    stacks = Stacks(samples=300, inline_fetch=fetching, python=0.7, forward=0.1)
    native = Native(samples=300, python=0.7, torch=0.2, math=0.1)
    verdict = judged(program(stacks=stacks, native=native, loader=LoaderPlan(saves=fetching)))

    assert [cause.rule for cause in verdict.causes] == causes
    if len(causes) > 1:
        assert [cause.gain.middle for cause in verdict.causes] == [60.0, 10.0]


def test_a_statement_that_no_cause_is_about_is_shown_all_the_same() -> None:
    """A search is what its program is for: nothing is wrong with it, and its line is told."""
    place = Place("/srv/find.py", 17, "<module>", "found = search(encode(x))", "statement", 0.8)
    stacks = Stacks(samples=300, forward=0.2, other=0.8, statement=0.8, statement_own=0.8, cure="outputs", lines=(place,))
    native = Native(samples=300, python=0.01, extensions=0.0, torch=0.95, math=0.9, openmp=0.0)
    verdict = judged(program(stacks=stacks, native=native))

    assert (verdict.word, verdict.causes) == ("healthy", ())
    assert "its largest statement beside the model takes 80% of its time, at /srv/find.py:17" in verdict.sentence


@pytest.mark.parametrize(
    ("cure", "statement", "own", "named"),
    [
        ("fixed", 0.6, {}, "program.repeats-work"),
        ("reported", 0.6, {"converting": 0.6}, "program.repeats-work"),
        ("weights", 0.5, {"checkpoint": 0.5}, "program.checkpoint-in-step"),
        ("data", 0.6, {}, "program.statement-in-step"),
        ("data", 0.6, {"preparing": 0.5}, "program.prepares-data"),
        ("data", 0.8, {"preparing": 0.2}, "program.statement-in-step"),
    ],
)
def test_a_statement_that_is_proven_stands_before_what_its_line_looks_like(
    cure: str, statement: float, own: dict[str, float], named: str
) -> None:
    """What a cause knows better stays; what is told by the words of a line does not, nor what follows from it."""
    stacks = Stacks(samples=300, forward=0.1, backward=0.1, python=statement, statement=statement, statement_own=statement, cure=cure)
    stacks = msgspec.structs.replace(stacks, **own)
    faults = {"per_s": 90000.0, "share": 0.2}
    native = Native(samples=300, python=0.35, extensions=0.25, torch=0.2, math=0.1, openmp=0.0, double=0.9)
    verdict = judged(program(stacks=stacks, native=native, faults=faults))

    assert [cause.rule for cause in verdict.causes][:1] == [named]
    assert "program.python-bound" not in {cause.rule for cause in verdict.causes}


@pytest.mark.parametrize(("interpreter", "dispatch", "named"), [(0.45, 0.5, "program.tiny-operators"), (0.5, 0.46, "program.python-bound")])
def test_of_two_causes_that_share_their_time_the_larger_is_named(interpreter: float, dispatch: float, named: str) -> None:
    """A loop that calls tiny operators is Python, too; how many signals each of the two has does not decide."""
    stacks = Stacks(samples=300, python=interpreter, forward=dispatch)
    verdict = judged(program(stacks=stacks, native=Native(samples=300, python=interpreter, torch=dispatch, math=0.0, openmp=0.0)))

    assert [cause.rule for cause in verdict.causes] == [named]
    assert [cause.because for cause in verdict.dropped] == [f"a consequence of {named}"]


@pytest.mark.parametrize(("collection", "named"), [(0.5, "program.garbage-collection"), (0.2, "program.loops-in-step")])
def test_a_loop_and_the_collector_share_its_time(collection: float, named: str) -> None:
    """A loop makes what the collector goes over. If that takes most of the loop's time, it goes over what the program keeps."""
    stacks = Stacks(
        samples=300, forward=0.1, backward=0.2, other=0.7, python=0.68, looping=0.67, statement=0.67, statement_own=0.67,
        loop=("pieces", "plain"),
    )  # fmt: skip
    native = Native(samples=300, python=0.63, extensions=0.0, torch=0.35, math=0.28, openmp=0.0, collection=collection)

    assert list(states(judged(program(stacks=stacks, native=native)))) == [named]


def test_a_line_that_waits_for_pages_of_a_full_memory_is_no_loop_to_be_mended() -> None:
    stacks = Stacks(
        samples=300, forward=0.1, backward=0.1, optimizer=0.07, other=0.75, python=0.75, looping=0.71, statement=0.71, statement_own=0.71,
        loop=("pieces", "plain"),
    )  # fmt: skip
    native = Native(samples=300, python=0.15, extensions=0.0, torch=0.3, math=0.14, openmp=0.0, kernel=0.44)
    short = program(stacks=stacks, native=native, main={"ran": 0.4, "waited": 0.05, "blocked": 0.45}, faults={"major_per_s": 6000.0})

    around = Machine(cpus=2, idle_cpus=0.5, others_cpus=0.0, other_programs=0, memory_pressure=0.5)
    assert list(states(judged(short, machine=around))) == ["memory.reclaim"]


def test_a_small_checkpoint_does_not_hide_page_faults() -> None:
    """Each of them costs what it costs."""
    stacks = Stacks(samples=300, checkpoint=0.07, forward=0.3, backward=0.3, optimizer=0.2)
    faults = {"faults": {"share": 0.4, "per_s": 9e4}, "threads": {"system": 0.4}}
    verdict = judged(program(stacks=stacks, main={"ran": 0.9, "waited": 0.1, "syncing": 0.05}, **faults))

    assert list(states(verdict)) == ["allocator.page-fault-storm", "program.checkpoint-in-step"]


def test_a_switch_without_a_measured_cost_hides_nothing() -> None:
    """A variable for debugging is named beside the loop, not instead of it."""
    stacks = Stacks(samples=300, python=0.7, forward=0.1)
    native = Native(samples=300, python=0.7, torch=0.2, math=0.1)

    assert set(states(judged(program(debug=("NCCL_DEBUG=trace",), stacks=stacks, native=native)))) == {
        "program.python-bound", "program.debugging-on",
    }  # fmt: skip


def test_what_a_switch_costs_that_no_stack_shows_is_unknown() -> None:
    """Slower instructions took 64 % of the steps once, where 0 % were predicted."""
    (cause,) = judged(program(debug=("ATEN_CPU_CAPABILITY=default",), stacks=Stacks(samples=300, forward=0.9))).causes

    assert (cause.rule, cause.cost_pct, cause.gain) == ("program.debugging-on", None, Gain())


def test_a_program_without_a_cpu_gains_as_much_by_cheaper_numbers() -> None:
    """It waits half as long for its turns, too: measured 32 %, where 1 to 3 % were predicted."""
    main, traced = {"ran": 0.06, "waited": 0.9}, Traced(double=1.0)
    causes = judged(program(main=main, traced=traced, stacks=Stacks(samples=300, forward=0.9), native=Native(samples=300, math=0.9))).causes

    assert [cause.gain.middle for cause in causes if cause.rule == "precision.float64"] == [pytest.approx(48.0)]


@pytest.mark.parametrize(("in_model", "first"), [(0.1, "/home/me/metrics.py"), (0.3, "/home/me/train.py")])
def test_the_line_with_far_more_of_the_time_stands_first(in_model: float, first: str) -> None:
    """Metrics of many small tensors are no part of the model, whose lines come first where they count as much."""
    model = Place("/home/me/train.py", 17, "compute_loss", "logits = model(x)", "forward", in_model)
    metrics = Place("/home/me/metrics.py", 11, "compute", "torch.stack(self.preds)", "python", 0.54)
    taken = Stacks(samples=300, forward=0.1, other=0.6, python=0.54, lines=(metrics, model))
    verdict = judged(program(main={"ran": 0.97, "waited": 0.0}, native=Native(math=0.1, torch=0.8, openmp=0.0), stacks=taken))

    assert next(cause.places[0].file for cause in verdict.causes if cause.rule == "program.tiny-operators") == first


def test_the_users_line_and_the_proof_are_named() -> None:
    """The sentence has the place, the cause the command."""
    line = Place("/home/me/data.py", 31, "Images.__getitem__", "image = decode(path)", "inline_fetch", 0.5)
    stacks = Stacks(samples=300, inline_fetch=0.6, lines=(line,))
    verdict = judged(program(stacks=stacks, folder="/home/me", loader=LoaderPlan(saves=0.7)))

    assert "/home/me/data.py:31" in verdict.sentence
    assert verdict.causes[0].places == (line,)
    gain = verdict.causes[0].gain
    assert (gain.low, gain.middle, gain.high) == (36.0, 60.0, 90.0)
    assert verdict.causes[0].keep.startswith("cd /home/me && ")
    assert verdict.causes[0].verify.startswith("cd /home/me && sysperf verify ")


@pytest.mark.parametrize(("left", "count", "gain"), [(1.0, 2, 50.0), (0.5, 2, 25.0), (0.0, 2, None), (1.0, 8, None), (None, 2, 50.0)])
def test_exchanges_of_ranks_that_wait_for_a_cpu_are_no_cause(left: float | None, count: int, gain: float | None) -> None:
    """Measured beside others at a load of 13: gradients in 16 bits lost 5 % of the step. Eight ranks on two CPUs are each other's others."""
    ranks = [
        program(
            pid=pid, rank=pid, world_size=2, uses_gpu=False, main={"slept": 0.5}, stacks=Stacks(samples=300, collective=0.5, forward=0.5)
        )
        for pid in (0, 1)
    ]
    around = Machine(cpus=2, idle_cpus=0.1, others_cpus=0.0, torch_cpus=0.0, left_share=left, other_programs=0)
    causes = judged(*ranks, machine=around, ranks=Ranks(count=count)).causes

    assert [cause.gain.middle for cause in causes if cause.rule == "ddp.communication"] == ([] if gain is None else [gain])


def test_objects_that_ranks_need_not_exchange_gain_their_time_where_others_have_the_cpus_too() -> None:
    """Measured at a load of 7: a dictionary gathered every 50 steps saved 53 and 63 %, and nothing had been promised."""
    taken = Stacks(samples=300, collective=0.51, objects=0.51, backward=0.4)
    ranks = [program(pid=pid, rank=pid, world_size=2, uses_gpu=False, main={"slept": 0.5}, stacks=taken) for pid in (0, 1)]
    around = Machine(cpus=2, idle_cpus=0.1, others_cpus=0.0, torch_cpus=0.0, left_share=0.0, other_programs=0)
    (cause, *_) = judged(*ranks, machine=around, ranks=Ranks(count=2)).causes

    assert (cause.rule, cause.gain.middle) == ("ddp.communication", 51.0)


@pytest.mark.parametrize(("unfused", "faults", "low", "high"), [(0.54, 0.28, 49.2, 53.0), (0.22, 0.005, 4.6, 5.3), (0.54, 0.0, 36.0, 54.3)])
def test_a_fused_optimizer_gains_what_was_measured(unfused: float, faults: float, low: float, high: float) -> None:
    """A small model whose temporaries fault, a larger one whose memory is the limit, and one of many small layers."""
    verdict = judged(
        program(uses_gpu=False, allocator="glibc", faults={"share": faults}, stacks=Stacks(samples=300, unfused=unfused, optimizer=unfused))
    )

    gain = next(cause.gain for cause in verdict.causes if cause.rule == "optimizer.unfused")
    assert gain.low is not None
    assert gain.high is not None
    assert gain.low <= low <= high <= gain.high


def test_what_gains_by_no_idle_cpu_promises_nothing() -> None:
    """Where samples are to be made cheaper, or threads fewer beside others, nobody knows what that saves: neither all of it, nor 0."""
    fetches = program(stacks=Stacks(samples=300, inline_fetch=0.6), loader=LoaderPlan(saves=None, advice="make samples cheaper"))
    (cause,) = judged(fetches).causes

    assert (cause.rule, cause.cost_pct, cause.gain) == ("dataloader.inline", 60.0, Gain())
    assert "saves" not in diagnosis.render(Verdict(sysperf="1", pid=7, verdict="slowed", sentence="", causes=(cause,)), "text")


def test_the_line_of_progress_does_nothing_to_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict so far has the name of a file of the program in it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _Progress()("samples", Verdict(sysperf="1", pid=7, verdict="slowed", sentence=f"Likely: it sleeps, at /tmp/{EVIL}.py:3."))

    assert "\x1b[31m" not in capsys.readouterr().err


def test_a_hypothesis_of_lint_and_a_live_signal_confirm_each_other() -> None:
    """Alone each is less: the script is a hypothesis, one signal is likely."""
    facts = {"native": Native(samples=300, collection=0.2, python=0.2)}

    assert states(judged(program(**facts))) == {"program.garbage-collection": "likely"}
    assert states(judged(program(**facts, hits=("sync.explicit",)))) == {"program.garbage-collection": "confirmed"}
    assert states(judged(program(hits=("sync.explicit",)))) == {}


def test_each_place_of_lint_says_what_raised_it() -> None:
    """One that nothing measured confirms stays a hypothesis."""
    places = (Hit(rule="compile.not-compiled", place=Place("/t.py", 3)), Hit(rule="dataloader.inline", place=Place("/t.py", 9)))
    verdict = judged(program(stacks=Stacks(samples=300, inline_fetch=0.6), hits=tuple(hit.rule for hit in places), places=places))

    assert states(verdict) == {"dataloader.inline": "confirmed"}
    assert [(hypothesis.places[0].line, hypothesis.confirmed_by) for hypothesis in verdict.hypotheses] == [
        (9, ("dataloader.inline",)),
        (3, ()),
    ]


def test_a_fix_is_for_this_program() -> None:
    """Its own command line in it, and what lint can change in its source as a diff."""
    hit = Hit(rule="dataloader.workers-made-again", place=Place("/home/me/my train.py", 3), fixable=True)
    made_again = program(stacks=Stacks(samples=300, loader_start=0.4), workers=Workers(count=2, started=4), hits=(hit.rule,), places=(hit,))
    storm = program(faults={"share": 0.3, "per_s": 2e5}, threads={"system": 0.4}, allocator="glibc", started="python train.py --name 'a b'")

    (again,), (faults,) = judged(made_again).causes, judged(storm).causes
    assert "sysperf lint '/home/me/my train.py' --select dataloader.workers-made-again --fix" in [fix.command for fix in again.fixes]
    assert shlex.split(faults.fixes[0].command)[-4:] == ["python", "train.py", "--name", "a b"]
    assert shlex.split(faults.verify)[-1] == faults.fixes[0].command


def test_what_is_predicted_lies_within_its_bounds() -> None:
    """A sleep of half of the step."""
    (cause,) = judged(program(stacks=Stacks(samples=300, sleeping=0.5, forward=0.3))).causes

    assert (cause.gain.low, cause.gain.middle, cause.gain.high) == (30.0, 50.0, 75.0)


def test_what_computes_is_healthy() -> None:
    """By a trace, by machine code, or by stacks."""
    for facts in (
        {"traced": Traced(operators=0.9)},
        {"native": Native(samples=300, torch=0.9, math=0.8)},
        {"stacks": Stacks(samples=9, forward=0.4, backward=0.5)},
    ):
        verdict = judged(program(**facts))
        assert (verdict.word, verdict.causes) == ("healthy", ())
        assert verdict.sentence.startswith("Healthy: bound by computation")


def test_a_third_of_the_time_in_kernels_is_not_healthy() -> None:
    """Kernels are PyTorch's own code: they are not counted twice."""
    assert judged(program(native=Native(samples=300, torch=0.35, math=0.3, kernel=0.3, python=0.3))).word == "cannot-tell"


ASLEEP: dict[str, object] = {"role": "idle", "threads": {"used_cpus": 0.0}, "main": {"ran": 0.0, "slept": 1.0}}


def test_what_waits_for_work_is_idle() -> None:
    """A server without requests, a notebook at its prompt; and who is suspended, whom nobody needs to look into."""
    assert "wait for work" in judged(program(**ASLEEP, stacks=Stacks(samples=300, other=1.0, serving=1.0, attending=1.0))).sentence
    suspended = judged(program(**{**ASLEEP, "main": {"ran": 0.0, "slept": 1.0, "suspended": 1.0}}))
    assert (suspended.word, "python (pid 7) is suspended" in suspended.sentence) == ("idle", True)


@pytest.mark.parametrize(
    ("stacks", "says", "then"),
    [
        (None, "only stacks tell whether it waits for data or for work", "sysperf diagnose 7"),
        (Stacks(samples=300, other=1.0, serving=1.0), "at a socket or a pipe: for data or for work", "sysperf stacks 7"),
        (Stacks(samples=300, other=1.0, locking=1.0), "for another thread of it: for data or for work", "sysperf stacks 7"),
        (Stacks(samples=300, other=1.0, python=1.0), "in its own code: for data or for work", "sysperf stacks 7"),
        (Stacks(samples=300, other=1.0, compiling=1.0), "while torch.compile compiles.", "sysperf stacks 7"),
        (Stacks(samples=300, other=1.0, children=0.9), "for processes that it started.", "sysperf stacks 7"),
    ],
)
def test_what_may_wait_for_data_is_not_idle(stacks: Stacks | None, says: str, then: str) -> None:
    """No CPU is used while far storage reads, a prefetcher sleeps, or a compiler is at work: nobody calls that nothing."""
    verdict = judged(program(**ASLEEP, stacks=stacks))

    assert (verdict.word, says in verdict.sentence, verdict.next) == ("cannot-tell", True, then)


def test_who_waits_for_a_loader_is_not_idle() -> None:
    """Main thread and workers sleep while far storage reads; only stacks tell that from a notebook that keeps its workers."""
    asleep = {
        "role": "idle",
        "threads": {"used_cpus": 0.0},
        "main": {"ran": 0.0, "slept": 1.0},
        "workers": Workers(count=2, ran=0.0, waited=0.0),
    }
    waits, kept = Stacks(samples=300, loader_wait=1.0), Stacks(samples=300, other=1.0, serving=1.0, attending=1.0)
    seen, prompt = (programs.with_role_by_stacks(program(**asleep, stacks=stacks)) for stacks in (waits, kept))

    assert states(judged(seen)) == {"dataloader.program-waits": "confirmed"}
    assert judged(prompt).word == "idle"
    assert (judged(program(**asleep)).word, judged(program(**asleep)).next) == ("cannot-tell", "sysperf diagnose 7")


def test_who_trains_on_what_comes_through_a_socket_waits_for_it() -> None:
    """However small the step is beside the wait; a debugger's prompt within the model's forward is no step."""
    asleep = {"role": "idle", "threads": {"used_cpus": 0.01}, "main": {"ran": 0.01, "slept": 0.99, "polling": 0.98}}
    fed = Stacks(samples=600, other=0.985, serving=0.98, backward=0.01, optimizer=0.005)
    prompt = Stacks(samples=600, forward=1.0, serving=1.0, attending=1.0)
    asked = Stacks(samples=600, other=0.99, serving=0.98, attending=0.98, forward=0.01)

    assert states(judged(programs.with_role_by_stacks(program(**asleep, stacks=fed)))) == {"program.waits-for-data": "confirmed"}
    assert [judged(programs.with_role_by_stacks(program(**asleep, stacks=one))).word for one in (prompt, asked)] == ["idle", "idle"]


def test_what_a_program_does_beside_its_step_is_located() -> None:
    """Without a cause for it, too: two thirds of a step are not bound by computation alone."""
    at = Place("train.py", 8, "norms", "values[name] = p.norm()", "other", 0.5)
    taken = Stacks(samples=600, other=0.66, forward=0.1, backward=0.2, optimizer=0.04, lines=(at,))
    beside = judged(program(stacks=taken, native=Native(samples=300, torch=0.95, math=0.5)))
    within = judged(program(stacks=msgspec.structs.replace(taken, other=0.1), native=Native(samples=300, torch=0.95, math=0.5)))

    assert beside.word == within.word == "healthy"
    assert "66% of its time is outside of forward, backward and optimizer, most of it at train.py:8 (norms)" in beside.sentence
    assert "outside" not in within.sentence


def test_the_end_of_an_epoch_is_no_evaluation_in_each_step() -> None:
    """Only what alternates in two looks is named."""
    taken = Stacks(samples=600, evaluation=0.6, forward=0.7, backward=0.2, optimizer=0.1)

    assert programs.evaluates_and_trains(taken)
    assert not programs.evaluates_and_trains(msgspec.structs.replace(taken, backward=0.0, optimizer=0.0))
    assert states(judged(program(stacks=taken, alternates=True))) == {"program.evaluation-share": "likely"}
    assert states(judged(program(stacks=taken, alternates=False))) == {}


def test_a_rank_that_waits_for_others_is_not_promoted() -> None:
    """A backward pass without CPU time is a rank that hangs; its loader is a loader."""
    hangs, loads = Stacks(samples=300, backward=1.0), Stacks(samples=300, loader_wait=0.9)
    rank = {"rank": 1, "world_size": 2, "role": "idle", "threads": {"used_cpus": 0.0}}

    assert [programs.with_role_by_stacks(program(**rank, stacks=one)).role for one in (hangs, loads)] == ["idle", "computes"]


def test_faults_of_an_evaluation_stand_below_it() -> None:
    """A callback that evaluates after each step makes most of them."""
    taken = Stacks(samples=300, forward=0.87, evaluation=0.79, backward=0.1, optimizer=0.02)
    verdict = judged(program(alternates=True, faults={"share": 0.2, "per_s": 200_000.0}, allocator="glibc", stacks=taken))

    assert states(verdict)["program.evaluation-share"] == "likely"
    assert "allocator.page-fault-storm" in {cause.rule for cause in verdict.dropped}


@pytest.mark.parametrize(("ran", "used", "says"), [(0.09, 0.19, "computes in between"), (0.01, 1.9, "another thread of it computes")])
def test_a_main_thread_that_only_waits_is_told_from_one_that_computes_in_between(ran: float, used: float, says: str) -> None:
    """A service that trains on what is announced, with a team; a pool of threads that does all."""
    waits = Stacks(samples=300, locking=0.92, other=0.96, forward=0.01, backward=0.01)
    verdict = judged(program(main={"ran": ran, "waited": 0.01, "slept": 0.9, "futex": 0.9}, threads={"used_cpus": used}, stacks=waits))

    assert (verdict.word, says in verdict.sentence) == ("cannot-tell", True)


def test_a_run_of_sysperf_beside_the_job_is_said() -> None:
    """Its own runs are no neighbours, and yet they take CPUs."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=0.0, torch_cpus=0.0, trials_cpus=1.0, trials="sysperf (pid 9) 1.0")
    verdict = judged(program(threads={"waited_share": 0.5}), machine=around)

    assert (states(verdict), "a run of sysperf takes 1.0 CPUs" in verdict.sentence) == ({}, True)


def test_neighbours_of_both_kinds_share_what_is_lost() -> None:
    """Each answer keeps its kind: one does not become the other when a build begins beside a training."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=0.9, torch_cpus=0.9, others_steady=1.0, other_programs=1)
    gains = {
        cause.rule: cause.gain.middle for cause in judged(program(threads={"used_cpus": 0.5, "waited_share": 0.5}), machine=around).causes
    }

    assert gains == {"threads.programs-compete": 25.0, "threads.neighbour": 25.0}


def test_who_waits_for_a_service_that_it_reports_to_is_seen_by_the_kernel_too() -> None:
    """Stacks name the logger, and the kernel the wait for its socket: two sources."""
    reports = program(main={"polling": 0.4}, stacks=Stacks(samples=300, logging=0.44, other=0.5, backward=0.3))

    assert states(judged(reports)) == {"program.logging": "confirmed"}


def test_ranks_whose_cpus_others_have_gain_only_their_part_of_the_work() -> None:
    """Two ranks on two CPUs at a load of 13: equal shards gained 9 and -16 %, where 21 to 53 had been promised."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=0.8, torch_cpus=0.9, left_share=0.0, others_ready=8.5)
    several = [
        program(pid=pid, rank=pid, world_size=2, stacks=Stacks(samples=300, backward=wait, forward=1 - wait))
        for pid, wait in ((0, 0.7), (1, 0.4))
    ]
    ranks = Ranks(count=2, slowest=1, wanted_ratio=3.4, waiting_gap=0.3, excess_cpus=0.13)

    gains = {cause.rule: cause.gain.middle for cause in judged(*several, machine=around, ranks=ranks).causes}

    assert gains["ddp.unequal-ranks"] == 6.5


def test_the_programs_own_illness_is_said_beside_its_neighbours() -> None:
    """Others take its CPUs, and it makes tensors of lists: the first is not the last word on a crowded machine."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=1.8, others_steady=1.0)
    ill = program(
        threads={"used_cpus": 0.2, "waited_share": 0.8}, stacks=Stacks(samples=300, converting=0.2, python=0.2, backward=0.4, other=0.4)
    )

    sentence = judged(ill, machine=around).sentence

    assert sentence.startswith("Confirmed: programs without PyTorch take the CPUs")
    assert sentence.endswith("; in the program itself: tensors are made of Python objects in each step.")

    team = msgspec.structs.replace(
        ill,
        threads=msgspec.structs.replace(ill.threads, team=2),
        native=Native(samples=300, openmp=0.6),
        main=MainThread(ran=0.1, waited=0.5),
    )
    crowded = judged(team, machine=msgspec.structs.replace(around, torch_cpus=0.0))

    assert ("its team of threads waits" in crowded.sentence, crowded.sentence.endswith("of Python objects in each step.")) == (True, True)
    assert {cause.rule: cause.gain.middle for cause in crowded.causes}["threads.team-beside-others"] == pytest.approx(
        90 * 0.6 * 0.6, abs=0.1
    )


def test_whose_stacks_are_not_seen_beside_others_is_told_what_would_show_them() -> None:
    """What others do is no answer about the program itself."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=1.8, others_steady=1.0)
    facts = Diagnosis(programs=(program(threads={"used_cpus": 0.2, "waited_share": 0.8}),), machine=around)
    remedy = "python3 -m pip install py-spy"
    found = diagnose_verdict.judged(facts, rules(), remedy)
    verdict = Verdict(sysperf="1", pid=7, verdict=found.word, sentence=found.sentence, causes=found.causes, next=found.next)

    assert (found.next, diagnose_verdict.judged(facts, rules()).next.startswith("ps ")) == (remedy, True)
    assert remedy in diagnosis.render(verdict, "text")


def test_where_another_thread_computes_is_said_beside_the_neighbours() -> None:
    """A server's main thread accepts; its handlers parse what comes."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=1.5, others_steady=1.0)
    at = Place("/srv/app.py", 18, "Handler.do_POST", "request = json.loads(body)", "other_threads", 0.6)
    server = program(
        main={"ran": 0.01, "waited": 0.01, "slept": 0.98}, threads={"used_cpus": 0.4, "waited_share": 0.5, "team": 1},
        stacks=Stacks(samples=300, serving=1.0, other=1.0, other_threads=2, lines=(at,)),
    )  # fmt: skip

    ends = "another thread than the main one is at work, most of it at /srv/app.py:18 (Handler.do_POST)."
    assert judged(server, machine=around).sentence.endswith(ends)
    assert "another thread of it computes, most of it at /srv/app.py:18" in judged(server).sentence


def test_smaller_images_and_more_workers_are_two_cures() -> None:
    """Where CPUs are idle, more workers help as they are."""
    taken = Stacks(samples=300, loader_wait=0.9, forward=0.05, backward=0.05)
    worker = Stacks(samples=300, inline_fetch=1.0, preparing=0.9, image_decode=0.5, image_resize=0.3)
    waits = program(
        main={"ran": 0.05, "waited": 0.0, "slept": 0.95, "polling": 0.9}, stacks=taken, worker_stacks=worker,
        workers=Workers(count=1, ran=0.95, waited=0.0), loader=LoaderPlan(workers=4, saves=0.6, saves_least=0.6, advice="num_workers=4"),
    )  # fmt: skip

    assert {"dataloader.program-waits", "dataloader.images-decoded-large"} <= states(
        judged(waits, machine=Machine(cpus=8, idle_cpus=6.0))
    ).keys()


def test_what_shows_nothing_cannot_be_told_and_says_what_to_run() -> None:
    """Without stacks, what would let them be seen is the next step; without a trace, a start that allows one."""
    unseen, untraced = judged(program()), judged(program(stacks=Stacks(samples=300, other=1.0)))

    assert (unseen.word, unseen.next) == ("cannot-tell", "sysperf diagnose 7")
    helped = diagnose_verdict.judged(Diagnosis(programs=(program(),)), rules(), "python -m pip install py-spy")
    assert helped.next == "python -m pip install py-spy"
    assert untraced.next == "sysperf diagnose -- python train.py"


def test_names_keep_their_capitals_in_the_sentence() -> None:
    """Python is a name, and so is DataLoader."""
    loop = program(stacks=Stacks(samples=300, python=0.8), native=Native(samples=300, python=0.8))
    restarts = program(stacks=Stacks(samples=300, loader_start=0.4), workers=Workers(started=8))

    assert judged(loop).sentence.startswith("Confirmed: Python between operators")
    assert judged(restarts).sentence.startswith("Confirmed: DataLoader workers are")
    assert judged(program(debug=("PYTHONDEVMODE=1",))).sentence.startswith("Likely: switches for")


def test_threads_of_a_server_that_wait_for_work_are_no_team() -> None:
    """They use next to nothing of the CPUs that somebody else fills."""
    waits = {
        "main": {"ran": 0.01, "waited": 0.02, "slept": 0.97},
        "threads": {"used_cpus": 0.04, "waited_share": 0.64, "team": 5},
    }
    full = Machine(cpus=2, idle_cpus=0.0, others_cpus=1.9, other_programs=0, cpu_pressure=0.96)

    assert states(judged(program(**waits, stacks=Stacks(samples=300, serving=1.0)), machine=full)) == {}


def test_a_trace_without_a_backward_pass_is_no_evaluation() -> None:
    """Of a step of a second a trace may see the forward pass only; samples over six seconds saw both."""
    trains = Stacks(samples=300, forward=0.4, backward=0.5)
    evaluates = Stacks(samples=300, forward=0.9)
    forward = Traced(unused_graph=1.0)

    assert states(judged(program(stacks=trains, traced=forward))) == {}
    assert states(judged(program(stacks=evaluates, traced=forward))) == {"program.gradients-in-evaluation": "confirmed"}


def test_a_program_that_computes_in_another_thread_is_told_how_to_see_it() -> None:
    """Of such a thread the signals say nothing."""
    verdict = judged(program(main={"ran": 0.0, "waited": 0.0, "slept": 1.0}, stacks=Stacks(samples=300, locking=1.0, other=1.0)))

    assert (verdict.word, verdict.next) == ("cannot-tell", "sysperf stacks 7")
    assert "another thread" in verdict.sentence


def test_of_a_program_that_still_starts_nothing_is_said() -> None:
    """What it does while it imports is not what it does in a step."""
    starts = program(stacks=Stacks(samples=300, importing=0.15, python=0.3), native=Native(samples=300, python=0.8, collection=0.2))
    verdict = judged(starts)

    assert (verdict.word, verdict.causes) == ("cannot-tell", ())
    assert (verdict.sentence, verdict.next) == (
        "Cannot tell yet: it still starts, and imports modules 15 % of the time.",
        "sysperf diagnose 7",
    )
    assert judged(program(stacks=Stacks(samples=300, importing=0.02, sleeping=0.5, forward=0.2))).word == "slowed"


def test_ranks_with_the_same_trouble_are_one_cause() -> None:
    """Every rank is named in it."""
    ranks = [program(pid=pid, rank=pid, world_size=4, stacks=Stacks(samples=300, collective=0.5, forward=0.2)) for pid in range(1, 5)]
    verdict = judged(*ranks)

    assert list(states(verdict)) == ["ddp.communication"]
    assert [subject.pid for subject in subjects(verdict.causes[0])] == [1, 2, 3, 4]


def test_the_rank_that_is_waited_for_is_named() -> None:
    """Not those that wait."""
    fast = program(pid=1, rank=0, world_size=2, main={"slept": 0.6, "ran": 0.4}, stacks=Stacks(samples=300, collective=0.6))
    slow = program(pid=2, rank=1, world_size=2, stacks=Stacks(samples=300, forward=0.9))
    verdict = judged(fast, slow, ranks=Ranks(count=2, slowest=1, wanted_ratio=2.2, waiting_gap=0.6))

    assert list(states(verdict)) == ["ddp.unequal-ranks"]
    assert [subject.text for subject in subjects(verdict.causes[0])] == ["rank 1 (pid 2)"]


@pytest.mark.parametrize(("openmp", "causes"), [(0.68, ["threads.team-beside-others"]), (0.1, ["optimizer.unfused"])])
def test_an_optimizer_whose_team_waits_for_a_cpu_is_none_of_many_operators(openmp: float, causes: list[str]) -> None:
    """Each of its operators waits for the thread whose CPU others have; where no team waits, it is said."""
    stacks = Stacks(samples=300, forward=0.2, backward=0.4, optimizer=0.36, unfused=0.35)
    threads = {"team": 2, "waited_share": 0.8}
    asked = program(stacks=stacks, native=Native(samples=70, openmp=openmp, torch=0.3, math=0.25), threads=threads)
    machine = Machine(cpus=2, others_cpus=1.4, torch_cpus=0.2, others_ready=1.0, others_steady=1.0)

    found = judged(asked, machine=machine)

    assert [cause.rule for cause in found.causes if cause.rule not in diagnose_verdict.OTHERS_DOING] == causes
    assert ("optimizer.unfused" in {cause.rule for cause in found.dropped}) == ("optimizer.unfused" not in causes)


def test_throttling_explains_waiting_threads() -> None:
    """The quota is the cause, the number of threads its consequence."""
    verdict = judged(program(threads={"team": 8, "waited_share": 0.6}, throttled=0.7, quota=2.0))

    assert list(states(verdict)) == ["cgroup.cpu-throttled"]


def test_workers_on_one_cpu_are_not_too_few() -> None:
    """More of them would not help."""
    workers = Workers(count=2, started=0, ran=0.5, waited=0.5, cpus=CpuSet([0]))
    known = program(workers=workers, main={"slept": 0.5}, stacks=Stacks(samples=300, loader_wait=0.5))
    half_idle = Machine(cpus=2, idle_cpus=0.9, others_cpus=0.0, left_share=1.0, other_programs=0)
    crowded = Machine(cpus=2, idle_cpus=0.0, others_cpus=0.0, left_share=0.0, other_programs=0)
    verdict = judged(known)

    assert list(states(verdict)) == ["dataloader.workers-pinned"]
    assert [judged(known, machine=where).causes[0].gain.middle for where in (half_idle, crowded)] == [30.0, 0.0]
    assert "dataloader.program-waits" in {cause.rule for cause in verdict.dropped}


def test_a_trace_is_taken_only_while_the_question_is_open() -> None:
    """A confirmed cause of a tenth of the step closes it."""
    stacks, native = Stacks(samples=300, inline_fetch=0.6), Native(samples=300, python=0.6)
    fetches = program(stacks=stacks, native=native, loader=LoaderPlan(saves=0.6))
    closed = Verdict(sysperf="1", pid=7, verdict="slowed", sentence="", causes=judged(fetches).causes)

    assert not diagnose.is_open(closed)
    assert diagnose.is_open(msgspec.structs.replace(closed, causes=(), verdict="cannot-tell"))
    assert not diagnose.is_open(msgspec.structs.replace(closed, causes=(), verdict="idle"))


def test_communication_may_have_a_cause_that_only_a_trace_shows() -> None:
    """Passes whose exchange is not needed look like a slow network from outside."""
    facts = Diagnosis(programs=(program(rank=0, world_size=2, stacks=Stacks(samples=300, collective=0.5, forward=0.2)),))
    verdict = diagnose_verdict.judged(facts, rules())
    traced = msgspec.structs.replace(facts.programs[0], traced=Traced(backwards_per_step=8.0, reductions_per_step=1.0, communication=0.5))

    assert diagnose_verdict.trace_may_tell(verdict.causes, facts, rules())
    assert list(states(judged(traced))) == ["ddp.accumulation-without-no-sync"]


@pytest.mark.parametrize(("cpus", "gain"), [(2, 18.0), (8, 27.2), (None, 27.2)])
def test_ranks_that_share_cpus_gain_a_part_of_their_work(cpus: int | None, gain: float) -> None:
    """Eight ranks on two CPUs: the others have their work to do on these as well, while the slowest does its own. Measured: 5 % (-2 to 12)."""
    slow = program(rank=1, world_size=8, stacks=Stacks(samples=300, forward=0.9))
    known = Ranks(count=8, slowest=1, wanted_ratio=1.45, excess_cpus=0.36)
    (cause, *_) = judged(slow, machine=Machine(cpus=cpus, idle_cpus=0.1, others_cpus=0.0, other_programs=0), ranks=known).causes

    assert cause.rule == "ddp.unequal-ranks"
    assert cause.gain.middle == pytest.approx(gain, abs=0.1)


def test_of_many_ranks_two_are_looked_into() -> None:
    """The one that uses most CPU time, and the one that uses least."""
    ranks = [program(pid=pid, rank=pid, world_size=256, threads={"used_cpus": 1.0 + pid / 1000}) for pid in range(1, 257)]

    assert [program_seen.pid for program_seen in diagnose.sampled(ranks)] == [256, 1]


def test_a_rank_that_is_unknown_is_none() -> None:
    """Its environment may not be read: neither rank 0 nor 'rank None'."""
    unknown = [program(pid=pid, rank=None, world_size=2, stacks=Stacks(samples=300, inline_fetch=0.6)) for pid in (1, 2)]

    assert [subject.text for subject in subjects(judged(*unknown).causes[0])] == ["python (pid 1)", "python (pid 2)"]
    assert programs.ranks(unknown).count == 0


def published(form: str, **facts: object) -> str:
    line = Place(f"/tmp/{EVIL}.py", 31, EVIL, EVIL, "inline_fetch", 0.5)
    asked = program(command=EVIL, stacks=Stacks(samples=300, inline_fetch=0.6, lines=(line,)))
    verdict = judged(asked)
    whole = Verdict(
        sysperf="1", pid=7, command=EVIL, verdict=verdict.word, sentence=verdict.sentence, causes=verdict.causes, dropped=verdict.dropped,
        notes=(EVIL,), facts=Diagnosis(programs=(asked,)),
    )  # fmt: skip
    return diagnosis.render(whole, form, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["text", "json", "markdown", "html"])
def test_text_of_a_program_is_shown_and_does_nothing(form: str) -> None:
    """A file's name, a line, a command line may hold anything."""
    page = published(form)

    assert "\x1b" not in page
    of_ours = 1 if form == "html" else 0  # the button that copies
    assert form in ("text", "json") or len(re.findall(r"(?<!\\)<script", re.sub(r"`[^`\n]*`", "", page))) == of_ours
    assert "dataloader.inline" in page or "main thread makes the batches" in page


def test_every_document_fits_the_published_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """What --schema prints, --format json follows."""
    assert main(["diagnose", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)

    jsonschema.validate(json.loads(published("json")), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(published("json")), "sentense": ""}, schema)


def test_each_running_witness_has_a_signal() -> None:
    """A cause without anything that speaks for it would never be said."""
    known_rules = [rule for rule in rules().rules if rule.scope == "diagnosis"]

    assert len(known_rules) >= 36
    for rule in known_rules:
        assert not set(rule.explains) & set(rule.explains_where_most), rule.id
        assert rule.on_gpu or not rule.id.startswith(("device.", "nccl.")), rule.id
        assert [signal for signal in rule.signals if not signal.against], rule.id
        assert all(re.match(r"(worker:)?[a-z_]+$", line) for line in rule.lines), rule.id


def test_every_cause_is_in_the_page() -> None:
    """docs/diagnose.md names all of them."""
    page = (ROOT / "docs/diagnose.md").read_text()

    assert {rule.id for rule in rules().rules if rule.scope == "diagnosis"} <= set(re.findall(r"[a-z]+\.[a-z0-9-]+", page))


def test_what_the_page_leaves_to_other_commands_is_there() -> None:
    """It names their rules, and each detection that no cause is about is a rule there or is said to be nowhere."""
    page = (ROOT / "docs/diagnose.md").read_text()
    left = page.partition("## What others look for")[2]
    named = set(re.findall(r"`((?:dataloader|script|numa|gpu|nccl|network|power|cpu)\.[a-z0-9-]+)`", left))

    assert len(named) > 10
    assert named <= {rule.id for rule in rules().rules}
    assert all("sysperf" in row or "nowhere" in row for row in left.splitlines() if row.startswith("| ") and "where it is found" not in row)


def test_ranks_that_only_wait_are_looked_into() -> None:
    """A job that hangs uses no CPU, as one that waits for work does: only its stacks tell them apart."""
    hung = [program(pid=pid, rank=pid, world_size=4, role="idle", threads={"used_cpus": 0.0}) for pid in range(4)]
    server = [program(pid=9, role="idle", threads={"used_cpus": 0.0})]

    assert [one.pid for one in diagnose.sampled([*hung, *server])] == [0, 1]
    assert diagnose.sampled(server) == server, "only stacks tell a server from a program that waits for its data"
    assert diagnose.computing(hung) == []


def test_valleys_of_a_gpu_are_no_second_witness_of_themselves() -> None:
    """Whatever the main thread did in them, they were seen by NVML alone; stacks are another source."""
    swings = Gpu(utilization=0.5, lowest=0.0, highest=0.95, valleys="runs 100%", others=0)
    computes = {"uses_gpu": True, "gpu": swings, "native": Native(samples=300, python=0.1, torch=0.8, math=0.8)}

    assert states(judged(program(**computes, stacks=Stacks(samples=300, forward=0.9)))) == {"device.sawtooth": "likely"}
    waits = Stacks(samples=300, forward=0.7, loader_wait=0.2)
    assert judged(program(**computes, stacks=waits)).causes[0].state == "confirmed"


def test_ranks_share_their_groups_quota() -> None:
    """Each of four with all of its four CPUs would be stopped as before."""
    four = [
        program(pid=pid, rank=pid, world_size=4, threads={"team": 4, "waited_share": 0.3}, throttled=0.7, quota=4.0) for pid in range(1, 5)
    ]
    found = judged(*four, machine=Machine(cpus=16, idle_cpus=4.0, others_cpus=0.0, other_programs=0))

    assert found.causes[0].rule == "cgroup.cpu-throttled"
    assert "OMP_NUM_THREADS=1 " in found.causes[0].fixes[0].command
    assert "OMP_NUM_THREADS=2 " in judged(program(threads={"team": 8}, throttled=0.7, quota=1.5)).causes[0].fixes[0].command


def test_a_full_link_promises_what_half_of_the_bytes_save() -> None:
    """Nobody copies nothing."""
    (cause,) = judged(program(uses_gpu=True, gpu=Gpu(utilization=0.2, link_used=0.7), stacks=Stacks(samples=300, forward=0.9))).causes

    assert (cause.rule, cause.gain.middle) == ("transfer.link-full", 35.0)


def test_what_nearly_every_python_program_shows_is_no_second_witness() -> None:
    """A tenth of the time in the interpreter, some sleep, kernels that were compiled at run time, an exchange that waits for threads."""
    usual = Native(samples=300, python=0.2, torch=0.7, math=0.6)
    compiled = Native(samples=300, python=0.1, torch=0.2, math=0.85)
    interpreter = Native(samples=300, python=0.45, torch=0.5, math=0.2)
    fetches = Stacks(samples=300, inline_fetch=0.1, forward=0.8)
    collates = Stacks(samples=300, inline_fetch=0.15, collate=0.12, forward=0.8)
    compiles = Stacks(samples=300, compiling=0.06, forward=0.8)

    for native in (usual, compiled, interpreter):
        assert states(judged(program(stacks=fetches, native=native, main={"slept": 0.1})))["dataloader.inline"] == "likely"
        assert states(judged(program(stacks=collates, native=native)))["dataloader.slow-collate"] == "likely"
        assert states(judged(program(stacks=compiles, native=native)))["compile.recompiles"] == "likely"
    backward = program(uses_gpu=True, main={"slept": 0.5, "futex": 0.5}, stacks=Stacks(samples=300, backward=0.5, locking=0.2, forward=0.3))
    assert states(judged(backward)) == {"program.waits-for-threads": "likely"}


def test_a_gpu_that_is_busy_all_the_time_speaks_against_its_host() -> None:
    """The line that reads the loss waits for kernels; of a GPU that others fill, that is not known."""
    reads = {"uses_gpu": True, "stacks": Stacks(samples=300, readback=0.8, forward=0.1)}
    busy, shared = (Gpu(utilization=0.99, lowest=0.9, highest=1.0, others=others) for others in (0, 1))
    alone = judged(program(**reads, gpu=busy))

    assert (alone.word, states(alone)) == ("healthy", {})
    assert [(cause.rule, cause.state, cause.because) for cause in alone.dropped] == [
        ("sync.per-step", "contradicted", "its GPU is busy 99 % of the time: kernels hide what the main thread does")
    ]
    assert states(judged(program(**reads, gpu=shared))) == {"sync.per-step": "likely"}
    assert states(judged(program(**reads, gpu=msgspec.structs.replace(busy, utilization=0.6)))) == {"sync.per-step": "confirmed"}


@pytest.mark.parametrize(
    ("meters", "gain"),
    [
        (Gpu(utilization=0.8), 20.0),
        (Gpu(utilization=0.8, others=1, others_used=0.5, own_used=0.3), 60.0),  # without the others it has the GPU for itself
        (Gpu(utilization=0.8, others=1), 60.0),  # nobody knows how much of it is its own
        (Gpu(), 60.0),
    ],
)
def test_acting_on_the_host_gains_no_more_than_the_gpu_is_idle(meters: Gpu, gain: float) -> None:
    """What the main thread does while its kernels run costs nothing."""
    verdict = judged(program(uses_gpu=True, gpu=meters, main={"sleeping": 0.6}, stacks=Stacks(samples=300, sleeping=0.6, forward=0.2)))

    assert {cause.rule: cause.gain.middle for cause in verdict.causes}["program.sleeps"] == gain


@pytest.mark.parametrize(
    "stacks",
    [
        Stacks(samples=300, forward=0.2, sleeping=0.6),
        Stacks(samples=300, forward=0.2, python=0.6),
        Stacks(samples=300, forward=0.2, checkpoint=0.6),
        Stacks(samples=300, forward=0.2, collection=0.6),
        Stacks(samples=300, forward=0.2, compiling=0.6),
    ],
)
def test_a_full_gpu_speaks_against_every_cause_of_the_host(stacks: Stacks) -> None:
    """Whatever the main thread does, it is hidden."""
    verdict = judged(program(uses_gpu=True, gpu=Gpu(utilization=0.99), native=Native(samples=300, python=0.7), stacks=stacks))

    assert (verdict.word, states(verdict)) == ("healthy", {})


def test_a_gpu_that_exchanges_gradients_is_busy_with_it() -> None:
    """NCCL's kernels count as use: communication is not hidden by them."""
    ranks = {"uses_gpu": True, "world_size": 2, "rank": 0, "main": {"slept": 0.5, "ran": 0.5}}
    verdict = judged(program(**ranks, gpu=Gpu(utilization=1.0), stacks=Stacks(samples=300, collective=0.5, forward=0.1)))

    assert [(cause.rule, cause.gain.middle) for cause in verdict.causes] == [("ddp.communication", 50.0)]


@pytest.mark.parametrize(("own", "others", "gain"), [(0.5, 0.5, 50.0), (0.3, 0.7, 70.0), (0.25, 0.25, 8.3), (0.1, 0.4, 6.7)])
def test_a_neighbour_on_an_idle_gpu_costs_less_than_it_runs(own: float, others: float, gain: float) -> None:
    """Its kernels delay only those that want the GPU at the same time."""
    meters = Gpu(utilization=own + others, others=1, others_used=others, own_used=own)
    (cause,) = judged(program(uses_gpu=True, gpu=meters)).causes

    assert (cause.rule, cause.gain.middle) == ("device.shared", gain)


def test_only_variables_that_are_set_are_unset() -> None:
    """And named with their values; a fix that leaves nothing to unset is none."""
    slow = {"uses_gpu": True, "world_size": 8, "rank": 0, "stacks": Stacks(samples=300, collective=0.4, forward=0.3)}
    (peers,) = judged(program(**slow, judged=("nccl.p2p-disabled",), env={"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO"})).causes
    (level,) = judged(program(**slow, judged=("nccl.p2p-disabled",), env={"NCCL_P2P_LEVEL": "LOC"})).causes

    assert peers.fixes[0].command == "env -u NCCL_P2P_DISABLE python train.py"
    assert peers.fixes[0].title == "unset NCCL_P2P_DISABLE"
    assert "NCCL_P2P_DISABLE=1" in peers.message
    assert shlex.split(peers.verify)[-1] == peers.fixes[0].command
    assert [fix.command for fix in level.fixes] == ["sysperf audit --select nccl"]
    assert "NCCL_P2P_LEVEL=LOC" in level.message


def test_a_job_that_hangs_has_no_speed_to_compare() -> None:
    """What is run next looks where it is; a hang in DDP's reducer is one, too."""
    hung = [
        program(pid=pid, rank=pid, world_size=2, role="idle", threads={"used_cpus": 0.0}, stacks=Stacks(samples=300, backward=1.0))
        for pid in (0, 1)
    ]
    found = judged(*hung)
    whole = Verdict(sysperf="1", pid=1, verdict=found.word, sentence=found.sentence, causes=found.causes, next=found.next)

    assert states(found) == {"program.stuck": "confirmed"}
    assert found.causes[0].verify == ""
    assert found.next == "sysperf stacks 0"
    for form in ("text", "markdown", "html"):
        page = diagnosis.render(whole, form).lower()
        assert "sysperf verify" not in page
        assert "prove" not in page


def test_one_rank_that_does_nothing_while_others_spin_for_it_is_looked_into() -> None:
    """NCCL's ranks compute while they wait: the one that does not is the one to look at."""
    spins = [
        program(
            pid=pid,
            rank=pid,
            world_size=4,
            stacks=Stacks(samples=300, collective=1.0),
            main={"ran": 1.0},
            threads={"used_cpus": 1.0},
        )
        for pid in (1, 2, 3)
    ]
    waits = program(pid=9, rank=0, world_size=4, role="idle", threads={"used_cpus": 0.0}, stacks=Stacks(samples=300, other=1.0))

    assert [looked.pid for looked in diagnose.sampled([*spins, waits])] == [1, 9]
    verdict = judged(*spins, waits)
    assert states(verdict) == {"program.stuck": "confirmed"}
    assert [subject.text for subject in subjects(verdict.causes[0])] == ["rank 0 (pid 9)"]


def test_of_a_program_that_sleeps_others_take_little() -> None:
    """It waits two fifths of the time that it wants a CPU, which is half of its step: a fifth of the step is waiting."""
    around = Machine(cpus=2, idle_cpus=0.0, others_cpus=1.5, others_steady=1.0, other_programs=0)
    half = {"main": {"ran": 0.3, "waited": 0.2, "slept": 0.5}, "threads": {"used_cpus": 0.3, "waited_share": 0.4, "team": 1}}
    little = {
        **half,
        "main": {"ran": 0.09, "waited": 0.06, "slept": 0.85},
        "threads": {"used_cpus": 0.09, "waited_share": 0.4, "team": 1},
    }
    (cause,) = judged(program(**half), machine=around).causes

    assert (cause.rule, cause.gain.middle) == ("threads.neighbour", 20.0)
    assert states(judged(program(**little), machine=around)) == {}


@pytest.mark.parametrize(("samples", "low", "high"), [(300, 18.0, 45.0), (30, 0.0, 67.4)])
def test_a_share_of_few_samples_predicts_less_exactly(samples: int, low: float, high: float) -> None:
    """A starved sampler looks thirty times in six seconds: that a third of the looks is in the sleep says little."""
    taken = Stacks(samples=samples, sleeping=0.3, forward=0.3, backward=0.3, optimizer=0.1)
    (cause,) = judged(program(stacks=taken, main={"ran": 0.6, "waited": 0.1, "slept": 0.3, "sleeping": 0.3})).causes

    assert (cause.gain.low, cause.gain.middle, cause.gain.high) == (low, 30.0, high)


@pytest.mark.parametrize(("samples", "low"), [(3_000, 34.2), (30, 16.6)])
def test_a_share_of_few_samples_of_machine_code_predicts_less_exactly(samples: int, low: float) -> None:
    """What rests on machine code alone is as uncertain as that was seen seldom."""
    tiny = program(native=Native(samples=samples, torch=0.7, math=0.1, openmp=0.0, python=0.1))

    (cause,) = judged(tiny).causes

    assert (cause.rule, cause.gain.low) == ("program.tiny-operators", low)

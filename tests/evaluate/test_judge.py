"""What the judge says, with evidence, gaps and remedies."""

from __future__ import annotations

from typing import Any

import pytest

from sysperf.collect.allocator import Allocator, Library
from sysperf.collect.container import Container
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import JUDGED, Judge, judge
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.evaluate.template import compile_template
from sysperf.model.finding import by_weight
from sysperf.model.record import Record, convert
from sysperf.model.rule import Rule, RuleFile
from sysperf.model.snapshot import Area, Snapshot, Source

from .conftest import SCHEMA, Box, Disk


def rule(**changes: Any) -> Rule:
    base = {
        "id": "box.swaps",
        "title": "It swaps",
        "scope": "host",
        "severity": "warning",
        "when": "box.swappiness > 10",
        "message": "swappiness is {box.swappiness}",
        "explain": "Swapping is slow.",
    }
    return convert({**base, **changes}, Rule)


def judged(rules: list[Rule], box: Box | None, sources: tuple[Source, ...] = (), problem: str | None = None) -> Judge:
    snapshot = Snapshot(taken_at="now", areas={"box": Area(box, problem)})
    return judge(Ruleset([RuleFile(rule=tuple(rules))], SCHEMA), snapshot, JUDGED, Ledger(snapshot, sources))


def test_a_finding_has_evidence_message_and_fix() -> None:
    """It says what was observed, where it was read, what to do, and how to take it back; its gain is unmeasured."""
    fix = {"kind": "sysctl", "key": "vm.swappiness", "value": 10, "was": "{box.swappiness}", "safety": "caution"}

    (outcome,) = judged([rule(fix=[fix])], Box(swappiness=60), (Source("/proc/sys/vm/swappiness"),)).outcomes

    assert (outcome.state, outcome.message) == ("finding", "swappiness is 60")
    assert [(evidence.fact, evidence.value, evidence.source) for evidence in outcome.evidence] == [
        ("box.swappiness", 60, "/proc/sys/vm/swappiness")
    ]
    assert outcome.fixes[0].command == "sudo sysctl -w vm.swappiness=10"
    assert outcome.fixes[0].undo == "sudo sysctl -w vm.swappiness=60"
    assert outcome.gain.text == "unmeasured"


def test_an_unknown_says_why_and_what_would_help() -> None:
    """A file that could not be read makes the rule unknown, never passed."""
    denied = Source("/proc/sys/vm/swappiness", error="Permission denied")

    verdicts = judged([rule()], Box(), (denied,))

    (outcome,) = verdicts.outcomes
    assert verdicts.tally().passed == 0
    assert outcome.state == "unknown"
    assert (outcome.unknown[0].fact, outcome.unknown[0].reason) == ("box.swappiness", "/proc/sys/vm/swappiness: Permission denied")
    assert "sudo" in outcome.unknown[0].remedy


def test_an_unknown_keeps_what_was_seen_before_it() -> None:
    """The evidence says how far the condition came: what is known, with its value."""
    (outcome,) = judged([rule(when="box.busy and box.swappiness > 10")], Box(busy=True)).outcomes

    assert outcome.state == "unknown"
    assert [(evidence.fact, evidence.value) for evidence in outcome.evidence] == [("box.busy", True)]


def test_a_library_is_preloaded_from_where_it_lies_or_installed_first() -> None:
    """The command names its file; where the machine has none, there is no command to paste."""
    fixes = [{"kind": "preload", "library": name, "safety": "safe"} for name in ("jemalloc", "mimalloc")]
    libraries = (Library("jemalloc", "/usr/lib/lib jemalloc.so.2"),)
    snapshot = Snapshot(taken_at="now", areas={"box": Area(Box(swappiness=60)), "allocator": Area(Allocator(libraries=libraries))})

    ruleset = Ruleset([RuleFile(rule=(rule(fix=fixes),))], SCHEMA)
    ((there, absent),) = (outcome.fixes for outcome in judge(ruleset, snapshot, JUDGED).outcomes)

    assert there.command == "export LD_PRELOAD='/usr/lib/lib jemalloc.so.2'"
    assert there.title == "preload jemalloc"
    assert (absent.command, absent.title) == ("", "install mimalloc, then start the program with it preloaded")


def test_a_fix_is_offered_where_its_condition_does_not_fail() -> None:
    """One that is known to be for other machines is left out; one that nobody can tell stays, if nothing in it is unknown."""
    conditions = {"for it": "box.swappiness > 10", "for others": "box.swappiness < 10", "perhaps": "box.share > 0.5"}
    fixes = [{"kind": "advice", "by": "command", "title": title, "when": when} for title, when in conditions.items()]
    fixes.append({"kind": "advice", "by": "command", "title": "set {box.share}", "when": conditions["perhaps"]})

    ((*offered,),) = (outcome.fixes for outcome in judged([rule(fix=fixes)], Box(swappiness=60)).outcomes)

    assert [fix.title for fix in offered] == ["for it", "perhaps"]


@pytest.mark.parametrize(("value", "text"), [(60, "60"), (60.0, "60"), (1_000_000.0, "1000000"), (0.25, "0.25"), (1e9 / 3, "3.33333e+08")])
def test_plain_numbers_are_arguments_of_a_command(value: float, text: str) -> None:
    """No thousands, no `.0`."""
    assert compile_template("{box.share | plain}", SCHEMA, {}).fill(Scope({"box": Box(share=value)})) == text


def test_an_area_that_broke_is_the_reason() -> None:
    """Without any fact of the area, its problem is the reason."""
    (outcome,) = judged([rule()], None, problem="the collector broke: ValueError: x").outcomes

    assert outcome.unknown[0].reason == "the collector broke: ValueError: x"


@pytest.mark.parametrize(
    ("changes", "box", "state"),
    [
        ({}, Box(swappiness=5), "passed"),
        ({"applies": "box.busy"}, Box(swappiness=60, busy=False), "not applicable"),
        ({"applies": "box.busy"}, Box(swappiness=60), "unknown"),
        ({"applies": "box.busy"}, Box(swappiness=5), "passed"),
        ({"unless": [{"when": "box.busy", "because": "it is busy"}]}, Box(swappiness=60, busy=True), "suppressed"),
        ({"unless": [{"when": "box.busy", "because": "it is busy"}]}, Box(swappiness=60, busy=False), "finding"),
        ({"unless": [{"when": "box.busy", "because": "it is busy"}]}, Box(swappiness=60), "finding"),
        ({"unless": [{"when": "box.busy", "because": "it is busy"}]}, Box(), "unknown"),
        ({"unless": [{"when": "box.busy", "because": "it is busy"}]}, Box(swappiness=5), "passed"),
    ],
)
def test_the_five_answers(changes: dict[str, Any], box: Box, state: str) -> None:
    """Pass, finding, not applicable, unknown, suppressed: each for its reason."""
    verdicts = judged([rule(**changes)], box)
    tally = verdicts.tally()

    answers = {
        "passed": tally.passed,
        "not applicable": tally.not_applicable,
        "unknown": tally.unknown,
        "suppressed": tally.suppressed,
        "finding": tally.findings,
    }
    assert [name for name, count in answers.items() if count] == [state]


def test_a_guard_gives_its_reason() -> None:
    """What is not reported says because of what."""
    (outcome,) = judged([rule(unless=[{"when": "box.busy", "because": "it is busy"}])], Box(swappiness=60, busy=True)).outcomes

    assert outcome.because == "it is busy"


def test_an_unknown_guard_does_not_hide_what_is_plainly_there() -> None:
    """The finding stands, is less sure, names the exemption and the unknown fact, and nothing of it is applied unasked."""
    fix = {"kind": "sysctl", "key": "vm.max_map_count", "value": 1_048_576, "safety": "safe"}
    guards = [{"when": "box.busy", "because": "it is busy"}]

    (sure,) = judged([rule(confidence="high", fix=[fix])], Box(swappiness=60)).outcomes
    (outcome,) = judged([rule(confidence="high", fix=[fix], unless=guards)], Box(swappiness=60)).outcomes

    assert (outcome.state, outcome.confidence) == ("finding", "medium")
    assert outcome.because == "unless it is busy, which is not known"
    assert [gap.fact for gap in outcome.unknown] == ["box.busy"]
    assert ([fix.safety for fix in sure.fixes], [fix.safety for fix in outcome.fixes]) == (["safe"], ["caution"])


def test_a_guard_that_holds_outweighs_one_that_is_unknown() -> None:
    """And confidence has a lowest step."""
    guards = [{"when": "box.mode == 'x'", "because": "of x"}, {"when": "box.busy", "because": "it is busy"}]

    (guarded,) = judged([rule(unless=guards)], Box(swappiness=60, busy=True)).outcomes
    (low,) = judged([rule(confidence="low", unless=guards)], Box(swappiness=60, busy=False)).outcomes

    assert (guarded.state, guarded.because) == ("suppressed", "it is busy")
    (first,) = judged([rule(unless=guards[::-1])], Box(swappiness=60, busy=True)).outcomes
    assert (first.state, first.because) == ("suppressed", "it is busy")
    assert (low.state, low.confidence) == ("finding", "low")


def test_a_launch_rule_waits_for_its_exemption() -> None:
    """What it says is done at once: an unknown guard leaves it unknown."""
    guarded = rule(scope="launch", unless=[{"when": "box.busy", "because": "it is busy"}])
    ruleset = Ruleset([RuleFile(rule=(guarded,))], SCHEMA)
    judge = Judge({"box": Box(swappiness=60)}, {}, Ledger(Snapshot(taken_at="", areas={})))

    judge.rule(ruleset.compiled(guarded.id))

    assert [outcome.state for outcome in judge.outcomes] == ["unknown"]


@pytest.mark.parametrize("count", [3, 100])
def test_each_item_is_judged(count: int) -> None:
    """`for_each` gives one answer an element, with its own evidence; long lists give the same answers as short ones."""
    disks = tuple(Disk(f"sd{number}", number % 3 == 0 if number else None, 64) for number in range(count))
    sources = tuple(Source(f"/sys/block/sd{number}/queue/rotational") for number in range(count))

    verdicts = judged([rule(for_each="d in box.disks", when="d.rotational", message="{d.name} spins")], Box(disks=disks), sources)

    spinning = [number for number in range(1, count) if number % 3 == 0]
    by_subject = {outcome.about: outcome for outcome in verdicts.outcomes}
    assert {name for name, outcome in by_subject.items() if outcome.state == "finding"} == {f"sd{number}" for number in spinning}
    assert by_subject["sd0"].state == "unknown"
    assert verdicts.tally().passed == count - 1 - len(spinning)
    for number in spinning:
        assert by_subject[f"sd{number}"].evidence[0].source == f"/sys/block/sd{number}/queue/rotational"


def test_a_list_that_could_not_be_read_is_unknown_and_an_empty_one_is_not() -> None:
    """No disks: nothing to say. Disks unknown: unknown."""
    each = rule(for_each="d in box.disks", when="d.rotational", message="x")

    assert judged([each], Box()).tally().unknown == 1
    assert judged([each], Box(disks=())).tally().not_applicable == 1


def test_ranking_puts_the_worst_and_surest_first() -> None:
    """Severity, then confidence, then how well the effect is known."""
    rules = [
        rule(id="box.a", severity="info"),
        rule(id="box.b", confidence="low"),
        rule(id="box.c", severity="error"),
        rule(id="box.d", impact={"metric": "x", "basis": "measured"}),
        rule(id="box.e"),
    ]

    rules_in_order = [outcome.rule for outcome in sorted(judged(rules, Box(swappiness=60)).outcomes, key=by_weight)]

    assert rules_in_order == ["box.c", "box.d", "box.e", "box.b", "box.a"]


def test_severity_threshold() -> None:
    """`--fail-on warning` fails on warnings and errors, not on hints."""
    (outcome,) = judged([rule()], Box(swappiness=60)).outcomes

    assert outcome.reaches("warning")
    assert outcome.reaches("hint")
    assert not outcome.reaches("error")
    assert not outcome.reaches("never")


def test_values_in_commands_are_quoted_and_neutral() -> None:
    """A value that another process chose cannot become a command or an escape sequence."""
    evil = "x'; rm -rf / #\x1b[31m\n"
    advice = {"kind": "advice", "by": "command", "command": "chdisk {box.mode}", "text": "about {box.mode}"}

    (outcome,) = judged([rule(when="box.mode != ''", message="mode {box.mode}", fix=[advice])], Box(mode=evil)).outcomes

    assert outcome.fixes[0].command == "chdisk 'x'\"'\"'; rm -rf / #\\x1b[31m\\x0a'"
    assert "\x1b" not in outcome.message
    assert "\n" not in outcome.message


def test_fingerprints_are_stable_and_without_process_numbers() -> None:
    """The same finding on the same subject has the same name in every run."""
    first = judged([rule()], Box(swappiness=60)).outcomes[0].fingerprint
    second = judged([rule()], Box(swappiness=70)).outcomes[0].fingerprint

    assert first == second
    assert len(first) == 16


class Program(Record):
    """A process, as `process` knows it."""

    pid: int


@pytest.mark.parametrize(
    ("inside", "advice"), [(True, "outside of this container"), (False, "sudo sysperf audit"), (None, "sudo sysperf audit")]
)
def test_what_may_not_be_read_in_a_container(inside: bool | None, advice: str) -> None:
    """An image has no sudo."""
    denied = Source("/sys/firmware/acpi/platform_profile", error="Permission denied")
    ledger = Ledger(Snapshot(taken_at="", areas={"container": Area(Container(inside=inside))}), [denied])
    (gap,) = ledger.gaps({"power.platform_profile": ""}, {"power.platform_profile": (denied.path,)}, Program(1))

    assert advice in gap.remedy


@pytest.mark.parametrize("pid", [1, 4_500, 19_999])
def test_evidence_is_of_the_process_itself(pid: int) -> None:
    """Among 20,000 processes each cites its own files, and what was not read of it is cited of nobody."""
    denied = Source(f"/proc/{pid}/numa_maps", error="Permission denied")
    files = [Source(f"/proc/{number}/{name}") for number in range(1, 20_001) for name in ("stat", "status", "fd/3", "task/7/stat")]
    ledger = Ledger(Snapshot(taken_at="", areas={}), [*files, denied, Source("/proc/5/numa_maps"), Source("/proc/6/limits")])
    program = Program(pid)

    assert ledger.source(("/proc/[0-9]*/status",), program) == f"/proc/{pid}/status"
    assert ledger.source(("/proc/[0-9]*/fd/*",), program) == f"/proc/{pid}/fd/3"
    assert ledger.source(("/proc/[0-9]*/task/[0-9]*/stat",), program) == f"/proc/{pid}/task/7/stat"
    assert ledger.source(("/proc/[0-9]*/limits",), program) == "/proc/[0-9]*/limits"
    assert ledger.reason("proc.policy", ("/proc/[0-9]*/numa_maps",), program) == f"/proc/{pid}/numa_maps: Permission denied"
    assert ledger.reason("proc.limit", ("/proc/[0-9]*/limits",), program) == "/proc/[0-9]*/limits: does not say"


@pytest.mark.parametrize(
    ("message", "reader"),
    [
        ("{box.swappiness} worker(s) wait", "60 workers wait"),
        ("{1} DataLoader worker(s) on {1} CPU(s)", "1 DataLoader worker on 1 CPU"),
        ("{0} process(es)", "0 processes"),
        ("{11} node(s)", "11 nodes"),
        ("the package(s) of this box(es)", "the packages of this boxes"),
    ],
)
def test_a_noun_follows_its_number(message: str, reader: str) -> None:
    """Nobody is told of 1 workers."""
    template = compile_template(message, SCHEMA)

    assert template.fill(Scope({"box": Box(swappiness=60)}, {})) == reader


def test_rules_of_a_scope_without_subjects_are_counted_once() -> None:
    """Without a GPU, a rule about GPUs is one rule that does not apply; where GPUs are unknown, it is judged."""
    ledger = Ledger(Snapshot(taken_at="now", areas={}), ())
    judge = Judge({"gpus": ()}, {}, ledger)

    assert judge.has_none(rule(scope="gpu"))
    assert (judge.tally().rules, judge.tally().not_applicable) == (1, 1)
    assert not judge.has_none(rule())
    assert not Judge({"gpus": None}, {}, ledger).has_none(rule(scope="gpu"))
    assert judge.tally().rules == 1

"""`sysperf apply` and `undo` on a machine with two memory nodes: every setting, kill -9, power loss, leases, and tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sysperf.model.knob import KNOBS
from tests.numa import changing
from tests.numa.changing import LASTING, LEASED, OF_PROCESS, SAME, TUNED, WISHES
from tests.numa.machine import Machine

pytestmark = [pytest.mark.numa, pytest.mark.timeout(400)]

DEBIAN = ("tuned", "numad")
"""tuned needs a D-Bus, which brings the programs of systemd that set sysctl.d and tmpfiles.d at the start."""
FILES = {"changing.py": Path(changing.__file__).read_text()}
LOST = "power is lost"

Seen = dict[str, Any]


def told(machine: Machine, scenario: str, **options: Any) -> Seen:
    """What a scenario saw inside."""
    result = machine.run(f"from changing import {scenario}; {scenario}()", files=FILES, timeout_s=300, **options)
    assert result.rc == 0, result.output[-4000:]
    seen: Seen = json.loads(result.files["seen.json"])
    return seen


def in_force(raw: str) -> str:
    """The value of a file: the only word, or the one in brackets."""
    return next((word.strip("[]") for word in raw.split() if word.startswith("[")), raw.strip())


def path_of(name: str) -> str:
    """The file of a wish."""
    knob, _, item = name.partition("@")
    return KNOBS[knob].path.replace("{item}", item)


def ok(done: Seen) -> str:
    """What a command printed that did what it was asked for."""
    assert done["rc"] == 0, done["err"]
    out: str = done["out"]
    return out


def planned(done: Seen) -> Seen:
    """What a plan says, whose exit code is 3 where it leaves alone what was named."""
    plan: Seen = json.loads(done["out"])["plan"]
    assert done["rc"] == (3 if plan["skipped"] else 0), done["err"]
    return plan


def reasons(done: Seen) -> dict[str, str]:
    """Setting and why it is left alone."""
    return {skipped["setting"]["knob"]: skipped["reason"] for skipped in planned(done)["skipped"]}


def would_change(done: Seen) -> list[str]:
    return [change["knob"] for change in planned(done)["changes"]]


# ---------------------------------------------------------------------- every setting


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Every setting of the machine is applied, listed and undone; then memory, leases and findings."""
    return told(Machine(), "everything")


def test_every_setting_that_the_machine_has_is_tried(seen: Seen) -> None:
    """Another one in the allow-list has to be added here."""
    assert seen["existing"] == sorted([*WISHES, *OF_PROCESS, "process.pages"])


def test_every_setting_is_really_set(seen: Seen) -> None:
    """As their files say, the file system, and whoever else asks for the latency."""
    assert json.loads(ok(seen["applied"]))["transaction"]["state"] == "applied"
    during = seen["during"]
    assert {name: in_force(during[path_of(name)]) for name in LASTING} == LASTING
    assert during["/dev/shm"].split()[0] == WISHES["shm.size_bytes"]
    assert during["/dev/cpu_dma_latency"] == WISHES["cpu.dma_latency_us"]
    assert all(in_force(seen["before"][path_of(name)]) != value for name, value in LASTING.items())


def test_every_thread_of_a_process_is_set(seen: Seen) -> None:
    """Four threads with different CPUs, priorities and I/O classes have the same ones."""
    mine = f"{seen['pid']}/"
    before, during = ([value for name, value in seen[when].items() if name.startswith(mine)] for when in ("before", "during"))
    assert len(set(before)) == 4
    assert during == ["2,3 nice 7 io 0x6000"] * 4


def test_changes_says_that_all_hold(seen: Seen) -> None:
    (journal,) = json.loads(ok(seen["listed"]))["journals"]
    (transaction,) = journal["transactions"]
    assert [standing["verdict"] for standing in transaction["standing"]] == ["holds"] * len(WISHES | OF_PROCESS)


def test_undo_gives_everything_back(seen: Seen) -> None:
    """Byte for byte, with all that stands beside the settings, such as what another I/O scheduler made of the queue."""
    assert {result["step"]["state"] for result in json.loads(ok(seen["undone"]))["undone"]} == {"undone"}
    assert seen["left"] == {}
    assert len(seen["before"]) > 100


# ---------------------------------------------------------------------- memory


def share(pages: dict[str, int], node: int) -> float:
    return pages.get(str(node), 0) / sum(pages.values())


def test_memory_is_moved_and_moved_back(seen: Seen) -> None:
    """64 MB on node 0; the libraries that others had loaded on node 1 are not taken for its own."""
    memory = seen["memory"]
    ok(memory["applied"])
    assert share(memory["before"], 0) > 0.85
    assert share(memory["during"], 1) > 0.95
    assert "back to 0" in ok(memory["undone"])
    assert share(memory["after"], 0) > 0.95


def test_memory_that_was_on_both_nodes_stays_and_that_is_said(seen: Seen) -> None:
    """Nobody knows which page was where."""
    spread = seen["spread"]
    ok(spread["applied"])
    assert share(spread["during"], 1) > 0.95
    assert "came from nodes 0-1" in ok(spread["undone"])
    assert share(spread["after"], 1) > 0.95


# ---------------------------------------------------------------------- leases


def test_a_lease_ends_by_itself(seen: Seen) -> None:
    """Three seconds after it began everything is as it was, and the process that did it is gone."""
    lease = seen["lease"]
    ok(lease["applied"])
    assert {path_of(name) for name in LEASED} <= {*lease["changed"]}
    assert lease["latency_us"] == LEASED["cpu.dma_latency_us"]
    assert lease["took_s"] < 8
    assert lease["left"] == {}
    assert not lease["keeper_lives"]


def test_a_lease_ends_although_its_process_was_killed(seen: Seen) -> None:
    """Nothing happens before the end; after it, the next `undo --expired` takes it back. The latency went with the process."""
    killed = seen["killed"]
    ok(killed["applied"])
    assert killed["latency_us"] == 2_000_000_000
    assert killed["in_force"]
    assert ok(killed["early"]) == "Nothing to take back.\n"
    assert {path_of("vm.swappiness"), path_of("thp.enabled")} <= {*killed["held"]} == {*killed["still"]}
    assert "/proc/sys/vm/swappiness: back to 60" in ok(killed["late"])
    assert killed["left"] == {}


# ---------------------------------------------------------------------- findings


FOUND = {"numa.balancing-on", "numa.zone-reclaim", "numa.pages-remote", "kernel.perf-paranoid"}


def test_a_fix_that_can_affect_others_is_left_to_a_person(seen: Seen) -> None:
    """And what it would take to include it is said."""
    findings = seen["findings"]
    assert findings["first"].keys() >= FOUND
    why = {line.split()[0].rstrip(":"): line.partition(": ")[2] for line in ok(findings["careful"]).splitlines() if ": " in line}
    assert all(why[rule].startswith("can affect other programs") for rule in FOUND - {"kernel.perf-paranoid"})
    assert why["kernel.perf-paranoid"].startswith("keeps users from each other")
    changed, pages = findings["after careful"]
    assert not changed
    assert pages["1"] == findings["pages before"]["1"], "the process may get more memory meanwhile, but none of it moved"


def test_what_is_named_is_fixed(seen: Seen) -> None:
    """Zone reclaim is off; the memory of a PyTorch process on node 1 is there too, and no longer on node 0."""
    findings = seen["findings"]
    steps = json.loads(ok(findings["named"]))["transaction"]["steps"]
    assert {step["change"]["rule"] for step in steps} == {"numa.zone-reclaim", "numa.pages-remote"}
    assert findings["after named"] == {"/proc/sys/vm/zone_reclaim_mode": ["1\n", "0\n"]}
    assert share(findings["pages before"], 0) > 0.85
    assert share(findings["pages"], 1) > 0.95


def test_a_finding_that_is_fixed_is_gone_and_comes_back_with_undo(seen: Seen) -> None:
    """Two were fixed by their names, one with --caution, and what keeps users from each other by its name, too."""
    findings = seen["findings"]
    ok(findings["caution"])
    assert "kernel.perf-paranoid" in findings["after caution"]
    ok(findings["security"])
    assert findings["first"].keys() - findings["second"].keys() == FOUND
    ok(findings["undone"])
    assert findings["third"] == findings["first"]
    assert findings["left"] == {}
    assert share(findings["pages after"], 0) > 0.85


# ---------------------------------------------------------------------- kill -9


@pytest.fixture(scope="module")
def killed() -> Seen:
    """One transaction with every setting, killed before each step, after each write, and between two threads of a process."""
    return told(Machine(), "kills")


def test_a_kill_in_the_middle_leaves_a_part_changed(killed: Seen) -> None:
    """What the next tests rely on: each kill came where it was wanted, and its transaction is open."""
    kills = killed["kills"]
    assert len(kills) == 2 * killed["steps"] + 1 == 2 * (len(WISHES | OF_PROCESS) + 2) + 1
    assert {(kill["signal"], kill["states"][0]) for kill in kills} == {(9, "open")}
    changed = [len(kill["changed"]) for kill in kills[:-1]]
    assert changed == sorted(changed)
    assert (changed[0], changed[1]) == (0, 1)
    assert changed[-1] == len(WISHES) - 1 + 4 + 2  # the latency went with the process; four threads; two files


def test_undo_after_a_kill_gives_everything_back(killed: Seen) -> None:
    """Wherever it came, the files that would set it again included."""
    for kill in killed["kills"]:
        ok(kill["first"])
        assert kill["left"] == {}, (kill["step"], kill["moment"])
        assert kill["states"][1] == "rolled-back"


def test_undo_after_a_kill_may_be_repeated(killed: Seen) -> None:
    assert {ok(kill["again"]) for kill in killed["kills"] if kill["again"]} == {"Nothing to take back.\n"}


def test_a_kill_between_two_threads_is_nobody_elses_change(killed: Seen) -> None:
    """Two of four threads have other CPUs: that is taken back, not taken for a choice of somebody."""
    between = killed["kills"][-1]
    assert sum("/" in name and name.split("/")[0].isdigit() for name in between["changed"]) == 2
    assert "sched_setaffinity" in between["first"]["out"]
    assert "somebody" not in between["first"]["out"]


# ---------------------------------------------------------------------- power loss


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Five starts of one machine, whose power is lost four times: in the middle of a transaction that is to last, when its files
    are written, when one was applied, and when that was undone."""
    machine = Machine(packages=DEBIAN)
    disk = machine.disk(tmp_path_factory.mktemp("lost"))
    for scenario in ("interrupted", "after_interrupted", "after_files", "after_applied"):
        result = machine.run(f"from changing import {scenario}; {scenario}()", files=FILES, disk=disk, power_loss_at=LOST)
        assert (result.rc, result.output.strip()) == (None, LOST)
    return told(machine, "after_undone", disk=disk)


def states(listed: list[Seen]) -> list[str]:
    return [transaction["transaction"]["state"] for transaction in listed]


def step_states(listed: list[Seen], number: int) -> set[str]:
    return {step["state"] for step in listed[number - 1]["transaction"]["steps"]}


def test_what_power_loss_interrupted_is_over_after_the_start(lost: Seen) -> None:
    """The journal has every step that was done; the values are those of the start, nothing sets anything, and undo agrees."""
    after = lost["interrupted"]
    (transaction,) = after["listed"]
    assert transaction["transaction"]["state"] == "open"
    assert len(transaction["transaction"]["steps"]) == len(LASTING) // 2 - 1
    assert not transaction["transaction"]["problem"]
    assert {standing["verdict"] for standing in transaction["standing"]} == {"unknown"}
    assert after["started"]["set"] == after["left"] == {}
    assert "machine restarted" in ok(after["first"])
    assert ok(after["again"]) == "Nothing to take back.\n"
    assert states(after["state"]) == ["rolled-back"]


def test_files_of_an_interrupted_transaction_are_removed(lost: Seen) -> None:
    """They were on the disk and set everything again at the start; undo restores what was there before, and removes them."""
    after = lost["files"]
    assert {name: in_force(after["started"]["set"][path_of(name)][1]) for name in LASTING} == LASTING
    assert not [line for line in after["started"]["said"] if "sysperf" in line]
    assert states(after["listed"]) == ["rolled-back", "open"]
    ok(after["first"])
    assert set(after["left"]) == {name for name in after["before"] if "sysperf" in name}
    assert all(now is None for _, now in after["left"].values())
    assert ok(after["again"]) == "Nothing to take back.\n"
    assert states(after["state"]) == ["rolled-back", "rolled-back"]


def test_what_is_to_last_outlives_a_power_loss(lost: Seen) -> None:
    """It is set again, it holds, and `undo --expired` leaves it. What had a lease is not set again, and over."""
    after = lost["restarted"]
    lasting = {name: value for name, value in LASTING.items() if name != "vm.overcommit_memory"}
    ok(lost["applied"]["applied"])
    assert {name: in_force(after["started"]["set"][path_of(name)][1]) for name in lasting} == lasting
    assert after["kept"][path_of("vm.overcommit_memory")] == "0\n"
    assert states(after["listed"])[2:] == ["applied", "applied"]
    assert {standing["verdict"] for standing in after["listed"][3]["standing"]} == {"holds"}
    assert ok(after["expired"]) == "/proc/sys/vm/overcommit_memory: gone: the machine restarted since\n"
    assert {name: in_force(after["kept"][path_of(name)]) for name in lasting} == lasting


def test_undo_after_a_power_loss_gives_everything_back_for_good(lost: Seen) -> None:
    """The values at once, and the files too: when the power is lost right after it, the next start sets nothing."""
    after, over = lost["restarted"], lost["over"]
    ok(after["undone"])
    assert set(after["left"]) == {name for name in after["before"] if "sysperf" in name}
    assert step_states(after["state"], 4) == {"undone"}
    assert over["started"]["set"] == {}
    assert not [name for name in over["before"] if "sysperf" in name]
    first = lost["interrupted"]["before"]
    assert {name: over["before"][path_of(name)] for name in LASTING} == {name: first[path_of(name)] for name in LASTING}
    assert states(over["state"]) == ["rolled-back", "rolled-back", "undone", "undone"]
    assert ok(over["again"]) == "Nothing to take back.\n"


# ---------------------------------------------------------------------- tuned and numad


@pytest.fixture(scope="module")
def beside() -> Seen:
    """Debian's tuned and numad run in the machine."""
    return told(Machine(packages=DEBIAN), "daemons")


def test_tuned_restores_when_it_is_asked_to_stop(beside: Seen) -> None:
    """What its accident is compared with: it does take everything back as long as it lives."""
    assert beside["set"] == TUNED
    assert beside["asked to stop"] == beside["before"]


def test_tuned_that_was_killed_never_restores(beside: Seen) -> None:
    """Its values before are in its memory. Started again it takes its own for them: `tuned-adm off` and stopping change nothing."""
    assert beside["killed"] == TUNED
    assert beside["off"] == TUNED
    assert beside["stopped"] == TUNED


def test_sysperf_that_was_killed_restores_what_tuned_does_not(beside: Seen) -> None:
    """The same three settings, killed before and after each of them, and after the last."""
    for kill in beside["ours"]:
        ok(kill["said"])
        assert kill["after"] == beside["before"], (kill["step"], kill["moment"])
    assert beside["ours"][-1]["killed"] == TUNED
    assert len(beside["ours"]) == 2 * len(SAME) + 1


def test_what_tuned_sets_is_left_alone(beside: Seen) -> None:
    """It and its profile are named, in the plan and by `apply --yes`, which ends with 3; what tuned does not set is changed."""
    expected = {name: f"tuned is running and sets it to {value} (profile throughput-performance)" for name, value in SAME.items()}
    left_alone = reasons(beside["planned"])
    assert left_alone == {name: expected[f"{name}{item}"] for name, item in (("vm.swappiness", ""), ("block.read_ahead_kb", "@vda"))}
    assert would_change(beside["planned"]) == ["vm.max_map_count"]
    applied = beside["applied"]
    assert applied["rc"] == 3, applied["err"]
    assert all(reason in " ".join(applied["out"].split()) for reason in left_alone.values())
    assert "1 setting changed" in applied["out"]
    assert beside["beside"] == TUNED
    ok(beside["undone"])


def test_force_changes_what_tuned_sets(beside: Seen) -> None:
    """And undo goes back to what tuned had set."""
    ok(beside["forced"])
    assert beside["beside forced"] == {**TUNED, "/proc/sys/vm/swappiness": "20"}
    assert "back to 10" in ok(beside["undone forced"])


def test_a_dead_tuned_is_no_reason(beside: Seen) -> None:
    """Its profile is still the active one on the disk, and nobody applies it."""
    assert would_change(beside["planned without"]) == ["vm.swappiness"]


def test_cpus_of_a_process_are_left_to_numad(beside: Seen) -> None:
    """Where it runs, and not its priority, which numad does not set."""
    numad = beside["numad"]
    assert would_change(numad["before"]) == ["process.cpus", "process.nice"]
    assert reasons(numad["during"]) == {"process.cpus": "numad is running and sets it by itself"}
    assert would_change(numad["during"]) == ["process.nice"]
    assert would_change(numad["forced"]) == ["process.cpus", "process.nice"]

"""Fuzzers of what nodes, schedulers and ranks send: it is compared, refused with its reason, or unknown; never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import math
import pickle
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine.configuration import Config
from sysperf.engine.fleet import bench, gather, job
from sysperf.engine.judging import machine_rules
from sysperf.fleet import flight
from sysperf.fleet.engines import slurm, torchrun
from sysperf.fleet.markers import slurm as marks
from sysperf.model.fleet import FleetJob
from sysperf.model.node import Asked, is_name
from sysperf.model.record import from_json, plain
from sysperf.report.fleet import bench as bench_report
from sysperf.report.fleet import job as job_report
from sysperf.report.fleet import merged as fleet_report
from tests.fleet.machines import node, write
from tests.fleet.test_flight import dump
from tests.fleet.test_job import told
from tests.fuzzing import fuzz
from tests.mutation import damaged_bytes, damaged_json

RULES = machine_rules(Config())
CEILING = {"metric": "memory", "unit": "GB/s", "group": "memory", "values": [100.0 + number % 3 for number in range(24)]}
FOUND = {"rule": "gpu.ecc-uncorrectable", "severity": "error", "subject": "GPU 3", "message": "GPU 3 had 2 uncorrected errors."}
GOOD = node(
    "n9",
    findings=[FOUND],
    unknown=[{"area": "nic", "why": "no answer"}],
    ceilings=[CEILING],
    job="4242",
    ranks=[plain(told(3, 1.0, count=4))],
)
OTHERS = [
    node(f"n{number}", ceilings=[CEILING], job="4242", ranks=[plain(told(number, count=4))] if number < 3 else []) for number in range(5)
]


@fuzz
@given(damaged_json(GOOD))
def test_records_with_values_of_any_kind(bad: Any) -> None:
    """A node of which one value is another, beside five that are as they should be."""
    merged(json.dumps({**bad, "node": "n9"}).encode())


@fuzz
@given(damaged_bytes(json.dumps(GOOD).encode()))
def test_damaged_records(raw: bytes) -> None:
    merged(raw)


def merged(raw: bytes) -> None:
    """What six nodes say together, in every form, as figures and as ranks."""
    with tempfile.TemporaryDirectory() as folder:
        records = write(Path(folder) / "records", OTHERS)
        (records / "n9.json").write_bytes(raw)
        asked = Asked(where=str(records), job="4242")
        found, policy = gather.fleet("", asked, RULES)
        for form in fleet_report.FORMATS:
            assert fleet_report.render(found, form, verbose=True)
        if policy.classes:
            (Path(folder) / "policy.toml").write_text(fleet_report.policy_toml(policy))
            assert gather.read_policy(f"{folder}/policy.toml") is not None
        measured = bench.bench("", asked)
        ranked = job.job("", asked, 1, 0.0)
        for form in bench_report.FORMATS:
            assert bench_report.render(measured, form, verbose=True)
            assert job_report.render(ranked, form)
    assert (found.asked, found.answered + len(found.silent)) == (6, 6)
    assert found.answered >= 5
    assert all(math.isfinite(each.middle_pct) for each in measured.suspects)


@fuzz
@given(damaged_json(dump(4, 3)), st.booleans())
def test_flight_recorder_dumps_with_values_of_any_kind(bad: Any, pickled: bool) -> None:
    recorded(pickle.dumps(bad, 2) if pickled else json.dumps(bad).encode())


@fuzz
@given(damaged_bytes(pickle.dumps(dump(4, 3), 2)))
def test_damaged_flight_recorder_dumps(raw: bytes) -> None:
    recorded(raw)


def recorded(raw: bytes) -> None:
    """What a job's dumps say together with this one."""
    with contextlib.suppress(flight.Unreadable):
        hangs = flight.hangs({0: flight.parse(raw), 1: flight.parse(pickle.dumps(dump(3, 2), 2))})
        found = FleetJob(sysperf="0", taken_at="", engine="dumps", job="4242", asked=2, answered=2, hangs=hangs)
        for form in job_report.FORMATS:
            assert job_report.render(found, form)


@fuzz
@given(st.text(max_size=60) | damaged_bytes(b"n1 idle*\nn2 mixed+drain\nn[3-4] down~\n").map(lambda raw: raw.decode("utf-8", "replace")))
def test_what_slurm_lists(text: str) -> None:
    """A node is one by its name, and idle only where Slurm says that word."""
    for line in text.splitlines():
        name, _, state = line.strip().partition(" ")
        if is_name(name):
            known = slurm._known(name, state)
            assert known.state != "answered" or state.lower().startswith("idle")


NODE = """NodeName=n1 Arch=x86_64 CoresPerSocket=1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1
   Partitions=debug,long
   Comment=sysperf: gpu.lost
   Reason=rack 7
     power [root@2026-11-24T05:00:00]
"""


@fuzz
@given(damaged_bytes(NODE.encode()))
def test_what_slurm_says_of_a_node(raw: bytes) -> None:
    """No words become a node, and one that is drained is none that can be used."""
    mark = marks._described(raw.decode("utf-8", "replace"))
    assert mark is None or is_name(mark.node)
    assert mark is None or not mark.usable or "DRAIN" not in re.findall("[A-Z]+", mark.state)


ANSWER = b'{"node":"n1","state":"answered","reason":"","data":"eyJub2RlIjoibjEifQ==","took_s":0.5}'
ORDER = b'{"ranks":[0,4],"verb":"bench","asked":{"where":"","hosts":["n1"],"runs":5,"groups":["memory"],"job":"7"}}'


@fuzz
@given(damaged_bytes(ANSWER))
def test_what_ranks_answer(raw: bytes) -> None:
    """Through the store in which ranks meet, where any process may write."""
    assert torchrun._answer("n1", raw).node == "n1"


@fuzz
@given(damaged_bytes(ORDER))
def test_orders_are_verbs_with_their_arguments(raw: bytes) -> None:
    """What the first rank asks is no word of a command line on its own."""
    with contextlib.suppress(ValueError):
        order = from_json(raw, torchrun._Order)
        words = order.asked.words(order.verb)
        assert words[0] == "node"
        assert words[1] in ("record", "bench", "ranks", "pair")


@fuzz
@given(st.lists(damaged_bytes(json.dumps(node("n1")).encode()) | st.binary(max_size=40), max_size=4))
def test_lines_of_stdin(lines: list[bytes]) -> None:
    """Records, noise and both."""
    with stdin(b"\n".join([*lines, *(json.dumps(each).encode() for each in OTHERS)])):
        found, _ = gather.fleet("", Asked(where="-"), RULES)
    assert {f"n{number}" for number in range(2, 5)} <= {name for each in found.classes for name in each.nodes} or found.silent


@contextlib.contextmanager
def stdin(content: bytes) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        yield

"""Many programs that start at once are read some at a time, and those that end are forgotten without reading the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import judging
from sysperf.live import auditor
from sysperf.live.auditor import SPREAD_S, Auditor, AuditPass
from sysperf.live.gpus import Gpus
from sysperf.live.process_facts import PROGRAMS_AT_ONCE
from tests.agent.machines import FAKE_TORCH, Clock, Only, programs

MANY = 2 * PROGRAMS_AT_ONCE + 4
SLEEPING = FAKE_TORCH.replace("sum(range(20000))", "pass").replace("sleep(0.01)", "sleep(1)")


def known(audit_pass: AuditPass, pids: set[int]) -> set[int]:
    """Those of our programs that the facts describe."""
    return pids & {program.pid for program in MachineFacts(audit_pass.snapshot.areas).programs}


def test_a_burst_of_programs_is_read_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass describes a few new ones until all are known; one that ends is gone at once, and no other is read for it."""
    rules = judging.load_rules()
    rules.select(["process.nice-or-batch"], [])
    clock = Clock()
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    with programs(SLEEPING, count=MANY, env={"LIBRARY": str(library)}) as started:
        watching = Auditor(judging.Terms(rules), Only(clock, started), Gpus(), clock)
        pids = {program.pid for program in started}
        counts = [len(known(watching.run_pass(), pids))]
        while counts[-1] < MANY and len(counts) < 20:
            clock.now += SPREAD_S * 20
            counts.append(len(known(watching.run_pass(), pids)))
        steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        assert counts[-1] == MANY
        assert max(steps) <= PROGRAMS_AT_ONCE
        assert len(counts) >= MANY / PROGRAMS_AT_ONCE

        ended = started[0]
        ended.kill()
        ended.wait()
        read: list[object] = []
        monkeypatch.setattr(auditor, "collect", lambda _, areas: read.append(areas))
        watching.ended(ended.pid)
        assert watching.due()
        audit_pass = watching.run_pass()

    assert known(audit_pass, pids) == pids - {ended.pid}
    assert read == []
    assert f"process:{ended.pid}" not in " ".join(audit_pass.present["process"])


FAMILY = """
import ctypes, mmap, os, sys, time
address_space = mmap.mmap(-1, 512 << 20)
library = mmap.mmap(os.open(os.environ["LIBRARY"], os.O_RDONLY), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)
        time.sleep(120)
        os._exit(0)
time.sleep(0.2)
print("ready", flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize(("name", "counted"), [("pt_data_worker", "workers"), ("python3", "forks")])
def test_helpers_are_read_with_their_program_however_many_they_are(name: str, counted: str, tmp_path: Path) -> None:
    """Two programs with more helpers than are read at a time: each has all of its own, in the first pass and later, and none is a program."""
    rules = judging.load_rules()
    rules.select(["process.nice-or-batch"], [])
    clock = Clock()
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    many = PROGRAMS_AT_ONCE + 3
    with programs(FAMILY, str(many), name, count=2, env={"LIBRARY": str(library)}) as started:
        watching = Auditor(judging.Terms(rules), Only(clock, started), Gpus(), clock)
        pids: set[int] = set()
        for _ in range(5):
            found = MachineFacts(watching.run_pass().snapshot.areas).programs
            helpers = {program.workers.count if counted == "workers" else program.children.forks for program in found}
            pids = {program.pid for program in found}
            clock.now += auditor.PERIODS["process"]
            assert pids <= {program.pid for program in started}
            assert helpers == {many}
        assert len(pids) == 2

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
from sysperf.live.scan import Scanner
from tests.agent.machines import FAKE_TORCH, Clock, programs

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
    watching = Auditor(judging.Terms(rules), Scanner(clock), Gpus(), clock)
    watching.run_pass()
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    with programs(SLEEPING, count=MANY, env={"LIBRARY": str(library)}) as started:
        pids = {program.pid for program in started}
        clock.now += auditor.SCAN_IDLE_S
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

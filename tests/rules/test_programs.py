"""Real programs that are sick in one way each, and healthy twins that look alike: within 30 s the illness is named, and nothing else.

They need the machine for themselves, since a neighbour is an illness, too: `make test-programs` runs them one at a time, and
prints the table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
WATCH = Path(__file__).parent / "programs" / "watch.py"

RULE = {
    "oversubscribed": "threads.over-cpus",
    "binding": "openmp.affinity-pins-workers",
    "interpreter_lock": "threads.share-lock",
    "page_faults": "allocator.page-fault-storm",
    "starved": "dataloader.program-waits",
    "workers_made_again": "dataloader.workers-made-again",
    "too_many_workers": "dataloader.total-over-cpus",
    "one_thread": "threads.one-busy",
    "unequal_ranks": "ddp.unequal-ranks",
    "small_reads": "storage.small-reads",
    "crowded_main": "dataloader.workers-crowd-main",
    "memory_grows": "memory.grows",
    "synced_writes": "storage.main-thread-syncs",
    "pool_made_again": "process.children-made-again",
    "compiles_late": "compile.recompiles",
}
SAME_CAUSE = {"page_faults": {"cpu.mitigations"}}
"""What another rule says of the same illness."""
OTHERS_DOING = {"openmp.spin-under-contention", "process.nice-or-batch"}
"""True of any program on a machine that others keep busy, and of one that was started niced: these tests may run on such."""
MAX_BUSY_SHARE, MAX_WAIT_S = 0.3, 60.0
"""A program is started when the CPUs are as idle as this, or after this time."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.programs,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]


class Named(NamedTuple):
    """What was said of a program, how old it was then, and whether `ps` says it too."""

    rules: frozenset[str]
    after_s: float
    in_ps: bool


def alone() -> list[str]:
    """What starts a program in a PID namespace of its own, so that PyTorch programs of other tests are not seen beside it."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    works = subprocess.run((*command, "true"), check=False, capture_output=True).returncode == 0 if shutil.which("unshare") else False
    return command if works else []


def watch(illness: str, state: str, folder: Path) -> Named:
    """Run programs/watch.py."""
    command = (*alone(), sys.executable, str(WATCH), PYTHON, illness, state, str(folder), RULE[illness])
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    watched = json.loads(done.stdout)
    return Named(frozenset(watched["rules"]), watched["after_s"], watched["in_ps"])


def check(illness: str, folder: Path) -> str:
    """A line of the table, after both programs were looked at."""
    sick, healthy = watch(illness, "sick", folder / "sick"), watch(illness, "healthy", folder / "healthy")
    expected = {RULE[illness]} | SAME_CAUSE.get(illness, set())

    assert RULE[illness] in sick.rules, f"{illness}: not named in {sick.after_s:.0f} s, but {sorted(sick.rules)}"
    assert sick.in_ps
    assert sick.rules - expected - OTHERS_DOING == set(), illness
    assert healthy.rules - OTHERS_DOING == set(), illness
    return f"{illness:<20} {RULE[illness]:<34} named after {sick.after_s:4.1f} s; healthy twin: nothing"


@pytest.fixture(name="folders")
def make_folders(tmp_path: Path) -> Path:
    (tmp_path / "sick").mkdir()
    (tmp_path / "healthy").mkdir()
    return tmp_path


def busy_share() -> float:
    """The share of all CPUs' time that was used in a second."""

    def ticks() -> list[int]:
        return [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]

    before = ticks()
    time.sleep(1.0)
    spent = [after - earlier for earlier, after in zip(before, ticks(), strict=True)]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))


def wait_for_idle_cpus() -> None:
    """Let what other tests left behind come to rest."""
    end = time.monotonic() + MAX_WAIT_S
    while busy_share() > MAX_BUSY_SHARE and time.monotonic() < end:
        time.sleep(1.0)


@pytest.mark.parametrize("illness", RULE)
def test_an_illness_is_named_and_its_healthy_twin_is_not(illness: str, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a minute after its start audit and ps name what is wrong, and say nothing of the program that looks like it."""
    wait_for_idle_cpus()
    line = check(illness, folders)
    with capsys.disabled():
        print(f"\n{line}")

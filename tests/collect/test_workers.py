"""Facts about DataLoader workers, each by itself: who they are, what they did so far, and what nobody can tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.process import workers
from sysperf.collect.process.process_tree import WORKER
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import from_json, to_json
from tests.collect.programs import LOADER, PYTHON, VERSION, process, running, stat
from tests.conftest import Files, make_machine

Make = Callable[..., Host]
STATUS = "Name:\tx\nCpus_allowed_list:\t{}\nMems_allowed_list:\t0\n"


def files_of(pid: int, comm: str = WORKER, *, ppid: int = 7, cpus: str = "0-3") -> Files:
    """The files of one worker."""
    return {
        f"/proc/{pid}/stat": stat(pid, comm, ppid=ppid, ticks=250),
        f"/proc/{pid}/status": STATUS.format(cpus),
        f"/proc/{pid}/io": "rchar: 9\nread_bytes: 4096\nwrite_bytes: 0\n",
    }


def test_children_with_the_name_of_a_worker(machine: Make) -> None:
    """CPU time, memory, CPUs and what was read of each; other children are none."""
    host = machine({"/proc/7/task/7/children": "10 11 12", **files_of(10), **files_of(11, cpus="2"), **files_of(12, "sh")})

    loader_facts = workers.read(host, 7)

    assert loader_facts.workers is not None
    assert [(worker.pid, worker.state, worker.cpu_s, worker.read_bytes) for worker in loader_facts.workers] == [
        (10, "S", 2.5, 4096),
        (11, "S", 2.5, 4096),
    ]
    assert loader_facts.workers[1].allowed == CpuSet((2,))
    assert from_json(to_json(loader_facts), workers.Workers) == loader_facts


def test_workers_of_a_fork_server(machine: Make) -> None:
    """They are its children, and it is a child of the program."""
    host = machine(
        {"/proc/7/task/7/children": "9", **files_of(9, "python3"), "/proc/9/task/9/children": "10", **files_of(10, ppid=9)},
    )

    assert [worker.pid for worker in workers.read(host, 7).workers or ()] == [10]


def test_without_a_list_of_children_their_parents_tell(machine: Make) -> None:
    """As in a capture: every process names its parent."""
    host = machine({**process(7), **VERSION, **process(10, WORKER, ppid=7, mapped=())})

    assert [worker.pid for worker in workers.read(host, 7).workers or ()] == [10]


def test_nobody_can_tell(machine: Make) -> None:
    """No /proc: unknown, which is not none. No children: none."""
    assert workers.read(machine({"/etc/hostname": "x"}), 7).workers is None
    assert workers.read(machine({"/proc/7/task/7/children": ""}), 7).workers == ()


def test_what_may_not_be_read_is_unknown(machine: Make) -> None:
    """A worker of which only the state is readable is shown with that."""
    (only,) = workers.read(machine({"/proc/7/task/7/children": "10", "/proc/10/stat": stat(10, WORKER, ppid=7)}), 7).workers or ()

    assert (only.allowed, only.read_bytes) == (None, None)


@settings(max_examples=25)
@given(st.sampled_from(["stat", "status", "io"]), st.text(max_size=200), st.text(max_size=60))
def test_any_text_is_read_without_an_error(name: str, text: str, children: str) -> None:
    """Whatever stands in these files: an answer."""
    files = {"/proc/7/task/7/children": f"10 {children}", **files_of(10), f"/proc/10/{name}": f"10 ({WORKER}) {text}"}
    loader_facts = workers.read(make_machine(files), 7)
    assert loader_facts.workers is not None
    assert all(worker.cpu_s >= 0 for worker in loader_facts.workers)


@pytest.mark.torch
def test_workers_of_a_real_loader() -> None:
    """Two readings of a real DataLoader: the same two workers, whose CPU time grows and whose CPUs are known."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON")
    if not python:
        pytest.skip("no PyTorch: set SYSPERF_TORCH_PYTHON to the interpreter of an environment that has it")
    with running(python, LOADER) as pid:
        first = workers.read(Host(), pid)
        time.sleep(0.5)
        then = workers.read(Host(), pid)
    assert first.workers is not None
    assert then.workers is not None
    assert then.at > first.at
    assert [worker.pid for worker in first.workers] == [worker.pid for worker in then.workers]
    assert len(first.workers) == 2
    assert all(worker.allowed and worker.rss_bytes and worker.read_bytes is not None for worker in then.workers)
    assert sum(worker.cpu_s for worker in then.workers) >= sum(worker.cpu_s for worker in first.workers)


def test_a_program_that_ended_has_no_workers() -> None:
    """Nothing is raised."""
    with running(PYTHON, "print('ready', flush=True)\nimport time\ntime.sleep(60)") as pid:
        assert workers.read(Host(), pid).workers == ()
    assert not workers.read(Host(), pid).workers

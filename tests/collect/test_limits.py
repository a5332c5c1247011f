"""Resource limits, room for temporary files and Slurm's variables of our own process."""

from __future__ import annotations

import resource

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.limits import UNLIMITED, Limits, collect
from sysperf.host import Host
from sysperf.model.record import from_json, to_json
from tests.conftest import Files, MakeMachine

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max stack size            8388608              unlimited            bytes
Max core file size        0                    unlimited            bytes
Max processes             96365                96366                processes
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
Max nice priority         0                    0
"""
ROOT = "22 1 0:5 / / rw - ext4 /dev/sda rw\n"


def environ(**variables: str) -> Files:
    return {"/proc/self/environ": "\0".join(f"{name}={value}" for name, value in variables.items()) + "\0"}


def test_soft_limits(machine: MakeMachine) -> None:
    """They are in force; the hard ones say how far they can be raised."""
    facts = collect(machine({"/proc/self/limits": LIMITS}))

    assert (facts.nofile, facts.memlock_bytes, facts.nproc) == (1024, 8 << 20, 96_365)


def test_unread_limits_are_unknown(machine: MakeMachine) -> None:
    """Neither 0 nor unlimited."""
    facts = collect(machine({}))

    assert (facts.memlock_bytes, facts.nofile, facts.root, facts.slurm, facts.tmp_path) == (None, None, None, None, None)


def test_machine_wide_threads(machine: MakeMachine) -> None:
    """The smaller of threads-max and pid_max is how many threads there can be."""
    files: Files = {
        "/proc/loadavg": "0.00 0.01 0.05 3/412 9971\n",
        "/proc/sys/kernel/threads-max": "192731",
        "/proc/sys/kernel/pid_max": "32768",
    }
    facts = collect(machine(files))

    assert (facts.threads, facts.threads_max) == (412, 32_768)


def test_effective_user_decides(machine: MakeMachine) -> None:
    """Root is not bound by the limit of processes; the effective user counts."""
    started_by_root = collect(machine({"/proc/self/status": "Uid:\t1000\t0\t0\t0\n"}))
    dropped = collect(machine({"/proc/self/status": "Uid:\t0\t1000\t0\t0\n"}))

    assert (started_by_root.user, started_by_root.root) == (0, True)
    assert (dropped.user, dropped.root) == (1000, False)


# ---------------------------------------------------------------------- temporary files


def test_default_folder_for_temporary_files(machine: MakeMachine) -> None:
    """Without TMPDIR it is /tmp, and the file system is that of the longest mount point above it."""
    mounts = ROOT + "23 22 0:9 / /tmp rw - tmpfs tmpfs rw\n24 22 0:10 / /tm rw - xfs x rw\n"
    space = {"total_bytes": 100, "free_bytes": 7, "files": 1, "files_free": 1, "read_only": 0}
    facts = collect(machine({**environ(), "/proc/self/mountinfo": mounts}, calls={"space:/tmp": space}))

    assert (facts.tmp_path, facts.tmp_fstype, facts.tmp_total_bytes, facts.tmp_free_bytes) == ("/tmp", "tmpfs", 100, 7)


def test_network_file_system_is_not_asked_for_its_size(machine: MakeMachine) -> None:
    """A server that is gone would never answer."""
    host = machine({**environ(TMPDIR="/scratch/tmp/"), "/proc/self/mountinfo": ROOT + "23 22 0:9 / /scratch rw - nfs4 s:/x rw\n"})
    facts = collect(host)

    assert (facts.tmp_path, facts.tmp_fstype, facts.tmp_total_bytes) == ("/scratch/tmp", "nfs4", None)
    assert not any(source.path.startswith("space:") for source in host.sources)


# ---------------------------------------------------------------------- Slurm


def test_not_started_by_slurm(machine: MakeMachine) -> None:
    """An environment without its variables: known not to be a job, and every count is 0."""
    facts = collect(machine(environ(OMP_NUM_THREADS="4")))

    assert (facts.slurm, facts.slurm_cpus_per_task, facts.slurm_gpus_on_node) == (False, 0, 0)


def test_slurm_task(machine: MakeMachine) -> None:
    """What Slurm said it gave us."""
    files = environ(SLURM_CPUS_PER_TASK="8", SLURM_GPUS_ON_NODE="4", SLURM_PROCID="0")
    facts = collect(machine(files))

    assert (facts.slurm, facts.slurm_in_step) == (True, True)
    assert (facts.slurm_cpus_per_task, facts.slurm_gpus_on_node) == (8, 4)


def test_a_count_that_is_no_number_is_unknown(machine: MakeMachine) -> None:
    """Slurm writes `8(x2)` in some variables; we do not guess."""
    assert collect(machine(environ(SLURM_CPUS_PER_TASK="8(x2)"))).slurm_cpus_per_task is None


# ---------------------------------------------------------------------- hostile input, this machine


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=80), min_size=3, max_size=3))
def test_never_raises_and_encodes(machine: MakeMachine, contents: list[bytes]) -> None:
    """Whatever the files say, the answer is a record that survives the way through JSON."""
    limits, env, load = contents
    facts = collect(
        machine(
            {
                "/proc/self/limits": b"Max open files   " + limits,
                "/proc/self/environ": b"TMPDIR=" + env,
                "/proc/loadavg": load,
            }
        )
    )

    assert from_json(to_json(facts), Limits) == facts


def test_this_machine() -> None:
    """The file says what the system call says."""
    facts = collect(Host("/"))

    assert facts.nofile == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    assert facts.memlock_bytes == (UNLIMITED if memlock == resource.RLIM_INFINITY else memlock)


@pytest.mark.parametrize("huge", ["9" * 20, "18446744073709551615"])
def test_limits_beyond_64_bits_are_unlimited(machine: MakeMachine, huge: str) -> None:
    """Numbers are cut to what a report can hold."""
    assert collect(machine({"/proc/self/limits": f"Max open files            {huge} {huge} files\n"})).nofile == UNLIMITED

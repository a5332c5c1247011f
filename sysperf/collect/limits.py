"""limits: resource limits of our own process, room for temporary files, and what Slurm gave us.

A program started from here inherits all of them; a running program's own are in the area `process`.

Reads   /proc/self/{limits,status,environ}  /proc/sys/kernel/{threads-max,pid_max}  /proc/loadavg
        /proc/self/mountinfo  statvfs() of $TMPDIR
Kernel  https://man7.org/linux/man-pages/man2/getrlimit.2.html
Slurm   https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.container import own_environment
from sysperf.collect.readers.mounts import mount_of
from sysperf.collect.storage.filesystems import LOCAL
from sysperf.host import Host
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import neutral
from sysperf.procfs.numbers import whole
from sysperf.startup import lazy

LIMITS = "/proc/self/limits"
STATUS = "/proc/self/status"
ENVIRON = "/proc/self/environ"
LOAD = "/proc/loadavg"
THREADS_MAX = "/proc/sys/kernel/threads-max"
PID_MAX = "/proc/sys/kernel/pid_max"
UNLIMITED = (1 << 63) - 1
"""What an unlimited resource is, so that limits can be compared."""

_ROW = lazy(r"(Max [a-z ]+?) {2,}(unlimited|[0-9]{1,20}) +(?:unlimited|[0-9]{1,20})\b")
_TASKS = lazy(r" [0-9]+/([0-9]+) ")
_COUNT = lazy(r"[0-9]{1,9}")


class Limits(Record):
    """Limits of our own process; 9223372036854775807 is unlimited."""

    memlock_bytes: Annotated[int | None, fact("memory that may be locked, as RDMA needs", LIMITS)] = None
    nofile: Annotated[int | None, fact("files that may be open", LIMITS)] = None
    nproc: Annotated[int | None, fact("threads that our user may have; root is not bound by it", LIMITS)] = None
    user: Annotated[int | None, fact("number of our user", STATUS)] = None
    root: Annotated[bool | None, fact("whether we run as root", STATUS)] = None
    threads: Annotated[int | None, fact("threads of the whole machine", LOAD)] = None
    threads_max: Annotated[int | None, fact("threads that the machine can have", THREADS_MAX, PID_MAX)] = None

    tmp_path: Annotated[str | None, fact("where temporary files go: TMPDIR or /tmp", ENVIRON)] = None
    tmp_fstype: Annotated[str | None, fact("file system of that folder", "/proc/self/mountinfo", "/proc/mounts")] = None
    tmp_total_bytes: Annotated[int | None, fact("its size; not asked of network file systems", "space:*")] = None
    tmp_free_bytes: Annotated[int | None, fact("its free space", "space:*")] = None

    slurm: Annotated[bool | None, fact("whether Slurm started us", ENVIRON)] = None
    slurm_cpus_per_task: Annotated[int | None, fact("SLURM_CPUS_PER_TASK; 0 when not set", ENVIRON)] = None
    slurm_gpus_on_node: Annotated[int | None, fact("SLURM_GPUS_ON_NODE; 0 when not set", ENVIRON)] = None
    slurm_in_step: Annotated[bool | None, fact("whether we are a task of srun, not a batch script", ENVIRON)] = None


def collect(host: Host) -> Limits:
    """Read the limits; what cannot be read stays unknown."""
    rows = _rows(host)
    environment = own_environment(host)
    user = _user(host)
    mine = Limits(
        memlock_bytes=rows.get("Max locked memory"),
        nofile=rows.get("Max open files"),
        nproc=rows.get("Max processes"),
        user=user,
        root=None if user is None else user == 0,
    )
    return joined(mine, _machine(host), _tmp(host, environment), _slurm(environment))


def _rows(host: Host) -> dict[str, int]:
    """Soft limits by name out of lines ``Max open files  1024  524288  files``."""
    matches = (_ROW.match(line) for line in (host.text(LIMITS) or "").splitlines()[:64])
    return {match[1]: _limit(match[2]) for match in matches if match}


def _limit(text: str) -> int:
    return UNLIMITED if text == "unlimited" else min(int(text), UNLIMITED)


def _user(host: Host) -> int | None:
    """The effective one of ``Uid: real effective saved file-system``."""
    uids = (host.pairs(STATUS) or {}).get("Uid", "").split()
    return whole(uids[1]) if len(uids) > 1 else None


def _machine(host: Host) -> Limits:
    load = _TASKS.search(host.word(LOAD) or "")
    threads_max, pid_max = host.number(THREADS_MAX), host.number(PID_MAX)
    return Limits(
        threads=whole(load[1]) if load else None,
        threads_max=None if threads_max is None or pid_max is None else min(threads_max, pid_max),
    )


def _tmp(host: Host, environment: dict[str, str] | None) -> Limits:
    if environment is None:
        return Limits()
    path = environment.get("TMPDIR", "").rstrip("/") or "/tmp"  # noqa: S108 - the default of every library
    mount = mount_of(host, path) if path.startswith("/") else None
    if mount is None:
        return Limits(tmp_path=path)
    space = (host.space(path) or {}) if mount.fstype in LOCAL else {}  # a network server that is gone would never answer
    return Limits(
        tmp_path=path,
        tmp_fstype=neutral(mount.fstype, 40),
        tmp_total_bytes=space.get("total_bytes"),
        tmp_free_bytes=space.get("free_bytes"),
    )


def _slurm(environment: dict[str, str] | None) -> Limits:
    if environment is None:
        return Limits()
    return Limits(
        slurm=any(name.startswith("SLURM_") for name in environment),
        slurm_cpus_per_task=_count(environment.get("SLURM_CPUS_PER_TASK", "0")),
        slurm_gpus_on_node=_count(environment.get("SLURM_GPUS_ON_NODE", "0")),
        slurm_in_step="SLURM_PROCID" in environment,
    )


def _count(value: str) -> int | None:
    return int(value) if _COUNT.fullmatch(value) else None

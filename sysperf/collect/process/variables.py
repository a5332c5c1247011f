"""What the variables of a program say: its place in a job, and what was to be preloaded.

Reads   /proc/[pid]/{environ,cmdline,exe}  $CUDA_MPS_PIPE_DIRECTORY/control  /opt/rocm*/.info/version
        /dev/nvidia-caps-imex-channels
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process import loaded_torch, ranks, unknown_variables
from sysperf.collect.process.parts import IMEX, JobPlace, Variables
from sysperf.collect.process.subject import Subject
from sysperf.startup import lazy

_ROCM = lazy(r"(?:^|:)(/opt/rocm(?:-([0-9.]{1,12}))?)/lib(?:64)?/?(?::|$)")
_RELEASE = lazy(r"[0-9]{1,3}\.[0-9]{1,3}(?:\.[0-9]{1,4}){0,2}")


def variables(subject: Subject) -> Variables:
    """What its variables ask for, as far as it did not happen."""
    host, env, mapped = subject.host, subject.env, subject.mapped
    if env is None:
        return Variables()
    preload = tuple(env.get("LD_PRELOAD", "").replace(":", " ").split())
    return Variables(
        preload=preload,
        preload_missing=loaded_torch.not_loaded(host, preload, mapped, subject.root),
        mps_control=_mps_control(subject, env.get("CUDA_MPS_PIPE_DIRECTORY", "")),
        imex_channels=_imex_channels(subject) if env.get("LOCAL_WORLD_SIZE") else None,
        rocm_searched=_rocm_searched(subject, env.get("LD_LIBRARY_PATH", "")),
        searched=host.deep,
        unread=unknown_variables.unread(host, env, mapped, subject.root) if host.deep else None,
    )


def _rocm_searched(subject: Subject, folders: str) -> str | None:
    """Return what the folder's name says, else the file of the ROCm in it, as the program sees it."""
    match = _ROCM.search(folders)
    if match is None:
        return ""
    said = match[2] or subject.host.word(f"{subject.root}{match[1]}/.info/version") or ""
    release = _RELEASE.match(said)
    return release[0] if release else None


def _imex_channels(subject: Subject) -> int | None:
    """Count the channels that this program sees, which a container is given."""
    folder = f"{subject.root}{IMEX}"
    there = subject.host.exists(folder)
    names = subject.host.names(folder) if there else None
    return 0 if there is False else None if names is None else sum(name.startswith("channel") for name in names)


def _mps_control(subject: Subject, folder: str) -> bool | None:
    """Look for the daemon's end in the folder that this program sees, which a container has of its own."""
    return subject.host.exists(f"{subject.root}{folder}/control") if folder.startswith("/") and folder != "/dev/null" else None


def job(subject: Subject) -> JobPlace:
    """Place of the program in a job: its launcher and its rank."""
    host, env, stat = subject.host, subject.env, subject.stat
    launcher, given = ranks.launcher(subject.family.argv, subject.threads), ranks.given(host, env, stat.ppid)
    is_rank = not launcher and given is not None and (given.rank or 0) >= 0
    return JobPlace(
        launcher=launcher,
        rank=given.rank if given else None,
        local_rank=given.local_rank if given else None,
        world_size=given.world_size if given else None,
        id=stat.ppid if is_rank or stat.ppid in subject.machine.families else stat.pid,
    )

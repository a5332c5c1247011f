"""What the user asks of a launch, by options and by a profile."""

import msgspec

from sysperf.launch.profile import Profile
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record


class LaunchRequest(Record):
    """A command, and how the user wants it started."""

    argv: tuple[str, ...]
    cpus: CpuSet | None = None
    node: int | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    strict: bool = False
    allocator: str = ""
    force_env: bool = False
    """Rules may replace variables that are in the environment already."""
    unpin: bool = False
    """Variables that pin the importing thread are unset."""
    traceable: bool = False
    trace_folder: str = ""
    set: dict[str, str] = {}
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    profile: Profile = Profile()
    instances: int = 1

    @property
    def explicit(self) -> bool:
        """Whether anything was asked for beyond the command."""
        return msgspec.structs.replace(self, argv=()) != LaunchRequest(argv=())

"""What a knob means on this machine: the file, process or device that is read and set."""

from __future__ import annotations

import errno
from collections.abc import Callable

from sysperf.fix.files import File
from sysperf.fix.gpu import Persistence
from sysperf.fix.latency import Latency
from sysperf.fix.mark import Mark
from sysperf.fix.persist import Drop
from sysperf.fix.process import Cpus, IoClass, Nice, Pages
from sysperf.fix.shm import SharedMemory
from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.change import Change
from sysperf.model.knob import KNOBS, PERSISTED, Knob, of_mark

_OF_PROCESS: dict[str, Callable[[Host, Knob, int], Target]] = {
    "process.cpus": Cpus,
    "process.nice": Nice,
    "process.io_class": IoClass,
    "process.pages": Pages,
}
_OF_KIND: dict[str, Callable[[Host, Knob, str], Target]] = {
    "process": lambda host, knob, item: _OF_PROCESS[knob.name](host, knob, int(item)),
    "nvml": Persistence,
    "latency": lambda host, knob, _: Latency(host, knob),
    "mount": lambda host, knob, _: SharedMemory(host, knob),
    "file": Drop,
    "mark": lambda _, knob, item: Mark(knob, item),
}


def find(host: Host, knob: Knob, item: str) -> list[Target]:
    """What the knob sets here: one target, or one for each CPU frequency policy. Raises OSError when there is none."""
    if not knob.takes_item(item):
        raise OSError(errno.EINVAL, f"not a {knob.item}: {item[:80]!r}" if knob.item else "it takes no item")
    if knob.kind in _OF_KIND:
        return [_OF_KIND[knob.kind](host, knob, item)]
    path = knob.path.replace("{item}", item)
    paths = [*filter(knob.covers, host.glob(path))] if "*" in path else [path]
    if not paths or host.exists(paths[0]) is False:
        raise FileNotFoundError(errno.ENOENT, "this kernel or machine does not have it")
    return [File(host, knob, path) for path in paths]


def of(host: Host, change: Change) -> Target:
    """The target of a planned or journalled change. Raises OSError when it is gone, or is another of the same name."""
    knob = KNOBS.get(change.knob) or PERSISTED.get(change.knob) or of_mark(change.knob)
    if knob is None:
        raise OSError(errno.EINVAL, "this sysperf knows no such setting")
    for target in find(host, knob, change.item):
        if target.path == change.target:
            if target.start_time != change.start_time:
                raise ProcessLookupError(errno.ESRCH, "the process has ended")
            return target
    raise FileNotFoundError(errno.ENOENT, f"{change.target} is not there any more")

"""A program's open files, and the file systems on which its data lies.

Reads   /proc/[pid]/{fd,limits}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import re

from sysperf.collect.process.parts import DataMount, OpenFiles
from sysperf.collect.process.subject import Subject
from sysperf.collect.readers.mounts import mount_of
from sysperf.model.text import neutral
from sysperf.procfs.maps import holds_data
from sysperf.startup import lazy

MAX_FDS = 20_000
MAX_LINKS = 256
_OPEN_FILES = lazy(r"^Max open files\s+([0-9]{1,18}|unlimited)", re.MULTILINE)


def open_files(subject: Subject) -> OpenFiles:
    """The number of open files, its limit, and the file systems of open data files."""
    names = subject.host.names(f"/proc/{subject.pid}/fd", MAX_FDS)
    limits = _OPEN_FILES.search(subject.host.text(f"/proc/{subject.pid}/limits", 64 << 10) or "")
    return OpenFiles(
        open=None if names is None else len(names),
        limit=None if limits is None else 0 if limits[1] == "unlimited" else int(limits[1]),
        mounts=None if names is None else _data_mounts(subject, names),
    )


def _data_mounts(subject: Subject, names: tuple[str, ...]) -> tuple[DataMount, ...] | None:
    """Return where data files of the program and of its first worker lie; None when its mounts are not ours."""
    if subject.root:
        subject.host.refuse(f"/proc/{subject.pid}/ns/mnt", "the process has mounts of its own (a container)")
        return None
    links = [f"/proc/{subject.pid}/fd/{name}" for name in names]
    for worker in subject.workers[:1]:
        links += [f"/proc/{worker.pid}/fd/{name}" for name in subject.host.names(f"/proc/{worker.pid}/fd", MAX_FDS) or ()]
    mark = len(subject.host.sources)
    targets = {target for link in links[-MAX_LINKS:] if (target := subject.host.link(link))}
    del subject.host.sources[mark:]  # a file may be closed at any time, and 256 links are no evidence anybody reads
    counts: dict[tuple[str, str], int] = {}
    for path in {*subject.mapped.data, *targets}:
        mount = mount_of(subject.host, path) if holds_data(path) else None
        if mount is not None:
            counts[mount.point, mount.fstype] = counts.get((mount.point, mount.fstype), 0) + 1
    return tuple(DataMount(neutral(point, 200), neutral(fstype, 40), files) for (point, fstype), files in sorted(counts.items()))

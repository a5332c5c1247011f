"""A program's memory, and on which NUMA nodes it is.

Reads   /proc/[pid]/{status,numa_maps}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process.parts import NodePages, ProgramMemory
from sysperf.collect.process.subject import Subject
from sysperf.model.text import neutral
from sysperf.procfs.numa_maps import NumaMaps

MAX_NUMA_RSS_BYTES = 4 << 30
"""The kernel walks all pages to answer numa_maps, while the process cannot map memory: larger ones only with `--deep`."""


def memory(subject: Subject) -> ProgramMemory:
    """Resident and swapped memory, and the NUMA nodes that hold it."""
    rss = subject.status.size_bytes("VmRSS")
    policy, pages = _numa_memory(subject, rss)
    return ProgramMemory(
        rss_bytes=rss,
        peak_bytes=subject.status.size_bytes("VmHWM"),
        anonymous_bytes=subject.status.size_bytes("RssAnon"),
        file_bytes=subject.status.size_bytes("RssFile"),
        swap_bytes=subject.status.size_bytes("VmSwap"),
        policy=policy,
        nodes=pages,
    )


def _numa_memory(subject: Subject, rss_bytes: int | None) -> tuple[str | None, tuple[NodePages, ...] | None]:
    host, path = subject.host, f"/proc/{subject.pid}/numa_maps"
    if not subject.machine.has_nodes:
        return None, None
    if not host.deep and (rss_bytes or 0) > MAX_NUMA_RSS_BYTES:
        host.refuse(path, f"only read with --deep: it would stop a process of {rss_bytes} bytes for a while")
        return None, None
    text = host.text(path, 16 << 20)
    return (None, None) if text is None else numa_pages(text)


def numa_pages(text: str) -> tuple[str, tuple[NodePages, ...]]:
    """(the policy of most of the memory, bytes by node) out of the text of numa_maps."""
    maps = NumaMaps(text)
    return neutral(maps.policy, 80), tuple(NodePages(node, maps.by_node[node]) for node in sorted(maps.by_node))

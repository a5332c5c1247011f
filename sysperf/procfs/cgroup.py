"""Control groups: /proc/PID/cgroup, and the control files of both versions.

Kernel  https://docs.kernel.org/admin-guide/cgroup-v2.html
        https://docs.kernel.org/admin-guide/cgroup-v1/index.html
"""

from __future__ import annotations

from sysperf.procfs.numbers import whole

V2 = ""
"""The controller under which `group_paths` gives the group of version 2."""
MAX_LINES = 64
NO_LIMIT = 1 << 60
"""v1 writes "no limit" as the largest number of whole pages; nothing this large is a limit."""
_DELETED = " (deleted)"


def group_paths(text: str) -> dict[str, str]:
    """Group by controller out of lines ``4:cpu,cpuacct:/group``; that of version 2 (``0::/group``) has the empty name."""
    paths: dict[str, str] = {}
    for line in text.splitlines()[:MAX_LINES]:
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if colon and path.startswith("/"):
            for name in names.split(","):
                paths.setdefault(name, path.removesuffix(_DELETED))
    return paths


def limit(text: str) -> int | None:
    """A limit: 0 is none (``max``, or v1's largest number), None is a text that is no limit."""
    if text == "max":
        return 0
    number = whole(text)
    return 0 if number is not None and number >= NO_LIMIT else number


def cpus_of_quota(quota_us: str, period_us: str) -> float | None:
    """CPUs' worth of time: ``150000`` of ``100000`` is 1.5; 0 is no quota (``max``, or v1's -1), None is no answer."""
    if quota_us in ("max", "-1"):
        return 0.0
    used, period = whole(quota_us), whole(period_us)
    return max(round(used / period, 4), 0.0001) if used and period else None


def stopped_us(cpu_stat: dict[str, str]) -> int | None:
    """Return how long a quota stopped the group's threads: cpu.stat says it in µs in version 2, in ns in version 1."""
    spent_us, spent_ns = whole(cpu_stat.get("throttled_usec")), whole(cpu_stat.get("throttled_time"))
    return spent_ns // 1000 if spent_us is None and spent_ns is not None else spent_us

"""/proc/PID/task/TID/children: the processes that a thread started, or adopted. Kernels without CONFIG_PROC_CHILDREN have no such file.

Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-task-tid-children-information-about-task-children
"""

from __future__ import annotations

from sysperf.procfs.numbers import whole


def parse(text: str | bytes | None) -> list[int]:
    """Their numbers, in the order in which they were started. A list that was cut may end in a number that is none of theirs."""
    return [pid for word in (text or "").split() if (pid := whole(word)) is not None]

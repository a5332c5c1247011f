"""CPU time of a job's processes since the beginning of a window, each clock tick counted once, whoever started and ended meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sysperf.procfs.stat import Stat


class JobTime:
    """The sum, brought up to date by readings of all processes that are there.

    The kernel adds all that a child spent to its parent's ended children when the parent has waited for it. What was counted while
    the child was there is taken off then; of a child whose parent did not wait for it, it stays. A parent is read before its children:
    of one that it waits for in between, it shows the time with the next reading.
    """

    def __init__(self) -> None:
        self.ticks = 0
        self._late: Counter[int] = Counter()
        """Ticks of children that ended, which their parents' last readings did not show yet."""
        self._counted: dict[int, tuple[int, int]] = {}
        """Of each process that was there: its own ticks, and those of its ended children."""

    def begin(self, stat: Stat, *, from_start: bool) -> None:
        """A process that is seen for the first time: one that was there before the window is counted from now."""
        self._counted[stat.pid] = (stat.cpu_ticks, stat.ended_children_ticks)
        if not from_start:
            self.ticks += stat.cpu_ticks + stat.ended_children_ticks

    def update(self, there: Mapping[int, Stat], parents: Mapping[int, int]) -> None:
        """Count what was spent since the last time. Processes that are not `there` have ended."""
        awaited, handed_over = self._late, Counter[int]()
        for pid in self._counted.keys() - there.keys():
            if (above := self._above(pid, there, parents)) is not None:
                handed_over[above] += sum(self._counted[pid]) + awaited[pid]
        self._late = Counter()
        for pid, stat in there.items():
            own, ended = self._counted.get(pid, (stat.cpu_ticks, stat.ended_children_ticks))
            unseen = stat.ended_children_ticks - ended - awaited[pid] - handed_over[pid]
            self.ticks += max(0, stat.cpu_ticks - own) + max(0, unseen)
            self._late[pid] = min(handed_over[pid], max(0, -unseen))
        self._counted = {pid: (stat.cpu_ticks, stat.ended_children_ticks) for pid, stat in there.items()}

    @staticmethod
    def _above(pid: int, there: Mapping[int, Stat], parents: Mapping[int, int]) -> int | None:
        """The nearest process above that is still there."""
        for _ in range(len(parents)):
            if pid not in parents:
                return None
            pid = parents[pid]
            if pid in there:
                return pid
        return None

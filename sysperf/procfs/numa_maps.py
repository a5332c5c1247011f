"""/proc/PID/numa_maps: where each region of a program's memory lies, and by which policy.

Kernel  https://man7.org/linux/man-pages/man7/numa.7.html
"""

from __future__ import annotations

from collections import Counter

from sysperf.startup import lazy

DEFAULT = "default"
_LINE = lazy(r"[^\n]+")
_PAGES = lazy(r"\bN([0-9]{1,4})=([0-9]{1,15})(?= |$)")
_PAGE_KB = lazy(r"\bkernelpagesize_kB=([0-9]{1,9})(?= |$)")
_FILE = lazy(r" file=/(?!dev/shm/|memfd:|SYSV|dev/zero)")
_PAGE_BYTES = 4096
_TWO_WORDS = ("prefer", "weighted")
"""``prefer (many):1`` and ``weighted interleave:0-1`` have a blank in them."""


class NumaMaps:
    """Memory in bytes, by node and by policy."""

    __slots__ = ("by_node", "by_policy", "own_by_node")

    def __init__(self, text: str) -> None:
        self.by_node: Counter[int] = Counter()
        self.own_by_node: Counter[int] = Counter()
        """Without files that it maps: those lie where whoever read them first had its memory."""
        self.by_policy: Counter[str] = Counter()
        for line in _LINE.finditer(text):  # one after the other: an agent keeps the memory that all of them took at once
            self._add(line[0])

    def _add(self, line: str) -> None:
        size = _PAGE_KB.search(line)
        page_bytes = int(size[1]) << 10 if size else _PAGE_BYTES
        own = not _FILE.search(line)
        for node, pages in _PAGES.findall(line):
            region_bytes = int(pages) * page_bytes
            self.by_node[int(node)] += region_bytes
            self.by_policy[_policy(line)] += region_bytes
            if own:
                self.own_by_node[int(node)] += region_bytes

    @property
    def policy(self) -> str:
        """The policy of most of the memory."""
        return max(self.by_policy, key=lambda name: self.by_policy[name], default=DEFAULT)


def _policy(line: str) -> str:
    words = line.split(" ", 3)
    return " ".join(words[1:3]) if words[1:2] and words[1] in _TWO_WORDS else "".join(words[1:2])

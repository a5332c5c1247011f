"""The files of a machine: this one, or a captured one that lies in a folder or an archive. All answer alike.

A capture is foreign input: its symbolic links are followed here, not by the kernel, and never lead out of it; sizes
and counts are bounded; and only plain files are opened.
"""

from __future__ import annotations

from typing import Protocol

MAX_PATH = 4_096
ESCAPES = "leads out of the captured root"
TOO_LARGE = "larger than sysperf reads of such a file"
NOT_PLAIN = "not a plain file"
KERNEL_FOLDERS = frozenset(("proc", "sys", "etc", "usr", "sysperf"))
"""What a root holds; a single folder of another name is taken for a wrapper around the root, as hwloc packs it."""
HINT = "a capture is a folder or a tar made by `sysperf capture OUT.tar.zst`"


class Tree(Protocol):
    """Read-only files under a root. Every method raises OSError when it cannot answer."""

    live: bool
    complete: bool
    """Whether a file that is not in the tree is not on the machine either."""

    def read(self, path: str, limit: int) -> bytes: ...

    def names(self, path: str, limit: int) -> list[str]: ...

    def link(self, path: str) -> str: ...

    def exists(self, path: str) -> bool: ...

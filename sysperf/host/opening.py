"""Which kind of tree lies at a path."""

from __future__ import annotations

import os
import stat

from sysperf.host.live import Live
from sysperf.host.tree import HINT, NOT_PLAIN, Tree
from sysperf.model.errors import CaptureError
from sysperf.model.path import StrPath


def open_tree(root: StrPath) -> Tree:
    """The tree at `root`: ``/``, a folder or an archive. Raises CaptureError when there is none."""
    if root == "/":
        return Live()
    try:
        mode = os.stat(root).st_mode
    except (OSError, ValueError) as error:
        raise CaptureError(f"{root}: no such capture ({getattr(error, 'strerror', error)})", HINT) from None
    if stat.S_ISDIR(mode):
        if os.path.samefile(root, "/"):
            return Live()
        from sysperf.host.folder import Folder  # noqa: PLC0415 - as below

        return Folder(root)
    if stat.S_ISREG(mode):
        from sysperf.host.archive import Archive  # noqa: PLC0415 - four decompressors, which live audits do not need

        return Archive(root)
    raise CaptureError(f"{root}: {NOT_PLAIN}", HINT)

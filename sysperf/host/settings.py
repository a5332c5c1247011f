"""Writing the settings of this machine: the files and GPU settings of the allow-list, and nothing else."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from sysperf.host.live import Live
from sysperf.host.tree import Tree
from sysperf.model.knob import is_writable

if TYPE_CHECKING:
    from sysperf.host.nvml import Nvml

CAPTURED = "a captured machine is never changed"


class Settings:
    """Changes what `sysperf.model.knob` lists, on the live machine only. Every method raises OSError when it cannot."""

    def __init__(self, tree: Tree, nvml_library: Callable[[], Nvml]) -> None:
        self._tree = tree
        self._nvml_library = nvml_library

    def write(self, path: str, value: str) -> None:
        """Write a setting of the allow-list ; only `sysperf.fix` does."""
        self._own(path).write(path, value.encode())

    def create(self, path: str, content: str) -> None:
        """Write a file that makes the system set it again at its next start; its name is ours."""
        self._own(path).create(path, content.encode())

    def remove(self, path: str) -> None:
        """Take such a file away."""
        self._own(path).remove(path)

    def hold(self, path: str, flags: int) -> int:
        """Open a file of the allow-list that means something while it is open."""
        return self._own(path).hold(path, flags)

    def refusal(self, path: str) -> str:
        """Why a file of the allow-list can not be written, as far as that shows without trying."""
        try:
            return self._own(path).refusal(path)
        except OSError as error:
            return error.strerror or str(error)

    def _own(self, path: str) -> Live:
        """The machine itself, where `path` may be changed."""
        if not is_writable(path):
            raise PermissionError(errno.EPERM, "not a setting that sysperf may change", path)
        if not isinstance(self._tree, Live):
            raise OSError(errno.EROFS, CAPTURED, path)
        return self._tree

    def nvml_set(self, name: str, *args: int | str) -> None:
        """Change a setting of a GPU."""
        if not self._tree.live:
            raise OSError(errno.EROFS, CAPTURED, name)
        self._nvml_library().set(name, args)

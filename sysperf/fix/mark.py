"""What a scheduler is told of a node, as one value: journalled before it is told, read back, and taken back like any other."""

from __future__ import annotations

import errno
from typing import cast

from sysperf import plugin
from sysperf.fix.target import Target
from sysperf.model.errors import SysperfError
from sysperf.model.knob import Knob
from sysperf.model.mark import How


class Mark(Target):
    """The comment of a node, or the reason for which it is drained; empty: there is none."""

    def __init__(self, knob: Knob, node: str) -> None:
        how, _, self._marker = knob.name.partition(".")
        self._how, self._node = cast("How", how), node
        self.path = knob.path.replace("{item}", node)

    def read(self) -> str:
        """The words that are there, whoever set them."""
        try:
            found = plugin.marker(self._marker).states([self._node]).get(self._node)
        except SysperfError as error:
            raise OSError(errno.EIO, str(error)) from None
        if found is None:
            raise OSError(errno.ENODEV, "the scheduler does not have this node")
        return found.text(self._how)

    def write(self, value: str) -> None:
        """Tell the scheduler."""
        try:
            plugin.marker(self._marker).write(self._node, self._how, value)
        except SysperfError as error:
            raise OSError(errno.EIO, str(error)) from None

"""What does not work in the agent: each part with its problem, for the status and the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

MAX_SHOWN = 300


class Problems(dict[str, str]):
    """Problems by the part that has them."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    @contextlib.contextmanager
    def reported(self, part: str) -> Iterator[None]:
        """A part that breaks is a problem to report, not the end of the agent."""
        try:
            yield
            self.pop(part, None)
        except Exception as error:  # noqa: BLE001 - the agent outlives a bug in one of its parts
            self[part] = f"{type(error).__name__}: {error}"[:MAX_SHOWN]
            self._log.error("%s failed: %s: %s", part, type(error).__name__, error)

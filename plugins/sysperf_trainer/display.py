"""What a run shows: a line every ten steps, a bar on a terminal, event files for TensorBoard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from sysperf_trainer.errors import TrainerError
from sysperf_trainer.options import Options

LINE_EVERY = 10
BAR_WIDTH = 30


class Display:
    """Shows losses as soon as they are read from the device."""

    def __init__(self, options: Options, first_step: int) -> None:
        self.first_step = self.shown = first_step
        self.last_step = options.max_steps
        self.has_lines = options.lines
        self.has_bar = options.progress and sys.stderr.isatty()
        self.events = event_files(options.tensorboard)

    def update(self, step: int, losses: Sequence[float], step_s: float) -> None:
        """Show that so many steps are made, and the losses that are known now."""
        self.show(losses, step_s)
        if self.has_bar:
            done = BAR_WIDTH * step // self.last_step
            left_s = (self.last_step - step) * step_s
            sys.stderr.write(f"\r[{'#' * done}{'.' * (BAR_WIDTH - done)}] {step}/{self.last_step}, about {left_s:.0f} s left\x1b[K")
            sys.stderr.flush()

    def show(self, losses: Sequence[float], step_s: float) -> None:
        """Print each tenth of the losses that are new, and write all of these to the event files."""
        for step in range(self.shown + 1, self.first_step + len(losses) + 1):
            loss = losses[step - self.first_step - 1]
            if self.has_lines and step % LINE_EVERY == 0:
                sys.stdout.write(f"{self._clear()}step {step}: loss {loss:.4f}, {1000 * step_s:.1f} ms\n")
                sys.stdout.flush()
            if self.events is not None:
                self.events.add_scalar("loss", loss, step)
            self.shown = step

    def end(self, losses: Sequence[float], step_s: float) -> None:
        """Show what is left to show, leave the bar's line, and close the event files."""
        self.show(losses, step_s)
        if self.has_bar:
            sys.stderr.write("\n")
        if self.events is not None:
            self.events.close()

    def _clear(self) -> str:
        """What takes the bar away before a line, where both are on one terminal."""
        return "\r\x1b[K" if self.has_bar and sys.stdout.isatty() else ""


def event_files(folder: str) -> Any:  # noqa: ANN401 - a writer of tensorboard's, or None
    """Return TensorBoard's own writer; None where nobody asked. Raises TrainerError where it is not installed."""
    if not folder:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise TrainerError(f"event files need TensorBoard: {sys.executable} -m pip install tensorboard") from None
    try:
        return SummaryWriter(folder)
    except OSError as error:
        raise TrainerError(f"{folder}: {error.strerror}") from None

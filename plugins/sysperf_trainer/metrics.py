"""What is known of the steps while they are made: losses, times, and how many units a second."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from sysperf_trainer.chosen import Chosen

READ_EVERY = 50
WARM_UP_STEPS, MIN_STEPS = 3, 3


class Losses:
    """The loss of each step: read at once, for which the program waits until the device is done, or later, many together."""

    def __init__(self, chosen: Chosen) -> None:
        self.read_every = READ_EVERY if "deferred-metrics" in chosen else 1
        self.values: list[float] = []
        self.on_device: list[Tensor] = []

    def add(self, loss: Tensor) -> None:
        """Take the loss of a step."""
        self.on_device.append(loss)
        if len(self.on_device) >= self.read_every:
            self.read()

    def read(self) -> None:
        """Fetch the values that are still on the device."""
        if self.on_device:
            self.values += torch.stack(self.on_device).tolist()
            self.on_device = []


class Clock:
    """The ends of steps, and how fast they were once they were steady."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.start = time.monotonic()
        self.ends_s: list[float] = []
        self.steady_from_s: float | None = None
        self.steps_per_s: float | None = None
        """After the warm-up; None where too few steps were made."""

    def add(self) -> None:
        """Note that a step has ended. After the warm-up the device is waited for, once."""
        if len(self.ends_s) + 1 == WARM_UP_STEPS:
            self.steady_from_s = self.wait()
        self.ends_s.append(time.monotonic() - self.start)

    def wait(self) -> float:
        """Wait for the device, and return the seconds since the start."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.monotonic() - self.start

    def last_step_s(self) -> float:
        """Return how long the last step took on the host; 0 where none was made."""
        return self.ends_s[-1] - (self.ends_s[-2] if len(self.ends_s) > 1 else 0.0) if self.ends_s else 0.0

    def stop(self) -> None:
        """Note that the last step was made."""
        steps = len(self.ends_s) - WARM_UP_STEPS
        if self.steady_from_s is not None and steps >= MIN_STEPS:
            self.steps_per_s = steps / (self.wait() - self.steady_from_s)

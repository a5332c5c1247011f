"""The way from the loader to the device: one batch after the other, or the next one while this one is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.errors import TrainerError
from sysperf_trainer.workload import Batch

Copy = Callable[[Batch], Batch]


def feed(batches: Iterator[Batch], device: torch.device, finish: Copy, chosen: Chosen) -> Iterator[Batch]:
    """Yield batches on the device, as the model takes them."""
    non_blocking = "non-blocking" in chosen

    def copy(batch: Batch) -> Batch:
        inputs, targets = batch
        moved = inputs.to(device, non_blocking=non_blocking), targets.to(device, non_blocking=non_blocking)
        return finish(moved) if inputs.dtype == torch.uint8 else moved  # bytes: the loader left them to the device

    if "prefetch-stream" in chosen:
        return one_ahead(batches, copy)
    return map(copy, batches)


def one_ahead(batches: Iterator[Batch], copy: Copy) -> Iterator[Batch]:
    """Yield each batch while the next one is copied on a stream of its own."""
    copying = torch.cuda.Stream()

    def start() -> Batch:
        batch = next(batches)
        with torch.cuda.stream(copying):
            return copy(batch)

    following = start()
    while True:
        computing = torch.cuda.current_stream()
        computing.wait_stream(copying)
        for tensor in following:
            tensor.record_stream(computing)  # the allocator must not give its memory away before the step has used it
        batch, following = following, start()
        yield batch


class Damaged:
    """How many samples could not be read: their target is negative, and the loss leaves them out."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches as they come from the loader. Raises TrainerError where nothing of one could be read."""
        for inputs, targets in batches:
            damaged = int((targets < 0).sum())
            if damaged == targets.numel():
                raise TrainerError("none of the samples of a batch could be read: --cache FOLDER makes them anew elsewhere")
            self.count += damaged
            yield inputs, targets


def repeated(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the first batch again and again: how fast training is when data costs nothing."""
    first = next(batches)
    while True:
        yield first

"""One optimizer step: forward, backward, update."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, distributed
from torch.optim import Optimizer

from sysperf_trainer import optimizer as updates
from sysperf_trainer.chosen import Chosen
from sysperf_trainer.errors import TrainerError
from sysperf_trainer.model import Model
from sysperf_trainer.precision import autocast
from sysperf_trainer.ranges import Ranges
from sysperf_trainer.workload import Batch

OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
ACCUMULATED = 4


class Step:
    """Makes steps with one model and one optimizer."""

    def __init__(self, model: Model, optimizer: Optimizer, chosen: Chosen, ranges: Ranges, device: torch.device) -> None:
        self.model, self.optimizer, self.chosen, self.ranges, self.device = model, optimizer, chosen, ranges, device
        self.parts = ACCUMULATED if "accumulation" in chosen else 1
        """In how many parts a batch passes through the model."""

    def __call__(self, batch: Batch) -> Tensor:
        """Make a step and return the loss, still on the device. Raises TrainerError."""
        loss = self.gradients(batch)
        with self.ranges("optimizer"):
            self.optimizer.step()
            updates.clear_gradients(self.optimizer, self.chosen)
        if "empty-cache" in self.chosen:
            torch.cuda.empty_cache()
        return loss

    def gradients(self, batch: Batch) -> Tensor:
        """Add up the gradients of a batch's parts. Where memory does not suffice, twice as many parts are tried, with the same result."""
        while True:
            try:
                return self.accumulate(batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).splitlines()[0]
            self.optimizer.zero_grad(set_to_none=True)
            self.pass_in_more_parts(len(batch[0]), reason)

    def accumulate(self, batch: Batch) -> Tensor:
        """Run forward and backward passes, and return the mean loss."""
        total = torch.zeros((), device=self.device)
        for inputs, targets, exchange in self.split(batch):
            with exchange:
                with self.ranges("forward"), autocast(self.chosen, self.device):
                    loss = self.model.step(inputs, targets) * (len(inputs) / len(batch[0]))
                with self.ranges("backward"):
                    loss.backward()
            total += loss.detach()
        return total

    def split(self, batch: Batch) -> Iterator[tuple[Tensor, Tensor, contextlib.AbstractContextManager[None]]]:
        """Yield the parts of a batch, each with the context in which ranks exchange gradients, or do not."""
        pieces = list(zip(*(tensor.tensor_split(min(self.parts, len(tensor))) for tensor in batch), strict=True))
        for inputs, targets in pieces[:-1]:
            yield inputs, targets, self.model.step.no_sync() if "no-sync" in self.chosen else contextlib.nullcontext()
        yield *pieces[-1], contextlib.nullcontext()

    def pass_in_more_parts(self, samples: int, reason: str) -> None:
        """Pass batches in twice as many parts from now on. Raises TrainerError where that is impossible."""
        if distributed.is_initialized():
            raise TrainerError(f"out of memory ({reason}): other ranks cannot be told in the middle of a step; give a smaller --batch")
        if self.parts >= samples:
            raise TrainerError(f"one sample alone does not fit into memory ({reason}); try --size small")
        self.parts = min(2 * self.parts, samples)
        sys.stderr.write(f"out of memory: each batch now passes in {self.parts} parts, more slowly\n")
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was short, on a device or on the host."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)

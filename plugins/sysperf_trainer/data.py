"""Batches out of samples: their order, and the loader that makes them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.ranks import Ranks
from sysperf_trainer.workload import Batch, Workload

MAX_WORKERS = 8


class Order(Sampler):
    """The numbers of a rank's samples, shuffled anew in each epoch. They follow from seed and epoch, so a run can go on in the middle."""

    def __init__(self, length: int, seed: int, ranks: Ranks) -> None:
        self.length, self.seed, self.ranks = length, seed, ranks
        self.epoch = self.done = 0

    def begin(self, epoch: int, done: int = 0) -> None:
        """Set the epoch, and how many of this rank's samples in it have been used."""
        self.epoch, self.done = epoch, done

    def __len__(self) -> int:
        return self.length // self.ranks.size - self.done

    def __iter__(self) -> Iterator[int]:
        shuffled = torch.randperm(self.length, generator=torch.Generator().manual_seed(self.seed + self.epoch))
        mine = shuffled[: self.length // self.ranks.size * self.ranks.size][self.ranks.rank :: self.ranks.size]
        return iter((mine[self.done :] + self.epoch * self.length).tolist())


def batches(dataset: Dataset, workload: Workload, chosen: Chosen, ranks: Ranks, seed: int, first_step: int) -> Iterator[Batch]:
    """Yield a rank's batches without end, epoch after epoch, from a step on."""
    order = Order(len(dataset), seed, ranks)
    steps = len(order) // workload.batch
    epoch, done = divmod(first_step, steps)
    batch_loader = loader(dataset, order, workload, chosen, ranks)
    while True:
        order.begin(epoch, done * workload.batch)
        yield from batch_loader
        epoch, done = epoch + 1, 0


def loader(dataset: Dataset, order: Order, workload: Workload, chosen: Chosen, ranks: Ranks) -> DataLoader:
    """Return the loader. Without any rung it makes each batch when the loop asks for it, in the loop's own process."""
    more: dict[str, Any] = {}  # any: arguments of torch have types of their own
    if "persistent-workers" in chosen:
        more["persistent_workers"] = True
    if "prefetch-depth" in chosen:
        more["prefetch_factor"] = 4
    if "prefetch-factor-2" in chosen:
        more["prefetch_factor"] = 2
    if "pinned-memory" in chosen:
        more["pin_memory"] = True
    collate = Collate(_as_it_is if "normalise-on-device" in chosen else workload.finish)
    more |= {"num_workers": workers(chosen, ranks), "worker_init_fn": leave_signals_to_the_program}
    return DataLoader(dataset, workload.batch, sampler=order, drop_last=True, collate_fn=collate, **more)


class Collate:
    """Joins samples to a batch, and finishes it. A class, because workers that are spawned receive it pickled."""

    def __init__(self, finish: Callable[[Batch], Batch]) -> None:
        self.finish = finish

    def __call__(self, samples: list[object]) -> Batch:
        inputs, targets = default_collate(samples)
        return self.finish((inputs, targets))


def workers(chosen: Chosen, ranks: Ranks) -> int:
    """Return how many workers a rank has: a CPU each of those that it may use, without the one of its main thread."""
    if "loader-workers" not in chosen:
        return 0
    return max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0)) // ranks.on_this_machine - 1))


def leave_signals_to_the_program(_worker: int) -> None:
    """Let Ctrl-C reach the main process alone, which ends its workers; SIGTERM ends them as if the program had no handler."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _as_it_is(batch: Batch) -> Batch:
    return batch

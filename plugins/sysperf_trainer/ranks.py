"""The processes of one job: which one this is, and DistributedDataParallel around the model."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from sysperf_trainer.chosen import Chosen


class Ranks(NamedTuple):
    """The place of this process among those of its job, as torchrun's variables say."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    on_this_machine: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one speaks for all."""
        return self.rank == 0


def join(device: torch.device) -> Ranks:
    """Meet the other ranks, over NCCL on GPUs and gloo on CPUs. Alone, do nothing."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    ranks = Ranks(*(int(os.environ.get(name, default)) for name, default in zip(names, Ranks(), strict=True)))
    if ranks.size > 1:
        distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return ranks


def wrap(model: nn.Module, device: torch.device, chosen: Chosen, ranks: Ranks) -> nn.Module:
    """Return the model whose gradients are the mean of all ranks'."""
    if ranks.size == 1:
        return model
    more: dict[str, Any] = {}  # any: arguments of torch have types of their own
    if "large-buckets" in chosen:
        more["bucket_cap_mb"] = 100
    if "static-graph" in chosen:
        more["static_graph"] = True
    if "bucket-views" in chosen:
        more["gradient_as_bucket_view"] = True
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None, **more)


def wait_for_all(ranks: Ranks) -> None:
    """Return when every rank is here."""
    if ranks.size > 1:
        distributed.barrier()


def leave(ranks: Ranks) -> None:
    """Part from the other ranks."""
    if ranks.size > 1 and distributed.is_initialized():
        distributed.destroy_process_group()

"""The workload's model as this run computes it: where it lies, how it is laid out, and who compiles it."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.precision import autocast
from sysperf_trainer.ranks import Ranks, wrap
from sysperf_trainer.workload import Batch, Workload


class Model(NamedTuple):
    """One set of weights, twice."""

    plain: nn.Module
    """What the workload made: its state is the same whichever rungs are on."""
    step: nn.Module
    """What the step calls."""


def build(workload: Workload, device: torch.device, chosen: Chosen, ranks: Ranks) -> Model:
    """Return the model on its device."""
    plain = workload.model().to(device)
    if "channels-last" in chosen:
        plain = plain.to(memory_format=torch.channels_last)
    if "fp8" in chosen:
        from sysperf_trainer.fp8 import convert_linear_layers  # noqa: PLC0415 - for this rung only

        for block in workload.blocks(plain):
            convert_linear_layers(block)
    if "activation-checkpointing" in chosen:
        for block in workload.blocks(plain):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    if "cudnn-benchmark" in chosen:
        torch.backends.cudnn.benchmark = True
    return Model(plain, compiled(wrap(launched(plain, workload, device, chosen), device, chosen, ranks), chosen))


def launched(model: nn.Module, workload: Workload, device: torch.device, chosen: Chosen) -> nn.Module:
    """Return the model whose passes are recorded once for batches of one shape, where that was chosen."""
    if "cuda-graphs" in chosen:
        with autocast(chosen, device):
            torch.set_autocast_cache_enabled(False)  # a cast that was cached outside would not be in the graph
            return torch.cuda.make_graphed_callables(model, example(workload, device))
    if "torchscript" in chosen:
        with autocast(chosen, device):
            torch.set_autocast_cache_enabled(False)
            return torch.jit.trace(model, example(workload, device), check_trace=False)
    return model


def compiled(model: nn.Module, chosen: Chosen) -> nn.Module:
    """Return the model that torch.compile makes of it, where that was chosen. All batches have one shape, so it is compiled once."""
    if "compile" in chosen:
        return torch.compile(model, dynamic=False)
    if "compile-reduce-overhead" in chosen:
        return torch.compile(model, dynamic=False, mode="reduce-overhead")
    if "compile-max-autotune" in chosen:
        return torch.compile(model, dynamic=False, mode="max-autotune-no-cudagraphs")
    return model


def example(workload: Workload, device: torch.device) -> Batch:
    """Return a batch without content, of the size of all others."""
    inputs, targets = workload.sample()
    return inputs.to(device).repeat(workload.batch, *[1] * (inputs.dim() - 1)), targets.to(device).repeat(
        workload.batch, *[1] * (targets.dim() - 1)
    )

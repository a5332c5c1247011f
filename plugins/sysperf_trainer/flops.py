"""How many floating-point operations a sample costs, counted by torch on a model without memory."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.options import Options
from sysperf_trainer.workload import workload


def per_sample(options: Options) -> int:
    """Return the operations of forward and backward pass of the naive model: what rungs save or add does not count.

    For GPT-2 that is 6 for each weight and token, and for attention 12 times layers, width and tokens.
    """
    naive = workload(options._replace(rungs=Chosen()))
    with torch.device("meta"):
        model = naive.model()
        inputs, targets = (
            torch.cat([tensor, tensor]).to("meta") for tensor in naive.sample()
        )  # one alone has no deviation to normalise by
    with FlopCounterMode(display=False) as counter:
        model(inputs, targets).backward()
    return counter.get_total_flops() // 2

"""The number formats in which the model computes."""

from __future__ import annotations

import torch

from sysperf_trainer.chosen import Chosen


def set_matmul_precision(chosen: Chosen) -> None:
    """Let matrix products of 32-bit numbers run on tensor cores.

    https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """
    if "tf32" in chosen:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    else:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False  # torch's default is True: the naive loop computes in 32 bits everywhere


def autocast(chosen: Chosen, device: torch.device) -> torch.autocast:
    """Return the context of a forward pass. bfloat16 has the range of 32-bit numbers, so no gradient scaler is needed."""
    return torch.autocast(device.type, torch.bfloat16, enabled="bf16" in chosen)

"""Cross-entropy over the vocabulary: logits at once, or in pieces that never lie in memory together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sysperf_trainer.chosen import Chosen

CHUNK_LOGITS = 1 << 24
"""So many logits are made at once."""


def cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, chosen: Chosen) -> Tensor:
    """Return the mean loss of hidden states (rows, width), a head's weight (vocabulary, width) and targets (rows)."""
    if "chunked-loss" in chosen:
        return ChunkedCrossEntropy.apply(hidden, weight.to(hidden.dtype), targets)
    return functional.cross_entropy(functional.linear(hidden, weight), targets)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Makes the gradients in the forward pass, piece by piece, so that nothing is computed twice and no piece is kept.

    Liger has it for GPUs in Triton; torch 2.13 has `linear_cross_entropy`. This one runs everywhere.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:  # noqa: ANN401 - torch's context has no type
        rows = max(1, CHUNK_LOGITS // weight.shape[0])
        of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for some, its_targets, gradient in zip(hidden.split(rows), targets.split(rows), of_hidden.split(rows), strict=True):
            logits = (some @ weight.t()).float()
            of_logits = torch.log_softmax(logits, dim=-1)
            picked = its_targets[:, None]
            loss -= of_logits.gather(1, picked).sum()
            of_logits = of_logits.exp_().scatter_add_(1, picked, -torch.ones_like(picked, dtype=of_logits.dtype))
            of_logits = (of_logits / len(targets)).to(weight.dtype)
            gradient.copy_(of_logits @ weight)
            of_weight.addmm_(of_logits.t(), some)
        ctx.save_for_backward(of_hidden, of_weight)
        return loss / len(targets)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401 - torch's context has no type of its own
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * gradient, of_weight * gradient, None

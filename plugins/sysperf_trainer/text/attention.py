"""Causal attention, by hand and by torch's operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from sysperf_trainer.chosen import Chosen

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From queries, keys and values of the shape (batch, heads, tokens, size of a head) to a tensor of the same shape."""


def attention(chosen: Chosen) -> Attention:
    """Return the form of attention that was chosen."""
    if "sdpa" in chosen:
        return fused
    if "sdpa-flash" in chosen:
        return by_backend("FLASH_ATTENTION")
    if "sdpa-cudnn" in chosen:
        return by_backend("CUDNN_ATTENTION")
    if "flex-attention" in chosen:
        return flexible()
    return by_hand


def by_hand(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend with a matrix of all pairs of tokens in memory, as textbooks write it."""
    tokens = queries.shape[-2]
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=queries.device).triu(1)
    weights = functional.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
    return weights.to(values.dtype) @ values


def fused(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend by the operator that chooses the best implementation itself."""
    return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def by_backend(name: str) -> Attention:
    """Attend by one implementation; a size that it cannot do is an error."""
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415 - for these rungs only

    backend = getattr(SDPBackend, name)

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return fused(queries, keys, values)

    return attend


def flexible() -> Attention:
    """Attend by kernels that are compiled for a causal mask; blocks of the mask that are empty are not computed."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415 - since torch 2.5

    compiled = torch.compile(flex_attention, dynamic=False)
    masks: dict[tuple[int, torch.device], object] = {}

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        key = (queries.shape[-2], queries.device)
        if key not in masks:
            masks[key] = create_block_mask(_is_earlier, None, None, key[0], key[0], device=key[1])
        return compiled(queries, keys, values, block_mask=masks[key])

    return attend


def _is_earlier(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key

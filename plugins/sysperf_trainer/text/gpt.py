"""GPT-2 as its paper has it: learned positions, LayerNorm before each part, GELU, and a head that shares the embedding's weight."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.text.attention import Attention, attention
from sysperf_trainer.text.loss import cross_entropy

PADDING = 128


class Shape(NamedTuple):
    """The size of a model and of its batches."""

    layers: int
    heads: int
    width: int
    vocabulary: int
    tokens: int
    """Of a sequence."""
    batch: int


SHAPES = {
    "tiny": Shape(layers=2, heads=2, width=64, vocabulary=509, tokens=32, batch=4),  # for tests
    "small": Shape(layers=6, heads=5, width=320, vocabulary=8_181, tokens=128, batch=2),  # 10 million weights
    "full": Shape(layers=12, heads=12, width=768, vocabulary=50_257, tokens=1_024, batch=64),  # 124 million: GPT-2
    "large": Shape(layers=24, heads=12, width=1_536, vocabulary=50_257, tokens=2_048, batch=16),  # 760 million
}


class Gpt(nn.Module):
    """Tokens and targets of the shape (batch, tokens) to the mean loss."""

    def __init__(self, shape: Shape, chosen: Chosen) -> None:
        super().__init__()
        self.chosen = chosen
        attend = attention(chosen)
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.ModuleList(Block(shape, attend) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.apply(lambda module: _initialise(module, shape.layers))
        if "padded-vocabulary" in chosen:
            self.embedding.weight = nn.Parameter(padded(self.embedding.weight.detach()))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.embedding(tokens) + self.positions(places)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        return cross_entropy(hidden.flatten(0, 1), self.embedding.weight, targets.flatten(), self.chosen)


class Block(nn.Module):
    """Attention between tokens, then a layer of its own for each token."""

    def __init__(self, shape: Shape, attend: Attention) -> None:
        super().__init__()
        self.heads, self.attend = shape.heads, attend
        self.norm_1, self.norm_2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.mix = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.out(self._attended(self.mix(self.norm_1(hidden))))
        return hidden + self.down(functional.gelu(self.up(self.norm_2(hidden)), approximate="tanh"))

    def _attended(self, mixed: Tensor) -> Tensor:
        batch, tokens, _ = mixed.shape
        queries, keys, values = mixed.view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.attend(queries, keys, values).transpose(1, 2).reshape(batch, tokens, -1)


def padded(weight: Tensor) -> Tensor:
    """Return a weight with rows up to the next multiple of 128.

    They are zero, so that the real rows start as without them; no target names them, and training pushes their share down.
    """
    return functional.pad(weight, (0, 0, 0, -weight.shape[0] % PADDING))


def _initialise(module: nn.Module, layers: int) -> None:
    """Initialise as GPT-2 does: weights of deviation 0.02, smaller where a block adds to what passes by."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, Block):
        for layer in (module.out, module.down):
            nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * layers))

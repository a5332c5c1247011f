"""GPT-2 on the sources of Python: 124 million weights on a GPU, 10 million on a CPU."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import Dataset

from sysperf_trainer import cache
from sysperf_trainer.options import Options
from sysperf_trainer.text import corpus
from sysperf_trainer.text.gpt import SHAPES, Gpt
from sysperf_trainer.workload import Batch

CORPUS_BYTES = {"tiny": 1 << 18, "small": 4 << 20, "full": 64 << 20, "large": 64 << 20}
LEARNING_RATE = 3e-4


class Text:
    """Predict the next token."""

    unit = "tokens"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.shape = SHAPES[options.size]
        self.batch = options.batch or self.shape.batch
        self.units_per_sample = self.shape.tokens

    def dataset(self) -> Dataset:
        folder = cache.root(self.options.cache)
        return corpus.Sequences(corpus.made(folder, self.shape.vocabulary, CORPUS_BYTES[self.options.size]), self.shape.tokens)

    def model(self) -> Gpt:
        return Gpt(self.shape, self.options.rungs)

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        return list(model.get_submodule("blocks").children())

    def optimizer(self, model: nn.Module, **more: object) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1, **more)

    def finish(self, batch: Batch) -> Batch:
        return batch

    def sample(self) -> Batch:
        """Return one sample without content."""
        tokens = torch.zeros(1, self.shape.tokens, dtype=torch.int64)
        return tokens, tokens

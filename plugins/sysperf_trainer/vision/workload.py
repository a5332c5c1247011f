"""ResNet on JPEG files: 50 layers at 224 pixels on a GPU, 18 at 64 on a CPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import Dataset

from sysperf_trainer import cache
from sysperf_trainer.options import Options
from sysperf_trainer.vision import images
from sysperf_trainer.vision.resnet import ResNet
from sysperf_trainer.workload import Batch

RATE_PER_SAMPLE = 0.1 / 256
"""The learning rate grows with the batch."""


class Shape(NamedTuple):
    """The size of a model, its images and its batches."""

    layers: int
    classes: int
    pixels: int
    images: int
    batch: int


SHAPES = {
    "tiny": Shape(layers=18, classes=10, pixels=64, images=24, batch=4),  # for tests
    "small": Shape(layers=18, classes=10, pixels=64, images=256, batch=16),
    "full": Shape(layers=50, classes=1000, pixels=224, images=8_192, batch=256),
}
SHAPES["large"] = SHAPES["full"]


class Vision:
    """Tell the class of an image."""

    unit = "images"
    units_per_sample = 1

    def __init__(self, options: Options) -> None:
        self.options = options
        self.shape = SHAPES[options.size]
        self.batch = options.batch or self.shape.batch

    def dataset(self) -> Dataset:
        folder = images.made(cache.root(self.options.cache), self.shape.images, self.shape.classes)
        return images.Images(folder, self.shape.pixels, self.options.seed, reduced="reduced-decoding" in self.options.rungs)

    def model(self) -> nn.Module:
        return ResNet(self.shape.layers, self.shape.classes)

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        return list(model.get_submodule("blocks").children())

    def optimizer(self, model: nn.Module, **more: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), RATE_PER_SAMPLE * self.batch, momentum=0.9, weight_decay=5e-5, **more)

    def finish(self, batch: Batch) -> Batch:
        pixels, labels = batch
        return images.normalised(pixels), labels

    def sample(self) -> Batch:
        """Return one sample without content."""
        return torch.zeros(1, 3, self.shape.pixels, self.shape.pixels), torch.zeros(1, dtype=torch.int64)

"""ResNet as its paper has it, with the stride in the 3x3 convolution (v1.5): 18 layers of basic blocks, or 50 of bottlenecks."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

STEM_CHANNELS = 64


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution and its normalisation, which makes a bias needless."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """What a block adds to its input, and the input itself, brought to the same shape."""

    def __init__(self, path: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = path
        self.passed = nn.Identity() if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride)

    def forward(self, values: Tensor) -> Tensor:
        return functional.relu(self.path(values) + self.passed(values))


def basic(inputs: int, width: int, stride: int) -> Residual:
    """Return a block of ResNet-18."""
    path = nn.Sequential(convolution(inputs, width, 3, stride), nn.ReLU(), convolution(width, width, 3))
    return Residual(path, inputs, width, stride)


def bottleneck(inputs: int, width: int, stride: int) -> Residual:
    """Return a block of ResNet-50."""
    outer = 4 * width
    path = nn.Sequential(
        convolution(inputs, width, 1), nn.ReLU(), convolution(width, width, 3, stride), nn.ReLU(), convolution(width, outer, 1)
    )
    return Residual(path, inputs, outer, stride)


BLOCKS = {18: (basic, (2, 2, 2, 2), 1), 50: (bottleneck, (3, 4, 6, 3), 4)}


class ResNet(nn.Module):
    """Images (batch, 3, height, width) and labels to the mean loss."""

    def __init__(self, layers: int, classes: int) -> None:
        super().__init__()
        block, repeats, growth = BLOCKS[layers]
        blocks, channels = [], STEM_CHANNELS
        for stage, repeat in enumerate(repeats):
            width = STEM_CHANNELS << stage
            for index in range(repeat):
                blocks.append(block(channels, width, 2 if stage and not index else 1))
                channels = growth * width
        self.stem = nn.Sequential(convolution(3, STEM_CHANNELS, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)
        self.apply(_initialise)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self.blocks(self.stem(images)).mean((2, 3))
        return functional.cross_entropy(self.head(features), labels)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

"""Five small programs that PyTorch users know, each printing the seconds that one step takes: ``python workloads.py NAME [SECONDS]``.

Each runs for about the given time after a warm-up and prints the median of its steps, so that a disturbance is not the result.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], object]


def small_mlp() -> Step:
    """Training a small multilayer perceptron: many small operations."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, labels = torch.randn(128, 256), torch.randint(0, 10, (128,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()

    return step


def transformer_inference() -> Step:
    """A transformer encoder, forward only."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    tokens = torch.randn(8, 128, 256)

    def step() -> None:
        with torch.inference_mode():
            model(tokens)

    return step


def convolution_training() -> Step:
    """Training a small convolutional network."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that cost CPU time in Python, as decoding and augmenting do."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        total = 0
        for number in range(6_000):
            total = (total * 31 + number + index) % 65_521
        return torch.full((64,), float(total))


def loader_bound() -> Step:
    """One pass over data that two workers prepare."""
    loader = torch.utils.data.DataLoader(Slow(), batch_size=16, num_workers=2, persistent_workers=True)

    def step() -> None:
        for batch in loader:
            batch.sum()

    return step


def allocation_heavy() -> Step:
    """Elementwise work on tensors of 16 MiB that are made and dropped in every step."""
    data = torch.randn(4 << 20)

    def step() -> None:
        for _ in range(4):
            (data * 2 + 1).relu()

    return step


WORKLOADS = {made.__name__: made for made in (small_mlp, transformer_inference, convolution_training, loader_bound, allocation_heavy)}


def main() -> None:
    """Warm up, run, print the median seconds of a step."""
    torch.manual_seed(0)
    step = WORKLOADS[sys.argv[1]]()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    for _ in range(3):
        step()
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < 5:
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    sys.stdout.write(f"{statistics.median(took):.6f}\n")


if __name__ == "__main__":
    main()

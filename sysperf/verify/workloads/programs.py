"""Small PyTorch programs, each printing the seconds that one step takes: ``python programs.py NAME [SECONDS]``.

The user's interpreter runs this file, where `sysperf verify` is given no command. Each program runs for about the given time after
a warm-up and prints the median of its steps, so that a disturbance is not the result.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
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


def memory_bandwidth() -> Step:
    """Copying 256 MiB, which no cache holds."""
    source, target = torch.randn(64 << 20), torch.empty(64 << 20)
    return lambda: target.copy_(source)


def file_reading() -> Step:
    """Reading a file of 64 MiB in pieces of 128 KiB from the disk of the working folder: its pages are dropped before each pass."""
    file = tempfile.NamedTemporaryFile(dir=".", prefix=".sysperf-read-")  # noqa: SIM115 - open as long as the program
    file.write(os.urandom(64 << 20))
    file.flush()
    os.fsync(file.fileno())

    def step() -> None:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        while os.read(file.fileno(), 128 << 10):
            pass

    return step


def host_to_device() -> Step:
    """Copying 64 MiB of pinned memory to the GPU, and waiting for it."""
    source = torch.empty(16 << 20).pin_memory()
    target = torch.empty(16 << 20, device="cuda")

    def step() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    return step


WORKLOADS: dict[str, Callable[[], Step]] = {
    made.__name__: made
    for made in (
        small_mlp, transformer_inference, convolution_training, loader_bound, allocation_heavy,
        memory_bandwidth, file_reading, host_to_device,
    )
}  # fmt: skip


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

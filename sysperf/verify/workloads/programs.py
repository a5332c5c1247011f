"""Small PyTorch programs, each printing the seconds that one step takes: ``python programs.py NAME [SECONDS]``.

The user's interpreter runs this file, where `sysperf verify` is given no command. Each program runs for about the given time after
a warm-up and prints the median of its steps, so that a disturbance is not the result.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[], object]


RATE = 0.01


def training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """A step of stochastic gradient descent.

    Where nobody counts steps it is done by hand: torch.optim imports torch's compiler at its first step, which takes as long again as
    importing torch, and more than the steps of a short run.
    """
    if os.environ.get("SYSPERF_PROBE_COUNTS") == "optimizer":
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

        def counted() -> None:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

        return counted

    def step() -> None:
        loss().backward()
        with torch.no_grad():
            for weights in model.parameters():
                weights.sub_(weights.grad, alpha=RATE)
                weights.grad = None

    return step


def small_mlp() -> Step:
    """Training a small multilayer perceptron: many small operations."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    data, labels = torch.randn(128, 256), torch.randint(0, 10, (128,))
    return training(model, lambda: nn.functional.cross_entropy(model(data), labels))


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
    images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
    return training(model, lambda: nn.functional.cross_entropy(model(images), labels))


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
    source, target = torch.empty(64 << 20).fill_(1.0), torch.empty(64 << 20).fill_(0.0)  # touched, so that their pages are there
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


COPIES = 16
"""Batches of a step that copies and computes."""


def pageable_copies() -> Step:
    """Batches of 16 MiB copied from ordinary memory, and a matrix product with each."""
    batches, weights = [torch.randn(2_048, 2_048) for _ in range(2)], torch.randn(2_048, 2_048, device="cuda")

    def step() -> None:
        for number in range(COPIES):
            batches[number % 2].to("cuda") @ weights
        torch.cuda.synchronize()

    return step


def pinned_copies() -> Step:
    """The same from pinned memory, on a stream of their own: the next batch is copied while this one is computed with.

    A product waits for its copy by an event, and a buffer on the GPU is filled anew only after the product that reads it.
    """
    batches = [torch.randn(2_048, 2_048).pin_memory() for _ in range(2)]
    buffers = [torch.empty(2_048, 2_048, device="cuda") for _ in range(2)]
    weights, copying = torch.randn(2_048, 2_048, device="cuda"), torch.cuda.Stream()
    copied, used = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))

    def step() -> None:
        for number in range(COPIES):
            slot = number % 2
            with torch.cuda.stream(copying):
                copying.wait_event(used[slot])
                buffers[slot].copy_(batches[slot], non_blocking=True)
                copied[slot].record(copying)
            torch.cuda.current_stream().wait_event(copied[slot])
            buffers[slot] @ weights
            used[slot].record()
        torch.cuda.synchronize()

    return step


WORKLOADS: dict[str, Callable[[], Step]] = {
    program.__name__: program
    for program in (
        small_mlp, transformer_inference, convolution_training, loader_bound, allocation_heavy,
        memory_bandwidth, file_reading, host_to_device, pageable_copies, pinned_copies,
    )
}  # fmt: skip


def main() -> None:
    """Warm up, run, print the median seconds of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("seconds", nargs="?", type=float, default=3.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    step = WORKLOADS[options.name]()
    for _ in range(3):
        step()
    took: list[float] = []
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(took) < 5:
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    sys.stdout.write(f"{statistics.median(took):.6f}\n")


if __name__ == "__main__":
    main()

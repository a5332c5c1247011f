"""A script trains the same before and after `--fix`: every loss and score, bit by bit, in a real run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.script.test_codemods import fixed

PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")

PROGRAM = """\
import torch
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(7)
torch.set_num_threads(1)
WORKERS = 1


class Digits(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.randn(12), index % 3


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


def evaluate(model, loader, device):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    model.train()
    return right / 48


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Digits(), batch_size=16, num_workers=WORKERS)
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = GradScaler(enabled=False)
    for epoch in range(2):
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad(set_to_none=False)
            with autocast(enabled=False):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item() * x.size(0)
        print(epoch, repr(total), evaluate(model, loader, device))


if __name__ == "__main__":
    main()
"""

EACH = """
import os, runpy, sys, torch._dynamo
for path in sys.argv[1:]:
    if not os.fork():
        os.dup2(os.open(path.replace(".py", ".printed"), os.O_WRONLY | os.O_CREAT), 1)
        runpy.run_path(path, run_name="__main__")
        sys.exit()
    if os.wait()[1]:
        sys.exit("it failed")
"""
"""Runs each program in a process of its own; they share the import of torch and of its compiler, which each optimizer
needs: it costs more than they do."""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
def test_losses_are_equal_bit_by_bit(tmp_path: Path) -> None:
    """All codemods on a program that trains and evaluates; sums of losses are printed with all their digits."""
    after = fixed(PROGRAM)
    changed = (
        "torch.amp",
        "persistent_workers=WORKERS > 0",
        "pin_memory=True",
        "non_blocking=True",
        "zero_grad()",
        "inference_mode",
        "float(total)",
    )
    assert [word for word in changed if word not in after] == []

    printed = run(tmp_path, PROGRAM, after)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") == 2


def run(folder: Path, *programs: str) -> list[str]:
    """What each program prints."""
    paths = [folder / f"{number}.py" for number in range(len(programs))]
    for path, text in zip(paths, programs, strict=True):
        path.write_text(text)
    argv = [PYTHON, "-W", "ignore", "-c", EACH, *map(str, paths)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=140)
    assert done.returncode == 0, done.stderr
    return [path.with_suffix(".printed").read_text() for path in paths]

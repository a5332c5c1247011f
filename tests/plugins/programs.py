"""Programs to look into: real training, and a stand-in for PyTorch that asks for traces and does nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.invoking import sysperf
from tests.stand_ins import NO_COMPILER

TRAINING = f"""{NO_COMPILER}
import time
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 1 << 40
    def __getitem__(self, index): time.sleep(0.025); return torch.rand(64), index % 10

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    end, told = time.monotonic() + 600, False
    for x, y in DataLoader(Slow(), num_workers=int(sys.argv[1]), batch_size=2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if not told:
            told = True
            print("ready", flush=True)
        if time.monotonic() > end:
            break
"""

ASKING = """
import json, os, re, socket, struct, sys, time
folder, does = os.environ["KINETO_IPC_SOCKET_DIR"], sys.argv[1]
print("ready", flush=True)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
    asking.bind(f"{folder}/dynoconfigclient{os.getpid()}")
    asking.settimeout(0.05)
    busy, drops = 3 if does == "busy" else 0, 2 if does == "drop" else 0
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.05)
        body = struct.pack("iiqii", 1 if busy else 3, 2, 0, os.getpid(), os.getppid())
        busy = max(0, busy - 1)
        try:
            asking.sendto(struct.pack("Q32s", len(body), b"req") + body, f"{folder}/dynolog")
            config = asking.recv(4096)[40:].decode()
        except OSError:
            continue
        if not config or does == "ignore":
            continue
        if does == "die":
            sys.exit(0)
        path = re.search("ACTIVITIES_LOG_FILE=(.*)", config)[1].replace(".json", f"_{os.getpid()}.json")
        open(path + ".tmp", "w").close()
        if does == "hang" or drops:
            drops = max(0, drops - 1)
            continue
        with open(path + ".tmp", "w") as file:
            file.write('{"config": ' + json.dumps(config) + ', "traceEvents": [')
            for number in range(3):
                file.write('{"ph": "X", "cat": "user_annotation",\\n    "name": "Optimizer.step#SGD.step"},')
            time.sleep(0.3)
            file.write('{"ph": "i"}]}')
        os.rename(path + ".tmp", path)
"""


@contextlib.contextmanager
def sockets() -> Iterator[str]:
    """A folder with a path short enough for Kineto's sockets."""
    folder = tempfile.mkdtemp(prefix="kineto-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def started(
    python: str, script: Path | str, *args: str, env: dict[str, str] | None = None, wait_s: float = 60
) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it is ready. A script that starts workers must be a file."""
    what = ("-c", script) if isinstance(script, str) else (str(script),)
    program = subprocess.Popen(
        (python, *what, *args), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})}
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == "ready"
        yield program
    finally:
        program.kill()
        program.wait()


@contextlib.contextmanager
def asking(folder: str, does: str = "trace") -> Iterator[subprocess.Popen[str]]:
    """A program that asks for traces as PyTorch does, 20 times a second."""
    with started(sys.executable, ASKING, does, env={"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder}) as program:
        yield program


def with_torch() -> str:
    """The interpreter of an environment that has PyTorch."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON")
    if not python:
        pytest.skip("no PyTorch: set SYSPERF_TORCH_PYTHON to the interpreter of an environment that has it")
    return python


@contextlib.contextmanager
def training(tmp_path: Path, workers: int, folder: str = "") -> Iterator[int]:
    """A real training program; its process number."""
    python, script = with_torch(), tmp_path / "train.py"
    script.write_text(TRAINING)
    env = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder} if folder else {}
    with started(python, script, str(workers), env=env) as program:
        yield program.pid


def command(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`sysperf …` for real."""
    return sysperf(*argv, timeout=300, cwd=cwd)


def loaded(path: str | Path) -> dict[str, object]:
    """A trace, parsed whole."""
    document = json.loads(Path(path).read_text())
    assert isinstance(document, dict)
    return document

"""What runs beside the agent while it is measured: PyTorch programs, sleepers, storms of starts, clients that mean harm.

A scene is a context manager that gets a `Stage`: it starts its programs, yields when all are ready, and ends them. What a scene does
all the time (starting programs, asking questions) it does in a process of its own, so that none of it counts as the agent's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

TRAINING = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset

class Samples(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, at): return torch.full((64,), float(at % 7)), at % 10

def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    print("ready", flush=True)
    for data, target in DataLoader(Samples(), batch_size=32, num_workers=2):
        loss = torch.nn.functional.cross_entropy(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        time.sleep(0.1)

main()
"""
"""A training program with workers, an optimizer and a loss that it asks for in each step; mostly asleep, so that eight fit on two cores."""
COPIES = """
import os, sys, time, torch
torch.rand(64) @ torch.rand(64)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        torch.rand(8)
        time.sleep(86400)
    os.wait()
print("ready", flush=True)
time.sleep(86400)
"""
"""Programs with PyTorch that share their memory, each nobody's child, as those of many users are."""
SLEEPERS = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(86400)
print("ready", flush=True)
time.sleep(86400)
"""
STORM = """
import os, sys, time
print("ready", flush=True)
period_s, at = 1 / float(sys.argv[1]), time.monotonic()
while True:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    at += period_s
    time.sleep(max(0.0, at - time.monotonic()))
"""
HOSTILE = """
import json, os, random, socket, sys, threading, time
path = sys.argv[1]
PATHS = ["/", "/v1/status", "/v1/snapshot", "/v1/findings", "/v1/processes", "/v1/workers", "/v1/meters", "/v1/changes", "/v1/history",
         "/v1/events?since=0&follow=0", "/v1/openapi.json", "/metrics", "/nothing", "/%ff%00" + "a" * 8000, "/v1/history?" + "x=1&" * 40]
def ask(data, read=True, wait_s=0.0):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(path)
        client.sendall(data)
        time.sleep(wait_s)
        answer = b""
        while read and (part := client.recv(65536)):
            answer += part
        return answer
def get(target): return f"GET {target} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n".encode()
def quietly(*arguments, **options):
    try: return ask(*arguments, **options)
    except OSError: return b""
def answers():
    while True:
        for target in PATHS:
            quietly(get(target))
        listed = quietly(get("/v1/history")).partition(b"\\r\\n\\r\\n")[2]
        names = [series["name"] for series in json.loads(listed or b'{"series": []}')["series"]][:100]
        quietly(get(f"/v1/history?series={','.join(names)}&since=-600000&points=10000"))
        time.sleep(0.5)
def noise():
    dice = random.Random(7)
    while True:
        for data in (dice.randbytes(3000), b"GET / HTTP/1.1\\r\\n" + b"a: b\\r\\n" * 4000,
                     b"POST / HTTP/1.1\\r\\ncontent-length: 9999999\\r\\n\\r\\n", get("/v1/status") * 200,
                     b"\\r\\n" * 9000, b"GET " + b"/" * 60000):
            quietly(data)
        time.sleep(0.2)
def never_reads():
    while True:
        quietly(get("/v1/snapshot") + get("/v1/events"), read=False, wait_s=5)
def never_ends():
    while True:
        quietly(b"GET / HTTP/1.1\\r\\nhost: x\\r\\na: " + b"b" * 16000, wait_s=15)
def listens():
    while True:
        quietly(get("/v1/events?since=0"))
        time.sleep(1)
for work, many in ((answers, 2), (noise, 2), (never_reads, 40), (never_ends, 60), (listens, 20)):
    for _ in range(many):
        threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
time.sleep(86400)
"""
"""Clients that ask for everything, for nothing that there is, too much, too slowly, or never read what they asked for."""


class Stage(NamedTuple):
    """What a scene may use."""

    torch_python: str
    socket: str
    """The agent's."""
    programs: int = 8
    others: int = 500


def rest(_: Stage) -> AbstractContextManager[None]:
    """Nothing: the machine as it is."""
    return contextlib.nullcontext()


def torch(stage: Stage) -> AbstractContextManager[None]:
    """PyTorch programs that train, each with two workers, among sleepers."""
    return running([*_sleepers(stage.others - 3 * stage.programs), *[(stage.torch_python, "-c", TRAINING)] * stage.programs])


def neighbours(stage: Stage) -> AbstractContextManager[None]:
    """144 programs with PyTorch that wait."""
    return running([(stage.torch_python, "-c", COPIES, "144")])


def storm(_: Stage) -> AbstractContextManager[None]:
    """300 starts of short programs each second."""
    return running([(sys.executable, "-c", STORM, "300")])


@contextlib.contextmanager
def http(stage: Stage) -> Iterator[None]:
    """124 hostile clients beside the PyTorch programs."""
    with torch(stage), running([(sys.executable, "-c", HOSTILE, stage.socket)]):
        yield


SCENES: dict[str, Callable[[Stage], AbstractContextManager[None]]] = {
    scene.__name__: scene for scene in (rest, torch, neighbours, storm, http)
}


def _sleepers(number: int) -> list[tuple[str, ...]]:
    return [(sys.executable, "-c", SLEEPERS, str(number))] if number > 0 else []


@contextlib.contextmanager
def running(commands: list[tuple[str, ...]]) -> Iterator[None]:
    """Programs that said that they are ready; at the end they and what they started are gone."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started += [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for command in commands]
        for program in started:
            if program.stdout is None or program.stdout.readline().strip() != b"ready":
                sys.exit(f"a program did not start: {program.args!r:.200}")
        yield
    finally:
        for program in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()

"""Programs that look suspicious and are not ill: ``python healthy.py NAME cured FOLDER``. Each runs until it is ended."""

from __future__ import annotations

import asyncio
import ctypes
import http.server
import logging
import multiprocessing
import os
import pdb  # noqa: T100 - what is tried
import signal
import sys
import threading
import time
import urllib.request

PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with what started it
NAME, _, FOLDER = sys.argv[1:4]
if NAME == "pinned_on_purpose":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import torch  # noqa: E402 - what stands above must come before it
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from tqdm import tqdm  # noqa: E402


class Samples(Dataset[torch.Tensor]):
    """Cheap samples, or samples that wait as for a network."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.wait_s)
        return torch.full((256,), float(index % 5))


MODEL = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
OPTIMIZER = torch.optim.AdamW(MODEL.parameters(), lr=1e-4, fused=True)
STEPS = [0]
NEXT = [time.monotonic() + 1]


def step(x: torch.Tensor) -> torch.Tensor:
    OPTIMIZER.zero_grad(set_to_none=True)
    loss = MODEL(x).square().mean()
    loss.backward()
    OPTIMIZER.step()
    STEPS[0] += 1
    if time.monotonic() > NEXT[0]:
        print(f"step {STEPS[0]} {time.monotonic():.3f}", flush=True)
        NEXT[0] += 1
    return loss


def plain_training() -> None:
    x = torch.randn(1024, 256)
    while True:
        step(x)


def full_cores() -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    x = torch.randn(4096, 256)
    while True:
        step(x)


pinned_on_purpose = plain_training


def hidden_loader() -> None:
    """Its worker has every batch ready in time."""
    for x in DataLoader(Samples(), batch_size=512, num_workers=1, prefetch_factor=4):
        for _ in range(6):
            step(x)


def sleeping_workers() -> None:
    """More workers than CPUs, which wait for a network nearly always."""
    for x in DataLoader(Samples(0.001), batch_size=64, num_workers=6, prefetch_factor=8):
        for _ in range(4):
            step(x.repeat(8, 1))


def seldom_checkpoint() -> None:
    x = torch.randn(1024, 256)
    while True:
        step(x)
        if STEPS[0] % 400 == 0:
            torch.save(MODEL.state_dict(), f"{FOLDER}/checkpoint.pt")


def quiet_logging() -> None:
    logging.basicConfig(filename=f"{FOLDER}/log", level=logging.INFO)
    x = torch.randn(1024, 256)
    while True:
        loss = step(x)
        logging.getLogger("train").debug("step %d %s", STEPS[0], loss)
        if STEPS[0] % 50 == 0:
            logging.getLogger("train").info("loss %.4f", loss.item())


def large_memory() -> None:
    """Two gigabytes that stay."""
    kept = torch.ones(1 << 28)
    plain_training()
    assert kept is not None


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        with torch.inference_mode():
            MODEL(torch.randn(2048, 256))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def idle_server() -> None:
    print("ready", flush=True)
    http.server.HTTPServer(("127.0.0.1", 0), Handler).serve_forever()


def busy_server() -> None:
    """A server of inference that is asked all the time, by a thread that stands for its clients."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)

    def ask() -> None:
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as answer:
                answer.read()

    threading.Thread(target=ask, daemon=True).start()
    print("ready", flush=True)
    server.serve_forever()


def cache_fills() -> None:
    """Young: a cache of features grows up to its bound."""
    features: dict[int, torch.Tensor] = {}
    number = 0
    while True:
        for _ in range(2):
            number += 1
            if len(features) < 4000:
                features[number] = torch.full((1 << 16,), float(number))
        step(torch.stack([features[number % len(features) + 1][:256]] * 512))


def at_a_debugger() -> None:
    """It stands at pdb's prompt within its model's forward pass."""
    sys.stdin = os.fdopen(os.dup(os.pipe()[0]))

    def stop(*_: object) -> None:
        print("ready", flush=True)
        pdb.set_trace()  # noqa: T100 - what is tried

    step(torch.randn(256, 256))
    MODEL.register_forward_pre_hook(stop)
    step(torch.randn(256, 256))


def empty_queue() -> None:
    """A worker of jobs that nobody sends."""
    jobs: multiprocessing.Queue[torch.Tensor] = multiprocessing.Queue()
    step(torch.randn(256, 256))
    print("ready", flush=True)
    while True:
        MODEL(jobs.get())


def waits_for_checkpoint() -> None:
    """It looks every two seconds whether there is a checkpoint to evaluate, and there is none."""
    MODEL(torch.randn(256, 256))
    print("ready", flush=True)
    while not os.path.exists(f"{FOLDER}/checkpoint.pt"):
        time.sleep(2)


def asyncio_server() -> None:
    """A server on an event loop that nobody asks."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        MODEL(torch.randn(1, 256))
        writer.close()

    async def listen() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            print("ready", flush=True)
            await server.serve_forever()

    asyncio.run(listen())


def batches_accumulated() -> None:
    """Eight batches for each step of the optimizer."""
    x = torch.randn(512, 256)
    while True:
        for _ in range(7):
            (MODEL(x).square().mean() / 8).backward()
        loss = MODEL(x).square().mean() / 8
        loss.backward()
        OPTIMIZER.step()
        OPTIMIZER.zero_grad(set_to_none=True)
        STEPS[0] += 1
        if time.monotonic() > NEXT[0]:
            print(f"step {STEPS[0]} {time.monotonic():.3f}", flush=True)
            NEXT[0] += 1


def progress_bar() -> None:
    """Its loop goes over a progress bar, which is on the stack while it takes a batch over from its worker."""
    for x in tqdm(DataLoader(Samples(0.0001), batch_size=64, num_workers=1, persistent_workers=True), file=open(os.devnull, "w")):  # noqa: SIM115
        step(x.repeat(4, 1))


def attention() -> None:
    """PyTorch's own layers copy between layouts; no line of this program could change that."""
    layer = nn.TransformerEncoderLayer(160, 4, 640, batch_first=True, dropout=0.0)
    x = torch.randn(8, 128, 160)
    while True:
        layer(x).square().mean().backward()
        layer.zero_grad()
        step(torch.randn(64, 256))


def prompt() -> None:
    """A notebook at its prompt: it has computed, and waits for its user."""
    for _ in range(20):
        step(torch.randn(256, 256))
    print("ready", flush=True)
    read, _ = os.pipe()
    os.read(read, 1)


if __name__ == "__main__":
    globals()[NAME]()

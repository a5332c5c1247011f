"""A small training program, sick in one way or cured: ``python train.py ILLNESS sick|cured FOLDER``. It runs until it is ended.

Each function is one program. Once a second it prints how many steps it has made: that is its speed.
"""

from __future__ import annotations

import cProfile
import ctypes
import gc
import http.server
import io
import itertools
import json
import logging
import mmap
import multiprocessing
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with what started it
ILLNESS, STATE, FOLDER = sys.argv[1:4]
SICK = STATE == "sick"
PATCH: dict[str, Any] = json.loads(os.environ.get("CLINIC_PATCH", "{}"))
"""What the text of a printed fix asks for, instead of the program's own."""
if ILLNESS == "bound_to_one_cpu" and SICK and "unbound" not in PATCH:
    os.environ["OMP_PROC_BIND"] = "true"

import numpy  # noqa: E402 - what stands above must come before it
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils import data  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

CPUS = len(os.sched_getaffinity(0))
EVERY = PATCH.get("every", 1 if SICK else 500)
SAY_S = 1.0


def ill(*patches: str) -> bool:
    """Whether it is sick, and was not told what these patches ask for."""
    return SICK and not any(name in PATCH for name in patches)


def all_cpus(worker: int) -> None:
    os.sched_setaffinity(0, range(CPUS))


def patched_loader(loader: DataLoader[Any], *args: Any, **options: Any) -> None:
    asked = {option: PATCH[option] for option in ("num_workers", "persistent_workers") if option in PATCH}
    plain(loader, *args, **(options | asked | ({"worker_init_fn": all_cpus} if "unpinned" in PATCH else {})))


plain = DataLoader.__init__
if ILLNESS == "workers_not_kept" and not SICK:
    PATCH["persistent_workers"] = True
if PATCH:
    data.DataLoader.__init__ = patched_loader
if threads := PATCH.get("threads"):
    torch.set_num_threads(threads)
    torch.set_num_threads = lambda _: None
if "anomaly" in PATCH:
    torch.autograd.set_detect_anomaly = lambda _: None
if "frozen" in PATCH:
    gc.collect = lambda: 0


class Speed:
    """Prints the number of steps so far, once a second."""

    def __init__(self) -> None:
        self.steps = 0
        self.next = time.monotonic() + SAY_S

    def step(self) -> None:
        self.steps += 1
        if time.monotonic() >= self.next:
            print(f"step {self.steps} {time.monotonic():.3f}", flush=True)
            self.next += SAY_S


SPEED = Speed()


class Decoded(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples whose decoding costs CPU time in Python, and perhaps a wait as for a storage."""

    def __init__(self, work_s: float, wait_s: float = 0.0, length: int = 1 << 20, threads: int = 0) -> None:
        self.work_s, self.wait_s, self.length, self.threads = work_s, wait_s, length, threads

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        decode(self.work_s)
        if self.wait_s:
            time.sleep(self.wait_s)
        if self.threads:
            spread(self.threads)
        return torch.full((64,), float(index % 7)), torch.tensor(index % 10)


def decode(seconds: float) -> None:
    """Use this much CPU time, in Python."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))


def spread(threads: int) -> None:
    torch.set_num_threads(threads)
    values = torch.ones(1 << 20)
    for _ in range(6):
        values = values * 1.0001


class Net(nn.Module):
    def __init__(self, width: int = 256, depth: int = 2, classes: int = 10, inputs: int = 64) -> None:
        super().__init__()
        sizes = [inputs, *[width] * depth]
        self.layers = nn.ModuleList(nn.Linear(size, two) for size, two in itertools.pairwise(sizes))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


class Trainer:
    """A model with its optimizer."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = model or Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if "frozen" in PATCH:
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        SPEED.step()
        return loss


def batches(size: int = 512, inputs: int = 64) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    x, y = torch.randn(size, inputs), torch.randint(0, 10, (size,))
    while True:
        yield x, y


def train_on(loader: Any, trainer: Trainer | None = None) -> None:
    trainer = trainer or Trainer()
    for x, y in loader:
        trainer.step(x, y)


# ---------------------------------------------------------------------- loaders


def no_workers() -> None:
    torch.set_num_threads(1)
    trainer = Trainer(Net(1024, 3))
    loader = DataLoader(Decoded(0.0015), batch_size=32, num_workers=0 if SICK else 1)
    for x, y in loader:
        for _ in range(2):
            trainer.step(x, y)


def decoding_beside_a_team() -> None:
    """Decoding takes one CPU, and the threads that compute take all of them: a worker has to share theirs."""
    torch.set_num_threads(CPUS if SICK else 1)
    trainer = Trainer(Net(512, 3))
    for x, y in DataLoader(Decoded(0.001), batch_size=32, num_workers=0 if SICK else CPUS):
        trainer.step(x, y)


def too_many_workers() -> None:
    train_on(DataLoader(Decoded(0.002), batch_size=8, num_workers=12 if SICK else CPUS, prefetch_factor=4), Trainer(Net(768, 3)))


def bound_to_one_cpu() -> None:
    train_on(DataLoader(Decoded(0.002), batch_size=8, num_workers=2))


def pin(worker: int) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def workers_pinned() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Decoded(0.004), batch_size=8, num_workers=2, worker_init_fn=pin if SICK else None))


def threads_in_workers() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Decoded(0.0, threads=8 if SICK else 1), batch_size=4, num_workers=2))


def one_slow_worker() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Decoded(0.0, 0.01), batch_size=8, num_workers=1 if SICK else 8))


def loader_in_epoch_loop() -> None:
    torch.set_num_threads(1)
    data, trainer = Decoded(0.0002, length=64), Trainer()
    loader = DataLoader(data, batch_size=16, num_workers=2, persistent_workers=True)
    while True:
        if ill("made_once"):
            loader = DataLoader(data, batch_size=16, num_workers=2)
        for x, y in loader:
            trainer.step(x, y)


def workers_not_kept() -> None:
    torch.set_num_threads(1)
    samples, model = Decoded(0.0002, length=128), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(samples, batch_size=16, num_workers=2)
    for _ in range(1 << 30):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            SPEED.step()


def slow_collate() -> None:
    torch.set_num_threads(1)

    def merge(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        if not ill("stack"):
            return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])
        rows = []
        for x, _ in samples:
            rows.append([float(value) for value in x])
        return torch.tensor(rows), torch.stack([y for _, y in samples])

    train_on(DataLoader(Decoded(0.0), batch_size=64, collate_fn=merge))


class Weighted:
    """Draws by weight: index by index, or all of a pass at once."""

    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights

    def __len__(self) -> int:
        return 1 << 20

    def __iter__(self) -> Iterator[int]:
        while True:
            drawn = 1 if ill("at_once") else 1 << 14
            yield from torch.multinomial(self.weights / self.weights.sum(), drawn, replacement=True).tolist()


def slow_sampler() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Decoded(0.0), batch_size=32, sampler=Weighted(torch.rand(1 << 16)), num_workers=1))


class Scenes(Dataset[Any]):
    """What annotation files have: points of objects."""

    def __init__(self) -> None:
        self.points = [[(random.random(), random.random()) for _ in range(800)] for _ in range(64)]

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return [self.points[index % 64], index % 10]


def encoded(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([points[:32] for points, _ in samples]).flatten(1), torch.tensor([label for _, label in samples])


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def objects_from_workers() -> None:
    torch.set_num_threads(1)
    trainer = Trainer()
    for batch in DataLoader(Scenes(), batch_size=32, num_workers=1, collate_fn=as_they_are if ill("tensors") else encoded):
        trainer.step(*(encoded(batch) if ill("tensors") else batch))


class Files(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Many small files, or the same in one."""

    def __init__(self, folder: str) -> None:
        self.paths = []
        for number in range(4096):
            path = f"{folder}/{number % 64}/{number}.bin"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(bytes(256))
            self.paths.append(path)
        self.all = torch.zeros(4096, 64)

    def __len__(self) -> int:
        return len(self.paths) * 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = index * 1021 % len(self.paths)
        if not ill("in_memory"):
            return self.all[number], torch.tensor(index % 10)
        for other in range(8):
            with open(self.paths[(number + other) % len(self.paths)], "rb") as file:
                data = file.read()
        return torch.frombuffer(bytearray(data), dtype=torch.float32), torch.tensor(index % 10)


def many_small_files() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Files(FOLDER), batch_size=64))


class Store(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """As of h5py: all workers take one lock around a read that waits."""

    def __init__(self) -> None:
        self.lock = multiprocessing.Lock()

    def __len__(self) -> int:
        return 1 << 20

    def read(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.004)
        return torch.full((64,), float(index % 7)), torch.tensor(index % 10)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not ill("unlocked"):
            return self.read(index)
        with self.lock:
            return self.read(index)


def workers_take_turns() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Store(), batch_size=16, num_workers=4))


def serve(port: multiprocessing.Queue[int]) -> None:
    """A store that answers 3 ms later, each client in a thread of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.003)
            self.send_response(200)
            self.send_header("Content-Length", "256")
            self.end_headers()
            self.wfile.write(bytes(256))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128  # with Python's own 5, workers that connect at once wait a second each

    server = Server(("127.0.0.1", 0), Handler)
    port.put(server.server_port)
    server.serve_forever()


class Remote(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, port: int) -> None:
        self.port = port

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{index}") as answer:
            return torch.frombuffer(bytearray(answer.read()), dtype=torch.float32), torch.tensor(index % 10)


def samples_over_http() -> None:
    torch.set_num_threads(1)
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    multiprocessing.Process(target=serve, args=(port,), daemon=True).start()
    train_on(DataLoader(Remote(port.get()), batch_size=8, num_workers=0 if SICK else 4))


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, path: str, rows: int) -> None:
        self.path, self.rows = path, rows
        self.map: mmap.mmap | None = None

    def __len__(self) -> int:
        return 1 << 22

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.map is None:
            with open(self.path, "rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self.map.madvise(mmap.MADV_RANDOM)
        at = index * 7919 % self.rows * 4096
        return torch.frombuffer(bytearray(self.map[at : at + 64]), dtype=torch.uint8) / 255, torch.tensor(index % 10)


def mapped_by_workers() -> None:
    """Workers read a mapped file that is larger than the memory that the job may use."""
    torch.set_num_threads(1)
    path, rows = os.path.join(FOLDER, "rows"), (1 << 18) if SICK else (1 << 14)
    with open(path, "wb") as file:
        file.writelines(os.urandom(4096) * 4096 for _ in range(rows >> 12))
        os.fsync(file.fileno())
    train_on(DataLoader(Rows(path, rows), batch_size=64, num_workers=1))


# ---------------------------------------------------------------------- threads


def one_thread() -> None:
    torch.set_num_threads(1 if SICK else CPUS)
    trainer = Trainer(Net(2048, 3))
    train_on(batches(1024), trainer)


def too_many_threads() -> None:
    """Each operator is short, so its end is a wait for the thread that got its CPU last."""
    torch.set_num_threads(16 if SICK else CPUS)
    values, trainer = torch.randn(1 << 19), Trainer(Net(64, 1))
    for x, y in batches(32):
        for _ in range(20):
            values.mul_(0.999).clamp_(-1, 1)
        trainer.step(x, y)


SMOOTH = """
#include <math.h>
void smooth(float *values, long count) {
  #pragma omp parallel for
  for (long i = 0; i < count; i++) values[i] = sinf(values[i]);
}
"""


def two_openmp() -> None:
    """A library of its own computes a part of each step: with LLVM's OpenMP, whose team spins on, or with the one that PyTorch has."""
    torch.set_num_threads(CPUS)
    runtime = ["-l:libomp.so.5"] if SICK else ["-fopenmp"]
    source, code, library = (os.path.join(FOLDER, name) for name in ("smooth.c", "smooth.o", "smooth.so"))
    with open(source, "w") as file:
        file.write(SMOOTH)
    subprocess.run(["gcc", "-O2", "-fPIC", "-fopenmp", "-c", source, "-o", code], check=True)
    subprocess.run(["gcc", "-shared", code, "-o", library, *runtime, "-lm"], check=True)
    smooth = ctypes.CDLL(library).smooth
    values, trainer = torch.randn(1 << 16), Trainer(Net(256, 3))
    for x, y in batches(256):
        smooth(ctypes.c_void_p(values.data_ptr()), ctypes.c_long(values.numel()))
        trainer.step(x, y)


def reclaimed() -> None:
    """Samples are mapped from a file that is larger than the memory that the program may use, or much smaller."""
    torch.set_num_threads(1)
    path, rows = os.path.join(FOLDER, "samples"), (1 << 18) if SICK else (1 << 14)
    with open(path, "wb") as file:
        file.writelines(os.urandom(4096) * 4096 for _ in range(rows >> 12))
        os.fsync(file.fileno())
    with open(path, "rb") as file:
        samples = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    samples.madvise(mmap.MADV_RANDOM)
    trainer = Trainer()
    for _, y in batches(64):
        chosen = [random.randrange(rows) * 4096 for _ in range(64)]
        x = torch.frombuffer(bytearray(b"".join(samples[at : at + 64] for at in chosen)), dtype=torch.uint8)
        trainer.step(x.view(64, 64) / 255, y)


def interpreter_lock() -> None:
    torch.set_num_threads(1)
    for _ in range(3 if SICK else 0):
        start = multiprocessing.Process if "processes" in PATCH else threading.Thread
        start(target=decode, args=(1e6,), daemon=True).start()
    train_on(batches(128))


def slow_prefetcher() -> None:
    torch.set_num_threads(1)
    ready: queue.Queue[tuple[torch.Tensor, torch.Tensor]] = queue.Queue(8)

    def fill() -> None:
        for batch in batches(256):
            if SICK:
                time.sleep(0.02)
            ready.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    trainer = Trainer()
    while True:
        trainer.step(*ready.get())


# ---------------------------------------------------------------------- memory


def page_faults() -> None:
    torch.set_num_threads(1)
    kept = torch.empty(24 << 20)
    trainer = Trainer(Net(64, 1))
    for x, y in batches(32):
        values = torch.empty(24 << 20) if SICK else kept
        values.fill_(1.0)
        trainer.step(x, y)


KEPT: list[torch.Tensor] = []


def leak() -> None:
    torch.set_num_threads(CPUS)
    trainer = Trainer(Net(1024, 2))
    for x, y in batches(512):
        loss = trainer.step(x, y)
        KEPT.append(torch.ones(1 << 18) * loss if SICK else loss.detach())
        if not SICK and len(KEPT) > 100:
            KEPT.clear()


# ---------------------------------------------------------------------- the loop


def item_per_value() -> None:
    torch.set_num_threads(1)
    trainer = Trainer()
    for x, y in batches(256):
        loss = trainer.step(x, y)
        total = 0.0
        if ill("whole"):
            for row in range(256):
                for column in range(4):
                    total += x[row, column].item()
        else:
            total += x[:, :4].sum().item()
        assert loss is not None
        assert total < 1e9


def item_of_each_element() -> None:
    """A tensor that is gone through makes a tensor of each element, and the collector goes through all objects for them."""
    torch.set_num_threads(1)
    trainer = Trainer()
    for x, y in batches(256):
        trainer.step(x, y)
        total = 0.0
        if ill("whole"):
            for value in x.flatten():
                total += value.item()
        else:
            total += x.sum().item()
        assert total < 1e9


def square(value: float) -> float:
    return value * value


def pool_each_step() -> None:
    torch.set_num_threads(1)
    trainer, kept = Trainer(), multiprocessing.Pool(2)
    for x, y in batches(256):
        trainer.step(x, y)
        if ill("pool_once"):
            with multiprocessing.Pool(2) as pool:
                pool.map(square, range(4))
        else:
            kept.map(square, range(4))


class Log:
    """What a project of its own writes of each step."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w")  # noqa: SIM115 - as long as the program

    def add_histogram(self, name: str, values: torch.Tensor, step: int) -> None:
        counts = torch.histc(values.detach(), 64).tolist()
        self.file.write(f"{step} {name} {counts}\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def own_logger_each_step() -> None:
    torch.set_num_threads(1)
    log, trainer = Log(f"{FOLDER}/steps.log"), Trainer(Net(256, 4))
    for number, (x, y) in enumerate(batches(64)):
        trainer.step(x, y)
        if number % EVERY == 0:
            for name, values in trainer.model.named_parameters():
                log.add_histogram(name, values, number)


def fsync_each_step() -> None:
    torch.set_num_threads(1)
    trainer = Trainer(Net(256, 4))
    with open(f"{FOLDER}/seen", "wb") as file:
        for number, (x, y) in enumerate(batches(64)):
            trainer.step(x, y)
            if number % EVERY == 0:
                file.write(b"one more step\n" * 1000)
                file.flush()
                os.fsync(file.fileno())


def checkpoint_each_step() -> None:
    torch.set_num_threads(CPUS)
    trainer = Trainer(Net(1024, 3))
    for number, (x, y) in enumerate(batches(512)):
        trainer.step(x, y)
        if number % EVERY == 0:
            with open(f"{FOLDER}/checkpoint.pt", "wb") as file:
                torch.save(trainer.model.state_dict(), file)
                file.flush()
                os.fsync(file.fileno())


def logging_each_step() -> None:
    torch.set_num_threads(1)
    logging.basicConfig(filename=f"{FOLDER}/train.log", level=logging.DEBUG, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    log, trainer = logging.getLogger("train"), Trainer(Net(64, 1))
    for number, (x, y) in enumerate(batches(32)):
        loss = trainer.step(x, y)
        if number % EVERY == 0:
            for name, values in trainer.model.named_parameters():
                log.debug("step %d %s loss %s weights %s", number, name, loss, values)


def python_loop() -> None:
    torch.set_num_threads(1)
    trainer = Trainer()
    words = [random.randrange(1000) for _ in range(20_000)]
    for x, y in batches(256):
        counts: dict[int, int] = {}
        for word in words if ill("out_of_step") else words[:10]:
            counts[word] = counts.get(word, 0) + 1
        trainer.step(x, y)


class Node:
    def __init__(self, other: Node | None) -> None:
        self.other, self.here = other, self


def collections() -> None:
    torch.set_num_threads(1)
    kept = [Node(None) for _ in range(300_000)]
    trainer = Trainer()
    for number, (x, y) in enumerate(batches(256)):
        trainer.step(x, y)
        if SICK or number % 5000 == 4999:
            gc.collect()
    assert kept


def many_objects() -> None:
    """Automatic collections over many objects, against frozen ones."""
    torch.set_num_threads(1)
    kept = [Node(None) for _ in range(150_000)]
    if SICK:
        gc.set_threshold(300, 2, 1)
    else:
        gc.freeze()
    trainer = Trainer()
    for x, y in batches(256):
        kept[:2000] = [Node(node.other) for node in kept[:2000]]
        trainer.step(x, y)


def anomaly() -> None:
    torch.set_num_threads(1)
    if SICK:
        torch.autograd.set_detect_anomaly(True)
    train_on(batches(32), Trainer(Net(32, 16)))


def tiny_operators() -> None:
    torch.set_num_threads(1)
    trainer, weights = Trainer(Net(64, 1)), torch.randn(64, 64)
    for x, y in batches(64):
        if ill("batched"):
            rows = torch.stack([torch.stack([torch.dot(x[row], weights[column]) for column in range(16)]) for row in range(64)])
        else:
            rows = x @ weights[:16].T
        trainer.step(x + rows.mean(), y)


def float64() -> None:
    torch.set_num_threads(CPUS)
    model = Net(1024, 3)
    kind = torch.float64 if SICK and "single" not in PATCH else torch.float32
    trainer = Trainer(model.to(kind))
    x, y = torch.randn(512, 64).to(kind), torch.randint(0, 10, (512,))
    while True:
        trainer.step(x, y)


def gradients_in_evaluation() -> None:
    torch.set_num_threads(CPUS)
    model = Net(512, 16).eval()
    with torch.inference_mode(not SICK or "inference" in PATCH):
        for x, _ in batches(256):
            model(x)
            SPEED.step()


def recompiles() -> None:
    torch.set_num_threads(1)
    trainer = Trainer(Net(64, 2))
    dynamic = True if "dynamic" in PATCH else False if SICK else None
    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(trainer.model, backend="eager", dynamic=dynamic)
    number = 0
    while True:
        number += 1
        if ill("no_reset") and number % 4 == 0:
            torch._dynamo.reset()
        compiled(torch.randn(64 + (number % 8 if SICK else 0), 64)).square().mean().backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        SPEED.step()


def plain_training() -> None:
    train_on(batches(1024), Trainer(Net(1024, 3)))


def feed(port: multiprocessing.Queue[int]) -> None:
    """A service that has a batch 10 ms after the one before was taken."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    port.put(server.getsockname()[1])
    client, _ = server.accept()
    while client.recv(1):
        time.sleep(0.01)
        client.sendall(bytes(32 * 64))


def received(client: socket.socket) -> Iterator[torch.Tensor]:
    while True:
        client.sendall(b"n")
        parts, left = [], 32 * 64
        while left:
            part = client.recv(left)
            parts.append(part)
            left -= len(part)
        yield torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8).view(32, 64) / 255


def fed_by_a_socket() -> None:
    """A step is about as long as the wait before it."""
    torch.set_num_threads(1)
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    multiprocessing.Process(target=feed, args=(port,), daemon=True).start()
    batches, y = received(socket.create_connection(("127.0.0.1", port.get()))), torch.randint(0, 10, (32,))
    if not ill("ahead"):
        batches = taken_ahead(batches)
    trainer = Trainer(Net(256, 24))
    for x in batches:
        trainer.step(x, y)


def taken_ahead(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    ready: queue.Queue[torch.Tensor] = queue.Queue(2)

    def fill() -> None:
        for batch in batches:
            ready.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield ready.get()


def checks_each_step() -> None:
    torch.set_num_threads(1)
    trainer = Trainer(Net(256, 8))
    for number, (x, y) in enumerate(batches(32)):
        trainer.step(x, y)
        if number % EVERY == 0:
            for name, values in trainer.model.named_parameters():
                if torch.isnan(values).any() or torch.isinf(values).any():
                    raise ValueError(name)
                if values.grad is not None and not torch.isfinite(values.grad).all():
                    raise ValueError(name)


def compute_metrics(scores: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Area under the curve and accuracy of each class, by sorting."""
    found = {}
    for index in range(scores.shape[1]):
        order = scores[:, index].argsort(descending=True)
        hits = (labels[order] == index).double()
        found[f"auc/{index}"] = (hits.cumsum(0) * (1 - hits)).sum().div(hits.sum() * (1 - hits).sum()).item()
    found["accuracy"] = (scores.argmax(1) == labels).double().mean().item()
    return found


def metrics_each_step() -> None:
    torch.set_num_threads(1)
    trainer, kept = Trainer(Net(256, 2)), deque[tuple[torch.Tensor, torch.Tensor]](maxlen=20)
    for number, (x, y) in enumerate(batches(128)):
        trainer.step(x, y)
        with torch.no_grad():
            kept.append((trainer.model(x), y))
        if number % EVERY == 0:
            compute_metrics(torch.cat([scores for scores, _ in kept]), torch.cat([labels for _, labels in kept]))


def pictures(number: int) -> list[bytes]:
    """Some pictures, as they lie in a database."""
    encoded_as = []
    for index in range(number):
        buffer = io.BytesIO()
        Image.effect_noise((128, 128), index + 1).convert("RGB").save(buffer, "JPEG")
        encoded_as.append(buffer.getvalue())
    return encoded_as


def decoded_picture(data: bytes) -> torch.Tensor:
    picture = Image.open(io.BytesIO(data)).convert("RGB").resize((16, 16))
    return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)[:64].float()


def decodes_in_the_loop() -> None:
    """Pictures are decoded in the loop, without a DataLoader; or they were, once."""
    torch.set_num_threads(1)
    stored, trainer, y = pictures(256), Trainer(Net(512, 2)), torch.randint(0, 10, (16,))
    kept = [decoded_picture(data) for data in stored]
    while True:
        chosen = random.choices(range(256), k=16)
        trainer.step(torch.stack([decoded_picture(stored[index]) if ill("once") else kept[index] for index in chosen]), y)


def tensors_of_lists() -> None:
    """A replay memory holds NumPy arrays."""
    torch.set_num_threads(1)
    memory, trainer = [numpy.random.rand(64).astype("float32") for _ in range(4096)], Trainer(Net(64, 1))
    while True:
        states = random.sample(memory, 128)
        x = torch.tensor(states) if ill("stacked") else torch.from_numpy(numpy.stack(states))
        trainer.step(x, torch.randint(0, 10, (128,)))


class Adapted(Net):
    """Has an adapter, made when it is needed or kept."""

    def __init__(self) -> None:
        super().__init__(256, 2)
        self.adapter = self.fresh()

    def fresh(self) -> nn.Module:
        return nn.Sequential(nn.Linear(64, 4096), nn.GELU(), nn.Linear(4096, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapter = self.fresh() if ill("layers_once") else self.adapter
        return super().forward(x + adapter(x))


def layers_in_forward() -> None:
    torch.set_num_threads(1)
    train_on(batches(8), Trainer(Adapted()))


def float16_on_a_cpu() -> None:
    """Autocast is left over from a machine with a GPU."""
    torch.set_num_threads(1)
    trainer = Trainer(Net(256, 2))
    for x, y in batches(128):
        with torch.autocast("cpu", dtype=torch.float16, enabled=ill("float32")):
            loss = nn.functional.cross_entropy(trainer.model(x).float(), y)
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        SPEED.step()


def dense_embeddings() -> None:
    """Each step looks up a few hundred of 200,000 rows."""
    torch.set_num_threads(1)
    table = nn.Embedding(200_000, 64, sparse=not ill("sparse"))
    optimizer = (torch.optim.Adam if ill("sparse") else torch.optim.SparseAdam)(table.parameters())
    trainer = Trainer()
    while True:
        optimizer.zero_grad()
        trainer.step(table(torch.randint(200_000, (512,))), torch.randint(0, 10, (512,)))
        optimizer.step()


def below_a_profiler() -> None:
    """Somebody looked for a slow function, and left the profiler on."""
    torch.set_num_threads(1)
    trainer = Trainer(Net(64, 1))

    def turn(value: int) -> int:
        return (value * 31 + 7) % 1009

    def loop() -> None:
        for x, y in batches(32):
            values = [0] * 64
            for index in range(64):
                for _ in range(40):
                    values[index] = turn(values[index] + index)
            trainer.step(x + sum(values), y)

    if ill("unprofiled"):
        cProfile.Profile().runcall(loop)
    loop()


class Service(http.server.BaseHTTPRequestHandler):
    """Takes metrics, as a tracking server at some distance does."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.01)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Experiment:
    """Sends what it is told."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/metrics"

    def send(self, **values: float) -> None:
        request = urllib.request.Request(self.url, json.dumps(values).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            answer.read()


def reports_each_step() -> None:
    torch.set_num_threads(1)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
    experiment, trainer = Experiment(server.server_address[1]), Trainer(Net(512, 2))
    for number, (x, y) in enumerate(batches(256)):
        loss = trainer.step(x, y)
        if number % EVERY == 0:
            experiment.send(loss=float(loss.detach()), step=number)


def validate(model: nn.Module, held_back: list[torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([model(x).argmax(1).float().mean() for x in held_back]).mean()


def evaluates_often() -> None:
    torch.set_num_threads(1)
    trainer, held_back = Trainer(Net(512, 3)), [torch.randn(256, 64) for _ in range(40)]
    for number, (x, y) in enumerate(batches(256)):
        trainer.step(x, y)
        if number % (100 if not ill("seldom") else 10) == 0:
            validate(trainer.model, held_back)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (checkpoint(self.layers, x, use_reentrant=False) if ill("kept") else self.layers(x))


def computed_again() -> None:
    torch.set_num_threads(CPUS)
    train_on(batches(256), Trainer(nn.Sequential(*(Block(64) for _ in range(16)), nn.Linear(64, 10))))


class Archive(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples in one archive, which is opened for each of them, or once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.archive: zipfile.ZipFile | None = None
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(3000):
                archive.writestr(str(number), bytes(256))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if ill("kept_open"):
            with zipfile.ZipFile(self.path) as archive:
                data = archive.read(str(index % 3000))
        else:
            self.archive = self.archive or zipfile.ZipFile(self.path)
            data = self.archive.read(str(index % 3000))
        return torch.frombuffer(bytearray(data), dtype=torch.float32), torch.tensor(index % 10)


def archive_for_each_sample() -> None:
    torch.set_num_threads(1)
    train_on(DataLoader(Archive(f"{FOLDER}/samples.zip"), batch_size=16))


def memory_bank() -> None:
    """The last outputs are kept: in a tensor that is made anew in each step, or in place."""
    torch.set_num_threads(1)
    trainer, kept, at = Trainer(), torch.zeros(40_000, 64), 0
    for x, y in batches(64):
        trainer.step(x, y)
        if ill("in_place"):
            kept = torch.cat([kept, x])[-40_000:]
        else:
            kept[at : at + 64] = x
            at = (at + 64) % 39_936


def passes_of_each_task() -> None:
    torch.set_num_threads(1)
    model = Net(512, 6, 40)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches(128):
        outputs = model(x).chunk(4, 1)
        optimizer.zero_grad()
        if ill("one_pass"):
            for output in outputs:
                nn.functional.cross_entropy(output, y).backward(retain_graph=True)
        else:
            sum(nn.functional.cross_entropy(output, y) for output in outputs).backward()
        optimizer.step()
        SPEED.step()


def optimizer_each_step() -> None:
    torch.set_num_threads(1)
    model = Net(128, 30)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in batches(16):
        if ill("optimizer_once"):
            optimizer = torch.optim.AdamW(model.parameters())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        SPEED.step()


def command_each_step() -> None:
    torch.set_num_threads(1)
    trainer = Trainer(Net(512, 2))
    for x, y in batches(128):
        trainer.step(x, y)
        if ill("in_process"):
            subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, check=True)
        else:
            with open("/proc/self/statm") as file:
                file.read()


def elementwise() -> None:
    torch.set_num_threads(CPUS)
    values, trainer = torch.randn(1 << 19), Trainer(Net(64, 1))
    for x, y in batches(32):
        for _ in range(40):
            values.mul_(0.999).add_(0.001).clamp_(-1, 1)
        trainer.step(x, y)


def sleeping() -> None:
    torch.set_num_threads(1)
    trainer = Trainer()
    for x, y in batches(512):
        trainer.step(x, y)
        if ill("event"):
            time.sleep(0.01)


if __name__ == "__main__":
    {name: value for name, value in globals().items() if callable(value)}[ILLNESS]()

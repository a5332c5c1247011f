"""Made-up and real PyTorch programs for the tests of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Files

SITE = "/venv/lib/python3.12/site-packages"
LIBTORCH = f"{SITE}/torch/lib/libtorch_cpu.so"
VERSION = {f"{SITE}/torch/version.py": "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"}
HUGE, SMALL = 200_000, 1_000  # pages of 4 KiB


def maps(*paths: str) -> str:
    """Maps of a process with these files, between memory that belongs to no file."""
    lines = [f"7f{index:010x}-7f{index + 1:010x} r-xp 00000000 fe:00 {index} {path:>73}\n" for index, path in enumerate(paths)]
    return "55d0-55d1 rw-p 00000000 00:00 0 \n" + "".join(lines) + "7ffc0-7ffd0 rw-p 00000000 00:00 0    [stack]\n"


def stat(
    pid: int,
    comm: str = "python",
    *,
    ppid: int = 1,
    ticks: int = 1000,
    faults: int = 0,
    threads: int = 1,
    start: int = 0,
    nice: int = 0,
    stack: int = 0,
) -> str:
    """The line of /proc/[pid]/stat."""
    head = f"{pid} ({comm}) S {ppid} {pid} {pid} 0 -1 4194304 {faults} 0 7 0 {ticks} 0 0 0 20 {nice} {threads} 0 {start or pid * 100} 0 0"
    return head + f" 18446744073709551615 0 0 {stack} 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"


def status(allowed: str = "0-3", *, hwm_kb: int = 400_000, rss_kb: int = 300_000) -> str:
    return f"Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nVmHWM:\t{hwm_kb} kB\nVmRSS:\t{rss_kb} kB\nVmSwap:\t0 kB\nCpus_allowed_list:\t{allowed}\n"


def process(
    pid: int,
    comm: str = "python",
    *,
    ppid: int = 1,
    argv: str = "python train.py",
    env: str = "PATH=/bin",
    mapped: tuple[str, ...] = (LIBTORCH,),
    allowed: str = "0-3",
    threads: tuple[str, ...] = (),
    pages: int = HUGE,
    ticks: int = 1000,
    faults: int = 0,
    stack: int = 0,
) -> Files:
    """The files of one process. `threads` are the names of those beside the main one."""
    folder = f"/proc/{pid}"
    files: Files = {
        f"{folder}/statm": f"{pages} 300 200 1 0 400 0\n",
        f"{folder}/stat": stat(pid, comm, ppid=ppid, ticks=ticks, faults=faults, threads=1 + len(threads), stack=stack),
        f"{folder}/status": status(allowed),
        f"{folder}/cmdline": argv.replace(" ", "\0").replace("\u00a0", " ") + "\0",  # a no-break space stays within an argument
        f"{folder}/environ": env.replace(" ", "\0") + "\0",
        f"{folder}/maps": maps(*mapped),
        f"{folder}/fd/0": "",
    }
    for tid, name in enumerate((comm, *threads), pid):
        files[f"{folder}/task/{tid}/stat"] = stat(tid, name, ppid=ppid, ticks=ticks)
        files[f"{folder}/task/{tid}/comm"] = name
        files[f"{folder}/task/{tid}/status"] = status(allowed)
    return files


FAKE = """
import mmap, os, sys, time
address_space = mmap.mmap(-1, 512 << 20)
library = mmap.mmap(os.open(os.environ["LIBRARY"], os.O_RDONLY), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
open("/proc/self/comm", "w").write(os.environ.get("COMM", "python"))
print("ready", flush=True)
time.sleep(60)
"""

LOADER = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Endless(Dataset):
    def __len__(self): return 1 << 40
    def __getitem__(self, index): time.sleep(0.01); return torch.zeros(4)

if __name__ == "__main__":
    batches = iter(DataLoader(Endless(), num_workers=2, batch_size=4))
    matrix = torch.rand(512, 512)
    (matrix @ matrix).sum()
    next(batches)
    print("ready", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        next(batches)
        time.sleep(0.05)
"""


def torch_library(folder: Path) -> Path:
    """An environment whose PyTorch is only a name."""
    torch = folder / "venv/lib/python3.12/site-packages/torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '9.9.9+fake'\n")
    library = torch / "lib/libtorch_cpu.so"
    library.write_bytes(bytes(4096))
    return library


@contextmanager
def running(python: str, script: str, *args: str, env: dict[str, str] | None = None) -> Iterator[int]:
    """A program that has said that it is ready; its process number."""
    program = subprocess.Popen(
        (python, "-c", script, *args), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})}
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == b"ready"
        time.sleep(0.2)
        yield program.pid
    finally:
        program.kill()
        program.wait()


PYTHON = sys.executable

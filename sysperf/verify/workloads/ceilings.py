"""Measure what the machine can give, one ceiling at a request: ``python ceilings.py``, JSON lines in and out.

A request names a task and its arguments; the answer has its rate, in units of the task a second, and the CPU time that was spent. The
tasks `triad`, `matmul`, `transfer`, `all_reduce` and `send_recv` need torch, `decode` Pillow, the others neither. It ends when its input
does.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import json
import mmap
import os
import platform
import random
import resource
import shutil
import signal
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Arguments = dict[str, Any]
Rate = tuple[float, str]
"""Units a second, and a remark."""
MIN_ROUNDS = 3
SMALL, USUAL, MANY_CORES, GPU = 256, 2048, 4096, 8192
"""Sizes of matrices: to find out whether products of a type are slow, and those that are measured, always the same on a kind of machine."""
CORES_FOR_MORE, MAX_MATMUL_S = 16, 2.0
PICTURE = (500, 375)
READ_BYTES = 1 << 20
SMALL_FILE_BYTES = 110 << 10
"""About the mean of ImageNet's files, as the pictures that are decoded."""
MAX_FILES_S = 1.0
MPOL_DEFAULT, MPOL_BIND = 0, 2
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
WORDS_OF_NODES = 16
PR_SET_PDEATHSIG, SIOCGIFADDR, LOOPBACK = 1, 0x8915, 127
_libc = ctypes.CDLL(None, use_errno=True)
_memmove = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(("memmove", _libc))
"""Of the C library, called without Python's lock: `ctypes.memmove` keeps nothing else from running either."""
_kept: dict[str, Any] = {}
"""What later requests use again: sizes that were found, files and pictures."""


def of_list(text: str) -> set[int]:
    """Return the CPUs of ``0-3,8``."""
    bounds = (part.partition("-") for part in text.split(","))
    return {cpu for first, _, last in bounds for cpu in range(int(first), int(last or first) + 1)}


def bind(cpus: set[int]) -> None:
    """Bind every thread of this process, those that torch has started already too."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def rounds(act: Callable[[], object], seconds: float) -> float:
    """Return the median seconds that an action takes, repeated for so long."""
    act()
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < MIN_ROUNDS:
        start = time.perf_counter()
        act()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


# ---------------------------------------------------------------------- memory


def allocate_on(node: int | None) -> None:
    """Have memory that is touched from now on come from one node, or from where it is touched. A kernel that refuses is left alone."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return
    mask = (ctypes.c_ulong * WORDS_OF_NODES)()
    if node is not None:
        mask[node // 64] = 1 << node % 64
    _libc.syscall(number, MPOL_DEFAULT if node is None else MPOL_BIND, mask if node is not None else None, 64 * WORDS_OF_NODES)


def share_on_node(address: int, node: int) -> float:
    """Return the share of a mapping's pages that lie on a memory node: numa_maps(5) of the mapping that holds the address."""
    with open("/proc/self/numa_maps") as file:
        mappings = [(int(line.split(" ", 1)[0], 16), line.split()) for line in file]
    _, words = max(mapping for mapping in mappings if mapping[0] <= address)
    pages = {word.partition("=")[0]: int(word.partition("=")[2]) for word in words if word[0] == "N" and word[1:2].isdigit()}
    return pages.get(f"N{node}", 0) / max(1, sum(pages.values()))


def check_place(address: int, node: int | None) -> None:
    """Raise RuntimeError where memory does not lie on the node that was asked for."""
    if node is not None and share_on_node(address, node) < 0.9:
        raise RuntimeError(f"the kernel gave memory of other nodes than {node}")


def copy(asked: Arguments) -> Rate:
    """Copy memory by the C library, a thread a CPU, each its own part; both what is read and what is written counts, in bytes."""
    cpus = sorted(of_list(asked["cpus"]))
    part = asked["bytes"] // len(cpus) // mmap.PAGESIZE * mmap.PAGESIZE
    node = asked.get("node")
    allocate_on(node)
    whole = mmap.mmap(-1, 2 * part * len(cpus))
    start_of = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    ready, go = threading.Barrier(len(cpus) + 1), threading.Barrier(len(cpus) + 1)
    took: list[float] = []

    def one(number: int) -> None:
        allocate_on(node)
        source = start_of + 2 * part * number
        if asked.get("near"):
            os.sched_setaffinity(0, of_list(asked["near"]))
        ctypes.memset(source, 1, 2 * part)
        os.sched_setaffinity(0, {cpus[number]})
        ready.wait()
        go.wait()
        took.append(rounds(lambda: _memmove(source + part, source, part), asked["seconds"]))

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(cpus))]
    for thread in threads:
        thread.start()
    ready.wait()
    check_place(start_of, node)
    go.wait()
    for thread in threads:
        thread.join()
    allocate_on(None)
    return sum(2 * part / seconds for seconds in took), ""


def triad(asked: Arguments) -> Rate:
    """Return the bytes a second of STREAM's triad, a = b + 3 c, on a CPU's memory or a GPU's: two arrays read, one written."""
    import torch

    device, node = asked.get("device", "cpu"), asked.get("node")
    if device == "cpu":
        bind(of_list(asked.get("near") or asked["cpus"]))
        torch.set_num_threads(len(of_list(asked["cpus"])))
        allocate_on(node)
    arrays = [torch.full((asked["bytes"] // 3 // 8,), 1.0, dtype=torch.float64, device=device) for _ in range(3)]
    if device == "cpu":
        allocate_on(None)
        for array in arrays:
            check_place(array.data_ptr(), node)
        bind(of_list(asked["cpus"]))
    into, first, second = arrays
    finish = synchronize(device)

    def act() -> None:
        torch.add(first, second, alpha=3.0, out=into)
        finish()

    return 3 * first.numel() * 8 / rounds(act, asked["seconds"]), ""


# ---------------------------------------------------------------------- products, copies to a GPU, sums over ranks


def synchronize(device: str) -> Callable[[], object]:
    """Return what waits for a device; nothing for a CPU."""
    import torch

    return (lambda: torch.cuda.synchronize(device)) if device.startswith("cuda") else (lambda: None)


def matmul(asked: Arguments) -> Rate:
    """Return the floating-point operations a second of a product of two square matrices, as large as makes it last a while."""
    import torch

    device, dtype = asked.get("device", "cpu"), asked["dtype"]
    if device == "cpu":
        bind(of_list(asked["cpus"]))
        torch.set_num_threads(len(of_list(asked["cpus"])))
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    kind, finish = torch.float32 if dtype == "tf32" else getattr(torch, dtype), synchronize(device)
    key = json.dumps([device, dtype, asked.get("cpus")])
    if key not in _kept:
        _kept[key] = _size_for(lambda size: _once(size, device, kind, dtype, finish), device, len(of_list(asked.get("cpus", "0"))))
    size = _kept[key]
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    return 2 * size**3 / rounds(_product(a, b, dtype, finish), asked["seconds"]), f"{size} × {size}"


def _size_for(took: Callable[[int], float], device: str, cores: int) -> int:
    """Return the size of matrices: smaller than usual where the processor has no fast way to multiply them."""
    size = GPU if device.startswith("cuda") else MANY_CORES if cores >= CORES_FOR_MORE else USUAL
    small_s = took(SMALL)
    while size > SMALL and small_s * (size / SMALL) ** 3 > MAX_MATMUL_S:
        size //= 2
    return size


def _once(size: int, device: str, kind: torch.dtype, dtype: str, finish: Callable[[], object]) -> float:
    """Return the seconds of one product, the fastest of three."""
    import torch

    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    act, took = _product(a, b, dtype, finish), []
    for _ in range(3):
        start = time.perf_counter()
        act()
        took.append(time.perf_counter() - start)
    return min(took)


def _product(a: torch.Tensor, b: torch.Tensor, dtype: str, finish: Callable[[], object]) -> Callable[[], None]:
    """Return what multiplies two matrices once."""
    import torch

    if not dtype.startswith("float8"):
        into = torch.empty_like(a)

        def act() -> None:
            torch.mm(a, b, out=into)
            finish()

        return act
    scale, columns = torch.ones((), device=a.device), b.t().contiguous().t()

    def act8() -> None:
        torch._scaled_mm(a, columns, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)  # noqa: SLF001 - what fp8 layers call
        finish()

    return act8


def transfer(asked: Arguments) -> Rate:
    """Return the bytes a second of copies between memory, pinned or not, and a GPU."""
    import torch

    if asked.get("cpus"):
        bind(of_list(asked["cpus"]))
    there = torch.zeros(asked["bytes"] // 4, device=asked["device"])
    here = torch.ones(asked["bytes"] // 4)
    here = here.pin_memory() if asked["pinned"] else here
    source, target = (here, there) if asked["to"] == "device" else (there, here)
    finish = synchronize(asked["device"])

    def act() -> None:
        target.copy_(source, non_blocking=asked["pinned"])
        finish()

    return asked["bytes"] / rounds(act, asked["seconds"]), ""


def joined(asked: Arguments) -> str:
    """Meet the other ranks, once, and return the device of this one."""
    import datetime

    import torch
    from torch import distributed

    device = f"cuda:{asked.get('gpu', asked['rank'])}" if asked["backend"] == "nccl" else "cpu"
    if device == "cpu":
        bind(of_list(asked["cpus"]))
        torch.set_num_threads(1)
    if not distributed.is_initialized():
        within = {"timeout": datetime.timedelta(seconds=asked["within"])} if "within" in asked else {}
        if "partner" in asked:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank that waits for another machine does not read its input
            if os.getppid() != _kept["parent"]:
                os._exit(1)  # who asked was killed meanwhile
            lead_gloo_to(asked["partner"])
        distributed.init_process_group(asked["backend"], init_method=asked["init"], rank=asked["rank"], world_size=asked["ranks"], **within)
    return device


def lead_gloo_to(partner: str) -> None:
    """Have gloo use the interface that leads to another machine: by itself it takes that of this host's name, often the loopback."""
    family, _, _, _, address = socket.getaddrinfo(partner, 9, type=socket.SOCK_DGRAM)[0]
    if family != socket.AF_INET or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if answer[20:24] == own or (own[0] == answer[20] == LOOPBACK):
                    os.environ["GLOO_SOCKET_IFNAME"] = name


def together(act: Callable[[], object], device: str, seconds: float) -> float:
    """Return the median seconds of what all ranks do, as often on each."""
    import torch
    from torch import distributed

    finish = synchronize(device)

    def took() -> float:
        start = time.perf_counter()
        act()
        finish()
        return time.perf_counter() - start

    took()
    longest = torch.tensor([took()], device=device)
    distributed.all_reduce(longest, op=distributed.ReduceOp.MAX)
    return statistics.median(took() for _ in range(max(MIN_ROUNDS, min(100, int(seconds / float(longest))))))


def all_reduce(asked: Arguments) -> Rate:
    """Return the bytes a second that each rank moves in an all-reduce, 2 (n - 1) / n times its buffer, as nccl-tests count."""
    import torch
    from torch import distributed

    device, ranks = joined(asked), asked["ranks"]
    buffer = torch.ones(asked["bytes"] // 4, device=device)
    took = together(lambda: distributed.all_reduce(buffer, op=distributed.ReduceOp.MAX), device, asked["seconds"])
    return 2 * (ranks - 1) / ranks * asked["bytes"] / took, ""


def send_recv(asked: Arguments) -> Rate:
    """Return the bytes a second that go from one of two ranks to the other and back."""
    import torch
    from torch import distributed

    device, rank = joined(asked), asked["rank"]
    buffer = torch.ones(asked["bytes"] // 4, device=device)

    def act() -> None:
        for sender in (0, 1):
            (distributed.send if rank == sender else distributed.recv)(buffer, 1 - rank)

    return 2 * asked["bytes"] / together(act, device, asked["seconds"]), ""


# ---------------------------------------------------------------------- storage


def _removed_at_end(folder: str) -> str:
    _kept.setdefault("folders", set()).add(folder)
    return folder


def _written(path: str, size: int) -> None:
    with open(path, "xb") as file:  # never what somebody else has put there
        file.writelines(os.urandom(READ_BYTES) for _ in range(size // READ_BYTES))
        file.write(os.urandom(size % READ_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _dropped(path: str) -> int:
    """Open a file whose pages are dropped."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return descriptor


def _is_cached(descriptor: int) -> bool | None:
    """Return whether the beginning of a file is in memory; None where the file system does not say."""
    try:
        return os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return None


def _are_cached(descriptors: list[int]) -> bool | None:
    """Return whether most of these files are in memory; None where nobody knows. Closes them."""
    known = [_is_cached(descriptor) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    return None if None in known else sum(map(bool, known)) > len(known) / 2


def _remark(cached: bool | None) -> str:
    return {True: "not cold: this file system keeps pages that it was asked to drop", None: "whether it was cold is not known"}.get(
        cached, ""
    )


def big_file(asked: Arguments) -> Rate:
    """Return the bytes a second of reading one large file from its beginning, its pages dropped before."""
    path = f"{_removed_at_end(asked['folder'])}/big"
    if not os.path.exists(path):
        _written(path, asked["bytes"])
    descriptor = _dropped(path)
    try:
        remark, total = _remark(_is_cached(descriptor)), 0
        start = time.perf_counter()
        while (part := len(os.read(descriptor, READ_BYTES))) and time.perf_counter() - start < MAX_FILES_S:
            total += part
        return total / (time.perf_counter() - start), remark
    finally:
        os.close(descriptor)


def many_files(asked: Arguments) -> Rate:
    """Return the files a second of reading small files in random order by several threads; pages dropped before, unless asked warm."""
    folder = _removed_at_end(asked["folder"])
    names = [f"{folder}/{number:05}" for number in range(asked["files"])]
    for name in names:
        if not os.path.exists(name):
            _written(name, SMALL_FILE_BYTES)
    remark = ""
    if asked["cold"]:
        remark = _remark(_are_cached([_dropped(name) for name in names]))
    else:
        for name in names:
            _read_whole(name)
    random.shuffle(names)
    todo, lock, done = iter(names), threading.Lock(), []
    end = time.perf_counter() + MAX_FILES_S

    def reader() -> None:
        while time.perf_counter() < end:
            with lock:
                name = next(todo, None)
            if name is None:
                return
            _read_whole(name)
            done.append(name)

    threads = [threading.Thread(target=reader, daemon=True) for _ in range(asked["readers"])]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done) / (time.perf_counter() - start), remark


def _read_whole(name: str) -> None:
    with open(name, "rb", buffering=0) as file:
        while file.read(READ_BYTES):
            pass


# ---------------------------------------------------------------------- decoding, starting


def pictures() -> list[bytes]:
    """Return photograph-like JPEG files of 500 x 375: smooth shapes, texture and noise, always the same."""
    from PIL import Image, ImageFilter

    if "pictures" not in _kept:
        drawn = random.Random(0)  # noqa: S311 - content, no secret
        _kept["pictures"] = []
        for _ in range(8):
            rough, fine = (Image.frombytes("RGB", size, drawn.randbytes(3 * size[0] * size[1])) for size in ((20, 15), (250, 188)))
            shapes = rough.resize(PICTURE, Image.Resampling.BICUBIC)
            texture = fine.resize(PICTURE, Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(0.6))
            file = io.BytesIO()
            Image.blend(shapes, texture, 0.35).save(file, "JPEG", quality=90)
            _kept["pictures"].append(file.getvalue())
    return list(_kept["pictures"])


def decode(asked: Arguments) -> Rate:
    """Return the pictures a second that so many processes decode, each its own, as loader workers do."""
    from PIL import Image

    files = pictures()
    bind(of_list(asked["cpus"]))
    reads = []
    for _ in range(asked["processes"]):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                count, start = 0, time.perf_counter()
                while (took := time.perf_counter() - start) < asked["seconds"] or not count:
                    Image.open(io.BytesIO(files[count % len(files)])).convert("RGB")
                    count += 1
                os.write(write, struct.pack("d", count / took))
            finally:
                os._exit(0)
        os.close(write)
        reads.append(read)
    rates = [os.read(read, 8) for read in reads]
    for read in reads:
        os.close(read)
        os.wait()
    if any(len(rate) < 8 for rate in rates):
        raise RuntimeError("a process that decoded did not end well")
    size = sum(map(len, files)) // len(files)
    return sum(struct.unpack("d", rate)[0] for rate in rates), f"JPEG files of {size >> 10} KiB, {PICTURE[0]} × {PICTURE[1]}"


def start(asked: Arguments) -> Rate:
    """Return how often a second a program starts and ends, one after the other."""
    path = shutil.which(asked["argv"][0]) or asked["argv"][0]

    def act() -> None:
        os.waitpid(os.posix_spawn(path, asked["argv"], os.environ), 0)

    return 1 / rounds(act, asked["seconds"]), ""


def about(_: Arguments) -> Arguments:
    """Return what decides the figures: versions of Python, torch and the decoder. Imports torch where it is."""
    found = {"python": platform.python_version()}
    try:
        import torch

        found["torch"] = str(torch.__version__)
    except Exception as error:  # noqa: BLE001 - a broken torch may raise anything, and is named
        found["no torch"] = f"{type(error).__name__}: {error}"[:200]
    try:
        import PIL
        from PIL import features

        found["decoder"] = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}"
    except Exception as error:  # noqa: BLE001 - as above
        found["no decoder"] = f"{type(error).__name__}: {error}"[:200]
    return found


TASKS = {task.__name__: task for task in (copy, triad, matmul, transfer, all_reduce, send_recv, big_file, many_files, decode, start)}


def cpu_s() -> float:
    """Return the CPU time of this process and its children that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def answered(request: Arguments) -> Arguments:
    """Do what a request asks; what goes wrong is the answer."""
    before = cpu_s()
    try:
        if request["task"] == "about":
            return {"about": about(request)}
        rate, remark = TASKS[request["task"]](request)
    except Exception as error:  # noqa: BLE001 - torch raises what it likes, and one ceiling less is no reason to end
        return {"problem": f"{type(error).__name__}: {error}"[:400]}
    finally:
        os.sched_setaffinity(0, _kept["allowed"])
    return {"rate": rate, "remark": remark, "cpu_s": cpu_s() - before}


def requests() -> Iterator[Arguments]:
    """Return the requests, until the input ends."""
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    """Answer requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides what Ctrl-C means, and closes our input
    _kept["allowed"], _kept["parent"] = os.sched_getaffinity(0), os.getppid()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    with contextlib.suppress(BrokenPipeError):
        for request in requests():
            answers.write(json.dumps(answered(request)) + "\n")
            answers.flush()
    for folder in _kept.get("folders", ()):  # where whoever asked was killed, nobody else removes it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # not held up by threads of a library


if __name__ == "__main__":
    main()

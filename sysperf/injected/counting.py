"""Counts training steps inside the measured program.

It sees only the standard library and, once the program has imported it, torch. It waits for `torch.optim.optimizer`, whose
public global hook is called after each step:
https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html
Each process writes the times of its steps to a file of its own; nothing is printed, and no error of ours reaches the program.
It keeps some of the losses that `Tensor.backward` was called on, and reads the values of the last ones when the program ends.

For `sysperf tune` and launch profiles it also sets what no variable of torch's sets: inter-op threads, and workers and prefetch of
loaders that have workers.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("SYSPERF_PROBE_FOLDER", "")
MAX_STEPS = int(os.environ.get("SYSPERF_PROBE_MAX_STEPS", "0") or 0)
RUN_S = float(os.environ.get("SYSPERF_PROBE_RUN_S", "0") or 0)
AGREED = f"{FOLDER}/agreed"
"""How many steps each process makes, once the first one has made steps for half of RUN_S."""
MIN_AGREED_STEPS = 12
FORWARD = os.environ.get("SYSPERF_PROBE_COUNTS", "") == "forward"
INTEROP_THREADS, LOADER_WORKERS, LOADER_PREFETCH = (
    int(os.environ.get(f"SYSPERF_SET_{name}", "0") or 0) for name in ("INTEROP_THREADS", "LOADER_WORKERS", "LOADER_PREFETCH")
)
ROOM_STEPS = 8_192
ROOM_BYTES = 8 * ROOM_STEPS
"""A multiple of every size of pages."""
MAX_LOSSES, LAST_LOSSES = 48, 16
"""How many losses are kept, spread over all backward passes, and of how many of the last of these the mean is told."""
OfTorch = Any  # any: torch is not imported here, and not known to whoever checks types
Action = Callable[[ModuleType], object]
"""What is done with a module of torch once it is imported."""


class Calls(threading.local):
    """How many modules call each other at this moment in a thread."""

    depth = 0


class Steps:
    """The times of this process's steps, written to its file as they are made, however the process ends.

    In each step of an optimizer one function of ours runs, which calls no other of ours: `benchmarks/verify.py probe` says what it costs.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Have no steps and no losses."""
        self.times: memoryview[float] | array[float] | WrittenTimes = array("d")
        self.room = self.index = 0
        self.goal = self.left = MAX_STEPS or (1 if RUN_S else sys.maxsize)
        self.began: float | None = None
        self.is_agreed = not RUN_S or bool(MAX_STEPS)
        self.is_ending = False
        self.lock = threading.RLock()  # a handler of a signal may call the model, too
        self.calls = Calls()
        self.first: int | None = None
        self.thread = 0
        self.followed: object = None
        self.others: dict[int, float] = {}
        self.losses = Losses()

    def forget(self) -> None:
        """Start anew in a forked child, whose parent writes its own steps."""
        self.start()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:  # its children leave by os._exit, which runs no atexit handler but these finalizers
            processes.register_after_fork(self, lambda steps: processes.Finalize(None, steps.write_loss, exitpriority=0))

    def step(self, optimizer: object, _arguments: object, _keywords: object) -> None:
        """Count a step of the first optimizer that makes one: a program with two makes one step with both."""
        now = monotonic()
        if id(optimizer) != self.first:
            if not self.follows(optimizer, now):
                return
        elif self.others:
            self.others = {}
        if self.index == self.room:
            self.make_room()
        self.times[self.index] = now
        self.index += 1
        self.left -= 1
        if self.left <= 0:
            self.end()

    def follows(self, optimizer: object, now: float) -> bool:
        """Whether another optimizer is counted from now on: it made two steps while the one before made none, or that one is gone.

        One of another thread is not, while that one lives: which of both steps first is chance there.
        """
        number, thread = id(optimizer), threading.get_ident()
        earlier = self.others.get(number)
        if self.first is not None and (earlier is None or thread != self.thread):
            self.others[number] = now
            return False
        if earlier is not None and self.left > 1:
            self.record(earlier)
        self.first, self.thread, self.others = number, thread, {}
        self.followed = weakref.ref(optimizer, self.lose)
        return True

    def lose(self, reference: object) -> None:
        """Follow no optimizer: the one that was counted is gone, and another one may get its address."""
        if reference is self.followed:
            self.first = None

    def enter(self, _module: object, _arguments: object) -> None:
        """Count the calls of modules inside modules."""
        self.calls.depth += 1

    def leave(self, _module: object, _arguments: object, result: object) -> None:
        """Count a step when the outermost module of a thread returns, and none when it raises."""
        calls = self.calls
        calls.depth -= 1
        if calls.depth > 0:
            return
        calls.depth = 0
        if result is None and sys.exc_info()[0] is not None:
            return
        with self.lock:
            self.record(monotonic())
        if self.left <= 0:
            self.end()

    def record(self, time: float) -> None:
        """Write when a step ended."""
        if self.index == self.room:
            self.make_room()
        self.times[self.index] = time
        self.index += 1
        self.left -= 1

    def make_room(self) -> None:
        self.times, self.index, self.room = room_for_times(f"{FOLDER}/{os.getpid()}.steps"), 0, ROOM_STEPS

    def goes_on(self) -> bool:
        """Whether a run that is to last for so long needs more steps, and how many until this is asked again.

        Ranks wait for each other in each step, so all of them must make as many: the first one that has made steps for half of the
        time, which begins after its first step, says twice as many, long before any other has made them.
        """
        made, now = self.goal - self.left, monotonic()
        self.began = self.began or now
        if now - self.began >= RUN_S / 2:
            agree(max(2 * made, MIN_AGREED_STEPS))
        agreed = agreed_steps()
        self.is_agreed = agreed > 0
        self.goal = agreed or made + 1
        self.left = self.goal - made
        return self.left > 0

    def end(self) -> None:
        """End the program as `sys.exit()` does; at once where that ends a thread alone, and where the program goes on all the same."""
        if not self.is_agreed and self.goes_on():
            return
        if threading.current_thread() is threading.main_thread() and not self.is_ending:
            self.is_ending, self.times = True, array("d", bytes(ROOM_BYTES))  # what it does from now on is not counted
            raise SystemExit(0)
        self.losses.write()
        sys.stdout.flush()
        os._exit(0)

    def watch_losses(self, module: ModuleType) -> None:
        """Count the calls of `Tensor.backward`, and keep the tensor of some: losses, where they are single numbers."""
        backward = module.Tensor.backward

        @functools.wraps(backward)
        def watched(tensor: OfTorch, *arguments: object, **keywords: object) -> object:
            losses = self.losses
            losses.until_next -= 1
            if not losses.until_next:
                losses.keep(tensor)
            return backward(tensor, *arguments, **keywords)

        module.Tensor.backward = watched

    def write_loss(self) -> None:
        """Write the mean of the last losses of this process."""
        self.losses.write()


IN_PLACE = frozenset({b"tmpfs", b"ext2", b"ext3", b"ext4", b"xfs"})
"""File systems that overwrite what is reserved where it is. On others (btrfs, ZFS, overlays) a page that is written again needs new room:
where the disk is full by then, a mapped page ends the program by SIGBUS, although posix_fallocate had given it."""


class WrittenTimes:
    """Room at the end of a file that is written step by step: a write that finds no room fails, and ends nothing."""

    def __init__(self, path: str) -> None:
        self.path = path
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.start = reserved(file)
        finally:
            os.close(file)

    def __setitem__(self, index: int, time: float) -> None:
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)  # none stays open that the program might close, or count
            try:
                os.pwrite(file, array("d", (time,)).tobytes(), self.start + 8 * index)
            finally:
                os.close(file)
        except OSError:  # a full disk, a folder that is gone: the step is not counted
            return


def room_for_times(path: str) -> memoryview[float] | array[float] | WrittenTimes:
    """Return room at the end of a file, which keeps what is written even when the process is killed; where there is none, in memory."""
    try:
        return mapped(path) if is_overwritten_in_place(os.path.dirname(path)) else WrittenTimes(path)
    except Exception:  # noqa: BLE001 - a full disk, a folder that is gone: nothing of ours may reach the program
        return array("d", bytes(ROOM_BYTES))


def is_overwritten_in_place(folder: str) -> bool:
    """Whether what is reserved there can be written again and again on a full disk. Raises OSError."""
    device = os.stat(folder).st_dev
    number = b"%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", "rb") as mounts:
        words = (line.split() for line in mounts)
        return any(line[2] == number and line[line.index(b"-", 6) + 1] in IN_PLACE for line in words)


def reserved(file: int) -> int:
    """Reserve room at the end of a file, and return where it begins. Raises OSError."""
    start = -(-os.fstat(file).st_size // ROOM_BYTES) * ROOM_BYTES  # a program that ran exec has steps there
    os.posix_fallocate(file, start, ROOM_BYTES)
    return start


def mapped(path: str) -> memoryview[float]:
    """Map reserved room at the end of a file: a full disk is met here, and not by a signal in the middle of a step. Raises OSError.

    Python's own mmap would hold a descriptor open, and close it some day, whatever file the program has under that number by then.
    """
    import ctypes  # noqa: PLC0415 - torch has loaded it
    import mmap  # noqa: PLC0415 - for its constants

    map_file = ctypes.CDLL(None).mmap
    map_file.restype = ctypes.c_void_p
    map_file.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        start = reserved(file)
        address = map_file(None, ROOM_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, start)
    finally:
        os.close(file)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(path)
    return memoryview((ctypes.c_char * ROOM_BYTES).from_address(address)).cast("B").cast("d")


def agree(steps: int) -> None:
    """Write how many steps each process makes, where none has written it yet."""
    try:
        own = f"{AGREED}.{os.getpid()}"
        with open(own, "w", encoding="ascii") as file:
            file.write(str(steps))
        os.link(own, AGREED)
    except OSError:  # another one was first; without a folder the run ends by itself
        return


def agreed_steps() -> int:
    """How many steps each process makes; 0 while nobody has said it."""
    try:
        with open(AGREED, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


class Losses:
    """A sample of the losses, spread evenly: which backward passes it holds follows from their number alone, and so is that of any run.

    To touch a tensor in each pass would cost more than to count the step. Each time the sample is full, every third one stays, and of
    the passes from then on a third of as many as before is kept: an odd share, since programs with two losses take them in turn.
    """

    def __init__(self) -> None:
        self.until_next = self.distance = 1
        self.passes = 0
        self.tensors: list[OfTorch] = []

    def keep(self, tensor: OfTorch) -> None:
        self.passes += self.distance
        if tensor.numel() == 1:
            self.tensors.append(tensor.detach())
        if self.passes >= self.distance * MAX_LOSSES:
            self.tensors = self.tensors[2::3]
            self.distance *= 3
        self.until_next = self.distance

    def write(self) -> None:
        """Write the mean of the last ones that are kept; a loss that cannot be read any more is none."""
        last = self.tensors[-LAST_LOSSES:]
        if not last:
            return
        try:
            mean = sum(float(loss) for loss in last) / len(last)
            with open(f"{FOLDER}/{os.getpid()}.loss", "w", encoding="ascii") as file:
                file.write(f"{self.passes} {mean!r}")
        except Exception:  # noqa: BLE001 - a device that is gone, a full disk: nothing of ours may reach the program
            return


class Watcher(importlib.abc.MetaPathFinder):
    """Acts on modules of torch right after the program has imported them; costs nothing before."""

    def __init__(self, actions: Mapping[str, Action]) -> None:
        self.actions = dict(actions)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.actions:
            return None
        action = self.actions.pop(name)
        if not self.actions:
            sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = ActingLoader(spec.loader, action)
        return spec


class ActingLoader(importlib.abc.Loader):
    """The module's own loader, and then our action."""

    def __init__(self, loader: importlib.abc.Loader, action: Action) -> None:
        self.loader, self.action = loader, action

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        try:
            self.action(module)
        except Exception:  # noqa: BLE001 - an old torch without such hooks: no step is counted, and sysperf says so
            return


def set_interop_threads(torch: ModuleType) -> None:
    torch.set_num_interop_threads(INTEROP_THREADS)


def set_loaders(module: ModuleType) -> None:
    """Loaders that have workers get as many, and as many batches ahead, as was asked for; one without workers stays without."""
    original = module.DataLoader.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(*arguments: object, **keywords: object) -> None:
        bound = signature.bind(*arguments, **keywords)
        if bound.arguments.get("num_workers"):
            bound.arguments.update({"num_workers": LOADER_WORKERS} if LOADER_WORKERS else {})
            bound.arguments.update({"prefetch_factor": LOADER_PREFETCH} if LOADER_PREFETCH else {})
        original(*bound.args, **bound.kwargs)

    module.DataLoader.__init__ = init


def count() -> dict[str, Action]:
    """Count steps and keep losses; return what to do with which module for that."""
    steps = Steps()
    atexit.register(steps.write_loss)
    os.register_at_fork(after_in_child=steps.forget)
    if not FORWARD:
        hook: dict[str, Action] = {"torch.optim.optimizer": lambda module: module.register_optimizer_step_post_hook(steps.step)}
        return {**hook, "torch._tensor": steps.watch_losses}

    def watch_calls(module: ModuleType) -> None:
        module.register_module_forward_pre_hook(steps.enter)
        try:
            module.register_module_forward_hook(steps.leave, always_call=True)
        except TypeError:  # before torch 2.1, where it is not called when a module raises
            module.register_module_forward_hook(steps.leave)

    return {"torch.nn.modules.module": watch_calls}


def start() -> None:
    actions = count() if FOLDER else {}
    if INTEROP_THREADS:
        actions["torch"] = set_interop_threads
    if LOADER_WORKERS or LOADER_PREFETCH:
        actions["torch.utils.data.dataloader"] = set_loaders
    if actions:
        sys.meta_path.insert(0, Watcher(actions))


start()

"""Counts training steps inside the measured program: Python imports this at start, because its folder is on PYTHONPATH.

It sees only the standard library and, once the program has imported it, torch. It first runs the sitecustomize that it hides,
then waits for `torch.optim.optimizer`, whose public global hook is called after each step:
https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html
Each process writes the times of its steps to a file of its own; nothing is printed, and no error of ours reaches the program.
It keeps the last losses that `Tensor.backward` was called on, and reads their values when the program ends.

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
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("SYSPERF_PROBE_FOLDER", "")
MAX_STEPS = int(os.environ.get("SYSPERF_PROBE_MAX_STEPS", "0") or 0)
FORWARD = os.environ.get("SYSPERF_PROBE_COUNTS", "") == "forward"
INTEROP_THREADS, LOADER_WORKERS, LOADER_PREFETCH = (
    int(os.environ.get(f"SYSPERF_SET_{name}", "0") or 0) for name in ("INTEROP_THREADS", "LOADER_WORKERS", "LOADER_PREFETCH")
)
FLUSH_S = 1.0
LAST_LOSSES = 20
Action = Callable[[ModuleType], object]
"""What is done with a module of torch once it is imported."""


def run_hidden_sitecustomize() -> None:
    """Import the sitecustomize of the environment or the distribution, which ours hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class Steps:
    """The times of this process's steps, kept in memory and appended to its file once a second and at its end."""

    def __init__(self) -> None:
        self.times = array("d")
        self.count = 0
        self.flushed = time.monotonic()
        self.first: int | None = None
        self.depth = 0
        self.losses: deque[Any] = deque(maxlen=LAST_LOSSES)
        self.backward_passes = 0

    def forget(self) -> None:
        """Start anew in a forked child, whose parent writes its own steps."""
        self.times = array("d")
        self.count, self.first, self.depth = 0, None, 0
        self.losses.clear()
        self.backward_passes = 0
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:  # its children leave by os._exit, which runs no atexit handler but these finalizers
            processes.register_after_fork(self, lambda steps: processes.Finalize(None, steps.flush, exitpriority=0))

    def step(self, optimizer: object, _arguments: object, _keywords: object) -> None:
        """Count a step of the first optimizer that makes one: a program with two makes one step with both."""
        if self.first is None:
            self.first = id(optimizer)
        if id(optimizer) == self.first:
            self.add()

    def enter(self, _module: object, _arguments: object) -> None:
        """Count the calls of modules inside modules."""
        self.depth += 1

    def leave(self, _module: object, _arguments: object, _result: object) -> None:
        """Count a step when the outermost module returns."""
        self.depth -= 1
        if self.depth <= 0:
            self.depth = 0
            self.add()

    def add(self) -> None:
        now = time.monotonic()
        self.times.append(now)
        self.count += 1
        if now - self.flushed > FLUSH_S:
            self.flush()
        if MAX_STEPS and self.count >= MAX_STEPS:
            self.end()

    def end(self) -> None:
        """End the program as `sys.exit()` does; from another thread than the main one, where that would end the thread alone, at once."""
        self.flush()
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(0)
        self.write_loss()
        sys.stdout.flush()
        os._exit(0)

    def watch_loss(self, module: ModuleType) -> None:
        """Keep the tensors that `backward` is called on: losses, where they are single numbers. Their values are read at the end."""
        backward = module.Tensor.backward

        @functools.wraps(backward)
        def watched(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if tensor.numel() == 1:
                self.losses.append(tensor.detach())
                self.backward_passes += 1
            return backward(tensor, *arguments, **keywords)

        module.Tensor.backward = watched

    def write_loss(self) -> None:
        """Write the mean of the last losses; a loss that cannot be read any more is none."""
        if not self.losses:
            return
        try:
            mean = sum(float(loss) for loss in self.losses) / len(self.losses)
            with open(f"{FOLDER}/{os.getpid()}.loss", "w", encoding="ascii") as file:
                file.write(f"{self.backward_passes} {mean!r}")
        except Exception:  # noqa: BLE001 - a device that is gone, a full disk: nothing of ours may reach the program
            return

    def flush(self) -> None:
        """Append what is new to the file; a full disk loses steps, and never stops the program."""
        times, self.times, self.flushed = self.times, array("d"), time.monotonic()
        if times:
            try:
                with open(f"{FOLDER}/{os.getpid()}.steps", "ab") as file:
                    times.tofile(file)
            except OSError:
                pass


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

    def __getattr__(self, name: str) -> Any:
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
    def init(*arguments: Any, **keywords: Any) -> None:
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
    atexit.register(steps.flush)
    os.register_at_fork(before=steps.flush, after_in_child=steps.forget)
    if not FORWARD:
        hook: dict[str, Action] = {"torch.optim.optimizer": lambda module: module.register_optimizer_step_post_hook(steps.step)}
        return {**hook, "torch._tensor": steps.watch_loss}

    def watch_calls(module: ModuleType) -> None:
        module.register_module_forward_pre_hook(steps.enter)
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


run_hidden_sitecustomize()
start()

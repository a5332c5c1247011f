"""Counts training steps inside the measured program: Python imports this at start, because its folder is on PYTHONPATH.

It sees only the standard library and, once the program has imported it, torch. It first runs the sitecustomize that it hides,
then waits for `torch.optim.optimizer`, whose public global hook is called after each step:
https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html
Each process writes the times of its steps to a file of its own; nothing is printed, and no error of ours reaches the program.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("SYSPERF_PROBE_FOLDER", "")
MAX_STEPS = int(os.environ.get("SYSPERF_PROBE_MAX_STEPS", "0") or 0)
FORWARD = os.environ.get("SYSPERF_PROBE_COUNTS", "") == "forward"
FLUSH_S = 1.0
WATCHED = "torch.nn.modules.module" if FORWARD else "torch.optim.optimizer"


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

    def forget(self) -> None:
        """Start anew in a forked child, whose parent writes its own steps."""
        self.times = array("d")
        self.count, self.first, self.depth = 0, None, 0
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
            self.flush()
            raise SystemExit(0)

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
    """Hooks into the watched module of torch right after the program has imported it; costs nothing before."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = HookingLoader(spec.loader, self.steps)
        return spec


class HookingLoader(importlib.abc.Loader):
    """The module's own loader, and then our hooks."""

    def __init__(self, loader: importlib.abc.Loader, steps: Steps) -> None:
        self.loader, self.steps = loader, steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        try:
            if FORWARD:
                module.register_module_forward_pre_hook(self.steps.enter)
                module.register_module_forward_hook(self.steps.leave)
            else:
                module.register_optimizer_step_post_hook(self.steps.step)
        except Exception:  # noqa: BLE001 - an old torch without such hooks: no step is counted, and sysperf says so
            return


def start() -> None:
    steps = Steps()
    atexit.register(steps.flush)
    os.register_at_fork(before=steps.flush, after_in_child=steps.forget)
    sys.meta_path.insert(0, Watcher(steps))


run_hidden_sitecustomize()
if FOLDER:
    start()

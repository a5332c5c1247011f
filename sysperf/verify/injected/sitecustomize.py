"""Counts training steps inside the measured program: Python imports this at start, because its folder is on PYTHONPATH.

It sees only the standard library and, once the program has imported it, torch. It first runs the sitecustomize that it hides,
then waits for `torch.optim.optimizer`, whose public global hook is called after each step:
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
from array import array
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("SYSPERF_PROBE_FOLDER", "")
MAX_STEPS = int(os.environ.get("SYSPERF_PROBE_MAX_STEPS", "0") or 0)
FORWARD = os.environ.get("SYSPERF_PROBE_COUNTS", "") == "forward"
INTEROP_THREADS, LOADER_WORKERS, LOADER_PREFETCH = (
    int(os.environ.get(f"SYSPERF_SET_{name}", "0") or 0) for name in ("INTEROP_THREADS", "LOADER_WORKERS", "LOADER_PREFETCH")
)
FLUSH_S = 1.0
MAX_LOSSES, LAST_LOSSES = 48, 16
"""How many losses are kept, spread over all backward passes, and of how many of the last of these the mean is told."""
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
    """The times of this process's steps, kept in memory and appended to its file once a second and at its end.

    In each step one function of ours runs, which calls no other of ours: `benchmarks/verify.py probe` says what it costs.
    """

    def __init__(self) -> None:
        self.flush_at = monotonic() + FLUSH_S
        self.start()

    def start(self) -> None:
        """Have no steps and no losses."""
        self.times: list[float] = []
        self.left = MAX_STEPS or sys.maxsize
        self.first: int | None = None
        self.others: dict[int, float] = {}
        self.depth = 0
        self.losses = Losses()

    def forget(self) -> None:
        """Start anew in a forked child, whose parent writes its own steps."""
        self.start()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:  # its children leave by os._exit, which runs no atexit handler but these finalizers
            processes.register_after_fork(self, lambda steps: processes.Finalize(None, steps.flush, exitpriority=0))

    def step(self, optimizer: object, _arguments: object, _keywords: object) -> None:
        """Count a step of the first optimizer that makes one: a program with two makes one step with both."""
        now = monotonic()
        if id(optimizer) != self.first:
            if not self.follows(id(optimizer), now):
                return
        elif self.others:
            self.others = {}
        self.times.append(now)
        self.left -= 1
        if now > self.flush_at or self.left <= 0:
            self.flush_or_end()

    def follows(self, optimizer: int, now: float) -> bool:
        """Whether another optimizer is counted from now on: it made two steps while the one that was counted made none."""
        if self.first is not None and optimizer not in self.others:
            self.others[optimizer] = now
            return False
        if self.first is not None and self.left > 1:
            self.times.append(self.others[optimizer])
            self.left -= 1
        self.first, self.others = optimizer, {}
        return True

    def enter(self, _module: object, _arguments: object) -> None:
        """Count the calls of modules inside modules."""
        self.depth += 1

    def leave(self, _module: object, _arguments: object, _result: object) -> None:
        """Count a step when the outermost module returns."""
        self.depth -= 1
        if self.depth <= 0:
            self.depth = 0
            self.times.append(monotonic())
            self.left -= 1
            if self.times[-1] > self.flush_at or self.left <= 0:
                self.flush_or_end()

    def flush_or_end(self) -> None:
        """Write what is new; after the last step that was asked for, end the program."""
        self.flush()
        if self.left <= 0:
            self.end()

    def end(self) -> None:
        """End the program as `sys.exit()` does; from another thread than the main one, where that would end the thread alone, at once."""
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(0)
        self.losses.write()
        sys.stdout.flush()
        os._exit(0)

    def watch_losses(self, module: ModuleType) -> None:
        """Count the calls of `Tensor.backward`, and keep the tensor of some: losses, where they are single numbers."""
        backward = module.Tensor.backward

        @functools.wraps(backward)
        def watched(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            losses = self.losses
            losses.until_next -= 1
            if not losses.until_next:
                losses.keep(tensor)
            return backward(tensor, *arguments, **keywords)

        module.Tensor.backward = watched

    def write_loss(self) -> None:
        """Write the mean of the last losses of this process."""
        self.losses.write()

    def flush(self) -> None:
        """Append what is new to the file; a full disk loses steps, and never stops the program."""
        times, self.times, self.flush_at = self.times, [], monotonic() + FLUSH_S
        if times:
            try:
                with open(f"{FOLDER}/{os.getpid()}.steps", "ab") as file:
                    array("d", times).tofile(file)
            except OSError:
                pass


class Losses:
    """A sample of the losses, spread evenly: which backward passes it holds follows from their number alone, and so is that of any run.

    To touch a tensor in each pass would cost more than to count the step. Each time the sample is full, every third one stays, and of
    the passes from then on a third of as many as before is kept: an odd share, since programs with two losses take them in turn.
    """

    def __init__(self) -> None:
        self.until_next = self.distance = 1
        self.passes = 0
        self.tensors: list[Any] = []

    def keep(self, tensor: Any) -> None:
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
        return {**hook, "torch._tensor": steps.watch_losses}

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

"""Checkpoints that survive a kill at any moment, a full disk and flipped bits: a run that goes on makes the same losses.

A checkpoint is a folder ``step-00000050``. It is filled under another name and gets its own when all of it is on the disk, with the
checksum of each file. The last two are kept, so that there is one where the other turns out to be damaged.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.errors import TrainerError

KEPT = 2
SUMS = "checksums.json"
STATE = "state.pt"
DISTRIBUTED = ".metadata"
"""A file that torch.distributed.checkpoint leaves in its folders."""
State = Mapping[str, Any]  # any: numbers, tensors and what holds them


class Checkpoints:
    """The checkpoints in one folder."""

    def __init__(self, folder: str, chosen: Chosen) -> None:
        self.folder, self.chosen = folder, chosen
        self.writing: tuple[Future[object], int, str] | None = None
        self.written = 0
        self.failed = ""
        """Why the last one could not be written; empty: it could."""

    def save(self, step: int, state: State) -> None:
        """Write a checkpoint, or begin to. A failure is told and does not end the training, which goes on from memory."""
        self.wait()
        try:
            os.makedirs(self.folder, exist_ok=True)
            unfinished = tempfile.mkdtemp(prefix="unfinished.", dir=self.folder)
        except OSError as error:
            return self._fail(step, error)
        if "async-checkpoint" in self.chosen:
            from torch.distributed import checkpoint  # noqa: PLC0415 - for this rung only

            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # one process is what is meant
            future = checkpoint.async_save(dict(state), checkpoint_id=unfinished, **_alone(checkpoint.async_save))
            self.writing = (future, step, unfinished)
        else:
            self._finish(step, unfinished, lambda: torch.save(dict(state), f"{unfinished}/{STATE}"))
        return None

    def wait(self) -> None:
        """Wait for the checkpoint that is being written beside the steps."""
        if self.writing is not None:
            future, step, unfinished = self.writing
            self.writing = None
            self._finish(step, unfinished, future.result)

    def _finish(self, step: int, unfinished: str, write: Callable[[], object]) -> None:
        """Write, or wait until it is written; then give the checkpoint its name."""
        try:
            write()
            seal(unfinished)
            target = f"{self.folder}/step-{step:08}"
            shutil.rmtree(target, ignore_errors=True)
            os.rename(unfinished, target)
            _sync(self.folder)
        except (OSError, RuntimeError) as error:  # torch reports a full disk by RuntimeError
            shutil.rmtree(unfinished, ignore_errors=True)
            return self._fail(step, error)
        self.failed = ""
        self.written += 1
        for old in self.names()[KEPT:]:
            shutil.rmtree(f"{self.folder}/{old}", ignore_errors=True)
        return None

    def _fail(self, step: int, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        self.failed = f"the checkpoint of step {step} could not be written to {self.folder}: {reason}"
        sys.stderr.write(f"{self.failed}; training goes on\n")

    def names(self) -> list[str]:
        """Return the complete checkpoints, newest first."""
        try:
            return sorted((name for name in os.listdir(self.folder) if name.startswith("step-")), reverse=True)
        except OSError:
            return []

    def newest(self) -> State | None:
        """Return the newest state that is whole; None where there is no checkpoint. Raises TrainerError where all are damaged."""
        for name in self.names():
            path = f"{self.folder}/{name}"
            problem = damage(path)
            if not problem:
                return load(path)
            sys.stderr.write(f"{path}: {problem}; trying the one before\n")
        if self.names():
            raise TrainerError(f"no checkpoint in {self.folder} is whole; without --resume training begins anew")
        return None


def seal(folder: str) -> None:
    """Bring the files of a folder to the disk, and write down their checksums. Raises OSError."""
    sums = {name: _checksum(f"{folder}/{name}") for name in sorted(os.listdir(folder))}
    with open(f"{folder}/{SUMS}", "w", encoding="ascii") as file:
        json.dump(sums, file)
    for name in (*sums, SUMS, "."):
        _sync(f"{folder}/{name}")


def damage(folder: str) -> str:
    """Return what is wrong with a checkpoint's files; empty where nothing is."""
    try:
        with open(f"{folder}/{SUMS}", encoding="ascii") as file:
            sums = json.load(file)
        wrong = [name for name, checksum in sums.items() if _checksum(f"{folder}/{name}") != checksum]
    except (OSError, ValueError, AttributeError) as error:
        return f"it cannot be read ({error})"
    return f"{wrong[0]} is damaged" if wrong else ""


def load(folder: str) -> State:
    """Return the state in a checkpoint, whichever way it was written."""
    path = f"{folder}/{STATE}"
    if not os.path.exists(f"{folder}/{DISTRIBUTED}"):
        return torch.load(path, map_location="cpu", weights_only=True)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: PLC0415 - for such checkpoints only

    with tempfile.TemporaryDirectory() as scratch:
        dcp_to_torch_save(folder, f"{scratch}/{STATE}")
        return torch.load(f"{scratch}/{STATE}", map_location="cpu", weights_only=True)


def _alone(save: Callable[..., object]) -> dict[str, bool]:
    """Return the argument by which the first rank writes without the others, who have the same weights; torch 2.4 has none."""
    return {"no_dist": True} if "no_dist" in inspect.signature(save).parameters else {}


def _checksum(path: str) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _sync(path: str) -> None:
    """Have the kernel write a file or folder to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

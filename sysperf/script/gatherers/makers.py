"""The makers of data loaders: how each names its options, and what is said of them in a call."""

from __future__ import annotations

import ast
from typing import NamedTuple

from sysperf.script.file import File


class Maker(NamedTuple):
    """How a callable names its options, at which place they may stand, and their defaults."""

    workers: tuple[str, int, int] = ("num_workers", 5, 0)
    pin: tuple[str, int, bool] = ("pin_memory", 7, False)
    persistent: tuple[str, bool] = ("persistent_workers", False)
    prefetch: str = "prefetch_factor"


DATALOADER = Maker()
TIMM = Maker(("num_workers", 99, 1), ("pin_memory", 99, False), ("persistent_workers", True))
TRANSFORMERS = Maker(
    ("dataloader_num_workers", 99, 0),
    ("dataloader_pin_memory", 99, True),
    ("dataloader_persistent_workers", False),
    "dataloader_prefetch_factor",
)


def truth(file: File, call: ast.Call, name: str, place: int, default: bool) -> bool | None:
    """Return what a call gives for an option that is on or off, its default where it gives none; None where that is not known."""
    given = file.names.argument(call, name, place)
    if given is None:
        return None if file.names.is_open(call) else default
    value = file.names.constant(given)
    return value if isinstance(value, bool) else True if _is_of_a_gpu(file, given) else None


def _is_of_a_gpu(file: File, given: ast.expr) -> bool:
    """``device == "cuda"``, ``device.type != "cpu"``, ``torch.cuda.is_available()``: on wherever there is something to copy to."""
    if isinstance(given, ast.Call):
        return file.names.qualified(given.func) == "torch.cuda.is_available"
    if not isinstance(given, ast.Compare) or not isinstance(given.comparators[0], ast.Constant):
        return False
    told = (type(given.ops[0]), given.comparators[0].value)
    return told in ((ast.Eq, "cuda"), (ast.NotEq, "cpu"))

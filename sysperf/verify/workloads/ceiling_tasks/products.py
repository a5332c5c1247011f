"""Products of matrices, and copies between memory and a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .timing import KEPT, Arguments, Rate, bind, of_list, rounds, synchronize

if TYPE_CHECKING:
    import torch

SMALL, USUAL, MANY_CORES, GPU = 256, 2048, 4096, 8192
"""Sizes of matrices: to find out whether products of a type are slow, and those that are measured, always the same on a kind of machine."""
CORES_FOR_MORE, MAX_MATMUL_S = 16, 2.0


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
    if key not in KEPT:
        KEPT[key] = _size_for(lambda size: _once(size, device, kind, dtype, finish), device, len(of_list(asked.get("cpus", "0"))))
    size = KEPT[key]
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

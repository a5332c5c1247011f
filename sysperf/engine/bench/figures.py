"""What is measured on this machine: each figure with its request, and what its hardware should give."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sysperf.engine.bench import expected
from sysperf.engine.bench.expected import Expected
from sysperf.launch.cores import CoreMap
from sysperf.model.ceiling import Ceiling, Group
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import JsonObject

if TYPE_CHECKING:
    from sysperf.collect.gpu.records import Device
    from sysperf.engine.bench.machine import Machine
    from sysperf.launch.machine import MemoryNode

GROUPS: tuple[Group, ...] = ("memory", "matmul", "gpu", "storage", "decode", "start", "all-reduce")
OURS, TORCH, DECODER, RANKS = "ours", "torch", "decoder", "ranks"
"""What measures it: this interpreter, the user's with torch, the user's that decodes images, or several ranks with torch."""
CACHES_FACTOR, MIN_ARRAY_BYTES, MAX_ARRAY_BYTES = 4, 64 << 20, 1 << 30
MEMORY_SHARE = 16
"""At most this part of the free memory is touched."""
COPIED_BYTES, REDUCED_BYTES = 256 << 20, 64 << 20
BIG_FILE_BYTES, FILES = 128 << 20, 512
MAX_READERS = 16
GB, TERA = 1e9, 1e12
UNKNOWN = Expected(None, "")
"""Where nothing says what the hardware should give."""


class Figure(NamedTuple):
    """A ceiling before it is measured."""

    ceiling: Ceiling
    worker: str
    request: JsonObject
    scale: float = 1.0
    """A worker's rate divided by this is in the ceiling's unit."""


def planned(machine: Machine, folder: str) -> list[Figure]:
    """All figures that this machine can have; `folder` is where files are written."""
    of_groups = (
        _memory(machine), _matmul(machine), _gpus(machine), _storage(machine, folder), _decode(machine), _start(machine), _ranks(machine),
    )  # fmt: skip
    return list(itertools.chain.from_iterable(of_groups))


def _figure(
    name: str, group: Group, what: str, unit: str, worker: str, request: JsonObject, hardware: Expected = UNKNOWN, scale: float = 1.0
) -> Figure:
    most = None if hardware.value is None else hardware.value / scale
    return Figure(Ceiling(metric=name, group=group, what=what, unit=unit, expected=most, basis=hardware.basis), worker, request, scale)


def _one_a_core(machine: Machine, cpus: CpuSet) -> CpuSet:
    """One CPU of each physical core."""
    return CpuSet(core.first() or 0 for core in CoreMap(machine.placement, machine.allowed).computing(cpus))


def _array_bytes(machine: Machine) -> int:
    """Return four times the caches, as STREAM asks."""
    cpu = machine.facts.cpu
    caches = (cpu.l3_bytes or 0) * max(1, len(cpu.l3_domains or ())) if cpu else 0
    free = machine.facts.memory.available_bytes if machine.facts.memory else None
    wanted = min(MAX_ARRAY_BYTES, max(MIN_ARRAY_BYTES, CACHES_FACTOR * caches))
    return wanted if free is None else max(1 << 20, min(wanted, free // MEMORY_SHARE // 3))


def _memory(machine: Machine) -> Iterator[Figure]:
    nodes = machine.nodes
    size = _array_bytes(machine)
    hardware = expected.memory_bytes(machine.facts, len(nodes))
    for memory in nodes:
        for near in nodes:
            cpus = _one_a_core(machine, near.cpus & machine.allowed)
            if cpus:
                yield from _of_memory(memory, near, cpus, size, hardware, len(nodes))


def _of_memory(memory: MemoryNode, near: MemoryNode, cpus: CpuSet, size: int, hardware: Expected, nodes: int) -> Iterator[Figure]:
    place: JsonObject = {"cpus": str(cpus)}
    if nodes > 1:
        place |= {"node": memory.id, **({"near": str(memory.cpus)} if memory.cpus else {})}
    where = f"node{memory.id}" if memory.id == near.id else f"node{memory.id}-from-node{near.id}"
    if memory.id != near.id:
        hardware = Expected(None, "the links between processors decide")
    whose = "" if nodes == 1 else f"memory of node {memory.id}, "
    threads = f"{whose}{len(cpus)} thread{'s' if len(cpus) > 1 else ''}{f' of node {near.id}' if nodes > 1 else ''}"
    triad: JsonObject = {"task": "triad", "bytes": 3 * size, **place}
    yield _figure(f"memory.triad.{where}", "memory", f"triad, {threads}", "GB/s", TORCH, triad, hardware, GB)
    copy: JsonObject = {"task": "copy", "bytes": size, **place}
    yield _figure(f"memory.copy.{where}", "memory", f"copy by the C library, {threads}", "GB/s", OURS, copy, hardware, GB)


def _matmul(machine: Machine) -> Iterator[Figure]:
    every = _one_a_core(machine, machine.allowed)
    for dtype in ("float32", "bfloat16"):
        for cpus in dict.fromkeys((CpuSet((every.first() or 0,)), every)):
            hardware = expected.matmul_flops(machine.facts, dtype, len(cpus))
            threads = f"{len(cpus)} thread{'s' if len(cpus) > 1 else ''}"
            request = {"task": "matmul", "dtype": dtype, "cpus": str(cpus)}
            yield _figure(f"matmul.{dtype}.{len(cpus)}", "matmul", f"{dtype}, {threads}", "TFLOP/s", TORCH, request, hardware, TERA)


def _gpus(machine: Machine) -> Iterator[Figure]:
    for number, device in enumerate(machine.gpus):
        yield from _products(number, device)
        yield from _copies(number, device, machine)
        request: JsonObject = {"task": "triad", "device": f"cuda:{number}", "bytes": 3 * (1 << 30)}
        hardware = Expected(None, "the width of the GPU's memory is not known")
        yield _figure(f"gpu{number}.memory.triad", "gpu", f"GPU {number}, triad in its memory", "GB/s", TORCH, request, hardware, GB)


def _products(number: int, device: Device | None) -> Iterator[Figure]:
    capability = float(device.compute_capability or 0) if device else 0.0
    dtypes = ("float32", "tf32", "bfloat16", *(("float8_e4m3fn",) if capability >= 8.9 else ()))
    for dtype in dtypes:
        hardware = expected.gpu_flops(device, dtype)
        request: JsonObject = {"task": "matmul", "dtype": dtype, "device": f"cuda:{number}"}
        yield _figure(f"gpu{number}.matmul.{dtype}", "gpu", f"GPU {number}, {dtype}", "TFLOP/s", TORCH, request, hardware, TERA)


def _copies(number: int, device: Device | None, machine: Machine) -> Iterator[Figure]:
    hardware = expected.pcie_bytes(device)
    near = (device.local_cpus if device else None) or CpuSet()
    cpus = near & machine.allowed
    for to, words in (("device", "host to device"), ("host", "device to host")):
        for pinned in (True, False):
            kind = "pinned" if pinned else "pageable"
            request: JsonObject = {"task": "transfer", "device": f"cuda:{number}", "to": to, "pinned": pinned, "bytes": COPIED_BYTES}
            yield _figure(
                f"gpu{number}.{'h2d' if to == 'device' else 'd2h'}.{kind}", "gpu", f"GPU {number}, {words}, {kind}", "GB/s", TORCH,
                {**request, **({"cpus": str(cpus)} if cpus else {})}, hardware, GB,
            )  # fmt: skip


def _storage(machine: Machine, folder: str) -> Iterator[Figure]:
    readers = min(MAX_READERS, len(machine.allowed))
    one: JsonObject = {"task": "big_file", "folder": folder, "bytes": BIG_FILE_BYTES}
    yield _figure("storage.file", "storage", "one big file, cold", "GB/s", OURS, one, UNKNOWN, GB)
    for cold in (True, False):
        request: JsonObject = {"task": "many_files", "folder": folder, "files": FILES, "readers": readers, "cold": cold}
        words = f"files of 110 KiB, {'cold' if cold else 'in memory'}, {readers} thread{'s' if readers > 1 else ''}"
        yield _figure(f"storage.files.{'cold' if cold else 'warm'}", "storage", words, "files/s", OURS, request)


def _decode(machine: Machine) -> Iterator[Figure]:
    for processes in dict.fromkeys((1, len(machine.allowed))):
        words = f"JPEG, {processes} process{'es' if processes > 1 else ''}"
        request: JsonObject = {"task": "decode", "processes": processes, "cpus": str(machine.allowed)}
        yield _figure(f"decode.jpeg.{processes}", "decode", words, "images/s", DECODER, request)


def _start(machine: Machine) -> Iterator[Figure]:
    program: JsonObject = {"task": "start", "argv": ["true"]}
    yield _figure("start.program", "start", "programs, one after the other (true)", "/s", OURS, program)
    python = machine.python or sys.executable
    request = {"task": "start", "argv": [python, "-c", "pass"]}
    yield _figure("start.python", "start", f"{os.path.basename(python)}, one after the other", "/s", OURS, request)


def _ranks(machine: Machine) -> Iterator[Figure]:
    if machine.ranks < 2:
        return
    backend = "nccl" if machine.gpus else "gloo"
    request: JsonObject = {"task": "all_reduce", "bytes": REDUCED_BYTES, "backend": backend, "cpus": str(machine.allowed)}
    yield _figure(
        f"all-reduce.{backend}.{machine.ranks}", "all-reduce", f"{machine.ranks} ranks by {backend}", "GB/s", RANKS, request,
        UNKNOWN, GB,
    )  # fmt: skip

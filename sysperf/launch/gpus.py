"""Which GPUs a program will see, in CUDA's numbering, and the memory node beside each.

Reads   /proc/driver/nvidia/gpus/*/information  /dev/nvidia[0-9]*, and NVML for MIG and inside Slurm jobs
CUDA    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

import re
from collections.abc import Iterable, Mapping

from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record
from sysperf.startup import lazy

GPUS = "/proc/driver/nvidia/gpus"
NVIDIA = "10de"
VISIBLE = "CUDA_VISIBLE_DEVICES"
OTHER_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""The same of AMD and Intel: divided among instances as they are written; which GPU is beside which node is not known for these."""
MAX_GPUS = 64
MIXED = "GPUs of several models, which CUDA numbers by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID"
_MINOR = lazy(r"\d{1,4}")


class PlacedGpu(Record):
    """A GPU and its place."""

    bus_id: str
    node: int | None = None
    local_cpus: CpuSet | None = None
    device_id: str = ""


class VisibleGpus(Record):
    """What the program will see."""

    visible: tuple[PlacedGpu, ...] | None = ()
    """In CUDA's order; None when that is unknown."""
    machine: tuple[PlacedGpu, ...] = ()
    """All that this machine (or container) has, by their addresses."""
    restricted: bool = False
    """CUDA_VISIBLE_DEVICES chooses some of them."""
    ordered: bool = True
    """Whether CUDA numbers them as they are listed here: not when there are several models, which it orders by speed."""
    problem: str = ""
    """Why `visible` is unknown."""


def read(host: Host, listed: Iterable[PlacedGpu], env: Mapping[str, str]) -> VisibleGpus:
    """The visible GPUs, out of those of the PCI bus and CUDA_VISIBLE_DEVICES."""
    machine = tuple(_given(host, list(listed)))[:MAX_GPUS]
    wanted = env.get(VISIBLE)
    if not machine:
        return VisibleGpus()
    if wanted is None:
        return VisibleGpus(machine, machine, ordered=not _by_speed(machine, env))
    words = [word.strip() for word in wanted.split(",")]
    by_index = all(re.fullmatch(r"-?\d{1,4}", word) for word in words if word)
    if by_index and "SLURM_JOB_ID" not in env:
        return _by_index(machine, words, env)
    if by_index:
        return _by_index_of_job(host, machine, words, env)
    return _by_uuid(host, machine, words)


def _given(host: Host, placed: list[PlacedGpu]) -> list[PlacedGpu]:
    """Return those that a container was given: /sys shows all GPUs of the machine, /proc/driver/nvidia and /dev only the container's."""
    if not placed or not host.exists(GPUS):
        return placed
    return [gpu for gpu in placed if _minor_there(host, gpu.bus_id)]


def _minor_there(host: Host, bus_id: str) -> bool:
    information = host.pairs(f"{GPUS}/{bus_id}/information")
    if information is None:
        return False
    minor = information.get("Device Minor", "")
    return not _MINOR.fullmatch(minor) or host.exists(f"/dev/nvidia{minor}") is not False


def _unknown(machine: tuple[PlacedGpu, ...], problem: str) -> VisibleGpus:
    return VisibleGpus(None, machine, restricted=True, problem=problem)


def _by_speed(machine: tuple[PlacedGpu, ...], env: Mapping[str, str]) -> bool:
    return len({gpu.device_id for gpu in machine}) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _by_index(machine: tuple[PlacedGpu, ...], words: list[str], env: Mapping[str, str]) -> VisibleGpus:
    if _by_speed(machine, env):
        return _unknown(machine, MIXED)
    chosen: list[PlacedGpu] = []
    for word in words:
        index = int(word or "-1")
        if not 0 <= index < len(machine):
            break  # as CUDA does: what follows an invalid number is not visible
        chosen.append(machine[index])
    return VisibleGpus(tuple(chosen), machine, restricted=True)


def _by_index_of_job(host: Host, machine: tuple[PlacedGpu, ...], words: list[str], env: Mapping[str, str]) -> VisibleGpus:
    """Inside a Slurm job the numbers count the GPUs that it may open, which NVML lists and /sys does not tell apart."""
    if len({gpu.node for gpu in machine}) == 1:
        return _by_index(machine, words, env)
    count = host.nvml("DeviceGetCount")
    if not isinstance(count, int):
        return _unknown(machine, "NVML does not answer, and only it knows which GPUs a Slurm job may open")
    known = {gpu.bus_id: gpu for gpu in machine}
    infos = [host.nvml("DeviceGetPciInfo", index) for index in range(min(count, MAX_GPUS))]
    seen = [known.get(sysfs_address(str((info or {}).get("busId", "")))) for info in infos]
    if None in seen:
        return _unknown(machine, "NVML lists a GPU that /sys does not have")
    return _by_index(tuple(gpu for gpu in seen if gpu), words, env)


def _by_uuid(host: Host, machine: tuple[PlacedGpu, ...], words: list[str]) -> VisibleGpus:
    """``GPU-8f3c…`` may be cut short as long as it fits one GPU; ``MIG-…`` is a part of one."""
    uuids = {gpu.bus_id: _uuid(host, gpu.bus_id) for gpu in machine}
    chosen: list[PlacedGpu] = []
    for word in words:
        name = word.removeprefix("MIG-").partition("/")[0] if word.startswith("MIG-GPU-") else word
        if name.startswith("MIG-"):
            fitting = _with_parts(host, machine)
        else:
            fitting = [gpu for gpu in machine if name and (uuids[gpu.bus_id] or "").startswith(name)]
        if not fitting or len(fitting) > 1:
            return _unknown(machine, f"which GPU {word[:24]} is cannot be determined")
        chosen += fitting
    return VisibleGpus(tuple(chosen), machine, restricted=True)


def _uuid(host: Host, bus_id: str) -> str | None:
    return (host.pairs(f"{GPUS}/{bus_id}/information") or {}).get("GPU UUID")


def _with_parts(host: Host, machine: tuple[PlacedGpu, ...]) -> list[PlacedGpu]:
    """The GPUs that are partitioned; when all lie beside one node, the first stands for them."""
    modes = (host.nvml("DeviceGetMigMode", index) for index in range(len(machine)))
    partitioned = [gpu for gpu, mode in zip(machine, modes, strict=True) if isinstance(mode, list) and mode[:1] == [1]]
    return partitioned[:1] if len({gpu.node for gpu in partitioned}) == 1 else partitioned


def part(count: int, rank: int, size: int) -> range:
    """Which of `count` GPUs an instance gets: its contiguous part, or one in turn when there are fewer than instances."""
    if count < size:
        return range(rank % count, rank % count + 1) if count else range(0)
    return range(rank * count // size, (rank + 1) * count // size)


def sysfs_address(bus_id: str) -> str:
    """``00000000:65:00.0`` as NVML writes it is ``0000:65:00.0`` in /sys."""
    text = bus_id.strip().lower()
    domain, colon, rest = text.partition(":")
    return f"{domain[-4:] if len(domain) == 8 and domain.startswith('0000') else domain}:{rest}" if colon else text

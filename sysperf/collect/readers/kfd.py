"""AMD's compute driver: its GPUs, and which programs hold memory of them. No area of its own; `gpu` and `process` ask.

Reads   /sys/class/kfd/kfd/topology/nodes/*/{properties,gpu_id}  /sys/class/kfd/kfd/proc/*/vram_*
Kernel  drivers/gpu/drm/amd/amdkfd/kfd_topology.c, kfd_process.c
"""

from __future__ import annotations

import errno
import os

from sysperf.host import Host
from sysperf.model.record import Record
from sysperf.procfs.numbers import whole as number

NODES = "/sys/class/kfd/kfd/topology/nodes"
KFD_PROCESSES = "/sys/class/kfd/kfd/proc"
MAX_NODES = 512
MAX_PROCESSES = 4_096
FORBIDDEN = os.strerror(errno.EPERM)


class Node(Record):
    """A node of the compute driver's topology that computes: a GPU, or a part of one."""

    number: int
    bus_id: str
    gpu_id: int | None
    target: str
    hive: str
    """Name of the group that is joined by xGMI, a number of up to 20 digits; empty for none."""
    cus: int


def nodes(host: Host) -> list[Node]:
    names = host.names(NODES) if host.exists(NODES) else ()
    found = (_node(host, position) for name in (names or ())[:MAX_NODES] if (position := number(name)) is not None)
    return [node for node in found if node is not None]


def withheld(host: Host) -> bool:
    """Whether a control group keeps GPUs of the machine from us, as batch systems and Kubernetes arrange it.

    The kernel shows their nodes all the same, and does not permit to read them: `nodes` has asked.
    """
    return any(
        source.error == FORBIDDEN and source.path.startswith(f"{NODES}/") and source.path.endswith("/properties") for source in host.sources
    )


def _node(host: Host, position: int) -> Node | None:
    """A processor's node has no SIMD units."""
    path = f"{NODES}/{position}"
    said = host.pairs(f"{path}/properties", " ") or {}
    version, place = number(said.get("gfx_target_version", "")), number(said.get("location_id", ""))
    units = number(said.get("simd_count", "")) or 0
    if not units or version is None or place is None:
        return None
    domain = number(said.get("domain", "")) or 0
    return Node(
        number=position,
        bus_id=f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}",
        gpu_id=host.number(f"{path}/gpu_id") if host.exists(f"{path}/gpu_id") else None,
        target=f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}",
        hive=said.get("hive_id", "").lstrip("0")[:20],
        cus=units // max(number(said.get("simd_per_cu", "")) or 1, 1),
    )


def held(host: Host, gpu_ids: set[int]) -> dict[int, dict[int, int]] | None:
    """Bytes that each program holds of each of these GPUs; None where the driver does not list programs, or not to us."""
    names = host.names(KFD_PROCESSES) if host.exists(KFD_PROCESSES) else None
    if names is None:
        return None
    found: dict[int, dict[int, int]] = {}
    for name in names[:MAX_PROCESSES]:
        pid, folder = number(name), f"{KFD_PROCESSES}/{name}"
        amounts = {gpu_id: host.number(f"{folder}/vram_{gpu_id}") for gpu_id in sorted(gpu_ids) if host.exists(f"{folder}/vram_{gpu_id}")}
        if None in amounts.values():
            return None
        if pid and (own := {gpu_id: amount for gpu_id, amount in amounts.items() if amount}):
            found[pid] = own
    return found

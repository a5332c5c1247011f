"""What the hardware should give at most, worked out of what it is; None with the reason where nobody knows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from sysperf.collect.machine_facts import MachineFacts
from sysperf.trace import peaks

if TYPE_CHECKING:
    from sysperf.collect.cpu import Cpu
    from sysperf.collect.gpu.records import Device

BYTES_A_TRANSFER = 8
"""Of a channel, of DDR4 and of the two halves of one of DDR5."""
PCIE_LANE_GB = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""1e9 bytes a second of a lane, without the packets' heads."""
AMD_ZEN1, AMD_ZEN5 = 23, 26
ZEN2_MODEL, ZEN5_SERVER_MODELS = 0x30, range(0x20)
SKYLAKE_SERVER = 85
AMX_RATIO, BF16_RATIO = 32, 2
"""Products of 16-bit numbers for each of 32-bit ones: AMX does 2,048 operations a cycle, AVX-512 twice as many as before."""


class Expected(NamedTuple):
    """A figure and how it is worked out, or why there is none."""

    value: float | None
    basis: str


def memory_bytes(facts: MachineFacts, nodes: int) -> Expected:
    """Return channels times rate of the modules that are there, of one node."""
    if facts.kernel is not None and facts.kernel.virtual:
        return Expected(None, "a virtual machine does not see the memory's channels")
    memory = facts.memory
    if memory is None or not memory.dimms:
        return Expected(None, "only root can read the memory's slots" if os.geteuid() else "the firmware lists no memory slots")
    rates = {module.configured_mts for module in memory.dimms if module.size_bytes and module.configured_mts}
    if not memory.channels_used or len(rates) != 1:
        return Expected(None, "the firmware does not say which channels the modules are on, and how fast they run")
    (rate,) = rates
    channels = memory.channels_used / nodes
    return Expected(channels * rate * BYTES_A_TRANSFER * 1e6, f"{channels:g} channels × {rate} MT/s × {BYTES_A_TRANSFER} bytes")


def matmul_flops(facts: MachineFacts, dtype: str, cores: int) -> Expected:
    """Return cores times operations a cycle times clock."""
    cpu = facts.cpu
    each, why = _flops_a_cycle(cpu, dtype)
    if cpu is None or each is None:
        return Expected(None, why)
    mhz, clock = (cpu.max_mhz, "its highest clock") if cpu.max_mhz else (cpu.current_mhz, "the clock that this machine shows")
    if mhz is None:
        return Expected(None, "the clock of the CPUs is not known")
    plural = "" if cores == 1 else "s"
    return Expected(cores * each * mhz * 1e6, f"{cores} core{plural} × {each} operations a cycle × {mhz / 1e3:.2f} GHz, {clock}")


def _flops_a_cycle(cpu: Cpu | None, dtype: str) -> tuple[int | None, str]:
    """(floating-point operations of a core in one cycle, why they are not known)."""
    if cpu is None or cpu.isa is None:
        return None, "what the CPUs are is not known"
    single = _single_a_cycle(cpu)
    if single is None:
        return None, "how many products these CPUs do in a cycle is not known"
    if dtype == "float32":
        return single, ""
    if dtype == "bfloat16" and cpu.isa.amx_bf16:
        return AMX_RATIO * single, ""
    if dtype == "bfloat16" and cpu.isa.avx512_bf16:
        return BF16_RATIO * single, ""
    return None, f"these CPUs have no instructions for {dtype}"


def _single_a_cycle(cpu: Cpu) -> int | None:
    """32-bit operations: two for a fused multiply-add, 8 or 16 lanes, one or two units."""
    isa, family, model = cpu.isa, cpu.family or 0, cpu.model or 0
    if isa is None or not (isa.avx2 and isa.fma):
        return None
    if cpu.vendor == "AuthenticAMD":
        if family == AMD_ZEN1 and model < ZEN2_MODEL:
            return 16
        return 64 if family == AMD_ZEN5 and model in ZEN5_SERVER_MODELS else 32
    if not isa.avx512:
        return 32
    name = cpu.model_name or ""
    has_one = "Xeon" not in name or (model == SKYLAKE_SERVER and any(part in name for part in ("Silver", "Bronze", "Gold 5")))
    return 32 if has_one else 64


def gpu_flops(device: Device | None, dtype: str) -> Expected:
    """Return the vendor's dense peak of the tensor cores."""
    peak = peaks.dense_16bit(device.name if device else None)
    factor = {"bfloat16": 1.0, "float16": 1.0, "tf32": 0.5, "float8_e4m3fn": 2.0}.get(dtype)
    if peak is None or factor is None:
        return Expected(None, "no figure of the vendor is known for this GPU" if factor else "32-bit products use no tensor cores")
    return Expected(peak * factor * 1e12, "dense peak of the vendor's data sheet")


def pcie_bytes(device: Device | None) -> Expected:
    """Return lanes times the rate of a lane: what GPU, slot and system have in common."""
    link = device.pcie if device else None
    lanes = _least((link.max_width_lanes, link.slot_width_lanes, link.width_lanes)) if link else None
    generation = _least((link.max_generation, link.slot_generation)) if link else None
    if lanes is None or generation not in PCIE_LANE_GB:
        return Expected(None, "the GPU's link is not known")
    return Expected(lanes * PCIE_LANE_GB[generation] * 1e9, f"PCI Express {generation}, {lanes} lanes")


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value), default=None)

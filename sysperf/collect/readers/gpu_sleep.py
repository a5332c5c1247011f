"""Whether GPUs sleep to save power: to ask NVML of them would wake them.

Reads   /sys/bus/pci/drivers/nvidia/*/power/runtime_status
"""

from __future__ import annotations

import os

ASLEEP = "the GPU sleeps to save power, and is not woken to be looked at"
_NVIDIA = "/sys/bus/pci/drivers/nvidia"


def gpus_asleep() -> bool:
    """Whether the kernel has put all NVIDIA GPUs to sleep, as laptops do."""
    try:
        devices = [name for name in os.listdir(_NVIDIA) if ":" in name]
        states = [_word(f"{_NVIDIA}/{name}/power/runtime_status") for name in devices]
    except OSError:
        return False
    return bool(states) and all(state == "suspended" for state in states)


def _word(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(40).strip()

"""AMD's kernel module: its version, parameters that hold GPUs back, and whether it was built for this kernel. `driver` asks.

Reads   /sys/module/amdgpu/{version,parameters}  /var/lib/dkms/amdgpu
Kernel  drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c
"""

from __future__ import annotations

from collections.abc import Callable

from sysperf.host import Host
from sysperf.model.text import neutral

VERSION = "/sys/module/amdgpu/version"
PARAMETERS = "/sys/module/amdgpu/parameters"
HOLD_BACK: dict[str, Callable[[str], bool]] = {
    # parameters that are for finding faults, and which of their values do harm
    "dpm": lambda word: word == "0",
    "msi": lambda word: word == "0",
    "vramlimit": lambda word: _number(word) > 0,
    "vis_vramlimit": lambda word: _number(word) > 0,
    "disable_cu": lambda word: word != "(null)",
    "ppfeaturemask": lambda word: _number(word) & CLOCKS != CLOCKS,
    "sched_policy": lambda word: word in ("1", "2"),
    "debug_mask": lambda word: _number(word) > 0 and _number(word) & SMALL_WINDOW != 0,
    "use_xgmi_p2p": lambda word: word == "0",
    "pcie_p2p": lambda word: word == "N",
    "noretry": lambda word: word == "0",
    "gpu_recovery": lambda word: word == "0",
    "ras_enable": lambda word: word == "0",
}
CLOCKS = 0b11
"""Bits of `ppfeaturemask` that let the clocks of core and memory change."""
SMALL_WINDOW = 0b10
"""The bit of `debug_mask` that leaves ROCm the memory that the processor sees."""
PARAMETER_FILES = tuple(f"{PARAMETERS}/{name}" for name in HOLD_BACK)
DKMS = "/var/lib/dkms/amdgpu"


def version(host: Host) -> str | None:
    """Only the module of AMD's packages has a version of its own."""
    there = host.exists(VERSION)
    word = host.word(VERSION) if there else None
    return neutral(word, 40) if word else "" if there is False else None


def held_back(host: Host) -> tuple[str, ...] | None:
    """Return None where none that was read does harm, and one was not: only root may read `vramlimit`."""
    there = host.exists(PARAMETERS)
    if not there:
        return () if there is False else None
    paths = {name: f"{PARAMETERS}/{name}" for name in HOLD_BACK}
    values = {name: host.word(path) for name, path in paths.items() if host.exists(path) is not False}
    told = tuple(f"{name}={neutral(value, 40)}" for name, value in values.items() if value and HOLD_BACK[name](value))
    return None if not told and None in values.values() else told


def _number(word: str) -> int:
    """Return what the kernel prints in either notation, and -1 for "as the driver decides" or what is no number."""
    try:
        return int(word, 0)
    except ValueError:
        return -1


def unbuilt(host: Host) -> str | None:
    """DKMS keeps a folder for each version, and in it one for each kernel for which it was built."""
    there = host.exists(DKMS)
    names = host.names(DKMS) if there else None
    if names is None:
        return "" if there is False else None
    versions = [name for name in names if name[:1].isdigit()][:8]
    release = (host.uname() or ("",))[0] if versions else ""
    if not release:
        return None if versions else ""
    built = [host.exists(f"{DKMS}/{version}/{release}") for version in versions]
    return "" if any(built) else None if None in built else neutral(versions[-1], 40)

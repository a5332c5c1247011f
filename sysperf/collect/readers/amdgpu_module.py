"""AMD's kernel module: its version, parameters that hold GPUs back, and whether it was built for this kernel. `driver` asks.

Reads   /sys/module/amdgpu/{version,parameters}  /var/lib/dkms/amdgpu
Kernel  drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c
"""

from __future__ import annotations

from sysperf.host import Host
from sysperf.model.text import neutral

VERSION = "/sys/module/amdgpu/version"
PARAMETERS = "/sys/module/amdgpu/parameters"
HOLD_BACK = {"dpm": "0", "msi": "0", "vramlimit": ""}
"""Parameters that are for finding faults, with the value that does harm; any but 0 of the last."""
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
    values = {name: host.number(path) for name, path in paths.items() if host.exists(path) is not False}
    told = tuple(f"{name}={value}" for name, value in values.items() if value is not None and _does_harm(value, HOLD_BACK[name]))
    return None if not told and None in values.values() else told


def _does_harm(value: int, harm: str) -> bool:
    return str(value) == harm if harm else value > 0


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

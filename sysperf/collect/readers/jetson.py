"""Jetsons: their release, and the node through which programs get their GPU's memory. No area of its own; `driver` and `gpu` ask.

Reads    /etc/nv_tegra_release  /proc/device-tree/compatible  /sys/class/dmi/id/product_name  /dev/nvmap
         /sys/class/devfreq/*/{available_frequencies,max_freq}
NVIDIA   https://docs.nvidia.com/jetson/archives/r36.4/DeveloperGuide/SD/PlatformPowerAndPerformance.html
"""

import os

from sysperf.host import Host
from sysperf.startup import lazy

RELEASE = "/etc/nv_tegra_release"
TEGRA = (RELEASE, "/proc/device-tree/compatible", "/sys/class/dmi/id/product_name")
MEMORY_NODE = "/dev/nvmap"
DEVFREQ = "/sys/class/devfreq"
_L4T = lazy(r"# R([0-9]{2,3}) \(release\), REVISION: ([0-9]{1,2}\.[0-9]{1,2})\b")
_HERTZ = lazy(r"\b[0-9]{1,12}\b")
_GPU = lazy(r"[0-9a-f]{8}\.(?:gpu|g[a-z][0-9]{1,2}b)")
"""How the kernel names the GPU among the devices whose clock it sets: 17000000.gpu, and 17000000.ga10b before JetPack 6."""


def is_jetson(host: Host) -> bool | None:
    """A Jetson by its release file, its device tree, or the product name that its newer firmware gives."""
    release, *names = TEGRA
    there = host.exists(release)
    words = [host.word(path) if host.exists(path) else "" for path in names]
    if there or any(word and ("nvidia,tegra" in word or "Jetson" in word) for word in words):
        return True
    return None if there is None or None in words else False


def l4t(host: Host) -> str | None:
    """``# R36 (release), REVISION: 4.7, …``; one that is written otherwise is unknown."""
    there = host.exists(RELEASE)
    match = _L4T.match(host.text(RELEASE) or "") if there else None
    return f"{match[1]}.{match[2]}" if match else "" if there is False else None


def memory_access(host: Host) -> bool | None:
    """Whether this process may open the node of memory, which newer releases open for reading only; None where there is none."""
    if not host.exists(MEMORY_NODE):
        return None
    answer: bool | None = host.call(f"access:{MEMORY_NODE}", lambda: os.access(MEMORY_NODE, os.R_OK), bool)
    return answer


def clocks_mhz(host: Host) -> tuple[int | None, int | None]:
    """Return the highest clock that the GPU inside of a Jetson has, and the one that its power mode allows."""
    names = host.names(DEVFREQ) if host.exists(DEVFREQ) else ()
    for name in names or ():
        if _GPU.fullmatch(name):
            folder = f"{DEVFREQ}/{name}"
            steps = [int(word) for word in _HERTZ.findall(host.text(f"{folder}/available_frequencies") or "")]
            allowed = host.number(f"{folder}/max_freq")
            return max(steps, default=0) // 1_000_000 or None, None if allowed is None else allowed // 1_000_000
    return None, None

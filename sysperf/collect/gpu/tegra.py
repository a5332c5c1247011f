"""The GPU inside of a Jetson, which is on no bus: what the device tree says where NVML does not answer.

Reads    /proc/device-tree/compatible
NVIDIA   https://developer.nvidia.com/cuda/gpus
"""

from sysperf.collect.gpu.records import Device
from sysperf.host import Host

COMPATIBLE = "/proc/device-tree/compatible"
CHIPS = {
    # the chip: architecture, compute capability, name
    "tegra210": ("maxwell", "5.3", "Tegra X1"),
    "tegra186": ("pascal", "6.2", "Tegra X2"),
    "tegra194": ("volta", "7.2", "Xavier"),
    "tegra234": ("ampere", "8.7", "Orin"),
    "tegra264": ("blackwell", "11.0", "Thor"),
}


def is_inside(device: Device) -> bool:
    """Whether its name is that of a chip's GPU, as "Orin (nvgpu)" is."""
    return any(name in (device.name or "") for _, _, name in CHIPS.values())


def devices(host: Host) -> tuple[Device, ...]:
    """One GPU where the device tree names a chip that has one."""
    text = host.text(COMPATIBLE) if host.exists(COMPATIBLE) else None
    chips = [word.removeprefix("nvidia,") for word in (text or "").split("\0") if word.startswith("nvidia,")]
    known = [CHIPS[chip] for chip in chips if chip in CHIPS]
    return tuple(
        Device(index=0, name=name, architecture=architecture, compute_capability=capability, mobile=False)
        for architecture, capability, name in known[:1]
    )

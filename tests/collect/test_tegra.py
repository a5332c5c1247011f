"""The GPU of a Jetson where NVML does not answer: the device tree names the chip."""

from __future__ import annotations

import pytest

from sysperf.collect.driver import collect as driver
from sysperf.collect.gpu import collect
from tests.conftest import MakeMachine
from tests.gpus import RTX, calls, files


@pytest.mark.parametrize(
    ("compatible", "capability"),
    [
        ("nvidia,p3449-0000-b00+p3448-0002-b00\0nvidia,jetson-nano\0nvidia,tegra210\0", "5.3"),
        ("nvidia,p2972-0000\0nvidia,tegra194\0", "7.2"),
        ("nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0", "8.7"),
    ],
)
def test_the_device_tree_names_the_gpu_of_a_jetson(machine: MakeMachine, compatible: str, capability: str) -> None:
    """With an empty bus, or one that cannot be listed."""
    for bus in ({}, {"/proc/bus/pci/devices": "0000\t10de229c\t0\n"}):
        (gpu,) = collect(machine({"/proc/device-tree/compatible": compatible, "/dev/null": "", **bus})).devices or ()
        assert (gpu.vendor, gpu.compute_capability, gpu.bus_id, gpu.memory_total_bytes) == ("nvidia", capability, None, None)


@pytest.mark.parametrize("compatible", ["raspberrypi,5-model-b\0brcm,bcm2712\0", "nvidia,tegra30\0", "tegra234", ""])
def test_another_board_has_no_such_gpu(machine: MakeMachine, compatible: str) -> None:
    assert not collect(machine({"/proc/device-tree/compatible": compatible, "/proc/bus/pci/devices": "0000\t80860000\t0\n"})).devices


def test_its_power_mode_limits_the_clock_of_its_gpu(machine: MakeMachine) -> None:
    """Mali of another board has such files, too."""
    clocks = {
        "/sys/class/devfreq/17000000.gpu/available_frequencies": "306000000 624750000 1020000000\n",
        "/sys/class/devfreq/17000000.gpu/max_freq": "624750000\n",
    }
    jetson = {"/proc/device-tree/compatible": "nvidia,p3768-0000\0nvidia,tegra234\0", "/dev/null": "", **clocks}

    (gpu,) = collect(machine(jetson)).devices or ()
    assert (gpu.clocks.sm_max_mhz, gpu.clocks.allowed_max_mhz) == (1020, 624)
    assert not collect(machine({**jetson, "/proc/device-tree/compatible": "rockchip,rk3588\0"})).devices

    card, links = files(1)
    (beside,) = collect(machine({**jetson, **card}, links, calls(RTX))).devices or ()
    assert (beside.clocks.sm_max_mhz, beside.clocks.allowed_max_mhz) == (3105, None)


def test_its_memory_may_be_closed_to_this_user(machine: MakeMachine) -> None:
    """Newer releases open it for reading only: that is enough."""
    assert driver(machine({"/dev/nvmap": ""}, calls={"access:/dev/nvmap": False})).nvmap_access is False
    assert driver(machine({"/dev/null": ""})).nvmap_access is None

"""Which GPUs a program will see, in CUDA's numbering."""

from __future__ import annotations

from typing import Any

import pytest

from sysperf.collect.pcie.records import Device
from sysperf.engine.wrap.facts import placed
from sysperf.host import Host
from sysperf.launch import gpus
from sysperf.launch.gpus import GPUS, VisibleGpus, part, sysfs_address
from tests.conftest import MakeMachine

A, B, C = "0000:17:00.0", "0000:65:00.0", "0000:ca:00.0"


def device(address: str, node: int | None = 0, model: str = "2330", **other: Any) -> Device:
    return Device(address, "gpu", **{"vendor_id": "10de", "device_id": model, "driver": "nvidia", "numa_node": node, **other})


def read(host: Host, devices: list[Device], env: dict[str, str]) -> VisibleGpus:
    """Those that a program sees on a machine with these devices."""
    return gpus.read(host, placed(devices), env)


THREE = [device(A, 0), device(B, 0), device(C, 1)]


def seen(visible: VisibleGpus) -> list[str] | None:
    return None if visible.visible is None else [gpu.bus_id for gpu in visible.visible]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [A, B, C]), ("", []), ("-1", []), ("2,0", [C, A]), ("0,9,1", [A]), ("1, 2", [B, C])],
)
def test_numbers(machine: MakeMachine, visible: str | None, expected: list[str]) -> None:
    """Numbers count by PCI address; CUDA stops at the first that is none."""
    assert seen(read(machine({}), THREE, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})) == expected


def test_uuids_need_no_nvml(machine: MakeMachine) -> None:
    """The driver's own files name the UUIDs; a prefix that fits one GPU is enough, one that fits two is not."""
    files = {
        f"{GPUS}/{bus}/information": f"GPU UUID: \t GPU-{bus[5]}aaa-1\nDevice Minor: \t {index}" for index, bus in enumerate((A, B, C))
    }
    host = machine({**files, **{f"/dev/nvidia{index}": "" for index in range(3)}})

    assert seen(read(host, THREE, {"CUDA_VISIBLE_DEVICES": "GPU-caaa"})) == [C]
    assert seen(read(host, THREE, {"CUDA_VISIBLE_DEVICES": "GPU-"})) is None


def test_a_container_has_only_its_own(machine: MakeMachine) -> None:
    """/sys shows all GPUs of the machine; /proc/driver/nvidia and /dev only those that the container was given."""
    host = machine({f"{GPUS}/{C}/information": "Device Minor: \t 2", "/dev/nvidia2": ""})

    assert seen(read(host, THREE, {})) == [C]


def test_several_models_are_numbered_by_speed(machine: MakeMachine) -> None:
    """Without CUDA_DEVICE_ORDER=PCI_BUS_ID nobody but CUDA knows which is number 0."""
    mixed = [device(A, 0, "2330"), device(C, 1, "1db6")]

    assert seen(read(machine({}), mixed, {"CUDA_VISIBLE_DEVICES": "0"})) is None
    assert not read(machine({}), mixed, {}).ordered
    assert seen(read(machine({}), mixed, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})) == [A]


def test_inside_slurm_numbers_count_what_the_job_may_open(machine: MakeMachine) -> None:
    """With device constraints NVML lists the job's GPUs only, and number 0 is the first of them."""
    env = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "7"}
    calls = {"nvml:DeviceGetCount()": 1, "nvml:DeviceGetPciInfo(0)": {"busId": "00000000:CA:00.0"}}

    assert seen(read(machine({}, calls=calls), THREE, env)) == [C]
    assert seen(read(machine({}), THREE, env)) is None


def test_parts_of_a_gpu(machine: MakeMachine) -> None:
    """A MIG device lies on the partitioned GPU; with several nodes of partitioned GPUs it cannot be told."""
    modes = {"nvml:DeviceGetMigMode(0)": [0, 0], "nvml:DeviceGetMigMode(1)": [0, 0], "nvml:DeviceGetMigMode(2)": [1, 1]}

    assert seen(read(machine({}, calls=modes), THREE, {"CUDA_VISIBLE_DEVICES": "MIG-1234"})) == [C]
    both = {**modes, "nvml:DeviceGetMigMode(0)": [1, 1]}
    assert seen(read(machine({}, calls=both), THREE, {"CUDA_VISIBLE_DEVICES": "MIG-1234"})) is None


@pytest.mark.parametrize("other", [{"vendor_id": "1002"}, {"driver": "vfio-pci"}, {"driver": "nouveau"}])
def test_what_cuda_cannot_use_is_not_counted(machine: MakeMachine, other: dict[str, Any]) -> None:
    """Other makers' GPUs, and those given to a virtual machine or driven by nouveau."""
    assert seen(read(machine({}), [device(A), device(B, **other)], {})) == [A]


def test_no_gpu(machine: MakeMachine) -> None:
    """A machine without: nothing to see, which is known."""
    assert seen(read(machine({}), [], {"CUDA_VISIBLE_DEVICES": "0"})) == []


def test_firmware_that_does_not_say_where(machine: MakeMachine) -> None:
    """A node number that the firmware did not give is no node."""
    (gpu,) = read(machine({}), [device(A, None, locality_known=False)], {}).machine

    assert (gpu.node, gpu.local_cpus) == (None, None)


def test_parts_for_instances() -> None:
    """Contiguous parts that cover all; one in turn when there are more instances than GPUs."""
    assert [list(part(8, rank, 4)) for rank in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [list(part(2, rank, 3)) for rank in range(3)] == [[0], [1], [0]]
    assert list(part(0, 0, 2)) == []


def test_addresses() -> None:
    """NVML pads the PCI domain to eight digits and writes capitals."""
    assert sysfs_address("00000000:CA:00.0") == C
    assert sysfs_address("0000:ca:00.0") == C


def test_a_gpu_without_its_device_file_is_not_given(machine: MakeMachine) -> None:
    """A container has the file of each of its GPUs; where the driver names no number, nothing speaks against the GPU."""
    files = {f"{GPUS}/{A}/information": "Device Minor: \t 0", f"{GPUS}/{B}/information": "Device Minor: \t 1"}
    host = machine({**files, f"{GPUS}/{C}/information": "Model: \t H100", "/dev/nvidia1": ""})

    assert seen(read(host, THREE, {})) == [B, C]

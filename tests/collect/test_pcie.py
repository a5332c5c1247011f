"""What we say of PCI Express devices agrees with the kernel's files, and with hwloc on machines it captured."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.pcie import collect
from sysperf.collect.pcie.reader import Reader, is_card_of_intel
from sysperf.collect.pcie.records import PCI
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from tests.conftest import Files, MakeMachine, captured, fixture_folder

H100 = "0000:1a:00.0"
NIC = "0000:1b:00.0"
ROOT, UP, DOWN, DOWN2 = "0000:17:00.0", "0000:18:00.0", "0000:19:04.0", "0000:19:08.0"
FOLDER = "/sys/devices/pci0000:17"

GPU: Files = {
    "class": "0x030200\n",
    "vendor": "0x10de\n",
    "device": "0x2330\n",
    "numa_node": "1\n",
    "local_cpulist": "8-15\n",
    "current_link_width": "8\n",
    "max_link_width": "16\n",
    "current_link_speed": "2.5 GT/s PCIe\n",
    "max_link_speed": "32.0 GT/s PCIe\n",
    "aer_dev_correctable": "RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 3\n",
    "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0\n",
    "aer_dev_fatal": "TOTAL_ERR_FATAL 0\n",
}
CARD: Files = {"class": "0x020700\n", "vendor": "0x15b3\n", "device": "0x1021\n", "numa_node": "1\n", "local_cpulist": "8-15\n"}


def at(address: str, files: Files, **changed: str | OSError) -> Files:
    """The files of one function."""
    return {f"{PCI}/{address}/{name}": content for name, content in {**files, **changed}.items()}


def switch(gpu_port: Files | None = None) -> tuple[Files, dict[str, str]]:
    """A GPU and an InfiniBand card below one PCIe switch, with links as the kernel makes them."""
    places = {
        ROOT: "",
        UP: f"/{ROOT}",
        DOWN: f"/{ROOT}/{UP}",
        DOWN2: f"/{ROOT}/{UP}",
        H100: f"/{ROOT}/{UP}/{DOWN}",
        NIC: f"/{ROOT}/{UP}/{DOWN2}",
    }
    port: Files = {"class": "0x060400", "max_link_width": "16", "max_link_speed": "16.0 GT/s PCIe"}
    contents = {ROOT: port, UP: port, DOWN: {**port, **(gpu_port or {})}, DOWN2: {**port, "config": config(0)}, H100: GPU, NIC: CARD}
    files = {f"{FOLDER}{places[address]}/{address}/{name}": text for address in places for name, text in contents[address].items()}
    links = {f"{PCI}/{address}": f"../../../devices/pci0000:17{place}/{address}" for address, place in places.items()}
    return files, links


def config(acs_control: int, *, size: int = 4096) -> bytes:
    """A configuration space whose chain of extended capabilities holds AER, then ACS."""
    space = bytearray(size)
    if size > 256:
        struct.pack_into("<I", space, 0x100, 0x148 << 20 | 1 << 16 | 0x0001)
        struct.pack_into("<IHH", space, 0x148, 1 << 16 | 0x000D, 0x001F, acs_control)
    return bytes(space)


def test_a_gpu_is_described_with_its_place_and_link(machine: MakeMachine) -> None:
    """Ids, node, CPUs, lanes and speeds come from the files of the function."""
    host = machine({**at(H100, GPU), "/sys/devices/system/cpu/online": "0-13"})

    (gpu,) = collect(host).devices

    assert (gpu.address, gpu.kind, gpu.vendor_id, gpu.device_id) == (H100, "gpu", "10de", "2330")
    assert (gpu.numa_node, gpu.locality_known, gpu.local_cpus) == (1, True, CpuSet.parse("8-13"))
    assert (gpu.link_width_lanes, gpu.max_link_width_lanes, gpu.link_speed_gts, gpu.max_link_speed_gts) == (8, 16, 2.5, 32.0)
    assert (gpu.aer_correctable, gpu.aer_nonfatal, gpu.aer_fatal) == (3, 0, 0)
    assert (gpu.driver, gpu.iommu) == ("", "")


def test_the_port_above_a_device_is_found_through_its_link(machine: MakeMachine) -> None:
    """The path names every bridge, root port first; the last one's limits are the slot's."""
    facts = collect(machine(*switch()))

    gpu, card = facts.devices
    assert gpu.path == (ROOT, UP, DOWN)
    assert (gpu.port_max_link_width_lanes, gpu.port_max_link_speed_gts) == (16, 16.0)
    assert card.kind == "network"
    assert facts.functions == 6


def test_errors_that_the_bridges_above_a_gpu_corrected_are_summed(machine: MakeMachine) -> None:
    """The receiving end counts them: what the GPU sends damaged is in the port's file. A bridge without the file is left out."""
    files, links = switch({"aer_dev_correctable": "BadTLP 37\nTOTAL_ERR_COR 37\n"})
    counted = {f"{FOLDER}/{ROOT}/aer_dev_correctable": "TOTAL_ERR_COR 5\n"}

    gpu, card = collect(machine({**files, **counted}, links)).devices
    (silent, _) = collect(machine(*switch())).devices

    assert (gpu.bridges_aer_correctable, card.bridges_aer_correctable, silent.bridges_aer_correctable) == (42, None, None)


def test_only_what_decides_speed_is_detailed(machine: MakeMachine) -> None:
    """Of a bridge, a USB controller or a GPU's audio function only the class is read."""
    others = {
        **at("0000:00:00.0", {"class": "0x060000"}),
        **at("0000:00:14.0", {"class": "0x0c0330"}),
        **at("0000:1a:00.1", {"class": "0x040300"}),
    }
    host = machine({**at(H100, GPU), **others})

    facts = collect(host)

    assert [device.address for device in facts.devices] == [H100]
    assert facts.functions == 4
    assert {source.path for source in host.sources if "/0000:00:14.0/" in source.path} == {f"{PCI}/0000:00:14.0/class"}


@pytest.mark.parametrize(
    ("class_id", "kind"),
    [
        ("030000", "gpu"),
        ("030200", "gpu"),
        ("038000", "gpu"),
        ("120000", "accelerator"),
        ("0b4000", "accelerator"),
        ("010802", "nvme"),
        ("020000", "network"),
    ],
)
def test_kinds(machine: MakeMachine, class_id: str, kind: str) -> None:
    """Display and 3D controllers, accelerators, network cards and NVMe drives are told apart by class."""
    (device,) = collect(machine(at(H100, GPU, **{"class": f"0x{class_id}"}))).devices

    assert device.kind == kind


def test_gpus_are_counted_by_vendor(machine: MakeMachine) -> None:
    """An NVIDIA GPU beside an Intel one inside the CPU; the display of a server's management controller is neither."""
    files = {
        **at(H100, GPU),
        **at("0000:00:02.0", GPU, **{"class": "0x030000", "vendor": "0x8086"}),
        **at("0000:03:00.0", GPU, **{"class": "0x030000", "vendor": "0x1a03"}),
    }

    facts = collect(machine(files))

    assert (facts.nvidia_gpus, facts.intel_gpus, facts.amd_gpus) == (1, 1, 0)


def test_an_unreadable_class_makes_the_counts_unknown(machine: MakeMachine) -> None:
    """What could be a GPU and cannot be read is not counted as none."""
    facts = collect(machine({**at(H100, GPU), **at(NIC, CARD, **{"class": PermissionError(13, "Permission denied")})}))

    assert facts.nvidia_gpus is None


def test_virtual_functions_are_counted_not_listed(machine: MakeMachine) -> None:
    """A card split into SR-IOV functions would hide the card itself."""
    facts = collect(machine({**at(H100, GPU), **at("0000:1a:00.4", GPU), f"{PCI}/0000:1a:00.4/physfn": ""}))

    assert [device.address for device in facts.devices] == [H100]
    assert (facts.virtual_functions, facts.nvidia_gpus) == (1, 1)


def test_a_node_that_the_firmware_does_not_say_is_unknown(machine: MakeMachine) -> None:
    """-1 is no node: the node is None, the reason is kept, and locality_known says who is to blame."""
    host = machine(at(H100, GPU, numa_node="-1\n", local_cpulist="0-15\n"))

    (gpu,) = collect(host).devices

    assert (gpu.numa_node, gpu.locality_known, gpu.local_cpus) == (None, False, CpuSet.parse("0-15"))
    assert any(source.error and "firmware does not say" in source.error for source in host.sources)


def test_a_link_of_a_virtual_machine_is_unknown_not_degraded(machine: MakeMachine) -> None:
    """Hypervisors show width 0 and an unknown speed."""
    (gpu,) = collect(machine(at(H100, GPU, current_link_width="0", current_link_speed="Unknown"))).devices

    assert (gpu.link_width_lanes, gpu.link_speed_gts) == (None, None)


def test_a_sleeping_gpu_is_not_woken(machine: MakeMachine) -> None:
    """Reading the link of a device in D3cold would power it up: a laptop's GPU stays asleep."""
    host = machine(at(H100, GPU, **{"power/runtime_status": "suspended\n"}))

    (gpu,) = collect(host).devices

    assert gpu.suspended
    assert (gpu.link_width_lanes, gpu.max_link_width_lanes, gpu.link_speed_gts, gpu.max_link_speed_gts) == (None, None, None, None)
    read = [source for source in host.sources if "link_" in source.path]
    assert read
    assert all(source.error and "powered down" in source.error for source in read)


def test_iommu_of_a_device(machine: MakeMachine) -> None:
    """The type of the device's group tells translation (DMA, DMA-FQ) from identity."""
    host = machine(
        {**at(H100, GPU), "/sys/kernel/iommu_groups/42/type": "DMA-FQ\n"},
        {f"{PCI}/{H100}/iommu_group": "../../../kernel/iommu_groups/42", f"{PCI}/{H100}/driver": "../../../bus/pci/drivers/nvidia"},
    )

    (gpu,) = collect(host).devices

    assert (gpu.iommu, gpu.driver) == ("DMA-FQ", "nvidia")


def test_no_bus_is_zero_gpus_on_a_whole_machine(machine: MakeMachine) -> None:
    """An ARM board without PCI has no PCI GPU; a machine without /sys says nothing."""
    assert collect(machine({"/sys/bus/platform/uevent": ""})).nvidia_gpus == 0
    with pytest.raises(Missing):
        collect(machine({"/proc/cpuinfo": ""}))


@pytest.mark.parametrize(("control", "expected"), [(0x1D, (DOWN,)), (0x01, ()), (0x00, ())])
def test_acs_redirect_is_read_from_the_switch_port(machine: MakeMachine, control: int, expected: tuple[str, ...]) -> None:
    """Request redirect on the port above the GPU; source validation alone redirects nothing."""
    assert collect(machine(*switch({"config": config(control)}))).acs_redirects == expected


def test_acs_is_unknown_without_root(machine: MakeMachine) -> None:
    """Without privilege the kernel shows 64 bytes of a configuration space."""
    host = machine(*switch({"config": config(0, size=64)}))

    assert collect(host).acs_redirects is None
    assert any(source.error and "only root" in source.error for source in host.sources)


def test_acs_matters_only_below_a_shared_switch(machine: MakeMachine) -> None:
    """A GPU alone below its root port has no peer to be redirected from: nothing is read."""
    host = machine(at(H100, GPU), {f"{PCI}/{H100}": f"../../../devices/pci0000:17/{ROOT}/{H100}"})

    assert collect(host).acs_redirects == ()


NAMES = (
    "class",
    "vendor",
    "device",
    "numa_node",
    "local_cpulist",
    "local_cpus",
    "current_link_width",
    "max_link_speed",
    "aer_dev_fatal",
    "config",
)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=400)), st.text(max_size=80))
def test_any_content_is_survived(machine_of: Any, contents: dict[str, bytes], target: str) -> None:
    """Garbage in any file gives unknowns, and a width or a node is never out of range."""
    host = machine_of({**at(NIC, CARD), **at(H100, {"class": "0x030200", **contents})}, {f"{PCI}/{H100}/iommu_group": target})

    for device in collect(host).devices:
        assert device.link_width_lanes in (None, 1, 2, 4, 8, 12, 16, 32)
        assert device.numa_node is None or device.numa_node >= 0


@pytest.fixture(scope="module")
def machine_of() -> Any:
    """`machine` for properties, which may not use a fixture that is made anew for each test."""
    from sysperf.host import Host
    from tests.conftest import Dict

    return lambda files, links: Host("/test-machine", tree=Dict(files, links))


def _captures() -> list[str]:
    folder = fixture_folder("hwloc")
    names = sorted(folder.glob("*.expected.json"))
    return [path.name.removesuffix(".expected.json") for path in names if json.loads(path.read_text()).get("pci")]


@pytest.mark.parametrize("name", _captures())
def test_captured_machines_agree_with_hwloc(name: str) -> None:
    """Address, class, ids, CPUs and node of every function that is no bridge are hwloc's."""
    folder = fixture_folder("hwloc")
    expected = json.loads((folder / f"{name}.expected.json").read_text())["pci"]

    host = captured("hwloc", name)
    reader, classes = Reader(host), {address: (host.word(f"{PCI}/{address}/class") or "")[2:] for address in host.names(PCI) or ()}

    assert {address for address, class_id in classes.items() if not class_id.startswith(("0604", "0600"))} >= {
        device["busid"] for device in expected if not device["class"].startswith("06")
    }
    for device in expected:
        function = reader.device(device["busid"], None)
        assert classes[device["busid"]][:4] == device["class"]
        assert str(function.local_cpus) == device["local_cpus"]
        if "id" in device:
            assert f"{function.vendor_id}:{function.device_id}" == device["id"]
        if device["numa_node"] is not None:
            assert function.numa_node == device["numa_node"]


def test_a_captured_machine_with_eight_accelerators() -> None:
    """Eight vector engines and two InfiniBand ports, all on node 0, links as hwloc computes them: 15.75 GB/s."""
    facts = collect(captured("hwloc", "32intel64-2p8co2t+8ve"))

    assert [device.kind for device in facts.devices].count("accelerator") == 8
    assert {device.numa_node for device in facts.devices} == {0}
    assert {(device.link_width_lanes, device.link_speed_gts) for device in facts.devices if device.kind == "accelerator"} == {(16, 8.0)}
    assert facts.acs_redirects is None
    assert facts.nvidia_gpus == 0


@pytest.mark.parametrize(
    ("model", "card"),
    [
        ("0bd5", True), ("4905", True), ("5690", True), ("56a0", True), ("56b1", True), ("56c0", True), ("674c", True), ("e20b", True),
        ("e212", True), ("e223", True), ("46a6", False), ("7d55", False), ("64a0", False), ("a7a0", False),
    ],
)  # fmt: skip
def test_a_card_of_intels_is_told_from_a_processor_by_its_model(model: str, card: bool) -> None:
    assert {is_card_of_intel(place, model) for place in ("0000:00:02.0", "0000:06:10.0")} == {card}


def test_of_an_intel_gpu_whose_model_is_not_read_the_place_tells() -> None:
    assert (is_card_of_intel("0000:00:02.0", None), is_card_of_intel("0000:03:00.0", None)) == (False, True)

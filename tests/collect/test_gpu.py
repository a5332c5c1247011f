"""What we say of GPUs is what NVML and sysfs say; what a GPU lacks is known, what could not be asked is unknown."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sysperf.collect import driver, gpu
from sysperf.collect.gpu import Gpu, answers, collect, device, kernel_log, links, locality, memory_errors, records, state, wires
from sysperf.collect.gpu.records import Device
from sysperf.collect.readers import log_entries
from sysperf.evaluate.rule_files import read_file
from sysperf.host import nvml
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Json
from tests.conftest import Files, MakeMachine, captured, make_machine
from tests.gpus import (
    A100_PCIE,
    DENIED,
    FIELDS,
    GIB,
    H100,
    HEALTH,
    LOST,
    NOT_SUPPORTED,
    RTX,
    VGPU,
    Answers,
    bus_id,
    calls,
    driver_files,
    files,
)


def server(machine: MakeMachine, *gpus: Answers, **extra: Any) -> Gpu:
    """A machine with these GPUs, read."""
    gpu_files, links = files(len(gpus))
    return collect(machine(gpu_files, links, {**calls(*gpus), **{f"nvml:{call}": answer for call, answer in extra.items()}}))


def only(facts: Gpu) -> Device:
    assert facts.devices is not None
    (card,) = facts.devices
    return card


def test_a_server_of_eight_is_read_whole(machine: MakeMachine) -> None:
    """Eight H100 on an HGX board: identity, place, links, and nothing blocked between them."""
    facts = server(machine, *[H100] * 8)

    assert facts.nvml is True
    assert facts.devices is not None
    assert [card.bus_id for card in facts.devices] == [bus_id(index) for index in range(8)]
    assert [card.numa_node for card in facts.devices] == [0, 0, 0, 0, 1, 1, 1, 1]
    last = facts.devices[7]
    assert (last.name, last.brand, last.architecture, last.compute_capability) == ("NVIDIA H100 80GB HBM3", "nvidia", "hopper", "9.0")
    assert last.local_cpus == CpuSet.parse("48-95")
    assert (last.nvlink.links, last.nvlink.active, last.nvlink.switch_links, last.nvlink.fabric) == (18, 18, 18, "completed")
    assert facts.p2p_blocked == ()
    assert facts.confidential is False
    assert facts.functions is not None
    assert {function.driver for function in facts.functions} == {"nvidia"}


def test_units_are_those_of_the_names(machine: MakeMachine) -> None:
    """Milliwatts become watts, event bits become names, and the driver's own memory is no process's."""
    card = only(server(machine, H100))

    assert (card.power.usage_watts, card.power.default_limit_watts) == (691.2, 700.0)
    assert card.clocks.events == ("sw-power-cap",)
    assert card.memory_used_bytes == 10 * GIB - GIB // 2
    assert card.memory_reserved_bytes == GIB // 2
    assert (card.thermal.memory_celsius, card.thermal.memory_max_celsius) == (61, 95)
    assert card.pcie.replays_per_hour == 0.0


def test_every_fact_of_a_datacentre_gpu_is_known(machine: MakeMachine) -> None:
    """On a machine that answers everything nothing is left unknown but the fan, which an SXM board lacks."""

    def unknown(record: Any, path: str) -> list[str]:
        paths = []
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if value is None:
                paths.append(path + name)
            elif hasattr(value, "__struct_fields__"):
                paths += unknown(value, f"{path}{name}.")
        return paths

    others = (
        "card",
        "target",
        "kfd_listed",
        "compute_units",
        "compute_engines",
        "performance_level",
        "compute_partition",
        "memory_partition",
        "queue_firmware",
        "xgmi.",
        "clocks.allowed_",
        "pcie.downgraded",
    )
    absent = [path for path in unknown(only(server(machine, H100)), "") if not path.startswith(others)]
    not_its_own = [
        "inforom", "memory_shared_bytes", "memory_shared_module", "memory_shared_limit_bytes", "licensed", "memory_numa_node", "thermal.fan_percent", "ecc.banks_without_spares", "ecc.banks_low_on_spares",
        "nvlink.effective_errors",
    ]  # fmt: skip
    assert absent == not_its_own, "what --deep asks, AMD's, a vGPU's, a superchip's, NVLink 5's, and one asked after a repair"


def test_a_narrow_link_shows_beside_what_gpu_and_slot_can(machine: MakeMachine) -> None:
    """One of two A100 trained at 8 lanes."""
    gpu_files, links = files(2)
    facts = collect(machine(gpu_files, links, calls(A100_PCIE, {**A100_PCIE, "DeviceGetCurrPcieLinkWidth": 8})))

    assert facts.devices is not None
    assert [(card.pcie.width_lanes, card.pcie.max_width_lanes, card.pcie.slot_width_lanes) for card in facts.devices] == [
        (16, 16, 16),
        (8, 16, 16),
    ]
    assert [card.pcie.slot_generation for card in facts.devices] == [5, 5]
    assert [(card.nvlink.links, card.nvlink.active) for card in facts.devices] == [(12, 0), (12, 0)]


def test_what_a_consumer_card_lacks_is_known_to_be_absent(machine: MakeMachine) -> None:
    """No ECC, MIG, NVLink or pending repairs: false and 0, not unknown."""
    card = only(server(machine, RTX))

    assert (card.ecc.supported, card.ecc.enabled, card.ecc.remap_pending, card.ecc.remap_failed) == (False, False, False, False)
    assert (card.mig_enabled, card.gpm_supported, card.virtualization) == (False, False, "none")
    assert (card.nvlink.links, card.nvlink.active, card.nvlink.fabric) == (0, 0, "not-supported")
    assert (card.ecc.uncorrected, card.power.limit_watts, card.clocks.app_mhz) == (None, 700.0, None)


def test_old_drivers_answer_under_old_names(machine: MakeMachine) -> None:
    """Before driver 535 events were throttle reasons, before 510 used memory had one meaning."""
    card = only(server(machine, RTX))

    assert card.clocks.events == ("idle",)
    assert (card.memory_total_bytes, card.memory_used_bytes, card.memory_reserved_bytes) == (24 * GIB, 2 * GIB, None)
    assert card.addressing_mode is None


def test_a_driver_that_hides_the_number_of_links_is_asked_link_by_link(machine: MakeMachine) -> None:
    """Where the field for the number of NVLinks is absent, the first refused link ends the list."""
    v100 = {
        **{call: answer for call, answer in A100_PCIE.items() if "NvLinkState" not in call},
        "DeviceGetFieldValues," + FIELDS: OSError("Function Not Found"),
        **{f"DeviceGetNvLinkState,{link}": int(link != 3) for link in range(6)},
        "DeviceGetNvLinkState,6": OSError("Invalid Argument"),
    }

    card = only(server(machine, v100))

    assert (card.nvlink.links, card.nvlink.active) == (6, 5)
    assert card.nvlink.replays is None


def test_old_gpus_retire_pages_instead_of_rows(machine: MakeMachine) -> None:
    """Before Ampere a bad page waits for the next driver load."""
    v100 = {**RTX, "DeviceGetArchitecture": 5, "DeviceGetEccMode": [1, 1], "DeviceGetRetiredPagesPendingStatus": 1}

    card = only(server(machine, v100))

    assert (card.ecc.enabled, card.ecc.remap_pending, card.ecc.remap_failed, card.ecc.remapped_rows) == (True, True, False, 0)
    assert card.ecc.uncorrected is None, "the recorded machine does not answer it"


def test_repairs_that_a_partitioned_gpu_does_not_tell_are_unknown(machine: MakeMachine) -> None:
    """With instances in use NVML refuses to tell of rows: that is no proof of health."""
    card = only(server(machine, {**H100, "DeviceGetMigMode": [1, 1], "DeviceGetRemappedRows": NOT_SUPPORTED}))

    assert (card.ecc.remap_pending, card.ecc.remap_failed, card.ecc.remapped_rows) == (None, None, None)


def test_a_partitioned_gpu_says_so(machine: MakeMachine) -> None:
    """Under MIG the utilisation of the whole is not told."""
    card = only(server(machine, {**H100, "DeviceGetMigMode": [1, 1], "DeviceGetUtilizationRates": NOT_SUPPORTED}))

    assert (card.mig_enabled, card.utilization_percent, card.memory_utilization_percent) == (True, None, None)


def test_a_virtual_gpu_says_so(machine: MakeMachine) -> None:
    """A vGPU tells neither power nor link."""
    card = only(server(machine, VGPU))

    assert (card.virtualization, card.power.limit_watts, card.pcie.width_lanes) == ("vgpu", None, None)


def test_under_wsl_nvml_answers_without_pci(machine: MakeMachine) -> None:
    """Windows keeps the PCI bus; NVML alone tells of the GPU."""
    host = machine({"/dev/dxg": "", "/sys/bus/foo": ""}, calls=calls({**RTX, "DeviceGetPersistenceMode": NOT_SUPPORTED}))

    facts = collect(host)

    assert facts.functions == ()
    assert only(facts).persistence is None
    assert only(facts).numa_node is None


def test_a_lost_gpu_is_lost_and_the_others_are_read(machine: MakeMachine) -> None:
    """A GPU that fell off the bus fails every call; its neighbour is read as ever."""
    dying = dict.fromkeys(H100, LOST) | {"DeviceGetUUID": LOST, "DeviceGetPciInfo": LOST}

    facts = server(machine, H100, dying)

    assert facts.devices is not None
    assert [card.lost for card in facts.devices] == [False, True]
    assert [card.name for card in facts.devices] == ["NVIDIA H100 80GB HBM3", None]
    assert facts.devices[1].ecc.enabled is None


def test_a_dying_gpu_tells_what_is_wrong_with_its_memory(machine: MakeMachine) -> None:
    """Uncorrected errors, a row that waits for a reset, another that could not be replaced."""
    dying = {
        **H100,
        "DeviceGetTotalEccErrors,1,0": 7,
        "DeviceGetTotalEccErrors,1,1": 12,
        "DeviceGetRemappedRows": [3, 5, 1, 1],
        "DeviceGetSramEccErrorStatus": {"bThresholdExceeded": 1},
    }

    ecc = only(server(machine, dying)).ecc

    assert (ecc.uncorrected, ecc.uncorrected_ever, ecc.remapped_rows) == (7, 12, 8)
    assert (ecc.remap_pending, ecc.remap_failed, ecc.sram_threshold_exceeded) == (True, True, True)


def test_xids_are_read_from_the_kernel_log_only_under_deep(machine: MakeMachine) -> None:
    """Each kind of error once for each GPU, with its count and the last time."""
    log = (
        "2026-11-20T10:00:00,000001+00:00 NVRM: Xid (PCI:0000:17:00): 31, pid=4242, name=python, MMU Fault\n"
        "2026-11-20T11:00:00,000001+00:00 NVRM: Xid (PCI:0000:17:00 GPU-I:05 GPU-CI:00): 31, pid=4242, name=python, MMU Fault\n"
        "2026-11-20T12:00:00,000001+00:00 NVRM: Xid (PCI:0000:27:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
        "2026-11-20T12:00:00,000001+00:00 usb 1-1: new device that says NVRM: Xid (PCI:garbage)\n"
    )
    gpu_files, links = files(2)
    host = machine(gpu_files, links, {**calls(H100, H100), "run:dmesg": log})
    assert collect(host).xids is None
    host.deep = True

    xids = collect(host).xids

    assert xids is not None
    assert [(xid.code, xid.bus_id, xid.count) for xid in xids] == [(31, "0000:17:00.0", 2), (79, "0000:27:00.0", 1)]
    assert xids[0].last.startswith("2026-11-20T11")


LOG = """\
2026-11-20T12:00:00,000001+00:00 NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 0x00000000)
2026-11-20T12:00:01,000001+00:00 NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149
2026-11-20T12:00:02,000001+00:00 NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)
2026-11-20T12:00:03,000001+00:00 NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x026001c6 0x00000000)
2026-11-20T12:00:04,000001+00:00 nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b}
2026-11-20T12:00:04,000002+00:00 nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt
2026-11-20T12:00:04,000003+00:00 nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00
2026-11-20T12:00:05,000001+00:00 nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 32 LTSSM Fault Up
2026-11-20T12:00:06,000001+00:00 NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
2026-11-20T12:00:07,000001+00:00 NVRM: The NVIDIA probe routine failed for 1 device(s).
2026-11-20T12:00:08,000001+00:00 NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0x72:1589)
2026-11-20T12:00:09,000001+00:00 NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x25:0x65:1461)
2026-11-20T12:00:10,000001+00:00 NVRM: installed in this system requires use of the NVIDIA open kernel modules.
2026-11-20T12:00:11,000001+00:00 NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build
"""


def test_what_the_driver_writes_is_read_whole() -> None:
    """Severity and cause stand in the line; a gravest line speaks for its kind; a message of several lines is one."""
    read = kernel_log.read_log(LOG)

    assert [(xid.code, xid.fatal, xid.cause) for xid in read.xids or ()] == [(144, False, None), (45, None, 149), (149, True, None)]
    assert read.xids is not None
    assert (read.xids[2].text or "").startswith("NETIR_LINK_EVT Fatal")
    assert (read.xids[2].count, read.xids[2].last[:19]) == (2, "2026-11-20T12:00:03")
    assert read.sxids is not None
    assert [(xid.code, xid.fatal, xid.count) for xid in read.sxids] == [(22013, False, 3), (20034, True, 1)]
    assert read.sxids[1].text == "Fatal, Link 32 LTSSM Fault Up"
    assert read.faults is not None
    assert [(fault.bus_id, fault.count) for fault in read.faults] == [("0000:b3:00.0", 1), (None, 1)]
    assert read.faults[0].text.endswith("installed in this system has fallen off the bus and is not responding to commands")


def test_a_firmware_that_does_not_answer_is_said_once() -> None:
    """The driver frames the words in stars; where an Xid says the same, that line is not a second fault. Heartbeats of idle laptops are none."""
    beat = "2026-11-20T12:00:00,000001+00:00 NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 8 heartbeat 0\n"
    line = f"{beat}2026-11-20T12:00:01,000001+00:00 NVRM: GPU6 _kgspLogRpcTimeout: {'*' * 33} GSP Timeout {'*' * 34}\n"
    xid = (
        "2026-11-20T12:00:02,000001+00:00 NVRM: Xid (PCI:0000:01:00): 119, pid=1, name=python, Timeout after 6s of waiting for RPC response"
    )

    assert [fault.text for fault in kernel_log.read_log(line).faults or ()] == ["GPU6 _kgspLogRpcTimeout: GSP Timeout"]
    assert kernel_log.read_log(line + xid).faults == ()
    assert kernel_log.read_log(beat).faults == ()


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000)", "NETIR_LINK_EVT 37"),
        ("149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", "NETIR_LINK_EVT 0"),
        ("149, NETIR_LINK_DOWN Nonfatal XC1 i2 Link 17 (0x02600000)", "NETIR_LINK_EVT 38"),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)", "NETIR 0x0"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000)", "NETIR_BER_EVENT 0x1"),
        ("145, pid=876767, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)", "RLW_RXPIPE 0x8"),
        ("146, TLW_RX_PIPE1 Nonfatal XC0 i0 Link 03 (0x00000010 0x00000020 0x00000030)", "TLW_RX 0x20"),
        ("144, something of another form", None),
        ("79, GPU has fallen off the bus Fatal (0x025001c6 0x00000000)", None),
    ],
)
def test_sub_codes_of_nvlink_5_are_those_of_nvidias_table(line: str, detail: str | None) -> None:
    """Drivers of different branches name units differently, and before R575 wrote one word only."""
    (xid,) = kernel_log.read_log(f"2026-11-20T12:00:00,000001+00:00 NVRM: Xid (PCI:0018:01:00): {line}").xids or ()

    assert xid.detail == detail


def test_an_older_driver_leaves_out_what_kind_of_address_it_is() -> None:
    (xid,) = kernel_log.read_log("2026-11-20T12:00:00,000001+00:00 NVRM: Xid (0000:03:00): 14, Channel 00000001").xids or ()

    assert (xid.code, xid.bus_id) == (14, "0000:03:00.0")


@settings(max_examples=25)
@given(st.lists(st.sampled_from(LOG.splitlines()) | st.text(max_size=60), max_size=12).map("\n".join))
def test_no_log_breaks_the_reader(log: str) -> None:
    """Entries are bounded and each of one kind and device."""
    read = kernel_log.read_log(log)
    for entries in (read.xids, read.sxids, read.faults):
        assert len(entries or ()) <= log_entries.MAX_ENTRIES


def test_every_number_of_the_catalogue_has_an_action() -> None:
    """All 172 codes and those of newer drivers but the unused one, and advice for each action; the same for the sub-codes of NVLink 5."""
    tables = read_file(Path(__file__).parents[2] / "rules" / "xids.toml").table

    actions = {code: action for code, action in tables["xid_action"].items() if code.isdigit()}
    assert {int(code) for code in actions} == {*range(1, 183)} - {174}
    assert set(actions.values()) <= tables["xid_advice"].keys()
    assert {action for name, action in tables["nvlink5"].items() if name != "as_of"} == tables["nvlink5_advice"].keys()


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("pid=8123, name=python3, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "GPU Reset Required"),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", "PF FLR"),
        ("GPU recovery action changed from 0x1 (PF FLR) to 0x2 (OS Reboot)", "OS Reboot"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "None"),
        ("GPU recovery action changed to GPU Reset Required", "GPU Reset Required"),
        ("pid=1, name=x", None),
    ],
)
def test_what_154_asks_for_is_known_by_its_words(words: str, asked: str | None) -> None:
    (xid,) = kernel_log.read_log(f"2026-11-20T12:00:00,000001+00:00 NVRM: Xid (PCI:0000:01:00): 154, {words}\n").xids or ()

    assert xid.detail == asked


@pytest.mark.parametrize(
    ("lines", "detail"),
    [
        (["Row Remapper: (0x0000001234) - Attempting to remap a row that is already pending remapping. Remapping will occur"], "pending"),
        (["DRAM Retirement failed due to pending row remap at 0x0000001234"], "pending"),
        (["Row Remapper Error: (0x0000001234) - All reserved rows for bank are remapped"], None),
        (
            ["Row Remapper Error: (0x0000001234) - Row Remapping table is full", "DRAM Retirement failed due to pending bank remap at 0x1"],
            None,
        ),
    ],
)
def test_memory_that_waits_to_be_remapped_is_told_from_memory_that_cannot_be(lines: list[str], detail: str | None) -> None:
    at = "2026-11-20T12:00:00,000001+00:00 NVRM: Xid (PCI:0000:01:00): 64, pid='<unknown>', name=<unknown>, "
    (xid,) = kernel_log.read_log("".join(f"{at}{line}\n" for line in lines)).xids or ()

    assert (xid.count, xid.detail) == (len(lines), detail)


@pytest.mark.parametrize(
    ("parts", "instances", "names"),
    [
        (["MIG-a", OSError("Not Found"), "MIG-b"], 2, ("MIG-a", "MIG-b")),
        ([True, OSError("Not Found"), True], 2, None),
        ([OSError("Not Found")] * 3, 0, ()),
        ([OSError("Insufficient Permissions")] * 3, None, None),
    ],
)
def test_instances_of_a_partitioned_gpu_are_counted(
    machine: MakeMachine, parts: list[object], instances: int | None, names: tuple[str, ...] | None
) -> None:
    """Their numbers have gaps; an answer of another kind is no count, and one without a name no name."""
    handles = {f"DeviceGetMigDeviceHandleByIndex,{part}": answer for part, answer in enumerate(parts)}
    card = only(server(machine, {**H100, "DeviceGetMigMode": [1, 1], "DeviceGetMaxMigDeviceCount": 3, **handles}))

    assert (card.mig_instances, card.mig_uuids) == (instances, names)
    whole = only(server(machine, H100))
    assert (whole.mig_instances, whole.mig_uuids) == (0, ())


def test_nvlink_5_counts_for_each_link(machine: MakeMachine) -> None:
    """Blackwell has neither the counter of recoveries nor that of checksum errors; its own are summed over the links."""
    each = ",".join(f"{field}:{link}" for link in range(18) for field in (215, 219))
    counted = dict.fromkeys(each.split(","), 0) | {"215:3": 2, "219:7": 40}
    b200 = {**H100, "DeviceGetName": "NVIDIA B200", "DeviceGetFieldValues," + FIELDS: {"91": 18}, "DeviceGetFieldValues," + each: counted}

    link = only(server(machine, b200)).nvlink

    assert (link.recoveries, link.effective_errors) == (2, 40)


def test_a_superchip_tells_its_links_to_the_cpu_and_its_own_node(machine: MakeMachine) -> None:
    """GB200: ten C2C links, one of them down; its memory is NUMA node 2."""
    health = {"230": 4, "74": None, "76": 0, "269": 0, "270": 5_000_000_000, "271": 0, "170": 10}
    links = ",".join(f"171:{link}" for link in range(10))
    states = dict.fromkeys(links.split(","), 1) | {"171:9": 0}
    gb200 = {**H100, "DeviceGetFieldValues," + HEALTH: health, "DeviceGetFieldValues," + links: states, "DeviceGetNumaNodeId": 2}

    card = only(server(machine, gb200))

    assert (card.nvlink.c2c_links, card.nvlink.c2c_active, card.memory_numa_node) == (10, 9, 2)
    assert (card.recovery_action, card.clocks.power_capped_s, card.clocks.hw_thermal_s) == ("drain-and-reset", None, 5.0)


@pytest.mark.parametrize(("state", "licensed"), [(1, True), (0, False)])
def test_a_virtual_gpu_tells_of_its_licence(machine: MakeMachine, state: int, licensed: bool) -> None:
    features = {"isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": [{"featureState": state}]}

    assert only(server(machine, {**VGPU, "DeviceGetGridLicensableFeatures": features})).licensed is licensed


def test_a_log_that_may_not_be_read_is_unknown(machine: MakeMachine) -> None:
    """dmesg refused to a user is no proof that nothing happened; without a GPU nothing can have."""
    gpu_files, links = files(1)
    host = machine(gpu_files, links, {**calls(H100), "run:dmesg": OSError("`dmesg` failed: Operation not permitted")})
    host.deep = True

    assert collect(host).xids is None
    assert collect(machine({"/proc/bus/pci/devices": "0000\t80860e00\t0\n"})).xids == ()


def test_pairs_that_the_platform_blocks_are_named(machine: MakeMachine) -> None:
    """A chipset in the way is the platform's fault; a model without the feature is not."""
    assert server(machine, H100, H100, **{"DeviceGetP2PStatus(0,1,0)": 1}).p2p_blocked == ("0-1 (chipset)",)
    assert server(machine, RTX, RTX, **{"DeviceGetP2PStatus(0,1,0)": 5}).p2p_blocked == ()
    assert server(machine, RTX, RTX, **{"DeviceGetP2PStatus(0,1,0)": NOT_SUPPORTED}).p2p_blocked == ()
    assert server(machine, H100, H100, **{"DeviceGetP2PStatus(0,1,0)": DENIED}).p2p_blocked is None


def test_a_process_is_listed_once(machine: MakeMachine) -> None:
    """A process that computes and draws counts as compute; memory that the driver does not tell is unknown."""
    drawing = {"DeviceGetGraphicsRunningProcesses_v3": [{"pid": 4242, "usedGpuMemory": 5}, {"pid": 900, "usedGpuMemory": None}]}

    processes = only(server(machine, {**H100, **drawing})).processes

    assert processes is not None
    assert [(process.pid, process.used_bytes, process.kind) for process in processes] == [
        (4242, 9 * GIB, "compute"),
        (900, None, "graphics"),
    ]


def test_clients_of_the_multi_process_service_are_listed_twice_and_told_apart(machine: MakeMachine) -> None:
    """The server is a program of compute; its clients are in both lists."""
    client = {"pid": 4243, "usedGpuMemory": 2 * GIB}
    listed = {
        "DeviceGetComputeRunningProcesses_v3": [{"pid": 4242, "usedGpuMemory": 30 << 20}, client],
        "DeviceGetMPSComputeRunningProcesses_v3": [client],
    }

    processes = only(server(machine, {**H100, **listed})).processes

    assert processes is not None
    assert sorted((process.pid, process.kind) for process in processes) == [(4242, "compute"), (4243, "mps")]


def test_a_process_of_another_namespace_is_unknown_not_none(machine: MakeMachine) -> None:
    """NVML gives it no number, and the GPU is not free."""
    listed = {"DeviceGetComputeRunningProcesses_v3": [{"pid": 0, "usedGpuMemory": 2 * GIB}]}

    assert only(server(machine, {**H100, **listed, "DeviceGetGraphicsRunningProcesses_v3": []})).processes is None


def test_a_program_that_ends_between_two_looks_leaves_no_memory_of_nobody() -> None:
    """Its memory was asked before, and the processes after it ended."""

    class Later(answers.Answers):
        def ask(self, name: str, *args: int | str, absent: Json = None) -> Json:
            return absent if args or name != "DeviceGetMemoryInfo" else {"used": GIB // 4}

    later = Later(make_machine(), 0)
    free = Device(index=0, memory_used_bytes=9 * GIB, processes=())

    assert device.settled(later, free).memory_used_bytes == GIB // 4
    assert device.settled(later, structs.replace(free, memory_used_bytes=GIB // 8)).memory_used_bytes == GIB // 8, "and one that begins"
    assert device.settled(later, structs.replace(free, processes=None)).memory_used_bytes == 9 * GIB


def test_refused_processes_are_unknown_not_none(machine: MakeMachine) -> None:
    """Without permission nobody can say that the GPU is free."""
    assert only(server(machine, {**H100, "DeviceGetComputeRunningProcesses_v3": DENIED})).processes is None


@pytest.mark.parametrize(
    "reason",
    ["NVML Shared Library Not Found", "Driver Not Loaded", "Driver/library version mismatch", "Insufficient Permissions", "Unknown Error"],
)
def test_without_nvml_the_pci_bus_lists_the_gpus(machine: MakeMachine, reason: str) -> None:
    """Place and link are known, the name where the driver's files have it, all else unknown with NVML's reason."""
    gpu_files, links = files(2)
    gpu_files[f"/proc/driver/nvidia/gpus/{bus_id(0)}/information"] = (
        "Model: \t\t NVIDIA A100-PCIE-40GB\nGPU UUID: \t GPU-????????-????-????\n"
    )
    host = machine(gpu_files, links, {"nvml:SystemGetDriverVersion()": OSError(reason)})

    facts = collect(host)

    assert facts.nvml is False
    assert facts.devices is not None
    assert [(card.bus_id, card.name, card.uuid) for card in facts.devices] == [
        (bus_id(0), "NVIDIA A100-PCIE-40GB", None),
        (bus_id(1), None, None),
    ]
    assert [card.numa_node for card in facts.devices] == [0, 1]
    assert (facts.devices[0].pcie.width_lanes, facts.devices[0].pcie.generation, facts.devices[0].persistence) == (16, 1, None)
    assert any(source.path == "nvml:SystemGetDriverVersion()" and source.error == reason for source in host.sources)


def test_a_gpu_that_a_batch_system_keeps_from_us_is_forbidden_not_gone(machine: MakeMachine) -> None:
    """Two GPUs on the bus, one listed: the kernel refuses the node of the other."""
    gpu_files, links = files(2)
    gpu_files["/dev/nvidia1"] = ""
    answers = {"access:/dev/nvidia0": True, "access:/dev/nvidia1": False}

    assert collect(machine(gpu_files, links, {**calls(H100), **answers})).forbidden == 1
    assert collect(machine(gpu_files, links, {**calls(H100), **answers, "access:/dev/nvidia1": True})).forbidden == 0
    assert collect(machine(gpu_files, links, calls(H100, H100))).forbidden == 0, "nothing is missing, nothing is asked"


@pytest.mark.parametrize(
    "left", [{}, {"/dev/nvidiactl": "", "/proc/devices": "Character devices:\n  1 mem\n226 drm\n"}], ids=["nothing", "a node"]
)
def test_where_nothing_hints_at_a_driver_nvml_is_not_asked(machine: MakeMachine, left: Files) -> None:
    """Each fact that is unknown then says why: there is no driver. A device node that NVML's library made leads to none."""
    gpu_files, links = files(1, driver="nouveau")
    host = machine({**gpu_files, **left}, links, calls(H100))

    assert collect(host).nvml is False
    assert [(source.path, source.error) for source in host.sources if source.path.startswith("nvml:")] == [(driver.NVML, driver.NO_DRIVER)]


def test_no_nvidia_function_is_known_to_be_no_gpu(machine: MakeMachine) -> None:
    """One small file tells it; no device is looked at."""
    host = machine(
        {"/proc/bus/pci/devices": "0000\t80861237\t0\n0010\t12341111\t0\n", "/sys/bus/pci/devices/0000:00:02.0/vendor": "0x1234"}
    )

    assert collect(host).devices == ()
    assert not any(source.path.startswith("/sys/bus/pci") for source in host.sources)


def test_nvidia_sound_is_no_gpu(machine: MakeMachine) -> None:
    """The audio function of a card is NVIDIA's too."""
    folder = "/sys/bus/pci/devices/0000:01:00.1"
    host = machine({"/proc/bus/pci/devices": "0101\t10de22ba\t0\n", f"{folder}/vendor": "0x10de", f"{folder}/class": "0x040300"})

    assert collect(host).functions == ()


def test_virtual_functions_that_wait_for_a_guest_are_no_gpus_of_this_machine(machine: MakeMachine) -> None:
    """A host with SR-IOV shows them without a driver: nothing failed to take them."""
    gpu_files, links = files(1)
    folder = "/sys/bus/pci/devices/0000:17:00.4"
    virtual = {f"{folder}/vendor": "0x10de\n", f"{folder}/class": "0x030200\n", f"{folder}/physfn/vendor": "0x10de\n"}
    listed = {"/proc/bus/pci/devices": str(gpu_files["/proc/bus/pci/devices"]) + "1704\t10de2330\t0\n"}

    functions = collect(machine({**gpu_files, **virtual, **listed}, links, calls(H100))).functions

    assert [function.bus_id for function in functions or ()] == [bus_id(0)]


def test_a_gpu_without_driver_is_still_there(machine: MakeMachine) -> None:
    """Held by nouveau or by nobody, it is listed with that."""
    for driver_name in ("nouveau", "vfio-pci", ""):
        gpu_files, links = files(1, driver=driver_name)
        facts = collect(machine(gpu_files, links))
        assert facts.functions is not None
        assert [function.driver for function in facts.functions] == [driver_name]
        assert facts.devices is not None
        assert len(facts.devices) == 1


def test_firmware_that_does_not_tell_the_node_is_not_node_minus_one(machine: MakeMachine) -> None:
    """-1 is unknown, and told apart from a file that could not be read."""
    gpu_files, links = files(1)
    path = next(path for path in gpu_files if path.endswith("numa_node"))

    silent = only(collect(machine({**gpu_files, path: "-1\n"}, links, calls(H100))))
    absent = only(
        collect(machine({**gpu_files, path: OSError("denied")}, links, {**calls(H100), "nvml:DeviceGetMemoryAffinity(0,16,0)": [2, 0]}))
    )

    assert (silent.numa_node, silent.locality_known) == (None, False)
    assert (absent.numa_node, absent.locality_known) == (1, None), "NVML says node 1"


def test_without_sysfs_nvml_tells_the_cpus(machine: MakeMachine) -> None:
    """NVML's sets are 64-bit words, lowest first."""
    facts = collect(machine({"/dev/nvidiactl": ""}, {}, {**calls(H100), "nvml:DeviceGetCpuAffinity(0,64)": [0xF, 1 << 63]}))

    assert only(facts).local_cpus == CpuSet.parse("0-3,127")


def test_a_capture_that_says_nothing_of_gpus_leaves_them_unknown() -> None:
    """An archive of another project holds no PCI list: neither a GPU nor none."""
    facts = collect(captured("hwloc", "nvidia-dgx-gb10"))

    assert facts.devices is None
    assert facts.xids is None or facts.xids == ()


def test_a_display_controller_whose_vendor_was_not_captured_may_be_nvidias() -> None:
    """Six V100 whose class alone is in the capture: not none, but unknown."""
    facts = collect(captured("hwloc", "nvidiagpunumanodes"))

    assert (facts.functions, facts.devices) == (None, None)


def test_names_used_are_names_of_pynvml() -> None:
    """Every call that the collectors make exists in nvidia-ml-py, with as many arguments as we give it."""
    pynvml = pytest.importorskip("pynvml")
    calls_made = {name for module in (gpu, device, links, locality, memory_errors, driver) for name in _literals(module)}
    assert len(calls_made) > 50
    for name in sorted(calls_made):
        assert hasattr(pynvml, f"nvml{name}"), name
    for key in (key for key in calls(H100, RTX, VGPU) if key.startswith("nvml:")):
        name, _, arguments = key.removeprefix("nvml:").rstrip(")").partition("(")
        given_ = len([word for word in arguments.split(",") if word])
        if name in nvml._FILLED:
            continue
        signature = inspect.signature(getattr(pynvml, f"nvml{name}"))
        if name == "DeviceGetFieldValues":
            given_ = 2
        signature.bind(*range(given_))


def _literals(module: Any) -> list[str]:
    """Texts in a module's source that are NVML calls; the three process lists are put together from parts."""
    tree = ast.parse(Path(module.__file__).read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names = [
        text.removeprefix("nvml:")
        for text in texts
        if text.removeprefix("nvml:").startswith(("Device", "System", "Gpm")) and " " not in text
    ]
    listed = [f"DeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")]
    return [name for name in names if name.isidentifier() and name != "DeviceGet"] + listed


def test_structures_used_have_the_fields_we_read() -> None:
    """The keys that we look up are fields of pynvml's structures."""
    pynvml = pytest.importorskip("pynvml")

    def has(structure: str, *names: str) -> None:
        assert set(names) <= {field[0] for field in getattr(pynvml, structure)._fields_}, structure

    has("nvmlPciInfo_t", "busId")
    has("c_nvmlMemory_v2_t", "total", "used", "reserved")
    has("c_nvmlBAR1Memory_t", "bar1Total")
    has("c_nvmlUtilization_t", "gpu", "memory")
    has("c_nvmlGpuFabricInfoV_t", "state")
    has("c_nvmlEccSramErrorStatus_v1_t", "bThresholdExceeded")
    has("c_nvmlGpmSupport_t", "isSupportedDevice")
    has("c_nvmlProcessInfo_v3_t", "pid", "usedGpuMemory")
    has("c_nvmlConfComputeSystemState_t", "ccFeature")
    assert pynvml.nvmlMemory_v2 == 0x2000028


def test_no_gpu_of_nvidia_and_cards_that_cannot_be_listed_are_unknown_gpus(machine: MakeMachine) -> None:
    """NVML counts none; whether there is one of another maker, nobody can say."""
    unread = {"/sys/class/drm/card0/device/uevent": PermissionError(13, "Permission denied")}
    answered = {**calls(), "nvml:DeviceGetCount()": 0}

    assert collect(machine({**driver_files(), **unread}, calls=answered)).devices is None
    assert collect(machine({**driver_files(), "/sys/class/x": ""}, calls=answered)).devices == ()


def test_names_of_numbers_are_those_of_pynvml() -> None:
    """Bits, states and field numbers agree with nvml.h as pynvml has it."""
    pynvml = pytest.importorskip("pynvml")
    constants = {name: value for name, value in vars(pynvml).items() if isinstance(value, int)}

    assert state.CLOCK_EVENTS[constants["nvmlClocksEventReasonHwPowerBrakeSlowdown"]] == "hw-power-brake"
    assert state.CLOCK_EVENTS[constants["nvmlClocksEventReasonSwThermalSlowdown"]] == "sw-thermal"
    for number, name in device.ARCHITECTURES.items():
        assert constants[f"NVML_DEVICE_ARCH_{name.upper()}"] == number
    assert tuple(
        constants[f"NVML_FI_DEV_{name}"]
        for name in (
            "NVLINK_LINK_COUNT", "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "MEMORY_TEMP", "NVSWITCH_CONNECTED_LINK_COUNT",
        )
    ) == device.FIELDS  # fmt: skip
    assert tuple(
        constants[f"NVML_FI_DEV_{name}"]
        for name in (
            "GET_GPU_RECOVERY_ACTION", "CLOCKS_EVENT_REASON_SW_POWER_CAP", "CLOCKS_EVENT_REASON_SYNC_BOOST",
            "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
            "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", "C2C_LINK_COUNT",
        )
    ) == device.HEALTH_FIELDS  # fmt: skip
    counters = ("LINK_RECOVERY_EVENTS", "EFFECTIVE_ERRORS")
    assert [str(constants[f"NVML_FI_DEV_NVLINK_COUNT_{name}"]) for name in counters] == [links.RECOVERED, links.UNDECODABLE]
    assert device.RECOVERY[constants["NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET"]] == "drain-and-reset"
    shifts = [constants[f"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_{name}"] for name in (
        "DEGRADED_BW", "ROUTE_RECOVERY", "ROUTE_UNHEALTHY", "ACCESS_TIMEOUT_RECOVERY", "INCORRECT_CONFIGURATION", "PARTITION_ASSIGNED", "GFM_STATE",
    )]  # fmt: skip
    assert [shift for shift, _, _ in wires.FABRIC_HEALTH] == shifts
    assert records.COMPUTE_MODES[constants["NVML_COMPUTEMODE_PROHIBITED"]] == "prohibited"
    assert records.VIRTUALIZATION[constants["NVML_GPU_VIRTUALIZATION_MODE_VGPU"]] == "vgpu"
    assert (answers.NOT_SUPPORTED, answers.LOST) == (nvml.NOT_SUPPORTED, nvml.LOST)


ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["total", "used", "gpu", "busId", "pid", "state", "91"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@settings(max_examples=25)
@given(st.data())
def test_no_answer_breaks_the_collector(data: st.DataObject) -> None:
    """A hostile capture answers anything to any call: nothing raises, the record stays encodable and bounded."""
    recorded = calls(H100, A100_PCIE)
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(recorded)), ANSWERS, max_size=12))
    gpu_files, links = files(2)
    changed_files = data.draw(st.dictionaries(st.sampled_from(sorted(gpu_files)), st.binary(max_size=40), max_size=4))
    answers = {**recorded, **changed, "run:dmesg": data.draw(st.text(max_size=200))}
    host = make_machine({**gpu_files, **changed_files}, links, calls=answers, deep=True)

    facts = collect(host)

    from sysperf.model.record import to_json

    assert len(json.loads(to_json(facts))["devices"] or ()) <= gpu.MAX_GPUS

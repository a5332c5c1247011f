"""What we say of GPUs of AMD and Intel is what their drivers' files say; no library is needed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.collect.gpu import collect, intel_use
from sysperf.collect.gpu.kernel_log import read_log
from sysperf.collect.gpu.places import DRM
from sysperf.collect.gpu.records import Device
from sysperf.collect.gpu.state import Clocks, Power, Thermal
from sysperf.collect.gpu.wires import Pcie
from sysperf.collect.readers import growth
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import to_json
from sysperf.procfs.gpu_metrics import throttled_by
from tests.conftest import Files, MakeMachine, make_machine
from tests.fuzzing import fuzz
from tests.gpus import H100, calls
from tests.gpus import files as nvidia_files
from tests.mutation import damaged_bytes
from tests.other_gpus import GIB, MI300X, NODES, PHOENIX, RX7900, accumulated, amd, bus_id, intel, metrics, processor_of_amd


def devices(files: Files, links: dict[str, str]) -> tuple[Device, ...]:
    found = collect(make_machine(files, links, {})).devices
    assert found is not None
    return found


def test_eight_mi300x_are_read_whole() -> None:
    """Target, units, memory, clocks, limits, heat, errors, partitions, place and links, each with the units of its name."""
    files, links = amd(*[MI300X] * 8, hive=77)

    found = devices(files, links)

    assert [card.bus_id for card in found] == [bus_id(index) for index in range(8)]
    last = found[7]
    assert (last.vendor, last.name, last.architecture, last.target, last.compute_units) == (
        "amd",
        "AMD Instinct MI300X OAM",
        "cdna3",
        "gfx942",
        304,
    )
    assert (last.memory_total_bytes, last.utilization_percent, last.problem, last.lost) == (192 * GIB, 0, "", False)
    assert (last.clocks.sm_mhz, last.clocks.sm_max_mhz, last.clocks.events, last.performance_level) == (132, 2100, (), "auto")
    assert (last.power.usage_watts, last.power.limit_watts, last.power.default_limit_watts) == (140.0, 750.0, 750.0)
    assert (last.thermal.celsius, last.thermal.slowdown_celsius) == (45, 100)
    assert (last.thermal.memory_celsius, last.thermal.memory_max_celsius) == (39, 108)
    assert (last.ecc.enabled, last.ecc.uncorrected, last.ecc.remap_pending, last.ecc.remap_failed) == (True, 0, False, False)
    assert (last.compute_partition, last.memory_partition, last.mig_enabled) == ("SPX", "NPS1", False)
    assert (last.numa_node, last.local_cpus) == (1, CpuSet.parse("48-95"))
    assert (last.xgmi.peers, last.xgmi.over_pcie) == (7, 0)


def test_the_link_is_that_of_the_card_and_not_that_behind_its_own_switch() -> None:
    """A card whose uppermost bridge trained at 8 lanes; the GPU's own link to the switch is always full."""
    files, links = amd(MI300X)
    upper = next(path for path in files if path.endswith("0000:0a:00.0/current_link_width"))

    (card,) = devices({**files, upper: "8\n"}, links)

    assert (card.pcie.width_lanes, card.pcie.max_width_lanes, card.pcie.slot_width_lanes, card.pcie.generation) == (8, 16, 16, 5)


def test_a_missing_xgmi_link_is_counted() -> None:
    files, links = amd(*[MI300X] * 4, hive=77)
    to_the_last = next(path for path, text in files.items() if path.startswith(f"{NODES}/1/io_links") and "node_to 4\n" in str(text))

    found = devices({**files, to_the_last: "type 2\nnode_from 1\nnode_to 4\n"}, links)

    assert [card.xgmi.over_pcie for card in found] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("listed", "readable"),
    [({}, None), ({"0": "type 2\nnode_from 1\nnode_to 0\n"}, 0), ({"0": "type 2\nnode_to 0\n", "1": "type 2\nnode_to 2\n"}, 1)],
)
def test_a_gpu_whose_memory_another_one_may_read_is_counted_and_a_processors_is_not(listed: Files, readable: int | None) -> None:
    """A kernel without the list says nothing."""
    files, links = amd(RX7900, RX7900)
    peers = {f"{NODES}/1/p2p_links/{place}/properties": text for place, text in listed.items()}

    first, _ = devices({**files, **peers}, links)

    assert (first.xgmi.peers, first.xgmi.readable) == (0, readable)


def test_a_hive_with_a_name_of_twenty_digits_is_one() -> None:
    """As MI210 has it: more than 63 bits hold."""
    files, links = amd(*[MI300X] * 4, hive=18091350218769748594)

    assert [card.xgmi.peers for card in devices(files, links)] == [3, 3, 3, 3]


def test_errors_of_all_blocks_are_summed_and_bad_pages_counted() -> None:
    files, links = amd(MI300X)
    own = next(path for path in files if path.endswith("ras/umc_err_count")).rpartition("/")[0]
    sick = {
        f"{own}/umc_err_count": "ue: 3\nce: 40\n",
        f"{own}/gfx_err_count": "ue: 1\nce: 2\n",
        f"{own}/gpu_vram_bad_pages": "0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n0x027f5d53 : 0x00001000 : F\n",
    }

    (card,) = devices({**files, **sick}, links)

    assert (card.ecc.uncorrected, card.ecc.corrected, card.ecc.remapped_rows) == (4, 42, 3)
    assert (card.ecc.remap_pending, card.ecc.remap_failed) == (True, True)


def test_programs_that_hold_memory_are_named() -> None:
    files, links = amd(MI300X, MI300X)
    held = {"/sys/class/kfd/kfd/proc/4242/vram_1001": f"{20 * GIB}\n", "/sys/class/kfd/kfd/proc/7/vram_1001": "0\n"}

    found = devices({**files, **held}, links)

    assert [[(process.pid, process.used_bytes) for process in card.processes or ()] for card in found] == [[], [(4242, 20 * GIB)]]


@pytest.mark.parametrize("model", [PHOENIX, {**RX7900, "target": 80003}, {**RX7900, "target": 100100}], ids=["laptop", "RX 580", "RX 5700"])
def test_what_only_draws_a_screen_is_no_gpu_for_computing(model: dict[str, object]) -> None:
    """A processor's own graphics, and generations that no build of PyTorch has code for."""
    assert devices(*amd(model)) == ()
    assert [card.name for card in devices(*amd(model, RX7900))] == ["AMD Radeon RX 7900"]


def test_without_the_compute_driver_the_card_is_still_there() -> None:
    """amdgpu alone draws a screen and does not compute: target and units are unknown."""
    files, links = amd(RX7900)

    (card,) = devices({path: text for path, text in files.items() if not path.startswith("/sys/class/kfd")}, links)

    assert (card.name, card.target, card.compute_units, card.memory_total_bytes) == ("AMD Radeon RX 7900", None, None, 24 * GIB)


@pytest.mark.parametrize(
    ("refusal", "cards"), [(PermissionError(1, "Operation not permitted"), [1]), (OSError(5, "Input/output error"), [0, 1, 2])]
)
def test_a_job_has_the_gpus_that_the_driver_shows_to_its_control_group(refusal: OSError, cards: list[int]) -> None:
    """Of those of other jobs the nodes are listed, and may not be read. A node that fails otherwise is no other job's."""
    files, links = amd(MI300X, MI300X, MI300X)
    files |= {f"{NODES}/{number}/properties": refusal for number in (1, 3)}

    found = devices(files, links)

    assert [card.bus_id for card in found] == [bus_id(index) for index in cards]


def test_no_gpu_vanishes_where_no_node_may_be_read() -> None:
    files, links = amd(MI300X)

    (card,) = devices({**files, f"{NODES}/1/properties": PermissionError(1, "Operation not permitted")}, links)

    assert card.target is None


@pytest.mark.parametrize(
    ("loaded", "module", "limit"),
    [
        ({"/sys/module/ttm/parameters/pages_limit": "16384000\n"}, "ttm", 16384000 * 4096),
        (
            {"/sys/module/ttm/parameters/pages_limit": "1\n", "/sys/module/amdttm/parameters/pages_limit": "32768000\n"},
            "amdttm",
            32768000 * 4096,
        ),
        ({"/sys/module/ttm/version": "1\n"}, "ttm", None),
        ({}, None, None),
    ],
)
def test_the_limit_of_shared_memory_is_that_of_the_module_which_is_loaded(loaded: Files, module: str | None, limit: int | None) -> None:
    """AMD's packages bring amdttm, beside which ttm may be there for other drivers."""
    files, links = amd({**RX7900, "target": 110501})

    (card,) = devices({**files, **loaded}, links)

    assert (card.memory_shared_module, card.memory_shared_limit_bytes) == (module, limit)


@pytest.mark.parametrize(("said", "version"), [("0x00000083\n", "0x83"), ("0x00000000\n", "0x0"), ("131\n", None), (None, None)])
def test_the_firmware_of_its_queues(said: str | None, version: str | None) -> None:
    files, links = amd(RX7900)
    own = next(path for path in files if path.endswith("/mem_info_vram_total")).rpartition("/")[0]

    (card,) = devices(files | ({f"{own}/fw_version/mes_fw_version": said} if said else {}), links)

    assert card.queue_firmware == version


def test_a_card_that_cannot_be_told_is_not_none() -> None:
    """Whose file may not be read may be a GPU: unknown, and not none."""
    files, links = amd(MI300X)
    hidden: Files = {path: OSError("denied") if path.endswith("uevent") else text for path, text in files.items()}

    assert collect(make_machine(hidden, links, {})).devices is None


def test_the_console_of_a_server_is_no_gpu_for_computing() -> None:
    """An old chip of AMD's, held by `radeon`."""
    files, links = amd(RX7900)
    console = {
        path: str(text).replace("DRIVER=amdgpu", "DRIVER=radeon") if path.endswith("uevent") else text for path, text in files.items()
    }

    assert devices(console, links) == ()


def test_an_arc_card_is_read_beside_the_processors_graphics() -> None:
    (card,) = devices(*intel())

    assert (card.vendor, card.name, card.bus_id, card.memory_total_bytes) == ("intel", "Intel Arc B580", "0000:03:00.0", 12 * GIB)
    assert (card.clocks.sm_max_mhz, card.clocks.allowed_max_mhz, card.clocks.events) == (2850, 2850, ())
    assert (card.power.limit_watts, card.power.default_limit_watts, card.thermal.celsius) == (190.0, 190.0, 38)
    assert (card.bar1_total_bytes, card.pcie.width_lanes, card.pcie.slot_generation) == (16 * GIB, 8, 4)
    assert card.compute_engines == 1


def test_an_arc_card_that_is_divided_among_engines_is_told() -> None:
    (card,) = devices(*intel("56A0", **{"tile0/gt0/ccs_mode": "4\n"}))

    assert card.compute_engines == 4


@pytest.mark.parametrize(
    ("text", "profiles"),
    [
        (
            "NUM        MODE_NAME BUSY_SET_POINT\n  0 BOOTUP_DEFAULT :  70\n  1 3D_FULL_SCREEN :  70\n  2   POWER_SAVING*:  90\n",
            ("power-saving",),
        ),
        ("PROFILE_INDEX(NAME) CLOCK_TYPE(NAME) FPS\n 0 BOOTUP_DEFAULT*:\n      0(       GFXCLK)       0       5\n", ("bootup-default",)),
        ("                    0 BOOTUP_DEFAULT   1 3D_FULL_SCREEN *  2 POWER_SAVING \nFPS   0 0 0\n", ("3d-full-screen",)),
        ("NUM        MODE_NAME\n  0 BOOTUP_DEFAULT :\n", None),
    ],
)
def test_the_power_profile_of_a_radeon_is_the_one_with_the_star(text: str, profiles: tuple[str, ...] | None) -> None:
    files, links = amd(RX7900)
    own = next(path for path in files if path.endswith("/power_dpm_force_performance_level")).rpartition("/")[0]
    (card,) = devices({**files, f"{own}/pp_power_profile_mode": text}, links)
    (without,) = devices(files, links)

    assert (card.power_profiles, without.power_profiles) == (profiles, ())


def test_an_arc_tells_its_power_profile_and_whether_its_link_went_back() -> None:
    (card,) = devices(*intel(**{"tile0/gt0/freq0/power_profile": "base    [power_saving]\n", "auto_link_downgrade_status": "1\n"}))
    (older,) = devices(*intel())

    assert (card.power_profiles, card.pcie.downgraded) == (("power-saving",), True)
    assert (older.power_profiles, older.pcie.downgraded) == ((), False)


IDLE_PARTS = {"tile0/gt0/gtidle/idle_residency_ms": "4000\n", "tile0/gt1/gtidle/idle_residency_ms": "9000\n"}


def test_an_intel_gpu_is_as_busy_as_it_was_awake() -> None:
    """Which the machine itself is asked for: a capture has the answer. Without such counters nobody is asked."""
    files, links = intel(**IDLE_PARTS)
    (card,) = collect(make_machine(files, links, {"gpu:awake": {"card1": 97}})).devices or ()
    (silent,) = collect(make_machine(*intel(), {"gpu:awake": {"card1": 97}})).devices or ()
    (odd,) = collect(make_machine(files, links, {"gpu:awake": {"card1": 300}})).devices or ()

    assert (card.utilization_percent, silent.utilization_percent, odd.utilization_percent) == (97, None, None)


def test_the_part_that_slept_least_counts(tmp_path: Path) -> None:
    """Two looks at real files: one part sleeps all of the time, the other half of it."""
    parts = [tmp_path / name for name in ("busy", "asleep")]
    for path in parts:
        path.write_text("1000\n")

    def sleeping(seconds: float) -> None:
        parts[0].write_text("1050\n")
        parts[1].write_text("1100\n")
        time.sleep(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "pause", sleeping)
        told = intel_use.look_twice({"card1": [str(path) for path in parts], "card2": [str(tmp_path / "none")]})

    assert list(told) == ["card1"]
    assert 40 <= told["card1"] <= 75


DISCOVERED = json.dumps({"device_list": [{"device_id": 0, "device_name": "Intel(R) Arc(TM) B580", "pci_bdf_address": "0000:03:00.0"}]})
DUMPED = (
    "Timestamp, DeviceId, Cache Errors Correctable, Cache Errors Uncorrectable, GPU Memory Used (MiB)\n15:44:36.481,    0, N/A, {}, 82.44\n"
)


@pytest.mark.parametrize(("count", "errors", "enabled"), [("2", 2, True), ("N/A", None, False)])
def test_intels_tool_tells_memory_and_errors_under_deep(count: str, errors: int | None, enabled: bool) -> None:
    made: dict[str, object] = {"run:xpu-smi-list": DISCOVERED, "run:xpu-smi-dump": DUMPED.format(count)}
    (card,) = collect(make_machine(*intel(), made, deep=True)).devices or ()
    (plain,) = collect(make_machine(*intel(), made)).devices or ()

    assert (card.memory_used_bytes, card.ecc.uncorrected, card.ecc.corrected, card.ecc.enabled) == (86_444_605, errors, None, enabled)
    assert plain.memory_used_bytes is None, "not asked without --deep"


def test_the_newer_of_intels_tools_is_asked_in_its_own_words() -> None:
    """Version 2 has other names for the options; errors of the memory are counted beside those of the caches."""
    table = DUMPED.format("1").replace(", 82.44\n", ", 82.44, 7, 3\n")
    table = table.replace("Used (MiB)\n", "Used (MiB), GPU Memory Errors Correctable, GPU Memory Errors Uncorrectable\n")
    made: dict[str, object] = {"run:xpu-smi-list": DISCOVERED, "run:xpu-smi-dump-2": table}
    (card,) = collect(make_machine(*intel(), made, deep=True)).devices or ()

    assert (card.memory_used_bytes, card.ecc.uncorrected, card.ecc.corrected) == (86_444_605, 4, 7)


def test_columns_of_intels_tool_of_2026_have_names_in_small_letters() -> None:
    """It is asked by the numbers of the older ones, and writes plain comma-separated lines where nobody looks on."""
    names = ("memory.used (MiB)", "ras.non_compute.errors.correctable", "ras.non_compute.errors.uncorrectable")
    table = f"Timestamp,DeviceId,ras.cache.errors.correctable,ras.cache.errors.uncorrectable,{','.join(names)}\n15:44:36.481,0,N/A,1,82.44,7,3\n"
    made: dict[str, object] = {"run:xpu-smi-list": DISCOVERED, "run:xpu-smi-dump-2": table}
    (card,) = collect(make_machine(*intel(), made, deep=True)).devices or ()

    assert (card.memory_used_bytes, card.ecc.uncorrected, card.ecc.corrected) == (86_444_605, 4, 7)


@pytest.mark.parametrize(
    ("model", "place", "count"), [("46a0", "0000:00:02.3", 0), ("46a0", "0000:06:10.0", 0), ("e20b", "0000:00:02.0", 1)]
)
def test_a_card_of_intels_is_told_by_its_model(model: str, place: str, count: int) -> None:
    """A guest sees the graphics of a processor, or a part of them, at any address, and a card at the processor's."""
    own = f"/sys/devices/pci0000:00/{place}"
    said = f"DRIVER=xe\nPCI_ID=8086:{model.upper()}\nPCI_SLOT_NAME={place}\n"
    files: Files = {f"{own}/uevent": said, f"{own}/drm/card0/dev": "226:0\n", "/proc/bus/pci/devices": "0010\t80860000\t0\n"}
    links = {f"{DRM}/card0": f"../..{own.removeprefix('/sys')}/drm/card0", f"{own}/drm/card0/device": f"../../../{place}"}

    assert len(devices(files, links)) == count


def test_what_a_host_has_for_its_guests_computes_for_nobody_here() -> None:
    """A container that was given a part alone computes on it."""
    files, links = amd(MI300X, MI300X)
    own = next(path for path in files if path.endswith("1c:00.0/uevent")).rpartition("/")[0]
    links = {**links, f"{own}/physfn": "../0000:0c:00.0"}
    files |= {f"{own}/drm/renderD129/dev": "226:129\n"}
    whole = next(path for path in files if path.endswith("0c:00.0/uevent")).rpartition("/")[0]
    files |= {f"{whole}/drm/renderD128/dev": "226:128\n", f"{own.rpartition('/')[0]}/0000:0c:00.0/vendor": "0x1002\n"}

    assert [card.bus_id for card in devices(files, links)] == ["0000:0c:00.0"]
    del files["/dev/dri/renderD128"]
    assert [card.bus_id for card in devices(files, links)] == ["0000:0c:00.0", "0000:1c:00.0"]


def test_accelerators_of_other_makers_are_counted() -> None:
    listed = "2000\t1da31020\t0\n2100\t1da31020\t0\n0000\t80860000\t0\n3000\t1ae00063\t0\n3100\t1ae01f1f\t0\n"

    assert collect(make_machine({"/proc/bus/pci/devices": listed}, {}, {})).others == ("2 Gaudi of Intel's", "1 TPU of Google's")
    assert collect(make_machine({"/proc/bus/pci/devices": "0000\t80860000\t0\n"}, {}, {})).others == ()
    assert collect(make_machine({"/proc/bus/pci/devices": ""}, {}, {})).others == ()
    assert collect(make_machine({}, {}, {})).others is None
    assert collect(make_machine({"/sys/bus/cpu/uevent": ""}, {}, {})).others == ()


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ("1da30001 1da31000 1da31060", "2 Gaudi of Intel's"),
        ("1d946210 1d946210 1d941480 1d9454b7", "3 DCUs of Hygon's"),  # its processors' bridges are none
        ("99994001 99990001", "1 GPU of MetaX's"),
        ("1ed20000", "1 NPU of FuriosaAI's"),
        ("1ae00027 1ae00076 1ae00042 1ae0001f", "2 TPUs of Google's"),
        ("1d0f7064 1d0f7364 1d0fec20 1d0f8061", "2 Trainium or Inferentia of Amazon's"),
        ("19e5d802 19e51822 19e5a222", "1 Ascend of Huawei's"),
        ("17cba080 17cba100 17cb1103", "2 Cloud AI of Qualcomm's"),
        ("1e52401e 1e52401e", "2 cards of Tenstorrent's"),
        ("cabc0370 cabc0370", "2 MLUs of Cambricon's"),
        ("1d950001", "1 IPU of Graphcore's"),
        ("1ed50201 1ed502ff 1ed50323 1ed501ff", "2 GPUs of Moore Threads'"),
        ("10de2330 1af41041", ""),
    ],
)
def test_what_is_no_accelerator_of_a_maker_is_not_counted(ids: str, said: str) -> None:
    """Its sound, its network, its disks, its chips that PyTorch does not use, and its number elsewhere in a line."""
    listed = "".join(f"{number:04x}\t{one}\t0\t1da31020\tdriver\n" for number, one in enumerate(ids.split()))

    assert collect(make_machine({"/proc/bus/pci/devices": listed}, {}, {})).others == ((said,) if said else ())


def test_what_is_set_aside_for_a_processors_graphics_is_read_where_no_card_computes() -> None:
    files, links = processor_of_amd()

    found = collect(make_machine({"/proc/bus/pci/devices": "", **files}, links, {}))

    assert (found.graphics_targets, found.graphics_memory_bytes) == (("gfx1103",), 8 * GIB)
    assert collect(make_machine(*amd(RX7900), {})).graphics_memory_bytes is None


@pytest.mark.parametrize(
    ("sensors", "percent"),
    [
        ({"fan1_input": "0\n", "pwm1": "76\n"}, 0),
        ({"fan1_input": "2100\n", "pwm1": "128\n"}, 50),
        ({"fan1_input": "2100\n"}, None),
        ({}, None),
    ],
)
def test_a_fan_that_stands_still_is_told_whatever_it_is_told_to_do(sensors: dict[str, str], percent: int | None) -> None:
    """Servers cool their cards: those have no fan of their own."""
    files, links = amd(RX7900)
    at = next(path for path in files if path.endswith("/power1_cap")).rpartition("/")[0]

    (card,) = devices(files | {f"{at}/{name}": text for name, text in sensors.items()}, links)

    assert card.thermal.fan_percent == percent


@pytest.mark.parametrize("answer", ["", "no table", "DeviceId\n0", '{"device_list": 5}', "[[[["])
def test_another_answer_of_intels_tool_says_nothing(answer: str) -> None:
    made: dict[str, object] = {"run:xpu-smi-list": answer, "run:xpu-smi-dump": answer}
    (card,) = collect(make_machine(*intel(), made, deep=True)).devices or ()

    assert (card.memory_used_bytes, card.ecc.uncorrected) == (None, None)


@pytest.mark.parametrize(
    ("reason", "event"),
    [("mem_thermal", "hw-thermal"), ("soc_avg_thermal", "sw-thermal"), ("psys_pl1", "sw-power-cap"), ("psys_crit", "hw-power-brake")],
)
def test_reasons_of_newer_gpus_have_the_same_names(reason: str, event: str) -> None:
    """As Linux lists them in xe_gt_throttle.c; the highest clock itself slows nothing."""
    (card,) = devices(*intel(**{f"tile0/gt0/freq0/throttle/reason_{reason}": "1\n", "tile0/gt0/freq0/throttle/reason_p0_freq": "1\n"}))

    assert card.clocks.events == (event,)


def test_reasons_of_a_throttled_arc_have_common_names() -> None:
    (card,) = devices(*intel(**{"tile0/gt0/freq0/throttle/reason_thermal": "1\n", "tile0/gt0/freq0/throttle/reason_pl1": "1\n"}))

    assert card.clocks.events == ("sw-power-cap", "hw-thermal")


def test_makers_are_listed_behind_each_other(machine: MakeMachine) -> None:
    """NVIDIA's keep NVML's numbers; a Radeon comes behind them."""
    files, links = nvidia_files(2)
    others, more = amd(RX7900)

    found = collect(machine({**others, **files}, {**links, **more}, calls(H100, H100))).devices

    assert [(card.index, card.vendor) for card in found or ()] == [(0, "nvidia"), (1, "nvidia"), (2, "amd")]


@pytest.mark.parametrize(
    ("bit", "event"), [(0, "sw-power-cap"), (17, "sw-power-cap"), (38, "sw-thermal"), (44, "hw-thermal"), (47, "hw-power-brake")]
)
def test_throttle_bits_have_common_names(bit: int, event: str) -> None:
    assert throttled_by(metrics(1 << bit)) == (event,)


def test_the_bit_of_the_hotspot_says_nothing() -> None:
    """Navi 31 and 48 set it at rest. What the junction's sensor says is judged."""
    assert throttled_by(metrics(1 << 36)) == ()


def throttle(**states: str) -> str:
    """What ``amd-smi metric --throttle --json`` says of two GPUs, the second of them in these states."""
    calm = dict.fromkeys(("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal"), "NOT ACTIVE")
    entries = [{f"{name}_violation_status": state for name, state in said.items()} for said in (calm, calm | states)]
    return json.dumps([{"gpu": index, "throttle": said} for index, said in enumerate(entries)])


@pytest.mark.parametrize("maker", ["amd", "intel"])
def test_a_gpu_that_sleeps_is_not_woken(maker: str) -> None:
    """What it is and what it has is known; its sensors stay unread, for that would take seconds and wake it."""
    files, links = amd(RX7900) if maker == "amd" else intel()
    own = next(path for path in files if path.endswith(("0c:00.0/local_cpulist", "03:00.0/local_cpulist"))).rpartition("/")[0]
    woken = [f"{own}/gpu_busy_percent", f"{own}/gpu_metrics", f"{own}/tile0/gt0/freq0/act_freq", f"{own}/pcie_replay_count"]
    host = make_machine({**files, f"{own}/power/runtime_status": "suspended\n"}, links, {})

    (card,) = collect(host).devices or ()

    assert (card.memory_total_bytes, card.problem) == ((24 if maker == "amd" else 12) * GIB, "")
    assert (card.utilization_percent, card.clocks, card.power, card.thermal, card.pcie) == (None, Clocks(), Power(), Thermal(), Pcie())
    read = {source.path for source in host.sources if source.error is None}
    assert not [path for path in read if "/hwmon/" in path or path in {name.replace(own, f"{DRM}/card1/device") for name in woken}]


def test_what_the_files_of_an_mi300x_do_not_tell_its_tool_does_under_deep() -> None:
    """Revision 1.6 of its metrics has a status of the chip only; both forms of the tool's answer are read."""
    files, links = amd(MI300X, MI300X)
    for path in [path for path in files if path.endswith("/gpu_metrics")]:
        files[path] = b"\x78\x00\x01\x06" + bytes(200)
    listed = json.dumps([{"gpu": index, "bdf": bus_id(index)} for index in range(2)])
    said = throttle(socket_thermal="ACTIVE", ppt="ACTIVE")
    for answer in (said, json.dumps({"gpu_data": json.loads(said)})):
        calls_made: dict[str, object] = {"run:amd-smi-list": listed, "run:amd-smi-throttle": answer}
        found = collect(make_machine(files, links, calls_made, deep=True)).devices
        assert [card.clocks.events for card in found or ()] == [(), ("sw-power-cap", "hw-thermal")]

    newer: dict[str, object] = {"run:amd-smi-list": listed, "run:amd-smi-violation": json.dumps({"gpu_data": json.loads(said)})}
    found = collect(make_machine(files, links, newer, deep=True)).devices
    assert [card.clocks.events for card in found or ()] == [(), ("sw-power-cap", "hw-thermal")], "of ROCm 7, whose option has another name"

    assert [card.clocks.events for card in devices(files, links)] == [None, None], "not asked without --deep"

    absent = make_machine(files, links, {}, deep=True)
    collect(absent)
    assert [source.path for source in absent.sources if "amd-smi" in source.path] == ["run:amd-smi-list"], "an absent tool is asked once"


@pytest.mark.parametrize("answer", ["", "no JSON", "[1, null]", '[{"gpu": 0, "throttle": "N/A"}]', '{"gpu_data": {}}', "[[[["])
def test_a_tool_that_says_something_else_says_nothing(answer: str) -> None:
    files, links = amd(MI300X)
    files = {path: text for path, text in files.items() if not path.endswith("/gpu_metrics")}
    calls_made: dict[str, object] = {"run:amd-smi-list": answer, "run:amd-smi-throttle": answer}

    found = collect(make_machine(files, links, calls_made, deep=True)).devices

    assert [card.clocks.events for card in found or ()] == [None]


LOG = """\
2026-11-20T12:00:00,000001+00:00 amdgpu 0000:0c:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=12, emitted seq=14
2026-11-20T12:00:01,000001+00:00 amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!
2026-11-20T12:00:02,000001+00:00 amdgpu 0000:0c:00.0: amdgpu: GPU reset(2) succeeded!
2026-11-20T12:00:03,000001+00:00 amdgpu 0000:1c:00.0: amdgpu: socket: 1, die: 0, 3 uncorrectable hardware errors detected in umc block
2026-11-20T12:00:04,000001+00:00 xe 0000:03:00.0: [drm] *ERROR* GT0: Engine reset: engine_class=rcs
2026-11-20T12:00:05,000001+00:00 amdgpu 0000:0c:00.0: amdgpu: Runtime PM not available
2026-11-20T12:00:06,000001+00:00 amdgpu 0000:1c:00.0: amdgpu: GPU reset end with ret = -62
2026-11-20T12:00:07,000001+00:00 amdgpu 0000:1c:00.0: amdgpu: GPU reset end with ret = 0
"""


def test_a_hang_of_what_only_draws_a_screen_is_nothing_and_a_start_that_failed_is(machine: MakeMachine) -> None:
    """Where no GPU computes, one may have been lost; what hangs there draws a screen."""
    log = "".join(
        f"2026-11-20T12:00:00,000001+00:00 {line}\n"
        for line in ("i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:0", "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init")
    )
    empty = {"/proc/bus/pci/devices": "0000\t80860000\t0\n", "/sys/class/x": ""}

    assert [fault.kind for fault in collect(machine(empty, calls={"run:dmesg": log}, deep=True)).faults or ()] == ["start"]

    graphics, links = intel()
    graphics = {path: text for path, text in graphics.items() if "0000:03:00.0" not in path}
    links = {path: target for path, target in links.items() if "0000:03:00.0" not in target + path}
    library = {"/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1": ""}
    assert kinds(graphics, links, log) == ["start"], "a processor's graphics"
    assert kinds({**graphics, **library}, links, log) == ["hung", "start"], "the same with a driver for computing"
    assert kinds({**empty, **library}, {}, log) == ["start"], "the driver without such graphics"


def kinds(files: Files, links: dict[str, str], log: str) -> list[str]:
    return [fault.kind for fault in collect(make_machine(files, links, {"run:dmesg": log}, deep=True)).faults or ()]


def test_what_the_driver_of_a_host_says_of_its_virtual_gpus_counts() -> None:
    """Its GPUs are for its guests, so that none of them is one that computes here."""
    log = "2026-11-20T12:00:00,000001+00:00 h kernel: gim error libgv: [0:c:0:0][PF][amdgv_reset_gpu:142] Issuing Whole GPU reset.\n"
    host = make_machine({"/proc/bus/pci/devices": "0000\t80860000\t0\n", "/sys/class/x": ""}, {}, {"run:dmesg": log}, deep=True)

    assert [(fault.kind, fault.bus_id) for fault in collect(host).faults or ()] == [("hung", "0000:0c:00.0")]


def test_what_the_iommu_refused_counts_of_gpus_of_every_maker() -> None:
    """A machine with two of NVIDIA's, and one of AMD's behind them."""
    theirs, their_links = nvidia_files(2)
    files, links = amd(MI300X)
    places = (bus_id(0), "0000:17:00.0", "0000:99:00.0")
    lines = [f"2026-11-20T12:00:00,1+00:00 DMAR: [DMA Read] Request device [{place}] fault addr 0x1" for place in places]
    asked = {**calls(H100, H100), "run:dmesg": "\n".join(lines)}

    found = collect(
        make_machine(
            {**theirs, **files, "/proc/bus/pci/devices": theirs["/proc/bus/pci/devices"]}, {**their_links, **links}, asked, deep=True
        )
    )

    assert [fault.bus_id for fault in found.faults or ()] == list(places[:2])


def test_resets_and_broken_memory_are_told_apart() -> None:
    """A reset may be a program's fault; an uncorrectable error and a lost device are the GPU's."""
    faults = read_log(LOG).faults or ()

    assert [(fault.bus_id, fault.kind, fault.count) for fault in faults] == [
        ("0000:0c:00.0", "hung", 2), ("0000:1c:00.0", "memory", 1), ("0000:03:00.0", "hung", 1), ("0000:1c:00.0", "reset-failed", 1),
    ]  # fmt: skip


def test_metrics_that_do_not_tell_are_unknown() -> None:
    """Another revision, one that is cut short, one that the firmware left empty."""
    assert throttled_by(metrics(0)) == ()
    assert throttled_by(b"\x78\x00\x01\x04" + bytes(200)) is None
    assert throttled_by(metrics(1)[:100]) is None
    assert throttled_by(metrics((1 << 64) - 1)) is None


HOSTILE = (
    st.binary(max_size=40)
    | st.sampled_from([b"-1", b"9" * 30])
    | damaged_bytes(metrics(1 << 40))
    | damaged_bytes(accumulated(9, 1, 2, 3, 4, 5))
)


@fuzz
@given(st.data())
def test_no_file_breaks_the_collector(data: st.DataObject) -> None:
    """A hostile capture writes anything into any file: nothing raises, the record stays encodable."""
    files, links = amd(MI300X, RX7900, hive=7) if data.draw(st.booleans()) else intel()
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(files)), HOSTILE, max_size=8))

    facts = collect(make_machine({**files, **changed}, links, {}))

    json.loads(to_json(facts))


def test_a_kernel_without_amds_driver_for_computing_lists_no_gpu() -> None:
    files, links = amd(RX7900)
    bare = {path: text for path, text in files.items() if "/kfd" not in path}

    listed = [collect(make_machine(given, links, {})).devices for given in (files, bare)]

    assert [devices and devices[0].kfd_listed for devices in listed] == [True, False]

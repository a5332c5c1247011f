"""Live meters of GPUs of AMD and Intel are what their drivers' files say, and unknown with a reason where there is no such file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.collect.gpu import collect
from sysperf.collect.readers.gpu_sleep import ASLEEP
from sysperf.host import Host
from sysperf.host.live import Live
from sysperf.live.gpus import Gpus
from sysperf.live.gpus.drm_clients import AT_ONCE, DENIED, OUTSIDE, SEARCH_S, SEARCHING
from sysperf.live.gpus.files import NO_NUMBER, NOT_OFFERED
from sysperf.live.gpus.meters import METRICS, series
from sysperf.live.metrics import describe
from sysperf.procfs.fdinfo import parse
from tests import gpus
from tests.agent.machines import Clock, RecordedNvml
from tests.conftest import Files
from tests.fuzzing import fuzz
from tests.mutation import damaged_bytes
from tests.other_gpus import GIB, MI300X, PHOENIX, RX7900, accumulated, amd, drm_client, intel, metrics, plant

FIRST = {"/proc/self/ns/pid": "pid:[4026531836]"}
ARC = "0000:03:00.0"


def no_nvml() -> RecordedNvml:
    raise AssertionError("NVML is not opened where there is no GPU of NVIDIA's")


def meters_at(folder: str, clock: Clock | None = None) -> Gpus:
    return Gpus(no_nvml, clock or Clock(), folder)


def own(files: Files, name: str, index: int = 0) -> str:
    """The path of a file of the GPU with this number."""
    return sorted(path for path in files if path.endswith(f"/{name}"))[index]


# ---------------------------------------------------------------------- AMD


def test_an_mi300x_in_work(tmp_path: Path) -> None:
    """Use, memory, power, clock and heat in our units, of each GPU under its number; nothing is 0 that is not offered."""
    files, links = amd(*[MI300X] * 2, hive=7)
    busy = {own(files, "gpu_busy_percent", 1): "97\n", own(files, "mem_busy_percent", 1): "41\n"}
    hot = {
        own(files, "temp2_input", 1): "83000\n",
        own(files, "power1_input", 1): "741500000\n",
        own(files, "freq1_input", 1): "2087000000\n",
    }
    meters = meters_at(plant(tmp_path, {**files, **busy, **hot}, {**links, **FIRST}))

    values = meters.sample()

    shown = ("utilization", "memory_utilization", "power_watts", "sm_clock_mhz", "celsius", "clock_events", "slowed")
    assert [values[series(1, name)] for name in shown] == pytest.approx([0.97, 0.41, 741.5, 2087, 83, 0, 0])
    assert values["gpu.0.memory_used_bytes"] == MI300X["used"]
    assert all(describe(name) for name in values)
    of_one = {name for name in (*values, *meters.unknown) if name.startswith("gpu.1.")}
    assert of_one == {series(1, metric.name) for metric in METRICS}, "each meter is there, or has a reason"
    assert meters.unknown["gpu.1.sm_active"] == NOT_OFFERED
    assert "PCIe" in meters.unknown["gpu.1.pcie_received_bytes_per_s"]
    assert meters.problem == ""


def test_meters_and_facts_have_the_same_numbers(tmp_path: Path) -> None:
    """Graphics of a processor take no number; GPUs of NVIDIA come first."""
    files, links = amd(PHOENIX, RX7900, MI300X)
    folder = plant(tmp_path, {**files, own(files, "gpu_busy_percent", 2): "50\n", "/proc/driver/nvidia/version": "x"}, {**links, **FIRST})
    session = RecordedNvml(gpus.calls(gpus.H100, gpus.H100))

    values = Gpus(lambda: session, Clock(), folder).sample()

    assert [values[series(index, "utilization")] for index in range(4)] == [0.97, 0.97, 0.0, 0.5]
    alone = plant(tmp_path / "alone", files, links)
    devices = collect(Host(tree=Live(alone))).devices or ()
    assert [device.index for device in devices] == [0, 1]
    assert {name for name in meters_at(alone).sample() if name.endswith(".utilization")} == {"gpu.0.utilization", "gpu.1.utilization"}


def test_an_older_radeon_says_some_of_it_elsewhere(tmp_path: Path) -> None:
    """The mean power, and the clock as the marked line of its levels. A file that is not there is unknown."""
    files, links = amd(RX7900)
    files[own(files, "power1_input").replace("power1_input", "power1_average")] = "201000000\n"
    files[own(files, "pp_dpm_sclk")] = "0: 500Mhz\n1: 1807Mhz *\n2: 2526Mhz\n"
    for name in ("freq1_input", "mem_busy_percent", "gpu_metrics"):
        del files[own(files, name)]
    meters = meters_at(plant(tmp_path, files, links))

    values = meters.sample()

    assert (values["gpu.0.power_watts"], values["gpu.0.sm_clock_mhz"]) == (201, 1807)
    assert "gpu.0.memory_utilization" not in values
    assert meters.unknown["gpu.0.memory_utilization"] == meters.unknown["gpu.0.slowed"] == NOT_OFFERED
    assert "gpu.0.sm_clock_mhz" not in meters.unknown


def test_what_holds_a_radeon_back_is_a_state(tmp_path: Path) -> None:
    """Revision 1.3 of its metrics; one that tells nothing leaves the meters unknown."""
    files, links = amd(RX7900)
    at = own(files, "gpu_metrics")
    meters = meters_at(plant(tmp_path, {**files, at: metrics(1 << 44 | 1)}, links))
    values = meters.sample()
    assert (values["gpu.0.clock_events"], values["gpu.0.power_capped"], values["gpu.0.slowed"]) == (0x44, 1, 1)

    plant(tmp_path, {at: metrics((1 << 64) - 1)})

    assert "gpu.0.slowed" not in meters.sample()
    assert meters.unknown["gpu.0.slowed"] == "gpu_metrics of this GPU does not tell"


def test_what_holds_an_mi300x_back_is_counted_between_samples(tmp_path: Path) -> None:
    """The first sample says nothing; then what has grown since; counters that began anew say nothing."""
    files, links = amd(MI300X)
    at = own(files, "gpu_metrics")
    meters = meters_at(plant(tmp_path, {**files, at: accumulated(1000, 0, 300, 20, 0, 0)}, links))
    assert "gpu.0.slowed" not in meters.sample()
    assert "gpu.0.slowed" not in meters.unknown

    seen = []
    for now in (accumulated(2000, 0, 900, 20, 0, 0), accumulated(3000, 0, 900, 25, 0, 0), accumulated(4000, 0, 900, 25, 0, 0)):
        plant(tmp_path, {at: now})
        values = meters.sample()
        seen.append((values["gpu.0.power_capped"], values["gpu.0.slowed"]))
    plant(tmp_path, {at: accumulated(10, 0, 0, 0, 0, 0)})

    assert seen == [(1, 0), (0, 1), (0, 0)]
    assert "gpu.0.slowed" not in meters.sample()


def test_memory_of_programs_is_summed_over_gpus(tmp_path: Path) -> None:
    """As the compute driver counts it; programs that come later are found, and those that end are gone."""
    files, links = amd(MI300X, MI300X)
    folder = "/sys/class/kfd/kfd/proc"
    held = {f"{folder}/4242/vram_1000": f"{GIB}\n", f"{folder}/4242/vram_1001": f"{2 * GIB}\n", f"{folder}/7/vram_1000": "0\n"}
    clock = Clock()
    meters = meters_at(plant(tmp_path, {**files, **held}, {**links, **FIRST}), clock)
    assert {name: value for name, value in meters.sample().items() if name.startswith("process.")} == {
        "process.4242.gpu_memory_bytes": 3 * GIB,
        "process.7.gpu_memory_bytes": 0,
    }
    assert "by program" in meters.unknown["process.*.gpu_utilization"]

    plant(tmp_path, {f"{folder}/9/vram_1001": f"{GIB}\n"})
    for name in ("vram_1000", "vram_1001"):
        (tmp_path / folder.lstrip("/") / "4242" / name).unlink()
    (tmp_path / folder.lstrip("/") / "4242").rmdir()
    clock.now += 5

    values = meters.sample()
    assert values["process.9.gpu_memory_bytes"] == GIB
    assert "process.4242.gpu_memory_bytes" not in values


def test_numbers_of_the_host_are_not_a_containers(tmp_path: Path) -> None:
    """Process 4242 of the driver is another one than ours of that number."""
    files, links = amd(MI300X)
    held = {"/sys/class/kfd/kfd/proc/4242/vram_1000": f"{GIB}\n"}
    meters = meters_at(plant(tmp_path, {**files, **held}, {**links, "/proc/self/ns/pid": "pid:[4026532777]"}))

    assert not [name for name in meters.sample() if name.startswith("process.")]
    assert "container" in meters.unknown["process.*.gpu_memory_bytes"]


@pytest.mark.parametrize("maker", ["amd", "intel"])
def test_a_gpu_that_sleeps_is_not_woken(tmp_path: Path, maker: str) -> None:
    """Its files stay unread, and all its meters are unknown for that reason, until it is awake."""
    files, links = amd(RX7900) if maker == "amd" else intel()
    status = own(files, "uevent").replace("uevent", "power/runtime_status")
    meters = meters_at(plant(tmp_path, {**files, status: "suspended\n"}, {**links, **FIRST}))

    assert not [name for name in meters.sample() if name.startswith("gpu.")]
    assert meters.unknown["gpu.0.power_watts"] == meters.unknown["gpu.0.utilization"] == ASLEEP
    plant(tmp_path, {status: "active\n"})
    assert "gpu.0.celsius" in meters.sample()
    assert "gpu.0.celsius" not in meters.unknown


def test_a_file_that_fails_is_unknown_and_comes_back(tmp_path: Path) -> None:
    """A GPU in reset answers nothing, or words."""
    files, links = amd(RX7900)
    at = own(files, "gpu_busy_percent")
    for said in ("busy\n", "65535\n"):
        meters = meters_at(plant(tmp_path, {**files, at: said}, links))
        assert "gpu.0.utilization" not in meters.sample()
        assert meters.unknown["gpu.0.utilization"] == NO_NUMBER
    plant(tmp_path, {at: "3\n"})
    assert meters.sample()["gpu.0.utilization"] == pytest.approx(0.03)


def test_closed_meters_keep_no_file_open(tmp_path: Path) -> None:
    files, links = amd(MI300X)
    before = len(os.listdir("/proc/self/fd"))
    meters = meters_at(plant(tmp_path, files, links))
    meters.sample()
    assert len(os.listdir("/proc/self/fd")) > before

    meters.close()

    assert len(os.listdir("/proc/self/fd")) == before
    assert meters.unknown == {}


# ---------------------------------------------------------------------- Intel

PROGRAM = "/proc/4242"
XE = {"total_vram0": "9 GiB", "resident_vram0": "8 GiB", "resident_gtt": "192 KiB", "engine_capacity_vcs": 2}


def client(number: int, busy: int, total: int, **more: object) -> str:
    return drm_client(
        number, ARC, **{**XE, "cycles_ccs": busy, "total_cycles_ccs": total, "cycles_bcs": total, "total_cycles_bcs": total, **more}
    )


def arc(**programs: str) -> tuple[Files, dict[str, str]]:
    """(files, links) of a machine with an Arc, and what these open files of processes say: ``_4242_5`` is file 5 of 4242."""
    files, links = intel()
    made: Files = {**files, "/proc/1/fdinfo/0": "pos:\t0\n"}
    links = {**links, **FIRST, "/proc/1/fd/0": "/dev/null"}
    for name, text in programs.items():
        _, pid, fd = name.split("_")
        made[f"/proc/{pid}/fdinfo/{fd}"] = text
        links[f"/proc/{pid}/fd/{fd}"] = "/dev/dri/renderD128"
    return made, links


def test_an_arc_in_work(tmp_path: Path) -> None:
    """Clock and heat from files, power from two looks at the energy, use and memory from what programs use."""
    files, links = arc(_4242_5=client(3, 100, 1_000), _77_9=client(8, 0, 1_000))
    sensors = own(files, "temp2_input").removesuffix("temp2_input")
    clock = Clock()
    running = {own(files, "act_freq"): "2650\n", f"{sensors}energy1_input": "5000000\n"}
    meters = meters_at(plant(tmp_path, {**files, **running}, links), clock)
    first = meters.sample()
    assert (first["gpu.0.sm_clock_mhz"], first["gpu.0.celsius"]) == (2650, 38)
    assert "gpu.0.power_watts" not in first
    assert "gpu.0.utilization" not in first, "one look is no rate"

    clock.now += 2
    later = {"/proc/4242/fdinfo/5": client(3, 900, 2_000), "/proc/77/fdinfo/9": client(8, 100, 2_000)}
    plant(tmp_path, {**later, f"{sensors}energy1_input": "305000000\n"})
    values = meters.sample()

    assert values["gpu.0.power_watts"] == pytest.approx(150)
    assert values["gpu.0.utilization"] == pytest.approx(0.9)
    assert (values["process.4242.gpu_utilization"], values["process.77.gpu_utilization"]) == pytest.approx((0.8, 0.1))
    assert (values["gpu.0.memory_used_bytes"], values["process.4242.gpu_memory_bytes"]) == (16 * GIB, 8 * GIB)
    assert meters.unknown["gpu.0.memory_utilization"] == NOT_OFFERED
    assert all(describe(name) for name in values)


def test_one_client_of_several_processes_counts_once(tmp_path: Path) -> None:
    """Loader workers inherit the open file: it is their parent's."""
    same = client(3, 100, 1_000)
    files, links = arc(_4242_5=same, _4243_5=same, _4244_5=same)
    clock = Clock()
    meters = meters_at(plant(tmp_path, files, links), clock)
    meters.sample()
    clock.now += 1
    plant(tmp_path, {f"/proc/{pid}/fdinfo/5": client(3, 600, 2_000) for pid in (4242, 4243, 4244)})

    values = meters.sample()

    assert values["gpu.0.utilization"] == pytest.approx(0.5)
    assert {name for name in values if name.startswith("process.")} == {"process.4242.gpu_utilization", "process.4242.gpu_memory_bytes"}


def test_the_older_driver_counts_time(tmp_path: Path) -> None:
    """i915: nanoseconds of engines, and other names of engines, memory and files."""
    old = {
        "driver": "i915",
        "total_local0": "3 GiB",
        "resident_local0": "2048 MiB",
        "engine_compute": "1000000000 ns",
        "engine_copy": "9000000000 ns",
    }
    files, links = arc(_4242_5=drm_client(3, ARC, **old))
    clock = Clock()
    gt = "/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/card1/gt/gt0"
    for path in [path for path in files if "/tile0/gt0" in path]:
        del files[path]
    reasons = {
        f"{gt}/rps_act_freq_mhz": "2300\n",
        f"{gt}/throttle_reason_status": "1\n",
        f"{gt}/throttle_reason_pl2": "1\n",
        f"{gt}/throttle_reason_thermal": "0\n",
    }
    meters = meters_at(plant(tmp_path, {**files, **reasons}, links), clock)
    first = meters.sample()
    assert (first["gpu.0.sm_clock_mhz"], first["gpu.0.power_capped"], first["gpu.0.slowed"]) == (2300, 1, 0)
    clock.now += 4
    plant(
        tmp_path, {"/proc/4242/fdinfo/5": drm_client(3, ARC, **{**old, "engine_compute": "2000000000 ns", "engine_copy": "13000000000 ns"})}
    )

    values = meters.sample()

    assert values["gpu.0.utilization"] == pytest.approx(0.25), "copies are no kernels"
    assert values["process.4242.gpu_memory_bytes"] == 2 * GIB


def test_nobody_uses_it(tmp_path: Path) -> None:
    """All processes were looked through, and none holds it open: that is 0 and not unknown."""
    values = meters_at(plant(tmp_path, *arc())).sample()

    assert (values["gpu.0.utilization"], values["gpu.0.memory_used_bytes"]) == (0, 0)


def test_who_does_not_see_all_programs_sees_how_long_the_gpu_was_awake(tmp_path: Path) -> None:
    """Its busiest part slept one second of four; what another part did does not count."""
    files, links = arc(_4242_5=client(3, 100, 1_000))
    gt = own(files, "tile0/gt0/freq0/act_freq").removesuffix("/gt0/freq0/act_freq")
    slept = {f"{gt}/gt0/gtidle/idle_residency_ms": "5000\n", f"{gt}/gt1/gtidle/idle_residency_ms": "5000\n"}
    clock = Clock()
    meters = meters_at(plant(tmp_path, {**files, **slept}, {**links, "/proc/self/ns/pid": "pid:[4026532777]"}), clock)
    assert "gpu.0.utilization" not in meters.sample()
    assert meters.unknown["gpu.0.utilization"] == OUTSIDE

    clock.now += 4
    plant(tmp_path, {f"{gt}/gt0/gtidle/idle_residency_ms": "6000\n", f"{gt}/gt1/gtidle/idle_residency_ms": "9000\n"})
    values = meters.sample()

    assert values["gpu.0.utilization"] == pytest.approx(0.75)
    assert "gpu.0.utilization" not in meters.unknown
    assert meters.unknown["gpu.0.memory_used_bytes"] == OUTSIDE


def test_use_is_unknown_where_programs_are_not_seen(tmp_path: Path) -> None:
    """Inside a container, behind hidepid, and until all were looked through; the programs that are seen have their meters all the same."""
    files, links = arc(_4242_5=client(3, 100, 1_000))
    inside = {**links, "/proc/self/ns/pid": "pid:[4026532777]"}
    seen = {path: text for path, text in files.items() if not path.startswith("/proc/1/")}
    hidden = {path: text for path, text in links.items() if not path.startswith("/proc/1/")}
    many = {f"/proc/{5_000 + number}/fd/0": "/dev/null" for number in range(AT_ONCE)}
    machines = ((files, inside, OUTSIDE), (seen, hidden, DENIED), (files, {**links, **many}, SEARCHING))
    for number, (machine, linked, reason) in enumerate(machines):
        clock = Clock()
        meters = meters_at(plant(tmp_path / str(number), machine, linked), clock)
        values = meters.sample()
        assert "gpu.0.utilization" not in values
        assert meters.unknown["gpu.0.utilization"] == meters.unknown["gpu.0.memory_used_bytes"] == reason
        assert values["process.4242.gpu_memory_bytes"] == 8 * GIB
    clock.now += 1
    meters.sample()
    assert "gpu.0.utilization" not in meters.unknown, "now all were"


def test_programs_that_begin_later_are_found(tmp_path: Path) -> None:
    clock = Clock()
    meters = meters_at(plant(tmp_path, *arc()), clock)
    meters.sample()
    plant(tmp_path, *arc(_4242_5=client(3, 100, 1_000)))
    clock.now += 1
    assert "process.4242.gpu_memory_bytes" not in meters.sample(), "not looked for yet"

    clock.now += SEARCH_S

    assert meters.sample()["process.4242.gpu_memory_bytes"] == 8 * GIB


def test_a_driver_that_counts_nothing_for_programs(tmp_path: Path) -> None:
    """Unknown, and not idle."""
    files, links = arc(_4242_5=drm_client(3, ARC))
    meters = meters_at(plant(tmp_path, files, links))

    assert "gpu.0.utilization" not in meters.sample()
    assert "does not count" in meters.unknown["gpu.0.utilization"]
    assert "does not count" in meters.unknown["gpu.0.memory_used_bytes"]


# ---------------------------------------------------------------------- all of them


def test_where_there_is_no_such_gpu_nothing_of_it_is_read(tmp_path: Path) -> None:
    """Graphics of a processor alone: no backend, no file that stays open, and NVML says what it has to say."""
    files, links = amd(PHOENIX)
    folder = plant(tmp_path, files, links)
    before = len(os.listdir("/proc/self/fd"))
    meters = meters_at(folder)

    assert meters.sample() == {}
    assert (meters.problem, meters.unknown) == ("", {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_keys_of_open_files_have_units() -> None:
    """Sizes come with KiB and MiB; what is not as documented says nothing."""
    known = parse(client(3, 5, 9, memory_vram="12 KiB").encode())

    assert known is not None
    assert (known.number, known.bus_id, known.cycles["ccs"], known.resident["vram0"]) == (3, ARC, (5, 9), 8 * GIB)
    assert (known.resident["vram"], known.resident["gtt"]) == (12 << 10, 192 << 10)
    assert "capacity-vcs" not in known.busy_ns
    assert parse(b"pos:\t0\n") is parse(b"drm-driver: xe\n") is parse(None) is None


@fuzz
@given(st.data())
def test_no_file_breaks_the_meters(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever a driver writes: nothing raises, and all that is told is a number that is documented."""
    files, links = amd(MI300X, RX7900) if data.draw(st.booleans()) else arc(_4242_5=client(3, 100, 1_000))
    read = sorted(path for path in files if path.rpartition("/")[2] not in ("uevent", "properties", "gpu_id"))
    blobs = damaged_bytes(metrics(1 << 40)) | damaged_bytes(accumulated(9, 1, 2, 3, 4, 5))
    hostile = (
        st.binary(max_size=40)
        | blobs
        | st.sampled_from([b"-1", b"9" * 30, b"drm-driver: xe\ndrm-client-id: 1\ndrm-pdev: 0000:03:00.0\ndrm-cycles-ccs: 5\n"])
    )
    changed = data.draw(st.dictionaries(st.sampled_from(read), hostile, max_size=8))
    clock = Clock()
    folder = tmp_path_factory.mktemp("any")
    meters = meters_at(plant(folder, {**files, **changed}, {**links, **FIRST}), clock)

    for _ in range(2):
        clock.now += 1
        assert all(value >= 0 and describe(name) for name, value in meters.sample().items())

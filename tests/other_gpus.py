"""Machines with GPUs of AMD and Intel, as files: what amdgpu, kfd, xe and i915 show."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.conftest import Files

GIB = 1 << 30
Links = dict[str, str]

MI300X = {
    "target": 90402, "simds": 1216, "per_cu": 4, "device": "74A1", "class": "0x120000", "vram": 192 * GIB, "used": GIB // 4, "cap": 750, "mhz": 2100,
    "name": "AMD Instinct MI300X OAM",
}  # fmt: skip
RX7900 = {
    "target": 110000,
    "simds": 192,
    "per_cu": 2,
    "device": "744C",
    "class": "0x030000",
    "vram": 24 * GIB,
    "used": GIB,
    "cap": 303,
    "mhz": 2526,
    "name": "",
}
PHOENIX = {
    "target": 110003,
    "simds": 24,
    "per_cu": 2,
    "device": "15BF",
    "class": "0x030000",
    "vram": GIB,
    "used": GIB // 2,
    "cap": 0,
    "mhz": 2700,
    "name": "",
}


def bus_id(index: int) -> str:
    """The GPU behind the switch of its card."""
    return f"0000:{0x0C + 16 * index:02x}:00.0"


def amd(*models: dict[str, object], hive: int = 0) -> tuple[Files, Links]:
    """(files, links) of a machine with these GPUs; those of a hive are joined by xGMI."""
    files: Files = {
        "/proc/bus/pci/devices": "0000\t10220000\t0\n",
        "/dev/kfd": "",
        f"{NODES}/0/properties": "cpu_cores_count 96\nsimd_count 0\n",
    }
    links: Links = {}
    for index, model in enumerate(models):
        card_files, card_links = card(index, model)
        files |= card_files | node(index, model, len(models), hive)
        links |= card_links
    return files, links


NODES = "/sys/class/kfd/kfd/topology/nodes"


def node(index: int, model: dict[str, object], count: int, hive: int) -> Files:
    location = (0x0C + 16 * index) << 8
    said = {
        "cpu_cores_count": 0, "simd_count": model["simds"], "simd_per_cu": model["per_cu"], "gfx_target_version": model["target"],
        "vendor_id": 4098, "location_id": location, "domain": 0, "drm_render_minor": 128 + index, "hive_id": hive, "num_xcc": 8,
    }  # fmt: skip
    folder = f"{NODES}/{index + 1}"
    files: Files = {
        f"{folder}/properties": "".join(f"{name} {value}\n" for name, value in said.items()),
        f"{folder}/gpu_id": f"{1000 + index}\n",
    }
    others = [0, *(other + 1 for other in range(count) if other != index and hive)]
    for place, to in enumerate(others):
        kind = 11 if to else 2
        files[f"{folder}/io_links/{place}/properties"] = f"type {kind}\nnode_from {index + 1}\nnode_to {to}\nmax_bandwidth 64000\n"
    return files


def card(index: int, model: dict[str, object]) -> tuple[Files, Links]:
    """One card: its files below the GPU's PCI address, which lies behind two bridges of AMD's own, below a port of the processor's."""
    bus, base = 0x0C + 16 * index, f"/sys/devices/pci0000:{0x08 + 16 * index:02x}"
    port, up = f"{base}/0000:{bus - 4:02x}:01.1", f"0000:{bus - 2:02x}:00.0"
    upper = f"{port}/{up}"
    lower = f"{upper}/0000:{bus - 1:02x}:00.0"
    own = f"{lower}/{bus_id(index)}"
    files: Files = {f"{port}/max_link_width": "16\n", f"{port}/max_link_speed": "32.0 GT/s PCIe\n", f"{port}/vendor": "0x1022\n"}
    files[f"{port}/class"] = "0x060400\n"
    for folder, speed in ((upper, "32.0"), (lower, "32.0"), (own, "32.0")):
        files |= {
            f"{folder}/vendor": "0x1002\n",
            f"{folder}/class": "0x060400\n",
            f"{folder}/current_link_width": "16\n",
            f"{folder}/max_link_width": "16\n",
        }
        files |= {f"{folder}/current_link_speed": f"{speed} GT/s PCIe\n", f"{folder}/max_link_speed": "32.0 GT/s PCIe\n"}
    sensors = f"{own}/hwmon/hwmon{index + 3}"
    files |= {f"{own}/{name}": text for name, text in of_card(index, model).items()}
    files |= {f"{sensors}/{name}": text for name, text in of_sensors(model).items()}
    links = {
        f"/sys/class/drm/card{index + 1}": f"../..{own.removeprefix('/sys')}/drm/card{index + 1}",
        f"{own}/drm/card{index + 1}/device": f"../../../{bus_id(index)}",
        f"/sys/bus/pci/devices/{bus_id(index)}": f"../../..{own.removeprefix('/sys')}",
        f"/sys/bus/pci/devices/{up}": f"../../..{upper.removeprefix('/sys')}",
        f"/sys/bus/pci/devices/0000:{bus - 1:02x}:00.0": f"../../..{lower.removeprefix('/sys')}",
        f"/sys/bus/pci/devices/0000:{bus - 4:02x}:01.1": f"../../..{port.removeprefix('/sys')}",
        f"{own}/driver": "../../../../../../bus/pci/drivers/amdgpu",
    }
    files |= {f"{own}/drm/card{index + 1}/dev": "226:1\n", f"/dev/dri/renderD{128 + index}": ""}
    return files, links


def processor_of_amd(driver: str = "amdgpu") -> tuple[Files, Links]:
    """(files, links) of a Ryzen whose graphics share their slot with its security processor and USB, below a port of its own."""
    port = "/sys/devices/pci0000:00/0000:00:08.1"
    own = f"{port}/0000:c4:00.0"
    files: Files = {
        f"{NODES}/0/properties": "cpu_cores_count 16\nsimd_count 0\n",
        f"{port}/vendor": "0x1022\n",
        f"{port}/class": "0x060400\n",
    }
    links: Links = {"/sys/bus/pci/devices/0000:00:08.1": f"../../..{port.removeprefix('/sys')}"}
    for number, (vendor, kind) in enumerate(
        (("0x1002", "0x030000"), ("0x1002", "0x040300"), ("0x1022", "0x108000"), ("0x1022", "0x0c0330"))
    ):
        folder = f"{port}/0000:c4:00.{number}"
        files |= {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n", f"{folder}/device": "0x15bf\n"}
        links[f"/sys/bus/pci/devices/0000:c4:00.{number}"] = f"../../..{folder.removeprefix('/sys')}"
    if driver:
        said = f"DRIVER={driver}\nPCI_ID=1002:15BF\nPCI_SLOT_NAME=0000:c4:00.0\n"
        location = {"simd_count": 24, "simd_per_cu": 2, "gfx_target_version": 110003, "location_id": 0xC400, "domain": 0}
        files |= {f"{own}/uevent": said, f"{own}/drm/card0/dev": "226:0\n", f"{own}/mem_info_vram_total": f"{8 * GIB}\n"}
        files |= {f"{NODES}/1/properties": "".join(f"{name} {value}\n" for name, value in location.items()), f"{NODES}/1/gpu_id": "77\n"}
        links |= {"/sys/class/drm/card0": f"../..{own.removeprefix('/sys')}/drm/card0", f"{own}/drm/card0/device": "../../../0000:c4:00.0"}
        links[f"{own}/driver"] = f"../../../../bus/pci/drivers/{driver}"
    return files, links


def divided(files: Files, index: int, parts: int, units: int, hive: int) -> Files:
    """The same machine with a GPU that is divided into so many parts, each a node of the compute driver of its own."""
    whole = f"{NODES}/{index + 1}"
    said = str(files[f"{whole}/properties"]).replace(f"simd_count {MI300X['simds']}", f"simd_count {units}")
    changed = {f"{whole}/properties": said}
    for part in range(1, parts):
        folder = f"{NODES}/{100 * (index + 1) + part}"
        changed |= {
            f"{folder}/properties": said,
            f"{folder}/gpu_id": f"{100 * (index + 1) + part}\n",
            f"{folder}/io_links/0/properties": "type 2\nnode_to 0\n",
        }
    own = next(path for path in files if path.endswith(f"{bus_id(index)}/current_compute_partition")).rpartition("/")[0]
    return {**files, **changed, f"{own}/current_compute_partition": "CPX\n", f"{own}/current_memory_partition": "NPS4\n"}


def of_card(index: int, model: dict[str, object]) -> Files:
    return {
        "uevent": f"DRIVER=amdgpu\nPCI_CLASS={str(model['class'])[2:]}\nPCI_ID=1002:{model['device']}\nPCI_SLOT_NAME={bus_id(index)}\n",
        "class": f"{model['class']}\n", "device": f"0x{str(model['device']).lower()}\n", "numa_node": f"{index // 4}\n",
        "local_cpulist": f"{48 * (index // 4)}-{48 * (index // 4) + 47}\n", "product_name": f"{model['name']}\n", "unique_id": f"5127fd0{index}\n",
        "vbios_version": "113-M3000100-103\n", "mem_info_vram_total": f"{model['vram']}\n", "mem_info_vram_used": f"{model['used']}\n",
        "gpu_busy_percent": "0\n", "mem_busy_percent": "0\n", "power_dpm_force_performance_level": "auto\n", "pcie_replay_count": "0\n",
        "current_compute_partition": "SPX\n", "current_memory_partition": "NPS1\n", "pp_dpm_sclk": f"0: 132Mhz *\n1: {model['mhz']}Mhz\n",
        "pp_dpm_mclk": "0: 900Mhz *\n1: 1300Mhz\n", "ras/umc_err_count": "ue: 0\nce: 0\n", "ras/gfx_err_count": "ue: 0\nce: 0\n",
        "ras/features": "feature mask: 0x7fff\n", "ras/gpu_vram_bad_pages": "", "gpu_metrics": metrics(0),
    }  # fmt: skip


def of_sensors(model: dict[str, object]) -> Files:
    watts = int(str(model["cap"])) * 1_000_000
    return {
        "name": "amdgpu\n", "freq1_input": "132000000\n", "freq2_input": "900000000\n", "power1_input": "140000000\n", "power1_cap": f"{watts}\n",
        "power1_cap_default": f"{watts}\n", "temp1_label": "edge\n", "temp1_input": "40000\n", "temp2_label": "junction\n", "temp2_input": "45000\n",
        "temp2_crit": "100000\n", "temp3_label": "mem\n", "temp3_input": "39000\n", "temp3_crit": "108000\n",
    }  # fmt: skip


def metrics(throttled: int) -> bytes:
    """gpu_metrics of revision 1.3 with this throttle status."""
    return struct.pack("<HBB", 120, 1, 3) + bytes(108) + throttled.to_bytes(8, "little")


def accumulated(cycles: int, *counts: int) -> bytes:
    """gpu_metrics of revision 1.7: cycles, and those in which PROCHOT, PPT, socket, regulators and memory held the clocks."""
    return struct.pack("<HBB", 1024, 1, 7) + bytes(36) + struct.pack("<6I", cycles, *counts) + bytes(960)


def drm_client(number: int, place: str, **keys: object) -> str:
    """What fdinfo of an open file of a GPU says; underscores stand for hyphens."""
    said = "".join(f"drm-{name.replace('_', '-')}:\t{value}\n" for name, value in keys.items())
    return f"pos:\t0\nflags:\t0100002\nmnt_id:\t26\nino:\t685\ndrm-driver:\txe\ndrm-client-id:\t{number}\ndrm-pdev:\t{place}\n{said}"


def plant(folder: Path, files: Files, links: Links | None = None) -> str:
    """Write these files and links below a folder, for what reads the kernel's files itself."""
    for name, target in (links or {}).items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    for name, text in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else str(text).encode())
    return str(folder)


def intel(device: str = "E20B", **changed: str) -> tuple[Files, Links]:
    """(files, links) of a machine with one Arc card below a port of its own, and the GPU inside of its processor."""
    own = "/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0"
    files: Files = {
        "/proc/bus/pci/devices": "0000\t80860000\t0\n", "/dev/dri/renderD128": "", f"{own}/drm/card1/dev": "226:1\n",
        "/sys/devices/pci0000:00/0000:00:02.0/drm/card0/dev": "226:0\n",
        "/sys/devices/pci0000:00/0000:00:02.0/uevent": "DRIVER=i915\nPCI_ID=8086:4680\nPCI_SLOT_NAME=0000:00:02.0\n",
        "/sys/devices/pci0000:00/0000:00:01.0/max_link_width": "8\n", "/sys/devices/pci0000:00/0000:00:01.0/max_link_speed": "16.0 GT/s PCIe\n",
        "/sys/devices/pci0000:00/0000:00:01.0/vendor": "0x8086\n",
    }  # fmt: skip
    of_card = {
        "uevent": f"DRIVER=xe\nPCI_ID=8086:{device}\nPCI_SLOT_NAME=0000:03:00.0\n", "vendor": "0x8086\n", "class": "0x030000\n",
        "device": f"0x{device.lower()}\n",
        "numa_node": "0\n",
        "local_cpulist": "0-15\n", "current_link_width": "8\n", "max_link_width": "8\n", "current_link_speed": "2.5 GT/s PCIe\n",
        "max_link_speed": "16.0 GT/s PCIe\n", "tile0/physical_vram_size_bytes": f"0x{12 * GIB:x}\n", "tile0/gt0/freq0/act_freq": "0\n",
        "tile0/gt0/freq0/rp0_freq": "2850\n", "tile0/gt0/freq0/max_freq": "2850\n", "tile0/gt0/freq0/min_freq": "400\n",
        "tile0/gt0/freq0/throttle/reason_pl1": "0\n", "tile0/gt0/freq0/throttle/reason_thermal": "0\n", "hwmon/hwmon4/power1_max": "0\n",
        "hwmon/hwmon4/power1_rated_max": "190000000\n", "hwmon/hwmon4/temp2_label": "pkg\n", "hwmon/hwmon4/temp2_input": "38000\n",
        "resource": "0x0000000085000000 0x0000000085ffffff 0x0000000000140204\n" + "0x0 0x0 0x0\n"
        "0x0000004000000000 0x00000043ffffffff 0x000000000014220c\n",
    }  # fmt: skip
    files |= {f"{own}/{name}": text for name, text in (of_card | changed).items()}
    links = {
        "/sys/class/drm/card0": "../../devices/pci0000:00/0000:00:02.0/drm/card0",
        "/sys/devices/pci0000:00/0000:00:02.0/drm/card0/device": "../../../0000:00:02.0",
        "/sys/class/drm/card1": f"../..{own.removeprefix('/sys')}/drm/card1",
        f"{own}/drm/card1/device": "../../../0000:03:00.0",
        "/sys/bus/pci/devices/0000:03:00.0": f"../../..{own.removeprefix('/sys')}",
        "/sys/bus/pci/devices/0000:00:01.0": "../../../devices/pci0000:00/0000:00:01.0",
        f"{own}/driver": "../../../../bus/pci/drivers/xe",
    }
    return files, links

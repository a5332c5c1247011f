"""GPU machines that others published, as facts: what nvidia-smi, amd-smi, xpu-smi or the kernel log of a real machine said.

`tests/machines/gpus/*.toml` has the facts and what an engineer expects of an audit, written before it ran. What a record does not
tell is as on the healthy machine that it is `like`: the CPUs, the ports and the files around the GPUs are made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli

from sysperf.collect.gpu.device import ARCHITECTURES, BRANDS, FIELDS, HEALTH_FIELDS, RECOVERY, RESET_FIELDS
from sysperf.collect.gpu.records import COMPUTE_MODES, VIRTUALIZATION
from sysperf.collect.gpu.state import CLOCK_EVENTS
from sysperf.collect.gpu.wires import FABRIC_STATES
from tests.collect.environments import dist, python_at, site_of, torch_in
from tests.collect.programs import process
from tests.conftest import Files
from tests.gpus import A100_PCIE, H100, NOT_SUPPORTED, RTX, VGPU, Answers, answers, bus_id, driver_files, files
from tests.other_gpus import MI300X, NODES, RX7900, amd, divided, intel, metrics
from tests.other_gpus import bus_id as amd_bus_id

FOLDER = Path(__file__).parent / "machines" / "gpus"
MIB = 1 << 20
VENV = "/home/ada/p/.venv"
IDLE: Answers = {
    "DeviceGetUtilizationRates": {"gpu": 0, "memory": 0}, "DeviceGetCurrentClocksEventReasons": 0x1, "DeviceGetClockInfo,1": 345,
    "DeviceGetComputeRunningProcesses_v3": [], "DeviceGetGraphicsRunningProcesses_v3": [],
    "DeviceGetMemoryInfo,33554472": {"total": 80 << 30, "reserved": 512 * MIB, "free": 79 << 30, "used": MIB},
}  # fmt: skip
NO_FUNCTION = OSError("Function Not Found")
SINCE = {
    # the driver that brought a call, where a record is of an older one
    "DeviceGetArchitecture": 450, "DeviceGetMigMode": 450, "DeviceGetRemappedRows": 450, "DeviceGetMemoryInfo,33554472": 510,
    "GpmQueryDeviceSupport": 520, "DeviceGetCurrentClocksEventReasons": 535, "DeviceGetAddressingMode": 535, "DeviceGetGpuFabricInfoV": 535,
    "DeviceGetSramEccErrorStatus": 535, "DeviceGetNumaNodeId": 535, "DeviceGetRepairStatus": 575,
}  # fmt: skip
SILENT: Answers = {
    # a whole record: what it calls N/A, or does not have, no GPU like this has
    **{call: NOT_SUPPORTED for call in H100 if "FieldValues" not in call and "NvLink" not in call and "EccErrors" not in call},
    **{
        "DeviceGetFieldValues," + ",".join(map(str, fields)): dict.fromkeys(map(str, fields))
        for fields in (FIELDS, HEALTH_FIELDS, RESET_FIELDS)
    },
    "DeviceGetTotalEccErrors,0,0": 0,
    "DeviceGetTotalEccErrors,1,0": 0,
    "DeviceGetTotalEccErrors,1,1": 0,
    "DeviceGetNvLinkState,0": NOT_SUPPORTED,
    "DeviceGetRetiredPages,0": [],
    "DeviceGetRetiredPages,1": [],
    "DeviceGetRowRemapperHistogram": {"none": 0, "low": 0},
    "DeviceGetMPSComputeRunningProcesses_v3": [],
    "DeviceGetComputeRunningProcesses_v3": [],
    "DeviceGetGraphicsRunningProcesses_v3": [],
}
LIKE: dict[str, Answers] = {
    "record": SILENT,
    "hopper": {**H100, **IDLE},
    "ampere": {**A100_PCIE, **IDLE},
    "geforce": {**RTX, "DeviceGetGraphicsRunningProcesses_v3": []},
    "vgpu": {**VGPU, **IDLE},
}
AMD = {
    "MI300X": MI300X,
    "RX7900": RX7900,
    "MI210": {
        **MI300X,
        "target": 90010,
        "simds": 416,
        "device": "740F",
        "vram": 64 << 30,
        "cap": 300,
        "mhz": 1700,
        "name": "AMD Instinct MI210",
    },
    "MI250X": {
        **MI300X,
        "target": 90010,
        "simds": 440,
        "device": "7408",
        "vram": 64 << 30,
        "cap": 560,
        "mhz": 1700,
        "name": "AMD Instinct MI250X",
    },
}
ON = {True: 1, False: 0}
Machine = dict[str, Any]


def records(name: str) -> dict[str, Machine]:
    """The machines of a file by their names."""
    return tomli.loads((FOLDER / f"{name}.toml").read_text())


def _value(given: object, make: Any = None) -> object:
    """What a line says: `N/A` is a feature that is not there, `?…` a call that fails with these words."""
    if isinstance(given, str) and given == "N/A":
        return NOT_SUPPORTED
    if isinstance(given, str) and given.startswith("?"):
        return OSError(given[1:])
    return make(given) if make else given


def _one(names: dict[int, str], word: str) -> int:
    return next(number for number, name in names.items() if name == word)


def _milli(watts: float) -> int:
    return round(watts * 1000)


SIMPLE: dict[str, tuple[str, Any]] = {
    # a fact's name: NVML's call, and what it makes of the value
    "name": ("DeviceGetName", None),
    "brand": ("DeviceGetBrand", lambda word: _one(BRANDS, word)),
    "architecture": ("DeviceGetArchitecture", lambda word: _one(ARCHITECTURES, word)),
    "capability": ("DeviceGetCudaComputeCapability", None),
    "bar1": ("DeviceGetBAR1MemoryInfo", lambda mib: {"bar1Total": mib * MIB, "bar1Free": 0, "bar1Used": 0}),
    "busy": ("DeviceGetUtilizationRates", lambda both: {"gpu": both[0], "memory": both[1]}),
    "state": ("DeviceGetPerformanceState", None),
    "persistence": ("DeviceGetPersistenceMode", ON.get),
    "mode": ("DeviceGetComputeMode", lambda word: _one(COMPUTE_MODES, word)),
    "mig": ("DeviceGetMigMode", None),
    "display": ("DeviceGetDisplayActive", ON.get),
    "virtualization": ("DeviceGetVirtualizationMode", lambda word: _one(VIRTUALIZATION, word)),
    "addressing": ("DeviceGetAddressingMode", lambda word: {"none": 0, "hmm": 1, "ats": 2}[word]),
    "events": ("DeviceGetCurrentClocksEventReasons", lambda words: sum(_one(CLOCK_EVENTS, word) for word in words)),
    "draw": ("DeviceGetPowerUsage", _milli),
    "limit": ("DeviceGetPowerManagementLimit", _milli),
    "default_limit": ("DeviceGetPowerManagementDefaultLimit", _milli),
    "enforced": ("DeviceGetEnforcedPowerLimit", _milli),
    "celsius": ("DeviceGetTemperature,0", None),
    "slowdown": ("DeviceGetTemperatureThreshold,1", None),
    "margin": ("DeviceGetMarginTemperature", None),
    "ecc": ("DeviceGetEccMode", None),
    "rows": ("DeviceGetRemappedRows", None),
    "pages": ("DeviceGetRetiredPagesPendingStatus", ON.get),
    "sram": ("DeviceGetSramEccErrorStatus", lambda exceeded: {"bThresholdExceeded": ON[exceeded]}),
    "replays": ("DeviceGetPcieReplayCounter", None),
    "fan": ("DeviceGetFanSpeed", None),
    "licence": (
        "DeviceGetGridLicensableFeatures",
        lambda held: {"isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": [{"featureState": ON[held]}]},
    ),
}  # fmt: skip
PAIRS = {
    # two values of two calls
    "sm": ("DeviceGetClockInfo,1", "DeviceGetMaxClockInfo,1"),
    "app": ("DeviceGetApplicationsClock,0", "DeviceGetDefaultApplicationsClock,0"),
    "width": ("DeviceGetCurrPcieLinkWidth", "DeviceGetMaxPcieLinkWidth"),
    "gen": ("DeviceGetCurrPcieLinkGeneration", "DeviceGetMaxPcieLinkGeneration"),
    "memory_mhz": ("DeviceGetClockInfo,2", "DeviceGetMaxClockInfo,2"),
}
WORDS: dict[str, tuple[tuple[int, ...], int, Any]] = {
    # facts among the answers of one call for many fields
    "recovery": (HEALTH_FIELDS, 230, lambda word: _one(RECOVERY, word)),
    "capped_s": (HEALTH_FIELDS, 74, lambda seconds: round(seconds * 1e9)),
    "heat_s": (HEALTH_FIELDS, 269, lambda seconds: round(seconds * 1e9)),
    "braked_s": (HEALTH_FIELDS, 271, lambda seconds: round(seconds * 1e9)),
    "reset": (RESET_FIELDS, 226, ON.get),
    "drain": (RESET_FIELDS, 227, ON.get),
    "memory_celsius": (FIELDS, 82, int),
    "damaged": (FIELDS, 38, int),
    "replays_of_links": (FIELDS, 52, int),
}


def nvidia_gpu(facts: dict[str, Any], driver: str = "580") -> Answers:
    """The recorded answers of one GPU of NVIDIA's; `lost` are the words with which all calls fail."""
    made = dict(LIKE[facts.get("like", "hopper")])
    for name, (call, make) in SIMPLE.items():
        if name in facts:
            made[call] = _value(facts[name], make)
    for name, two in PAIRS.items():
        if name in facts:
            both = facts[name] if isinstance(facts[name], list) else [facts[name]] * 2
            made |= {call: _value(value) for call, value in zip(two, both, strict=True)}
    if "memory" in facts:
        total, reserved, used = facts["memory"]
        free = total - used - reserved
        made["DeviceGetMemoryInfo,33554472"] = {"total": total * MIB, "reserved": reserved * MIB, "used": used * MIB, "free": free * MIB}
        made["DeviceGetMemoryInfo"] = {"total": total * MIB, "used": (used + reserved) * MIB, "free": free * MIB}
    made |= _health(facts)
    made |= _links(made, facts) if "links" in facts else {}
    for name in WORDS.keys() & facts.keys():
        fields, field, make = WORDS[name]
        key = "DeviceGetFieldValues," + ",".join(map(str, fields))
        made[key] = {**made[key], str(field): make(facts[name])}
    for name, kind in (("processes", "Compute"), ("drawing", "Graphics")):
        if name in facts:
            held = [{"pid": pid, "usedGpuMemory": mib * MIB, "gpuInstanceId": 0, "computeInstanceId": 0} for pid, mib in facts[name]]
            made[f"DeviceGet{kind}RunningProcesses_v3"] = held
    if facts.get("like") == "record":
        made |= _as_told(made, int(driver.partition(".")[0]))
    made |= {call: _value(value) for call, value in facts.get("calls", {}).items()}
    return dict.fromkeys(made, OSError(facts["lost"])) if "lost" in facts else made


def _as_told(made: Answers, branch: int) -> Answers:
    """The calls that a driver of this branch does not have, and the older name of one."""
    absent = {call: NO_FUNCTION for call, since in SINCE.items() if branch < since}
    return {**absent, "DeviceGetCurrentClocksThrottleReasons": made["DeviceGetCurrentClocksEventReasons"]}


def _health(facts: dict[str, Any]) -> Answers:
    found: Answers = {}
    if "errors" in facts:
        for call, count in zip(("0,0", "1,0", "1,1"), facts["errors"], strict=True):
            found[f"DeviceGetTotalEccErrors,{call}"] = count
    if "fabric" in facts:
        state = {"version": 1, "cliqueId": 0, "status": facts.get("fabric_status", 0), "healthMask": facts.get("health", 0)}
        found["DeviceGetGpuFabricInfoV"] = _value(facts["fabric"], lambda word: {**state, "state": _one(FABRIC_STATES, word)})
    return found


def _links(made: Answers, facts: dict[str, Any]) -> Answers:
    up, there = facts["links"]
    key = "DeviceGetFieldValues," + ",".join(map(str, FIELDS))
    states: Answers = {f"DeviceGetNvLinkState,{link}": int(link < up) for link in range(there)} or {"DeviceGetNvLinkState,0": NOT_SUPPORTED}
    return {key: {**made[key], **dict.fromkeys(("38", "45", "52", "59"), 0), "91": there}, **states}


def build(machine: Machine) -> tuple[Files, dict[str, str], dict[str, Any]]:
    """(files, links, calls) of a machine."""
    kinds = {"amd": _amd, "intel": _intel, "graphics": _graphics, "bus": _bus}
    content, links, calls = next((make for name, make in kinds.items() if name in machine), _nvidia)(machine)
    places = amd_bus_id if "amd" in machine else bus_id
    if "kfd" in machine:  # what opening it says
        calls["run:kfd-open"] = OSError(f"`dd` failed: dd: failed to open '/dev/kfd': {machine['kfd']}")
    if "uvm" in machine:
        calls["run:uvm-open"] = OSError(f"`dd` failed: dd: failed to open '/dev/nvidia-uvm': {machine['uvm']}")
    if "dmesg" in machine:
        calls["run:dmesg"] = _log(machine["dmesg"], places)
    content |= _base(machine.get("base", "bare")) | machine.get("files", {})
    links |= machine.get("links", {})
    if "torch" in machine:
        content |= _torch(machine["torch"])
        calls[f"gpu-code:{site_of(VENV)}/torch/lib/libtorch_python.so"] = machine["torch"]["code"]
    if "run" in machine:
        content |= _program(machine["run"], *(["/dev/nvidia-uvm"] if machine.get("computes") else []), argv=machine.get("argv", "train.py"))
    if "shell" in machine:  # variables of the shell, from which no program runs
        own = "".join(f"{variable}\0" for variable in machine["shell"].split())
        content["/proc/self/environ"] = str(content.get("/proc/self/environ", "")) + own
    for name in machine.get("without", ()):
        content = {path: text for path, text in content.items() if f"/{name}/" not in path}
    content = {path: text for path, text in content.items() if path not in machine.get("gone", ())}
    links = {path: to for path, to in links.items() if path not in machine.get("gone", ())}
    for name, text in machine.get("changed", {}).items():
        content |= {path: text for path in content if path.endswith(name)}
    content = {path: text for path, text in content.items() if not path.endswith(tuple(machine.get("lacks", ())) or ("?",))}
    content |= _refused(machine.get("refused", ()))
    return content, links, {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **calls, **machine.get("system_calls", {})}


def _refused(numbers: Iterable[int]) -> Files:
    """Nodes of AMD's compute driver that this control group may not use: the kernel shows them, and refuses to read them."""
    return {
        f"{NODES}/{number}/{name}": PermissionError(1, "Operation not permitted") for number in numbers for name in ("properties", "gpu_id")
    }


def _torch(facts: dict[str, Any]) -> Files:
    """A shell in an environment with this build, whose library has code for these targets."""
    shell: Files = {"/proc/self/environ": f"VIRTUAL_ENV={VENV}\0", "/usr/include/python3.11/Python.h": "", "/usr/bin/gcc": ""}
    files = {**shell, **python_at(VENV), **torch_in(site_of(VENV), facts["version"], facts.get("cuda", ""), facts.get("hip", ""))}
    for name, release in facts.get("libraries", {}).items():
        files |= dist(site_of(VENV), name, release)
    version = f"{site_of(VENV)}/torch/version.py"
    return (
        files | {version: str(files[version]).replace("xpu: Optional[str] = None", f"xpu: Optional[str] = '{facts['xpu']}'")}
        if "xpu" in facts
        else files
    )


def _program(variables: str, *devices: str, argv: str) -> Files:
    """A program of the shell's build, a day old, which may have a device open."""
    library = f"{site_of(VENV)}/torch/lib/libtorch_cpu.so"
    text = process(2121, argv=f"{VENV}/bin/python {argv}", env=f"PATH=/bin {variables}", mapped=(library, *devices))
    return {"/proc/uptime": "100000.0 1\n", "/proc/stat": "btime 1700000000\n", **text}


def _log(lines: str, places: Any) -> str:
    """The kernel's lines as `dmesg --time-format iso` writes them; @0 is the first GPU, @0- its address without the function."""
    said = [line for line in lines.splitlines() if line]
    for index in range(8):
        said = [line.replace(f"@{index}-", places(index)[:-2]).replace(f"@{index}", places(index)) for line in said]
    return "".join(f"2026-11-20T12:00:{second % 60:02d},000001+00:00 {line}\n" for second, line in enumerate(said))


def _base(kind: str) -> Files:
    flags = "fpu sse sse2 hypervisor" if kind in ("vm", "wsl") else "fpu sse sse2"
    base: Files = {
        "/proc/cpuinfo": f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n\n",
        "/sys/class/dmi/id/chassis_type": "10\n" if kind == "laptop" else "23\n",
        "/sys/class/dmi/id/sys_vendor": "QEMU\n" if kind == "vm" else "Supermicro\n",
    }
    if kind == "container":
        base["/proc/self/cgroup"] = f"0::/docker/{'0123456789abcdef' * 4}\n"
    if kind == "tegra":
        base |= {"/etc/nv_tegra_release": "# R36 (release), REVISION: 4.3\n", "/proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\n\n"}
        base["/proc/device-tree/compatible"] = "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
    if kind == "wsl":
        base |= {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n", "/dev/dxg": "", "/usr/lib/wsl/lib/libcuda.so.1": ""}
    return base


def _nvidia(machine: Machine) -> tuple[Files, dict[str, str], dict[str, Any]]:
    gpus = [nvidia_gpu(facts, machine.get("driver", "580")) for facts in machine.get("gpu", []) for _ in range(facts.get("count", 1))]
    version: str = machine.get("driver", "580.95.05")
    count = machine.get("on_bus", len(gpus))
    content, links = files(count, "nvidia", version)
    for place, group in enumerate(machine.get("groups", ())):
        folder = next(path for path in links if path.endswith(f"{bus_id(place)}/driver")).removesuffix("driver")
        links[f"{folder}iommu_group"] = f"../../../../kernel/iommu_groups/{group}"
    for place, driver in enumerate(machine.get("held_by", [])):
        folder = next(path for path in links if path.endswith(f"{bus_id(place)}/driver"))
        links |= {folder: f"../../../../bus/pci/drivers/{driver}"} if driver else {}
        links |= {f"/sys/bus/pci/drivers/{driver}/{bus_id(place)}": f"../../../../devices/{bus_id(place)}"} if driver else {}
        if not driver:
            del links[folder]
    content |= _boards(machine, content, links)
    content |= driver_files(str(machine.get("module", version))) | {
        "/usr/bin/nvidia-modprobe": "",
        "/run/nvidia-fabricmanager/nv-fabricmanager.pid": "1\n",
    }
    if not machine.get("fabric_manager", True):
        del content["/run/nvidia-fabricmanager/nv-fabricmanager.pid"]
    if machine.get("base") in ("wsl", "tegra"):  # no bus; a Jetson has the nodes and files of the driver, and WSL has none
        bus = ("/sys", "/proc/bus") if machine["base"] == "tegra" else ("/sys", "/proc/bus", "/proc/driver", "/dev/nvidia")
        content = {path: text for path, text in content.items() if not path.startswith(bus)}
    calls: dict[str, Any] = {
        "nvml:SystemGetDriverVersion()": version, "nvml:SystemGetNVMLVersion()": f"12.{version}", "nvml:DeviceGetCount()": len(gpus),
        "access:/dev/nvidia0": True, "access:/dev/nvidia-uvm": True, "run:uvm-open": "",
        "nvml:SystemGetConfComputeState()": {"environment": 0, "ccFeature": 0, "devToolsMode": 0},
    }  # fmt: skip
    if "cuda" in machine:
        major, minor = machine["cuda"].split(".")
        calls["nvml:SystemGetCudaDriverVersion_v2()"] = int(major) * 1000 + int(minor) * 10
    for library in ("libcuda", "libnvidia-ml") if machine.get("base") != "wsl" or "library" in machine else ():
        real = f"{library}.so.{machine.get('library', version)}"
        content[f"/usr/lib/x86_64-linux-gnu/{real}"] = ""
        links[f"/usr/lib/x86_64-linux-gnu/{library}.so.1"] = real
    if "nvml" in machine:
        calls |= dict.fromkeys(calls, OSError(machine["nvml"]))
    for index, gpu in enumerate(gpus):
        calls |= answers(index, gpu)
        calls |= {f"nvml:DeviceGetP2PStatus({index},{other},0)": machine.get("p2p", 0) for other in range(index + 1, len(gpus))}
        calls |= (
            dict.fromkeys((key for key in calls if f"({index})" in key or f"({index}," in key), next(iter(gpu.values())))
            if _lost(gpu)
            else {}
        )
    return content, links, calls


def _boards(machine: Machine, content: Files, links: dict[str, str]) -> Files:
    """Which chip each GPU is, and files of so many NVSwitches."""
    chips = [path.removesuffix("class") for path in content if path.endswith("/class")] if "device" in machine else []
    made: Files = {f"{folder}device": f"0x{machine['device']}\n" for folder in chips}
    for place in range(machine.get("switches", 0)):
        own = f"/sys/devices/pci0000:e0/0000:e0:01.0/0000:e{place + 1:x}:00.0"
        links[f"/sys/bus/pci/devices/0000:e{place + 1:x}:00.0"] = f"../../..{own.removeprefix('/sys')}"
        made |= {f"{own}/vendor": "0x10de\n", f"{own}/class": "0x068000\n", f"{own}/device": "0x22a3\n"}
    return made


def _lost(gpu: Answers) -> bool:
    return all(isinstance(value, OSError) for value in gpu.values())


def _amd(machine: Machine) -> tuple[Files, dict[str, str], dict[str, Any]]:
    models = [{**AMD[facts["like"]], **facts} for facts in machine["amd"] for _ in range(facts.get("count", 1))]
    content, links = amd(*models, hive=machine.get("hive", 0))
    if "aer" in machine:  # of the port above each
        ports = [path.removesuffix("max_link_width") for path in content if path.endswith(":01.1/max_link_width")]
        content |= {f"{port}aer_dev_correctable": f"TOTAL_ERR_COR {machine['aer']}\n" for port in ports}
    for index in range(len(models)) if "parts" in machine else ():
        content = _parted(content, index, machine["parts"], models[index]["simds"] // machine["parts"], machine.get("hive", 0))
    for index in range(len(models)):
        own = next(path for path in content if path.endswith(f"{amd_bus_id(index)}/class")).rpartition("/")[0]
        content |= {f"{own}/{name}": text for name, text in machine.get("card", {}).items()}
        content |= {f"{own}/gpu_metrics": metrics(sum(1 << bit for bit in machine["bits"]))} if "bits" in machine else {}
        if "group" in machine:
            links[f"{own}/iommu_group"] = f"../../../../../../kernel/iommu_groups/{index + 40}"
            content[f"/sys/kernel/iommu_groups/{index + 40}/type"] = f"{machine['group']}\n"
    for index in range(len(models)) if machine.get("unbound") is True else machine.get("unbound") or ():  # its driver did not take it
        own, card, node = f"/{amd_bus_id(index)}/", f"/card{index + 1}", f"{NODES}/{index + 1}/"
        gone = ("drm/", "hwmon/", "ras/", "mem_info", "uevent", "gpu_busy", "pp_dpm")
        content = {
            path: text
            for path, text in content.items()
            if not path.startswith(node) and not any(f"{own}{part}" in path for part in gone) and not path.endswith(f"renderD{128 + index}")
        }
        links = {path: to for path, to in links.items() if not path.endswith((f"{own}driver", card)) and f"{card}/" not in path}
    if machine.get("unbound") is True:
        content = {path: text for path, text in content.items() if "/kfd/" not in path}
    return content, links, {"access:/dev/kfd": True, **{f"access:/dev/dri/renderD{128 + index}": True for index in range(len(models))}}


def _parted(content: Files, index: int, parts: int, units: int, hive: int) -> Files:
    """A divided GPU. The compute driver keeps the number of a part in the upper bits of its place."""
    made = divided(content, index, parts, units, hive)
    for part in range(1, parts):
        path = f"{NODES}/{100 * (index + 1) + part}/properties"
        place = (0x0C + 16 * index) << 8
        made[path] = str(made[path]).replace(f"location_id {place}", f"location_id {place | part << 28}")
    return made


def _intel(machine: Machine) -> tuple[Files, dict[str, str], dict[str, Any]]:
    facts = machine["intel"]
    content, links = intel(facts.get("device", "E20B"), **facts.get("files", {}))
    if "held_by" in facts:  # kept for guests
        own = "/0000:03:00.0/"
        gone = (f"{own}drm/", f"{own}uevent", "/card1", "/renderD128")
        content = {path: text for path, text in content.items() if not any(part in path for part in gone)}
        links = {path: to for path, to in links.items() if not any(part in path for part in gone)}
        links[next(path for path in links if path.endswith(f"{own}driver"))] = f"../../../../bus/pci/drivers/{facts['held_by']}"
    return content, links, {"access:/dev/dri/renderD128": True, "gpu:awake": {"card1": facts.get("awake", 0)}}


def _graphics(machine: Machine) -> tuple[Files, dict[str, str], dict[str, Any]]:
    """A processor of Intel's alone, whose graphics may have virtual functions that i915 holds, too."""
    facts, port = machine["graphics"], "/sys/devices/pci0000:00"
    content: Files = {"/proc/bus/pci/devices": "0010\t80860000\t0\n"}
    links: dict[str, str] = {}
    for number in range(1 + facts.get("functions", 0)):
        place = f"0000:00:02.{number}"
        own = f"{port}/{place}"
        said = f"DRIVER={facts['driver']}\nPCI_ID=8086:{facts['device']}\nPCI_SLOT_NAME={place}\n"
        content |= {
            f"{own}/uevent": said, f"{own}/vendor": "0x8086\n", f"{own}/device": f"0x{facts['device'].lower()}\n", f"{own}/class": "0x030000\n",
            f"{own}/drm/card{number}/dev": f"226:{number}\n", f"{own}/drm/renderD{128 + number}/dev": f"226:{128 + number}\n",
            f"/dev/dri/renderD{128 + number}": "",
        }  # fmt: skip
        links |= {
            f"/sys/class/drm/card{number}": f"../../devices/pci0000:00/{place}/drm/card{number}",
            f"{own}/drm/card{number}/device": f"../../../{place}", f"/sys/bus/pci/devices/{place}": f"../../../devices/pci0000:00/{place}",
            f"{own}/driver": f"../../../bus/pci/drivers/{facts['driver']}", **({f"{own}/physfn": "../0000:00:02.0"} if number else {}),
        }  # fmt: skip
    return content, links, {f"access:/dev/dri/renderD{128 + number}": True for number in range(1 + facts.get("functions", 0))}


def _bus(machine: Machine) -> tuple[Files, dict[str, str], dict[str, Any]]:
    """A machine without a GPU, with these devices: accelerators of other makers."""
    content: Files = {}
    listed = ["0000\t80860000\t0\n"]
    links: dict[str, str] = {}
    for facts in machine["bus"]:
        for index in range(facts.get("count", 1)):
            place = f"0000:{0x20 + index:02x}:00.0"
            own = f"/sys/devices/pci0000:{0x10 + index:02x}/{place}"
            content |= {f"{own}/{name}": f"{facts[name]}\n" for name in ("vendor", "device", "class")}
            listed.append(f"{0x20 + index:02x}00\t{facts['vendor'][2:]}{facts['device'][2:]}\t0\n")
            links[f"/sys/bus/pci/devices/{place}"] = f"../../..{own.removeprefix('/sys')}"
            if facts.get("driver"):
                links[f"{own}/driver"] = f"../../../bus/pci/drivers/{facts['driver']}"
    return content | {"/proc/bus/pci/devices": "".join(listed)}, links, {}

"""GPU machines as they answer: full sets of NVML answers and the files beside them, made from a few lines."""

from __future__ import annotations

from typing import Any

from tests.conftest import Files

NOT_SUPPORTED = OSError("Not Supported")
LOST = OSError("GPU is lost")
DENIED = OSError("Insufficient Permissions")

GIB = 1 << 30
FIELDS = "91,38,45,52,59,82,147"
HEALTH = "230,74,76,269,270,271,170"

Answers = dict[str, Any]

H100: Answers = {
    # an HGX board: call and arguments after the GPU's number, as `Host.nvml` records them
    "DeviceGetName": "NVIDIA H100 80GB HBM3",
    "DeviceGetBrand": 14,
    "DeviceGetArchitecture": 9,
    "DeviceGetCudaComputeCapability": [9, 0],
    "DeviceGetVbiosVersion": "96.00.A5.00.01",
    "DeviceGetMemoryInfo,33554472": {
        "version": 33554472,
        "total": 80 * GIB,
        "reserved": GIB // 2,
        "free": 70 * GIB,
        "used": 10 * GIB - GIB // 2,
    },
    "DeviceGetBAR1MemoryInfo": {"bar1Total": 128 * GIB, "bar1Free": 127 * GIB, "bar1Used": GIB},
    "DeviceGetUtilizationRates": {"gpu": 97, "memory": 41},
    "DeviceGetPerformanceState": 0,
    "DeviceGetFieldValues," + FIELDS: {"91": 18, "38": 0, "45": 0, "52": 0, "59": 0, "82": 61, "147": 18},
    "DeviceGetFieldValues," + HEALTH: {"230": 0, "74": 4_000_000_000, "76": 0, "269": 0, "270": 0, "271": 0, "170": 0},
    "DeviceGetRepairStatus": [0, 0],
    "DeviceGetNumaNodeId": NOT_SUPPORTED,
    "DeviceGetMigMode": [0, 0],
    "DeviceGetPersistenceMode": 1,
    "DeviceGetComputeMode": 0,
    "DeviceGetDisplayActive": 0,
    "DeviceGetVirtualizationMode": 0,
    "DeviceGetAddressingMode": 0,
    "GpmQueryDeviceSupport": {"version": 1, "isSupportedDevice": 1},
    "DeviceGetCurrentClocksEventReasons": 0x4,
    "DeviceGetClockInfo,1": 1755,
    "DeviceGetMaxClockInfo,1": 1980,
    "DeviceGetClockInfo,2": 2619,
    "DeviceGetMaxClockInfo,2": 2619,
    "DeviceGetApplicationsClock,0": 1980,
    "DeviceGetDefaultApplicationsClock,0": 1980,
    "DeviceGetPowerUsage": 691_200,
    "DeviceGetPowerManagementLimit": 700_000,
    "DeviceGetPowerManagementDefaultLimit": 700_000,
    "DeviceGetEnforcedPowerLimit": 700_000,
    "DeviceGetTemperature,0": 64,
    "DeviceGetTemperatureThreshold,1": 87,
    "DeviceGetTemperatureThreshold,2": 95,
    "DeviceGetMarginTemperature": 23,
    "DeviceGetFanSpeed": NOT_SUPPORTED,
    "DeviceGetEccMode": [1, 1],
    "DeviceGetTotalEccErrors,0,0": 0,
    "DeviceGetTotalEccErrors,1,0": 0,
    "DeviceGetTotalEccErrors,1,1": 0,
    "DeviceGetSramEccErrorStatus": {"version": 16777320, "volatileUncParity": 0, "bThresholdExceeded": 0},
    "DeviceGetRemappedRows": [0, 0, 0, 0],
    "DeviceGetCurrPcieLinkWidth": 16,
    "DeviceGetMaxPcieLinkWidth": 16,
    "DeviceGetCurrPcieLinkGeneration": 5,
    "DeviceGetMaxPcieLinkGeneration": 5,
    "DeviceGetGpuMaxPcieLinkGeneration": 5,
    "DeviceGetPcieReplayCounter": 0,
    **{f"DeviceGetNvLinkState,{link}": 1 for link in range(18)},
    "DeviceGetGpuFabricInfoV": {"version": 33554468, "clusterUuid": [0] * 16, "status": 0, "cliqueId": 0, "state": 3, "healthMask": 0},
    "DeviceGetComputeRunningProcesses_v3": [
        {"pid": 4242, "usedGpuMemory": 9 * GIB, "gpuInstanceId": 4294967295, "computeInstanceId": 4294967295}
    ],
    "DeviceGetGraphicsRunningProcesses_v3": [],
    "DeviceGetMPSComputeRunningProcesses_v3": [],
}

A100_PCIE: Answers = {
    **{call: answer for call, answer in H100.items() if not call.startswith("DeviceGetNvLinkState")},
    "DeviceGetName": "NVIDIA A100-PCIE-40GB",
    "DeviceGetArchitecture": 7,
    "DeviceGetCudaComputeCapability": [8, 0],
    "DeviceGetCurrPcieLinkGeneration": 4,
    "DeviceGetMaxPcieLinkGeneration": 4,
    "DeviceGetGpuMaxPcieLinkGeneration": 4,
    "DeviceGetMaxClockInfo,1": 1410,
    "DeviceGetFieldValues," + FIELDS: {"91": 12, "38": 0, "45": 0, "52": 0, "59": 0, "82": 50, "147": None},
    **{f"DeviceGetNvLinkState,{link}": 0 for link in range(12)},
    "GpmQueryDeviceSupport": {"version": 1, "isSupportedDevice": 0},
    "DeviceGetGpuFabricInfoV": NOT_SUPPORTED,
}

RTX: Answers = {
    # a workstation's card: no error correction, no partitions, no NVLink, a display, and the oldest names of two calls
    **{call: answer for call, answer in H100.items() if "NvLink" not in call and "EccErrors" not in call},
    "DeviceGetName": "NVIDIA GeForce RTX 4090",
    "DeviceGetBrand": 5,
    "DeviceGetArchitecture": 8,
    "DeviceGetCudaComputeCapability": [8, 9],
    "DeviceGetMemoryInfo,33554472": OSError("Function Not Found"),
    "DeviceGetMemoryInfo": {"total": 24 * GIB, "free": 22 * GIB, "used": 2 * GIB},
    "DeviceGetBAR1MemoryInfo": {"bar1Total": 256 << 20, "bar1Free": 200 << 20, "bar1Used": 56 << 20},
    "DeviceGetUtilizationRates": {"gpu": 0, "memory": 1},
    "DeviceGetPerformanceState": 8,
    "DeviceGetPersistenceMode": 0,
    "DeviceGetCurrentClocksEventReasons": OSError("Function Not Found"),
    "DeviceGetCurrentClocksThrottleReasons": 0x1,
    "DeviceGetClockInfo,1": 210,
    "DeviceGetMaxClockInfo,1": 3105,
    "DeviceGetApplicationsClock,0": NOT_SUPPORTED,
    "DeviceGetDefaultApplicationsClock,0": NOT_SUPPORTED,
    "DeviceGetMarginTemperature": NOT_SUPPORTED,
    "DeviceGetFanSpeed": 30,
    "DeviceGetEccMode": NOT_SUPPORTED,
    "DeviceGetSramEccErrorStatus": NOT_SUPPORTED,
    "DeviceGetRemappedRows": NOT_SUPPORTED,
    "DeviceGetRetiredPagesPendingStatus": NOT_SUPPORTED,
    "DeviceGetMigMode": NOT_SUPPORTED,
    "DeviceGetDisplayActive": 1,
    "DeviceGetVirtualizationMode": NOT_SUPPORTED,
    "DeviceGetAddressingMode": OSError("this nvidia-ml-py has no nvmlDeviceGetAddressingMode"),
    "GpmQueryDeviceSupport": NOT_SUPPORTED,
    "DeviceGetCurrPcieLinkGeneration": 1,
    "DeviceGetMaxPcieLinkGeneration": 4,
    "DeviceGetGpuMaxPcieLinkGeneration": 4,
    "DeviceGetFieldValues," + FIELDS: dict.fromkeys(FIELDS.split(",")),
    "DeviceGetNvLinkState,0": NOT_SUPPORTED,
    "DeviceGetGpuFabricInfoV": NOT_SUPPORTED,
    "DeviceGetComputeRunningProcesses_v3": [],
    "DeviceGetGraphicsRunningProcesses_v3": [
        {"pid": 900, "usedGpuMemory": None, "gpuInstanceId": 4294967295, "computeInstanceId": 4294967295}
    ],
}

VGPU: Answers = {
    **A100_PCIE,
    "DeviceGetName": "GRID A100-10C",
    "DeviceGetBrand": 9,
    "DeviceGetVirtualizationMode": 2,
    "DeviceGetGridLicensableFeatures": {
        "isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": [{"featureState": 1, "featureEnabled": 1}],
    },
    "DeviceGetPersistenceMode": 1,
    **dict.fromkeys(
        ("DeviceGetPowerUsage", "DeviceGetPowerManagementLimit", "DeviceGetPowerManagementDefaultLimit", "DeviceGetTemperature,0",
         "DeviceGetCurrPcieLinkWidth", "DeviceGetMaxPcieLinkWidth", "DeviceGetPcieReplayCounter", "DeviceGetNvLinkState,0"),
        NOT_SUPPORTED,
    ),
    "DeviceGetFieldValues," + FIELDS: dict.fromkeys(FIELDS.split(",")),
}  # fmt: skip


def bus_id(index: int) -> str:
    """Where the tests put a GPU: 0000:17:00.0, 0000:27:00.0, …"""
    return f"0000:{0x17 + 16 * index:02x}:00.0"


def answers(index: int, gpu: Answers, **changed: Any) -> Answers:
    """The recorded calls of one GPU. `changed` are calls without arguments."""
    own = {
        "DeviceGetUUID": f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd",
        "DeviceGetMinorNumber": index,
        "DeviceGetPciInfo": pci_info(index),
    }
    calls = {}
    for call, answer in {**own, **gpu, **changed}.items():
        name, _, rest = call.partition(",")
        calls[f"nvml:{name}({index}{',' + rest if rest else ''})"] = answer
    return calls


def pci_info(index: int) -> Answers:
    return {
        "busIdLegacy": bus_id(index),
        "domain": 0,
        "bus": 0x17 + 16 * index,
        "device": 0,
        "pciDeviceId": 0,
        "busId": f"0000{bus_id(index)}",
    }


def calls(*gpus: Answers, driver: str = "580.95.05") -> dict[str, Any]:
    """All calls of a machine with these GPUs; any two of them can read each other."""
    recorded: dict[str, Any] = {
        "nvml:SystemGetDriverVersion()": driver,
        "nvml:SystemGetNVMLVersion()": f"13.{driver}",
        "nvml:SystemGetCudaDriverVersion_v2()": 13000,
        "nvml:SystemGetNvlinkBwMode()": 0,
        "nvml:SystemGetConfComputeState()": {"environment": 0, "ccFeature": 0, "devToolsMode": 0},
        "nvml:DeviceGetCount()": len(gpus),
        "access:/dev/nvidia-uvm": True,
        "run:uvm-open": "",
    }
    for index, gpu in enumerate(gpus):
        recorded.update(answers(index, gpu))
        recorded.update({f"nvml:DeviceGetP2PStatus({index},{other},0)": 0 for other in range(index + 1, len(gpus))})
    return recorded


def files(count: int, driver: str = "nvidia", version: str = "580.95.05") -> tuple[Files, dict[str, str]]:
    """(files, links) of a machine with so many GPUs, half of them on each of two nodes, each below a port of its own."""
    listed = ["0000\t80860e00\t0"]
    content: Files = {"/proc/uptime": "36000.00 1000.00\n", "/dev/null": ""}
    links: dict[str, str] = {}
    if driver == "nvidia":
        content |= driver_files(version)
    for index in range(count):
        address, root = bus_id(index), f"pci0000:{0x16 + 16 * index:02x}"
        port = f"/sys/devices/{root}/0000:{0x16 + 16 * index:02x}:01.0"
        links[f"/sys/bus/pci/devices/{address}"] = f"../../..{port.removeprefix('/sys')}/{address}"
        if driver:
            links[f"{port}/{address}/driver"] = f"../../../../bus/pci/drivers/{driver}"
        listed.append(f"{0x17 + 16 * index:02x}00\t10de2330\t40")
        content |= {f"{port}/max_link_width": "16", f"{port}/max_link_speed": "32.0 GT/s PCIe"}
        content |= {f"{port}/{address}/{name}": text for name, text in _function(index * 2 // max(count, 2)).items()}
    content["/proc/bus/pci/devices"] = "\n".join(listed) + "\n"
    return content, links


def _function(node: int) -> Files:
    return {
        "vendor": "0x10de\n",
        "class": "0x030200\n",
        "numa_node": f"{node}\n",
        "local_cpulist": f"{48 * node}-{48 * node + 47}\n",
        "current_link_width": "16\n",
        "max_link_width": "16\n",
        "current_link_speed": "2.5 GT/s PCIe\n",
        "max_link_speed": "32.0 GT/s PCIe\n",
    }


def driver_files(version: str = "580.95.05") -> Files:
    """What a loaded driver shows."""
    return {
        "/sys/module/nvidia/version": f"{version}\n",
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@U16)\nGCC version:\n",
        "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
        "/dev/nvidiactl": "",
        "/dev/nvidia0": "",
        "/dev/nvidia-uvm": "",
    }

"""One NVIDIA GPU, asked through NVML.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices/*/{numa_node,local_cpulist}  max_link_* of the port above it
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
Kernel  https://docs.kernel.org/PCI/sysfs-pci.html

A GPU that lacks a feature answers "Not Supported". That is knowledge: no ECC, no MIG, no NVLink. Every other failure
leaves the fact unknown, with the reason.
"""

from msgspec import structs

from sysperf.collect.gpu.answers import Answers, bus_id_in, key, percent, truth
from sysperf.collect.gpu.links import ONE_MODE_EACH, nvlink, pcie_link
from sysperf.collect.gpu.locality import local_cpus, numa_node
from sysperf.collect.gpu.memory_errors import memory_errors
from sysperf.collect.gpu.places import PCI
from sysperf.collect.gpu.records import COMPUTE_MODES, VIRTUALIZATION, Device, Process, is_mobile
from sysperf.collect.gpu.state import CLOCK_EVENTS, Clocks, Power, Thermal
from sysperf.host import Host
from sysperf.model.record import Json
from sysperf.model.text import neutral

MAX_PROCESSES = 4_096
MIG_PART = "DeviceGetMigDeviceHandleByIndex"
MAX_PARTS = 64
ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell", 13: "rubin",
}  # fmt: skip
BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "vapps", 8: "vpc", 9: "vcs", 10: "vws",
    11: "cloud-gaming", 12: "quadro-rtx", 13: "nvidia-rtx", 14: "nvidia", 15: "geforce-rtx", 16: "titan-rtx",
}  # fmt: skip
ADDRESSING = {0: "none", 1: "hmm", 2: "ats"}
# NVML_FI_DEV_*: NVLink count, CRC errors (flits, data), replays, recoveries; memory temperature; links to an NVSwitch
FIELDS = (91, 38, 45, 52, 59, 82, 147)
# NVML_FI_DEV_*: recovery action; nanoseconds at lower clocks: power limit, sync boost, heat (driver), heat, power brake; C2C links
HEALTH_FIELDS = (230, 74, 76, 269, 270, 271, 170)
RESET_FIELDS = (226, 227)
"""NVML_FI_DEV_*: RESET_STATUS, DRAIN_AND_RESET_STATUS."""
RECOVERY = {
    0: "none", 1: "reset", 2: "reboot", 3: "drain-p2p", 4: "drain-and-reset", 5: "recover-imex-domain", 6: "bus-reset", 7: "system-reboot",
}  # fmt: skip
POWER_PROFILES = {
    # NVML_POWER_PROFILE_*
    0: "max-p", 1: "max-q", 2: "compute", 3: "memory-bound", 4: "network", 5: "balanced", 6: "llm-inference", 7: "llm-training",
    8: "reduced-bandwidth", 9: "dcpcie", 10: "hmma-sparse", 11: "hmma-dense", 12: "sync-balanced", 13: "hpc", 14: "mig", 15: "max-q-1",
    16: "network-bound", 17: "high-throughput-inference",
}  # fmt: skip
_MAX_STATE = 15  # performance states; 32 says that it is unknown


def one_gpu(host: Host, index: int, hours: float | None, place: str | None = None) -> Device:
    """Everything NVML and sysfs tell about the GPU of this number.

    `hours` is how long the machine is up, `place` its PCI address by the order of the bus, for a GPU that does not answer.
    """
    gpu = Answers(host, index)
    bus_id = bus_id_in(gpu.ask("DeviceGetPciInfo")) or place
    name, uuid = gpu.text("DeviceGetName"), gpu.text("DeviceGetUUID")
    architecture = gpu.one_of(ARCHITECTURES, "DeviceGetArchitecture")
    capability = gpu.numbers("DeviceGetCudaComputeCapability")
    memory = _memory(gpu)
    utilization = gpu.ask("DeviceGetUtilizationRates")
    state = gpu.number("DeviceGetPerformanceState")
    fields = gpu.ask("DeviceGetFieldValues", *FIELDS)
    health = gpu.ask("DeviceGetFieldValues", *HEALTH_FIELDS)
    divided, divided_next = (truth(number) for number in gpu.numbers("DeviceGetMigMode", absent=[0, 0]))
    parts = _parts(gpu) if divided else None if divided is None else ()
    virtualization = gpu.one_of(VIRTUALIZATION, "DeviceGetVirtualizationMode", absent="none")
    node = host.number(f"{PCI}/{bus_id}/numa_node") if bus_id else None
    device = Device(
        index=index,
        bus_id=bus_id,
        name=name,
        uuid=uuid,
        minor=gpu.number("DeviceGetMinorNumber"),
        brand=gpu.one_of(BRANDS, "DeviceGetBrand"),
        architecture=architecture,
        compute_capability=None if None in capability else f"{capability[0]}.{capability[1]}",
        vbios=gpu.text("DeviceGetVbiosVersion"),
        mobile=is_mobile(name),
        memory_total_bytes=key(memory, "total") or None,
        memory_used_bytes=key(memory, "used"),
        memory_reserved_bytes=key(memory, "reserved"),
        bar1_total_bytes=key(gpu.ask("DeviceGetBAR1MemoryInfo"), "bar1Total") or None,
        utilization_percent=percent(key(utilization, "gpu")),
        memory_utilization_percent=percent(key(utilization, "memory")),
        performance_state=state if state is not None and state <= _MAX_STATE else None,
        persistence=gpu.truth("DeviceGetPersistenceMode"),
        compute_mode=gpu.one_of(COMPUTE_MODES, "DeviceGetComputeMode"),
        power_profiles=_power_profiles(gpu, architecture),
        mig_enabled=divided,
        mig_pending=divided_next,
        mig_instances=None if parts is None else len(parts),
        mig_uuids=None if parts is None or "" in parts else parts,
        display_active=gpu.truth("DeviceGetDisplayActive", absent=False),
        virtualization=virtualization,
        licensed=_licensed(gpu) if virtualization == "vgpu" else None,
        recovery_action=_recovery(gpu, health),
        addressing_mode=gpu.one_of(ADDRESSING, "DeviceGetAddressingMode", absent="none"),
        gpm_supported=truth(key(gpu.ask("GpmQueryDeviceSupport", absent={"isSupportedDevice": 0}), "isSupportedDevice")),
        numa_node=numa_node(gpu, node),
        locality_known=None if node is None else node >= 0,
        memory_numa_node=gpu.number("DeviceGetNumaNodeId"),
        local_cpus=local_cpus(gpu, bus_id),
        clocks=_clocks(gpu, health),
        power=_power(gpu),
        thermal=_thermal(gpu, fields),
        ecc=memory_errors(gpu, architecture),
        pcie=pcie_link(gpu, bus_id, hours),
        nvlink=nvlink(gpu, fields, key(health, "170"), architecture),
        processes=_processes(gpu),
        inforom=_inforom(gpu) if host.deep else None,
        problem=(problem := gpu.problem()),
        troubles=gpu.troubles() if problem == "" else None if problem is None else (),
        lost=None if problem is None else problem != "",
    )
    return settled(gpu, device)


def settled(gpu: Answers, device: Device) -> Device:
    """Take the lower of two looks at a GPU's memory where no process holds it: one may have begun, or ended, between the looks."""
    if device.processes != () or not device.memory_used_bytes:
        return device
    again = key(_memory(gpu), "used")
    return device if again is None else structs.replace(device, memory_used_bytes=min(device.memory_used_bytes, again))


def _memory(gpu: Answers) -> Json:
    """The second version of the call (driver 510) tells the driver's own memory from that of processes."""
    second = gpu.ask("DeviceGetMemoryInfo", 0x2000028)
    return gpu.ask("DeviceGetMemoryInfo") if second is None else second


def _power_profiles(gpu: Answers, architecture: str | None) -> tuple[str, ...] | None:
    """The profiles in force, each a bit of a mask of 255; only GPUs from Blackwell on have them."""
    if architecture not in ONE_MODE_EACH:
        return None if architecture is None else ()
    answer = gpu.ask_newer("DeviceWorkloadPowerProfileGetCurrentProfiles", absent={"enforcedProfilesMask": {"mask": [0]}})
    mask = answer.get("enforcedProfilesMask") if isinstance(answer, dict) else None
    words = mask.get("mask") if isinstance(mask, dict) else None
    if not isinstance(words, list) or not all(isinstance(word, int) for word in words):
        return None
    return tuple(POWER_PROFILES.get(bit, f"profile {bit}") for bit in range(32 * len(words[:8])) if words[bit // 32] >> bit % 32 & 1)


def _parts(gpu: Answers) -> tuple[str, ...] | None:
    """The names of a partitioned GPU's parts, '' where NVML tells none. Their numbers have gaps."""
    most = gpu.number("DeviceGetMaxMigDeviceCount")
    names: list[str] = []
    for part in range(min(most or 0, MAX_PARTS)):
        answer = gpu.ask(MIG_PART, part)
        if not isinstance(answer, bool | int | str) and gpu.failed.get(MIG_PART) != "Not Found":
            return None
        if answer:
            names.append(neutral(answer, 120) if isinstance(answer, str) else "")
    return None if most is None else tuple(names)


def _inforom(gpu: Answers) -> bool | None:
    """Whether the GPU's own settings are sound. It reads them from its flash memory and adds up their checksums."""
    sound = gpu.truth("DeviceValidateInforom")
    return False if gpu.failed.get("DeviceValidateInforom") == "Corrupted infoROM" else sound


def _licensed(gpu: Answers) -> bool | None:
    """Whether a virtual GPU holds its licence; None where none is needed or nobody says."""
    answer = gpu.ask("DeviceGetGridLicensableFeatures")
    features = answer.get("gridLicensableFeatures") if isinstance(answer, dict) and key(answer, "isGridLicenseSupported") else None
    if not isinstance(features, list) or not (count := key(answer, "licensableFeaturesCount", 0)):
        return None
    return any(key(feature, "featureState") == 1 for feature in features[:count])


def _clocks(gpu: Answers, health: Json) -> Clocks:
    graphics, sm, memory = 0, 1, 2
    reasons = gpu.number("DeviceGetCurrentClocksEventReasons")
    if reasons is None:  # its name before driver 535
        reasons = gpu.number("DeviceGetCurrentClocksThrottleReasons")
    return Clocks(
        sm_mhz=gpu.number("DeviceGetClockInfo", sm),
        sm_max_mhz=gpu.number("DeviceGetMaxClockInfo", sm),
        memory_mhz=gpu.number("DeviceGetClockInfo", memory),
        memory_max_mhz=gpu.number("DeviceGetMaxClockInfo", memory),
        app_mhz=gpu.number("DeviceGetApplicationsClock", graphics) or None,
        app_default_mhz=gpu.number("DeviceGetDefaultApplicationsClock", graphics),
        events=None if reasons is None else _events(reasons),
        power_capped_s=_seconds(health, "74"),
        sync_boost_s=_seconds(health, "76"),
        sw_thermal_s=_seconds(health, "269"),
        hw_thermal_s=_seconds(health, "270"),
        power_brake_s=_seconds(health, "271"),
    )


def _events(reasons: int) -> tuple[str, ...]:
    """Name the reasons; `other` stands for those that this table does not know, so that they are not none."""
    named = tuple(name for bit, name in CLOCK_EVENTS.items() if reasons & bit)
    return (*named, "other") if reasons & ~sum(CLOCK_EVENTS) else named


def _recovery(gpu: Answers, health: Json) -> str | None:
    """What would mend the GPU. Drivers before 570 say only whether it needs a reset, or its programs to end first."""
    action = key(health, "230")
    if action is not None:
        return RECOVERY.get(action)
    fields = gpu.ask("DeviceGetFieldValues", *RESET_FIELDS)
    reset, drain = (key(fields, str(field)) for field in RESET_FIELDS)
    return "reset" if reset else "drain-and-reset" if drain else None if reset is None else "none"


def _seconds(fields: Json, name: str) -> float | None:
    nanoseconds = key(fields, name)
    return None if nanoseconds is None else nanoseconds / 1e9


def _power(gpu: Answers) -> Power:
    return Power(
        usage_watts=gpu.watts("DeviceGetPowerUsage"),
        limit_watts=gpu.watts("DeviceGetPowerManagementLimit"),
        default_limit_watts=gpu.watts("DeviceGetPowerManagementDefaultLimit"),
        enforced_limit_watts=gpu.watts("DeviceGetEnforcedPowerLimit"),
    )


def _thermal(gpu: Answers, fields: Json) -> Thermal:
    sensor, slowdown, memory_max = 0, 1, 2
    memory = key(fields, "82") or None
    return Thermal(
        celsius=gpu.number("DeviceGetTemperature", sensor),
        slowdown_celsius=gpu.number("DeviceGetTemperatureThreshold", slowdown),
        margin_celsius=gpu.number("DeviceGetMarginTemperature"),
        memory_celsius=memory,
        memory_max_celsius=gpu.number("DeviceGetTemperatureThreshold", memory_max) if memory else None,
        fan_percent=gpu.number("DeviceGetFanSpeed"),
    )


def _processes(gpu: Answers) -> tuple[Process, ...] | None:
    """Each process once: a client of the multi-process service is listed as compute, too, and some of compute as graphics.

    None where one is listed that has no number here: it is in another PID namespace.
    """
    processes: dict[int, Process] = {}
    hidden = False
    for kind, name in (("mps", "MPSCompute"), ("compute", "Compute"), ("graphics", "Graphics")):
        listed = gpu.ask(f"DeviceGet{name}RunningProcesses_v3", absent=None if kind == "compute" else [])
        if not isinstance(listed, list | tuple):
            if kind == "compute":
                return None
            continue
        for process in listed[:MAX_PROCESSES]:
            pid = key(process, "pid")
            if pid:
                processes.setdefault(pid, Process(pid, key(process, "usedGpuMemory"), kind))
            hidden = hidden or pid == 0
    return None if hidden and not processes else tuple(processes.values())

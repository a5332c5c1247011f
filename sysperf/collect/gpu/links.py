"""The PCI Express link and the NVLinks of a GPU.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices/*  max_link_* of the port above it
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
Kernel  https://docs.kernel.org/PCI/sysfs-pci.html
"""

from sysperf.collect.gpu.answers import LACKING, Answers, key, number
from sysperf.collect.gpu.places import PCI
from sysperf.collect.gpu.wires import FABRIC_HEALTH, FABRIC_STATES, NvLink, Pcie
from sysperf.host import Host
from sysperf.model.record import Json
from sysperf.procfs import pci

MAX_LINKS = 64
ONE_MODE_EACH = ("blackwell", "rubin")
_COMPLETED = 3


def pcie_link(gpu: Answers, bus_id: str | None, hours: float | None) -> Pcie:
    """Lanes, generations and replays of the PCI Express link."""
    replays = gpu.number("DeviceGetPcieReplayCounter")
    slot_width, slot_generation = slot(gpu.host, bus_id)
    return Pcie(
        width_lanes=gpu.number("DeviceGetCurrPcieLinkWidth") or None,
        max_width_lanes=gpu.number("DeviceGetMaxPcieLinkWidth") or None,
        slot_width_lanes=slot_width,
        generation=gpu.number("DeviceGetCurrPcieLinkGeneration") or None,
        max_generation=gpu.number("DeviceGetMaxPcieLinkGeneration") or None,
        gpu_generation=gpu.number("DeviceGetGpuMaxPcieLinkGeneration") or None,
        slot_generation=slot_generation,
        replays=replays,
        replays_per_hour=None if replays is None or not hours else replays / hours,
    )


def link_of_files(host: Host, bus_id: str, replays: int | None = None, hours: float | None = None) -> Pcie:
    """The same as the files of a PCI function show it."""
    slot_width, slot_generation = slot(host, bus_id)
    path = f"{PCI}/{bus_id}"
    return Pcie(
        width_lanes=lanes(host, f"{path}/current_link_width"),
        max_width_lanes=lanes(host, f"{path}/max_link_width"),
        slot_width_lanes=slot_width,
        generation=generation(host, f"{path}/current_link_speed"),
        max_generation=generation(host, f"{path}/max_link_speed"),
        slot_generation=slot_generation,
        replays=replays,
        replays_per_hour=None if replays is None or not hours else replays / hours,
    )


def slot(host: Host, bus_id: str | None) -> tuple[int | None, int | None]:
    """Lanes and generation of the port above a device."""
    target = host.link(f"{PCI}/{bus_id}") if bus_id else None
    parent = (target or "").rpartition("/")[0]
    if not pci.is_address(parent.rpartition("/")[2]):
        return None, None  # attached to the root complex itself, as in many virtual machines
    port = f"/sys/{parent.lstrip('./')}"
    return lanes(host, f"{port}/max_link_width"), generation(host, f"{port}/max_link_speed")


def lanes(host: Host, path: str) -> int | None:
    """Lanes of a link; unknown when it is down."""
    return pci.lanes(host.number(path))


def generation(host: Host, path: str) -> int | None:
    """``32.0 GT/s PCIe`` is generation 5."""
    return pci.generation(host.word(path))


RECOVERED, UNDECODABLE = "215", "219"
"""NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS and _EFFECTIVE_ERRORS: NVLink 5 counts for each link, and not what older ones count."""


def nvlink(gpu: Answers, fields: Json, c2c_links: int | None, architecture: str | None) -> NvLink:
    """How many NVLinks there are and are up, and their errors; the links to a Grace CPU."""
    states = _link_states(gpu, key(fields, "91"))
    crc = [key(fields, "38"), key(fields, "45")]
    info = gpu.ask("DeviceGetGpuFabricInfoV", absent={"state": 0, "status": 0, "healthMask": 0})
    recoveries = key(fields, "59")
    each = _each_link(gpu, len(states)) if states and recoveries is None else {}
    return NvLink(
        links=None if states is None else len(states),
        active=None if states is None else sum(states),
        reduced=_reduced(gpu, architecture) if states is None or any(states) else False,
        switch_links=key(fields, "147"),
        crc_errors=sum(errors or 0 for errors in crc) if crc != [None, None] else None,
        replays=key(fields, "52"),
        recoveries=_sum(each, RECOVERED) if recoveries is None else recoveries,
        effective_errors=_sum(each, UNDECODABLE),
        fabric=FABRIC_STATES.get(key(info, "state", -1)),
        fabric_faults=_fabric_faults(info),
        c2c_links=c2c_links,
        c2c_active=_c2c_active(gpu, c2c_links),
    )


def _each_link(gpu: Answers, links: int) -> Json:
    return gpu.ask("DeviceGetFieldValues", *(f"{field}:{link}" for link in range(links) for field in (RECOVERED, UNDECODABLE)))


def _sum(counters: Json, field: str) -> int | None:
    """The sum over all links, which is known where any link tells."""
    values = [key(counters, name) for name in counters if name.startswith(f"{field}:")] if isinstance(counters, dict) else []
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _fabric_faults(info: Json) -> tuple[str, ...] | None:
    """What is wrong with a GPU's place in the fabric. The mask holds small fields, in which 0 means that the GPU does not tell."""
    mask, status = key(info, "healthMask"), key(info, "status")
    if mask is None and status is None:
        return None
    faults = [words[state] for shift, width, words in FABRIC_HEALTH if (state := (mask or 0) >> shift & width) in words]
    if key(info, "state") == _COMPLETED and status:
        faults.append(f"joining it ended with NVML error {status}")
    return tuple(faults)


def _reduced(gpu: Answers, architecture: str | None) -> bool | None:
    """Hopper has one mode for all of a machine's links, of which 0 is the full one; newer GPUs tell whether theirs is the best."""
    if architecture == "hopper":
        mode = number(gpu.host.nvml("SystemGetNvlinkBwMode"))
        return mode != 0 if mode is not None else False if gpu.host.sources[-1].error in LACKING else None
    if architecture in ONE_MODE_EACH:
        best = key(gpu.ask_newer("DeviceGetNvlinkBwMode", absent={"bIsBest": 1}), "bIsBest")
        return None if best is None else best == 0
    return False


def _c2c_active(gpu: Answers, links: int | None) -> int | None:
    """Links to the CPU that are up (NVML_FI_DEV_C2C_LINK_GET_STATUS)."""
    if not links:
        return links
    answer = gpu.ask("DeviceGetFieldValues", *(f"171:{link}" for link in range(min(links, MAX_LINKS))))
    states = [key(answer, name) for name in answer] if isinstance(answer, dict) else []
    return sum(bool(state) for state in states) if states and None not in states else None


def _link_states(gpu: Answers, links: int | None) -> list[bool] | None:
    """Whether each NVLink is up. Drivers that do not tell their number refuse the link after the last."""
    states: list[bool] = []
    for link in range(min(MAX_LINKS if links is None else links, MAX_LINKS)):
        state = gpu.ask("DeviceGetNvLinkState", link, absent=-1)
        if not isinstance(state, int):
            return states if states and links is None else None
        if state < 0:
            break
        states.append(bool(state))
    return states

"""What AMD's own tool tells beyond the files: why an Instinct MI300 or newer is slow.

Reads   amd-smi under --deep
AMD     https://rocm.docs.amd.com/projects/amdsmi/en/latest/conceptual/gpu-violations.html
"""

from sysperf.host import Host
from sysperf.model.record import Json, from_json
from sysperf.procfs import pci

MAX_GPUS = 128
_EVENTS = {
    "ppt": "sw-power-cap",
    "socket_thermal": "hw-thermal",
    "vr_thermal": "hw-thermal",
    "hbm_thermal": "hw-thermal",
    "prochot": "hw-power-brake",
}


def throttled(host: Host) -> dict[str, tuple[str, ...]]:
    """Why the clocks are not at their highest, by PCI address; empty where the tool is absent or tells nothing."""
    listed = _asked(host, "amd-smi-list")
    metrics = (_asked(host, "amd-smi-throttle") or _asked(host, "amd-smi-violation")) if listed else []
    places = {entry.get("gpu"): pci.bus_id(str(entry.get("bdf", ""))) for entry in listed}
    found: dict[str, tuple[str, ...]] = {}
    for entry in metrics:
        place, said = places.get(entry.get("gpu")), entry.get("throttle")
        if place and isinstance(said, dict):
            states = {name: said.get(f"{name}_violation_status") for name in _EVENTS}
            if {"ACTIVE", "NOT ACTIVE"}.intersection(map(str, states.values())):
                found[place] = tuple(dict.fromkeys(_EVENTS[name] for name, state in states.items() if state == "ACTIVE"))
    return found


def _asked(host: Host, command: str) -> list[dict[str, Json]]:
    """The tool's entries, one a GPU; newer ones lie in `gpu_data`. From ROCm 7 on the option has another name, and the answer has not."""
    text = host.run(command)
    try:
        answer: Json = from_json(text, Json) if text else None
    except ValueError as error:
        host.refuse(f"run:{command}", str(error)[:200])
        return []
    entries = answer.get("gpu_data") if isinstance(answer, dict) else answer
    return [entry for entry in entries[:MAX_GPUS] if isinstance(entry, dict)] if isinstance(entries, list) else []

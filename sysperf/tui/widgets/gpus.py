"""The GPUs, a line each: use and what of it computes, memory, power, heat, clock and what holds it down, and who uses it."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.collect.gpu.records import Device
from sysperf.collect.gpu.state import CLOCK_EVENTS
from sysperf.collect.pcie.records import Pcie
from sysperf.live.gpus.meters import series
from sysperf.model.text import neutral
from sysperf.report.words import some
from sysperf.tui.now import Now
from sysperf.tui.widgets.bar import bar, percent, spark
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span, width_of

REASONS = {
    # why clocks are not at their highest, in words; what is no news is left out
    "application-clocks": "application clocks",
    "sw-power-cap": "power limit",
    "hw-slowdown": "hardware",
    "sync-boost": "sync boost",
    "sw-thermal": "heat",
    "hw-thermal": "heat (sensor)",
    "hw-power-brake": "power brake",
    "display": "display",
}
GRAVE = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")
WIDE, ALL = 100, 160
"""From these widths on there are bars of memory and power, and a curve each."""
HELD_BYTES = 1 << 30
"""A GPU of which more is taken is in somebody's use."""
NEAR_C = 3
NVIDIA = "10de"
SHOWN = {"utilization": "busy", "memory_used_bytes": "memory", "power_watts": "power", "celsius": "°C", "sm_clock_mhz": "MHz"}


def title(now: Now) -> list[Span]:
    """``GPUs  NVIDIA H100 80GB HBM3, NVLink 18 of 18``: what all of them share."""
    devices = now.devices()
    models = dict.fromkeys(device.name or "unknown model" for device in devices)
    links = {(device.nvlink.active, device.nvlink.links) for device in devices if device.nvlink.links}
    shared = next(iter(links)) if len(links) == 1 else None
    driver = now.facts.driver
    versions = ((driver.nvidia_version, "driver"), (driver.cuda_driver_version, "CUDA"), (driver.rocm_version, "ROCm")) if driver else ()
    about = ", ".join([some(models, 2), *(f"{name} {neutral(version, 30)}" for version, name in versions if version)])
    about += f", NVLink {'?' if shared[0] is None else shared[0]} of {shared[1]}" if shared else ""
    return [Span("GPUs" if len(devices) > 1 else "GPU", "strong"), span(f"  {about}", "dim")]


def draw(now: Now, width: int, *, folded: bool = False) -> Lines:
    """The names of the columns, and a row each; folded, those that are alike share one. Without GPUs one line says so."""
    devices = now.devices()
    if not devices:
        return [none(now)]
    groups = _alike(now, devices) if folded else [[device] for device in devices]
    label = max(1, *(len(_numbers(group)) for group in groups))
    return [_head(now, label, width), *(_row(now, group, label, width) for group in groups), *_unknown(now, devices, width)]


def none(now: Now) -> Line:
    """Whether there is none, one without a driver, or nobody knows."""
    if now.snapshot is None:
        return line(span("GPU      …", "dim"))
    pcie = now.facts.pcie
    of_nvidia = (pcie.nvidia_gpus if pcie else None) or 0
    problem = now.facts.driver.nvml_problem if of_nvidia and now.facts.driver else None
    if on_bus := of_nvidia + (_without_driver(pcie) if pcie else 0):
        return line(
            Span("GPU      ", "dim"), span(f"{on_bus} on the bus, and no driver answers{f': {problem}' if problem else ''}", "warning")
        )
    listed = now.facts.gpu is not None and now.facts.gpu.devices is not None
    if listed or (pcie and pcie.nvidia_gpus == pcie.amd_gpus == pcie.intel_gpus == 0):
        return line(span("GPU      none", "dim"))
    return line(Span("GPU      ", "dim"), span("unknown", "unknown"))


def _without_driver(pcie: Pcie) -> int:
    """GPUs of AMD and Intel that no driver holds, without those inside of processors."""
    return sum(device.integrated is False and device.driver == "" and device.vendor_id != NVIDIA for device in pcie.devices)


def absent(now: Now) -> bool:
    """Whether it is known that there is none, which takes no line."""
    return not now.devices() and none(now).text.endswith("none")


def _alike(now: Now, devices: Sequence[Device]) -> list[list[Device]]:
    """Devices that say the same in words share a row, in the order of their numbers."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        busy = _get(now, device, "utilization")
        use = busy is not None and round(busy * 10)
        key = (device.name, device.lost, tuple(reasons(now, device)), use, _lanes(device), _is_hot(now, device))
        groups.setdefault(key, []).append(device)
    return [*groups.values()]


def _numbers(group: Sequence[Device]) -> str:
    first, last = group[0].index, group[-1].index
    if len(group) > 2 and last - first == len(group) - 1:
        return f"{first}-{last}"
    return ",".join(str(device.index) for device in group[:4]) + ("…" if len(group) > 4 else "")


def _busy_width(width: int) -> int:
    return max(8, width // 5) if width < ALL else 30


def _head(now: Now, label: int, width: int) -> Line:
    room = _busy_width(width) + 9
    legend = "busy ▒ of it SM ▓ tensor █" if _tells_units(now) else "busy"
    names = padded("", label + 1) + padded(legend if len(legend) < room else legend.replace("of it ", ""), room)
    names += padded("last minutes", 26) if width >= ALL else ""
    names += padded("memory GiB", 20) + padded("power", 14) if width >= WIDE else padded("memory GiB", 12) + padded("power", 8)
    return fitted(line(span(f"{names} °C   MHz", "dim")), width)


def _row(now: Now, group: Sequence[Device], label: int, width: int) -> Line:
    device = group[0]
    name = Span(padded(_numbers(group), label) + " ", "strong")
    if device.lost:
        return fitted(line(name, span(f"does not answer: {device.problem or 'lost'}", "alarm")), width)
    busy = _get(now, device, "utilization")
    parts = [name, *_use(now, device, busy, _busy_width(width)), Span(f" {percent(busy):>5}   ")]
    if width >= ALL:
        parts += [Span(spark(now.past.get(f"gpu.{device.index}.utilization", ()), 24, 1.0), "dim"), Span("  ")]
    parts += [*_memory(now, device, width), *_watts(now, device, width), *_heat(now, device), Span("  "), *_clock(now, device)]
    slow = _slowing(now, device)
    if width < WIDE:
        return fitted(line(*parts, *_lanes_text(device), *slow), width)
    slow = slow if width >= ALL else slow[:1]
    blank = Span(" " * max(0, (36 if width >= ALL else 18) - width_of(slow)))
    return fitted(line(*parts, *slow, blank, *_users(now, group), *_lanes_text(device)), width)


def _unknown(now: Now, devices: Sequence[Device], width: int) -> Lines:
    """Why a `?` stands in the tables of GPUs and programs, a line for each reason."""
    absent = {(series(device.index, name), word) for device in devices if not device.lost for name, word in SHOWN.items()}
    absent = {(name, word) for name, word in absent if name not in now.meters}
    if any(process.cuda_used for process in now.processes()):
        absent |= {("process.*.gpu_utilization", "GPU % of programs"), ("process.*.gpu_memory_bytes", "GPU mem of programs")}
    reasons: dict[str, dict[str, None]] = {}
    for name, word in sorted(absent):
        if reason := now.unknown.get(name):
            reasons.setdefault(reason, {})[word] = None
    return [
        fitted(line(Span("? ", "unknown"), span(f"{some(words, len(words))}: {neutral(reason, 120)}", "dim")), width)
        for reason, words in reasons.items()
    ]


def _get(now: Now, device: Device, name: str) -> float | None:
    return now.meters.get(series(device.index, name))


def _tells_units(now: Now) -> bool:
    """Whether a GPU tells how much of it computes: NVIDIA's from Hopper on, by counters of the driver."""
    return any(_get(now, device, name) is not None for device in now.devices() for name in ("sm_active", "tensor_active"))


def _use(now: Now, device: Device, busy: float | None, cells: int) -> list[Span]:
    """Kernels ran; of that time units were in use; of that the tensor cores, where a GPU tells these."""
    if busy is None:
        return [*bar(None, cells)]
    shares = (_get(now, device, "tensor_active"), _get(now, device, "sm_active"), busy)
    ends = [round(min(1.0, max(0.0, share or 0.0)) * cells) for share in shares]
    tensor, units, used = ends[0], max(ends[:2]), max(ends)
    if not units:
        return [Span(("▒" if _tells_units(now) else "█") * used, "cool"), Span("─" * (cells - used), "dim")]
    return [Span("█" * tensor + "▓" * (units - tensor) + "▒" * (used - units), "cool"), Span("─" * (cells - used), "dim")]


def _memory(now: Now, device: Device, width: int) -> list[Span]:
    used, total = _get(now, device, "memory_used_bytes"), device.memory_total_bytes
    text = f"{'?' if used is None else f'{used / (1 << 30):.1f}'}/{'?' if not total else f'{total / (1 << 30):.0f}'}"
    share = used / total if used is not None and total else None
    return [*(bar(share, 8, style="calm") if width >= WIDE else ()), Span(padded(text, 10, right=True) + "  ")]


def _watts(now: Now, device: Device, width: int) -> list[Span]:
    drawn, limit = _get(now, device, "power_watts"), device.power.enforced_limit_watts or device.power.limit_watts
    share = drawn / limit if drawn is not None and limit else None
    text = "? W" if drawn is None else f"{drawn:.0f} W"
    return [*(bar(share, 6, style="calm") if width >= WIDE else ()), Span(padded(text, 6, right=True) + "  ")]


def _is_hot(now: Now, device: Device) -> bool:
    heat, limit = _get(now, device, "celsius"), device.thermal.slowdown_celsius
    return heat is not None and (bool(limit and heat >= limit - NEAR_C) or bool({"sw-thermal", "hw-thermal"} & set(reasons(now, device))))


def _heat(now: Now, device: Device) -> list[Span]:
    heat = _get(now, device, "celsius")
    return [Span("?" if heat is None else f"{heat:3.0f}", "alarm" if _is_hot(now, device) else "")]


def _clock(now: Now, device: Device) -> list[Span]:
    clock = _get(now, device, "sm_clock_mhz")
    if clock is None:
        return [Span("   ? ", "dim")]
    return [Span(f"{clock:4.0f}", "alarm" if set(reasons(now, device)) & set(GRAVE) else ""), Span(" ")]


def _slowing(now: Now, device: Device) -> list[Span]:
    """What holds the clock down, the grave first: a narrow terminal cuts the rest."""
    slowing = sorted(reasons(now, device), key=lambda reason: reason not in GRAVE)
    return [span(f"↓{REASONS[reason]} ", "error" if reason in GRAVE else "warning") for reason in slowing]


def _lanes(device: Device) -> str:
    width, most = device.pcie.width_lanes, device.pcie.max_width_lanes
    return f"x{width} of {most} lanes" if width is not None and most is not None and width < most else ""


def _lanes_text(device: Device) -> list[Span]:
    lanes = _lanes(device)
    return [Span(" "), span(f" {lanes} ", "alarm"), Span(" ")] if lanes else []


def _users(now: Now, group: Sequence[Device]) -> list[Span]:
    """The programs that hold it, by rank where they have one; whether somebody holds it who cannot be seen."""
    addresses = {str(device.bus_id).lower() for device in group}
    names = [
        (f"r{process.job.rank} " if (process.job.rank or 0) >= 0 and (process.job.world_size or 1) > 1 else "") + f"{process.pid}"
        for process in now.processes()
        if any(address.lower() in addresses for address in process.gpu_bus_ids or ())
    ]
    if names:
        return [span(some(names, 3))]
    held = max((_get(now, device, "memory_used_bytes") or 0 for device in group), default=0)
    return [Span("? not visible", "unknown") if held > HELD_BYTES else Span("free", "dim")]


def reasons(now: Now, device: Device) -> list[str]:
    """Why its clocks are low, the names of NVML's bits; without those that are no news."""
    events = _get(now, device, "clock_events")
    return [name for bit, name in CLOCK_EVENTS.items() if events is not None and int(events) & bit and name in REASONS]

"""Meters of the GPUs: use, memory, power, clocks and why they are low, and what is wrong with each."""

from __future__ import annotations

from sysperf.collect.gpu.records import CLOCK_EVENTS, Device
from sysperf.model.text import size
from sysperf.tui.now import Now
from sysperf.tui.widgets import subjects
from sysperf.tui.widgets.bar import bar, percent, spark
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span

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
LOW = 0.8
GRAVE = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")
WIDE, ALL = 110, 150
"""From these widths on a GPU has two lines, and the reasons stand on the first."""


def draw(now: Now, width: int, *, findings: bool = True) -> Lines:
    """One or two lines a GPU; a machine without GPUs says so in one."""
    devices = now.devices()
    if not devices:
        return [_none(now)]
    findings_here = now.findings() if findings else []
    out: Lines = []
    for device in devices:
        out += _wide(now, device, width) if width >= WIDE else _narrow(now, device, width)
        for finding in subjects.at_gpu(findings_here, device)[:2]:
            named = subjects.named(finding, subject=False)
            out.append(fitted(Line((Span("      "), *named.spans), named.key), width))
    return out


def _name(now: Now, device: Device) -> Span:
    """``GPU 3 ``, as wide as the longest."""
    longest = max((len(str(other.index)) for other in now.devices()), default=1)
    return Span(padded(f"GPU {device.index}", 5 + longest), "strong")


def _none(now: Now) -> Line:
    if now.snapshot is None:
        return line(span("GPU      …", "dim"))
    on_bus = now.facts.pcie.nvidia_gpus if now.facts.pcie else None
    problem = now.facts.driver.nvml_problem if now.facts.driver else None
    if on_bus:
        return line(
            Span("GPU      ", "dim"), span(f"{on_bus} on the bus, and no driver answers{f': {problem}' if problem else ''}", "warning")
        )
    if on_bus == 0 or (now.facts.gpu and now.facts.gpu.devices is not None):
        return line(span("GPU      none", "dim"))
    return line(Span("GPU      ", "dim"), span("unknown", "unknown"))


def _lost(device: Device) -> str:
    return f"does not answer: {device.problem or 'lost'}"


def _get(now: Now, device: Device, name: str) -> float | None:
    return now.meters.get(f"gpu.{device.index}.{name}")


def _narrow(now: Now, device: Device, width: int) -> Lines:
    name = _name(now, device)
    if device.lost:
        return [line(name, span(_lost(device), "error"))]
    busy = _get(now, device, "utilization")
    full, empty = bar(busy, max(8, width // 8))
    first = line(
        name, full, empty, Span(f" {percent(busy):>5}  "), span(_memory(now, device)), Span("  "), span(_watts(now, device)), Span("  "),
        *_clock(now, device, short=True), *_slowing(now, device),
    )  # fmt: skip
    return [fitted(first, width)]


def _wide(now: Now, device: Device, width: int) -> Lines:
    index = device.index
    name = _name(now, device)
    model = span(padded((device.name or "unknown model").removeprefix("NVIDIA "), 20))
    if device.lost:
        return [line(name, model, Span("  "), span(_lost(device), "error"))]
    busy = _get(now, device, "utilization")
    full, empty = bar(busy, 16)
    past = spark(now.past.get(f"gpu.{index}.utilization", ()), 16, 1.0)
    heat = _get(now, device, "celsius")
    hot = device.thermal.slowdown_celsius
    blank = Span("  ")
    meters = (full, empty, Span(f" {percent(busy):>5} "), span(past, "dim"), blank, span(_memory(now, device)), blank)
    warmth = span(f"{heat:.0f} °C" if heat is not None else "", "hot" if hot and heat and heat >= hot - 3 else "")
    slow = _slowing(now, device)
    first = line(
        name, model, blank, *meters, span(_watts(now, device)), blank, warmth, blank, *_clock(now, device), *(slow if width >= ALL else ())
    )
    second = [*(slow if width < ALL else ()), *_units(now, device)]
    return [fitted(first, width), *([fitted(line(Span(" " * 28), *second), width)] if second else [])]


def _units(now: Now, device: Device) -> list[Span]:
    """What the units inside do, where the GPU tells (Hopper and newer); and its bus."""
    parts: list[Span] = []
    for name, label in (("sm_active", "SM"), ("tensor_active", "tensor"), ("dram_active", "memory bus")):
        share = _get(now, device, name)
        if share is not None:
            parts += [Span(f"{label} ", "dim"), Span(f"{percent(share)}  ")]
    into, out = _get(now, device, "pcie_received_bytes_per_s"), _get(now, device, "pcie_sent_bytes_per_s")
    if into is not None or out is not None:
        parts += [Span("PCIe ", "dim"), Span(f"in {_rate(into)} out {_rate(out)}  ")]
    width, most = device.pcie.width_lanes, device.pcie.max_width_lanes
    if width is not None and most is not None and width < most:
        parts += [span(f"{width} of {most} lanes", "warning")]
    return parts


def _rate(per_s: float | None) -> str:
    return "?" if per_s is None else f"{size(round(per_s))}/s"


def _memory(now: Now, device: Device) -> str:
    used, total = _get(now, device, "memory_used_bytes"), device.memory_total_bytes
    if used is None or not total:
        return padded(f"memory {size(total)}" if total else "memory ?", 13)
    return padded(f"{used / (1 << 30):.1f}/{total / (1 << 30):.0f} GiB", 13, right=True)


def _watts(now: Now, device: Device) -> str:
    drawn, limit = _get(now, device, "power_watts"), device.power.enforced_limit_watts or device.power.limit_watts
    if drawn is None:
        return padded("power ?", 9)
    return padded(f"{drawn:.0f}/{limit:.0f} W" if limit else f"{drawn:.0f} W", 9, right=True)


def _clock(now: Now, device: Device, *, short: bool = False) -> list[Span]:
    clock, most = _get(now, device, "sm_clock_mhz"), device.clocks.sm_max_mhz
    if clock is None:
        return [Span("clock ? ", "dim")]
    why = reasons(now, device)
    style = ("hot" if set(why) & set(GRAVE) else "warm") if most and clock < LOW * most and why else ""
    return [Span(f"{clock:.0f}", style), Span(f"/{most} MHz  " if most and not short else " MHz ", "dim")]


def _slowing(now: Now, device: Device) -> list[Span]:
    """What holds the clock down, the grave first: a narrow terminal cuts the rest."""
    slowing = sorted(reasons(now, device), key=lambda reason: reason not in GRAVE)
    return [span(f"↓{REASONS[reason]} ", "error" if reason in GRAVE else "warning") for reason in slowing]


def reasons(now: Now, device: Device) -> list[str]:
    """Why its clocks are low, the names of NVML's bits; without those that are no news."""
    events = _get(now, device, "clock_events")
    return [name for bit, name in CLOCK_EVENTS.items() if events is not None and int(events) & bit and name in REASONS]

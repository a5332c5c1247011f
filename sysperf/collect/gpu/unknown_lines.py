"""What a GPU's driver calls an error, in words that no table of sentences knows.

Reads   the kernel log, and of it the lines of the level of errors
Linux   include/drm/drm_print.h, include/linux/kern_levels.h

AMD's, Intel's and Gaudi's drivers give their errors that level. NVIDIA's gives it to nearly all: there words say that
something failed, and nvgpu marks its errors. What stands on machines that work is left out: lines about the firmware of the
mainboard, screens and calls of programs that failed, and details behind another line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain

from sysperf.collect.gpu.log_faults import MARK, MAX_TEXT, UNKNOWN, Fault, place_in, read_fault
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_QUOTED = 3
MAX_KINDS = 256
_LINE = lazy(
    r"^(\S{1,40}) .{0,80}?(?:\[(amdgpu|xe|i915)\]\]? |\[drm:(?=amdgpu_)|\b(?=(?:amdgpu|xe|i915|kfd kfd|habanalabs)[: ]))(.{1,300})"
)
_ELSEWHERE = lazy(
    r"(?i)(?<![a-z])(?:crtc|connectors?|planes?|encoder|edid|dpcd|hdmi|e?dp|mst|lttpr|aux|psr|hdcp|backlight|vblank|flip|atomic|underrun"
    r"|pipe|dmu?c?u?b?|dcn?|dce|optc|hubp|otg|ddc|i2c|hpd|hotplug|cursor|scanout|panel|pwrseq|dsc|phy|tc|cdclk|watermarks?|displays?"
    r"|securedisplay|monitor|screen|console|fb|fbdev|framebuffer|kms|modeset|vcn|uvd|vce|jpeg|vpe|umsch|huc|gsc|pxp|isp|audio|hda|gt1"
    r"|(?<!xgmi )(?<!pcie )link (?:training|address|info|status|rate)|dsi|mipi|vbt|act sent|ddi|lspcon|d?pll|sagv|dbuf|gpio"
    r"|power[ _]well|oui|tmds\w*|reg_wait|mpc)"
    r"(?![a-z])"
)
"""Words of screens, films and sound, to which a second GT belongs: nothing computes there."""
_HARMLESS = lazy(
    r"Zero GuC log|Unclaimed access|pre-production stepping|PCODE Mailbox failed|hwconfig table|mmio request 0x4100: failure 201"
    r"|Overdrive is enabled|PCI ROM|VFCT|initialize parser|killed entity|queue evicted|Problem resizing BAR|destroy queue"
    r"|ring kiq_|FRU: |gfxoff|I'm very busy|create device file|(?<![Uu]n)[Cc]orrectable|CORRECTABLE"
    r"|excessive init time|invalid context|comm: .{1,60} pid: [0-9]|buffer list -(?:4|512)!"
    r"|\[powerplay\].{0,40}(?:performance levels|mac of|minimum clocks|phm_get_clock_info|Leakage ID)"
)
"""Lines that stand in the logs of GPUs that work, or after a program that was ended."""
_LINE_OF_NVIDIA = lazy(r"^(\S{1,40}) .{0,120}?\b((?:NVRM:? |nvidia-uvm: |nvlogAllocBuffer |nvgpu: ).{1,300})")
_FAILED = lazy(
    r"^(?!nvgpu|NVRM:? Xid).{0,200}?\b(?:fail(?:ed|ure|s)?|errors?|unable|cannot|can't|could ?n[o']t|could not"
    r"|timed? ?out|invalid|corrupt(?:ed|ion)?|stuck|halted|not respond(?:ing)?)\b|^nvgpu: .{0,120}?\[ERR\]",
    re.IGNORECASE,
)
_OF_SOUND = lazy(
    r"nv(?:Assert|Check)\w{0,12}Failed|rpcRmApi\w|RmAlloc|_CTRL_CMD_|\bRPC\b|rpcSendMessage|[Hh]eartbeat|left-over mappings"
    r"|ACPI|SBIOS|_?DSM\b|Dsm|PFM_REQ|PRH\b|[Pp]ower (?:[Ss]ource|mode|limit)|[Cc]hipset|CPU|processor|root gen speed|_VFS\b"
    r"|bad register read|init module failed|ImexSession|refcntRequestReference|VA space|EDID|[Dd]isplay|\b[Hh]eads?\b|[Mm]odeset"
    r"|PreserveVideoMemory|[Ff]alling back|[Nn]on-fatal|ignor|[Ss]uspend|[Rr]esume|hibernat|SLI\b|i2c|audio|Err inj callback|Too early call"
)
_NVRM = lazy(r"^(?:NVRM:?|nvidia-uvm:) ")
_PLACES = lazy(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|0x[0-9a-fA-F]{1,16}")
_NUMBERS = lazy(r"[0-9a-f]{0,16}[0-9][0-9a-f]{0,16}")


def unknown(log: str, errors: str | None, places: Collection[str] = ()) -> Iterator[Fault]:
    """One entry a GPU, which quotes each kind of line once. Without the level (`errors`) the lines' own mark counts.

    NVIDIA's lines count as of no GPU, so nothing is told of them beside another line. To ask what a line says takes half a
    millisecond, so each kind is asked once; of a log with more kinds than anyone reads the rest is only counted.
    """
    kinds: dict[tuple[str | None, str], bool] = {}
    quoted: dict[str | None, list[str]] = {}
    count: dict[str | None, int] = {}
    last: dict[str | None, str] = {}
    for line, at, text, bus_id in chain(_of_nvidia(log), _of_others(log, errors)):
        kind = bus_id, _NUMBERS.sub("#", text)
        if kind not in kinds and len(kinds) < MAX_KINDS:
            kinds[kind] = read_fault(line, places) is None
            if kinds[kind] and len(texts := quoted.setdefault(bus_id, [])) < MAX_QUOTED:
                texts.append(text)
        if kinds.get(kind, bus_id in quoted):
            count[bus_id] = count.get(bus_id, 0) + 1
            last[bus_id] = max(at, last.get(bus_id, at))
    for bus_id, texts in quoted.items():
        yield Fault(bus_id or "a GPU", neutral("; ".join(texts), MAX_TEXT), UNKNOWN, bus_id, count[bus_id], neutral(last[bus_id], 40))


def _of_nvidia(log: str) -> Iterator[tuple[str, str, str, str | None]]:
    """Lines that say that something failed and do not stand in logs of sound machines: the line, its time, what it says, no GPU."""
    for line in log.splitlines():
        if (match := _LINE_OF_NVIDIA.match(line)) and _FAILED.match(match[2]) and not _OF_SOUND.search(match[2]):
            yield line, match[1], _NVRM.sub("", match[2]).strip().rstrip(".!"), None


def _of_others(log: str, errors: str | None) -> Iterator[tuple[str, str, str, str | None]]:
    """Lines of the level of errors: the line, its time, what it says, and of which GPU."""
    for line in (log if errors is None else errors).splitlines():
        match = _LINE.match(line) if errors is not None or MARK in line else None
        if match and not _ELSEWHERE.search(_PLACES.sub("#", line)) and not _HARMLESS.search(line):
            text = f"{match[2]}: {match[3]}" if match[2] else match[3]
            text = text.replace(f"{MARK} ", "").strip().rstrip(".!")
            yield line, match[1], text, place_in(text)

"""Lines in which NVIDIA's drivers say that something failed, and that no table of sentences knows.

NVRM prints its errors only, each with the name of a function; nvgpu marks them. What stands on machines that work is left out: lines about
the firmware of the mainboard, screens and calls of programs that failed, and details behind another line.
"""

from __future__ import annotations

import re

from sysperf.startup import lazy

UNKNOWN = "unknown"
"""The kind of such lines."""
_FAILED = lazy(
    r"^(?:NVRM:? |nvidia-uvm: |nvlogAllocBuffer ).{0,200}?\b(?:fail(?:ed|ure|s)?|errors?|unable|cannot|can't|could ?n[o']t|could not"
    r"|timed? ?out|invalid|corrupt(?:ed|ion)?|stuck|halted|not respond(?:ing)?)\b|^nvgpu: .{0,120}?\[ERR\]",
    re.IGNORECASE,
)
_OF_SOUND = lazy(
    r"nv(?:Assert|Check)\w{0,12}Failed|rpcRmApi\w|RmAlloc|_CTRL_CMD_|\bRPC\b|rpcSendMessage|[Hh]eartbeat|left-over mappings"
    r"|ACPI|SBIOS|_?DSM\b|Dsm|PFM_REQ|PRH\b|[Pp]ower (?:[Ss]ource|mode|limit)|[Cc]hipset|CPU|processor|root gen speed|_VFS\b"
    r"|bad register read|init module failed|ImexSession|refcntRequestReference|VA space|EDID|[Dd]isplay|\b[Hh]eads?\b|[Mm]odeset"
    r"|PreserveVideoMemory|[Ff]alling back|[Nn]on-fatal|ignor|[Ss]uspend|[Rr]esume|hibernat|SLI\b|i2c|audio|Err inj callback"
)


def says_failure(text: str) -> bool:
    """Whether a line, from the driver's name on, says that something failed which is not told on sound machines."""
    return _FAILED.match(text) is not None and _OF_SOUND.search(text) is None

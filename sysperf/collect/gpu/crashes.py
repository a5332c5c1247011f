"""Crashes and hangs of the kernel within the driver of a GPU, and crashes of programs within its libraries.

Reads   the kernel log
Linux   Documentation/admin-guide/bug-hunting.rst, arch/x86/mm/fault.c, arch/x86/kernel/{traps,dumpstack}.c, arch/arm64/kernel/traps.c,
        kernel/{hung_task.c,watchdog.c,watchdog_perf.c,rcu/tree_stall.h}
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sysperf.collect.gpu.log_faults import MAX_TEXT, Fault
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_FRAMES = 60
"""Lines behind the name of a program that waits, in which its stack is looked for."""
BEGINNINGS = (
    *("BUG: ", "Oops", "general protection fault", "kernel BUG at", "Unable to handle kernel"),
    *("detected stall", "hard LOCKUP on cpu"),
)
STORIES = {"hung": "INFO: task ", "full": "page allocation failure: order:", "interrupt": ": nobody cared"}
"""How stories begin that a stack behind them tells of a driver, by the kind of fault."""
_BEGAN = lazy(
    r"^(\S{1,40}) .{0,120}?\b((?:BUG: |Oops|general protection fault|kernel BUG at|Unable to handle kernel"
    r"|\w{3,12} (?:self-)?detected stalls? on|Watchdog detected hard LOCKUP|detected hard LOCKUP).{0,120})"
)
_WHERE = lazy(r"\b(?:RIP:|EIP:|IP:|pc :|NIP) .{0,60}?(?:\b(\w{1,80})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}(?: \[(\w{1,30}))?|$)")
_STORY = lazy(
    r"^(\S{1,40}) .{0,120}?(?:\bINFO: (?P<hung>task .{1,40} blocked for more than [0-9]{1,9} seconds)"
    r"|(?<![^\s])(?P<full>[^\s]{1,16}: page allocation failure): order:|\b(?P<interrupt>irq [0-9]{1,5}: nobody cared))"
)
_FRAME = lazy(r" (?<!\? )(\w{1,80})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8} \[(\w{1,30})")
_HANDLER = lazy(r"\[<[0-9a-f]{8,16}>\] (\w{1,80}) \[(\w{1,30})\]")
"""Who handles an interrupt, in the list behind one that the kernel turned off: ``[<00000000d8cfcf6e>] nvidia_isr [nvidia]``."""
_PASSES_ON = ("drm", "drm_kms_helper", "drm_ttm_helper", "ttm", "gpu_sched")
_DRIVER = lazy(r"nvidia(?:_(?!fs)\w{2,12})?|amdgpu|xe|i915")
_OF_PROGRAM = lazy(
    r"^(\S{1,40}) .{0,80}?(?:traps: )?([\w.:/+-]{1,40})\[[0-9]{1,10}\]:? "
    r"(?:segfault at|general protection|trap invalid opcode) .{0,120}? in "
    r"(lib(?:amdhip|hsa-runtime|hsakmt|rocblas|hipblas|MIOpen|rccl|ze_|ze-|igc|igdfcl|sycl|ur_|cuda\.|cublas|cudnn|nccl|nvidia-(?!e?gl|vulkan|rtcore|tls))[\w.+-]{0,40})\["
)
"""What the kernel prints of a program that ends by a signal, with the file in which it was."""


def crashes(log: str) -> Iterator[Fault]:
    """Each crash whose place, which the kernel prints some lines behind its reason, is in the driver of a GPU. A warning is none.

    A jump to where no code is has no place: the stack's nearest module made it. Of a program that crashed the kernel prints one line,
    with the file.
    """
    if not any(words in log for words in (*BEGINNINGS, "segfault at", "trap invalid opcode")):
        return
    began, nowhere = None, False
    for line in log.splitlines():
        if ".so" in line and (of_program := _OF_PROGRAM.match(line)):
            text = neutral(f"{of_program[2]} crashed in {of_program[3]}", MAX_TEXT)
            yield Fault(of_program[3], text, "library", None, 1, neutral(of_program[1], 40))
        elif "WARNING: " in line or "traps: " in line or "---[ end trace" in line:
            began, nowhere = None, False
        elif began is None:
            began = _BEGAN.match(line) if any(words in line for words in BEGINNINGS) else None
        elif place := (nowhere and _FRAME.search(line)) or _WHERE.search(line):
            if place[1] is None and not nowhere:
                nowhere = True
                continue
            if place[2] and _DRIVER.fullmatch(place[2]):
                text = neutral(f"{place[2]} crashed in {place[1]}: {began[2].strip()}", MAX_TEXT)
                yield Fault("a GPU", text, "crash", None, 1, neutral(began[1], 40))
            began, nowhere = None, False


def stories(log: str) -> Iterator[Fault]:
    """Tell of programs that wait in the kernel for minutes, or got no memory there, in a GPU's driver: the stack's nearest module.

    And of an interrupt that the kernel turned off, as its handlers, one of them a GPU's, said that it was not theirs.
    """
    if not any(words in log for words in STORIES.values()):
        return
    began, left = None, 0
    for line in log.splitlines():
        if any(words in line for words in STORIES.values()):
            began, left = _STORY.match(line), MAX_FRAMES
        elif began and left > 0 and (frame := _of_stack(line, str(began.lastgroup))) and frame[2] not in _PASSES_ON:
            if _DRIVER.fullmatch(frame[2]):
                kind = str(began.lastgroup)
                text = neutral(f"{began[kind]} in {frame[1]} of {frame[2]}", MAX_TEXT)
                yield Fault("a GPU", text, kind, None, 1, neutral(began[1], 40))
                began = None
            elif began.lastgroup != "interrupt":  # which several drivers may share
                began = None
        left -= 1


def _of_stack(line: str, kind: str) -> re.Match[str] | None:
    """Return the function and module of a line of a stack; of an interrupt, those of its handler."""
    return _HANDLER.search(line) if kind == "interrupt" else _FRAME.search(line)

"""Call stacks, the split of a main thread's time, and traces, as text for people."""

from __future__ import annotations

from sysperf.model.profile import Frame, Phase, Split, Stacks, Thread, Trace
from sysperf.model.text import neutral, quoted, size
from sysperf.report.terminal import Ink, Page, clip, pad, tail

STATE = {True: "runs", False: "waits", None: ""}
VIEWERS = "https://ui.perfetto.dev or chrome://tracing"
"""Of Chrome traces. No viewer opens an export of Nsight Systems: its own takes reports."""
MAX_PATH = 2_000


def stacks(dump: Stacks, *, color: bool = False, width: int = 100, cut: bool = False) -> str:
    """Every thread, the innermost call first. `cut`: of a path that is too wide, only the end."""
    page = Page(Ink(color), width)
    number = len(dump.threads)
    page.line(page.ink("strong", f"Process {dump.pid}: {number} Python thread{'' if number == 1 else 's'}"))
    for thread in dump.threads:
        _thread(page, thread, cut=cut)
    return str(page)


def _thread(page: Page, thread: Thread, *, cut: bool) -> None:
    page.line()
    name = neutral(thread.name or "thread", 60)
    page.line(
        "  ".join(part for part in (page.ink("strong", name), f"tid {thread.tid}" if thread.tid else "", STATE[thread.active]) if part)
    )
    wide = min(40, max((len(neutral(frame.function)) for frame in thread.frames), default=0))
    for frame in thread.frames:
        function = pad(clip(neutral(frame.function), wide), wide)
        where = tail(place(frame), max(20, page.width - wide - 4)) if cut else place(frame)
        page.line(f"  {function}  {page.ink('dim', where)}")
    if not thread.frames:
        page.line(f"  {page.ink('dim', 'no Python code')}")


def place(frame: Frame) -> str:
    """``file:line``, installed packages without the folder in which they lie."""
    _, installed, inside = frame.file.rpartition("/site-packages/")
    file = neutral(f"…/{inside}" if installed else frame.file, MAX_PATH)
    return f"{file}:{frame.line}" if frame.line is not None else file


def split(profile: Split, *, color: bool = False, width: int = 100) -> str:
    """The phases that were seen, in the order of a training step, each with the user's line that was seen most."""
    page = Page(Ink(color), width)
    if not profile.samples:
        page.paragraph(
            f"The main thread of process {profile.pid} was in no Python code for {profile.seconds} s: its phases are unknown.", "unknown"
        )
        return str(page)
    page.line(page.ink("strong", f"The main thread of process {profile.pid}: {profile.samples} samples in {profile.seconds} s"))
    page.line()
    for phase in profile.phases:
        if phase.samples:
            page.line(_phase(page, phase))
    return str(page)


def _phase(page: Page, phase: Phase) -> str:
    row = f"{pad(phase.name, 12)}  {phase.share:6.1%}  {phase.samples:5d}"
    if phase.frame is None:
        return row
    # Where one line is all of a phase, its share is the phase's.
    share = "" if phase.frame_share >= phase.share else f" ({phase.frame_share:.1%})"
    return f"{row}  {page.ink('dim', f'{neutral(phase.frame.function, 60)} {place(phase.frame)}{share}')}"


def trace(written: Trace, *, iterations: int = 0, analyzed: bool = False, color: bool = False, width: int = 100) -> str:
    """What the file is, and what to do with it. `iterations`: as many were asked for; `analyzed`: its analysis follows."""
    page = Page(Ink(color), width)
    page.line(page.ink("strong", neutral(written.path, MAX_PATH)))
    page.line(f"{size(written.size_bytes)}, {written.events} events, {written.steps} optimizer steps, taken in {written.took_s:g} s")
    if not written.events:
        page.paragraph("It is empty: PyTorch ran nothing while it was taken, or the program was about to end.", "unknown")
    elif iterations and not written.steps:
        page.paragraph(
            "It was taken by time: PyTorch does so when it has seen no optimizer step yet. `--seconds` says for how long.", "unknown"
        )
    opened = f"Open it with {VIEWERS}. " if written.path.endswith((".json", ".json.gz")) else ""
    page.line(f"{opened}Times in it are longer than without the profiler.")
    if written.events and not analyzed:
        page.line(f"What its time was lost to: {page.ink('command', f'sysperf analyze {quoted(neutral(written.path, MAX_PATH))}')}")
    return str(page)

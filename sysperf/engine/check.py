"""The verb `check`: faults of this machine within a budget, whatever a file system does meanwhile.

A child looks, and says in a pipe what it is at; this process waits no longer than the budget, and reads nothing that could hang. In the
child a thread reads areas: what does not answer keeps the others from being read for a moment only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import selectors
import signal
import stat
import threading
import time
from collections.abc import Callable, Sequence

from sysperf.collect import collect_area
from sysperf.collect.readers.gpu_sleep import ASLEEP, gpus_asleep
from sysperf.engine import reading
from sysperf.engine.audit import judge_snapshot
from sysperf.engine.judging import Terms
from sysperf.evaluate.ruleset import Ruleset
from sysperf.host import Host
from sysperf.model.check import Checked, Fault
from sysperf.model.finding import Finding
from sysperf.model.record import from_json, to_json
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral

AREAS = ("gpu", "pcie", "driver", "memory", "nic", "network", "storage", "kernel", "container", "limits", "cpu", "numa", "power", "cgroup")
"""What most often makes a machine bad comes first. Programs and environments are their users': nobody's home folder is read."""
FOR_JUDGING = 0.3
"""The part of the time that is left for the rules."""
PATIENCE_S = 0.15
"""An area that takes longer is read on, and the others meanwhile by another thread."""
MAX_ANSWER_BYTES = 1 << 20
NO_ANSWER = "no answer within the time"

Say = Callable[[str], None]
"""Told ``at WHAT`` before something, and ``done WHAT`` after it: what is begun and not done at the end is what hung."""
Look = Callable[[Say, float], Checked]
"""Looks at the machine until a time of `time.monotonic`."""


def within(deadline: float, look: Look) -> Checked:
    """What a child finds until the deadline (of `time.monotonic`); afterwards it is killed, and not waited for."""
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if not child:
        _be_child(reading_end, writing_end, look, deadline)
    os.close(writing_end)
    try:
        return _answer(_lines(reading_end, deadline))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)
        os.close(reading_end)


def _be_child(reading_end: int, writing_end: int, look: Look, deadline: float) -> None:
    """Look, say what is found, and end at once: a thread that hangs is not waited for."""
    code = 1
    try:
        os.close(reading_end)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

        def say(what: str) -> None:
            os.write(writing_end, f"{what}\n".encode())

        found = to_json(look(say, deadline))
        with open(writing_end, "wb", buffering=0, closefd=False) as pipe:
            pipe.write(found + b"\n")
        code = 0
    except BaseException as error:  # noqa: BLE001 - nothing of it may reach the parent's code
        with contextlib.suppress(OSError):
            os.write(writing_end, f"failed {type(error).__name__}: {neutral(str(error), 300)}\n".encode())
    finally:
        os._exit(code)


def _lines(pipe: int, deadline: float) -> list[bytes]:
    """The lines that come until the deadline, or until the child is done."""
    read = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(read) < MAX_ANSWER_BYTES and selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(pipe, 65_536)
            read += part
            if not part or (read.endswith(b"\n") and read[read.rfind(b"\n", 0, -1) + 1 :].startswith((b"{", b"failed"))):
                break
    return bytes(read).split(b"\n")[:-1]


def _answer(lines: Sequence[bytes]) -> Checked:
    """The last line, or what had been begun and was not done."""
    words = [line.decode("utf-8", "replace") for line in lines]
    last = words[-1] if words else ""
    if last.startswith("{"):
        with contextlib.suppress(ValueError):
            return from_json(last, Checked)
    if last.startswith("failed "):
        return Checked(problem=last.removeprefix("failed "))
    begun = [neutral(word.removeprefix("at "), 80) for word in words if word.startswith("at ")]
    return Checked(hung=tuple(dict.fromkeys(what for what in begun if f"done {what}" not in words)) or ("its start",), problem=NO_ANSWER)


def audit(terms: Callable[[], Terms], host: Callable[[], Host], say: Say, deadline: float) -> Checked:
    """Read what can be read until shortly before the deadline, and judge it; rules that need what is missing are unknown."""
    readers = _Readers(host, say, deadline - FOR_JUDGING * max(0.0, deadline - time.monotonic()))
    say("at configuration and rules")
    judged_by = terms()
    say("done configuration and rules")
    areas, hung, skipped = readers.finish()
    report = judge_snapshot(Snapshot(taken_at=reading.now(), areas=areas), judged_by)
    of_node = judged_by.ruleset.tables.get("check", {}).get("node", ())
    passed = tuple(rule for rule in report.passed if rule in of_node)
    return Checked(faults=faults(report.findings(), judged_by.ruleset), passed=passed, hung=hung, skipped=skipped, source="audit")


class _Readers:
    """Threads that read areas until a time: one, and another where that one waits for an answer."""

    def __init__(self, host: Callable[[], Host], say: Say, until: float) -> None:
        self._host, self._say, self._until = host, say, until
        self._areas = {area: Area(problem=ASLEEP) for area in ("gpu", "driver") if gpus_asleep()}
        self._waiting = [area for area in AREAS if area not in self._areas]
        self._begun: list[str] = []
        self._read: queue.SimpleQueue[tuple[str, Area]] = queue.SimpleQueue()
        self._start()

    def _start(self) -> None:
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        host = self._host()
        while self._waiting and time.monotonic() < self._until:
            with contextlib.suppress(IndexError):  # another thread took the last one
                self._begun.append(area := self._waiting.pop(0))
                self._say(f"at {area}")
                self._read.put((area, collect_area(host, area)))
                self._say(f"done {area}")

    def finish(self) -> tuple[dict[str, Area], tuple[str, ...], tuple[str, ...]]:
        """(the areas that were read, those that did not answer, those that were not reached)."""
        while len(self._areas) < len(AREAS) and (left := self._until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                area, facts = self._read.get(timeout=min(PATIENCE_S, left))
                self._areas[area] = facts
                continue
            if self._waiting:
                self._start()
        missing = {area: Area(problem=NO_ANSWER) for area in AREAS if area not in self._areas}
        hung = tuple(area for area in self._begun if area in missing)
        return {**self._areas, **missing}, hung, tuple(area for area in missing if area not in hung)


def faults(findings: Sequence[Finding], ruleset: Ruleset) -> tuple[Fault, ...]:
    """The findings with whose they are, those of the machine first."""
    lists = {name: frozenset(rules) for name, rules in ruleset.tables.get("check", {}).items()}
    found = [
        Fault(
            "user" if outcome.scope in ("process", "python") else "node" if outcome.rule in lists.get("node", ()) else "site",
            outcome.rule,
            outcome.severity,
            outcome.about[:200],
            neutral(outcome.message, 300),
            outcome.rule in lists.get("impossible", ()),
            outcome.rule in lists.get("leftover", ()),
        )
        for outcome in findings
    ]
    return tuple(sorted(found, key=lambda fault: ("node", "site", "user").index(fault.of)))


def age_s() -> float:
    """Seconds since this process was started, of which its budget is a part."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


class Busy(Exception):
    """Another check still runs; its text says what that waits for, where it is known."""


class Lock:
    """One check at a time. A child that cannot be killed keeps it: no further one joins it in the kernel."""

    def __init__(self, folder: str) -> None:
        """Take the lock in a folder for temporary files. Raises Busy; without a folder that can be written there is none."""
        self._descriptor = -1
        path = f"{folder}/sysperf-check-{os.geteuid()}.lock"
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            status = os.fstat(descriptor)
            # Another user could hold it for ever, and a further name of a file of ours would be emptied.
            if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                os.close(descriptor)
                return
            self._descriptor = descriptor
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(neutral(os.pread(descriptor, 200, 0).decode("utf-8", "replace"), 200)) from None
            self.note("")

    def note(self, what: str) -> None:
        """Leave a word for who comes next: what this check waited for."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, what.encode(), 0)

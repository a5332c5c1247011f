"""What sysperf changes, written down before it does: one file a transaction, one line a step.

A line is on the disk before the step that it announces begins, so whatever happens (kill -9, power loss), the values
that were there before are known. A line that was cut short announces a step that never began.

Files lie in ``/var/lib/sysperf/changes`` (root) or ``~/.local/state/sysperf/changes`` and are numbered in the order in
which they began: clocks jump, numbers do not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from sysperf import paths
from sysperf.host.files import sync_folder
from sysperf.model.change import Change, Keeper, Lease, Step, StepState, SupersededStep, Transaction, TransactionState
from sysperf.model.errors import SysperfError
from sysperf.model.record import Record, from_json, to_json
from sysperf.startup import lazy

VERSION = 1
_MAX_BYTES = 16 << 20
_MAX_BYTES_OF_STEPS = 12 << 20
"""What announces more is refused here, so that there is room to write down what became of it."""
_MAX_NUMBER = 999_999
_KEPT = 200
"""Transactions that are over and still listed."""
_LOCK_S = 20.0
_NAME = lazy(r"([0-9]{6})\.jsonl")


class JournalError(SysperfError):
    """The journal can not be read or written: then nothing is changed."""


class _NotThere(JournalError):
    """There is no transaction of this number."""


class Begin(Record, tag="open", tag_field="line", kw_only=True):
    """The first line."""

    version: int
    number: int
    taken_at: str
    boot: str
    by: str
    why: str = ""


class StepStarted(Record, tag="intend", tag_field="line"):
    """This step begins now."""

    step: int
    change: Change


class StepResult(Record, tag="told", tag_field="line"):
    """What became of a step."""

    step: int
    state: StepState
    read: str = ""
    reason: str = ""


class BeforeRewritten(Record, tag="moved", tag_field="line"):
    """A step of an earlier transaction about the same was taken back meanwhile: what there was before it is now our `before`."""

    step: int
    before: str
    number: int
    earlier: int


class LeaseSet(Record, tag="lease", tag_field="line"):
    """Until when it holds; a later line replaces an earlier one."""

    lease: Lease


class KeeperStarted(Record, tag="keeper", tag_field="line"):
    """Who takes it back when the lease ends."""

    keeper: Keeper


class End(Record, tag="close", tag_field="line"):
    """All steps are done, or were taken back because one failed."""

    state: Literal["applied", "rolled-back"]


Line = Begin | StepStarted | StepResult | BeforeRewritten | LeaseSet | KeeperStarted | End
_Announcing = (StepStarted, LeaseSet)


class _Head(msgspec.Struct):
    """What every version of the first line has."""

    line: str
    version: int


class Journal:
    """The transactions of this machine, or of one user on it."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = f"{folder or paths.state_folder()}/changes"

    @contextlib.contextmanager
    def locked(self, wait_s: float = _LOCK_S) -> Iterator[None]:
        """Hold the only right to change something. Raises JournalError when another sysperf keeps it for longer than `wait_s`."""
        try:
            self._make()
            descriptor = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalError(
                f"{self.folder}: {error.strerror}; nothing was changed", "the journal must be writable before anything is"
            ) from None
        try:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o600)  # who can read it can lock it, and keep everybody from undoing
            _lock(descriptor, wait_s)
            try:
                yield
            finally:
                now = time.time_ns()
                with contextlib.suppress(OSError):
                    os.utime(descriptor, ns=(now, now))  # who watches what sysperf changes looks at this one file
        finally:
            os.close(descriptor)

    def _make(self) -> None:
        """The folder, on the disk: what is set at every start outlives a power loss, and its journal must too."""
        folder, made = self.folder, []
        while not os.path.isdir(folder):
            made.append(folder := os.path.dirname(folder))
        if made:
            os.makedirs(self.folder, 0o755, exist_ok=True)
        for parent in made:
            sync_folder(parent)
        if problem := _foreign(os.lstat(self.folder), stat.S_ISDIR):
            hint = f"look at what is in it, then `sudo chown -R root {self.folder}; sudo chmod -R go-w {self.folder}`"
            raise JournalError(f"{self.folder}: {problem}; nothing was changed", hint)

    def stamp(self) -> tuple[int, int]:
        """Another one when something was written since: a transaction is a new file, and whoever held the lock touches it."""
        return _changed_at(self.folder), _changed_at(f"{self.folder}/lock")

    def begin(self, *, boot: str, by: str, why: str, taken_at: str, lease: Lease | None = None) -> Log:
        """A new transaction with the next number. Only under `locked`."""
        self._forget()
        number = max(self.numbers(), default=0) + 1
        if number > _MAX_NUMBER:
            raise JournalError(f"{self.folder}: all {_MAX_NUMBER} numbers are taken")
        log = Log(self.path(number), number, new=True)
        log.add(Begin(version=VERSION, number=number, taken_at=taken_at, boot=boot, by=by, why=why))
        if lease:
            log.add(LeaseSet(lease))
        return log

    def resume(self, number: int) -> Log:
        """An earlier transaction, to add to it. Only under `locked`."""
        return Log(self.path(number), number)

    def numbers(self) -> list[int]:
        """The transactions that there are, oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"{self.folder}: {error.strerror}") from None
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def path(self, number: int) -> str:
        """The file of a transaction."""
        return f"{self.folder}/{number:06}.jsonl"

    def transactions(self) -> list[Transaction]:
        """All of them, oldest first; one that can not be read has state `damaged` and says why."""
        found = []
        for number in self.numbers():
            with contextlib.suppress(_NotThere):  # another sysperf has forgotten it just now
                found.append(self.read(number))
        return found

    def read(self, number: int) -> Transaction:
        """One transaction as its lines tell it."""
        try:
            with open(self.path(number), "rb", opener=_open) as file:
                if problem := _foreign(os.fstat(file.fileno()), stat.S_ISREG):
                    return Transaction(number=number, state="damaged", problem=problem)
                raw = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            raise _NotThere(f"there is no transaction {number}", "`sysperf changes` lists them") from None
        except OSError as error:
            return Transaction(number=number, state="damaged", problem=error.strerror or str(error))
        return replay(number, raw)

    def _forget(self) -> None:
        """Drop the oldest of those that are over."""
        over = [one.number for one in self.transactions() if one.state in ("undone", "rolled-back")]
        for number in over[:-_KEPT]:
            with contextlib.suppress(OSError):
                os.unlink(self.path(number))


class Log:
    """The file of one transaction, open for adding lines. Raises JournalError when a line can not be put on the disk."""

    def __init__(self, path: str, number: int, *, new: bool = False) -> None:
        self.path, self.number = path, number
        self._torn = False
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if new else 0)
        try:
            self._file = os.open(path, flags, 0o644)
            if new:
                sync_folder(os.path.dirname(path))
            else:
                self._torn = self._ends_torn()
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}; nothing was changed") from None

    def add(self, *lines: Line) -> None:
        """Write lines and wait until they are on the disk."""
        content = (b"\n" if self._torn else b"") + b"".join(to_json(line) + b"\n" for line in lines)
        if isinstance(lines[0], _Announcing) and os.fstat(self._file).st_size + len(content) > _MAX_BYTES_OF_STEPS:
            raise JournalError(f"{self.path}: it is full", "fewer changes at once, or a new transaction instead of renewing this one")
        self._torn = True
        try:
            self._torn = os.write(self._file, content) != len(content)
            os.fsync(self._file)
            problem = os.strerror(errno.ENOSPC) if self._torn else ""
        except OSError as error:
            problem = error.strerror or str(error)
        if problem:
            raise JournalError(f"{self.path}: {problem}", "make room on this disk, then run `sysperf undo --expired`")

    def read(self) -> Transaction:
        """The transaction as far as it is written, also when its file has lost its name meanwhile."""
        return replay(self.number, os.pread(self._file, _MAX_BYTES + 1, 0))

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def __enter__(self) -> Log:  # noqa: PYI034 - Python 3.10 has no typing.Self
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ends_torn(self) -> bool:
        """Whether a crash cut the last line short."""
        size = os.fstat(self._file).st_size
        return bool(size) and os.pread(self._file, 1, size - 1) != b"\n"


def replay(number: int, raw: bytes) -> Transaction:
    """A transaction from its lines. Never raises: a file of a newer version, or of anything else, is `damaged`."""
    if len(raw) > _MAX_BYTES:
        return Transaction(number=number, state="damaged", problem="the file is too large to be a journal")
    *whole, torn = raw.split(b"\n")
    if not whole:
        # killed before the first line was on the disk: nothing had begun
        return Transaction(number=number, state="rolled-back", problem="it never began" if torn else "")
    try:
        head = msgspec.json.decode(whole[0], type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        return Transaction(number=number, state="damaged", problem="its first line can not be read")
    if head.version != VERSION:
        return Transaction(number=number, state="damaged", problem="a newer sysperf wrote it: update this one to undo it")
    return _Replay(number).run(whole)


class _Replay:
    """The lines of a transaction, one after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.opened: Begin | None = None
        self.steps: dict[int, Step] = {}
        self.lease: Lease | None = None
        self.keeper: Keeper | None = None
        self.closed = ""
        self.problem = ""

    def run(self, lines: list[bytes]) -> Transaction:
        for index, line in enumerate(lines):
            if not line:
                continue
            try:
                self._line(from_json(line, Line))
            except (msgspec.MsgspecError, ValueError, KeyError):
                # a line that a crash cut short announces a step that never began; what follows it is whole
                self.problem = f"line {index + 1} can not be read"
        if self.opened is None:
            return Transaction(number=self.number, state="damaged", problem=self.problem or "its first line is missing")
        steps = tuple(self.steps[number] for number in sorted(self.steps))
        return Transaction(
            number=self.number,
            state=self._state(steps),
            steps=steps,
            taken_at=self.opened.taken_at,
            boot=self.opened.boot,
            by=self.opened.by,
            why=self.opened.why,
            lease=self.lease,
            keeper=self.keeper,
            persisted=tuple(step.change.target for step in steps if step.change.knob.startswith("persist.") and step.state == "applied"),
            problem=self.problem,
        )

    def _line(self, line: Line) -> None:
        if isinstance(line, Begin):
            self.opened = line
        elif isinstance(line, StepStarted):
            self.steps[line.step] = Step(line.change)
        elif isinstance(line, StepResult):
            step = self.steps.get(line.step) or _lost(line.step)
            self.steps[line.step] = msgspec.structs.replace(step, state=line.state, read=line.read or step.read, reason=line.reason)
        elif isinstance(line, BeforeRewritten):
            step = self.steps[line.step]
            change = msgspec.structs.replace(step.change, before=line.before)
            took_over = (*step.took_over, SupersededStep(line.number, line.earlier, step.change.before))
            self.steps[line.step] = msgspec.structs.replace(step, change=change, took_over=took_over)
        elif isinstance(line, LeaseSet):
            self.lease = line.lease
        elif isinstance(line, KeeperStarted):
            self.keeper = line.keeper
        else:
            self.closed = line.state

    def _state(self, steps: tuple[Step, ...]) -> TransactionState:
        states = {step.state for step in steps}
        if not self.closed:
            return "open"
        if self.closed == "rolled-back":
            return "rolled-back" if "applied" not in states and "intended" not in states else "partly-undone"
        if "applied" in states or "intended" in states:
            return "partly-undone" if states & {"undone", "gone", "kept"} else "applied"
        return "partly-undone" if "kept" in states else "undone"


def _lost(number: int) -> Step:
    """A step whose announcement can not be read: nobody knows any more what it was about."""
    return Step(Change("unreadable", "", f"step {number + 1}, of which the journal's line can not be read", before="", after=""))


def boot_id() -> str:
    """Which start of the machine this is."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def boot_s() -> float:
    """Seconds since the machine started, sleep included; nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_of(seconds: float) -> Lease:
    """A lease that ends in so many seconds."""
    return Lease(boot_id(), boot_s() + seconds)


def expired(lease: Lease) -> bool:
    """Whether a lease has ended; a restart of the machine ends all."""
    return lease.boot != boot_id() or boot_s() >= lease.until_s


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _foreign(found: os.stat_result, is_right: Callable[[int], bool]) -> str:
    """Why a file or folder is not what sysperf made, or why root must not believe it; "" when nothing speaks against it."""
    if not is_right(found.st_mode):
        return "it is a link, or something else that sysperf did not make"
    if os.geteuid() == 0 and (found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return "others than root can write it, so root does not believe it"
    return ""


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _lock(descriptor: int, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while not _locks(descriptor):
        if time.monotonic() > end:
            raise JournalError("another sysperf is changing settings right now", "wait for it, then try again")
        time.sleep(0.05)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

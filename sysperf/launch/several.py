"""Several instances of a program on one machine: started together, ended together, one exit code.

sysperf stays as their parent: it prefixes what the instances print, passes signals on, and when one fails ends the others.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence

from sysperf.host.forked import ended, ending_with_parent
from sysperf.launch import start
from sysperf.launch.plan import LaunchPlan
from sysperf.model.errors import UsageError
from sysperf.model.record import Record

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
GRACE_S = 10.0
"""How long the others may take to end once one has failed or we were told to stop; then they are killed."""
CHUNK = 1 << 16
MAX_LINE_BYTES = 1 << 20


class Instance(Record):
    """One of the programs."""

    number: int
    plan: LaunchPlan
    env: dict[str, str]
    verify: bool = False
    """Say some seconds later what became of it."""


def run(instances: Sequence[Instance]) -> int:
    """Start all, wait for all. The exit code is that of the first that failed; 128+n when signal n ended it."""
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:  # one of the three was closed: no pipe may take its number
        pass
    os.close(lowest)
    return _Group(instances).run()


class _Stream:
    """What one instance prints on one of its outputs, passed on in whole lines."""

    def __init__(self, source: int, target: int, prefix: bytes) -> None:
        self.source, self.target, self.prefix = source, target, prefix
        self.kept = b""

    def pump(self) -> bool:
        """Pass on what is there; False at the end."""
        data = os.read(self.source, CHUNK)
        lines = (self.kept + data).split(b"\n")
        self.kept = lines.pop()
        if self.kept and (not data or len(self.kept) > MAX_LINE_BYTES):
            lines.append(self.kept)
            self.kept = b""
        if lines:
            _write(self.target, b"".join(self.prefix + line + b"\n" for line in lines))
        return bool(data)


def _write(target: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more: the programs go on
        while data:
            data = data[_taken(target, data) :]


def _taken(target: int, data: bytes) -> int:
    try:
        return os.write(target, data)
    except BlockingIOError:  # somebody who has this pipe too made it so
        select.select([], [target], [])
        return 0


def _end(group: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)


class _Group:
    def __init__(self, instances: Sequence[Instance]) -> None:
        self.instances = instances
        self.pids: dict[int, int] = {}
        self.streams: dict[int, _Stream] = {}
        self.failed: int | None = None
        self.signal_received: int | None = None
        self.deadline: float | None = None
        self.end_with_us = ending_with_parent(signal.SIGTERM)

    def run(self) -> int:
        width = len(str(len(self.instances) - 1))
        waker, self.wake = os.pipe()
        for end in (waker, self.wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        try:
            for instance in self.instances:
                self._spawn(instance, f"[{instance.number:>{width}}] ".encode())
        except OSError as error:
            self._send(signal.SIGKILL)
            started = f"{len(self.pids)} of {len(self.instances)} instances could be started"
            raise UsageError(f"--nproc: {started}: {error.strerror}", "ulimit -n and -u say how many are allowed") from None
        while self.pids or self.streams:
            self._wait(waker)
            self._reap()
            self._hurry()
        if self.signal_received is not None and not self.failed:
            return 128 + self.signal_received
        return self.failed or 0

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGCHLD:
            return
        self._send(number)
        if number in ENDING:
            self.signal_received = number
            self.deadline = self.deadline or time.monotonic() + GRACE_S

    def _send(self, number: int) -> None:
        for pid in list(self.pids):
            _end(pid, number)

    def _spawn(self, instance: Instance, prefix: bytes) -> None:
        pipes = [os.pipe(), os.pipe()]
        pid = os.fork()
        if pid == 0:
            self._child(instance, pipes)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # here too: a signal for it may come before it has done so itself
        self.pids[pid] = instance.number
        for (source, theirs), target in zip(pipes, (1, 2), strict=True):
            os.close(theirs)
            self.streams[source] = _Stream(source, target, prefix)

    def _child(self, instance: Instance, pipes: Sequence[tuple[int, int]]) -> None:
        """Becomes the program; never returns."""
        code = start.NOT_EXECUTABLE
        try:
            signal.set_wakeup_fd(-1)
            for number in (*FORWARDED, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)  # so that its own children can be ended with it
            self.end_with_us()
            for (_, theirs), ours in zip(pipes, (1, 2), strict=True):
                os.dup2(theirs, ours)
            if instance.number > 0 or os.isatty(0) or not os.get_inheritable(0):
                # One reader is enough; none from a terminal, which stops whoever reads in the background, and Ctrl-C is for all.
                # What is not inherited stands in for a stdin that was closed.
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for problem in start.apply(instance.plan):
                os.write(2, f"sysperf wrap: {problem}\n".encode())
            if instance.verify:
                from sysperf.launch import watch  # noqa: PLC0415 - with --verify only

                watch.watch(instance.plan)
            code, problem = start.become(instance.plan.argv, instance.env)
            os.write(2, f"sysperf wrap: {problem}\n".encode())
        finally:
            os._exit(code)

    def _wait(self, waker: int) -> None:
        left = None if self.deadline is None else 1000 * max(0.0, self.deadline - time.monotonic())
        poll = select.poll()  # select() ends at 1,024 descriptors
        for source in (waker, *self.streams):
            poll.register(source, select.POLLIN)
        for source, _ in poll.poll(left):
            if source == waker:
                os.read(waker, CHUNK)
            elif not self.streams[source].pump():
                del self.streams[source]
                os.close(source)

    def _reap(self) -> None:
        """Note who ended, also children of theirs when we are the first process of a container."""
        for pid, code in ended():
            if self.pids.pop(pid, None) is not None:
                self._ended(pid, code)

    def _ended(self, pid: int, code: int) -> None:
        code = 128 - code if code < 0 else code
        if code and self.failed is None and self.signal_received is None:
            self.failed = code
            self._send(signal.SIGTERM)
            self.deadline = time.monotonic() + GRACE_S
        elif code and self.failed is None:
            self.failed = code
        if code:
            _end(pid, signal.SIGTERM)  # what it left behind

    def _hurry(self) -> None:
        if self.deadline is None or time.monotonic() < self.deadline:
            return
        self._send(signal.SIGKILL)
        self.deadline = None if not self.pids else time.monotonic() + 1.0
        if not self.pids:  # a grandchild holds the pipe open: it is not ours to wait for
            for source in list(self.streams):
                os.close(source)
            self.streams.clear()

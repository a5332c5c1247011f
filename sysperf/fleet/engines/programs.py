"""Programs that engines start, many at a time: bounded in time and output, ended with this process, never by a shell here."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import IO, NamedTuple, TypeVar

from sysperf.host.forked import ending_with_parent
from sysperf.model.errors import UsageError
from sysperf.model.node import MAX_OUTPUT_BYTES
from sysperf.model.text import neutral

T = TypeVar("T")
R = TypeVar("R")

MAX_COMPLAINT_BYTES = 64 << 10
TOO_LATE = "no answer within {:g} s"


class Ended(NamedTuple):
    """How a program ended, and what it printed."""

    code: int | None
    """None: it was killed, for the time or for its output."""
    output: bytes
    complaint: str
    took_s: float
    problem: str = ""
    """Why it was killed."""

    @property
    def last_words(self) -> str:
        """The last line of its complaints."""
        lines = [line for line in self.complaint.splitlines() if line.strip()]
        return neutral(lines[-1].strip(), 200) if lines else ""


def run(argv: Sequence[str], limit_s: float, *, most: int = MAX_OUTPUT_BYTES, line: Callable[[bytes], object] | None = None) -> Ended:
    """Run a program until it ends, its time is over, or it prints too much; `line` is given each line as it comes. Raises UsageError."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=ending_with_parent(signal.SIGKILL),  # noqa: PLW1509 - one call of the kernel, made ready before the fork
        )
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror or error}", "install it, or choose another engine with --engine") from None
    with process, _running(process):
        printed, problem = _read(process, start + limit_s, most, line)
        if not problem:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, start + limit_s - time.monotonic()))
    output, complaint = printed
    code = process.returncode if not problem and process.returncode >= 0 else None
    problem = TOO_LATE.format(limit_s) if problem == "late" else problem
    return Ended(code, output, complaint.decode("utf-8", "replace"), time.monotonic() - start, problem)


def _read(
    process: subprocess.Popen[bytes], end: float, most: int, line: Callable[[bytes], object] | None
) -> tuple[tuple[bytes, bytes], str]:
    """((output, complaint), why it must be killed)."""
    parts = {process.stdout: bytearray(), process.stderr: bytearray()}
    limits = {process.stdout: most, process.stderr: MAX_COMPLAINT_BYTES}
    given = 0
    with selectors.DefaultSelector() as selector:
        for stream in parts:
            selector.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]  # both are pipes
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                return _both(process, parts), "late"
            for key, _ in ready:
                stream = process.stdout if key.fileobj is process.stdout else process.stderr
                data = os.read(key.fd, 65_536)
                parts[stream] += data
                if not data:
                    selector.unregister(key.fileobj)
                if len(parts[stream]) > limits[stream]:
                    if stream is process.stdout:
                        return _both(process, parts), f"it printed more than {most >> 10} KiB"
                    del parts[stream][:-4_096]
                if stream is process.stdout and line is not None:
                    *whole, _ = bytes(parts[stream][given:]).split(b"\n")
                    given += sum(len(each) + 1 for each in whole)
                    for each in whole:
                        line(each)
    return _both(process, parts), ""


def _both(process: subprocess.Popen[bytes], parts: dict[IO[bytes] | None, bytearray]) -> tuple[bytes, bytes]:
    return bytes(parts[process.stdout]), bytes(parts[process.stderr])


_lock = threading.Lock()
_processes: set[subprocess.Popen[bytes]] = set()


@contextlib.contextmanager
def _running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Know a program while it runs; nothing of its session outlives this."""
    with _lock:
        _processes.add(process)
    try:
        yield
    finally:
        _kill(process)
        with _lock:
            _processes.discard(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def each(work: Callable[[T], R], items: Iterable[T], at_once: int) -> Iterator[R]:
    """What comes of each item, as it comes. Whatever ends it (Ctrl-C, too) kills what runs, and starts nothing further."""
    pool = ThreadPoolExecutor(max_workers=at_once)
    try:
        for future in as_completed([pool.submit(work, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        with _lock:
            for process in _processes:
                _kill(process)
        pool.shutdown()

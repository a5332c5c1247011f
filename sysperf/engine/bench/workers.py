"""Processes that measure ceilings: they are asked over a pipe, and end with it, whatever happens to us."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from sysperf import paths, verify
from sysperf.host.scratch import Scratch
from sysperf.model.record import JsonObject, Record, to_json
from sysperf.model.text import neutral

FILE = f"{os.path.dirname(os.path.abspath(verify.__file__))}/workloads/ceilings.py"
BINDING = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "TORCH_NUM", "LD_PRELOAD", "MALLOC_", "TORCHELASTIC_")
"""Variables by which a shell would bind or slow what is to be the machine's ceiling, or torchrun have our ranks meet in its own store."""
END_S = 3.0
ENDED = "the process that measures ended"
MAX_ANSWER_BYTES = 64 << 10


class Answer(Record):
    """What a worker says of one request."""

    rate: float | None = None
    remark: str = ""
    cpu_s: float = 0.0
    about: dict[str, str] = {}
    problem: str = ""


class Asked(Protocol):
    """Whatever answers requests: one process, or several ranks."""

    def ask(self, request: JsonObject, limit_s: float) -> Answer:
        """Return the answer; one that says what went wrong where there is none in time."""

    def close(self) -> None:
        """End it."""


class Worker:
    """One process. It starts at its first request, and anew after one that it did not survive."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""

    def ask(self, request: JsonObject, limit_s: float) -> Answer:
        """Return the answer to a request."""
        try:
            self.send(request)
            return self.answer(limit_s)
        except OSError as error:
            ended = self._kill()
            return Answer(problem=f"{ENDED}: {ended}" if ended else f"{self._python}: {error.strerror or error}")

    def send(self, request: JsonObject) -> None:
        """Send a request. Raises OSError."""
        if self._process is None:
            self._process = self._started()
        assert self._process.stdin is not None  # noqa: S101 - for type checkers: it has a pipe
        self._process.stdin.write(to_json(request) + b"\n")
        self._process.stdin.flush()

    def answer(self, limit_s: float) -> Answer:
        """Return the answer to what was sent; a worker that ends or gives none in time is killed."""
        line = self._line(time.monotonic() + limit_s)
        try:
            return msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            ended = self._kill()
            return Answer(problem=f"no answer within {limit_s:.0f} s" if ended is None else f"{ENDED}: {ended}")

    def close(self) -> None:
        """End it through its own clean-up, or at once where that takes too long."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._process.stdin and self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._kill()

    def _started(self) -> subprocess.Popen[bytes]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(BINDING)}
        self._errors = tempfile.TemporaryFile(dir=paths.temporary_home())  # noqa: SIM115 - as long as the process
        self._said = b""
        return subprocess.Popen(
            (self._python, FILE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, start_new_session=True
        )

    def _line(self, until: float) -> bytes:
        assert self._process is not None  # noqa: S101 - for type checkers: something was sent
        assert self._process.stdout is not None  # noqa: S101 - as above
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._said and len(self._said) < MAX_ANSWER_BYTES:
            if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                return b""
            part = os.read(descriptor, 65_536)
            if not part:
                return b""
            self._said += part
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _kill(self) -> str | None:
        """End it with all that it started; return how it had ended before, None where it had not."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        code = process.poll()
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream and stream.close()
        last = self._last_words()
        self._errors.close()
        return None if code is None else f"{f'signal {-code}' if code < 0 else f'exit code {code}'}{f': {last}' if last else ''}"

    def _last_words(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2_000))
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return neutral(lines[-1], 200) if lines else ""


class Ranks:
    """Several processes that are asked together; the first one's answer counts."""

    def __init__(self, python: str, ranks: int) -> None:
        self._workers = [Worker(python) for _ in range(ranks)]
        self._folder = Scratch("ranks", paths.temporary_home())
        self._attempt = 0

    def ask(self, request: JsonObject, limit_s: float) -> Answer:
        """Return the first rank's answer, or the first problem."""
        until = time.monotonic() + limit_s
        store = f"{self._folder.name}/store{self._attempt}"
        try:
            for rank, worker in enumerate(self._workers):
                worker.send({**request, "rank": rank, "ranks": len(self._workers), "init": f"file://{store}"})
        except OSError as error:
            return self._failed(str(error))
        answers = [worker.answer(max(0.1, until - time.monotonic())) for worker in self._workers]
        if problem := next((answer.problem for answer in answers if answer.problem), ""):
            return self._failed(problem)
        return msgspec.structs.replace(answers[0], cpu_s=sum(answer.cpu_s for answer in answers))

    def _failed(self, problem: str) -> Answer:
        """A rank that fails leaves the others waiting: all of them begin anew."""
        self._attempt += 1
        for worker in self._workers:
            worker.close()
        return Answer(problem=problem)

    def close(self) -> None:
        """End all of them."""
        close_all(self._workers)
        self._folder.cleanup()


def close_all(workers: Sequence[Asked]) -> None:
    """End workers, also those behind one that cannot be ended."""
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.close)

"""Looking into a program for a diagnosis: samples through the stacks plugins, a trace through the traces plugin, lines of its source.

What cannot be looked at is noted, and the diagnosis goes on without it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from sysperf import paths, plugin
from sysperf.diagnosis import native, phases, stacks, traced
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import Hit, Native, Traced
from sysperf.diagnosis.reading import Rules
from sysperf.diagnosis.statements import Tells
from sysperf.engine import analyze, lint
from sysperf.engine.diagnose.parallel_looks import ParallelLooks
from sysperf.evaluate.ruleset import Ruleset
from sysperf.host import Host
from sysperf.host.commands import sysperf_command
from sysperf.host.plain_files import open_found
from sysperf.model.errors import SysperfError
from sysperf.model.profile import Frame, Samples
from sysperf.model.record import joined
from sysperf.script import cures
from sysperf.script.cures.one_part import trains_one_part
from sysperf.script.cures.unoptimized import calls_unoptimized
from sysperf.script.reached import MODULE, SeenFile, loops, reached
from sysperf.trace.host_facts import Cpu

MAX_SOURCE_BYTES = 4 << 20
MAX_LINE_CHARS = 500
"""Of a line, what is looked at: patterns take its length squared, and its author is the program's."""
MAX_SOURCES = 64
"""Files of all programs together: a program may name as many as it likes."""
MAX_LINTED = 4
TRACE_S, SHORT_TRACE_S = 1.0, 0.2
"""How much is traced. Each operator is an event: a second of tiny ones takes half a minute to write."""
LARGE_KERNELS = 0.3
"""Share of its CPU time in kernels, below which operators are many."""
MAX_WRITING_S = 13.0
"""Until the program has written a trace, the wait until it asks for work included."""
SEQUENCE_HZ = 500
"""For one second: what is made within some milliseconds is told from what takes longer."""
ANALYSIS_S = 2.0
"""What is left for reading a trace."""
RULES = Rules(phases.phase, phases.user_frame)
Told = TypeVar("Told", bool, str, tuple[str, ...])


class Inside:
    """Samples of the programs of one job; sources are read once."""

    def __init__(self, host: Host, stacks_with: str, notes: list[str]) -> None:
        self._host, self._stacks_with, self._notes = host, stacks_with, notes
        self._sources: dict[tuple[int, str], list[str]] = {}
        self._here: set[tuple[int, str]] = set()
        """Files whose names lead here to the program's own."""
        self._loops: dict[tuple[int, str], list[range]] = {}
        self._seen: dict[tuple[int, str], set[str]] = {}
        self.remedy = ""
        """What would let stacks be seen, where they could not."""

    def stacks(self, pid: int, seconds: int, program: int = 0, *, is_rank: bool = False) -> Stacks | None:
        """What the main thread of a program, or of its worker, does; None, with a note, where it cannot be seen."""
        try:
            samples = plugin.stack_taker(self._stacks_with).sample(self._host, pid, seconds)
        except SysperfError as error:
            self._note(f"stacks of process {pid}", error)
            self.remedy = self.remedy or error.hint.replace("sysperf stacks", "sysperf diagnose")
            return None
        self._remember(samples, program or pid)
        owner = program or pid
        return stacks.describe(
            samples, RULES, partial(self.line, owner), is_rank=is_rank, loop_of=partial(self._loop, owner),
            is_unoptimized=partial(self._on_line, owner, calls_unoptimized),
            tells=Tells(
                line=partial(self._on_line, owner, cures.cure), call=partial(self._on_line, owner, cures.of_call),
                part=partial(self._on_part, owner), sample=partial(self._on_line, owner, cures.of_sample),
                loop=partial(self._on_line, owner, cures.of_loop), searches=partial(self._on_line, owner, cures.searches_list),
                one_part=partial(self._on_line, owner, trains_one_part),
            ),
        )  # fmt: skip

    def _remember(self, samples: Samples, pid: int) -> None:
        """Which functions of which files ran: `reached` asks for them."""
        for sample in samples.samples:
            innermost = RULES.user_frame(sample.frames)
            for frame in sample.frames:
                name = frame.function.rpartition(".")[2]
                if name != MODULE or frame is innermost:
                    self._seen.setdefault((pid, frame.file), set()).add(name)

    def native(self, pid: int, seconds: int) -> Native | None:
        """What the CPU time of its main thread goes to; None where perf is absent or may not look."""
        try:
            samples = plugin.stack_taker("perf").sample(self._host, pid, seconds)
        except SysperfError as error:
            self._note(f"machine code of process {pid}", error)
            return None
        return native.describe(samples, pid)

    def batch_s(self, pid: int, taken: Stacks) -> float | None:
        """Return the seconds in which the main thread makes a batch, at most: of some it is not seen where they begin."""
        sequence = getattr(plugin.stack_taker(self._stacks_with), "sequence", None)
        if sequence is None:
            return None
        try:
            stacks = sequence(self._host, pid, SEQUENCE_HZ)
        except SysperfError as error:
            self._note(f"the batches of process {pid}", error)
            return None
        lines = self._lines_of_statement(pid, taken) if taken.inline_fetch < taken.statement else frozenset()
        makes = [any((at.file, at.line) in lines for at in stack) if lines else phases.phase(stack) == phases.FETCH for stack in stacks]
        begun = sum(now and not before for before, now in itertools.pairwise(makes))
        return sum(makes) / len(makes) / begun if begun else None  # in one second, in which a busy machine takes fewer stacks

    def _lines_of_statement(self, pid: int, taken: Stacks) -> frozenset[tuple[str, int]]:
        """The (file, line) of the largest statement; of a loop all of them."""
        at = next((place for place in taken.lines if place.what == "statement"), None)
        if at is None:
            return frozenset()
        lines = next((loop for loop in self._loops.get((pid, at.file), []) if loop.start == at.line), range(at.line, at.line + 1))
        return frozenset((at.file, line) for line in lines)

    def _note(self, what: str, error: SysperfError) -> None:
        self._notes.append(f"{what}: {error}{f' ({error.hint})' if error.hint else ''}")

    def line(self, pid: int, frame: Frame) -> str:
        """A line of a program's source, read where the program would read it; empty where that is impossible."""
        if frame.line is None or not frame.file or frame.file.startswith("<"):
            return ""
        key = (pid, frame.file)
        if key not in self._sources and len(self._sources) < MAX_SOURCES:
            self._sources[key] = _source(self._host, pid, frame.file).splitlines()
            if _is_same_here(pid, frame.file):
                self._here.add(key)
        source = self._sources.get(key, [])
        return source[frame.line - 1][:MAX_LINE_CHARS].strip() if 0 < frame.line <= len(source) else ""

    def _loop(self, pid: int, frame: Frame) -> range:
        """The lines of the innermost loop around a line."""
        self.line(pid, frame)
        key = (pid, frame.file)
        if key not in self._loops:
            self._loops[key] = loops("\n".join(self._sources.get(key, [])))
        around = [lines for lines in self._loops[key] if (frame.line or 0) in lines]
        return min(around, key=len, default=range(0))

    def _on_line(self, pid: int, tells: Callable[[str, int], Told], frame: Frame) -> Told:
        """What the source of a file tells of one of its lines."""
        self.line(pid, frame)
        return tells("\n".join(self._sources.get((pid, frame.file), [])), frame.line or 0)

    def _on_part(self, pid: int, frame: Frame, function: str) -> str:
        return self._on_line(pid, partial(cures.of_part, function=function), frame)

    def hits(self, pid: int, ruleset: Ruleset, seconds: float) -> tuple[Hit, ...]:
        """What `sysperf lint` says within so many seconds of what the program runs in the files that its stacks named: hypotheses."""
        files = {file: "\n".join(lines) for (owner, file), lines in tuple(self._sources.items()) if owner == pid and lines}
        files = dict([(file, text) for file, text in files.items() if file.endswith(".py")][:MAX_LINTED])
        try:
            linted = _linted(files, ruleset, seconds)
        except SysperfError as error:
            self._note("the script", error)
            return ()
        running = dict(zip(files, reached([self._as_seen(pid, file, text) for file, text in files.items()]), strict=True))
        return tuple(
            msgspec.structs.replace(hit, fixable=hit.fixable and (pid, hit.place.file) in self._here)
            for hit in linted
            if (runs := running[hit.place.file]) is None or (hit.place.function.partition(".")[0] or MODULE) in {*runs, MODULE}
        )

    def _as_seen(self, pid: int, file: str, text: str) -> SeenFile:
        functions = self._seen.get((pid, file), set())
        return SeenFile(text, frozenset(functions - {MODULE}), MODULE in functions)


def _linted(files: dict[str, str], ruleset: Ruleset, seconds: float) -> list[Hit]:
    """The hits in these texts, by the names that the program gives its files. Raises SysperfError."""
    with tempfile.TemporaryDirectory(prefix="sysperf-diagnose-", dir=paths.temporary_home()) as folder:
        for number, text in enumerate(files.values()):
            with open(f"{folder}/{number}.py", "w", encoding="utf-8", errors="replace") as copy:
                copy.write(text)
        result = lint.lint([folder], ruleset, file_s=max(0.1, seconds / max(1, len(files)))) if files else None
    names = list(files)
    return [
        Hit(
            rule=hypothesis.rule,
            place=msgspec.structs.replace(place, file=names[int(os.path.basename(place.file).partition(".")[0])]),
            fixable=hypothesis.source_fix is not None,
        )
        for hypothesis in (result.hypotheses if result is not None else ())
        for place in hypothesis.places
    ]


def _source(host: Host, pid: int, file: str) -> str:
    """The text of a file of the program."""
    return host.text(_place(pid, file), MAX_SOURCE_BYTES) or ""


def _place(pid: int, file: str) -> str:
    """Return where a program would read a file: a relative name is below its working folder; its own root is its container's."""
    return f"/proc/{pid}/root{file}" if os.path.isabs(file) else f"/proc/{pid}/cwd/{file}"


def _is_same_here(pid: int, file: str) -> bool:
    """Whether the name leads here to the program's file: in a container it is another one, or none."""
    try:
        return os.path.samefile(_place(pid, file), file)
    except (OSError, ValueError):
        return False


def trace(pid: int, ruleset: Ruleset, trace_s: float, seconds: float, name: str, notes: list[str]) -> Traced | None:
    """Have the program write a trace of `trace_s`, and read it, within `seconds`; None, with a note, where it does not."""
    end = time.monotonic() + seconds
    try:
        plugin.tracer(name).owner(Host(), pid)
    except SysperfError as error:
        notes.append(f"trace of process {pid}: {error}{f' ({error.hint})' if error.hint else ''}")
        return None
    ours = tempfile.mkdtemp(prefix="sysperf-diagnose-", dir=paths.temporary_home())
    theirs, copy = f"{ours}/trace", f"{ours}/trace.json"  # the program's user gets a folder, who could exchange it if it lay in /tmp itself
    try:
        os.mkdir(theirs, 0o700)
        os.chmod(ours, 0o711)  # noqa: S103 - to go through
        if problem := _write(pid, theirs, f"{theirs}/trace.json", trace_s, min(MAX_WRITING_S, seconds - ANALYSIS_S), name):
            notes.append(f"trace of process {pid}: {problem}")
            return None
        _take(theirs, copy)
        return _read_in_time(copy, ruleset, end - time.monotonic())
    except (SysperfError, OSError) as error:
        notes.append(f"trace of process {pid}: {error}")
        return None
    finally:
        with contextlib.suppress(RecursionError):  # of folders in folders that its user made
            shutil.rmtree(ours, ignore_errors=True)


def _read_in_time(path: str, ruleset: Ruleset, seconds: float) -> Traced:
    """What a trace tells. Raises SysperfError where reading it takes longer than so many seconds."""
    looks: ParallelLooks[str, Traced] = ParallelLooks()
    looks.start(path, lambda: _facts(path, ruleset))
    results = looks.results(max(0.0, seconds))
    if path not in results:
        raise SysperfError(f"it is too large to be read within {seconds:.0f} s")
    return results[path]


def length_s(native: Native | None) -> float:
    """How long a program is traced, by what its machine code does."""
    return SHORT_TRACE_S if native is not None and native.math < LARGE_KERNELS else TRACE_S


def _write(pid: int, folder: str, path: str, trace_s: float, limit_s: float, name: str) -> str:
    """Run `sysperf trace`, which takes on the rights of the program's user; why there is no trace, or nothing."""
    try:
        owner = os.stat(f"/proc/{pid}")
        if os.geteuid() == 0:
            os.chown(folder, owner.st_uid, owner.st_gid)
    except OSError:
        return "the program has ended"
    chosen = ("--with", name) if name else ()
    what = ("--seconds", f"{trace_s:g}", "--shapes", "--limit", f"{limit_s:g}", "--output", path, *chosen)
    command = (*sysperf_command(), "trace", str(pid), *what)
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit_s + 1, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "it took too long"
    complaints = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.startswith("sysperf:")]
    return (complaints[-1].removeprefix("sysperf: ")[:300] if complaints else f"exit {done.returncode}") if done.returncode else ""


def _take(folder: str, copy: str) -> None:
    """Copy the trace out of its folder, which is ours from now on. Raises SysperfError where what lies there is none.

    Its program's user could exchange the file at any time before, and change its content at any time: what is read is a copy that he
    has never had.
    """
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(where).st_uid
        os.fchown(where, os.geteuid(), os.getegid())
        os.fchmod(where, 0o700)  # the owner may have opened it to others, and to himself
        with open(_open_trace(where, owner), "rb") as trace, open(copy, "xb") as file:
            while (part := trace.read(1 << 20)) and file.tell() <= traced.MAX_BYTES:
                file.write(part)
    finally:
        os.close(where)


def _open_trace(folder: int, owner: int) -> int:
    """The trace that this user wrote, open for reading. Raises SysperfError where something else has its name."""
    peek = os.open("trace.json", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(peek)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != owner:
            raise SysperfError("it was replaced by something that is no trace")
        if status.st_size > traced.MAX_BYTES:
            raise SysperfError(f"it is larger than {traced.MAX_BYTES >> 20} MiB")
        return open_found(peek, "trace.json")
    finally:
        os.close(peek)


def _facts(path: str, ruleset: Ruleset) -> Traced:
    analysis = analyze.analyze([path], ruleset).analysis
    rank = analysis.trace.ranks[0]
    figures = rank.figures
    found = Traced(
        verdict=analysis.trace.verdict, gpu_busy=None if figures.gpu_busy_pct_mean is None else figures.gpu_busy_pct_mean / 100,
        sync=None if figures.sync_exposed_pct is None else figures.sync_exposed_pct / 100,
        findings=tuple(sorted({finding.rule for finding in analysis.findings})),
    )  # fmt: skip
    return joined(found, _shares(rank.cpu), traced.details(path))


def _shares(cpu: Cpu | None) -> Traced:
    if cpu is None:
        return Traced()
    return Traced(
        operators=cpu.operator_pct / 100, loader=cpu.loader_pct / 100, communication=cpu.communication_pct / 100,
        python=cpu.python_pct / 100, copies=cpu.copy_pct / 100, optimizer=cpu.optimizer_pct / 100,
        tiny=cpu.tiny_operator_share / 100, operators_per_step=cpu.operators_per_step, matmul=cpu.matmul_pct / 100,
    )  # fmt: skip

"""What tests share: machines made of a dict of files, captured machines, and a command line that runs for real."""

from __future__ import annotations

import errno
import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path, PurePath

import pytest
from hypothesis import HealthCheck, settings

from sysperf.host import Answers, Host
from sysperf.host.links import LinkResolver
from sysperf.host.opening import open_tree
from sysperf.host.tree import Tree

pytest_plugins = ("tests.collecting", "tests.golden", "tests.privileges")

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""A shell starts what it runs in the background with SIGINT ignored, nohup with SIGHUP; programs that tests start would inherit both."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Some machines set it. Each of the thousand programs that tests start would then compile sysperf anew, and each worker all tests."""

os.environ.pop("PYTHONUNBUFFERED", None)
"""Few users set it: with it, tests would not see what is shown too late."""

IN_MEMORY, ROOM_BYTES = "/dev/shm", 4 << 30
EVERYDAY = "not slow"


def pytest_configure(config: pytest.Config) -> None:
    """`tmp_path` lies in memory: on a disk a tenth of the CPU time writes, syncs and removes files, and tests wait for it longer.

    Whole systems, which the slow tests start, are too large for that, and may not be started from there.
    """
    if EVERYDAY in config.option.markexpr and has_room(IN_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


def has_room(folder: str) -> bool:
    """Whether a folder takes the files of all tests, and lets the programs among them run."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    may_run = not status.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and os.access(folder, os.W_OK | os.X_OK)
    return may_run and status.f_bavail * status.f_frsize >= ROOM_BYTES


Files = dict[str, str | bytes | OSError]
MakeMachine = Callable[..., Host]


class Dict(LinkResolver):
    """A complete small machine: a file that is not in the dict does not exist. An OSError value is raised when read."""

    live = False
    complete = True

    def __init__(self, files: Files, links: dict[str, str] | None = None) -> None:
        super().__init__()
        self.files = {path.strip("/"): content for path, content in files.items()}
        self.links = {path.strip("/"): target for path, target in (links or {}).items()}

    def _target(self, path: str) -> str | None:
        return self.links.get(path)

    def read(self, path: str, limit: int) -> bytes:
        content = self.files.get(self.resolve(path))
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(content, OSError):
            raise content
        raw = content.encode() if isinstance(content, str) else content
        if len(raw) > limit:
            raise OSError(errno.EFBIG, "larger than sysperf reads of such a file", path)
        return raw

    def names(self, path: str, limit: int) -> list[str]:
        inside = self.resolve(path)
        prefix = f"{inside}/" if inside else ""
        children = {name[len(prefix) :].partition("/")[0] for name in (*self.files, *self.links) if name.startswith(prefix)}
        if not children:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted(children)[:limit]

    def link(self, path: str) -> str:
        target = self.links.get(self._beside(path))
        if target is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return target

    def exists(self, path: str) -> bool:
        inside = self.resolve(path)
        return inside in self.files or inside in self.links or inside in self._parents

    @functools.cached_property
    def _parents(self) -> frozenset[str]:
        return frozenset().union(*map(_folders_above, self.files), *map(_folders_above, self.links))


@functools.cache
def _folders_above(path: str) -> frozenset[str]:
    """The folders that a path lies in; thousands of machines have the same ones."""
    return frozenset(str(folder) for folder in PurePath(path).parents)


COUNTS = "counts"
"""A test with many points records their counts by this property; they are printed at the end, whether it passes or not."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts that tests recorded."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    for report in reports:
        for name, text in getattr(report, "user_properties", ()):
            if name == COUNTS:
                terminalreporter.write_line(f"{text}")


def make_machine(
    files: Files | None = None, links: dict[str, str] | None = None, calls: dict[str, object] | None = None, *, deep: bool = False
) -> Host:
    """Make a host from files: ``make_machine({"/proc/sys/vm/swappiness": "60"}, calls={"uname": ["6.1", "x86_64"]})``.

    `calls` answers `Host.call` keys (``nvml:DeviceGetName(0)``, ``space:/dev/shm``, ``uname``); an OSError value fails.
    """
    answers = {key: value for key, value in (calls or {}).items() if not isinstance(value, OSError)}
    refused = {key: str(value) for key, value in (calls or {}).items() if isinstance(value, OSError)}
    return Host("/test-machine", tree=Dict(files or {}, links), deep=deep, answers=Answers(answers, refused))


@pytest.fixture
def machine() -> MakeMachine:
    """`make_machine`, for tests that take fixtures."""
    return make_machine


MACHINES = Path(__file__).resolve().parent / "machines"


def fixture_folder(kind: str) -> Path:
    """The folder of captured machines of one origin (`hwloc`, `lscpu`), each with its licence."""
    return MACHINES / kind


def captured(kind: str, name: str) -> Host:
    """A captured machine by its name there."""
    (archive,) = fixture_folder(kind).glob(f"{name}.tar.*")
    return Host(archive, tree=_opened(archive))


@functools.cache
def _opened(archive: Path) -> Tree:
    """The files of a captured machine, which nothing changes. All 21 take 120 MB, and 1.4 s to unpack."""
    return open_tree(archive)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything is installed (SYSPERF_NO_SKIP), a skipped test is a failed one, but for reasons that SYSPERF_MAY_SKIP names."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("SYSPERF_NO_SKIP"):
        reason = str(call.excinfo.value) if call.excinfo else ""
        allowed = os.environ.get("SYSPERF_MAY_SKIP")
        if not (allowed and re.search(allowed, reason)):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be skipped: {reason}"
    return report


# No test needs a quiet machine: neither an example nor its drawing has a time limit but the test's own.
# A run says the same twice, since the gate and whoever has just installed sysperf must see it pass; `--hypothesis-profile random` explores.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", settings.get_profile("random"), max_examples=50, derandomize=True)
settings.load_profile("fixed")

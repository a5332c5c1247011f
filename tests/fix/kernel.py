"""A kernel made of files: it takes, clamps, refuses and rounds what is written as the real one does."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sysperf.fix import transaction
from sysperf.fix.journal import Journal
from sysperf.fix.plan import plan
from sysperf.fix.transaction import Request
from sysperf.host import Host
from sysperf.host.live import Live
from sysperf.model.change import Plan, Setting, Transaction

SWAPPINESS = "/proc/sys/vm/swappiness"
BALANCING = "/proc/sys/kernel/numa_balancing"
HUGEPAGES = "/proc/sys/vm/nr_hugepages"
DIRTY = "/proc/sys/vm/dirty_ratio"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
POLICY = "/sys/devices/system/cpu/cpufreq/policy"
QUEUE = "/sys/block/nvme0n1/queue/"
LATENCY = "/dev/cpu_dma_latency"
RELAXED_US = 2_000_000_000

FILES = {
    SWAPPINESS: "60",
    BALANCING: "1",
    HUGEPAGES: "0",
    DIRTY: "20",
    "/proc/sys/vm/dirty_bytes": "0",
    "/proc/sys/vm/zone_reclaim_mode": "0",
    "/proc/sys/vm/max_map_count": "65530",
    THP: "always [madvise] never",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
    QUEUE + "read_ahead_kb": "128",
    QUEUE + "scheduler": "[none] mq-deadline kyber",
    **{
        f"{POLICY}{number}/{name}": value
        for number in (0, 1, 10)
        for name, value in (
            ("scaling_governor", "powersave"),
            ("scaling_available_governors", "performance powersave"),
            ("scaling_max_freq", "3500000"),
        )
    },
}
FOLDERS = ("/etc/sysctl.d", "/etc/tmpfiles.d", "/dev", "/wishes")
_REAL = re.compile(r"/proc/(?:self|[0-9]+)(?:/|$)")


class Kernel(Live):
    """Files below a folder; processes are the real ones."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root
        self.refusing: dict[str, int] = {}
        """Files whose writing fails with this errno."""
        self.deaf: set[str] = set()
        """Files that take every value and keep theirs."""
        self.most: dict[str, int] = {HUGEPAGES: 512, POLICY + "0/scaling_max_freq": 4_000_000}
        """The largest value that a file takes; more becomes that."""
        self.has_processes = False
        """Whether /proc/[0-9]* is made too, instead of the real one."""
        self.writes: list[tuple[str, str]] = []

    def read(self, path: str, limit: int) -> bytes:
        return Live().read(path, limit) if self._is_real(path) else super().read(path, limit)

    def names(self, path: str, limit: int) -> list[str]:
        return Live().names(path, limit) if self._is_real(path) else super().names(path, limit)

    def _is_real(self, path: str) -> bool:
        return not self.has_processes and bool(_REAL.match(path))

    def write(self, path: str, content: bytes) -> None:
        """As the kernel does: as a whole, or not at all."""
        value = content.decode()
        self.writes.append((path, value))
        if number := self.refusing.get(path):
            raise OSError(number, os.strerror(number), path)
        if path not in self.deaf:
            self.put(path, self._taken(path, value))

    def put(self, path: str, text: str) -> None:
        """What somebody else writes."""
        fresh = f"{self._root}/.fresh"
        Path(fresh).write_text(text + "\n")
        os.rename(fresh, self._root + path)

    def get(self, path: str) -> str:
        return Path(self._root + path).read_text().strip()

    def hold(self, _path: str, flags: int) -> int:
        """/dev/cpu_dma_latency: a wish holds as long as a process has it open, here as long as its lock is held."""
        if flags == os.O_RDONLY:
            reading = os.memfd_create("limit")
            os.write(reading, struct.pack("=i", min(self._wishes(), default=RELAXED_US)))
            os.lseek(reading, 0, os.SEEK_SET)
            return reading
        wish, _ = tempfile.mkstemp(dir=f"{self._root}/wishes")
        fcntl.flock(wish, fcntl.LOCK_EX)
        return wish

    def _wishes(self) -> Iterator[int]:
        for name in os.listdir(f"{self._root}/wishes"):
            with open(f"{self._root}/wishes/{name}", "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield struct.unpack("=i", file.read(4))[0]

    def _taken(self, path: str, value: str) -> str:
        now = self.get(path)
        if "[" in now:
            words = now.replace("[", "").replace("]", "").split()
            if value not in words:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            return " ".join(f"[{word}]" if word == value else word for word in words)
        if path.endswith("governor"):
            if value not in ("performance", "powersave"):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            return value
        try:
            number = int(value, 0) if not re.fullmatch("0[0-7]+", value) else int(value, 8)
        except ValueError:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path) from None
        return str(min(number, self.most.get(path, number)))

    def state(self) -> dict[str, str]:
        """Every setting, and every file that makes the system set one again."""
        return {
            path[len(self._root) :]: content.decode().strip()
            for folder in ("proc", "sys", "etc")
            for path, content in _files(f"{self._root}/{folder}").items()
        }


def _files(folder: str) -> dict[str, bytes]:
    """All files below a folder."""
    return {path: Path(path).read_bytes() for parent, _, names in os.walk(folder) for path in (f"{parent}/{name}" for name in names)}


class Machine:
    """A made machine with a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernel = Kernel(folder / "root")
        self.host = Host("/made", tree=self.kernel)
        self.journal = Journal(str(folder / "state"))

    @classmethod
    def make(cls, folder: Path, files: dict[str, str] | None = None) -> Machine:
        for name in FOLDERS:
            (folder / f"root{name}").mkdir(parents=True)
        for path, text in {**FILES, **(files or {})}.items():
            file = folder / f"root{path}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        return cls(folder)

    def copy(self, folder: Path) -> Machine:
        """The same machine again."""
        shutil.copytree(self.folder, folder)
        return Machine(folder)

    def files(self) -> dict[str, bytes]:
        """All settings and the journal, for `again`."""
        return _files(str(self.folder))

    def again(self, files: dict[str, bytes]) -> Machine:
        """The machine as it was when it had these files. What differs is put back, which costs less than another copy."""
        now = self.files()
        for path in now.keys() - files.keys():
            os.unlink(path)
        for path, content in files.items():
            if now.get(path) != content:
                Path(path).write_bytes(content)
        return Machine(self.folder)

    def plan(self, *wishes: str, force: bool = False) -> Plan:
        return plan(self.host, [wish(text) for text in wishes], force=force)


def wish(text: str) -> Setting:
    """``vm.swappiness=10``, ``block.read_ahead_kb@nvme0n1=128``."""
    name, _, value = text.partition("=")
    knob, _, item = name.partition("@")
    return Setting(knob, value, item)


def asked(lease_s: float | None = None, *, persist: bool = False) -> Request:
    """A request."""
    return Request(by="tester", why="test", taken_at="2026-11-21T06:00:00Z", lease_s=lease_s, persist=persist)


def apply(machine: Machine, *settings: str, lease_s: float | None = None, persist: bool = False) -> Transaction:
    """Plan and apply."""
    return transaction.apply(machine.host, machine.journal, machine.plan(*settings), asked(lease_s, persist=persist))


ENDS = ("restored", "reported", "silent")
"""How a point of a run with many can end: all is put back; what is not is reported; or it is not, which is a defect."""


def shown(counts: Counter[str]) -> str:
    """The counts of a run with many points."""
    return f"{counts.total()} points: {', '.join(f'{counts[word]} {word}' for word in ENDS)}"


@contextmanager
def memory() -> Iterator[Path]:
    """A folder in memory, where writing to the disk costs nothing."""
    folder = tempfile.mkdtemp(prefix="sysperf-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""The program that is to be traced: whether it can be, by whom, and where it asks."""

from __future__ import annotations

import os

from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import Record
from sysperf.procfs import environ
from sysperf.procfs.stat import parse as parse_stat

NAME = "dynolog"
MAX_FOLDER_BYTES = 54
"""Kineto binds FOLDER/dynoconfigclient and a UUID, which must fit into the 107 bytes of a socket's address."""
MAX_MAPS_BYTES = 16 << 20
_GPUS = (" /dev/nvidia", " /dev/kfd", " /dev/dri/")
_WRAP = "start it with `sysperf wrap --traceable -- python train.py`, or with KINETO_USE_DAEMON=1 in its environment"


class Target(Record):
    """A program that asks for traces."""

    pid: int
    uid: int
    gid: int
    started: str
    """Its start time, as the kernel writes it: a number is given to another process one day."""
    folder: str
    """Where its daemon's socket is expected; "" for a name in the abstract name space."""

    @property
    def address(self) -> str | bytes:
        """The address of the daemon that it asks."""
        return f"{self.folder}/{NAME}" if self.folder else f"\0{NAME}\0".encode()

    def alive(self, host: Host) -> bool:
        """Whether it still runs."""
        return _started(host, self.pid) == self.started

    def has_gpu(self, host: Host) -> bool:
        """Whether it maps a GPU's device, or may: who cannot read what it maps does not know."""
        maps = host.text(f"/proc/{self.pid}/maps", MAX_MAPS_BYTES)
        return maps is None or any(device in maps for device in _GPUS)


def find(host: Host, pid: int, me: int) -> Target:
    """The program, when user `me` can trace it. Raises SysperfError with the reason and the next step when not."""
    if not host.live:
        raise UsageError("a captured machine has no running programs", "take the trace on the machine itself")
    started = _started(host, pid) if pid > 0 else None
    if started is None:
        raise UsageError(f"there is no process {pid}", "`sysperf ps` lists the PyTorch programs")
    status = host.pairs(f"/proc/{pid}/status") or {}
    uid, gid = _first(status.get("Uid", "")), _first(status.get("Gid", ""))
    if uid is None or gid is None:
        raise SysperfError(f"/proc/{pid}/status does not say to whom process {pid} belongs", "run sysperf where /proc is mounted")
    if me not in (0, uid):
        raise SysperfError(f"process {pid} belongs to user {uid}", f"sudo sysperf trace {pid}")
    folder = _folder(host, pid)
    _reachable(host, pid, folder)
    return Target(pid, uid, gid, started, folder)


def _folder(host: Host, pid: int) -> str:
    """The folder of its sockets, out of its environment."""
    text = host.text(f"/proc/{pid}/environ", 4 << 20)
    if text is None:
        hint = (
            f"sudo sysperf trace {pid}"
            if os.geteuid()
            else "it ended, or a container's limits keep root from it: `sysperf ps` lists the programs"
        )
        raise SysperfError(f"the environment of process {pid} cannot be read", hint)
    variables = environ.variables(text)
    if variables.get("KINETO_USE_DAEMON", "0") in ("", "0"):
        raise SysperfError(f"process {pid} does not ask for traces: /proc/{pid}/environ has no KINETO_USE_DAEMON=1", _WRAP)
    folder = variables.get("KINETO_IPC_SOCKET_DIR", "")
    if folder and not os.path.isabs(folder):
        raise SysperfError(f"KINETO_IPC_SOCKET_DIR={folder} of process {pid} is not an absolute path", _WRAP)
    if len(os.fsencode(folder)) > MAX_FOLDER_BYTES:
        raise SysperfError(
            f"KINETO_IPC_SOCKET_DIR={folder} of process {pid} is longer than {MAX_FOLDER_BYTES} bytes: PyTorch could not make its socket",
            _WRAP,
        )
    return folder.rstrip("/")


def _reachable(host: Host, pid: int, folder: str) -> None:
    """Check that its files, and without a folder its network, are ours, too."""
    for kind, what in (("mnt", "files"), ("net", "network")) if not folder else (("mnt", "files"),):
        its, ours = host.link(f"/proc/{pid}/ns/{kind}"), host.link(f"/proc/self/ns/{kind}")
        if its and ours and its != ours:
            raise SysperfError(
                f"process {pid} runs in a container, or as a service with {what} of its own",
                "run sysperf inside of it, such as by docker exec",
            )


def _started(host: Host, pid: int) -> str | None:
    """Field 22 of its stat file; None when it has ended."""
    stat = parse_stat(host.text(f"/proc/{pid}/stat"))
    return None if stat is None or stat.has_ended else str(stat.start_ticks)


def _first(text: str) -> int | None:
    """The real one of four user or group numbers."""
    word = text.partition("\t")[0]
    return int(word) if word.isascii() and word.isdigit() and len(word) < 12 else None

"""A small machine with as many memory nodes as a test wants, booted in QEMU without KVM.

    machine = Machine(nodes=(Node(), Node(), Node(cpus=0)))
    machine.run("print('a Python script, as root')").output
    machine.shell({"bound": "sysperf wrap --node 1 -- python touch.py"})["bound"].out

Two boots of one disk, with a power loss between them:

    disk = machine.disk(tmp_path)
    machine.run(APPLY, disk=disk, power_loss_at="applied")
    machine.run(CHECK, disk=disk)
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.numa import image

BOOT_S = 120.0
"""How long a boot and its script may take unless the test says otherwise; mostly it is ten."""
MAX_BOOTS = 3
STALLED = "rcu_preempt kthread starved"
"""Under emulation a kernel may lose a CPU at its start, one boot of some hundred; it runs nothing then, and is started again."""
OUT_BYTES = 64 << 20

NO_SELF_TESTS = "cryptomgr.notests"
"""The kernel's tests of its ciphers once stood still under emulation, on one CPU for five minutes."""
COMMANDS = """
import json, subprocess
commands = json.load(open("/run/job/commands.json"))
done = {}
for name, line in commands.items():
    one = subprocess.run(["sh", "-c", line], capture_output=True, text=True, errors="replace")
    done[name] = [one.returncode, one.stdout, one.stderr]
json.dump(done, open("/out/done.json", "w"))
"""


@dataclass(frozen=True)
class Node:
    """A memory node. Without CPUs it is memory alone, as CXL or HBM is."""

    cpus: int = 2
    memory_mb: int = 768


@dataclass(frozen=True)
class Result:
    """What a script printed and left in /out. `rc` is None when the machine went down before the script ended."""

    rc: int | None
    output: str
    files: dict[str, bytes] = field(repr=False)
    console: str = field(repr=False)
    took_s: float = 0.0

    @property
    def json(self) -> Any:
        """The last line of the output, as JSON."""
        return json.loads(self.output.strip().rpartition("\n")[2])


@dataclass(frozen=True)
class Done:
    """A shell command that ended inside."""

    rc: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Machine:
    """What to boot. Two nodes of two CPUs each unless said otherwise."""

    nodes: tuple[Node, ...] = (Node(), Node())
    threads_per_core: int = 1
    distance: int = 21
    devices: tuple[tuple[int, str], ...] = ()
    """(node, QEMU device) for each PCI device that the firmware places beside a node: ``(1, "virtio-rng-pci")``."""
    packages: tuple[str, ...] = ()
    """Debian packages in its root file system, with all they need."""
    parameters: str = ""
    """Kernel parameters."""

    def disk(self, folder: Path) -> Path:
        """A root disk of the test's own: what is written to it is there in the next boot."""
        return Path(shutil.copy(image.root(self.packages), folder / "disk.img"))

    def run(
        self,
        script: str | Path,
        *,
        files: Mapping[str, str] | None = None,
        disk: Path | None = None,
        power_loss_at: str = "",
        timeout_s: float = BOOT_S,
    ) -> Result:
        """Boot, run a Python script as root, power off. `files` lie beside the script in /run/job.

        Without `disk` nothing that is written stays. With `power_loss_at` the machine is killed as soon as the script prints that:
        what it has written, but the kernel not yet put on the disk, is lost.
        """
        text = script.read_text() if isinstance(script, Path) else script
        with tempfile.TemporaryDirectory(prefix="sysperf-machine-") as name:
            folder = Path(name)
            _write_job(folder, {**(files or {}), "script.py": text})
            started = time.monotonic()
            command = self._command(folder, disk)
            for boots_left in reversed(range(MAX_BOOTS)):
                if _boot(command, folder, power_loss_at, timeout_s, may_stall=not boots_left):
                    break
            return _result(folder, time.monotonic() - started)

    def shell(self, commands: Mapping[str, str], *, files: Mapping[str, str] | None = None, timeout_s: float = BOOT_S) -> dict[str, Done]:
        """Boot once and run shell lines one after another, each on its own whatever became of the others."""
        result = self.run(COMMANDS, files={**(files or {}), "commands.json": json.dumps(dict(commands))}, timeout_s=timeout_s)
        assert "done.json" in result.files, f"{result.output[-4000:]}\n{result.console[-4000:]}"
        return {name: Done(*done) for name, done in json.loads(result.files["done.json"]).items()}

    # ------------------------------------------------------------------ the command line of QEMU

    def _command(self, folder: Path, disk: Path | None) -> list[str]:
        kernel = image.kernel()
        smt = ",vendor=GenuineIntel" if self.threads_per_core > 1 else ""
        return [
            *(
                "qemu-system-x86_64",
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                f"max{smt}",
                "-M",
                "q35",
                "-nographic",
                "-nodefaults",
                "-no-reboot",
            ),
            *self._topology(),
            *self._beside_nodes(),
            *("-kernel", str(kernel / "vmlinuz"), "-initrd", str(kernel / "initramfs")),
            *("-append", f"console=ttyS0 quiet panic=-1 {NO_SELF_TESTS} {self.parameters}".strip()),
            *_disk(4, disk or image.root(self.packages), "" if disk else ",snapshot=on"),
            *_disk(5, folder / "job.tar", ",readonly=on"),
            *_disk(6, folder / "out.tar"),
            *("-serial", f"file:{folder}/console", "-serial", f"file:{folder}/output", "-monitor", "none"),
        ]

    def _topology(self) -> Sequence[str]:
        cpus = sum(node.cpus for node in self.nodes)
        sockets = sum(1 for node in self.nodes if node.cpus)
        cores = cpus // sockets // self.threads_per_core
        words = ["-m", f"{sum(node.memory_mb for node in self.nodes)}M"]
        words += ["-smp", f"{cpus},sockets={sockets},cores={cores},threads={self.threads_per_core}"]
        first = 0
        for number, node in enumerate(self.nodes):
            words += ["-object", f"memory-backend-ram,size={node.memory_mb}M,id=m{number}"]
            placed = f",cpus={first}-{first + node.cpus - 1}" if node.cpus else ""
            words += ["-numa", f"node,nodeid={number}{placed},memdev=m{number}"]
            first += node.cpus
        pairs = [(row, other) for row in range(len(self.nodes)) for other in range(row)]
        return words + [word for row, other in pairs for word in ("-numa", f"dist,src={row},dst={other},val={self.distance}")]

    def _beside_nodes(self) -> Sequence[str]:
        """A host bridge that belongs to the node, a port below it, and the device in the port."""
        words = []
        for number, (node, device) in enumerate(self.devices):
            words += ["-device", f"pxb-pcie,id=bridge{number},bus_nr={64 + 16 * number},bus=pcie.0,numa_node={node}"]
            words += ["-device", f"pcie-root-port,id=port{number},bus=bridge{number},chassis={number + 1}"]
            words += ["-device", f"{device},bus=port{number}"]
        return words


def _disk(slot: int, path: Path, options: str = "") -> Sequence[str]:
    """A disk in a slot of its own, so that the names inside (vda, vdb, vdc) follow the slots whatever else is plugged in."""
    drive = f"file={path},format=raw,if=none,id=disk{slot}{options}"
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive=disk{slot},bus=pcie.0,addr={slot}")


def _write_job(folder: Path, files: Mapping[str, str]) -> None:
    shutil.copy(image.sources(), folder / "job.tar")
    with tarfile.open(folder / "job.tar", "a") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"job/{name}")
            member.size, member.mode = len(text.encode()), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    with (folder / "out.tar").open("wb") as out:
        out.truncate(OUT_BYTES)
    (folder / "output").touch()


def _boot(command: Sequence[str], folder: Path, power_loss_at: str, timeout_s: float, *, may_stall: bool) -> bool:
    """Whether the machine has run the script: not where its kernel stalled at its start, which shows before the script says anything."""
    deadline = time.monotonic() + timeout_s
    with (folder / "qemu").open("wb") as log, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as qemu:
        try:
            while qemu.poll() is None:
                output = (folder / "output").read_bytes()
                if power_loss_at and power_loss_at.encode() in output:
                    break
                if not may_stall and not output and STALLED in _text(folder / "console"):
                    return False
                assert time.monotonic() < deadline, f"not done in {timeout_s:.0f} s\n{_said(folder)}"
                time.sleep(0.02)
        finally:
            qemu.kill()
    assert qemu.returncode in (0, -9), _said(folder)
    return True


def _said(folder: Path) -> str:
    parts = ("qemu", "console", "output")
    return "\n".join(f"--- {name}\n{_text(folder / name)[-3000:]}" for name in parts)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


def _result(folder: Path, took_s: float) -> Result:
    files = {}
    with tarfile.open(folder / "out.tar", "r:") as tar:  # not "r": 64 MiB of zeros are five million empty lzma streams
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content:
                files[member.name.removeprefix("./")] = content.read()
    rc = files.pop(".rc", None)
    return Result(None if rc is None else int(rc), _text(folder / "output"), files, _text(folder / "console"), took_s)

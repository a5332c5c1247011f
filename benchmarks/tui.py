"""What the dashboard costs: CPU and memory at 1 and 10 Hz on a recorded GPU server, first paint, and the time a key takes.

    python benchmarks/tui.py [--seconds 30] [--sleepers 2000]

Peers (nvitop, htop, glances, top) run the same way, in a pseudo-terminal of 120 x 40, where they are on PATH. nvitop refuses to
start without NVML: where no driver runs, it has the tests' stand-in for it, which needs a C compiler. They read this machine
themselves, as the dashboard does without an agent. Run it on an idle machine: it prints shares of one core, and ratios to the
dashboard.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
ROWS = 64

SERVER = """
import sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
import msgspec
from tests.agent.states import Table, serving
from sysperf.tui import decode
from tests.tui import machines
hertz, rows = float(sys.argv[2]), int(sys.argv[3])
report = machines.server()
processes = [machines.process(10_000 + number, gpu_bus_ids=[machines.gpus.bus_id(number % 8)], cuda_used=True) for number in range(rows)]
facts = {{"processes": processes, "scanned": rows, "unreadable": 0}}
areas = {{**report.snapshot.areas, "process": decode.area("process", {{"facts": facts}})}}
report = msgspec.structs.replace(report, snapshot=msgspec.structs.replace(report.snapshot, areas=areas))
table = Table()
table.shown, table.figures = report.snapshot, machines.meters(report)
base = table.figures
with serving(Path(sys.argv[1]), table) as running:
    print("ready", flush=True)
    number = 0
    while True:
        time.sleep(1 / hertz)
        number += 1
        moved = {{name: value * (0.7 + 0.3 * ((number * 7 + len(name)) % 11) / 11) for name, value in base.items()}}
        running.call(running.events.publish, "sample", {{"at": time.time(), "meters": moved}})
"""

CROWD = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
time.sleep(600)
"""


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.started = time.perf_counter()
        self.pid, self.door = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", **(environment or {})})  # noqa: S606 - no shell
        fcntl.ioctl(self.door, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def read_for(self, seconds: float) -> bytes:
        """What it writes in this time."""
        end, out = time.perf_counter() + seconds, b""
        while (left := end - time.perf_counter()) > 0:
            ready, _, _ = select.select([self.door], [], [], left)
            if ready:
                try:
                    out += os.read(self.door, 1 << 16)
                except OSError:  # it ended
                    time.sleep(left)
        return out

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def read_until(self, wanted: bytes, within_s: float = 30) -> float:
        """Seconds since now until it has written this."""
        start, out = time.perf_counter(), b""
        while wanted not in out:
            left = within_s - (time.perf_counter() - start)
            ready, _, _ = select.select([self.door], [], [], max(0, left))
            if not ready:
                raise TimeoutError(f"{wanted!r} did not come: {out[-500:]!r}")
            out += os.read(self.door, 1 << 16)
        return time.perf_counter() - start

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS_PER_S

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        time.sleep(0.3)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.door)
        os.waitpid(self.pid, 0)


@contextlib.contextmanager
def recorded(hertz: float) -> Iterator[str]:
    """The socket of an agent that tells of eight GPUs and 64 programs."""
    with tempfile.TemporaryDirectory(prefix="sysperf-bench-") as folder:
        command = [sys.executable, "-c", SERVER.format(root=str(ROOT)), folder, str(hertz), str(ROWS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            server.stdout.readline()
            try:
                yield f"{folder}/agent.sock"
            finally:
                server.terminate()


def dashboard(*options: str) -> list[str]:
    return [sys.executable, "-m", "sysperf", "tui", *options]


def cost(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """(share of a core, MB) while it runs."""
    before = terminal.cpu_s()
    terminal.read_for(seconds)
    return (terminal.cpu_s() - before) / seconds, terminal.rss_bytes() / 1e6


def live(hertz: float, screen: str, seconds: float) -> tuple[float, float]:
    with recorded(hertz) as path:
        terminal = Terminal(dashboard("--connect", path))
        try:
            terminal.read_for(4)
            os.write(terminal.door, screen.encode())
            terminal.read_for(2)
            return cost(terminal, seconds)
        finally:
            terminal.close()


def alone(seconds: float) -> tuple[float, float]:
    """Sampling by itself."""
    terminal = Terminal(dashboard("--no-agent"))
    try:
        terminal.read_until(b"Linux", 60)
        terminal.read_for(5)
        return cost(terminal, seconds)
    finally:
        terminal.close()


def first_paint(rounds: int = 5) -> tuple[float, float]:
    """(seconds until the screen is drawn, until the facts of this machine are on it), medians."""
    drawn, with_facts = [], []
    for _ in range(rounds):
        terminal = Terminal(dashboard("--no-agent"))
        try:
            terminal.read_until(b"Overview")
            drawn.append(time.perf_counter() - terminal.started)
            terminal.read_until(b"Linux")
            with_facts.append(time.perf_counter() - terminal.started)
        finally:
            terminal.close()
    return statistics.median(drawn), statistics.median(with_facts)


def key_times(sleepers: int, rounds: int = 40) -> list[float]:
    """Seconds from a key to the other screen, while this machine is sampled with so many processes."""
    crowd = subprocess.Popen([sys.executable, "-c", CROWD, str(sleepers)], start_new_session=True)
    terminal = Terminal(dashboard("--no-agent"))
    try:
        terminal.read_until(b"Linux", 60)
        terminal.read_for(3)
        times = []
        for number in range(rounds):
            key, wanted = ((b"4", b"node 0"), (b"1", b"memory"))[number % 2]
            os.write(terminal.door, key)
            times.append(terminal.read_until(wanted))
            terminal.read_for(0.37)
        return sorted(times)
    finally:
        terminal.close()
        os.killpg(crowd.pid, signal.SIGKILL)
        crowd.wait()


PEERS = {
    "htop": ["htop", "-d", "10"],
    "top": ["top", "-d", "1"],
    "glances": ["glances", "-t", "1"],
    "nvitop": ["nvitop", "--interval", "1"],
}


def without_gpus(folder: str) -> dict[str, str]:
    """The environment in which NVML answers without a GPU: the library of the tests, with one busy GPU and one that is lost."""
    sys.path.insert(0, str(ROOT))
    from tests.stand_ins import build_nvml  # noqa: PLC0415 - where nvitop is, and no driver

    return {"LD_LIBRARY_PATH": str(build_nvml(Path(folder)))}


def beside(peer: str, seconds: float, with_agent: float, without: float, folder: str) -> str:
    """What a peer costs, in times of the dashboard."""
    if shutil.which(peer) is None:
        return "not installed"
    terminal = Terminal(PEERS[peer], without_gpus(folder) if peer == "nvitop" and not os.path.exists("/proc/driver/nvidia") else None)
    try:
        printed = terminal.read_for(5)
        if terminal.ended():
            return f"it ended: {printed.decode(errors='replace').strip().partition(chr(10))[0].strip()}"
        share, mb = cost(terminal, seconds)
    finally:
        terminal.close()
    ratios = (
        f"{share / with_agent:.1f} times the dashboard with an agent, {share / without:.1f} times without" if with_agent and without else ""
    )
    return f"{share:.2%} of a core, {mb:.1f} MB; {ratios}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--sleepers", type=int, default=2_000)
    given = options.parse_args()

    print(f"load of this machine before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    ours = 0.0
    for hertz in (1.0, 10.0):
        for key, name in (("1", "overview"), ("3", f"{ROWS} programs")):
            share, mb = live(hertz, key, given.seconds)
            ours = ours or share
            print(f"dashboard, {hertz:g} Hz, {name}: {share:.2%} of a core, {mb:.1f} MB")
    share, mb = alone(given.seconds)
    print(f"dashboard without an agent, 1 Hz, this machine: {share:.2%} of a core, {mb:.1f} MB")
    drawn, with_facts = first_paint()
    print(f"first paint: {drawn:.2f} s; facts of this machine: {with_facts:.2f} s")
    times = key_times(given.sleepers)
    print(f"a key, {given.sleepers} processes: median {times[len(times) // 2] * 1e3:.0f} ms, slowest {times[-1] * 1e3:.0f} ms")
    with tempfile.TemporaryDirectory(prefix="sysperf-bench-") as folder:
        for peer in PEERS:
            print(f"{peer}, 1 Hz, this machine: {beside(peer, given.seconds, ours, share, folder)}")
    print(f"load of this machine now: {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()

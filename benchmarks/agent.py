"""What the agent costs while PyTorch runs, beside tuned and node_exporter where they are installed.

    python benchmarks/agent.py [--torch-python PATH] [--torch 8] [--others 500,2000] [--seconds 120]
    python benchmarks/agent.py --only "sysperf agent" --others 500 --seconds 3600 --curve 300

Starts so many PyTorch processes among so many sleepers, then each daemon alone in turn; prints its CPU share after a
warm-up, its memory, and how much that grew. node_exporter does nothing between scrapes: it is scraped each 15 s, as
Prometheus does by default. Prints; asserts nothing. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import NamedTuple

TRAINING = """
import torch, time
torch.set_num_threads(1)
x = torch.rand(64, 64)
print("ready", flush=True)
while True:
    x @ x
    time.sleep(0.02)
"""
SLEEPERS = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(86400)
print("ready", flush=True)
time.sleep(86400)
"""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SCRAPE_S = 15.0


class Peer(NamedTuple):
    """A daemon to measure, and what one does to it each 15 s."""

    name: str
    command: tuple[str, ...]
    scrape: Callable[[], object] = lambda: None


class Cost(NamedTuple):
    """CPU seconds and resident MB of a process, with all its threads."""

    cpu_s: float
    rss_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("SYSPERF_TORCH_PYTHON"), help="an interpreter with torch")
    parser.add_argument("--torch", type=int, default=8, help="PyTorch processes")
    parser.add_argument("--others", default="500,2000", help="numbers of other processes")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds before the measurement: the first look reads everything")
    parser.add_argument("--seconds", type=float, default=120, help="length of a measurement")
    parser.add_argument("--curve", type=float, default=0, metavar="SECONDS", help="print what it used so far each SECONDS, too")
    parser.add_argument("--only", metavar="NAME", help="measure only this one")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # always a text file
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the crowd goes, too
    if not args.torch_python:
        sys.exit("name an interpreter with torch: --torch-python, or SYSPERF_TORCH_PYTHON")
    with tempfile.TemporaryDirectory() as folder:
        for others in map(int, args.others.split(",")):
            with crowd(args.torch_python, args.torch, others - args.torch):
                print(f"\n{args.torch} PyTorch processes among {len(processes())} processes, {args.seconds:g} s each")
                for peer in peers(folder):
                    if args.only in (None, peer.name):
                        measure(peer, args.warm_up, args.seconds, args.curve or args.seconds)


def peers(folder: str) -> list[Peer]:
    """The agent, and the peers that are installed."""
    socket = f"{folder}/agent.sock"
    installed = [
        Peer("sysperf agent", (sys.executable, "-m", "sysperf", "agent", "--socket", socket, "--history", f"{folder}/history.db")),
        Peer("sysperf agent, no file", (sys.executable, "-m", "sysperf", "agent", "--socket", socket, "--history", "none")),
    ]
    if tuned := shutil.which("tuned"):
        installed.append(Peer("tuned", (tuned, "--no-dbus", "--profile", "throughput-performance")))
    if exporter := shutil.which("prometheus-node-exporter") or shutil.which("node_exporter"):
        installed.append(Peer("node_exporter", (exporter, "--web.listen-address=127.0.0.1:19100"), scrape))
    if glances := shutil.which("glances"):
        installed.append(Peer("glances", (glances, "--quiet", "--export", "csv", "--export-csv-file", f"{folder}/glances.csv")))
    return installed


def scrape() -> None:
    with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:19100/metrics", timeout=5) as answer:
        answer.read()


def measure(peer: Peer, warm_up_s: float, seconds: float, step_s: float) -> None:
    """Run it, let it warm up, and print what it used then, step by step."""
    daemon = subprocess.Popen(peer.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(warm_up_s, peer.scrape)
        if daemon.poll() is not None:
            print(f"{peer.name:<24} ended with exit code {daemon.returncode}")
            return
        before = last = cost(daemon.pid)
        start = then = time.monotonic()
        while (left := start + seconds - then) > 0.5:
            wait(min(step_s, left), peer.scrape)
            now, end = cost(daemon.pid), time.monotonic()
            if step_s < seconds:
                share = (now.cpu_s - last.cpu_s) / (end - then)
                print(f"  {(end - start) / 60:5.1f} min {100 * share:6.3f} %  {now.rss_mb:6.2f} MB  {len(processes())} processes")
            last, then = now, end
        share = (last.cpu_s - before.cpu_s) / (then - start)
        print(f"{peer.name:<24} {100 * share:6.3f} % of a core   {last.rss_mb:6.1f} MB, grew by {last.rss_mb - before.rss_mb:+.2f} MB")
    finally:
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(20)
        daemon.kill()
        daemon.wait()


def wait(seconds: float, scrape: Callable[[], object]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        scrape()
        time.sleep(min(SCRAPE_S, max(0.0, left)))


def cost(pid: int) -> Cost:
    """From the scheduler's nanoseconds where there are some: clock ticks of 10 ms are coarse for a daemon that uses 0.2 %."""
    run_ns = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
            run_ns += int(file.read().split()[0])
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        words = file.read().rpartition(")")[2].split()
    ticks_s = (int(words[11]) + int(words[12])) / TICKS_PER_S
    return Cost(run_ns / 1e9 or ticks_s, int(words[21]) * os.sysconf("SC_PAGESIZE") / 1e6)


def processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


@contextlib.contextmanager
def crowd(python: str, torch: int, others: int) -> Iterator[None]:
    """So many PyTorch processes and sleepers, all gone at the end."""
    commands = [(sys.executable, "-c", SLEEPERS, str(others)), *[(python, "-c", TRAINING)] * torch]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for command in commands]
    try:
        for program in started:
            if program.stdout is None or program.stdout.readline().strip() != b"ready":
                sys.exit("a program did not start")
        yield
    finally:
        for program in started:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


if __name__ == "__main__":
    main()

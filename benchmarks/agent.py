"""What the agent costs: its CPU share and its memory, scene by scene, beside tuned, node_exporter and glances where they are installed.

    python benchmarks/agent.py [--torch-python PATH] [--scene torch] [--seconds 300]
    python benchmarks/agent.py --scene torch --others 2000 --only "sysperf agent" --seconds 3600 --curve 300
    sudo unshare --pid --fork --mount-proc python benchmarks/agent.py     # none of the machine's other programs is seen

Scenes: rest (nothing), torch (8 PyTorch programs with workers among 500 processes), neighbours (144 programs with PyTorch), storm
(300 starts a second), http (124 hostile clients beside the PyTorch programs). Each daemon runs alone in each scene. Printed after a
warm-up: utime and stime as a share of a core; RSS, PSS (what is shared, divided by who shares it) and the largest RSS so far, in MB of
10⁶ bytes. node_exporter does nothing between scrapes: it is scraped each 15 s, as Prometheus does by default. Prints; asserts nothing.
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
from collections.abc import Callable
from typing import NamedTuple

from agent_scenes import SCENES, Stage

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SCRAPE_S = 15.0


class Peer(NamedTuple):
    """A daemon to measure, and what one does to it each 15 s."""

    name: str
    command: tuple[str, ...]
    scrape: Callable[[], object] = lambda: None


class Cost(NamedTuple):
    """CPU seconds of a process with all its threads and children that ended, and its memory in MB."""

    cpu_s: float
    rss_mb: float
    pss_mb: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=os.environ.get("SYSPERF_TORCH_PYTHON"), help="an interpreter with torch")
    parser.add_argument("--scene", action="append", choices=SCENES, help="only this one; may be repeated")
    parser.add_argument("--programs", type=int, default=8, help="PyTorch programs of scene torch")
    parser.add_argument("--others", type=int, default=500, help="processes of scene torch, those of PyTorch included")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds before the measurement: the first look reads everything")
    parser.add_argument("--seconds", type=float, default=300, help="length of a measurement")
    parser.add_argument("--curve", type=float, default=0, metavar="SECONDS", help="print what it used so far each SECONDS, too")
    parser.add_argument("--only", metavar="NAME", help="measure only this one")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # always a text file
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the crowd goes, too
    if not args.torch_python:
        sys.exit("name an interpreter with torch: --torch-python, or SYSPERF_TORCH_PYTHON")
    print(f"{'scene':<11} {'daemon':<24} {'% of a core':>11} {'RSS':>7} {'PSS':>7} {'most RSS':>9}   processes")
    for scene in args.scene or SCENES:
        for peer in peers():
            if args.only in (None, peer.name):
                with tempfile.TemporaryDirectory() as folder:
                    measure(scene, Stage(args.torch_python, f"{folder}/agent.sock", args.programs, args.others), peer, args)


def peers() -> list[Peer]:
    """The agent, and the peers that are installed."""
    agent = (sys.executable, "-m", "sysperf", "agent", "--socket", "{folder}/agent.sock", "--history")
    installed = [Peer("sysperf agent", (*agent, "{folder}/history.db")), Peer("sysperf agent, no file", (*agent, "none"))]
    if tuned := shutil.which("tuned"):
        installed.append(Peer("tuned", (tuned, "--no-dbus", "--profile", "throughput-performance")))
    if exporter := shutil.which("prometheus-node-exporter") or shutil.which("node_exporter"):
        installed.append(Peer("node_exporter", (exporter, "--web.listen-address=127.0.0.1:19100"), scrape))
    if glances := shutil.which("glances"):
        installed.append(Peer("glances", (glances, "--quiet", "--export", "csv", "--export-csv-file", "{folder}/glances.csv")))
    return installed


def scrape() -> None:
    with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:19100/metrics", timeout=5) as answer:
        answer.read()


def measure(scene: str, stage: Stage, peer: Peer, args: argparse.Namespace) -> None:
    """Run it in a scene, let it warm up, and print what it used then, step by step."""
    folder, step_s = os.path.dirname(stage.socket), args.curve or args.seconds
    daemon = subprocess.Popen([word.format(folder=folder) for word in peer.command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(1, peer.scrape)
        with SCENES[scene](stage):
            wait(args.warm_up, peer.scrape)
            if daemon.poll() is not None:
                print(f"{scene:<11} {peer.name:<24} ended with exit code {daemon.returncode}")
                return
            start_s = time.monotonic()
            before = last = cost(daemon.pid)
            while (left_s := start_s + args.seconds - time.monotonic()) > 0.5:
                wait(min(step_s, left_s), peer.scrape)
                last, before_step = cost(daemon.pid), last
                if step_s < args.seconds:
                    print(f"  {(time.monotonic() - start_s) / 60:5.1f} min" + " " * 25 + line(before_step, last, step_s))
            print(f"{scene:<11} {peer.name:<24} {line(before, last, time.monotonic() - start_s)}")
    finally:
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(20)
        daemon.kill()
        daemon.wait()


def line(before: Cost, now: Cost, seconds: float) -> str:
    share = (now.cpu_s - before.cpu_s) / seconds
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    return f"{100 * share:11.3f} {now.rss_mb:7.1f} {now.pss_mb:7.1f} {now.peak_mb:9.1f}   {processes}"


def wait(seconds: float, scrape: Callable[[], object]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        scrape()
        time.sleep(min(SCRAPE_S, max(0.0, left)))


def cost(pid: int) -> Cost:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        words = file.read().rpartition(")")[2].split()
    memory_mb: dict[str, float] = {}
    for name in ("status", "smaps_rollup"):
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            for label, _, value in (text.partition(":") for text in file):
                if value.endswith(" kB\n"):
                    memory_mb[label] = int(value.split()[0]) * 1024 / 1e6
    return Cost(sum(map(int, words[11:15])) / TICKS_PER_S, memory_mb["Rss"], memory_mb["Pss"], memory_mb["VmHWM"])


if __name__ == "__main__":
    main()

"""Where the time of a start goes: CPU time of whole commands as ratios to bare Python, and what each import costs.

    python benchmarks/startup.py [--runs 15] [--top 25]

Interleaved runs. CPU time rather than wall time, and minima beside medians: another program that runs at the same time makes
both longer, and never shorter. Prints; asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys

_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "sysperf --version": ("-m", "sysperf", "--version"),
    "sysperf wrap -- true": ("-m", "sysperf", "wrap", "-q", "--", "true"),
    "sysperf audit": ("-m", "sysperf", "audit", "--fail-on", "never"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--top", type=int, default=25)
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without bytecode, every run would compile sysperf anew
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for round_number in range(args.runs + 1):  # the first warms the caches
        for name, words in COMMANDS.items():
            milliseconds = cpu_ms(words)
            if round_number:
                times[name].append(milliseconds)
    bare = min(times["python -c pass"])
    print(f"{'command':<24} {'least':>8} {'median':>8} {'quartiles':>16} {'ratio of least':>16}")
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:<24} {min(values):7.1f}  {middle:7.1f}  {f'{low:.1f}-{high:.1f}':>15}  {min(values) / bare:14.2f}")
    for name in ("sysperf wrap -- true", "sysperf audit"):
        imports(name, args.runs, args.top)


def cpu_ms(words: tuple[str, ...]) -> float:
    """User and system time of one run."""
    pid = os.fork()
    if pid == 0:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - this interpreter
    _, _, usage = os.wait4(pid, 0)
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def imports(name: str, runs: int, top: int) -> None:
    """The modules that cost most by themselves: the least of all runs, which is what they cost where nothing else runs."""
    least: dict[str, int] = {}
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-X", "importtime", *COMMANDS[name]], capture_output=True, text=True, check=False)
        for microseconds, module in _IMPORT.findall(done.stderr):
            least[module] = min(least.get(module, 1 << 60), int(microseconds))
    ours = {module: cost for module, cost in least.items() if module.partition(".")[0] == "sysperf"}
    print(
        f"\n{name}: {len(least)} modules, {sum(least.values()) / 1e3:.1f} ms; {len(ours)} of them ours, {sum(ours.values()) / 1e3:.1f} ms"
    )
    for module, cost in sorted(least.items(), key=lambda item: -item[1])[:top]:
        print(f"  {cost / 1e3:6.2f} ms  {module}")


if __name__ == "__main__":
    main()

"""Where the time of a start goes: CPU time of whole commands as ratios to bare Python, their stages, and what each import costs.

    python benchmarks/startup.py [--runs 15] [--top 25]

Interleaved runs. CPU time rather than wall time, and minima beside medians: another program that runs at the same time makes
both longer, and never shorter. Prints; asserts nothing.
"""

from __future__ import annotations

import argparse
import ast
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

STAGES = {
    # stage -> the functions whose time is its own, without that of imports and of other stages inside
    "sysperf wrap -- true": {
        "rules": ("sysperf.engine.wrap:rules",),
        "reading": ("sysperf.engine.wrap:gather", "sysperf.engine.wrap:launch_facts"),
        "deciding": ("sysperf.engine.wrap:decide",),
    },
    "sysperf audit": {
        "rules": ("sysperf.engine.judging:configured_rules",),
        "reading": ("sysperf.engine.audit:snapshot",),
        "deciding": ("sysperf.engine.audit:judge_snapshot", "sysperf.cli.audit:with_rewraps"),
        "showing": ("sysperf.report.formats:render",),
    },
}
_DRIVER = """
import time
own = {"interpreter": time.process_time()}
running = ["command"]
last = own["interpreter"]

def switch(stage=None):
    global last
    now = time.process_time()
    own[running[-1]] = own.get(running[-1], 0) + now - last
    last = now
    running.append(stage) if stage else running.pop()

def timed(stage, function):
    def call(*args, **options):
        switch(stage)
        try:
            return function(*args, **options)
        finally:
            switch()
    return call

switch("imports")
import builtins, importlib, os
switch()
builtins.__import__ = timed("imports", builtins.__import__)
importlib.import_module = timed("imports", importlib.import_module)
from sysperf import startup
from sysperf.cli import main
startup.import_msgspec()
startup.without_garbage()
for stage, places in stages.items():
    for place in places:
        module, name = place.split(":")
        vars(importlib.import_module(module))[name] = timed(stage, vars(importlib.import_module(module))[name])
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
main(arguments)
switch("end")
os.write(out, repr(own).encode())
os._exit(0)
"""


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
    for name in STAGES:
        stages(name, args.runs)
    for name in STAGES:
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


def stages(name: str, runs: int) -> None:
    """CPU time of the stages of one run, the least of all runs each: imports wherever they happen, the others without them."""
    arguments = [word if word != "true" else "/nonexistent" for word in COMMANDS[name][2:]]  # after exec nobody could tell
    command = [sys.executable, "-c", f"arguments, stages = {arguments!r}, {STAGES[name]!r}\n{_DRIVER}"]
    measured: list[dict[str, float]] = []
    for _ in range(runs):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        measured.append(ast.literal_eval(done.stdout))
    print(f"\n{name}")
    for stage in ("interpreter", "imports", *STAGES[name], "command"):
        values = [1e3 * run.get(stage, 0.0) for run in measured]
        print(f"  {min(values):6.1f} ms  {stage if stage != 'command' else 'everything else'} (median {statistics.median(values):.1f})")


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

"""Reading and analysing a trace: time and memory beside HolisticTraceAnalysis, in the same run.

    python benchmarks/trace.py [--megabytes 200] [--hta /path/to/python/with/HolisticTraceAnalysis] [--sqlite EXPORT…] [--rounds 7]

The file is a real trace (tests/traces), repeated with later times until it is as large as asked. Each reader runs in a process
of its own, in turns; CPU time is what a loaded machine leaves comparable, and has that of the process which helps sysperf to read in it.
HolisticTraceAnalysis is asked what sysperf's one analysis answers, too: busy and idle time by cause, kernels, launch delays,
queue depth, communication behind computation, copies. The peak is VmHWM of the reader: ru_maxrss would be the parent's, who wrote
the file. Each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

TRACES = Path(__file__).parent.parent / "tests/traces"
SOURCE = TRACES / "kineto_resnet50_nw4.json.gz"
EXPORT = TRACES / "nsysai_mock.sqlite"
FIGURES = {"wall_s": (7, 2), "cpu_s": (7, 2), "read_cpu_s": (14, 2), "peak_mb": (8, 0)}
OURS = """
import json, re, resource, sys, time
wall = time.perf_counter()
from sysperf.trace import account, read
timeline = read(sys.argv[1])
reading = time.process_time()
facts = account(timeline)
helpers = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
print(json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() + helpers, "read_cpu_s": reading + helpers,
                  "peak_mb": int(re.search("VmHWM:\\\\s*(\\\\d+)", open("/proc/self/status").read())[1]) / 1024, "verdict": facts.verdict}))
"""
THEIRS = """
import json, os, re, sys, time
wall = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
reading = time.process_time()
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_cuda_kernel_launch_stats(visualize=False)
analysis.get_queue_length_summary()
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_memory_bw_summary()
print(json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time(), "read_cpu_s": reading,
                  "peak_mb": int(re.search("VmHWM:\\\\s*(\\\\d+)", open("/proc/self/status").read())[1]) / 1024}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--hta", default="", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--sqlite", nargs="*", default=[str(EXPORT)], help="exports of Nsight Systems; sysperf alone reads them")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    print(f"{'file':<24} {'reader':<10} {'wall s':>7} {'CPU s':>7} {'of it reading':>14} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in args.megabytes:
            path = f"{folder}/trace{megabytes}.json"
            write(path, megabytes * 1_000_000)
            readers = {"sysperf": (sys.executable, OURS)} | ({"HTA": (args.hta, THEIRS)} if args.hta else {})
            compare(f"{megabytes} MB", readers, path, args.rounds)
    for path in args.sqlite:
        compare(Path(path).stem[:24], {"sysperf": (sys.executable, OURS)}, path, args.rounds)


def compare(name: str, readers: dict[str, tuple[str, str]], path: str, rounds: int) -> None:
    """Run the readers in turns, and print a line of each."""
    results: dict[str, list[dict[str, float]]] = {reader: [] for reader in readers}
    for _ in range(rounds):
        for reader, (python, program) in readers.items():
            results[reader].append(measure(python, program, path))
    medians = {reader: {key: median(result[key] for result in found) for key in FIGURES} for reader, found in results.items()}
    for reader, found in medians.items():
        print(
            f"{name:<24} {reader:<10} " + " ".join(f"{found[key]:>{width}.{digits}f}" for key, (width, digits) in FIGURES.items()),
            flush=True,
        )
    if "HTA" in medians:
        ratios = [theirs["wall_s"] / ours["wall_s"] for ours, theirs in zip(results["sysperf"], results["HTA"], strict=True)]
        memory = medians["HTA"]["peak_mb"] / medians["sysperf"]["peak_mb"]
        print(
            f"{name:<24} HTA: {median(ratios):.1f} times the time ({min(ratios):.1f} to {max(ratios):.1f}), {memory:.0f} times the memory"
        )


def write(path: str, size: int) -> None:
    """Repeat the events with later times and other correlations until the file has this size."""
    with gzip.open(SOURCE) as file:
        trace = json.load(file)
    events = trace.pop("traceEvents")
    timed = [event["ts"] for event in events if event["ph"] == "X"]
    span, turn = max(timed) - min(timed) + 1_000, 0
    with open(path, "w") as out:
        out.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        while out.tell() < size:
            out.write(",\n" if turn else "")
            out.write(",\n".join(json.dumps(_later(event, turn, span)) for event in events))
            turn += 1
        out.write("\n]}")


def _later(event: dict[str, object], turn: int, span: float) -> dict[str, object]:
    args = event.get("args")
    changed = dict(event)
    if "ts" in event:
        changed["ts"] = event["ts"] + turn * span  # type: ignore[operator]
    if isinstance(args, dict) and "correlation" in args:
        changed["args"] = {**args, "correlation": args["correlation"] + turn * 10_000_000}
    return changed


def measure(python: str, program: str, path: str) -> dict[str, float]:
    """Run a reader in a process of its own."""
    done = subprocess.run([python, "-c", program, path], capture_output=True, timeout=580, check=False)
    if done.returncode:
        sys.exit(done.stderr.decode()[-2_000:])
    found: dict[str, float] = json.loads(done.stdout.decode().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()

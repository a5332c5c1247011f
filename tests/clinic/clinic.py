"""The clinic's cases, and what runs one: a program, sick or cured, its speed, and what `sysperf diagnose` says of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any, NamedTuple

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
SYSPERF = (sys.executable, "-m", "sysperf")
WARM_S = 8.0
LIMIT_S = 90.0
_STEP = re.compile(r"^step (\d+) ([\d.]+)$", re.MULTILINE)


class Case(NamedTuple):
    """One illness: the cause that names it, and how its program is started."""

    cause: str
    also: frozenset[str] = frozenset()
    """Causes that are as true of it."""
    script: str = "train.py"
    ranks: int = 0
    copies: int = 1
    """Programs at the same time when it is sick; cured, there is one."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables when it is sick."""
    neighbour: bool = False
    """When it is sick, somebody else uses its CPUs."""
    quota: float = 0.0
    """CPUs' worth of time that its group may use, sick or cured; needs root."""
    memory_bytes: int = 0
    """What its group may use, sick or cured; needs root."""
    needs: str = ""
    """A shared library that the sick program needs."""
    cured_env: tuple[tuple[str, str], ...] = ()
    """Variables when it is cured."""
    runs: str = ""
    """The program, where it has another name than the illness."""
    follows: tuple[str, ...] = ()
    """What of a fix's text the program can be told (`_TEXTS`)."""


def named(*ids: str) -> frozenset[str]:
    return frozenset(ids)


LOADER = ("num_workers", "threads")
KEPT_MEMORY = (("MALLOC_MMAP_THRESHOLD_", "4294967296"), ("MALLOC_TRIM_THRESHOLD_", "4294967296"))
"""For programs whose tensors fault, in each run or in some, as malloc's heap happens to lie: an illness of its own, which malloc's variables cure."""
CASES = {
    "no_workers": Case("dataloader.inline", follows=LOADER),
    "decoding_beside_a_team": Case("dataloader.inline", follows=LOADER),
    "too_many_workers": Case("dataloader.total-over-cpus", follows=LOADER),
    "bound_to_one_cpu": Case("dataloader.workers-pinned", follows=("unbound", "threads")),
    "workers_pinned": Case("dataloader.workers-pinned", follows=("unpinned",)),
    "threads_in_workers": Case("threads.in-workers", env=KEPT_MEMORY, cured_env=KEPT_MEMORY, follows=("threads",)),
    "one_slow_worker": Case("dataloader.program-waits", follows=LOADER),
    "loader_in_epoch_loop": Case("dataloader.workers-made-again", named("dataloader.rebuilt"), follows=("persistent_workers", "made_once")),
    "workers_not_kept": Case("dataloader.workers-made-again", follows=("persistent_workers",)),
    "slow_collate": Case("dataloader.slow-collate", follows=("stack",)),
    "slow_sampler": Case("dataloader.slow-sampler", follows=("at_once",)),
    "objects_from_workers": Case("dataloader.batches-pickled", follows=("tensors",)),
    "many_small_files": Case("storage.small-reads", follows=("in_memory",)),
    "one_thread": Case("threads.one-busy", follows=("threads",)),
    "too_many_threads": Case("threads.over-cpus", follows=("threads",)),
    "two_openmp": Case("threads.two-openmp", needs="libomp.so.5"),
    "programs_compete": Case("threads.programs-compete", named("threads.over-cpus"), copies=2, runs="plain_training"),
    "neighbour": Case("threads.neighbour", named("threads.team-beside-others"), neighbour=True, runs="plain_training"),
    "quota": Case("cgroup.cpu-throttled", quota=1.0, cured_env=(("OMP_NUM_THREADS", "1"),), runs="plain_training"),
    "interpreter_lock": Case("threads.share-lock", follows=("processes",)),
    "slow_prefetcher": Case("program.waits-for-threads"),
    "page_faults": Case("allocator.page-fault-storm"),
    "reclaimed": Case("memory.reclaim", memory_bytes=600 << 20, follows=("higher_limit",)),
    "leak": Case("memory.grows"),
    "item_per_value": Case("sync.per-step", follows=("whole",)),
    "item_of_each_element": Case("sync.per-step", follows=("whole",)),
    "pool_each_step": Case("program.processes-made-again", follows=("pool_once",)),
    "own_logger_each_step": Case("program.logging", follows=("every",)),
    "fsync_each_step": Case("storage.syncs-in-step", follows=("every",)),
    "checkpoint_each_step": Case("program.checkpoint-in-step", follows=("every",)),
    "logging_each_step": Case("program.logging", follows=("every",)),
    "python_loop": Case("program.repeats-work", named("program.python-bound", "program.statement-in-step"), follows=("out_of_step",)),
    "collections": Case("program.garbage-collection", follows=("frozen",)),
    "many_objects": Case("program.garbage-collection", follows=("frozen",)),
    "anomaly": Case("program.debugging-on", follows=("anomaly",)),
    "slow_instructions": Case("program.debugging-on", env=(("ATEN_CPU_CAPABILITY", "default"),), runs="elementwise"),
    "tiny_operators": Case("program.tiny-operators", named("program.python-bound", "program.loops-in-step"), follows=("batched",)),
    "float64": Case("precision.float64", follows=("single",)),
    "gradients_in_evaluation": Case("program.gradients-in-evaluation", env=KEPT_MEMORY, cured_env=KEPT_MEMORY, follows=("inference",)),
    "recompiles": Case("compile.recompiles", follows=("dynamic", "no_reset")),
    "sleeping": Case("program.sleeps", follows=("event",)),
    "workers_take_turns": Case("dataloader.program-waits", follows=("unlocked",)),
    "samples_over_http": Case("dataloader.inline", follows=LOADER),
    "mapped_by_workers": Case("memory.reclaim", memory_bytes=600 << 20, follows=("higher_limit",)),
    "fed_by_a_socket": Case("program.waits-for-data", env=KEPT_MEMORY, cured_env=KEPT_MEMORY, follows=("ahead",)),
    "checks_each_step": Case("program.checks-in-step", follows=("every",)),
    "computed_again": Case("program.recomputes-without-need", follows=("kept",)),
    "metrics_each_step": Case("program.statistics-in-step", follows=("every",)),
    "decodes_in_the_loop": Case("program.prepares-data", follows=("once",)),
    "tensors_of_lists": Case("program.tensors-from-python", follows=("stacked",)),
    "layers_in_forward": Case("program.modules-made-again", env=KEPT_MEMORY, cured_env=KEPT_MEMORY, follows=("layers_once",)),
    "float16_on_a_cpu": Case("precision.float16-emulated", follows=("float32",)),
    "dense_embeddings": Case("optimizer.dense-gradients", follows=("sparse",)),
    "below_a_profiler": Case("program.debugging-on", follows=("unprofiled",)),
    "reports_each_step": Case("program.logging", env=KEPT_MEMORY, cured_env=KEPT_MEMORY, follows=("every",)),
    "evaluates_often": Case("program.evaluation-share", follows=("seldom",)),
    "optimizer_each_step": Case("optimizer.made-again", follows=("optimizer_once",)),
    "archive_for_each_sample": Case("dataloader.opened-for-each", follows=("kept_open",)),
    "memory_bank": Case("program.grows-by-copies", follows=("in_place",)),
    "passes_of_each_task": Case("program.backward-again", follows=("one_pass",)),
    "command_each_step": Case("program.processes-made-again", follows=("in_process",)),
    "slow_rank": Case("ddp.unequal-ranks", script="ranks.py", ranks=2, follows=("equal",)),
    "communication": Case("ddp.communication", script="ranks.py", ranks=2, follows=("no_sync",)),
    "accumulation": Case("ddp.accumulation-without-no-sync", named("ddp.communication"), script="ranks.py", ranks=2, follows=("no_sync",)),
}
HEALTHY = (
    "plain_training", "idle_server", "prompt", "pinned_on_purpose", "full_cores", "hidden_loader", "sleeping_workers",
    "seldom_checkpoint", "quiet_logging", "large_memory", "busy_server", "cache_fills", "at_a_debugger", "empty_queue",
    "waits_for_checkpoint", "asyncio_server", "batches_accumulated", "progress_bar", "attention",
)  # fmt: skip
"""Programs that look suspicious, and are not ill."""


class Seen(NamedTuple):
    """What came of one run."""

    causes: dict[str, str]
    """By id, confirmed or likely."""
    verdict: str
    took_s: float
    steps_per_s: float | None
    predicted: tuple[float, float] | None
    document: dict[str, Any]


class Cure(NamedTuple):
    """How the sick program is started when the fix that was printed is applied to it; without one, the program is the cured twin."""

    how: str = "twin"
    """What applies it: the environment, `sysperf wrap`, `sysperf lint --fix`, or the text of the fix."""
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    wraps: tuple[tuple[str, ...], ...] = ()
    """Options of `sysperf wrap`, of each program that runs at the same time."""
    rule: str = ""
    """Of `sysperf lint --fix`."""
    patch: tuple[tuple[str, int], ...] = ()
    """What the text asks for, as the program is told it."""

    @property
    def is_twin(self) -> bool:
        """Whether nothing that was printed could be applied by a program."""
        return self.how == "twin"


_TEXTS = {
    "num_workers": re.compile(r"num_workers=(\d+)"),
    "threads": re.compile(r"(?<!no torch\.)set_num_threads\((\d+)\)"),
    "persistent_workers": re.compile(r"persistent_workers=True()"),
    "unpinned": re.compile(r"sched_setaffinity\(0, range\(os\.cpu_count\(\)\)\)()"),
    "unbound": re.compile(r"no OMP_PROC_BIND()"),
    "every": re.compile(r"every (\d+) steps"),
    "frozen": re.compile(r"no gc\.collect\(\) in the loop; gc\.freeze\(\)()"),
    "anomaly": re.compile(r"remove torch\.autograd\.set_detect_anomaly\(True\)()"),
    "single": re.compile(r"make tensors float32()"),
    "inference": re.compile(r"with torch\.inference_mode\(\)()"),
    "no_sync": re.compile(r"with model\.no_sync\(\)()"),
    "made_once": re.compile(r"ma(?:d|k)e(?: the DataLoader)? once before the loop()"),
    "stack": re.compile(r"one torch\.stack()"),
    "at_once": re.compile(r"draw the indices of a whole pass at once()"),
    "tensors": re.compile(r"make one tensor for all samples()"),
    "in_memory": re.compile(r"keep them in memory()"),
    "processes": re.compile(r"move the other threads' work in Python into processes()"),
    "higher_limit": re.compile(r"a higher memory limit()"),
    "whole": re.compile(r"work on the whole tensor()"),
    "pool_once": re.compile(r"make the pool once, before the loop()"),
    "out_of_step": re.compile(r"(?:move them out of the step|or leave it out)()"),
    "batched": re.compile(r"batched instead of looped operators()"),
    "dynamic": re.compile(r"torch\.compile\(dynamic=True\)()"),
    "no_reset": re.compile(r"no torch\._dynamo\.reset\(\) in the loop()"),
    "unlocked": re.compile(r"let workers read beside each other()"),
    "ahead": re.compile(r"take the next batch in a thread()"),
    "kept": re.compile(r"no checkpoint\(\) around as many blocks()"),
    "once": re.compile(r"prepare once, before the loop()"),
    "stacked": re.compile(r"torch\.from_numpy\(np\.stack\(arrays\)\)()"),
    "layers_once": re.compile(r"make layers once()"),
    "float32": re.compile(r"float32 on this CPU()"),
    "sparse": re.compile(r"nn\.Embedding\(\.\.\., sparse=True\)()"),
    "unprofiled": re.compile(r"start it without the profiler()"),
    "seldom": re.compile(r"evaluate ten times less often()"),
    "optimizer_once": re.compile(r"make the optimizer and its schedule once()"),
    "in_process": re.compile(r"do in this process what takes less than starting one()"),
    "kept_open": re.compile(r"open it once in each process and keep it()"),
    "in_place": re.compile(r"write new ones in place()"),
    "one_pass": re.compile(r"backward\(\) of the sum once()"),
    "event": re.compile(r"wait for an event instead()"),
    "equal": re.compile(r"equal shards()"),
}
"""What a fix's text asks for, by the name under which tests/clinic/programs know it; the number in it, or none."""


def printed(document: dict[str, Any], case: Case) -> dict[str, Any] | None:
    """What was said of a case's illness, by the name that stands first; None where it was not named."""
    return next((found for found in document["causes"] if found["rule"] in {case.cause, *case.also}), None)


def printed_cure(document: dict[str, Any], case: Case) -> Cure:
    """What was printed against an illness, as far as it can be applied as it stands: a change of the source, or else the first fix."""
    fixes: list[dict[str, Any]] = (printed(document, case) or {}).get("fixes", [])
    if source := next((fix["source"] for fix in fixes if fix.get("source")), None):
        return Cure("lint --fix", rule=source["rule"])
    first = fixes[0] if fixes else {}
    start = first.get("start") or {}
    if start.get("wrap") is not None:
        wraps = (fix["start"]["wrap"] for fix in fixes if fix.get("start") and fix["start"].get("wrap") is not None)
        return Cure("wrap", wraps=tuple(map(tuple, wraps)))
    if start:
        return Cure("environment", env=tuple(start.get("set", {}).items()), unset=tuple(start.get("unset", ())))
    asked = {name: found[1] for name in case.follows if (found := _TEXTS[name].search(first.get("title", "")))}
    return Cure("text", patch=tuple((name, int(number or 1)) for name, number in asked.items())) if asked else Cure()


@contextlib.contextmanager
def running(case: Case, name: str, state: str, folder: str, cure: Cure | None = None) -> Iterator[tuple[int, Path]]:
    """The program, traceable and else as its user would start it; (its number, its output)."""
    sick = not cure.is_twin if cure is not None else state == "sick"
    output, script = Path(folder) / "output", Path(folder) / case.script
    shutil.copy(PROGRAMS / case.script, script)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)) if case.ranks else ()
    command = (PYTHON, *launcher, str(script), case.runs or name, "sick" if sick else "cured", folder)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "KMP_", "GOMP_", "MALLOC_"))}
    env |= dict(case.env if sick else case.cured_env)
    wraps: tuple[tuple[str, ...], ...] = ((),) * (case.copies if sick and cure is None else 1)
    if cure is not None:
        env = {key: value for key, value in {**env, **dict(cure.env)}.items() if key not in cure.unset}
        env |= {"CLINIC_PATCH": json.dumps(dict(cure.patch))} if cure.patch else {}
        wraps = cure.wraps or wraps
        if cure.rule:
            _lint_fix(script, cure.rule, folder)
    programs = []
    with contextlib.ExitStack() as stack, output.open("wb") as file:
        is_raised = cure is not None and "higher_limit" in dict(cure.patch)
        enter = stack.enter_context(limited(case._replace(memory_bytes=0) if is_raised else case))
        for number, options in enumerate(wraps):
            stderr = file if number == 0 else subprocess.DEVNULL
            wrap = (*SYSPERF, "wrap", "--quiet", *options, "--") if options else ()
            argv = (*enter, *SYSPERF, "wrap", "--quiet", "--traceable", "--only", "launch.traceable-asked", "--", *wrap, *command)
            programs.append(subprocess.Popen(argv, stdout=stderr, stderr=subprocess.DEVNULL, env=env, start_new_session=True))
        if sick and case.neighbour and cure is None:
            burn = "import os\n[os.fork() for _ in range(1)]\nwhile True: pass"
            programs.append(subprocess.Popen((sys.executable, "-c", burn), start_new_session=True))
        try:
            yield programs[0].pid, output
        finally:
            for program in programs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()


def _lint_fix(script: Path, rule: str, folder: str) -> None:
    """Change the sick program's source as it was printed."""
    env, before = {**os.environ, "XDG_STATE_HOME": folder}, script.read_text()
    subprocess.run((*SYSPERF, "lint", str(script), "--select", rule, "--fix", "--yes"), env=env, check=True, stdout=subprocess.DEVNULL)
    if script.read_text() == before:
        raise AssertionError(f"lint --fix changed nothing: {rule}")


GROUPS = Path("/sys/fs/cgroup")
_UNIFIED = (GROUPS / "cgroup.controllers").exists()


def lacks(case: Case) -> str:
    """What this machine lacks for a case."""
    for controller, is_needed in (("cpu", case.quota), ("memory", case.memory_bytes)):
        if is_needed and not _can_limit(controller):
            return f"needs root and the {controller} controller of control groups"
    if case.needs and (not shutil.which("gcc") or not find_library(case.needs.removeprefix("lib").split(".")[0])):
        return f"needs gcc and {case.needs}: apt-get install gcc libc6-dev libomp5"
    return ""


def _can_limit(controller: str) -> bool:
    if _UNIFIED:
        return os.access(GROUPS, os.W_OK) and controller in (GROUPS / "cgroup.subtree_control").read_text().split()
    return os.access(GROUPS / controller, os.W_OK)


def _limits(case: Case) -> dict[str, str]:
    """The files of a group, by controller and name, and what is written there."""
    period_us = 100_000
    quota, memory = str(int(case.quota * period_us)), str(case.memory_bytes)
    if _UNIFIED:
        limits = {"cpu/cpu.max": f"{quota} {period_us}", "memory/memory.max": memory}
    else:
        limits = {"cpu/cpu.cfs_period_us": str(period_us), "cpu/cpu.cfs_quota_us": quota, "memory/memory.limit_in_bytes": memory}
    return {name: limit for name, limit in limits.items() if (case.quota if name.startswith("cpu/") else case.memory_bytes)}


@contextlib.contextmanager
def limited(case: Case) -> Iterator[tuple[str, ...]]:
    """A control group with the limits of a case; (what starts a command in it). Nothing without limits."""
    groups = set()
    for name, limit in _limits(case).items():
        controller, file = name.split("/")
        group = (GROUPS if _UNIFIED else GROUPS / controller) / f"sysperf-clinic-{os.getpid()}"
        group.mkdir(exist_ok=True)
        (group / file).write_text(limit)
        groups.add(group)
    try:
        enter = " && ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
        yield ("/bin/sh", "-c", f'{enter} && exec "$@"', "sh") if groups else ()
    finally:
        for group in groups:
            _remove(group)


def _remove(group: Path) -> None:
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def speed(output: Path) -> float | None:
    """Steps a second, from the second line that it printed to the last one."""
    steps = [(int(step), float(at)) for step, at in _STEP.findall(output.read_text())][1:]
    if len(steps) < 2 or steps[-1][1] <= steps[0][1]:
        return None
    return (steps[-1][0] - steps[0][0]) / (steps[-1][1] - steps[0][1])


def examine(name: str, state: str, *, diagnose: bool = True, cure: Cure | None = None) -> Seen:
    """Start a program, wait until it is warm, and have it diagnosed."""
    case = CASES.get(name, Case("", script="healthy.py"))
    with tempfile.TemporaryDirectory() as folder, running(case, name, state, folder, cure) as (pid, output):
        wait_until_warm(output, pid)
        rate = speed(output)
        if not diagnose:
            return Seen({}, "", 0.0, rate, None, {})
        start = time.monotonic()
        command = (sys.executable, "-m", "sysperf", "diagnose", str(pid), "--format", "json")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        took_s = time.monotonic() - start
        if done.returncode not in (0, 1, 3):
            raise AssertionError(f"{name} {state}: {done.stderr[-2000:]}")
        verdict = json.loads(done.stdout)
    causes = {cause["rule"]: cause["state"] for cause in verdict["causes"]}
    named = printed(verdict, case) or {"gain": {"high": None}}
    predicted = (named["gain"]["low"], named["gain"]["high"]) if named["gain"]["high"] is not None else None
    return Seen(causes, verdict["verdict"], took_s, rate, predicted, verdict)


def wait_until_warm(output: Path, pid: int) -> None:
    """Until it has printed its first steps and gone on for some seconds, or for programs without steps, until it is as old as that."""
    end = time.monotonic() + 60
    while time.monotonic() < end and not output.read_text().strip():
        if not Path(f"/proc/{pid}").exists():
            raise AssertionError("the program ended")
        time.sleep(0.25)
    time.sleep(WARM_S)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        name, _, state = argument.partition(":")
        seen = examine(name, state or "sick")
        wanted = CASES[name].cause if name in CASES and (state or "sick") == "sick" else "-"
        right = set(seen.causes) - (CASES[name].also if name in CASES else set()) == ({wanted} - {"-"})
        if os.environ.get("CLINIC_CURE"):
            cure = printed_cure(seen.document, CASES[name])
            cured = examine(name, "cured", diagnose=False, cure=cure)
            print(f"     {cure}: {seen.steps_per_s} to {cured.steps_per_s} steps a second", flush=True)
        rate = f"{seen.steps_per_s:.1f}/s" if seen.steps_per_s else "?"
        print(
            f"{'ok ' if right else 'NO '} {argument:<28} {rate:>9} {seen.took_s:4.1f} s {seen.verdict} {seen.causes} want {wanted} {seen.predicted}",
            flush=True,
        )
        if not right or os.environ.get("CLINIC_VERBOSE"):
            Path(f"/tmp/clinic-{name}-{state or 'sick'}.json").write_text(json.dumps(seen.document, indent=1))
            for cause in seen.document.get("dropped", []):
                print("     dropped", cause["rule"], cause["because"], flush=True)

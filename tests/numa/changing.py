"""What runs inside the machine whose settings are changed: each scenario leaves what it saw in /out/seen.json.

from changing import everything; everything()
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from sysperf.cli import apply, audit, changes, main, undo
from sysperf.engine import change
from sysperf.fix import plan, process, targets, transaction
from sysperf.fix.journal import Journal
from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.change import Change
from sysperf.model.knob import KNOBS

Values = dict[str, str]
IMPORTED = (apply, audit, changes, undo)
"""The commands that are run in children of this process."""

WISHES = {
    "kernel.numa_balancing": "0",
    "kernel.perf_event_paranoid": "1",
    "kernel.yama.ptrace_scope": "1",
    "vm.zone_reclaim_mode": "1",
    "vm.swappiness": "10",
    "vm.dirty_ratio": "35",
    "vm.dirty_background_ratio": "7",
    "vm.dirty_expire_centisecs": "2000",
    "vm.dirty_writeback_centisecs": "300",
    "vm.max_map_count": "1048576",
    "vm.nr_hugepages": "8",
    "vm.overcommit_memory": "1",
    "thp.enabled": "madvise",
    "thp.defrag": "defer",
    "block.read_ahead_kb@vda": "1024",
    "block.scheduler@vda": "mq-deadline",
    "shm.size_bytes": str(256 << 20),
    "cpu.dma_latency_us": "20",
}
"""Every setting of this machine, to a value that it does not have."""
OF_PROCESS = {"process.cpus": "2-3", "process.nice": "7", "process.io_class": "idle"}
LASTING = {name: value for name, value in WISHES.items() if KNOBS[name.partition("@")[0]].kind in ("sysctl", "sysfs")}


# ---------------------------------------------------------------------- what is there

COUNTERS = re.compile(
    r"/(stat_refresh|compact_memory|drop_caches|(free|surplus|resv)_hugepages|khugepaged/(full_scans|pages_collapsed)|"
    r"ksm/.*|queue/(io_timeout|zoned.*)|numa/demotion.*|lru_gen/.*|damon/.*)$"
)
AROUND = ("/proc/sys/vm/*", "/proc/sys/kernel/numa*", "/sys/kernel/mm/*/*", "/sys/kernel/mm/*/*/*", "/sys/block/vda/queue/*")
"""Where the settings are, with all that stands beside them: setting one may set another."""


def values(*pids: int, around: bool = True) -> Values:
    """Every setting that there is, and all that stands beside them, byte for byte."""
    paths = {path for pattern in AROUND for path in glob.glob(pattern) if not COUNTERS.search(path)} if around else set()
    paths |= {knob.path.replace("{item}", "vda") for knob in KNOBS.values() if knob.kind in ("sysctl", "sysfs")}
    report = {path: text for path in sorted(paths) if (text := _text(path)) is not None}
    report |= {path: str(_text(path)) for folder in ("sysctl", "tmpfiles") for path in glob.glob(f"/etc/{folder}.d/*sysperf*")}
    report["/dev/shm"] = _shared_memory()
    report["/dev/cpu_dma_latency"] = str(latency_us())
    for pid in pids:
        report |= threads(pid)
    return report


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace") if os.path.isfile(path) else None
    except OSError:  # one that can only be written
        return None


def _shared_memory() -> str:
    (line,) = (line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " /dev/shm " in line)
    stat = os.statvfs("/dev/shm")
    return f"{stat.f_blocks * stat.f_frsize} {line.split('/dev/shm ')[1].split(' - ')[0]}"


def latency_us() -> int:
    """The limit in force, as any reader sees it."""
    return int.from_bytes(Path("/dev/cpu_dma_latency").read_bytes(), sys.byteorder, signed=True)


def threads(pid: int) -> Values:
    """CPUs, nice value and I/O class of each thread."""
    libc = ctypes.CDLL(None)
    report = {}
    for tid in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(tid))))
        report[f"{pid}/{tid}"] = f"{cpus} nice {os.getpriority(os.PRIO_PROCESS, tid)} io {libc.syscall(252, 1, tid):#x}"
    return report


def pages(pid: int) -> dict[str, int]:
    """Pages of a process by node."""
    report: dict[str, int] = {}
    for node, count in re.findall(r" N(\d+)=(\d+)", Path(f"/proc/{pid}/numa_maps").read_text()):
        report[node] = report.get(node, 0) + int(count)
    return report


def different(before: Values, after: Values) -> dict[str, list[str | None]]:
    """What is not the same."""
    return {name: [before.get(name), after.get(name)] for name in sorted({*before, *after}) if before.get(name) != after.get(name)}


# ---------------------------------------------------------------------- doing


def sysperf(*words: str) -> dict[str, Any]:
    """Run the command: its exit code, and what it printed."""
    done = subprocess.run(["sysperf", *words], capture_output=True, text=True, check=False)
    return {"rc": done.returncode, "out": done.stdout, "err": done.stderr}


def here(*words: str) -> dict[str, Any]:
    """The same in a child of this process, which spares the start of another Python and its imports."""
    assert IMPORTED
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = main([*words])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return {"rc": code, "out": out.read(), "err": err.read()}


def sets(wishes: Mapping[str, str]) -> list[str]:
    """Arguments that ask for these."""
    return [word for name, value in wishes.items() for word in ("--set", f"{name}={value}")]


def of_process(pid: int) -> dict[str, str]:
    """Every setting of a process; moving its memory is none, and has a test of its own."""
    return {f"{name}@{pid}": value for name, value in OF_PROCESS.items()}


def worker(megabytes: int = 0, prefix: Iterable[str] = (), text: str = "") -> int:
    """Start a program with four threads of which each has other CPUs, another priority and another I/O class, and memory."""
    folder = tempfile.mkdtemp()
    program = f"import sys; sys.path.insert(0, '/run/job'); {text or 'pass'}; import changing; changing.work({megabytes}, '{folder}/ready')"
    child = subprocess.Popen([*prefix, "python", "-c", program], stdin=subprocess.DEVNULL)
    _until(lambda: os.path.exists(f"{folder}/ready"))
    return child.pid


def work(megabytes: int, ready: str) -> NoReturn:
    """What the program does: it holds its memory and waits."""
    block = bytearray(megabytes << 20)
    for at in range(0, len(block), 4096):
        block[at] = 1
    allowed = sorted(os.sched_getaffinity(0))
    started = threading.Barrier(4)
    for number in range(3):
        threading.Thread(target=_thread, args=(number, allowed, started), daemon=True).start()
    started.wait()
    Path(ready).touch()
    while True:
        time.sleep(60)


def _thread(number: int, allowed: list[int], started: threading.Barrier) -> None:
    tid = threading.get_native_id()
    os.sched_setaffinity(tid, [allowed[number % len(allowed)]])
    os.setpriority(os.PRIO_PROCESS, tid, 2 * number)
    ctypes.CDLL(None).syscall(251, 1, tid, 2 << 13 | number + 3)
    started.wait()
    while True:
        time.sleep(60)


def _until(true: Callable[[], object], timeout_s: float = 40.0) -> float:
    """Wait for it; how long it took."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < timeout_s, "it did not happen in time"
        time.sleep(0.05)
    return time.monotonic() - started


def _leave(**seen: object) -> None:
    Path("/out/seen.json").write_text(json.dumps(seen))


def _changes() -> list[dict[str, Any]]:
    """What `sysperf changes` tells, oldest first."""
    (journal,) = json.loads(here("changes", "--format", "json")["out"])["journals"]
    return list(journal["transactions"])


def _existing(pid: int) -> Iterator[str]:
    """The settings that this machine has."""
    for name, knob in KNOBS.items():
        item = {"block device": "vda", "process": str(pid), "PCI address of a GPU": "0000:01:00.0"}.get(knob.item, "")
        with contextlib.suppress(OSError):
            for target in targets.find(Host(), knob, item):
                target.read()
                yield f"{name}@vda" if item == "vda" else name
                break


# ---------------------------------------------------------------------- everything, the honest way


def everything() -> None:
    """Every setting is set by the command, listed, and taken back. The same for memory, leases, and what findings ask for."""
    pid = worker()
    wishes = {**WISHES, **of_process(pid)}
    existing = sorted({*_existing(pid)})
    before = values(pid)
    applied = sysperf("apply", "--yes", "--lease", "1h", "--format", "json", *sets(wishes))
    during = values(pid)
    listed = sysperf("changes", "--format", "json")
    undone = sysperf("undo", "--all", "--format", "json")
    after = values(pid)
    os.kill(pid, signal.SIGKILL)
    _leave(
        pid=pid,
        existing=existing,
        before=before,
        during=during,
        applied=applied,
        listed=listed,
        undone=undone,
        left=different(before, after),
        memory=_memory(),
        spread=_spread(),
        lease=_lease(),
        killed=_killed_keeper(),
        findings=_findings(),
    )


def _memory() -> dict[str, Any]:
    """64 MB on node 0 are moved and moved back."""
    pid = worker(64, ("numactl", "--preferred=0"))
    before = pages(pid)
    applied = here("apply", "--yes", "--set", f"process.pages@{pid}=1")
    during = pages(pid)
    undone = here("undo")
    report = {"before": before, "applied": applied, "during": during, "undone": undone, "after": pages(pid)}
    os.kill(pid, signal.SIGKILL)
    return report


def _spread() -> dict[str, Any]:
    """16 MB on both nodes: nobody knows afterwards which page was where."""
    pid = worker(16, ("numactl", "--interleave=0,1"))
    applied = here("apply", "--yes", "--set", f"process.pages@{pid}=1")
    during = pages(pid)
    undone = here("undo")
    report = {"applied": applied, "during": during, "undone": undone, "after": pages(pid)}
    os.kill(pid, signal.SIGKILL)
    return report


LEASED = {"vm.swappiness": "20", "thp.enabled": "never", "cpu.dma_latency_us": "30"}


def _lease() -> dict[str, Any]:
    """Three seconds, and nobody does anything."""
    before = values()
    applied = sysperf("apply", "--yes", "--lease", "3s", *sets(LEASED))
    during = values()
    took_s = _until(lambda: _changes()[-1]["transaction"]["state"] == "undone")
    return {
        "applied": applied,
        "changed": sorted(different(before, during)),
        "latency_us": during["/dev/cpu_dma_latency"],
        "took_s": took_s,
        "left": different(before, values()),
        "keeper_lives": _alive(_changes()[-1]["transaction"]["keeper"]["pid"]),
    }


def _killed_keeper() -> dict[str, Any]:
    """The process that would end the lease is killed."""
    before = values()
    applied = here("apply", "--yes", "--lease", "5s", *sets(LEASED))
    lease = _changes()[-1]["transaction"]
    os.kill(lease["keeper"]["pid"], signal.SIGKILL)
    _until(lambda: not _alive(lease["keeper"]["pid"]))
    latency = latency_us()
    early = here("undo", "--expired")
    in_force = time.clock_gettime(time.CLOCK_BOOTTIME) < lease["lease"]["until_s"]
    changed = different(before, values())
    _until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > lease["lease"]["until_s"] + 0.5)
    still = different(before, values())
    late = here("undo", "--expired")
    return {
        "applied": applied,
        "latency_us": latency,
        "early": early,
        "in_force": in_force,
        "held": sorted(changed),
        "still": sorted(still),
        "late": late,
        "left": different(before, values()),
    }


def _alive(pid: int) -> bool:
    text = _text(f"/proc/{pid}/stat")
    return text is not None and text.rpartition(")")[2].split()[0] != "Z"


# As a PyTorch program looks to others: libtorch is mapped.
PRETEND = (
    "import mmap; lib = open('/tmp/torch/lib/libtorch_cpu.so', 'rb'); "
    "kept = mmap.mmap(lib.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)"
)
LESS = '[[override]]\nrule = "numa.pages-remote"\nparams = { bytes = 16777216 }\n'
"""The limit is lowered to what this machine has."""


def _findings() -> dict[str, Any]:
    """Balancing is on, zone reclaim too, and a PyTorch program runs on node 1 with its memory on node 0."""
    os.makedirs("/tmp/torch/lib")
    Path("/tmp/torch/lib/libtorch_cpu.so").write_bytes(bytes(4096))
    Path("/tmp/torch/version.py").write_text("__version__ = '2.13.0+cpu'\n")
    os.makedirs("/etc/sysperf", exist_ok=True)
    Path("/etc/sysperf/config.toml").write_text(LESS)
    Path("/proc/sys/vm/zone_reclaim_mode").write_text("1")
    pid = worker(64, ("numactl", "--cpunodebind=1", "--preferred=0"), PRETEND)
    before = values()
    seen: dict[str, Any] = {"first": _found(), "pages before": pages(pid)}
    seen["careful"] = here("apply", "--yes")
    seen["after careful"] = [different(before, values()), pages(pid)]
    seen["named"] = here("apply", "--yes", "--format", "json", "numa.zone-reclaim", "numa.pages-remote")
    seen["after named"] = different(before, values())
    seen["pages"] = pages(pid)
    seen["caution"] = here("apply", "--yes", "--caution")
    seen["after caution"] = _found()
    seen["security"] = here("apply", "--yes", "kernel.perf-paranoid")
    seen["second"] = _found()
    seen["undone"] = here("undo", "--all")
    seen["third"] = _found()
    seen["left"] = different(before, values())
    seen["pages after"] = pages(pid)
    os.kill(pid, signal.SIGKILL)
    return seen


def _found() -> dict[str, str]:
    """Rules and what an audit says of them."""
    report = json.loads(here("audit", "--format", "json")["out"])
    return {outcome["rule"]: outcome["state"] for outcome in report["outcomes"] if outcome["state"] == "finding"}


# ---------------------------------------------------------------------- kill -9


class Deadly:
    """A target whose write is followed by `then`."""

    def __init__(self, target: Target, then: Callable[[], object]) -> None:
        self.target, self.then = target, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def write(self, value: str) -> None:
        self.target.write(value)
        self.then()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def planned(wishes: Mapping[str, str]) -> Any:
    """The plan of wishes that all can be done here."""
    report = plan.plan(Host(), [change.setting(f"{name}={value}") for name, value in wishes.items()])
    assert len(report.changes) == len(wishes), report.skipped
    return report


def until(wishes: Mapping[str, str], step: int, moment: str, then: Callable[[], object], *, persist: bool) -> None:
    """Apply up to a step, and do `then` before it, or after what it writes."""
    count = 0

    def progress(_: Change) -> None:
        nonlocal count
        count += 1
        if (count, moment) == (step, "before"):
            then()

    def of(host: Host, change: Change) -> Any:
        target = target_of(host, change)
        return Deadly(target, then) if (count, moment) == (step, "after") else target

    target_of = targets.of
    targets.of = of
    request = change.request("a test", persist=persist)._replace(progress=progress)
    transaction.apply(Host(), Journal(), planned(wishes), request)


def kills() -> None:
    """Killed before and after each write of a transaction that has every setting and is to last."""
    for folder in ("sysctl", "tmpfiles"):
        os.makedirs(f"/etc/{folder}.d", exist_ok=True)
    pid = worker()
    wishes = {**WISHES, **of_process(pid)}
    before = values(pid)
    moments = [*_moments(len(wishes) + 2), (list(wishes).index(f"process.cpus@{pid}") + 1, "between threads")]
    _leave(steps=len(wishes) + 2, kills=[_kill(wishes, step, moment, pid, before) for step, moment in moments])


def _moments(steps: int) -> list[tuple[int, str]]:
    return [(step, moment) for step in range(1, steps + 1) for moment in ("before", "after")]


def _kill(wishes: Mapping[str, str], step: int, moment: str, pid: int, before: Values) -> dict[str, Any]:
    """With a journal of its own, which need not be on a disk: the kernel lives on."""
    os.environ["STATE_DIRECTORY"] = tempfile.mkdtemp(dir="/run")
    child = os.fork()
    if child == 0:
        if moment == "between threads":
            _die_between_threads()
        until(wishes, step, moment, _die, persist=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = Journal().read(1).state
    now = values(pid, around=False)
    changed = [name for name in now if now[name] != before.get(name)]
    first = here("undo", "--expired")
    again = here("undo", "--expired") if moment != "before" else None
    left = different(before, values(pid))
    states = [killed, Journal().read(1).state]
    del os.environ["STATE_DIRECTORY"]
    return {
        "step": step,
        "moment": moment,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "changed": changed,
        "first": first,
        "left": left,
        "again": again,
        "states": states,
    }


def _die_between_threads() -> None:
    """The second of them has its CPUs, the third has not."""
    done: list[int] = []
    setter = process.Cpus._set

    def _set(self: process.Cpus, tid: int, value: str) -> None:
        setter(self, tid, value)
        done.append(tid)
        if len(done) == 2:
            _die()

    process.Cpus._set = _set  # type: ignore[method-assign]


# ---------------------------------------------------------------------- power loss


def _say_and_wait(mark: str) -> Callable[[], None]:
    def wait() -> None:
        sys.stdout.write(mark)
        sys.stdout.flush()
        time.sleep(600)

    return wait


def start_of_system() -> dict[str, Any]:
    """What systemd runs early at every start: here by hand, with the same programs and arguments as its units."""
    before = values()
    lines = ("/lib/systemd/systemd-sysctl", "systemd-tmpfiles --create --remove --boot --exclude-prefix=/dev")
    done = [subprocess.run(line.split(), capture_output=True, text=True, check=False) for line in lines]
    return {"said": [result.stderr for result in done], "set": different(before, values())}


def interrupted() -> None:
    """Half of the steps are done."""
    until(LASTING, len(LASTING) // 2, "before", _say_and_wait("power is lost"), persist=True)


def after_interrupted() -> None:
    """The next start; then a transaction is interrupted when its last file is there."""
    before = values()
    started = start_of_system()
    listed = _changes()
    first, again = here("undo", "--expired"), here("undo", "--expired")
    left = different(before, values())
    _leave_on_disk("interrupted", before=before, started=started, listed=listed, first=first, again=again, left=left, state=_changes())
    until(LASTING, len(LASTING) + 2, "after", _say_and_wait("power is lost"), persist=True)


def after_files() -> None:
    """The files are there and set everything again. Then one is applied to the end, and another with a lease."""
    before = values()
    started = start_of_system()
    listed = _changes()
    first, again = here("undo", "--expired"), here("undo", "--expired")
    left = different(before, values())
    _leave_on_disk("files", before=before, started=started, listed=listed, first=first, again=again, left=left, state=_changes())
    lasting = {name: value for name, value in LASTING.items() if name != "vm.overcommit_memory"}
    here("apply", "--yes", "--lease", "1h", "--set", "vm.overcommit_memory=1")
    applied = here("apply", "--yes", "--persist", *sets(lasting))
    _leave_on_disk("applied", applied=applied, values=values(), listed=_changes())
    _say_and_wait("power is lost")()


def after_applied() -> None:
    """What was to last is set again at the start, what was leased is not; then it is taken back for good."""
    before = values()
    started = start_of_system()
    listed = _changes()
    expired = here("undo", "--expired")
    kept = values()
    undone = here("undo", "--all")
    left = different(before, values())
    _leave_on_disk(
        "restarted", before=before, started=started, listed=listed, expired=expired, kept=kept, undone=undone, left=left, state=_changes()
    )
    _say_and_wait("power is lost")()


def after_undone() -> None:
    """Nothing sets anything any more."""
    before = values()
    started = start_of_system()
    again = here("undo", "--all")
    seen = {path.stem: json.loads(path.read_text()) for path in Path("/root/seen").glob("*.json")}
    _leave(**seen, over={"before": before, "started": started, "again": again, "state": _changes()})


def _leave_on_disk(name: str, **seen: object) -> None:
    """For the last boot to hand out. Only this file is put on the disk: what sysperf wrote has to be there by itself."""
    os.makedirs("/root/seen", exist_ok=True)
    with open(f"/root/seen/{name}.json", "w") as file:
        json.dump(seen, file)
        file.flush()
        os.fsync(file.fileno())


# ---------------------------------------------------------------------- tuned and numad

TUNED = {
    # what its profile throughput-performance sets here
    "/proc/sys/vm/swappiness": "10",
    "/proc/sys/vm/dirty_ratio": "40",
    "/sys/block/vda/queue/read_ahead_kb": "4096",
}
SAME = {"vm.swappiness": "10", "vm.dirty_ratio": "40", "block.read_ahead_kb@vda": "4096"}
# tuned asks systemd whether the whole machine is going down, and takes nothing back when nobody answers.
SYSTEMCTL = '#!/bin/sh\n[ "$1" = is-system-running ] && echo running\nexit 0\n'
PID_FILE = "/run/tuned/tuned.pid"


def daemons() -> None:
    """The same accident happens to tuned and to us; then both want the same."""
    _prepare_daemons()
    before = _tunables()
    seen: dict[str, Any] = {"before": before, "version": _run("tuned", "--version")}
    _start_tuned()
    seen["set"] = _tunables()
    asked = {"vm.swappiness": "20", "block.read_ahead_kb@vda": "256", "vm.max_map_count": "100000"}
    seen["planned"] = here("plan", "--format", "json", *sets(asked))
    seen["applied"] = here("apply", "--yes", *sets(asked))
    seen["beside"] = _tunables()
    seen["undone"] = here("undo")
    seen["forced"] = here("apply", "--yes", "--force", *sets({"vm.swappiness": "20"}))
    seen["beside forced"] = _tunables()
    seen["undone forced"] = here("undo")
    _stop_tuned(signal.SIGTERM)
    seen["asked to stop"] = _tunables()
    _start_tuned()
    _stop_tuned(signal.SIGKILL)
    seen["killed"] = _tunables()
    seen["planned without"] = here("plan", "--format", "json", *sets({"vm.swappiness": "20"}))
    _start_tuned()
    seen["off said"] = _run("tuned-adm", "off")
    seen["off"] = _tunables()
    _stop_tuned(signal.SIGTERM)
    seen["stopped"] = _tunables()
    for path, value in before.items():
        Path(path).write_text(value)
    seen["ours"] = _ours()
    seen["numad"] = _numad()
    _leave(**seen)


def _ours() -> list[dict[str, Any]]:
    """sysperf sets the same, is killed at each step and after the last, and is started again."""
    seen = []
    for step, moment in _moments(len(SAME)):
        child = os.fork()
        if child == 0:
            until(SAME, step, moment, _die, persist=False)
        os.waitpid(child, 0)
        killed = _tunables()
        printed = here("undo", "--expired")
        seen.append({"step": step, "moment": moment, "killed": killed, "said": printed, "after": _tunables()})
    here("apply", "--yes", *sets(SAME))
    done = _tunables()
    seen.append({"step": 0, "moment": "done", "killed": done, "said": here("undo"), "after": _tunables()})
    return seen


def _tunables() -> Values:
    return {path: Path(path).read_text().strip() for path in TUNED}


def _prepare_daemons() -> None:
    """What Debian's maintainer scripts and systemd would have done."""
    for folder in ("/run/dbus", "/run/tuned", "/var/log/tuned", "/usr/local/sbin"):
        os.makedirs(folder, exist_ok=True)
    if not os.path.exists("/var/run"):
        os.symlink("/run", "/var/run")
    for name, line in (("passwd", "messagebus:x:100:100::/:/bin/sh\n"), ("group", "messagebus:x:100:\n")):
        with open(f"/etc/{name}", "a") as file:
            file.write(line)
    Path("/usr/local/sbin/systemctl").write_text(SYSTEMCTL)
    os.chmod("/usr/local/sbin/systemctl", 0o700)
    _run("dbus-daemon", "--system", "--fork")


ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin"}
"""Debian's own Python runs Debian's programs."""


def _run(*words: str) -> str:
    done = subprocess.run(words, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _start_tuned() -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/var/log/tuned/tuned.log")
    words = ["tuned", "-l", "-P", "-p", "throughput-performance"]
    subprocess.Popen(words, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _until(lambda: "static tuning from profile 'throughput-performance' applied" in (_text("/var/log/tuned/tuned.log") or ""))
    _until(lambda: os.path.exists(PID_FILE))


def _stop_tuned(how: signal.Signals) -> None:
    pid = int(Path(PID_FILE).read_text())
    os.kill(pid, how)
    os.waitpid(pid, 0)


def _numad() -> dict[str, Any]:
    pid = worker()
    wishes = sets({f"process.cpus@{pid}": "0", f"process.nice@{pid}": "5"})
    before = here("plan", "--format", "json", *wishes)
    _run("numad", "-S", "0")
    _until(lambda: os.path.exists("/run/numad.pid"))
    during = here("plan", "--format", "json", *wishes)
    forced = here("plan", "--format", "json", "--force", *wishes)
    os.kill(int(Path("/run/numad.pid").read_text()), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return {"before": before, "during": during, "forced": forced}

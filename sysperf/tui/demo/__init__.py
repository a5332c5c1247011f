"""A recorded GPU server to learn the dashboard on: its findings are what the rules say of recorded facts, its meters are made up.

Nothing of it is this machine. What is changed here is a file in a temporary folder, and a diagnosis is one that was written down.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sysperf import __version__
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process.workers import Workers
from sysperf.diagnosis.verdict import Verdict
from sysperf.engine.audit import judge_snapshot
from sysperf.engine.change import Changer
from sysperf.engine.judging import Terms
from sysperf.host import Host
from sysperf.host.live import Live
from sysperf.model.change import Plan, Setting, Skipped
from sysperf.model.errors import CaptureError
from sysperf.model.finding import Finding, Gain, Place, Remedy, Signal, Subject
from sysperf.model.record import from_json
from sysperf.model.snapshot import Area, Snapshot
from sysperf.tui import decode
from sysperf.tui.actions import Tell
from sysperf.tui.source import Changed, Facts, History, Load, Mark, Meters, Neighbour, Past, Publish

RECORDED = Path(__file__).with_name("server.json")
KNOB, FILE = "kernel.numa_balancing", "proc/sys/kernel/numa_balancing"
STEPS = 180
"""Seconds of the past that the curves begin with."""
STEADY = (
    "clock_events",
    "celsius",
    "_mhz",
    "threads",
    "workers",
    "slowed",
    "capped",
    "used_bytes",
    "memory_bytes",
    "rss_bytes",
    "data_wait",
)
NEIGHBOURS = (Neighbour(800, 1, "rsync", 6.2, 0), Neighbour(801, 1, "dcgm-exporter", 0.9, 0))
CARDS = (
    "The first line counts what is wrong. Below it stands what costs most, a row a rule. Arrows or j and k select.",
    "Enter shows what was seen, the fix, and why it matters. Press Enter on the first row, and 1 to come back.",
    "Select “Automatic NUMA balancing is on” and press a, then y. Nothing is real here: watch what moves since.",
    "Select a program and press d: what slows it down, with the line of its code that waits.",
    "y copies the command of a fix, / filters a list, ? tells all keys of a screen. q leaves.",
)


class Recorded(msgspec.Struct):
    """The file beside this one."""

    snapshot: msgspec.Raw
    meters: dict[str, float]


class Demo:
    """A source that plays a recorded machine."""

    name = "demo: nothing is real"
    local = True
    live = True
    remembers = True

    def __init__(self, load: Callable[[], Terms], folder: str) -> None:
        self._load, self._folder = load, folder
        recorded = from_json(RECORDED.read_bytes(), Recorded)
        snapshot = decode.SnapshotDecoder().decode(bytes(recorded.snapshot))
        if snapshot is None:
            raise CaptureError(f"{RECORDED}: not a snapshot")
        self._snapshot, self._meters = snapshot, recorded.meters
        self._began = time.time()
        self._stop, self._soon = threading.Event(), threading.Event()
        self._changer = DemoChanger(folder)
        os.makedirs(os.path.join(folder, os.path.dirname(FILE)))
        Path(folder, FILE).write_text("1\n", encoding="ascii")

    def start(self, publish: Publish) -> None:
        threading.Thread(target=self._play, args=(publish,), name="sysperf-demo", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self._soon.set()

    def look_again(self) -> None:
        self._soon.set()

    def watch_cpus(self, *, on: bool) -> None:
        """Loads are played with the other meters."""

    def workers(self, pid: int) -> Workers | None:  # noqa: ARG002 - as the others
        return None

    def series(self) -> list[tuple[str, str]]:
        return [(name, "made up for the demo") for name in sorted(self._meters)]

    def history(self, names: Sequence[str], span_s: float, points: int) -> History:
        now = time.time()
        at = [now - span_s + span_s * number / points for number in range(points)]
        values = {name: [self._value(name, self._meters.get(name, 0.0), moment) for moment in at] for name in names}
        series = {name: [(moment, value, value, value) for moment, value in zip(at, values[name], strict=True)] for name in names}
        return History(series, [Mark(self._began - 420, "finding", "GPU 5: hardware slows it down")], now - span_s, now)

    # ------------------------------------------------------------------ playing

    def _play(self, publish: Publish) -> None:
        terms, past = self._load(), range(-STEPS, 0)
        names = [name for name in self._meters if not name.startswith("process.")]
        publish(Past({name: [self._value(name, self._meters[name], self._began + second) for second in past] for name in names}))
        self._judge(terms, publish)
        while not self._stop.is_set():
            now = time.time()
            publish(Load({cpu: self._value(f"cpu{cpu}", 0.42, now) for cpu in range(96)}, NEIGHBOURS))
            publish(Meters(now, {name: self._value(name, value, now) for name, value in self._meters.items()}))
            if self._soon.wait(1.0):
                self._soon.clear()
                self._judge(terms, publish)

    def _judge(self, terms: Terms, publish: Publish) -> None:
        if self._stop.is_set():  # the folder of the demo may be gone
            return
        judged = judge_snapshot(self._now(), terms)
        known = tuple(outcome for outcome in judged.outcomes if outcome.state != "unknown")  # not all of the server was recorded
        report = msgspec.structs.replace(judged, outcomes=known, tally=msgspec.structs.replace(judged.tally, unknown=0))
        publish(Changed(tuple(reversed(self._changer.journal.transactions()))))
        publish(Facts(report, {finding.key: self._began - 420 for finding in report.findings()}))

    def _balancing(self) -> int:
        return int(Path(self._folder, FILE).read_text(encoding="ascii"))

    def _now(self) -> Snapshot:
        """The recorded facts with the setting as it is now."""
        numa = MachineFacts(self._snapshot.areas).numa
        areas = {**self._snapshot.areas, "numa": Area(numa and msgspec.structs.replace(numa, balancing=self._balancing()))}
        return msgspec.structs.replace(self._snapshot, areas=areas, taken_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def _value(self, name: str, value: float, at: float) -> float:
        """A meter that moves a little, as meters do, and not above what was recorded; without balancing there is less pressure."""
        phase = sum(map(ord, name)) % 63 / 10
        moved = value * (0.9 + 0.06 * math.sin(at / 5 + phase) + 0.04 * math.sin(at * 1.7 + 2 * phase))
        moved *= 0.4 if name.startswith("pressure.") and at >= self._began and not self._balancing() else 1.0
        return value if name.endswith(STEADY) else moved


class DemoChanger(Changer):
    """Changes one setting, which is a file in a temporary folder; of all others it says that nothing is real here."""

    def __init__(self, folder: str) -> None:
        super().__init__(Host("/demo", tree=Live(folder)), os.path.join(folder, "journal"))

    def asks_helper(self, settings: object) -> bool:  # noqa: ARG002 - as the real one
        return False

    def plan(self, settings: Sequence[Setting], *, force: bool = False) -> Plan:
        if all(asked.knob == KNOB for asked in settings):
            return super().plan(settings, force=force)
        return Plan(skipped=tuple(Skipped(asked, "the demo changes kernel.numa_balancing only") for asked in settings))


def diagnose(pid: int, tell: Tell) -> Verdict:
    """A diagnosis that was written down, a signal at a time."""
    for looking in ("the kernel's accounting", "where its threads are", "its code"):
        tell(looking, None)
        time.sleep(0.7)
    cause = Finding(
        "dataloader.program-waits", "confirmed", "warning", "process", "It waits for its DataLoader", Subject("process", "python", pid=pid),
        message="Its main thread waits for the next batch 41 % of the time, while its 4 workers decode JPEGs.",
        fixes=(Remedy("advice", "more workers", "manual", command="python train.py --workers 12", needs="restart"),),
        gain=Gain("samples", "", 28.0, 34.0, 41.0),
        places=(Place("train.py", 31, "main", "for images, labels in loader:", share=0.41),),
        signals=(Signal(source="scheduler", text="it slept 41 % of the time"), Signal(source="stacks", text="41 % in next(loader)")),
    )  # fmt: skip
    return Verdict(
        sysperf=__version__,
        pid=pid,
        command="python train.py",
        verdict="slowed",
        sentence="Confirmed: it waits for its DataLoader.",
        causes=(cause,),
    )


def folder() -> tempfile.TemporaryDirectory[str]:
    """Make the folder of the demo's setting and its journal."""
    return tempfile.TemporaryDirectory(prefix="sysperf-demo-")

"""Sampling by this process itself, with the agent's own parts: for a machine without an agent."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process import workers
from sysperf.collect.process.workers import Workers
from sysperf.engine.judging import Terms
from sysperf.fix.past import PastTransactions
from sysperf.host import Host
from sysperf.live.auditor import Auditor, AuditPass
from sysperf.live.gpus import Gpus
from sysperf.live.programs import Programs
from sysperf.live.scan import Scanner
from sysperf.live.system import System
from sysperf.model.change import Transaction
from sysperf.model.errors import SysperfError
from sysperf.model.snapshot import Snapshot
from sysperf.tui.now import meters_of
from sysperf.tui.source import HERE, Changed, Facts, History, Meters, Problem, Publish
from sysperf.tui.sources.load import CpuLoad

INTERVAL_S = 1.0
LOOK_S = 1.0
RETRY_S = 10.0


class Here:
    """Three threads: meters at a fixed rate, audits of the machine, and GPUs, whose driver can hang."""

    name = HERE
    local = True
    live = True
    remembers = False

    def __init__(
        self,
        load: Callable[[], Terms],
        interval_s: float = INTERVAL_S,
        auditor: Callable[[Terms], Auditor] | None = None,
    ) -> None:
        self._load = load
        self._interval_s = interval_s
        self._transactions = PastTransactions()
        self._make = auditor or (lambda terms: Auditor(terms, Scanner(), Gpus()))
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._again = threading.Event()
        self._load_of_cpus = CpuLoad()
        self._publish: Publish = lambda _: None
        self._pids: tuple[int, ...] = ()
        self._groups: tuple[str, ...] = ()
        self._of_gpus: dict[str, float] = {}
        self._unknown: dict[str, str] = {}
        self._facts_of_gpus: dict[str, float] = {}

    def start(self, publish: Publish) -> None:
        self._publish = publish
        for name, work in (("meters", self._sample), ("look", self._audit), ("gpu", self._sample_gpus)):
            threading.Thread(target=work, args=(publish,), name=f"sysperf-{name}", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self._soon.set()
        self.watch_cpus(on=False)

    def look_again(self) -> None:
        """Judge with rules and waivers as they are now."""
        self._again.set()
        self._soon.set()

    def watch_cpus(self, *, on: bool) -> None:
        self._load_of_cpus.watch(self._publish, on=on)

    def workers(self, pid: int) -> Workers | None:
        return workers.read(Host(), pid)

    def series(self) -> list[tuple[str, str]]:
        return []

    def history(self, names: Sequence[str], span_s: float, points: int) -> History:  # noqa: ARG002 - as the others
        return History({})

    # ------------------------------------------------------------------ threads

    def _sample(self, publish: Publish) -> None:
        system, programs = System(), Programs()
        due = time.monotonic()
        while not self._stop.is_set():
            with _reported(publish):
                programs.watch(self._pids)
                system.watch_groups(self._groups)
                values = {**self._facts_of_gpus, **system.sample(), **programs.sample()[0], **self._of_gpus}
                publish(Meters(time.time(), values, self._unknown))
            now = time.monotonic()
            due += self._interval_s
            if due <= now:  # late: a whole interval from now, for a rate over the moment of catching up would say nothing
                due = now + self._interval_s
            self._stop.wait(due - now)
        programs.close()
        system.close()

    def _audit(self, publish: Publish) -> None:
        auditor: Auditor | None = None
        known: tuple[Transaction, ...] | None = None
        while not self._stop.is_set():
            with _reported(publish):
                if auditor is None:
                    auditor = self._make(self._load())
                elif self._again.is_set():
                    auditor.renew(self._load())
                    publish(Problem(""))
                self._again.clear()
                known = self._changed(auditor, known, publish)
                if auditor.due():
                    self._apply_result(auditor, auditor.run_pass(), publish)
            self._soon.wait(LOOK_S if auditor else RETRY_S)
            self._soon.clear()

    def _changed(self, auditor: Auditor, known: tuple[Transaction, ...] | None, publish: Publish) -> tuple[Transaction, ...]:
        """Look at once at what somebody has changed or taken back, here or on a command line. Returns what is known now."""
        transactions = self._transactions()
        if known is not None and transactions != known:
            auditor.changed(transaction for transaction in transactions if transaction not in known)
            publish(Changed(transactions))
        return transactions

    def _apply_result(self, auditor: Auditor, audit_pass: AuditPass, publish: Publish) -> None:
        report = auditor.report()
        self._pids = tuple(_pids(audit_pass.snapshot))
        self._groups = auditor.throttle_files
        self._facts_of_gpus = {name: value for name, value in meters_of(audit_pass.snapshot).items() if name.startswith("gpu.")}
        publish(Facts(report))

    def _sample_gpus(self, publish: Publish) -> None:
        gpus = Gpus()
        while not self._stop.is_set():
            with _reported(publish):
                self._of_gpus = gpus.sample() if self._facts_of_gpus else {}
                self._unknown = gpus.unknown
            self._stop.wait(self._interval_s if self._facts_of_gpus else LOOK_S)
        gpus.close()


@contextlib.contextmanager
def _reported(publish: Publish) -> Iterator[None]:
    """What fails is a problem to show; the other threads go on, and this one tries again."""
    try:
        yield
    except SysperfError as error:
        publish(Problem(f"{error}. {error.hint}"))
    except Exception as error:  # noqa: BLE001 - a thread that ends without a word would leave a screen that looks alive
        publish(Problem(f"internal error: {type(error).__name__}: {error}"))


def _pids(snapshot: Snapshot) -> Iterable[int]:
    return (process.pid for process in MachineFacts(snapshot.areas).programs)

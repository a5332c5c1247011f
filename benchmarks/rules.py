"""How long our own rules over 64 programs take (promise: at most 50 ms).

    python benchmarks/rules.py [--runs 11]                      processor time, so that other programs count less

The programs are made up, with every fact known: zero, no and empty. In a second round one in sixteen says one and yes instead:
conditions cost little, telling a person about a finding (evidence, message, fix) costs some 0.3 ms. Loading and compiling
are printed apart: an agent does them once. Asserts nothing.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

from sysperf.engine import judging, reading
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import JUDGED, Judge, scope_names
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.schema import Schema, element, fields, is_record, kind
from sysperf.evaluate.selftest import partial
from sysperf.host import Host
from sysperf.model.snapshot import Snapshot

PROGRAMS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs

    start = time.process_time()
    ruleset = judging.load_rules()
    compiled = [ruleset.compiled(rule.key) for rule in ruleset.rules if rule.scope in JUDGED]
    for rule in compiled:
        _ = (rule.applies, rule.when)
    print(f"load and compile {len(compiled)} rules: {(time.process_time() - start) * 1e3:.0f} ms, once")

    names = scope_names(reading.snapshot(Host()))
    schema = judging.schema()
    for sick in (0, PROGRAMS // 16):
        measure(compiled, {**names, "procs": processes(schema, sick)}, ruleset, runs)


def measure(compiled: list[Compiled], names: dict[str, object], ruleset: Ruleset, runs: int) -> None:
    """Print how long all rules take on these processes."""
    times = []
    for _ in range(runs + 1):
        gc.collect()
        judge = Judge(names, ruleset.tables, Ledger(Snapshot(taken_at="", areas={})))
        start = time.process_time()
        for rule in compiled:
            judge.rule(rule)
        times.append((time.process_time() - start) * 1e3)
    low, middle, high = statistics.quantiles(times[1:], n=4)
    tally = judge.tally()
    print(f"evaluate {len(compiled)} rules x {PROGRAMS} programs: {middle:.1f} ms [{low:.1f}-{high:.1f}]")
    print(f"  passed {tally.passed}, not applicable {tally.not_applicable}, findings {tally.findings}, unknown {tally.unknown}")


def processes(schema: Schema, sick: int) -> tuple[object, ...]:
    """Made-up processes with every field known; the first `sick` of them say yes to everything."""
    record = element(schema.roots["procs"])
    return tuple(known(record, number, int(number < sick)) for number in range(PROGRAMS))


def known(record: type, number: int, value: int) -> object:
    """A process whose facts are all known: zero, empty, or its number."""

    given = {name: sample(field.type, value) for name, field in fields(record).items()}
    given["pid"] = 1000 + number
    return partial(record, {name: value for name, value in given.items() if value is not None}, "proc")


def sample(annotation: object, number: int) -> object:
    """A known value of this type: zero or one, no or yes, empty, or a record of such."""
    if is_record(annotation):
        return {name: value for name, field in fields(annotation).items() if (value := sample(field.type, number)) is not None}
    values = {"number": number, "text": "", "truth": bool(number), "list": [], "mapping": {}, "cpus": "0-3", "version": "2.13.0"}
    return values.get(kind(annotation))


if __name__ == "__main__":
    main()

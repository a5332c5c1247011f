"""How long 1,000 rules over 100 processes take (promise: at most 50 ms), and where the time goes.

    python benchmarks/rules.py [--runs 11]

The rules are our own process rules, repeated under other ids; the processes are made up, with every fact known: zero, no
and empty. In a second round one process in twenty says one and yes instead, which makes some five hundred findings:
conditions cost little, telling a person about a finding (evidence, message, fix) costs some 0.3 ms. Loading and compiling
are printed apart: an agent does them once. Asserts nothing.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import time

import msgspec

from sysperf.engine import judging, reading
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import Judge, scope_names
from sysperf.evaluate.ruleset import Compiled, Ruleset, read_file
from sysperf.evaluate.schema import Schema, element, fields, is_record, kind
from sysperf.evaluate.selftest import partial
from sysperf.host import Host
from sysperf.model.rule import RuleFile
from sysperf.model.snapshot import Snapshot

RULES = 1_000
PROCESSES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs

    schema = judging.schema()
    files = [read_file(path) for path in judging.rule_files()]
    ours = [rule for file in files for rule in file.rule if rule.scope == "process"]
    many = tuple(
        msgspec.structs.replace(rule, id=f"{rule.id}.n{number}") for number, rule in zip(range(RULES), itertools.cycle(ours), strict=False)
    )
    start = time.perf_counter()
    ruleset = Ruleset([*(msgspec.structs.replace(file, rule=()) for file in files), RuleFile(rule=many)], schema)
    compiled = [ruleset.compiled(rule.id) for rule in many]
    for rule in compiled:
        _ = rule.sieve
    print(f"compile {RULES} rules ({len(ours)} distinct): {(time.perf_counter() - start) * 1e3:.0f} ms, once")

    names = scope_names(reading.snapshot(Host()))
    for sick in (0, PROCESSES // 20):
        measure(compiled, {**names, "procs": processes(schema, sick)}, ruleset, runs)
    slow = sum(1 for rule in compiled if rule.sieve.__name__ != "sieve")
    print(f"{slow} of {RULES} rules have a construct that only the exact evaluation knows")


def measure(compiled: list[Compiled], names: dict[str, object], ruleset: Ruleset, runs: int) -> None:
    """Print how long all rules take on these processes."""
    times = []
    for _ in range(runs + 1):
        gc.collect()
        court = Judge(names, ruleset.tables, Ledger(Snapshot(taken_at="", areas={})))
        start = time.perf_counter()
        for rule in compiled:
            court.rule(rule)
        times.append((time.perf_counter() - start) * 1e3)
    low, middle, high = statistics.quantiles(times[1:], n=4)
    tally = court.tally()
    print(f"evaluate {RULES} rules x {PROCESSES} processes: {middle:.1f} ms [{low:.1f}-{high:.1f}]")
    print(f"  passed {tally.passed}, not applicable {tally.not_applicable}, findings {tally.findings}, unknown {tally.unknown}")


def processes(schema: Schema, sick: int) -> tuple[object, ...]:
    """Made-up processes with every field known; the first `sick` of them say yes to everything."""
    record = element(schema.roots["procs"])
    return tuple(known(record, number, int(number < sick)) for number in range(PROCESSES))


def known(record: type, number: int, one: int) -> object:
    """A process whose facts are all known: zero, empty, or its number."""

    given = {name: sample(field.type, one) for name, field in fields(record).items()}
    given["pid"] = 1000 + number
    return partial(record, {name: value for name, value in given.items() if value is not None}, "proc")


def sample(annotation: object, one: int) -> object:
    """A known value of this type: zero or one, no or yes, empty, or a record of such."""
    if is_record(annotation):
        return {name: value for name, field in fields(annotation).items() if (value := sample(field.type, one)) is not None}
    values = {"number": one, "text": "", "truth": bool(one), "list": [], "mapping": {}, "cpus": "0-3", "version": "2.13.0"}
    return values.get(kind(annotation))


if __name__ == "__main__":
    main()

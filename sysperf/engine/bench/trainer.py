"""The trainer of a plugin, run in the interpreter of the user's that has torch."""

from __future__ import annotations

import json
import os
import tempfile

from sysperf import plugin
from sysperf.engine.bench.ladder import Configuration
from sysperf.engine.bench.state import Request, name_of
from sysperf.engine.verify import measuring, workload
from sysperf.host.commands import sysperf_command
from sysperf.model.comparison import Variant
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import Json
from sysperf.model.text import neutral
from sysperf.verify import run

WORKLOADS = ("text", "vision")
MAX_RECORD_BYTES = 16 << 20
LIST_LIMIT_S = 300.0


class Trainer:
    """The plugin's trainer in the interpreter of the user's that has torch."""

    def __init__(self, request: Request) -> None:
        if request.workload not in WORKLOADS:
            raise UsageError(f"--workload {request.workload}: no such workload", f"workloads are {', '.join(WORKLOADS)}")
        self.request = request
        self.plugin = plugin.trainer(request.trainer)
        self.python = workload.interpreter(request.python)
        self.rungs = self.plugin.rungs(request.workload)
        unknown = sorted(set(request.rungs) - {rung.id for rung in self.rungs})
        if unknown:
            raise UsageError(f"--rungs {', '.join(unknown)}: no such rung", f"rungs are {', '.join(rung.id for rung in self.rungs)}")

    def variant(self, configuration: Configuration, *arguments: str) -> Variant:
        """Return how a configuration is started, with further arguments."""
        request = self.request
        start = self.plugin.start(
            self.python, request.workload, configuration, (*request.arguments, *arguments), ranks=request.ranks, sysperf=sysperf_command()
        )
        return Variant(name_of(configuration), start.argv, dict(start.environment))

    def lacks(self) -> dict[str, str]:
        """Return why rungs cannot be had here. Raises SysperfError where the trainer does not say."""
        with tempfile.TemporaryDirectory(prefix="sysperf-bench-") as folder:
            variant = self.variant((), "--list", "--json", f"{folder}/list.json")
            done = run.run(variant.argv, variant.environment(dict(os.environ)), limit_s=LIST_LIMIT_S)
            measuring.check(variant, done, LIST_LIMIT_S)
            listed = read_record(f"{folder}/list.json")
        return {str(rung["id"]): neutral(str(rung["lacks"]), 300) for rung in listed if rung.get("lacks")}


def read_record(path: str) -> Json:
    """Return what a run of the trainer wrote. Raises SysperfError."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError) as error:
        raise SysperfError(f"the trainer wrote no record: {error}", "run it by itself to see why") from None

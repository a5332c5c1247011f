"""The trainer of a plugin, run in the interpreter of the user's that has torch."""

from __future__ import annotations

import json
import os
import subprocess

from sysperf import plugin
from sysperf.engine.bench.ladder import Configuration
from sysperf.engine.bench.state import Request, name_of
from sysperf.engine.verify import workload
from sysperf.host.commands import sysperf_command
from sysperf.model.comparison import Variant
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import Json
from sysperf.model.text import neutral

WORKLOADS = ("text", "vision")
MAX_RECORD_BYTES = 16 << 20
LIST_LIMIT_S = 300.0
HINT = "does `python -c 'import torch'` work in that interpreter? name another one with --python"


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

    def variant(self, configuration: Configuration, *arguments: str, ranks: int = 0) -> Variant:
        """Return how a configuration is started, with further arguments, by as many ranks as were asked for or as are named."""
        request = self.request
        start = self.plugin.start(
            self.python,
            request.workload,
            configuration,
            (*request.arguments, *arguments),
            ranks=ranks or request.ranks,
            sysperf=sysperf_command(),
        )
        return Variant(name_of(configuration), start.argv, dict(start.environment))

    def lacks(self) -> dict[str, str]:
        """Return why rungs cannot be had here. Raises SysperfError where the trainer does not say."""
        variant = self.variant((), "--list", "--json", "-", ranks=1)
        try:
            env = {**variant.environment(dict(os.environ)), "WORLD_SIZE": str(self.request.ranks)}  # as torchrun tells each rank
            done = subprocess.run(variant.argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIST_LIMIT_S, check=True)
            listed = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            last = neutral((getattr(error, "stderr", None) or b"").decode(errors="replace"), 400)
            raise SysperfError(f"the trainer does not say what can be had here: {neutral(str(error), 200)} {last}", HINT) from None
        return {str(rung["id"]): neutral(str(rung["lacks"]), 300) for rung in listed if rung.get("lacks")}


def read_record(path: str) -> Json:
    """Return what a run of the trainer wrote. Raises SysperfError."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError) as error:
        raise SysperfError(f"the trainer wrote no record: {error}", HINT) from None

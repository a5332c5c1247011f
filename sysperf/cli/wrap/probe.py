"""`sysperf wrap --probe`: count the steps of an unmodified program while it runs, and say at its end how many and how fast."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sysperf import paths
from sysperf.cli.wrap.options import say
from sysperf.host import files
from sysperf.model.steps import CountedSteps, ProcessSteps
from sysperf.model.text import neutral
from sysperf.verify import probe

if TYPE_CHECKING:
    from sysperf.cli.wrap.options import Options

FOLDER = "SYSPERF_PROBE_FOLDER"
MAX_PROCESSES = 4_096
WHAT = {"optimizer": "optimizer step", "forward": "call of a model"}
PLURAL = {"optimizer": "optimizer steps", "forward": "calls of a model"}
NOT_STARTED = (126, 127)


class Probe:
    """A folder in which a program's processes, of each instance, write their steps; None where it cannot be."""

    def __init__(self, args: Options, env: Mapping[str, str]) -> None:
        self.args = args
        self.folder = ""
        if env.get(FOLDER):
            say("probe: a sysperf around this one counts already")
            return
        try:
            self.folder = tempfile.mkdtemp(prefix="sysperf-probe-", dir=paths.temporary_home())
        except OSError as error:
            say(f"probe: nothing will be counted: {error.strerror or error}")

    def environment(self, env: Mapping[str, str], instance: int = 0) -> dict[str, str]:
        """Return the variables with which the program's Python counts."""
        if not self.folder:
            return dict(env)
        folder = f"{self.folder}/{instance}"
        with contextlib.suppress(OSError):  # a full disk: that there are no counts is said at the end
            os.makedirs(folder, exist_ok=True)
        return {**env, **probe.environment(folder, env, self.args.max_steps, self.args.probe)}

    def around(self, run: Callable[[], int]) -> int:
        """Run the program, say what was counted, and return its exit code."""
        try:
            code = run()
            if self.folder:
                try:
                    self._tell(self._counted(code))
                except OSError as error:
                    say(f"probe: the counts cannot be read: {error.strerror or error}")
            return code
        finally:
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _counted(self, code: int) -> CountedSteps:
        """Raises OSError where the folder is gone: the program, or who cleans the temporary folder, removed it."""
        folders = [f"{self.folder}/{number}" for number in range(self.args.nproc or 1)]
        instances = [probe.read(folder, MAX_PROCESSES) for folder in folders]
        processes = [_process(steps, number if self.args.nproc else None) for number, counts in enumerate(instances) for steps in counts]
        losses = [loss for folder in folders if (loss := probe.read_loss(folder)) is not None]
        return CountedSteps(self.args.probe, code, tuple(processes), losses[0] if losses else None)

    def _tell(self, counted: CountedSteps) -> None:
        is_wrong = not counted.processes and counted.exit_code not in NOT_STARTED
        if is_wrong or (counted.processes and not self.args.quiet):
            say(f"probe: {line(counted)}")
        if self.args.output:
            from sysperf.report.formats import as_json  # noqa: PLC0415 - a launch that writes no file does without

            try:
                files.replace(self.args.output, as_json.dump({"schema": 1, "steps": counted}).encode())
            except OSError as error:
                say(f"probe: {neutral(self.args.output, 500)}: {error.strerror or error}")


def line(counted: CountedSteps) -> str:
    """Return what was counted in one line."""
    what, processes = PLURAL[counted.counts], counted.processes
    if not processes:
        other = "forward" if counted.counts == "optimizer" else "optimizer"
        return (
            f"no {what} were counted: the program must run in a Python that reads PYTHONPATH (not -I, -E, -S), "
            f"with torch 2.0 or newer; --probe={other} counts {PLURAL[other]}"
        )
    numbers = _range([process.steps for process in processes], "{:d}")
    steps = f"{numbers} {WHAT[counted.counts] if numbers == '1' else what}"
    rates = [process.steps_per_s for process in processes if process.steps_per_s is not None]
    rate = f", {_range(rates, '{:.4g}')} a second after a warm-up of {max(process.warm_up_steps for process in processes)}" if rates else ""
    return f"{steps}{rate} (process {processes[0].pid})" if len(processes) == 1 else f"{steps} in each of {len(processes)} processes{rate}"


def _process(steps: probe.Steps, instance: int | None) -> ProcessSteps:
    warm_up = probe.warm_up_steps(steps, steps)
    return ProcessSteps(steps.pid, len(steps.times), warm_up, probe.steps_per_s(steps, warm_up), instance)


def _range(values: Sequence[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"

"""The training loop, and what is built for it. Each line that a rung changes is in the file of its concern."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.optim import Optimizer

from sysperf_trainer import data, feed, flops, garbage, model, optimizer, precision, profiling, ranks, record
from sysperf_trainer.checkpoint import Checkpoints, State
from sysperf_trainer.display import Display
from sysperf_trainer.errors import TrainerError
from sysperf_trainer.interrupts import Interrupts
from sysperf_trainer.metrics import Clock, Losses
from sysperf_trainer.model import Model
from sysperf_trainer.options import Options
from sysperf_trainer.ranges import ranges
from sysperf_trainer.ranks import Ranks
from sysperf_trainer.record import Record
from sysperf_trainer.step import Step
from sysperf_trainer.workload import Batch, Workload, workload


class Setup(NamedTuple):
    """What a run has before its first step."""

    workload: Workload
    model: Model
    optimizer: Optimizer
    checkpoints: Checkpoints
    first_step: int
    batches: Iterator[Batch]
    damaged: feed.Damaged


def set_up(options: Options, together: Ranks) -> Setup:
    """Build the workload's data, model and optimizer, from the seed or from a checkpoint. Raises TrainerError."""
    device = torch.device(options.device)
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(options.deterministic)
    precision.set_matmul_precision(options.rungs)
    work = workload(options)
    if together.is_first:
        work.dataset()
    ranks.wait_for_all(together)
    its_model = model.build(work, device, options.rungs, together)
    its_optimizer = optimizer.build(work, its_model.plain, options.rungs)
    checkpoints = Checkpoints(options.checkpoints, options.rungs)
    first_step = restore(options, checkpoints, its_model, its_optimizer) if options.resume else 0
    damaged = feed.Damaged()
    made = damaged.counted(data.batches(work.dataset(), work, options.rungs, together, options.seed, first_step))
    on_device = feed.feed(made, device, work.finish, options.rungs)
    batches = feed.repeated(on_device) if options.data == "cached" else on_device
    return Setup(work, its_model, its_optimizer, checkpoints, first_step, batches, damaged)


class Training:
    """The steps of one run, from a process that is alone or one of several ranks."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.named = ranges(options.ranges)
        self.device = torch.device(options.device)
        self.ranks = ranks.join(self.device)
        self.setup = set_up(options, self.ranks)
        self.step = Step(self.setup.model, self.setup.optimizer, options.rungs, self.named, self.device)
        self.losses = Losses(options.rungs)
        self.display = Display(options, self.setup.first_step)
        self.clock = Clock(self.device)
        self.saved_step = self.setup.first_step
        self.was_interrupted = False

    def run(self) -> None:
        """Make all steps, or those until somebody interrupts. Raises TrainerError."""
        garbage.begin(self.options.rungs)
        with profiling.tracing(self.options) as traced_step, Interrupts(self.ranks) as interrupts:
            self.clock = Clock(self.device)
            for number in range(self.setup.first_step + 1, self.options.max_steps + 1):
                with self.named("step"):
                    with self.named("data"):
                        batch = next(self.setup.batches)
                    self.losses.add(self.step(batch))
                self.after(number)
                traced_step()
                if interrupts.asked:
                    self.was_interrupted = True
                    break
            self.clock.stop()

    def after(self, number: int) -> None:
        """Do what is due between two steps."""
        self.clock.add()
        self.display.update(number, self.losses.values, self.clock.last_step_s())
        garbage.collect(number)
        if self.options.checkpoint_every and number % self.options.checkpoint_every == 0:
            self.save()

    def leave(self, skipped: dict[str, str], error: str = "") -> None:
        """Write the last checkpoint and the record, and part from the other ranks; `error` says what ended the steps, if anything did."""
        if not error:
            self.losses.read()
            if self.options.checkpoints and self.saved_step < self.made_steps():
                self.save()
        self.display.end(self.losses.values, self.clock.last_step_s())
        self.setup.checkpoints.wait()
        if self.options.json and self.ranks.is_first:
            record.write(self.record(skipped, error), self.options.json)
        if not error:
            ranks.leave(self.ranks)

    def made_steps(self) -> int:
        """Return how many steps the weights have seen, in this run and those before it."""
        return self.setup.first_step + len(self.clock.ends_s)

    def save(self) -> None:
        """Write a checkpoint. Every rank has the same weights, so the first one writes for all."""
        self.saved_step = self.made_steps()
        if self.ranks.is_first:
            self.setup.checkpoints.save(self.saved_step, state(self.options, self.setup, self.saved_step))

    def checkpoint_failed(self) -> bool:
        """Whether the last checkpoint could not be written."""
        return bool(self.setup.checkpoints.failed)

    def record(self, skipped: dict[str, str], error: str = "") -> Record:
        """Return what is known of the run, also of one that did not reach its end."""
        options, work = self.options, self.setup.workload
        flop = flops.per_sample(options)
        units_per_s = (
            None if options.trace or self.clock.steps_per_s is None else self.clock.steps_per_s * work.batch * work.units_per_sample
        )
        return Record(
            workload=options.workload,
            rungs=[rung.id for rung in options.rungs],
            skipped=skipped,
            device=torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu",
            torch=torch.__version__,
            ranks=self.ranks.size,
            size=options.size,
            data=options.data,
            batch=work.batch,
            units_per_sample=work.units_per_sample,
            unit=work.unit,
            weights=sum(weight.numel() for weight in self.setup.model.plain.parameters()),
            seed=options.seed,
            threads=torch.get_num_threads(),
            loader_workers=data.workers(options.rungs, self.ranks),
            flop_per_sample=flop,
            first_step=self.setup.first_step,
            steps=len(self.clock.ends_s),
            parts=self.step.parts,
            losses=self.losses.values,
            step_ends_s=[round(end, 6) for end in self.clock.ends_s],
            units_per_s=units_per_s,
            flop_per_s=units_per_s / work.units_per_sample * flop if units_per_s else None,
            peak_memory_bytes=peak_memory_bytes(self.device),
            damaged_samples=self.setup.damaged.count,
            checkpoints=self.setup.checkpoints.written,
            checkpoint_error=self.setup.checkpoints.failed,
            interrupted=self.was_interrupted,
            error=error,
        )


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most that a GPU's tensors took, or on a CPU the largest resident size of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def state(options: Options, setup: Setup, step: int) -> State:
    """Return all that the next step depends on. Data follows from the seed and the number of steps."""
    moments = setup.optimizer.state_dict()["state"]
    return {
        "run": run_identity(options),
        "step": step,
        "model": setup.model.plain.state_dict(),
        "optimizer": {str(number): values for number, values in moments.items()},  # distributed checkpoints keep names only
        "random": torch.get_rng_state(),
    }


def restore(options: Options, checkpoints: Checkpoints, its_model: Model, its_optimizer: Optimizer) -> int:
    """Go on from the newest whole checkpoint, and return its step; 0 where there is none. Raises TrainerError."""
    found = checkpoints.newest()
    if found is None:
        return 0
    if found["run"] != run_identity(options):
        raise TrainerError(f"the checkpoint is of another run: {found['run']}, and this is {run_identity(options)}")
    try:
        its_model.plain.load_state_dict(found["model"])
    except RuntimeError as error:  # such as another size of the vocabulary
        raise TrainerError(f"the checkpoint is of a model of another shape: {str(error).splitlines()[-1].strip()}") from None
    moments = {int(number): values for number, values in found["optimizer"].items()}
    its_optimizer.load_state_dict({**its_optimizer.state_dict(), "state": moments})
    torch.set_rng_state(found["random"])
    return int(found["step"])


def run_identity(options: Options) -> str:
    """Return what must be the same before and after a checkpoint."""
    return f"{options.workload}, size {options.size}, batch {options.batch or 'default'}, seed {options.seed}"

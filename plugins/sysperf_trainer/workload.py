"""What the loop knows of a workload, and the two that there are."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from sysperf_trainer.options import Options
from sysperf_trainer.rung import TEXT

Batch = tuple[Tensor, Tensor]
"""What a model is given and what it should answer; the first dimension of both counts samples."""


class Workload(Protocol):
    """A model, its data, and how large both are."""

    unit: str
    """What one counts a second: tokens or images."""
    units_per_sample: int
    batch: int
    """Samples a step and rank."""

    def dataset(self) -> Dataset:
        """Return the samples; make their files where this is the first run. Raises TrainerError."""

    def model(self) -> nn.Module:
        """Return a module that takes a batch and returns its mean loss, with weights that follow from the seed alone."""

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """Return the parts of the model that repeat, in their order."""

    def optimizer(self, model: nn.Module, **more: object) -> Optimizer:
        """Return the optimizer of the model's weights."""

    def sample(self) -> Batch:
        """Return one sample without content, as the model takes it."""

    def finish(self, batch: Batch) -> Batch:
        """Return a batch as the model takes it, from one as the dataset gives it."""


def workload(options: Options) -> Workload:
    """Return the workload of these options. The other one's packages may be absent. Raises TrainerError."""
    if options.workload == TEXT:
        from sysperf_trainer.text.workload import Text  # noqa: PLC0415

        return Text(options)
    from sysperf_trainer.vision.workload import Vision  # noqa: PLC0415

    return Vision(options)

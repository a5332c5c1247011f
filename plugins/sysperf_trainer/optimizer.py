"""How the weights are updated."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.workload import Workload


def build(workload: Workload, model: nn.Module, chosen: Chosen) -> Optimizer:
    """Return the workload's optimizer; without the rung it is torch's default: weight by weight on a CPU, in groups on a GPU."""
    implementation: dict[str, bool] = {"fused": True} if "fused-optimizer" in chosen else {}
    return workload.optimizer(model, **implementation)


def clear_gradients(optimizer: Optimizer, chosen: Chosen) -> None:
    """Forget the gradients of a step, or fill them with zeros as torch did before 2.0."""
    optimizer.zero_grad(set_to_none="set-to-none" in chosen)

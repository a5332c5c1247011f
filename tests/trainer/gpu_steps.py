"""One step at the sizes of a GPU without one: `python gpu_steps.py WORKLOAD SIZE RUNG,… [--real]`, in the interpreter that has torch.

Tensors have shapes, types and layouts, and no memory (FakeTensorMode). `--real` computes three steps on the CPU instead.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from sysperf_trainer import model, optimizer
from sysperf_trainer.chosen import Chosen
from sysperf_trainer.feed import one_ahead
from sysperf_trainer.options import Options
from sysperf_trainer.ranges import ranges
from sysperf_trainer.ranks import Ranks
from sysperf_trainer.step import Step
from sysperf_trainer.workload import workload
from torch._subclasses.fake_tensor import FakeTensorMode

CPU = torch.device("cpu")


def moved(module: Any, *where: Any, **layout: Any) -> Any:
    """Do what `Module.to` does, which refuses tensors without memory."""
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and (tensor.dim() == 4 or not layout):
                    now = tensor.detach().to(*where, **layout)
                    tensors[name] = torch.nn.Parameter(now) if tensors is part._parameters else now
    return module


def steps(options: Options, count: int) -> dict[str, Any]:
    """Make steps with a batch without content, and return what is known of them."""
    torch.manual_seed(options.seed)
    work = workload(options)
    built = model.build(work, CPU, options.rungs, Ranks())
    step = Step(built, optimizer.build(work, built.plain, options.rungs), options.rungs, ranges("none"), CPU)
    losses = [step(model.example(work, CPU)) for _ in range(count)]
    return {
        "weights": sum(weight.numel() for weight in built.plain.parameters()),
        "names": len(built.plain.state_dict()),
        "shape": list(losses[-1].shape),
        "losses": [float(loss) for loss in losses] if count > 1 else [],
        "layouts": sorted({str(weight.stride()[1]) for weight in built.plain.parameters() if weight.dim() == 4 and weight.shape[2] > 1}),
    }


def order_of_batches() -> list[float]:
    """Return the batches that the copying stream gives, where streams do nothing."""
    import contextlib

    class Nothing:
        def __init__(self, *_arguments: Any) -> None:
            """Take what a stream takes."""

        def wait_stream(self, _other: Any) -> None:
            """Return at once."""

    cuda: Any = torch.cuda
    cuda.Stream, cuda.current_stream, cuda.stream = Nothing, Nothing, contextlib.nullcontext
    torch.Tensor.record_stream = lambda _tensor, _stream: None
    made = ((torch.tensor(float(number)), torch.tensor(0)) for number in range(6))
    taken = one_ahead(made, lambda batch: batch)
    return [float(next(taken)[0]) for _ in range(5)]


def main() -> None:
    if sys.argv[1] == "order":
        found: Any = order_of_batches()
    else:
        name, size, rungs = sys.argv[1:4]
        options = Options(name, Chosen(filter(None, rungs.split(","))), size=size)
        if "--real" in sys.argv:
            found = steps(options, 3)
        else:
            torch.nn.Module.to = moved
            with FakeTensorMode(allow_non_fake_inputs=True):
                found = steps(options, 1)
    sys.stdout.write(json.dumps(found))


main()

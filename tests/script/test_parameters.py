"""Tensors of a model: parameters, gradients and buffers that Python asks, reads, or changes one by one."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, sure

STEP = """
import torch
device = torch.device("cuda")
def train(model, averaged, loader, optimizer, options):
    model.to(device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
{code}
        optimizer.step()
"""
FORWARD = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("ready", torch.zeros(1))
        self.size = 3
    def forward(self, x):
        {code}
        return x
"""


def step(code: str) -> dict[str, list[int]]:
    """What is said of code in a step."""
    return hits(STEP.format(code="\n".join(f"        {line}" for line in code.split("\n"))))


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("for p in model.parameters():\n    if torch.isnan(p.grad).any():\n        raise ValueError", True),
        ("for name, p in model.named_parameters():\n    if p.grad is not None and p.grad.norm() > 3:\n        print(name)", True),
        ("if (x > 3).any():\n    y = y + 1", True),
        ("mask = y == 2\nif mask.any():\n    seen = model(x[mask])", True),
        ("for p in model.parameters():\n    if p.grad is None or not p.requires_grad or p.dim() > 1:\n        continue", False),
        ("rows = numpy.array(options)\nif (rows > 3).any():\n    y = y + 1", False),
        ("rows = torch.zeros(3)\nif (rows > 3).any():\n    y = y + 1", False),
        ("if any(options) and all(name for name in options):\n    y = y + 1", False),
    ],
)
def test_conditions_on_tensors(code: str, shown: bool) -> None:
    """Python waits for the answer; what lies in the host's memory is there already."""
    assert ("sync.branch-on-loss" in step(code)) == shown


@pytest.mark.parametrize(
    ("code", "rules"),
    [
        ("if self.ready.item() == 0: x = x + 1", {"sync.per-step"}),
        ("x = x * float(self.scale)", {"sync.per-step"}),
        ("if not self.ready: x = x + 1", {"sync.branch-on-loss"}),
        ("if self.scale > 3: x = x + 1", {"sync.branch-on-loss"}),
        ("while self.ready < 3: x = x + 1", {"sync.branch-on-loss"}),
        ("if self.scale is not None and self.ready.shape[0] > 1: x = x + 1", set()),
        ("if self.size > 2 and self.scale.requires_grad: x = x * self.scale", set()),
        ("x = x * float(self.size)", set()),
    ],
)
def test_a_forward_reads_its_parameters(code: str, rules: set[str]) -> None:
    """They lie on the device with the model, whoever moves it."""
    found = hits(FORWARD.format(code=code))
    assert {rule for rule in ("sync.per-step", "sync.branch-on-loss") if rule in found} == rules


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("for p, q in zip(averaged.parameters(), model.parameters()):\n    p.data.mul_(0.9).add_(q.data, alpha=0.1)", True),
        ("for p, q in zip(averaged.parameters(), model.parameters()):\n    p.data.copy_(0.1 * q.data + 0.9 * p.data)", True),
        ("for p, q in zip(averaged.parameters(), model.parameters()):\n    p.data = 0.1 * q.data + 0.9 * p.data", True),
        ("for group in optimizer.param_groups:\n    for p in group['params']:\n        p.grad.data.clamp_(-1, 1)", True),
        ("weights = list(model.parameters())\nfor p in weights:\n    p -= 0.1 * p.grad", True),
        ("for p in model.parameters():\n    p.requires_grad = False", False),
        ("for p in model.parameters():\n    p.grad = None", False),
        ("for p, q in zip(model.parameters(), averaged.parameters()):\n    p.grad = q.grad", False),
        ("for group in optimizer.param_groups:\n    group['lr'] *= 0.9", False),
        ("for part in options:\n    part.add_(1)", False),
        ("if len(loader) % 100 == 0:\n    for p in model.parameters():\n        p.data.mul_(0.9)", False),
        ("torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 0.1)", False),
    ],
)
def test_parameters_are_changed_one_by_one(code: str, shown: bool) -> None:
    """An average of weights in each step; what is only handed over, or done now and then, is none."""
    assert ("optimizer.own-loop" in step(code)) == shown


EACH = "for name, p in model.named_parameters():\n    "
PAIRS = "for p, q in zip(averaged.parameters(), model.parameters()):\n    "


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (f"{EACH}p.grad.clamp_(-3, 3)", True),
        (f"{EACH}p.grad.clamp_(-limits[name], limits[name])", False),
        (f"{EACH}p.grad.mul_(masks[name])", True),
        (f"{EACH}p.grad.mul_(limit / p.grad.norm())", False),
        (f"{EACH}p.data.mul_(limit / p.data.norm())", True),
        (f"{EACH}p.grad.add_(torch.randn_like(p.grad))", False),
        (f"{EACH}p.grad = p.grad.to(torch.float32)", False),
        (f"{EACH}p.grad = torch.tanh(p.grad)", True),
        (f"{EACH}p.data.add_(whiten @ p.grad, alpha=-0.1)", False),
        (f"{EACH}p.data.add_(zeropower_via_newtonschulz5(p.grad), alpha=-0.1)", False),
        (f"{EACH}p.data.add_(p.grad.coalesce(), alpha=-0.1)", False),
        (f"{EACH}if p.grad.is_sparse:\n        continue\n    p.data.add_(p.grad, alpha=-0.1)", False),
        (f"{EACH}if p.grad.is_sparse:\n        raise ValueError\n    p.data.add_(p.grad, alpha=-0.1)", True),
        (f"{EACH}torch.distributed.all_reduce(p.grad)\n    p.grad /= 8", False),
        (f"{PAIRS}p.data.copy_(q.data)", False),
        (f"{PAIRS}p.mul_(0.9).add_(q.detach().cpu(), alpha=0.1)", False),
        (f"{PAIRS}p.to_local().lerp_(q.to_local(), 0.1)", False),
        (f"{PAIRS}with lost.GatheredParameters([p]):\n        p.data.lerp_(q.data, 0.1)", False),
        ("with lost.summon_full_params(model):\n    for p in model.parameters():\n        p.data.mul_(0.9)", False),
        ("with torch.no_grad():\n    for p in model.parameters():\n        p.data.mul_(0.9)", True),
        (f"model = FSDP(model)\n{PAIRS}p.data.lerp_(q.data, 0.1)", False),
        ("from torch.optim.swa_utils import AveragedModel\nAveragedModel(model).update_parameters(model)", False),
    ],
)
def test_some_parameters_are_changed_one_by_one_for_a_reason(code: str, shown: bool) -> None:
    """By products of matrices, limits of their own, shards, ranks, sparse gradients or random numbers, or between devices."""
    assert ("optimizer.own-loop" in step(code)) == shown


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("", "", True),
        ("@torch.compile", "", False),
        ("@torch.compile(fullgraph=True)", "", False),
        ("", "update = torch.compile(update)", False),
        ("", "torch.compile(other)", True),
        ("", "import deepspeed", False),
    ],
)
def test_a_compiled_update_is_few_kernels(before: str, after: str, shown: bool) -> None:
    """torch.compile puts the operators of all parameters together; of shards that DeepSpeed keeps nothing is known."""
    text = f"import torch\n{before}\ndef ema_update(a, b):\n    for p, q in zip(a.parameters(), b.parameters()):\n        p.data.lerp_(q.data, 0.1)\n"
    assert ("optimizer.own-loop" in hits(f"{text}{after.replace('update', 'ema_update')}\n")) == shown


@pytest.mark.parametrize(("base", "shown"), [("torch.optim.Optimizer", True), ("object", False)])
def test_an_optimizer_steps_in_each_step(base: str, shown: bool) -> None:
    """Whoever calls it: that is what an optimizer is for."""
    text = f"import torch\nclass Mine({base}):\n    def step(self, closure=None):\n        for group in self.param_groups:\n"
    text += "            for p in group['params']:\n                p.data.add_(p.grad, alpha=-group['lr'])\n"
    assert ("optimizer.own-loop" in hits(text)) == shown


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ("class EMA:\n    def update(self, model, averaged):", True),
        ("class Schema:\n    def update(self, model, averaged):", False),
        ("class EMA:\n    def copy_to(self, model, averaged):", False),
        ("class Agent:\n    def soft_update(self, model, averaged):", True),
        ("class Agent:\n    def load(self, model, averaged):", False),
        ("class Agent:\n    def run(self):\n        self.soft_update(self.a, self.b)\n    def soft_update(self, model, averaged):", False),
    ],
)
def test_an_average_says_that_it_is_one(head: str, shown: bool) -> None:
    """By its name, where no caller is known; a caller that runs once comes before the name."""
    text = f"import torch\n{head}\n        for p, q in zip(averaged.parameters(), model.parameters()):\n            p.data.lerp_(q.data, 0.1)\n"
    assert ("optimizer.own-loop" in hits(text)) == shown


@pytest.mark.parametrize(
    ("signature", "shown"),
    [
        ("scale_loss", True),
        ("scale_loss: torch.Tensor", True),
        ("scale_loss: float", False),
        ("*, scale_loss: float = 1.0", False),
        ("scale_loss: float | None = None", False),
        ("scale_loss: float | torch.Tensor", True),
    ],
)
def test_an_annotation_says_that_a_parameter_is_a_number(signature: str, shown: bool) -> None:
    """Whatever its name sounds like."""
    text = f"""import torch
def train_step(model, x, y, optimizer, {signature}):
    loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda()) / float(scale_loss)
    loss.backward()
    optimizer.step()
"""
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("read", "shown"),
    [("step_t.item()", False), ("state['step'].item()", False), ("grad.norm().item()", True), ("state['rate'].item()", True)],
)
def test_an_optimizer_counts_its_steps_on_the_host(read: str, shown: bool) -> None:
    """Unless it is asked to be captured."""
    text = f"""import torch
class Own(torch.optim.Optimizer):
    def update(self, x, loss, state, step_t, grad):
        loss.cuda().backward()
        self.optimizer.step()
        return {read}
"""
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("transformers.AdamW(model.parameters(), lr=1e-5)", True),
        ("transformers.optimization.AdamW(model.parameters())", True),
        ("torch.optim.AdamW(model.parameters(), lr=1e-5)", False),
        ("transformers.Adafactor(model.parameters())", False),
        ("transformers.AdamW([temperature])", False),
    ],
)
def test_an_optimizer_of_a_library_that_goes_through_the_parameters(made: str, shown: bool) -> None:
    """It is Adam without kernels for all of them."""
    text = f"import torch, transformers\nmodel.cuda()\noptimizer = {made}\n"
    assert ("optimizer.unfused" in sure(text)) == shown

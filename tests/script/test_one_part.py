"""Whether an optimizer has one part of a model alone: said where a plain script shows it, and nowhere else."""

from __future__ import annotations

import pytest

from sysperf.script.cures.one_part import trains_one_part

SCRIPT = """\
import torch, torchvision
class Net(nn.Module):
    def __init__(self):
        self.body = nn.Conv2d(3, 64, 3)
        self.fc = nn.Linear(64, 5)
    def forward(self, x):
        return self.fc(self.body(x))
class Wrapper(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(64, 5)
        self.act = nn.ReLU()
model = {made}
{before}
optimizer = torch.optim.Adam({weights}, lr=1e-3)
for x, y in loader:
    {call}
    criterion(outputs, y).backward()
    optimizer.step()
"""


def is_one_part(
    made: str = "Net()", before: str = "model.train()", weights: str = "model.fc.parameters()", call: str = "outputs = model(x)"
) -> bool:
    text = SCRIPT.format(made=made, before=before, weights=weights, call=call)
    return trains_one_part(text, 1 + next(number for number, line in enumerate(text.splitlines()) if call in line))


def test_a_head_alone_that_is_updated_is_found() -> None:
    """The rest computes gradients, too, which nobody uses."""
    assert is_one_part()
    assert is_one_part(made="torchvision.models.resnet18(weights='DEFAULT')")
    assert is_one_part(made="resnet(5)", before="model.last = nn.Linear(model.last.in_features, 5)", weights="model.last.parameters()")
    assert is_one_part(weights="[{'params': model.fc.parameters()}]")


@pytest.mark.parametrize(
    "given",
    [
        {"weights": "model.parameters()"},
        {"weights": "[*model.fc.parameters(), *model.body.parameters()]"},
        {"weights": "weights_of(model)"},
        {"made": "Wrapper()"},
        {"made": "something()", "weights": "model.net.parameters()"},
        {"before": "model.body.requires_grad_(False)"},
        {"before": "for p in model.parameters(): p.requires_grad = False"},
        {"before": "freeze(model)"},
        {"before": "other = torch.optim.SGD(model.parameters(), 0.1)"},
        {"before": "clip_grad_norm_(model.parameters(), 1.0)"},
        {"before": "ddp = DistributedDataParallel(model)"},
        {"call": "with torch.no_grad(): outputs = model(x)"},
    ],
)
def test_what_is_frozen_updated_or_unclear_is_not(given: dict[str, str]) -> None:
    """Frozen, all of it in an optimizer, its gradients looked at, handed on, or with no more weights than the part."""
    assert not is_one_part(**given)


def test_a_forward_pass_that_cuts_gradients_off_is_not() -> None:
    text = SCRIPT.format(made="Net()", before="pass", weights="model.fc.parameters()", call="outputs = model(x)")

    assert not trains_one_part(text.replace("self.fc(self.body(x))", "self.fc(self.body(x).detach())"), 16)
    assert not trains_one_part("def broken(:", 1)

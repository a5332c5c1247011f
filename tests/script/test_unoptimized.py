"""Whether a line computes gradients of weights that no optimizer has: said where a plain script shows it, and nowhere else."""

from __future__ import annotations

import pytest

from sysperf.script.cures.unoptimized import calls_unoptimized

SCRIPT = """\
backbone, head = Backbone(), nn.Linear(128, 10)
{before}
optimizer = torch.optim.Adam({weights}, lr=1e-3)
for x, y in loader:
    {call}
    loss = criterion(head(features), y)
    loss.backward()
    optimizer.step()
"""


def is_unoptimized(call: str = "features = backbone(x)", before: str = "backbone.eval()", weights: str = "head.parameters()") -> bool:
    text = SCRIPT.format(before=before, call=call, weights=weights)
    return calls_unoptimized(text, 1 + next(number for number, line in enumerate(text.splitlines()) if "backbone(x" in line))


def test_a_backbone_whose_weights_nobody_updates_is_found() -> None:
    """Its gradients are computed for nothing: eval() does not switch them off."""
    assert is_unoptimized()
    assert is_unoptimized(weights="[{'params': head.parameters(), 'lr': 0.1}]")
    assert is_unoptimized(call="features = backbone(x); head(backbone(x))")
    assert is_unoptimized(before="backbone.load_state_dict(torch.load('a.pt')); backbone.to('cuda')")


@pytest.mark.parametrize(
    ("call", "before", "weights"),
    [
        ("features = backbone(x)", "pass", "[*head.parameters(), *backbone.parameters()]"),
        ("features = backbone(x)", "pass", "model.parameters()"),
        ("features = backbone(x)", "backbone.requires_grad_(False)", "head.parameters()"),
        ("features = backbone(x)", "for p in backbone.parameters(): p.requires_grad = False", "head.parameters()"),
        ("features = backbone(x)", "freeze(backbone)", "head.parameters()"),
        ("features = backbone(x)", "model = nn.Sequential(backbone, head)", "head.parameters()"),
        ("features = backbone(x).detach()", "pass", "head.parameters()"),
        ("with torch.no_grad(): features = backbone(x)", "pass", "head.parameters()"),
        ("features = backbone(x); features = features.detach()", "pass", "head.parameters()"),
        ("other = backbone(x)", "pass", "head.parameters()"),
        ("features = backbone(x)", "optimizer_2 = torch.optim.SGD(backbone.parameters(), 0.1)", "head.parameters()"),
        ("features = backbone(x)", "backbone.layers[0].weight.requires_grad = False", "head.parameters()"),
        ("features = backbone(x)", "pass", "parameters_of(head)"),
    ],
)
def test_what_is_frozen_updated_or_unclear_is_not(call: str, before: str, weights: str) -> None:
    """Frozen, cut off, handed on, in another optimizer, or in a list that nobody can follow."""
    assert not is_unoptimized(call, before, weights)


def test_what_is_no_model_of_the_file_is_not() -> None:
    """A function that somebody else wrote may have no weights; a loss that is a model goes into no other one."""
    text = "from tools import augment\noptimizer = SGD(head.parameters(), 0.1)\nfor x in loader:\n    loss = head(augment(x)).mean()\n    loss.backward()\n"

    assert not calls_unoptimized(text, 4)
    assert not calls_unoptimized(text.replace("head(augment(x))", "vgg(head(x))").replace("from tools", "vgg = VGG()\nfrom tools"), 5)


@pytest.mark.parametrize("off", ["@torch.no_grad()", "@torch.inference_mode()", "@torch.set_grad_enabled(False)"])
def test_a_function_without_gradients_computes_none(off: str) -> None:
    """An evaluation calls both models."""
    text = f"optimizer = SGD(head.parameters(), 0.1)\nbackbone = Net()\n{off}\ndef scores(x):\n    return head(backbone(x))\n"

    assert not calls_unoptimized(text, 5)
    assert calls_unoptimized(text.replace(off, "@cached"), 5)


@pytest.mark.parametrize(
    "made",
    ["backbone = load_frozen_backbone()", "backbone = built(freeze=True)", "backbone = built()\n\nfor p in of(): p.requires_grad = flag"],
)
def test_of_a_file_that_freezes_anything_nothing_is_said(made: str) -> None:
    """What a function gives may be frozen already."""
    text = "optimizer = SGD(head.parameters(), 0.1)\n{}\nhead(backbone(x)).mean().backward()\n"
    source = text.format(made)

    assert not calls_unoptimized(source, len(source.splitlines()))
    assert calls_unoptimized(text.format("backbone = built(requires_grad=True)"), 3)


@pytest.mark.parametrize("text", ["", "def broken(:\n", "x = 1\n" * 300_000])
def test_of_what_cannot_be_read_nothing_is_said(text: str) -> None:
    """No source, no Python, too long."""
    assert not calls_unoptimized(text, 1)

"""Gradients that nobody uses: of a generator in its critic's step."""

from __future__ import annotations

import pytest

from sysperf.script import cures

GAN = """\
import torch
class Trainer:
    def __init__(self, g, d):
        self.g, self.d = g, d
        self.opt_g = torch.optim.Adam(g.parameters())
        self.opt_d = torch.optim.Adam(self.d.parameters())
    def train_d(self, real):
        fake = self.g(torch.randn(9, 9))
        loss = self.d(real).mean() - self.d(fake).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss
    def train_g(self):
        loss = self.d(self.g(torch.randn(9, 9))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
"""


def kind(text: str, line: str) -> str:
    return cures.of_call(text, 1 + next(number for number, one in enumerate(text.splitlines()) if line in one))


def test_a_generator_in_the_step_of_its_critic() -> None:
    """In its own step its gradients are used, and those of the critic go on to it."""
    assert kind(GAN, "fake = ") == "detached"
    assert kind(GAN, "loss = self.d(self.g") == ""
    assert (
        kind(GAN.replace("loss = self.d(self.g(torch.randn(9, 9)))", "made = self.g(0)\n        loss = self.d(made)"), "loss = self.d(made")
        == ""
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fake = self.g(torch.randn(9, 9))", "fake = self.g(torch.randn(9, 9)).detach()"),
        ("self.d(fake)", "self.d(fake.detach())"),
        ("        return loss\n", "        return loss, fake\n"),
        ("        return loss\n", "        self.last = fake\n"),
        ("Adam(self.d.parameters())", "Adam(list(self.d.parameters()) + list(g.parameters()))"),
        ("Adam(self.d.parameters())", "Adam(weights)"),
        ("        self.opt_g.zero_grad()\n", ""),
        ("        self.opt_g.zero_grad()\n", "        if self.steps % 4 == 0:\n            self.opt_g.zero_grad()\n"),
        ("        self.opt_g.zero_grad()\n        loss.backward()", "        loss.backward()\n        self.opt_g.zero_grad()"),
        ("        loss.backward()\n        self.opt_d.step()", "        loss.backward(retain_graph=True)\n        self.opt_d.step()"),
        ("        self.opt_d.step()", "        self.opt_d.step()\n        self.opt_g.step()"),
        ("        return loss\n", "        print(self.g.weight.grad)\n"),
        ("        return loss\n", "        (slope,) = torch.autograd.grad(loss, fake)\n"),
        ("self.g, self.d = g, d", "self.g, self.d = g.requires_grad_(False), d"),
    ],
)
def test_gradients_of_a_generator_that_somebody_may_use(old: str, new: str) -> None:
    """They are cut off already, kept, cleared by nobody, or used in the same step."""
    assert old in GAN
    assert kind(GAN.replace(old, new, 1), "fake = ") == ""


def test_in_one_function_gradients_are_cleared_after_the_critics_step() -> None:
    text = """\
import torch
g, d = G(), D()
opt_g, opt_d = 0, 0
opt_g = torch.optim.Adam(g.parameters())
opt_d = torch.optim.Adam(d.parameters())
for x in loader:
    {first}opt_d.zero_grad()
    fake = g(torch.randn(9, 9))
    loss = d(x).mean() - d(fake).mean()
    loss.backward()
    opt_d.step()
    {then}of_g = d(g(torch.randn(9, 9))).mean()
    of_g.backward()
    opt_g.step()
"""
    assert kind(text.format(first="", then="opt_g.zero_grad()\n    "), "fake = ") == "detached"
    assert kind(text.format(first="opt_g.zero_grad()\n    ", then=""), "fake = ") == ""
    assert kind(text.format(first="", then="opt_g.zero_grad()\n    "), "of_g = ") == ""


BOTH = """\
import torch
from torch import nn
e = nn.Linear(9, 9)
trunk = nn.Linear(9, 9)
g, d = G(8), D(8)
{before}
opt_g = torch.optim.Adam(g.parameters())
opt_d = torch.optim.Adam(d.parameters())
opt_e = torch.optim.Adam(e.parameters())
for x in loader:
    z = torch.randn(9, 9)
    {made}
    opt_d.zero_grad()
    fake = g(z)
    loss = d(x).mean() - d(fake).mean()
    {more}
    loss.backward()
    opt_d.step()
    {then}
    opt_g.zero_grad()
    of_g = d(g(torch.randn(9, 9))).mean()
    of_g.backward()
    opt_g.step()
"""


@pytest.mark.parametrize(
    "part",
    [
        {"made": "z = e(x)", "then": "opt_e.step()"},
        {"made": "z = e.weight", "then": "opt_e.step()"},
        {"before": "def made(x): return e(x)", "made": "z = made(x)", "then": "opt_e.step()"},
        {"made": "z = e(x)", "more": "scaler.step(opt_e)"},
        {"before": "d.trunk = g.trunk"},
        {"before": "g = G(trunk)\nd = D(trunk)"},
        {"before": "d = D(g)"},
        {"before": "d.add_module('g', g)"},
        {"before": "opt_d = 0\nhook(g)"},
        {"more": "loss = loss + e(fake).mean()", "then": "opt_e.step()"},
        {"more": "loss = loss + penalty(d, x, fake)"},
        {"before": "def after(): return fake.mean()"},
        {"then": "scaler.step(opt_g)"},
        {"then": "kept = d.last.mean()"},
        {"then": "other.step()"},
    ],
)
def test_a_generator_through_which_gradients_go_to_others(part: dict[str, str]) -> None:
    """An encoder learns through it, a layer is in both models, or somebody who is out of sight gets one of them or its output."""
    assert kind(BOTH.format_map({"before": "", "made": "", "more": "", "then": "", **part}), "    fake = ") == ""


def test_a_generator_beside_an_encoder() -> None:
    assert kind(BOTH.format_map({"before": "", "made": "", "more": "", "then": ""}), "    fake = ") == "detached"

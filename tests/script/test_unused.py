"""Gradients that nobody uses: of a generator in its critic's step, of a teacher that a loss keeps."""

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
TEACHER = """\
import torch
from torch import nn
class Distil(nn.Module):
    def __init__(self, teacher, heat=4.0):
        super().__init__()
        self.teacher, self.heat = teacher, heat
    def forward(self, x, out, y):
        soft = torch.softmax(self.teacher(x) / self.heat, 1)
        return ((soft - out) ** 2).mean()
def train(student, criterion, loader, opt):
    criterion.teacher.eval()
    for x, y in loader:
        loss = criterion(x, student(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
def check(criterion, student, x, y):
    with torch.no_grad():
        return criterion(x, student(x), y)
teacher = nn.Sequential(nn.Linear(9, 9))
student = nn.Linear(9, 9)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
distil = Distil(teacher)
train(student, distil, loader, opt)
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


def test_a_teacher_that_a_loss_keeps() -> None:
    assert kind(TEACHER, "soft = ") == "unlearned"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.teacher(x) / self.heat, 1)", "self.teacher(x) / self.heat, 1).detach()"),
        ("torch.softmax(self.teacher(x) / self.heat, 1)", "self.teacher(x).argmax(1)"),
        ("        soft = ", "        with torch.no_grad():\n          soft = "),
        ("student.parameters()", "list(student.parameters()) + list(teacher.parameters())"),
        ("student.parameters()", "distil.parameters()"),
        ("        loss = criterion(x, student(x), y)", "        with torch.no_grad():\n            loss = criterion(x, student(x), y)"),
        ("distil = Distil(teacher)", "freeze(teacher)\ndistil = Distil(teacher)"),
        ("distil = Distil(teacher)", "student.teacher = teacher\ndistil = Distil(teacher)"),
        ("teacher = nn.Sequential(nn.Linear(9, 9))", "teacher = zoo.load('large')"),
        ("student = nn.Linear(9, 9)", "student = teacher"),
        ("student = nn.Linear(9, 9)", "student = nn.Sequential(nn.Linear(9, 9), Distil(teacher))"),
        ("        return ((soft - out) ** 2).mean()", "        return (soft > 0.5) * out"),
        ("criterion(x, student(x), y)\n        loss", "criterion(student(x), x, y)\n        loss"),
        ("    for x, y in loader:\n", "    for x, y in loader:\n        x = student(x)\n"),
        ("self.teacher(x)", "self.teacher(out)"),
    ],
)
def test_a_teacher_whose_gradients_are_cut_off_or_used(old: str, new: str) -> None:
    assert old in TEACHER
    assert kind(TEACHER.replace(old, new, 1), "soft = ") == ""


def test_a_loss_has_no_weights() -> None:
    """It is a module that no optimizer has, and all gradients go through it."""
    text = """\
import torch
from torch import nn
class Dice(nn.Module):
    def forward(self, a, b): return (a * b).mean()
net = nn.Linear(9, 9)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = {loss}
for x, y in loader:
    loss = criterion({given}, y)
    loss.backward()
    opt.step()
"""
    assert kind(text.format(loss="nn.BCEWithLogitsLoss()", given="net(x)"), "    loss = ") == ""
    assert kind(text.format(loss="Dice()", given="net(x)"), "    loss = ") == ""
    assert kind(text.format(loss="nn.Sequential(nn.Linear(9, 9))", given="net(x)"), "    loss = ") == ""
    assert kind(text.format(loss="nn.Sequential(nn.Linear(9, 9))", given="x"), "    loss = ") == "unlearned"


PERCEPTUAL = """\
import torch
from torch import nn
from steps import pipeline
vgg = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
net = nn.Conv2d(3, 3, 3)
def restore(x): return net(x) + x
def sample(): return net(torch.randn(1, 3, 8, 8))
def go(data):
    for z in data:
        soft = vgg(z)
        soft.mean().backward()
{before}
opt = torch.optim.Adam(net.parameters())
for x, y in loader:
    {made}
    loss = vgg(x).mean()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("before", "made"),
    [
        ("", "x = restore(x)"),
        ("", "x = sample()"),
        ("", "x = pipeline(x)"),
        ("", "x: torch.Tensor = net(x)"),
        ("", "x = net.image"),
        ("", "x = net.render()"),
        ("", "x = render(net)"),
        ("", "x.add_(net(x))"),
        ("", "x += net(x)"),
        ("", "outs = []; outs.append(net(x)); x = torch.cat(outs)"),
        ("", "(x := net(x))"),
        ("model = nn.DataParallel(net)", "x = model(x)"),
        ("model = nn.Sequential(net, nn.Sigmoid())", "x = model(x)"),
        ("model = net.forward", "x = model(x)"),
        ("image = nn.Parameter(torch.rand(1, 3, 8, 8))", "x = image"),
        ("data = [net(torch.rand(1, 3, 8, 8))]", "x = data[0]"),
        ("net.append(vgg)", ""),
        ("both = nn.ModuleList([net, vgg])", ""),
        ("adapt(vgg)", ""),
        ("vgg = nn.Sequential(net, nn.Conv2d(3, 8, 3))", ""),
        ("trunk = nn.Conv2d(3, 3, 3)\nvgg = nn.Sequential(trunk, nn.Conv2d(3, 8, 3))\nnet = nn.Sequential(trunk)", ""),
    ],
)
def test_what_a_loss_of_features_goes_back_to(before: str, made: str) -> None:
    """Gradients go through a model without an optimizer to what made its input; and its weights may be a part of what learns."""
    assert kind(PERCEPTUAL.format(before=before, made=made), "    loss = ") == ""


def test_data_through_a_model_without_an_optimizer() -> None:
    assert kind(PERCEPTUAL.format(before="", made="x = x.to('cpu')"), "    loss = ") == "unlearned"
    assert kind(PERCEPTUAL.format(before="go(net(torch.rand(9)))", made=""), "    soft = ") == ""


@pytest.mark.parametrize(
    "place",
    [
        "student.loss = distil",
        "student.add_module('loss', distil)",
        "both = nn.DataParallel(nn.ModuleList([student, distil]))",
        "attach(distil)",
        "other = make(distil.parameters())",
        "opt.add_param_group({'params': distil.parameters()})",
    ],
)
def test_a_teacher_whose_keeper_somebody_else_gets(place: str) -> None:
    assert kind(TEACHER.replace("train(student, distil", f"{place}\ntrain(student, distil"), "soft = ") == ""


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

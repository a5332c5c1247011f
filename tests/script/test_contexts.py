"""The same line in two contexts: worth a hit in one of them only (draws 40 and on of docs/validation/lint.md)."""

from __future__ import annotations

import pytest

from tests.script.scripts import sure

STEP = "        loss = criterion(model(x.cuda()), y)\n        loss.backward()\n        optimizer.step()\n"
TRAIN = f"import torch\ndef train(model, loader, criterion, optimizer, args, state):\n    {{before}}\n    for x, y in loader:\n{STEP}        {{line}}\n"
MAYBE = f"import torch\nclass Trainer:\n  def {{name}}(self, x):\n    if {{test}}:\n      return\n    self.total += x.sum().item()\n  def train(self, model, loader, criterion, optimizer):\n    for x, y in loader:\n{STEP}        self.{{name}}(loss)\n"
FORWARD = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n        x = self.net(x)\n        {line}\n"
EVALUATION = "import torch\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        for p in model(x.cuda()):\n            {line}\n"
OPTIONS = """\
import argparse
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
class Engine:
    def __init__(self):
        self.args = parser.parse_args()
        {line}
        self.loader = DataLoader(Images("train"), num_workers=self.args.workers)
    def train(self, model, criterion, optimizer):
        for x, y in self.loader:
            loss = criterion(model(x.cuda()), y)
            loss.backward()
            optimizer.step()
"""

STEPPER = """\
import torch
class Stepper:
    def backward(self, run, batch):
        loss = run(batch)
        loss.backward()
        return loss
    def apply(self):
        {apply}
    def advance(self, run, batch):
        loss = self.backward(run, batch)
        self.apply()
        return loss.item() + torch.cuda.memory_allocated()
"""
BY_KEY = "def train(model, loader, criterion, parts):\n    for x, y in loader:\n        loss = criterion(model(x.to({line})), y)\n        loss.backward()\n        parts.get('optimizer').step()\n        total += loss.item()\n"
FISHER = "import torch\ndef fisher(model, loader, criterion):\n    for x, y in loader:\n        criterion(model(x.cuda()), y).backward()\n        for n, p in model.named_parameters():\n            kept[n] += {line}\n"
METRIC = "import torch\nimport numpy as np\nfrom sklearn import metrics\ndef evaluate(model, loader):\n    model.eval()\n    for x, y in loader:\n        p = model(x.cuda()).cpu().numpy()\n        classes = p.shape[1]\n        {line}\n"


@pytest.mark.parametrize(
    ("rule", "text", "line", "shown"),
    [
        ("sync.per-step", TRAIN.replace("{before}", "calls = [0]"), "if calls[0] == 0:\n            print(loss.item())", False),
        ("sync.per-step", TRAIN.replace("{before}", "calls = [args.n]"), "if calls[0] == 0:\n            print(loss.item())", True),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "if state['step'] == 1:\n            print(loss.item())", False),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "if state['batches'] <= 3:\n            print(loss.item())", False),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "if state['kind'] == 1:\n            print(loss.item())", True),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "if args.write_curves:\n            print(loss.item())", False),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "strides = [int(s) for s in loss.stride()]", False),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "kept = float(loss.detach().cpu())", True),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "if not loss.is_cuda:\n            total = loss.sum().item()", False),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "if loss.is_cuda:\n            total = loss.sum().item()", True),
        ("sync.branch-on-loss", TRAIN.replace("{before}", "pass"), "if loss < 3:\n            model.keep()", True),
        (
            "sync.branch-on-loss",
            TRAIN.replace("{before}", "pass"),
            "loss_after = criterion(model(x), y)\n        if loss_after < loss:\n            model.keep()",
            False,
        ),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "total += torch.optim.LBFGS(args.p).step(closure).item()", False),
        ("sync.per-step", TRAIN.replace("{before}", "pass"), "loss = state['LBFGS'].step(closure)\n        total += float(loss)", True),
        ("sync.per-step", MAYBE.replace("{name}", "maybe_apply"), "not self.due()", False),
        ("sync.per-step", MAYBE.replace("{name}", "maybe_apply"), "not isinstance(x, torch.Tensor)", True),
        ("sync.per-step", MAYBE.replace("{name}", "apply"), "not self.due()", True),
        ("sync.per-step", MAYBE.replace("{name}", "maybe_apply"), "not self.clip_enabled()", True),
        ("program.anomaly-detection-on", TRAIN.replace("{line}", "pass"), "torch.autograd.set_detect_anomaly(True)", True),
        (
            "program.anomaly-detection-on",
            TRAIN.replace("{line}", "pass"),
            "if args.detect_nan:\n        torch.autograd.set_detect_anomaly(True)",
            False,
        ),
        (
            "program.anomaly-detection-on",
            TRAIN.replace("{line}", "pass"),
            "if torch.cuda.is_available():\n        torch.autograd.set_detect_anomaly(True)",
            True,
        ),
        ("program.element-loop", FORWARD, "for t in range(x.shape[0]):\n            self.out(x[t])", True),
        ("program.element-loop", FORWARD, "for t in range(x.shape[0]):\n            self.step_embed(x[t])", True),
        ("program.element-loop", FORWARD, "for t in range(x.shape[0]):\n            self.single_step_forward(x[t], y)", False),
        (
            "program.element-loop",
            FORWARD.replace("x = self.net(x)", "pass"),
            "for i in range(len(x)):\n            self.out(x[i] - y)",
            True,
        ),
        (
            "program.element-loop",
            FORWARD.replace("x = self.net(x)", "n = len(flow_preds)").replace("self, x,", "self, flow_preds,"),
            "for i in range(n):\n            self.out(flow_preds[i] - y)",
            False,
        ),
        (
            "program.element-loop",
            FORWARD.replace("x = self.net(x)", "n = len(feats)").replace("self, x,", "self, feats: torch.Tensor,"),
            "for i in range(n):\n            self.out(feats[i] - y)",
            True,
        ),
        ("sync.per-step", EVALUATION, "p = p.squeeze().cpu().numpy()\n            Image.fromarray(p).save(x)", False),
        ("sync.per-step", EVALUATION, "p = p.squeeze().cpu().numpy()\n            keep(p)", True),
        ("sync.per-step", STEPPER.replace("{apply}", "{line}"), "self.optimizer.step()", True),
        ("sync.per-step", STEPPER.replace("{apply}", "{line}"), "self.model.show()", False),
        ("sync.per-step", "import torch\n" + BY_KEY, "parts.get('device')", True),
        ("sync.per-step", "import torch\n" + BY_KEY, "parts.get('dtype')", False),
        ("optimizer.own-loop", FISHER, "p.grad.detach() ** 2", True),
        ("optimizer.own-loop", FISHER, "p.grad.norm()", False),
        ("sync.per-step", METRIC, "log(metrics.log_loss(y, np.exp(p)), classes)", True),
        ("sync.per-step", METRIC, "keep(np.exp(p))", False),
        ("dataloader.inline", OPTIONS, "if self.args.debug:\n            self.args.workers = 0", False),
        ("dataloader.inline", OPTIONS, "self.args.workers = 0", True),
    ],
)
def test_a_line_in_its_context(rule: str, text: str, line: str, shown: bool) -> None:
    """Counters in lists, functions that ask if it is time, code for the CPU, what is written, options that a branch changes."""
    place = next(each for each in ("{test}", "{line}", "{before}") if each in text)
    assert (rule in sure(text.replace(place, line))) == shown

"""Small scripts for tests: written as a user writes them, judged by the shipped rules."""

from __future__ import annotations

import functools
import textwrap

from sysperf.engine import judging
from sysperf.engine import lint as engine
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.finding import Finding
from sysperf.script.examine import examine
from sysperf.script.facts import Script
from sysperf.script.file import File
from sysperf.script.hypothesis import Examined
from sysperf.script.source import Source
from tests import forked

TRAINING = """\
import torch
from torch.utils.data import DataLoader

def make_loader(dataset, workers=4):
    return DataLoader(dataset, batch_size=32, num_workers=workers)

def train(model, loader, optimizer, device):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total

def main(dataset, model):
    device = torch.device("cuda")
    loader = make_loader(dataset)
    model = torch.nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for epoch in range(10):
        train(model, loader, optimizer, device)
"""


@functools.cache
def shipped() -> Ruleset:
    """The rules about scripts that sysperf ships."""
    rules = judging.load_rules()
    rules.keep_scopes(("script",))
    forked.compile_patterns()  # of those that processes use which examine files
    return rules


def source(text: str, path: str = "train.py") -> Source:
    """A script out of its text."""
    return Source(path, textwrap.dedent(text).encode())


def facts(text: str) -> Script:
    """The facts of a script."""
    return examine(source(text))


def judged(text: str, path: str = "train.py") -> Examined:
    """What the shipped rules say of a script."""
    return engine.judged(File(source(text, path)), shipped())


def hits(text: str, path: str = "train.py") -> dict[str, list[int]]:
    """The lines of a script that each rule names."""
    lines: dict[str, list[int]] = {}
    for hypothesis in judged(text, path).hypotheses:
        lines.setdefault(hypothesis.rule, []).extend(place.line for place in hypothesis.places)
    return lines


def sure(text: str) -> set[str]:
    """The rules that name a place of a script as it is shown unasked: with at least medium confidence."""
    return {each.rule for each in judged(text).hypotheses if each.confidence != "low"}


def hypothesis(text: str, rule: str) -> Finding:
    """The one place that a rule names."""
    (only,) = [hypothesis for hypothesis in judged(text).hypotheses if hypothesis.rule == rule]
    return only

"""Elements that a mask chooses."""

from __future__ import annotations

import pytest

from tests.script.scripts import judged

STEPS = """
import torch
import torch.nn.functional as F
def fit(model, loader, optimizer, train_mask):
    for x, y in loader:
        scores = model(x)
        F.cross_entropy(scores, y).backward()
        optimizer.step()
        {}
"""


@pytest.mark.parametrize(
    ("code", "confidence"),
    [
        ("extra = F.nll_loss(scores[y > 0], y[y > 0])", "medium"),
        ("extra = F.nll_loss(scores[train_mask], y[train_mask])", "medium"),
        ("extra = F.nll_loss(scores[~train_mask | other_mask], y)", "medium"),
        ("chosen = scores[y > 0]\n        total = chosen.mean()", "medium"),
        ("chosen = scores[y > 0]\n        total = chosen.mean()\n        keep(chosen)", "low"),
        ("keep(scores[y > 0])", "low"),
        ("keep(scores[train_mask])", ""),  # numbers of rows, for all we know
        ("extra = F.nll_loss(scores[index], y[index])", ""),
    ],
)
def test_a_loss_needs_no_elements_to_be_chosen(code: str, confidence: str) -> None:
    """A weighted sum is the same without a wait; who needs the elements themselves has to wait."""
    found = [each.confidence for each in judged(STEPS.format(code)).hypotheses if each.rule == "sync.boolean-index"]
    assert found == ([confidence] if confidence else [])


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("mask = y.to(device)", True),
        ("mask = y.to(device)[:, 1]", True),
        ("mask = y", False),
        ("mask = y.to(device).cpu()", False),
    ],
)
def test_a_mask_on_the_device_chooses_what_lies_there(made: str, shown: bool) -> None:
    """Of what it chooses among nothing else is known."""
    code = f"{made}\n        extra = F.nll_loss(table[mask == 1], other)"
    text = f"import torch\ndevice = torch.device('cuda')\n{STEPS.format(code)}"
    found = [each.confidence for each in judged(text).hypotheses if each.rule == "sync.boolean-index"]
    assert found == (["medium"] if shown else [])

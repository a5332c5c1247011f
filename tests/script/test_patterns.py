"""Code of a known shape: choosing by a mask, attention by hand."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, judged

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


@pytest.mark.parametrize(("name", "shown"), [("attend", True), ("_ref_attention", False), ("naive_attention", False), ("prefer", True)])
def test_a_reference_is_written_by_hand_on_purpose(name: str, shown: bool) -> None:
    """A fast version is compared with it."""
    text = f"import torch\ndef {name}(q, k, v):\n    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v\n"
    assert ("attention.unfused" in hits(text)) == shown


ELEMENTS = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        scores = self.net(x)
        rows = {}
        for i in range(rows):
            self.take(scores[i])
"""


@pytest.mark.parametrize(
    ("rows", "shown"), [("x.shape[0]", True), ("len(scores)", True), ("scores.size(0)", True), ("self.outputs", False), ("2", False)]
)
def test_elements_are_as_many_as_a_tensor_is_large(rows: str, shown: bool) -> None:
    """A number of outputs, cells or degrees counts what lies in a list."""
    assert ("program.element-loop" in hits(ELEMENTS.format(rows))) == shown


@pytest.mark.parametrize(("prepared", "shown"), [("x", True), ("F.normalize(x, dim=-1)", False)])
def test_attention_between_channels_has_no_fused_kernel(prepared: str, shown: bool) -> None:
    """Its vectors are as long as an image is large, so they are normalized first."""
    text = f"""
        import torch
        import torch.nn.functional as F
        class Attention(torch.nn.Module):
            def forward(self, x):
                q, k = {prepared}, {prepared}
                weights = (q @ k.transpose(-2, -1)) * self.temperature
                return weights.softmax(dim=-1) @ x
    """
    assert ("attention.unfused" in hits(text)) == shown

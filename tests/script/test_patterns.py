"""Loops over the elements of a tensor."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits

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

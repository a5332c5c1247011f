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


@pytest.mark.parametrize(
    ("state", "shown"),
    [("u = h + x[i]\n        h = self.reset(u)", False), ("u = self.net(x[i])\n        h = self.reset(u)", True)],
)
def test_a_state_may_be_carried_by_way_of_others(state: str, shown: bool) -> None:
    """Neurons that fire: the potential of the round before is in the next one's."""
    text = f"""import torch
class Net(torch.nn.Module):
    def forward(self, y):
        x = self.net(y)
        h, out = 0, []
        for i in range(y.shape[0]):
            {state.replace("        h", "            h")}
            out.append(h)
"""
    assert ("program.element-loop" in hits(text)) == shown


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("self.take(rows[i])", True),
        ("plt.imshow(rows[i].permute(1, 2, 0))", False),
        ("save_image(rows[i], names[i])", False),
    ],
)
@pytest.mark.parametrize(("made", "stays"), [("self.net(x)", True), ("self.net(x).detach().cpu().clamp(0, 1)", False)])
def test_elements_that_are_shown_or_lie_on_the_host_cost_no_kernels(code: str, shown: bool, made: str, stays: bool) -> None:
    """Each picture is drawn by itself."""
    text = f"""import torch
class Net(torch.nn.Module):
    def forward(self, x):
        rows = {made}
        for i in range(rows.shape[0]):
            {code}
"""
    assert ("program.element-loop" in hits(text)) == (shown and stays)

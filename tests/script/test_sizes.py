"""Sizes are no values: what depends on the length of something is the same as long as nobody makes it longer."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import numpy as np, torch
net = torch.nn.Linear(9, 9)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
def basis(points, out):
    {line}
    return np.dot(points, weights)
def boxes(rows, grid):
    table = torch.zeros(grid, grid)
    for x, y in rows.tolist():
        table[int(x), int(y)] = 1.0
    return table
for x, y in loader:
    out = net(x)
    points = [y.sum(), y.mean(), 1.0]
    near = basis(points, out)
    where = {where}
    loss = ((out - where) ** 2).mean()
    loss.backward()
    opt.step()
    {after}
"""


def cure(line: str, where: str = "boxes(y, out.shape[-1])", after: str = "pass", at: str = "") -> str:
    text = TEXT.format(line=line, where=where, after=after)
    return cures.cure(text, 1 + [one.strip() for one in text.splitlines()].index(at or line))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("weights = np.array([0.9**n for n in range(len(points))])", "fixed"),
        ("weights = np.array([0.9**n for n in range(len(kept))])", "fixed"),
        ("weights = np.array([0.9**n for n in points])", "data"),
    ],
)
def test_a_table_for_a_number_of_rows(line: str, found: str) -> None:
    assert cure(line) == found


def test_a_table_for_what_becomes_longer() -> None:
    assert cure("weights = np.array([0.9**n for n in range(len(kept))])", after="kept.append(y)") != "fixed"


@pytest.mark.parametrize(
    ("where", "found"), [("boxes(y, out.shape[-1])", "data"), ("boxes(y, int(out[0, 0]))", "loss"), ("boxes(out, 9)", "loss")]
)
def test_a_size_of_what_a_model_made_is_known_without_it(where: str, found: str) -> None:
    assert cure("weights = 2", where, at=f"where = {where}") == found

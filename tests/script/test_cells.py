"""Loops over a recurrent cell that nn.LSTM and its like can take the place of, and those that have to stay."""

import pytest

from sysperf.script import cures

MODEL = """
class Reader(nn.Module):
    def __init__(self):
        self.cell = nn.{kind}Cell(64, 64)
        self.second = nn.GRUCell(64, 64)
        self.head = nn.Linear(64, 9)

    def forward(self, text, h, c):
        e = self.embed(text)
        out = []
        for t in range(text.shape[1]):
{body}
        return self.head(h)
"""


@pytest.mark.parametrize(
    ("kind", "body", "line", "whole"),
    [
        ("LSTM", "h, c = self.cell(e[:, t], (h, c))", 0, True),
        ("GRU", "h = self.cell(e[:, t], h)\nout.append(h)", 0, True),
        ("RNN", "x = dropout(e[:, t])\nh = self.cell(x, h)", 1, True),
        ("GRU", "h = self.cell(e[:, t], h)\nc = self.second(h, c)", 1, True),
        ("LSTM", "new, c = self.cell(e[:, t], (h, c))\nh = torch.where(mask[:, t], new, h)", 0, True),
        ("GRU", "h = self.cell(x, h)\nx = embed(self.head(h).argmax(1))", 0, False),
        ("GRU", "h = self.cell(torch.cat([e[:, t], attend(h, memory)], 1), h)", 0, False),
        ("GRU", "out.append(h)\nh = self.cell(out[-1], h)", 1, False),
        ("GRU", "h = self.cell(e[:, t], h)\nloss(h).backward()\nh = h.detach()", 0, False),
        ("LSTM", "h = self.head(e[:, t] + h)", 0, False),
    ],
)
def test_a_sequence_that_is_there_is_taken_by_one_call(kind: str, body: str, line: int, whole: bool) -> None:
    """What a cell gave is no part of what it is given next, but for its state."""
    indented = "\n".join(f"            {one}" for one in body.splitlines())
    text = MODEL.format(kind=kind, body=indented)
    number = 1 + text.splitlines().index(indented.splitlines()[line])

    assert (cures.of_call(text, number) == "cells") == whole


def test_an_agent_that_acts_by_its_state_stays_a_loop() -> None:
    """What an environment answers depends on what the cell gave."""
    text = "cell = nn.GRUCell(4, 64)\nwhile True:\n    for t in range(200):\n        h = cell(obs, h)\n        obs, reward, done, _, _ = env.step(act(h))\n"

    assert cures.of_call(text, 4) != "cells"

"""A model that acts in one environment is told from one that acts in many, and from one that learns."""

from __future__ import annotations

import pytest

from sysperf.script import cures

PLAYS = """\
import torch
from torch import nn

policy, env, memory = nn.Linear(4, 2), Cart(), Memory()


def choose(state):
    with torch.no_grad():
        return policy(torch.as_tensor(state)).argmax().item()


def learn(states):
    loss = policy(states).sum()
    loss.backward()


for episode in range(1000):
    state = env.reset()
    done = False
    while not done:
        scores = policy(torch.tensor(state).unsqueeze(0))
        after, reward, done, _ = env.step(choose(state))
        memory.add(state, reward)
        state = after
        rows = torch.as_tensor(state)
        value = policy(rows)
        learn(memory.sample())
        total = policy(memory.all())
"""
VECTOR = PLAYS.replace("env.", "envs.")
TRAINS = """\
for x, y in loader:
    logits = model(x)
    loss, grad, done = trainer.step(x)
    loss, _ = optimizer.step(closure)
"""


@pytest.mark.parametrize(
    ("text", "line", "acts"),
    [
        (PLAYS, "scores = policy(", True),
        (PLAYS, "value = policy(rows)", True),
        (PLAYS, "return policy(", True),
        (PLAYS, "loss = policy(states)", False),
        (PLAYS, "total = policy(", False),
        (VECTOR, "scores = policy(", False),
        (VECTOR, "return policy(", False),
        (TRAINS, "logits = model(x)", False),
    ],
)
def test_a_model_that_acts_in_one_environment(text: str, line: str, acts: bool) -> None:
    number = next(number for number, one in enumerate(text.splitlines(), 1) if line in one)

    assert (cures.of_call(text, number) == "acts") == acts

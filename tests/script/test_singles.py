"""Models that are called for one row at a time."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import numpy as np, torch
from torch import nn
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(9, 9)
    def forward(self, x, h=None): return self.body(x)
    def act(self, obs):
        with torch.no_grad():
            return self(torch.as_tensor(obs).unsqueeze(0)).argmax().item()
policy = Policy()
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
current = [env.reset() for env in envs]
h, out, last, obs = None, [], None, envs[0].reset()
while True:
{loop}
    policy(torch.stack(out)).sum().backward()
    opt.step()
"""


def of(*loop: str) -> list[str]:
    text = TEXT.format(loop="\n".join(f"    {line}" for line in loop))
    lines = text.splitlines()
    first = lines.index(f"    {loop[0]}") + 1
    return [cures.of_call(text, line) for line in range(first, first + len(loop))]


@pytest.mark.parametrize(
    "loop",
    [
        ("for i, env in enumerate(envs):", "    d = policy(torch.from_numpy(current[i]).unsqueeze(0))", "    current[i], r = env.step(d.argmax().item())"),
        ("for i in range(len(envs)):", "    d = policy(current[i][None])", "    out.append(current[i])", "    current[i] = envs[i].step(d)"),
        ("for env in envs:", "    a = policy.act(env.obs)", "    env.step(a)"),
        ("for env in envs:", "    x = torch.tensor([env.obs])", "    a = policy(x)", "    env.step(a)"),
        ("for i in range(64):", "    out.append(policy(rows[i : i + 1]))"),
        ("for row in rows:", "    x = row.float()", "    y = policy(x.view(1, -1))", "    out.append(y)"),
        ("out = [policy(row.unsqueeze(0)) for row in rows]",),
        ("for row in rows:", "    votes = [m(row.unsqueeze(0)) for m in members]", "    best = max(best, torch.cat(votes).std())"),
        ("for row, label in zip(rows, labels):", "    out.append(loss(policy(row[None, :]), label))"),
    ],
)  # fmt: skip
def test_rows_that_need_nothing_of_each_other(loop: tuple[str, ...]) -> None:
    assert "singles" in of(*loop)


@pytest.mark.parametrize(
    "loop",
    [
        ("for t in range(9):", "    a = policy(obs.unsqueeze(0))", "    obs = env.step(a)"),
        ("for t in range(9):", "    a = policy.act(obs)", "    obs = envs[0].step(a)"),
        ("for row in rows:", "    h = policy(row.unsqueeze(0), h)"),
        ("for row in rows:", "    y = policy(row.unsqueeze(0) if last is None else row.unsqueeze(0) + last)", "    last = y.detach()"),
        ("for i in range(9):", "    d = policy(current[i][None])", "    current[i + 1] = envs[i].step(d)"),
        ("for i in range(9):", "    d = policy(current[i][None])", "    current = shuffled(current, d)"),
        ("for t in range(9):", "    y = policy(torch.stack(out[t : t + 1]))", "    out.append(y)"),
        ("for batch in loader:", "    y = policy(batch)"),
        ("for batch in loader:", "    y = policy(batch[:, None])"),
        ("for batch in loader:", "    y = policy(batch.unsqueeze(1))"),
        ("while more:", "    y = policy(queue.get().unsqueeze(0))"),
        ("for i in range(9):", "    y = policy(rows[i * 8 : i * 8 + 8])"),
        ("for i in range(9):", "    y = rows[i].unsqueeze(0)"),
        ("for i in range(9):", "    y = torch.matmul(rows[i].unsqueeze(0), table)"),
        ("for k in range(9):", "    y = policy(noise[None])"),
        ("for k in range(9):", "    votes = [m(best.unsqueeze(0)) for m in members]", "    best = torch.cat(votes)[0]"),
    ],
)  # fmt: skip
def test_rounds_that_need_the_one_before_or_have_whole_batches(loop: tuple[str, ...]) -> None:
    """What is the same in each round may be drawn by chance in the model."""
    assert "singles" not in of(*loop)

"""Models that are called for one row at a time."""

from __future__ import annotations

import pytest

from sysperf.script import cures, singles

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


@pytest.mark.parametrize(
    "loop",
    [
        ("for x, y in zip(rows, labels):", "    loss(policy(x.unsqueeze(0)), y).backward()", "    opt.step()"),
        ("for i in range(9):", "    loss(policy(rows[i : i + 1]), labels[i]).backward()"),
        ("for x in rows:", "    agent.learn(x[None])"),
    ],
)
def test_a_model_that_learns_of_each_row_needs_them_one_by_one(loop: tuple[str, ...]) -> None:
    """One call for all rows would be another training."""
    assert "singles" not in of(*loop)


@pytest.mark.parametrize(
    "loop",
    [
        ("for x, y in loader:", "    z = policy(x, torch.arange(9).unsqueeze(0))"),
        ("for x, mask in pairs:", "    z = policy(x, mask.unsqueeze(0))"),
        ("for x in batches:", "    z = policy(x.unsqueeze(0))"),
        ("for t in range(9):", "    z = policy(rows, torch.tensor([t]))"),
        ("for level in levels:", "    z = policy(query.unsqueeze(0), level)"),
        ("for scale in (0.5, 2.0):", "    z = policy(resize(picture[None], scale))"),
    ],
)
def test_a_batch_beside_what_is_given_a_dimension_is_no_row(loop: tuple[str, ...]) -> None:
    """Positions, masks and steps in time are given one, too."""
    assert "singles" not in of(*loop)


@pytest.mark.parametrize(
    "loop",
    [
        ("for i in range(9):", "    out.append(experts[i](rows[i].unsqueeze(0)))"),
        ("for head, x in zip(heads, rows):", "    out.append(head(x[None]))"),
    ],
)
def test_another_model_for_each_row_is_not_called_once_for_all(loop: tuple[str, ...]) -> None:
    assert "singles" not in of(*loop)


def test_a_model_that_keeps_its_state_needs_the_row_before() -> None:
    """It is handed on in the model, and in no argument."""
    lines = [
        "class Policy:",
        "    def forward(self, x):",
        "        self.h = self.cell(x, self.h)",
        "        return self.h",
        "for x in rows:",
        "    y = policy(x.unsqueeze(0))",
    ]
    assert cures.of_call("\n".join(lines), 6) == ""
    assert cures.of_call("\n".join(lines).replace("self.h =", "h ="), 6) == "singles"


def test_what_is_made_in_more_steps_than_are_followed_may_be_of_the_row_before() -> None:
    steps = [f"    x{place + 1} = layer(x{place})" for place in range(singles.MAX_FOLLOWED)]
    first = ("for row in rows:", "    x0 = norm(last)")
    assert "singles" not in of(*first, *steps, f"    y = policy(row.unsqueeze(0) + x{len(steps)})", "    last = y")

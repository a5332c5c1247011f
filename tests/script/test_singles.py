"""Models that are called for one row at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sysperf.script import cures
from sysperf.script.cures import singles

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
        ("for row in batch:", "    out.append(policy(row.unsqueeze(0)))"),
        ("for row, label in zip(batch['x'], batch['y']):", "    out.append(policy(row[None]))"),
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


@pytest.mark.parametrize(
    "loop",
    [
        ("scores = {name: policy(row.unsqueeze(0)) for name, row in rows.items()}",),
        ("seen = {policy(row.unsqueeze(0)).argmax().item() for row in rows}",),
        ("for row in rows:", "    y = policy(row.unsqueeze(0), temperature)"),
        ("for row in rows:", "    y = policy(row.unsqueeze(0), scale.to(device))"),
        ("for row in rows:", "    y = policy(row.unsqueeze(0).to(torch.float32))"),
        ("for i in range(9):", "    current[i] = policy(current[i][None])"),
        ("for i in range(9):", "    y = policy(self.obs[i][None])", "    self.obs[i] = envs[i].step(y)"),
        ("for i in range(9):", "    y = policy(current[i][None])", "    update(current[i], y[0])"),
    ],
)
def test_what_is_the_same_in_all_rounds_may_be_given_beside_a_row(loop: tuple[str, ...]) -> None:
    """So may be what a round writes where it has read."""
    assert "singles" in of(*loop)


@pytest.mark.parametrize(
    "loop",
    [
        ("for row in rows:", "    memory['h'] = policy(row.unsqueeze(0), memory['h'])"),
        ("for row in rows:", "    agent.h = policy(row.unsqueeze(0), agent.h)"),
        ("for row in rows:", "    out.append(policy(row.unsqueeze(0), out[-1]))"),
        ("kept = out", "for row in rows:", "    out.append(policy(row.unsqueeze(0), kept[-1]))"),
        ("mine = out", "for row in rows:", "    mine.append(policy(row.unsqueeze(0), out[-1]))"),
        ("state = agent.state", "for row in rows:", "    state['h'] = policy(row.unsqueeze(0), agent.state['h'])"),
        ("kept = {'all': out}", "for row in rows:", "    out.append(policy(row.unsqueeze(0), kept['all'][-1]))"),
        ("for row in rows:", "    if row.sum() > 0:", "        h = row[None]", "    h = policy(row.unsqueeze(0), h)"),
        ("for row in rows:", "    y = policy(row.unsqueeze(0), state)", "    state = y.detach()"),
        ("for row in rows:", "    y = policy(row.unsqueeze(0) + table[last])", "    last = y.argmax()"),
        ("for i in range(9):", "    y = policy(self.obs[i][None])", "    self.obs[i + 1] = envs[i].step(y)"),
        ("for i in range(9):", "    y = policy(self.obs[i][None])", "    self.obs = shuffled(y)"),
        ("for i in range(9):", "    y = policy(current[i][None])", "    shuffle(current, y)"),
        ("for i in range(9):", "    y = policy(state['obs'][i][None])", "    state['obs'][i + 1] = envs[i].step(y)"),
    ],
)
def test_what_the_model_made_is_found_wherever_it_is_kept(loop: tuple[str, ...]) -> None:
    """In a container, an attribute, a place of a table, or a name that gets its value later in the loop."""
    assert "singles" not in of(*loop)


def test_what_is_made_in_more_steps_than_are_followed_may_be_of_the_row_before() -> None:
    steps = [f"    x{place + 1} = layer(x{place})" for place in range(singles.MAX_FOLLOWED)]
    first = ("for row in rows:", "    x0 = norm(last)")
    assert "singles" not in of(*first, *steps, f"    y = policy(row.unsqueeze(0) + x{len(steps)})", "    last = y")


@pytest.mark.parametrize(
    "loop",
    [
        ("for i in range(9):", "    y = policy(current[i])"),
        ("for row in rows:", "    y = policy(row[()])"),
        ("for row in rows:", "    y = policy(row.view(8, -1))"),
        ("for row in rows:", "    y = policy(row.view(1))"),
        ("for row in rows:", "    y = policy(row.view(1, 1, -1))"),
        ("for row in rows:", "    y = policy(torch.cat([row]))"),
        ("for row in rows:", "    y = policy(torch.stack(row))"),
        ("for row in rows:", "    y = policy(torch.stack([*row]))"),
        ("for x, y in pairs:", "    z = policy(torch.stack([x, y]))"),
        ("for i in range(9):", "    y = policy(rows[i : last + 1])"),
        ("out = [policy(x.unsqueeze(0)) for x in batches]",),
        ("data = DataLoader(pictures, 32)", "for x in data:", "    y = policy(x.unsqueeze(0))"),
    ],
)
def test_more_than_one_row_or_no_batch_at_all(loop: tuple[str, ...]) -> None:
    assert "singles" not in of(*loop)


@pytest.mark.parametrize(
    "loop",
    [
        ("for row in rows:", "    out += list(row.unsqueeze(0))"),
        ("for row in rows:", "    same = template.eq(row.unsqueeze(0))"),
        ("for i in range(9):", "    y = screen.observe()"),
    ],
)
def test_what_is_no_model(loop: tuple[str, ...]) -> None:
    assert "singles" not in of(*loop)


@pytest.mark.parametrize(
    ("act", "is_told"),
    [
        (("(x):", "return net(x[None])"), True),
        (("(x):", "return net(x[None]) if x.any() else act(-x)"), True),
        (("(x):", "return net(x)"), False),
        (("(x):", "return net(x + noise[None])"), False),
        (("(x, more):", "return net(x[None] + more)"), False),
    ],
)
def test_a_function_may_make_a_batch_of_the_row_that_it_is_given(act: Sequence[str], is_told: bool) -> None:
    lines = [f"def act{act[0]}", f"    {act[1]}", "for x in rows:", "    y = act(x)" if "more" not in act[0] else "    y = act(x, table)"]
    assert (cures.of_call("\n".join(lines), 4) == "singles") is is_told

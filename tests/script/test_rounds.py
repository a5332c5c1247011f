"""How a loop works: what it goes through, and whether a round needs what one before has made."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import copy, torch, numpy as np
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(9, 1) for _ in range(99)])
        self.trunk = nn.Linear(9, 9)
    def forward(self, x, parts=()):
        x = self.trunk(x)
        found = []
        {forward}
        return torch.cat(found, 1)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
mean = {{name: value.clone() for name, value in net.state_dict().items()}}
params = list(net.parameters())
def move(table, row): table[int(row)] += 1
def after(rows, table, boxes, out):
    {after}
for x, y in loader:
    out = net(x)
    loss = out.sum()
    loss.backward(retain_graph=True)
    opt.step()
    after(x, y, y, out)
"""


def lines(body: str, depth: int) -> str:
    return body.replace("\n", "\n" + " " * depth)


def ways(body: str) -> tuple[str, ...]:
    text = TEXT.format(after=lines(body, 4), forward="pass")
    return cures.of_loop(text, 1 + text.splitlines().index(f"    {body.splitlines()[0]}"))


def layers(body: str, line: str) -> str:
    text = TEXT.format(forward=lines(body, 8), after="pass")
    return cures.of_call(text, 1 + [one.strip() for one in text.splitlines()].index(line))


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(9):\n    table[i] = rows[i] * 2",
        "for i in range(9):\n    table[i] = table[i] * 2",
        "for i, row in enumerate(rows):\n    total = row.sum()\n    table[i, 0] = total",
        "for i in range(9):\n    for j in range(9):\n        table[i, j] = (rows[i] * boxes[j]).sum()",
        "for row in rows:\n    total += row.sum()",
        "for row in rows:\n    total = total + row.sum()",
        "for row in rows:\n    total = total + 1 - 2 * row.sum() / row.numel()",
        "for row in rows:\n    if row.sum() > best:\n        best = row.sum()",
        "for row in rows:\n    best = max(best, row.sum())",
        "for row in rows:\n    kept.append(row.sum())",
        "kept = [row.sum() for row in rows]",
        "for n, row in enumerate(rows):\n    seen = {}\n    for a in row:\n        seen[a] = 1\n    table[n] = len(seen)",
        "for row in rows:\n    kept.append(sorted(range(9), key=lambda j: row[j])[0])\n    for j in boxes:\n        kept.append(j)",
        "for row in rows:\n    if row.sum() > 0:\n        sign = 1\n    else:\n        sign = -1\n    kept.append(sign * row)",
    ],
)
def test_rounds_of_which_none_is_seen_to_need_another(body: str) -> None:
    assert ways(body) == ("plain",)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(1, 9):\n    table[i] = table[i - 1] * 0.9 + rows[i]",
        "for row in rows:\n    state = state * 0.9 + row",
        "for row in rows:\n    kept.append(last)\n    last = row",
        "for i in range(9):\n    c = int(rows[i])\n    table[c] = table[c] * 0.9 + boxes[i]",
        "for i in range(9):\n    table[i] = table.sum() + rows[i]",
        "for row in rows:\n    if row.sum() > 0:\n        sign = 1\n    kept.append(sign * row)",
        "for row in rows:\n    total += row.sum()\n    kept.append(total)",
        "for row in rows:\n    mean.rate = mean.rate + row",
        "for row in rows:\n    for a, b in enumerate(boxes):\n        best = a\n    kept.append(best)",
        "for row in rows:\n    kept.append(state := state + row)",
        "for row in rows:\n    if 0 < best < row.sum():\n        best = row.sum()",
        "for row in rows:\n    best = max(best * 0.9, row.sum())",
        "for row in rows:\n    total = 1 - total + row.sum()",
        "for row in rows:\n    if row.sum() > best:\n        best = best * 0.5 + row.sum()",
    ],
)
def test_rounds_that_need_the_one_before(body: str) -> None:
    assert ways(body) == ("chain",)


@pytest.mark.parametrize(
    "body",
    [
        "for name, p in net.named_parameters():\n    mean[name] = mean[name] * 0.9 + p.detach() * 0.1",
        "for name in mean:\n    mean[name] = mean[name] * 0.9 + rows",
        "for p in params:\n    p.grad.mul_(0.5)",
        "for p, q in zip(params, boxes):\n    q.add_(p)",
    ],
)
def test_what_goes_through_the_tensors_of_a_model(body: str) -> None:
    assert ways(body) == ("parameters", "plain")


@pytest.mark.parametrize(
    ("body", "again"),
    [
        ("for t in range(9):\n    kept.append(sum(0.9**k * r for k, r in enumerate(rows[t:])))", True),
        (
            "for t in range(9):\n    total = 0\n    power = 0\n    for r in rows[t:]:\n        total = total + 0.9**power * r\n        power = power + 1",
            True,
        ),
        (
            "for t in range(9):\n    total = 0\n    for k in range(t, 9):\n        total += 0.9 ** (k - t) * rows[k]\n    kept.append(total)",
            True,
        ),
        (
            "for t in range(9):\n    w, a = 1, 0\n    for k in range(t, 8):\n        a += w * (rows[k] + 0.9 * boxes[k + 1] - boxes[k])\n        w *= 0.9\n    table[t] = a",
            True,
        ),
        ("kept = [rows[: i + 1].mean() for i in range(9)]", True),
        ("for i in range(9):\n    kept.append(torch.stack(boxes[:i]).mean(0))", True),
        ("for i in range(9):\n    kept.append(rows[i : i + 4].mean())", False),
        ("for i in range(9):\n    kept.append(sum(abs(rows[i] - r) for r in rows[i:]))", False),
        ("for i in range(9):\n    kept.append(sum(w * r for w, r in zip(boxes, rows[i:])))", False),
        ("for i in range(9):\n    kept.append(sum(boxes[k] * r for k, r in enumerate(rows[i:])))", False),
        ("for i in range(9):\n    kept.append(sum(r**i for r in rows[:i]))", False),
        ("for i in range(9):\n    q = rows[i]\n    kept.append(sum(q * r for r in rows[:i]))", False),
        ("for i in range(9):\n    for j in range(i, 9):\n        total += rows[i] * rows[j]", False),
        ("for i in range(9):\n    h = 0\n    for r in rows[i:]:\n        h = h + abs(h - r)\n    kept.append(h)", False),
        ("for i in range(9):\n    own = rows * i\n    kept.append(own[i:].sum())", False),
        ("for i in range(9):\n    kept.append(sorted(rows[i:])[0])", False),
        ("for i in range(9):\n    kept.append(sum(rows[i:]))\n    relax(rows)", False),
        ("view = rows\nfor i in range(9):\n    view[i] = sum(rows[i:])", False),
        ("for i in range(9):\n    rows.append(sum(rows[:i]))", False),
        ("for i in range(9):\n    kept.append(sum(table.pop() for r in rows[i:]))", False),
        ("for i in range(9):\n    kept.append(sum(next(out) * r for r in rows[i:]))", False),
        ("for i in range(9):\n    kept.append(sum(r * np.random.rand() for r in rows[i:]))", False),
        ("for i in range(9):\n    kept.append(sum(net(r) for r in rows[i:]))", False),
        ("for i in range(9):\n    net(i)\n    kept.append(net.seen[:i].mean())", False),
        ("for i in range(9):\n    kept.append(rows[i:].mean(dim=1))", False),
        ("for i in range(9):\n    kept.append(max(rows[i:]))", False),
        ("for i in range(9):\n    return sum(rows[i:])", False),
    ],
)
def test_sums_of_all_rows_before_or_after(body: str, again: bool) -> None:
    """They can be carried on, where the work on a row is the same in each round, but for a power of a number."""
    text = TEXT.format(after=lines(body, 4), forward="pass")
    start = 1 + text.splitlines().index(f"    {body.splitlines()[0]}")
    found = [cures.of_loop(text, start + below) for below in range(len(body.splitlines()))]

    assert any("sums" in one for one in found) == again
    assert len(found) == 1 or "sums" not in found[0]


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("for name in mean:\n    mean[name] = mean[name] * 0.9 + net.state_dict()[name] * 0.1", True),
        ("mean = {name: 0.9 * v + 0.1 * net.state_dict()[name] for name, v in mean.items()}", True),
        ("for row in rows:\n    kept.append(sorted(boxes).index(row))", True),
        ("for name in mean:\n    net.load_state_dict(mean)\n    kept.append(net.state_dict()[name])", False),
        ("for name, p in net.named_parameters():\n    p.data = mean[name]\n    kept.append(net.state_dict()[name])", False),
        ("for row in rows:\n    kept.append(row)\n    last = sorted(kept)", False),
        ("for row in rows:\n    last = sorted(row)", False),
        ("for row in rows:\n    move(table, row)\n    last = sorted(boxes)", False),
        ("for row in rows:\n    boxes[0] = row\n    last = sorted(boxes)", False),
        ("for n in range(9):\n    model = models[n]\n    last = model.state_dict()", False),
        ("for row in rows:\n    view = boxes.numpy()\n    view[0] = row\n    kept.append(sorted(boxes)[0])", False),
        ("for row in boxes:\n    row.append(1)\n    kept.append(sorted(boxes)[0])", False),
        ("for row in rows:\n    table.append(row)\n    kept.append(sorted(boxes)[0])", False),
        ("for row in rows:\n    row.mul_(2)\n    kept.append(sorted(boxes)[0])", False),
        ("for row in rows:\n    kept.append(sorted(boxes))", False),
        ("for row in rows:\n    own = net.state_dict()\n    own[row] = 1", False),
        ("for row in rows:\n    yield sorted(boxes)[0]", False),
    ],
)
def test_what_each_round_asks_for_anew(body: str, same: bool) -> None:
    """Nothing that a round stores, fills or hands to who may change it is the same in the next."""
    line = next(line for line in reversed(body.splitlines()) if "state_dict()" in line or "sorted(" in line)
    text = TEXT.format(after=lines(body, 4), forward="pass")

    assert ("same" in cures.of_loop(text, 1 + text.splitlines().index(f"    {line}"))) == same


def test_an_inner_loop_within_a_recurrence() -> None:
    body = "for row in rows:\n    parts = []\n    for tag in range(9):\n        parts.append(torch.logsumexp(state + boxes[tag], 0))\n    state = torch.stack(parts) + row"
    text = TEXT.format(after=lines(body, 4), forward="pass")

    assert cures.of_loop(text, 1 + next(n for n, one in enumerate(text.splitlines()) if "parts.append" in one)) == ("chain", "inner")


def test_gradients_of_one_row_at_a_time() -> None:
    """In one graph; a loop of parts of a batch, each with a graph of its own, is none."""
    assert "gradients" in ways("for one in out:\n    kept.append(torch.autograd.grad(one.sum(), params, retain_graph=True))")
    assert "gradients" not in ways("for one in out:\n    one.sum().backward(retain_graph=True)")
    assert "gradients" not in ways("for one in out:\n    torch.autograd.grad(one.sum(), params, retain_graph=True)\n    opt.step()")
    assert "gradients" in ways("for one in out:\n    kept.append(torch.autograd.grad(one.sum(), params, retain_graph=keeps))")
    assert "gradients" not in ways("for part in rows.chunk(4):\n    net(part).sum().backward()")
    assert "gradients" not in ways("for one in out:\n    kept.append(torch.autograd.grad(one.sum(), params, retain_graph=False))")


def test_a_loop_of_steps_is_asked_nothing() -> None:
    """Nor is a line outside of any loop."""
    text = TEXT.format(after="pass", forward="pass")

    assert cures.of_loop(text, 1 + text.splitlines().index("    out = net(x)")) == ()
    assert cures.of_loop(text, 1 + text.splitlines().index("net = Net()")) == ()


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for head in self.heads:\n    found.append(head(x))", "found.append(head(x))"),
        ("found = [head(x) for head in self.heads]", "found = [head(x) for head in self.heads]"),
        ("for i, head in enumerate(self.heads):\n    found.append(head(x[:, i]))", "found.append(head(x[:, i]))"),
        ("for i in range(99):\n    found.append(self.heads[i](x))", "found.append(self.heads[i](x))"),
    ],
)
def test_layers_beside_each_other(body: str, line: str) -> None:
    assert layers(body, line) == "layers"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for head in self.heads:\n    x = head(x)", "x = head(x)"),
        ("for head in self.heads:\n    x = x + head(x)\n    found.append(x)", "x = x + head(x)"),
        ("for part in parts:\n    found.append(self.trunk(part))", "found.append(self.trunk(part))"),
        ("found.append(self.trunk(x))", "found.append(self.trunk(x))"),
        ("for head in self.heads:\n    found.append(x + 1)", "found.append(x + 1)"),
    ],
)
def test_layers_on_top_of_each_other_and_one_layer(body: str, line: str) -> None:
    assert layers(body, line) != "layers"

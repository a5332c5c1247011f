"""Loops in which a round may need what one before has made, by one of many ways: none of them is said to be free of that."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import random, itertools, torch, numpy as np
from torch import nn
from game import mutate, env, nudge
import helpers
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(9)
        self.trunk = nn.Linear(9, 9)
        self.calls = 0
    def forward(self, x):
        return self.trunk(self.bn(x))
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(9, 9)
        self.h = torch.zeros(9)
    def forward(self, x):
        self.h = torch.tanh(self.lin(x) + self.h)
        return self.h
class Filter:
    def __init__(self): self.state = 0.0; self.count = 0; self.buf = []
    def __call__(self, x):
        self.state = 0.9 * self.state + x
        return self.state
    def smooth(self, x):
        self.state = 0.9 * self.state + x
        return self.state
    def peek(self): return self.state
    @property
    def nxt(self):
        self.count += 1
        return self.count
    def __getitem__(self, i):
        self.count += 1
        return self.count
    def __iadd__(self, o):
        self.state += o
        return self
    def __lshift__(self, o):
        self.state = self.state * .9 + o
        return self
    def __enter__(self):
        self.count += 1
        return self
    def __exit__(self, *a): pass
    def __iter__(self): return self
    def __next__(self):
        self.count += 1
        return self.count
    def __contains__(self, x):
        self.count += 1
        return self.count > 2
    def __len__(self):
        self.count += 1
        return self.count
    def __lt__(self, o):
        self.count += 1
        return True
net = Net()
cell = Cell()
filt = Filter()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
H = torch.zeros(9)
COUNT = 0
CACHE = {{}}
def bump():
    global COUNT
    COUNT += 1
    return COUNT
def smooth(x):
    global H
    H = 0.9 * H + x
    return H
def put(table, i, v):
    table[i] = v
def put_kw(i, *, table, v):
    table[i] = v
def cached(x):
    CACHE["h"] = CACHE.get("h", 0) * 0.9 + x
    return CACHE["h"]
def closure_maker():
    h = 0.0
    def upd(x):
        nonlocal h
        h = 0.9 * h + x
        return h
    return upd
def apply(f, x): return f(x)
def default_arg(x, memo=[0.0]):
    memo[0] = memo[0] * 0.9 + x
    return memo[0]
def attr_fn(x):
    attr_fn.h = attr_fn.h * .9 + x
    return attr_fn.h
attr_fn.h = 0.0
def gen(xs):
    s = 0
    for x in xs:
        s = s * .9 + x
        yield s
def ident(x): return x
upd = closure_maker()
lam = lambda x: table.__setitem__(0, x)
def after(rows, table, boxes, out, g, state, kept, self, it):
    {body}
for x, y in loader:
    out = net(x)
    loss = out.sum()
    loss.backward()
    opt.step()
    after(x, y, y, out, g, s, k, f, it)
"""


def ways(body: str) -> set[str]:
    lines = body.splitlines()
    text = TEXT.format(body="\n    ".join(lines))
    first = text.splitlines().index(f"    {lines[0]}") + 1
    return {way for place in range(len(lines)) for way in cures.of_loop(text, first + place)}


@pytest.mark.parametrize(
    "body",
    [
        "for row in rows:\n    kept.append(filt(row))",
        "for row in rows:\n    kept.append(cell(row))",
        "kept = [cell(row) for row in rows]",
        "for row in rows:\n    kept.append(net(row[None]))",
        "for row in rows:\n    kept.append(smooth(row))",
        "kept = [smooth(row) for row in rows]",
        "for row in rows:\n    table[bump()] = row",
        "for row in rows:\n    kept.append(cached(row))",
        "for row in rows:\n    kept.append(upd(row))",
        "for row in rows:\n    kept.extend(map(smooth, [row]))",
        "for row in rows:\n    kept.append(default_arg(row))",
        "for row in rows:\n    kept.append(attr_fn(row))",
        "for row in rows:\n    kept.append(mutate(table, row))",
        "for row in rows:\n    v = helpers.blend(table, row)\n    kept.append(v)",
        "for row in rows:\n    v = env.play(row)\n    kept.append(v)",
        "for row in rows:\n    table.add_(row)\n    kept.append(table.clone())",
        "for row in rows:\n    v = table.add_(row)\n    kept.append(v.clone())",
        "v = table.view(-1)\nfor i in range(1, 9):\n    v[i] = table[i - 1] * 0.9",
        "left = table[1:]\nfor i in range(8):\n    left[i] = table[i] * 0.9",
        "for i in range(1, 9):\n    r = table[i]\n    r.copy_(table[i - 1] * 0.9)",
        "for i in range(1, 9):\n    r = table[i]\n    r[:] = table[i - 1] * 0.9",
        "for a, b in zip(table[:-1], table[1:]):\n    b.copy_(a * 0.9)",
        "for a, b in zip(table[:-1], table[1:]):\n    b[:] = a * 0.9",
        "for a, b in zip(table[:-1], table[1:]):\n    b += a",
        "for a in table:\n    a += table[0]",
        "for a, b in itertools.pairwise(kept):\n    b[0] = a[0] * 0.9",
        "for row in rows:\n    torch.add(table * 0.9, row, out=table)\n    kept.append(table.clone())",
        "for k, row in enumerate(rows):\n    state.update({k: state.get(k - 1, 0) * 0.9 + row})",
        "for row in rows:\n    kept.append(state.setdefault(int(row), len(state)))",
        "for row in rows:\n    kept.append(row * len(kept))",
        "for row in rows:\n    kept.append(kept[-1] * 0.9 + row)",
        "for row in rows:\n    if row not in kept:\n        kept.append(row)",
        "for row in rows:\n    kept.append(sum(kept) + row)",
        "for row in rows:\n    if int(row) in seen_set:\n        continue\n    seen_set.add(int(row))\n    kept.append(row)",
        "for row in rows:\n    kept.append(row)\n    if len(kept) > 5:\n        break",
        "import heapq\nfor row in rows:\n    out2 = heapq.heappushpop(kept, row)\n    print(out2)",
        "for s in gen(rows):\n    kept.append(s)",
        "for s in itertools.accumulate(rows, lambda a, b: a * .9 + b):\n    kept.append(s)",
        "kept = [state.append(row) or len(state) for row in rows]",
        "kept = [state.setdefault(int(row), len(state)) for row in rows]",
        "for row in rows:\n    kept.append(row + torch.randn(9))",
        "h = [0.0]\ndef up(x):\n    h[0] = h[0] * .9 + x\n    return h[0]\nfor row in rows:\n    kept.append(up(row))",
        "f = lambda x: table.__setitem__(0, table[0] * .9 + x)\nfor row in rows:\n    f(row)\n    kept.append(table[0].clone())",
        "f = lambda x: state.append(x) or len(state)\nfor row in rows:\n    kept.append(f(row))",
        "add = state.append\nfor row in rows:\n    add(row)\n    kept.append(len(state))",
        "f = filt.smooth\nfor row in rows:\n    kept.append(f(row))",
        "for row in rows:\n    kept.append(getattr(filt, 'smooth')(row))",
        "for row in rows:\n    filt.state = filt.peek() * 0.9 + row",
        "for node in rows:\n    node.value = node.parent.value * 0.9",
        "for node in rows:\n    node.next.value = node.value + 1",
        "for row in rows:\n    kept.append(filt.nxt + row)",
        "for row in rows:\n    kept.append(filt[0] + row)",
        "for row in rows:\n    filt << row\n    kept.append(filt.state)",
        "for row in rows:\n    with filt:\n        kept.append(row * filt.count)",
        "for row in rows:\n    if row in filt:\n        kept.append(row)",
        "t2 = table\nfor i in range(1, 9):\n    t2[i] = table[i - 1] * .9",
        "a = table.numpy()\nfor i in range(1, 9):\n    a[i] = table[i - 1] * .9",
        "for i in rows.tolist():\n    table[i] = table[i] * 0.9 + 1",
        "for i, v in zip(rows, boxes):\n    table[i] = table[i] * 0.9 + v",
        "for i, v in zip(rows, boxes):\n    table[i] = table[i] * .9 + v",
        "for row in rows:\n    total = total * row\n    total = total + 1",
        "for row in rows:\n    best = max(best * 0.9, row)",
        "for row in rows:\n    if row > best:\n        best = row * 0.9 + best",
        "for row in rows:\n    if row > best:\n        best = row\n    else:\n        best = best * 0.9",
        "for row in rows:\n    seq = torch.cat([seq, net(seq)])",
        "for row in rows:\n    if count < 5:\n        count += 1\n        kept.append(row)",
        "for box in rows:\n    if not any((box - k).sum() > 0 for k in kept):\n        kept.append(box)",
        "used = set()\nfor i in range(9):\n    j = min(set(range(9)) - used, key=lambda j: rows[i, j])\n    used.add(j)",
        "for row in rows:\n    win.append(row)\n    kept.append(sum(win) / len(win))",
        "for row in rows:\n    kept.append(q.get())",
        "for row in rows:\n    net.trunk.weight.data -= 0.1 * row\n    kept.append(net.trunk.weight.sum())",
        "for row in rows:\n    del kept[0]\n    table[len(kept)] = row",
        "h = 0\ndef rd(): return h\nfor row in rows:\n    h = rd() * .9 + row",
        "h = 0\nrd = lambda: h\nfor row in rows:\n    h = rd() * .9 + row",
        "def rd(i): return table[i]\nfor i in range(1, 9):\n    table[i] = rd(i - 1) * .9",
        "for k in kept:\n    if k > 0:\n        kept.append(k - 1)",
        "for k in range(99):\n    frontier.update(adj[k] & frontier)",
        "for row in rows:\n    exec('h = h * .9')",
        "for row in rows:\n    table.scatter_add_(0, row, table[row])",
        "for row in rows:\n    table.index_add_(0, row, table[row] * .5)",
        "for row in rows:\n    keys.append(row)\n    kept.append(torch.stack(keys) @ row)",
        "for row in rows:\n    args.append(row)\n    kept.append(torch.cat([*args]))",
        "for i, (a, b) in enumerate(zip(table, table[1:])):\n    table[i + 1] = a * .9 + b",
        "for row in rows:\n    vars(self)['h'] = vars(self)['h'] * .9 + row",
        "for row in rows:\n    kept[-1].append(row)\n    table[len(kept[-1])] = row",
        "t2 = table[1:]\nfor a, b in zip(table, t2):\n    b.copy_(a * .9)",
        "t2 = table[1:]\nfor i, b in enumerate(t2):\n    b.add_(table[i])",
        "for n in rows:\n    n.items.append(n.parent.items)",
        "for n in rows:\n    n.total.add_(n.parent.total)",
        "def tot(n): return n.value\nfor n in rows:\n    n.value = tot(n.parent)",
        "for i in range(9):\n    i = int(rows[i])\n    table[i] = table[i] * .9",
        "for i in range(9):\n    i -= 1\n    table[i] = table[i] * .9 + 1",
        "for i in range(-4, 4):\n    table[i] = table[i] * .9 + 1",
        "table = torch.zeros(1).expand(9)\nfor i in range(9):\n    table[i] = table[i] + 1",
        "a, b = table, table\nfor i in range(1, 9):\n    a[i] = b[i - 1] * .9",
        "a, b = table.split(4)\nfor i in range(4):\n    a[i] = table[i - 1] * .9",
        "for row in rows:\n    total **= row",
        "for row in rows:\n    self.h *= .9\n    self.h += row",
        "for row in rows:\n    table[int(row)] += 1\n    table[0] *= .9",
        "for i, v in zip(rows, boxes):\n    table[i] += v * (1 + i)\n    table[i + 1] *= .5",
        "for row in rows:\n    table[0] //= row",
        "for row in rows:\n    kept.append(q.get(True))",
        "for v in (x + len(kept) for x in rows):\n    kept.append(v)",
        "for row in rows:\n    kept.append(pool.log(row))",
        "for row in rows:\n    torch.nn.functional.relu(table, True)\n    kept.append(table.clone())",
        "def outer2(t, x):\n    t += x\n    return t.sum()\nfor row in rows:\n    kept.append(outer2(table, row))",
        "def outer2(t, x):\n    u = t[0]\n    u += x\n    return u.clone()\nfor row in rows:\n    kept.append(outer2(table, row))",
        "def outer2(x): return x + len(kept)\nfor row in rows:\n    kept.append(outer2(row))",
        "kept = [x for x in rows if not (x in seen or seen.add(x))]",
        "for row in rows:\n    self.buf.append(row + len(self.buf))",
    ],
)
def test_rounds_that_may_need_the_one_before(body: str) -> None:
    assert "apart" not in ways(body)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(9):\n    for j in range(9):\n        a = rows[i]\n        b = boxes[j]\n        table[i, j] = torch.dot(a, b) / (a.norm() * b.norm())",
        "for i in range(len(rows)):\n    kept.append(rows[i].sum())",
        "for i, row in enumerate(rows):\n    d = ((boxes - row) ** 2).sum(1)\n    table[i] = d.argmin()",
        "for b in range(rows.shape[0]):\n    w = rows[b].unfold(0, 3, 1)\n    kept.append(w.mean(0))",
        "for row in rows:\n    kept.append(ident(row))",
        "for row in rows:\n    counts = {}\n    for v in row.tolist():\n        counts[v] = counts.get(v, 0) + 1\n    kept.append(max(counts.values()))",
        "for t in range(9):\n    with torch.no_grad():\n        table[t] = rows[t].softmax(-1)",
        "kept = [torch.tensor(row) / 255 for row in rows]",
        "total = sum(float(row.sum()) for row in rows)",
        "for row, box in zip(rows, boxes):\n    if row.sum() > 0:\n        kept.append(box * 2)\n        total += box.sum()",
        "for row in rows:\n    state.setdefault(int(row), []).append(row)",
        "for i in range(9):\n    loss = loss + (rows[i] - boxes[i]).pow(2).mean()",
        "for i in range(9):\n    loss += torch.nn.functional.cross_entropy(rows[i], boxes[i])",
        "for i, row in enumerate(rows):\n    order = sorted(range(9), key=lambda j: row[j])\n    kept.append(order[:3])",
        "for row in rows:\n    m = torch.zeros(9)\n    m[row] = 1\n    kept.append(m)",
        "for i in range(9):\n    x0 = max(boxes[i, 0], rows[i, 0])\n    x1 = min(boxes[i, 2], rows[i, 2])\n    table[i] = (x1 - x0).clamp(min=0)",
        "for i in range(9):\n    idx = torch.where(out == i)[0]\n    kept.append(rows[idx].mean(0))",
        "for k, v in state.items():\n    table[k] = v.mean()",
        "for i in range(9):\n    table[i] += rows[i]",
        "for i in range(9):\n    table[int(rows[i])] += 1",
    ],
)
def test_rounds_that_are_seen_to_need_nothing(body: str) -> None:
    assert "apart" in ways(body)

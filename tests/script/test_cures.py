"""Which cure the source proves for a line, and that nothing is said where it proves none."""

from __future__ import annotations

import ast
import collections
import time

import pytest

from sysperf.script import cures

STEP = """\
import copy, math, random
import numpy as np
import torch
from torch import nn
import elsewhere
from PIL import Image, ImageDraw
T = 4000
table = torch.randn(40000, 64)
moving = torch.zeros(3)
kept, listed, shown = {{}}, {{}}, {{}}

def betas(steps):
    made = []
    for i in range(steps):
        made.append(math.cos(i / steps))
    return np.array(made)

def noise(steps):
    return torch.randn(steps) * moving

def drawn(size):
    image = Image.new("L", (size, size))
    pen = ImageDraw.Draw(image)
    for _ in range(9):
        pen.line((random.randint(0, size), 0, 9, 9))
    return np.asarray(image)

def white(rows):
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    return vectors @ torch.diag(values.clamp(min=1e-5).rsqrt())

def masks(model, part):
    return [p.abs() > part for p in model.parameters()]

def words(ids):
    return " ".join(str(i) for i in ids)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.one, self.body = nn.Linear(8, 99), nn.Linear(8, 1), nn.GRU(8, 8)

class Sampler:
    def __init__(self, n):
        self.n, self.seen = n, 0
        self.grid = torch.arange(n)
    def go(self):
        self.seen += 1

net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)

def train(loader, sampler):
    early = net(table)
    for x, y in loader:
        out = net(x)
        moving.add_(1)
        size = x.shape[1]
        {statement}
        loss = out.mean()
        loss.backward()
        optimizer.step()
        use(result)

def hook(module, inputs, output):
    kept["a"] = output.abs().kthvalue(9)
    listed["c"] = output.abs().kthvalue(9)
    shown["b"] = output.abs().kthvalue(9)

print(kept)
for name in sorted(listed):
    print(name, listed[name])
act(shown)
"""


def of(statement: str) -> str:
    text = STEP.format(statement=statement)
    return cures.cure(text, 1 + text.splitlines().index(f"        {statement}"))


@pytest.mark.parametrize(
    ("statement", "cure"),
    [
        ("result = (table - table.mean(0)) / table.std(0)", "fixed"),
        ("result = betas(T)", "fixed"),
        ("result = betas(T).cumsum()", "fixed"),
        ("result = white(table)", "fixed"),
        ("result = nn.Linear(3, 3)", ""),
        ("result = torch.tril(torch.ones(size, size))", "fixed"),
        ("result = early @ early.T", "fixed"),
        ("result = noise(T)", ""),
        ("result = moving.sum() * table", ""),
        ("result = torch.rand(9)", "data"),
        ("result = drawn(64)", "data"),
        ("result = betas(y)", "data"),
        ("result = np.sort(x.numpy())", "data"),
        ("result = [random.choice(range(9)) for _ in y]", "data"),
        ("result = elsewhere.batch()", ""),
        ("result = elsewhere.batch(out)", "outputs"),
        ("result = unknown(x)", ""),
        ("result = masks(net, 0.5)", ""),  # use() may be anything
        ("torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)", ""),
        ("loss = sum(p.pow(2).sum() for p in net.parameters())", ""),
        ("result = out.sort().values", "outputs"),
        ("loss = (out - y).abs().mean()", "loss"),
    ],
)
def test_what_a_statement_depends_on_tells_its_cure(statement: str, cure: str) -> None:
    """A seed that is drawn, and an object that is drawn on, change from step to step. What steps write needs the ones before it."""
    assert of(statement) == cure


WRITTEN = """\
import heapq, queue
import numpy as np
import torch
kept, scale, asked = list(range(9)), 1.0, queue.Queue()
weights = torch.randn(9, 9, requires_grad=True)

def bump(rows, other=None):
    rows += 1

class Work:
    def fill(self, rows):
        rows[0] = 1

def anneal():
    global scale
    scale *= 0.9

def train(model, optimizer, work, loader):
    rows, part = np.zeros(9), 1.0
    def shrink():
        nonlocal part
        part *= 0.9
    for x, y in loader:
        {change}
        result = {made}
        loss = (model(x) * result).sum()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("change", "made"),
    [
        ("bump(rows)", "np.sort(rows)"),
        ("work.fill(rows)", "np.sort(rows)"),
        ("np.copyto(rows, x)", "np.sort(rows)"),
        ("heapq.heapreplace(kept, x)", "sorted(kept)"),
        ("setattr(work, 'rows', x)", "np.sort(work.rows)"),
        ("anneal()", "np.sqrt(np.arange(9) * scale)"),
        ("shrink()", "np.sqrt(np.arange(9) * part)"),
        ("pass", "sorted(asked.get())"),
        ("pass", "torch.linalg.svd(weights)[0]"),
    ],
)
def test_what_is_written_elsewhere_is_not_the_same_in_each_step(change: str, made: str) -> None:
    """By a function that is given it, by `global` and `nonlocal`, by an optimizer, or by who fills a queue."""
    text = WRITTEN.format(change=change, made=made)

    assert cures.cure(text, 1 + text.splitlines().index(f"        result = {made}")) == ""


HELPERS = """\
import copy, functools, heapq, itertools, random
import settings
import numpy as np
import torch
from torch import nn

def bump(rows):
    rows += 1

def outer(rows):
    bump(rows)

def later(rows):
    last(rows)

def last(rows):
    part = rows[2:]
    part[0] = 1

def each(several):
    for one in several:
        one += 1

def any_of(*several):
    several[0][1] = 1

def remembers(seen=[0]):
    seen[0] += 1
    return seen[0]

def weight():
    return nn.Parameter(torch.zeros(9))

class Work:
    count = 0
    def __call__(self):
        self.count += 1
    def __getitem__(self, index):
        self.count += 1
        return self.count
    @property
    def now(self):
        self.count += 1
        return self.count
    def fill(self, rows):
        rows[0] = 1

def train(model, optimizer, loader):
    {before}
    for x, y in loader:
        {change}
        result = {made}
        loss = (model(x) * result).sum()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "change", "made"),
    [
        ("rows = np.zeros(9)", "bump(rows=rows)", "np.sort(rows)"),
        ("rows = np.zeros(9)", "bump(*[rows])", "np.sort(rows)"),
        ("rows = np.zeros(9)", "outer(rows)", "np.sort(rows)"),
        ("rows = np.zeros(9)", "later(rows)", "np.sort(rows)"),
        ("rows = np.zeros(9)", "each([rows])", "np.sort(rows)"),
        ("rows = np.zeros(9)", "any_of(rows)", "np.sort(rows)"),
        ("rows = np.zeros(9)", "Work.fill(None, rows)", "np.sort(rows)"),
        ("rows = np.zeros(9); part = rows[2:]", "part += 1", "np.sort(rows)"),
        ("rows = torch.zeros(9); flat = rows.view(-1)", "flat.add_(1)", "torch.sort(rows)"),
        ("rows = np.zeros(9); same = torch.from_numpy(rows)", "rows += 1", "torch.sort(same)"),
        ("rows = np.zeros(9)", "rows.T[0] = 4", "np.sort(rows)"),
        ("parts = [np.zeros(9)]", "for one in parts: one += 1", "np.sort(parts[0])"),
        ("rows = torch.zeros(9)", "torch._foreach_add_([rows], 1)", "torch.sort(rows)"),
        ("kept = []; put = kept.append", "put(x)", "np.sort(kept)"),
        ("kept = []; put = functools.partial(heapq.heappush, kept)", "put(x)", "sorted(kept)"),
        ("kept = []; model.register_forward_hook(kept.append)", "pass", "np.sort(kept)"),
        ("w = torch.zeros(9).requires_grad_()", "pass", "torch.sort(w)"),
        ("w = torch.zeros(9); w.requires_grad = True", "pass", "torch.sort(w)"),
        ("w = torch.zeros(9); other = torch.optim.SGD([w])", "other.step()", "torch.sort(w)"),
        ("w = weight()", "pass", "torch.sort(w)"),
        ("w = [nn.Parameter(torch.zeros(9))]", "pass", "torch.sort(w[0])"),
        ("w = list(model.parameters())", "pass", "torch.cat([one.flatten() for one in w])"),
        ("w = nn.Embedding(9, 9).weight", "pass", "torch.sort(w)"),
        ("work = Work()", "work()", "np.arange(9) * work.count"),
        ("work = Work()", "pass", "np.arange(9) * work.now"),
        ("work = Work()", "pass", "np.arange(9) * work[0]"),
        ("pass", "Work.count += 1", "np.arange(9) * Work.count"),
        ("pass", "pass", "np.arange(9) * remembers()"),
        ("left = itertools.count()", "pass", "sum(itertools.islice(left, 3)) * 2"),
        ("left = iter(range(99))", "pass", "np.array([one for one, _ in zip(left, range(3))])"),
        ("part = 1", "exec('part = 2')", "np.arange(9) * part"),
        ("part = 1", "match x:\n            case [part, *_]: pass", "np.arange(9) * part"),
        ("pass", "pass", "np.random.beta(0.2, 0.2, 99) * 2"),
        ("rows = torch.ones(9)", "pass", "nn.functional.gumbel_softmax(rows)"),
        ("rows = np.memmap('rows')", "pass", "np.sort(rows)"),
        ("timer = torch.utils.benchmark.Timer(1)", "pass", "np.arange(9) * timer.total"),
        ("w = model.state_dict()", "pass", "torch.sort(w['a'])"),
        ("rows = torch.zeros(9); flat = rows.view(-1)", "other = nn.init.uniform_(flat)", "torch.sort(rows)"),
        ("rows = torch.zeros(9); flat = rows.view(-1)", "other = torch.neg(flat, out=flat)", "torch.sort(rows)"),
        ("rows = np.zeros(9); flat = rows.reshape(-1)", "np.copyto(flat, x)", "np.sort(rows)"),
        ("kept = []", "got = len(list(map(kept.append, x)))", "np.sort(kept)"),
        ("pass", "pass", "np.arange(9) * settings.scale"),
        ("pass", "for k in range(9):\n            if x[k] > 1: break", "np.sort(np.arange(99) * k)"),
        ("rows = np.zeros(9); part = memoryview(rows)", "part[0] = 1", "np.sort(rows)"),
        ("rows = np.zeros(9); part = np.array(rows, copy=False)", "part[0] = 1", "np.sort(rows)"),
        ("rows = np.zeros(9); part = rows.astype(float, copy=False)", "part[0] = 1", "np.sort(rows)"),
        ("rows = np.zeros(9); part = np.flip(rows)", "part[0] = 1", "np.sort(rows)"),
        ("rows = torch.zeros(9); part = rows.as_strided((3,), (1,))", "part += 1", "torch.sort(rows)"),
        ("rows = torch.zeros(9); part = torch.utils.dlpack.from_dlpack(rows)", "part += 1", "torch.sort(rows)"),
        ("rows = torch.zeros(9); part = rows.untyped_storage()", "part.fill_(1)", "torch.sort(rows)"),
        ("pass", "pass", "torch.get_rng_state() * 2"),
        ("pass", "anneal.__defaults__ = (x,)", "np.arange(9) * weight.__defaults__[0]"),
        ("pass", "pass", "np.sort(np.empty(9))"),
        ("pass", "pass", "torch.empty(9) * 2"),
        ("rows = torch.zeros(9)", "pass", "torch.empty_like(rows) * 2"),
        ("pass", "class k: level = float(x.sum())", "np.arange(9) * k.level"),
        ("pass", "if x > 0: import math as k", "np.arange(9) * k.pi"),
        ("pass", "def k(): return x", "np.arange(9) * k()"),
    ],
)
def test_what_may_be_changed_by_another_name_or_function_is_not_the_same_in_each_step(before: str, change: str, made: str) -> None:
    text = HELPERS.format(before=before, change=change, made=made)

    assert cures.cure(text, 1 + text.splitlines().index(f"        result = {made}")) != "fixed"


@pytest.mark.parametrize(
    ("before", "change", "made"),
    [
        ("rows = np.zeros(9); part = rows[2:]", "print(part)", "np.sort(rows)"),
        ("rows = np.zeros(9); part = rows[2:] * 2", "part += 1", "np.sort(rows)"),
        ("rows = torch.zeros(9); flat = rows.view(-1)", "flat.sum()", "torch.sort(rows)"),
        ("pass", "pass", "torch.ones(x.shape[1]) * 2"),
        ("pass", "local = np.zeros(9); local[2:] = 1", "np.sort(local)"),
        ("rows = np.empty(9)", "pass", "np.sort(rows)"),
        ("rows = [[2, 1], [3]]", "for one in rows: print(one)", "torch.tensor([len(set(one)) for one in rows])"),
    ],
)
def test_what_its_other_names_only_read_is_the_same_in_each_step(before: str, change: str, made: str) -> None:
    text = HELPERS.format(before=before, change=change, made=made)

    assert cures.cure(text, 1 + text.splitlines().index(f"        result = {made}")) == "fixed"


@pytest.mark.parametrize("change", ["pass", "print(rows, kept, part)", "bump(y, rows)", "anneal()"])
def test_what_is_only_shown_or_handed_to_who_leaves_it_is_the_same(change: str) -> None:
    for made in ("np.sort(rows)", "sorted(kept)", "np.sqrt(np.arange(9) * part)"):
        text = WRITTEN.format(change=change, made=made).replace("shrink():", "unused():").replace("part *= 0.9", "pass")
        assert cures.cure(text, 1 + text.splitlines().index(f"        result = {made}")) == "fixed", made


GROWS = """\
{before}
for t in range(900):
    {first}
    {line}
    {after}
"""


@pytest.mark.parametrize(
    ("before", "line", "after", "grows"),
    [
        ("ids, m = zeros(1), encode(x)", "logits = net.decode(ids, m)[:, -1]", "ids = torch.cat((ids, pick(logits)), 1)", True),
        ("keys = torch.zeros(1, 1)", "out = attend(t, keys)", "keys = torch.cat([keys, out], 1)", False),
        ("kept = []", "new = not any(alike(t, other) for other in kept)", "kept.append(new)", False),
        ("ids = torch.zeros(1, 1)", "ids = torch.cat([ids, pick(t)], 1)", "pass", False),
        ("ids = torch.zeros(1, 1)", "logits = model(ids)", "ids = torch.cat([ids, pick(logits)], 1)", True),
        ("ids = []", "text = decode(ids)", "ids.append(t)", True),
        ("ids = []", "mean = note(sum(ids) / len(ids))", "ids.append(t)", True),
        ("text = ''", "n = count(text)", "text += f'{t}'", True),
        ("ids = torch.zeros(1, 1)", "logits = model(ids[:, -1:])", "ids = torch.cat([ids, pick(logits)], 1)", False),
        ("ids = torch.zeros(1, 1)", "logits, past = model(ids, past_key_values=past)", "ids = torch.cat([ids, pick(logits)], 1)", False),
        ("ids = []", "few = random.sample(ids, 9)", "ids.append(t)", False),
        ("ids = []", "last = f(ids[-1])", "ids.append(t)", False),
        ("ids = []", "n = len(ids)", "ids.append(t)", False),
        ("ids = []", "text = decode(ids)", "ids.append(t); ids = ids[-9:]", False),
        ("ids = deque(maxlen=9)", "text = decode(ids)", "ids.append(t)", False),
        ("ids = []", "text = decode(ids)", "ids.append(t); ids.pop(0)", False),
        ("ids = []", "text = decode(ids)", "ids.append(t); del ids[:-9]", False),
        ("ids = []", "text = decode(ids)", "ids.append(t); ids[:] = []", False),
        ("total = 0", "y = f(total)", "total += t", False),
        ("text = 'The '", "y = f(encode(text)[None])", "text += letters[y]", True),
        ("text = 'The '", "y = f(text)", "text = text + letters[y]", True),
        ("total = 0", "y = f(total)", "total += parts[y]", False),
        ("total = start", "y = f(total)", "total = total + part", False),
    ],
)
def test_what_the_loop_makes_longer(before: str, line: str, after: str, *, grows: bool) -> None:
    """All of it has to be handed on; a window, an element, its length or a cache beside it cost the same in each step."""
    text = GROWS.format(before=before, first="pass", line=line, after=after)

    assert (cures.of_call(text, 4) == "grows") is grows
    assert (cures.cure(text, 4) == "grows") is grows


def test_a_tensor_of_all_words_so_far_is_the_whole_of_them() -> None:
    text = "words = seed.split()\nfor t in range(9):\n    x = torch.tensor([[index[w] for w in words]])\n    y = model(x)[0, -1]\n    words.append(pick(y))\n"

    assert cures.of_call(text, 4) == "grows"
    assert cures.of_call(text.replace("[[index[w] for w in words]]", "[index[words[-1]]]"), 4) == ""
    assert cures.of_call(text.replace("for w in words]])", "for w in words]]).sum()"), 4) == ""


def test_what_begins_anew_in_each_round_does_not_grow() -> None:
    """Outputs of a sequence are collected, and stacked after their loop."""
    text = "for x in loader:\n    outs = []\n    for t in x:\n        outs.append(t)\n    y = torch.stack(outs)\n"

    assert cures.cure(text, 5) != "grows"


FORWARD = """\
class Net(nn.Module):
    def __init__(self):
        self.out, self.one, self.body = nn.Linear(8, 99), nn.Linear(8, 1), nn.GRU(8, 8)
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 9))
    def forward(self, x):
        {line}
        {use}
"""


@pytest.mark.parametrize(
    ("line", "use", "discarded"),
    [
        ("y = self.out(x)", "return y[:, -1]", True),
        ("y = self.head(x)", "return y[:, 0, :]", True),
        ("return self.out(x)[:, -1]", "pass", True),
        ("y = self.out(x)", "return y[:, 0]", False),
        ("y = self.out(x)", "return y[masked]", True),
        ("y = self.out(x)", "return y[masked], y[others]", False),
        ("y = torch.stack([head(x) for head in self.heads], 1)", "return y[torch.arange(len(x)), task]", True),
        ("y = torch.stack([head(x) for head in self.heads], 1)", "return y[:, 0]", False),
        ("y = torch.stack([head(x) for head in self.heads], 1)", "return y.mean(1)", False),
        ("y = torch.stack([row.abs() for row in x], 1)", "return y[torch.arange(len(x)), task]", False),
        ("y = self.one(x)", "return y[:, -1]", False),
        ("y = self.body(x)", "return y[:, -1]", False),
        ("y = self.out(x)", "return y[:, -1], y.mean()", False),
        ("y = self.out(x)", "return y", False),
        ("y = other(x)", "return y[:, -1]", False),
    ],
)
def test_a_layer_for_each_place_of_which_one_is_taken(line: str, use: str, *, discarded: bool) -> None:
    """A recurrent layer needs all places; a column of its outputs is none."""
    assert (cures.of_call(FORWARD.format(line=line, use=use), 6) == "discarded") is discarded


@pytest.mark.parametrize(
    ("line", "discarded"),
    [
        ("out = out + (choice == i)[:, None] * expert(x)", True),
        ("out += expert(x) * weight[:, i]", False),
        ("out.index_add_(0, rows, expert(x[rows]) * weight[rows])", False),
    ],
)
def test_experts_that_compute_all_rows(line: str, *, discarded: bool) -> None:
    """A soft mixture needs all of them; what is sent to its rows only is right."""
    text = f"for i, expert in enumerate(experts):\n    rows = (choice == i).nonzero()\n    {line}\n"

    assert (cures.of_call(text, 3) == "discarded") is discarded


def test_what_a_hook_keeps_for_reports() -> None:
    """Of two containers the one that is only printed."""
    text = STEP.format(statement="pass")
    lines = text.splitlines()

    assert cures.cure(text, 1 + lines.index('    kept["a"] = output.abs().kthvalue(9)')) == "reported"
    assert cures.cure(text, 1 + lines.index('    listed["c"] = output.abs().kthvalue(9)')) == "reported"
    assert cures.cure(text, 1 + lines.index('    shown["b"] = output.abs().kthvalue(9)')) == ""


def test_a_size_that_a_layer_is_given_beside_its_input_stays() -> None:
    text = """\
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, heads):
        self.heads = heads
        self.out = nn.Linear(8, 8)
    def forward(self, x):
        far = torch.arange(9 + self.heads).abs()
        return self.out(x, self.heads) + far
model = Attention(3)
for x in y:
    model(x).sum().backward()
"""

    assert cures.cure(text, 8) == "fixed"


@pytest.mark.parametrize(
    "change",
    [
        "result[0] = x",
        "result += x",
        "result.fill_(1)",
        "bump(result)",
        "torch.add(x, 1, out=result)",
        "flat = result.view(-1); flat[0] = x",
        "result.view(-1)[0] = x",
        "result.t().fill_(x)",
        "part = result[2:]; part[0] = x",
    ],
)
def test_what_is_filled_afterwards_is_needed_anew(change: str) -> None:
    made = "torch.zeros(9) * 2"
    text = HELPERS.format(before="pass", change="pass", made=made).replace(f"result = {made}", f"result = {made}\n        {change}")

    assert cures.cure(text, 1 + text.splitlines().index(f"        result = {made}")) != "fixed"


def test_lines_in_the_cases_of_a_match_have_answers() -> None:
    text = "match x:\n    case [a]:\n        b = a\n        for _ in y:\n            c = [1, 2] * 3\n    case _:\n        pass\n"

    assert [cures.cure(text, line) for line in range(1, 8)] == ["", "", "", "", "fixed", "", ""]


def test_a_model_that_never_trains_stays_the_same() -> None:
    """Its trace can be kept."""
    text = "import torch\nbase = torch.nn.Linear(1, 1)\nfor x in y:\n    fast = torch.jit.trace(base, torch.zeros(1))\n    fast(x)\n"

    assert cures.cure(text, 4) == "fixed"
    assert cures.cure(f"{text}    optimizer.step()\n", 4) != "fixed"


def test_a_value_may_have_the_name_of_a_function_or_a_module() -> None:
    """A method of the file, or an import, that a name of the function hides."""
    lines = [
        "import math, torch",
        "class A:",
        "    def go(self):",
        "        pass",
        "for x in loader:",
        "    go = model(x)",
        "    math = x + 1",
    ]
    text = "\n".join((*lines, "    one = go.abs().sum()", "    two = math.abs().sum()", "    loss.backward()", "    use(one, two)"))

    assert (cures.cure(text, 8), cures.cure(text, 9)) == ("", "data")


def test_what_a_program_that_never_trains_prints_is_its_result() -> None:
    """A service's answers are no reports on training."""
    text = "for x in y:\n    best = (table * 3).argmax()\n    print(best)\n"

    assert cures.cure(text, 2) != "reported"
    assert cures.cure(f"{text}    loss.backward()\n", 2) == "reported"


@pytest.mark.parametrize(
    "text",
    [
        "def f(a):\n" + "".join(f"    x{i} = g(x{i + 1}, x{i + 2})\n" for i in range(4000)) + "    return x0\n",
        "".join(f"def f{i}(a): return f{i + 1}(a) + f{i + 2}(a)\n" for i in range(1500)) + "for i in y:\n    z = f0(3)\n",
        "for i in y:\n" + "".join(f"    x.append(x{i}); x{i} = h(x, x{i + 1})\n" for i in range(1200)),
        "for i in y:\n    " + ",".join(f"x{i}" for i in range(20_000)) + " = 1\n    z = f(x9)\n",
        pytest.param("for i in y:\n" + "    a = b; a[0] = 1\n" * 6_000, marks=pytest.mark.slow),
        "".join(f"def f{i}(a):\n    a += 1\n" for i in range(5_000)) + "for i in y:\n    z = f9(i)\n",
        "".join(f"def f{i}():\n global v\n v=f{i}()\n" for i in range(2500)) + "for i in y:\n    z = g(i) * v\n",
        pytest.param("for i in y:\n    z = f((" + "i," * 60_000 + "))\n", marks=pytest.mark.slow),
        "for i in y:\n    a = b\n    b = a\n    z = i(a) * b\n",
        "for i in y:\n" + "".join(f"    v{n} = v{n - 1} + v{n - 1}\n" for n in range(1, 40)) + "    z = i(x) * v39\n",
        "for i in y:\n" + "".join(f"    v{n} = v{n - 1}\n" for n in range(1, 3000)) + "    z = i(x) * v2999\n",
    ],
)
def test_a_source_that_was_made_to_tangle(text: str) -> None:
    """A dozen of its lines are asked for in the time of some walks over the whole source; one for each pair of lines would be thousands."""
    start = time.process_time()
    collections.deque(ast.walk(ast.parse(text)), maxlen=0)
    walk_s = max(0.005, time.process_time() - start)
    start = time.process_time()
    lines = text.count("\n")
    for line in (*range(1, lines, max(1, lines // 12)), lines):
        cures.cure(text, line)
        cures.of_call(text, line)
        cures.of_part(text, line, "f")

    assert time.process_time() - start < 150 * walk_s


@pytest.mark.parametrize("line", ["    kept = kept", "    kept = other\n    other = kept"])
def test_names_of_each_other_take_no_time_that_doubles_with_each_line(line: str) -> None:
    text = "for x in y:\n" + f"{line}\n" * 200 + "    kept[0] = 1\n    result = kept * 2\n"

    begun = time.process_time()
    assert cures.cure(text, len(text.splitlines())) == "data"
    assert time.process_time() - begun < 2


COUNTED = """\
import random
import torch
from torch import nn
COUNT = 10
rows = [min(int(random.expovariate(0.5)), COUNT - 1) for _ in range(60000)]

def weights(targets):
    return torch.tensor([1.0 / max(targets.count(c), 1) for c in range(COUNT)])

def noise(targets):
    return torch.tensor([random.gauss(0, 1) for _ in targets])

def train(net, optimizer, loader):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y, weight={call})
        loss.backward()
        optimizer.step()
train(nn.Linear(9, COUNT), None, [])
"""


@pytest.mark.parametrize(
    ("call", "cure"), [("weights(rows)", "fixed"), ("noise(rows)", ""), ("weights(y)", ""), ("weights(rows).mul_(x.mean())", "")]
)
def test_one_call_in_a_line_may_be_the_same_in_each_step(call: str, cure: str) -> None:
    """Rows that were drawn before the loop stay. A result that is changed where it stands is no constant."""
    text = COUNTED.format(call=call)
    line = 1 + next(number for number, line in enumerate(text.splitlines()) if "cross_entropy" in line)

    assert cures.cure(text, line) == "loss"
    assert cures.of_part(text, line, call.partition("(")[0]) == cure


KEPT = """\
import torch
from torch import nn
rows = [i % 7 for i in range(40000)]

class Weights:
    def __init__(self, rows): self.rows = rows
    def made(self):
        found = [sum(1 for v in self.rows if v == c) for c in range(7)]
        scaled = [v / sum(found) for v in found]
        return torch.tensor(scaled)

kept = Weights(rows)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y, weight=kept.made())
    loss.backward()
    optimizer.step()
    {after}
"""


@pytest.mark.parametrize(
    ("after", "cure"),
    [("print(loss)", "fixed"), ("kept.rows.append(3)", ""), ("kept.rows[0] = 3", ""), ("rows.append(3)", ""), ("kept.rows = rows", "")],
)
def test_what_an_object_keeps_stays_where_nobody_changes_it(after: str, cure: str) -> None:
    """Each comprehension has names of its own: the second `v` is made of the first one's sums, and of nothing of its own."""
    text = KEPT.format(after=after)
    line = 1 + next(number for number, line in enumerate(text.splitlines()) if "cross_entropy" in line)

    assert cures.of_part(text, line, "made") == cure


@pytest.mark.parametrize(
    "body",
    [
        "class Level:\n    def __get__(self, one, owner): return time.time()\nclass Kept:\n    level = Level()\nkept = Kept()",
        "class Kept:\n    def __getattr__(self, name): return time.time()\nkept = Kept()",
    ],
)
def test_an_attribute_that_is_computed_is_not_the_same_in_each_step(body: str) -> None:
    text = f"import time\nimport numpy as np\n{body}\nfor x in loader:\n    result = np.arange(9) * kept.level\n    use(x, result).backward()\n"

    assert cures.cure(text, text.count("\n") - 1) != "fixed"

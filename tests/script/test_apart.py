"""Whether work has a part in the training beside it: by whatever way a value of a model gets there, or goes from there into a loss."""

from __future__ import annotations

import time

import pytest

from sysperf.script import cures

HEAD = """\
import copy, functools, heapq, queue, random, threading
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import Parameter
import elsewhere
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
xs = torch.randn(99, 8)
loader = list(zip(xs.split(9), torch.randint(0, 8, (99,)).split(9)))
"""
STEP = """\
    loss = F.cross_entropy(net(batch), y)
    loss.backward()
    opt.step()
"""
MAKE = "batch = make(x).cumsum(0)"
KEPT = """\
seen = [1.0]
class A:
    kept = seen
    def __init__(self, k=None):
        if k: self.kept = k
    def make(self, x): return x * self.kept[-1]
a = A()"""
FLAT = "s = np.ones(99)\nflat = s.reshape(-1)"
CHOSEN = "batch = xs[np.random.choice(99, 9, p=s)]"
DRAWN = "batch = xs[torch.randperm(99)[:9]].cumsum(0)"


def of(before: str, line: str, after: str, step: str = STEP) -> str:
    """The cure of a line of a loop, with definitions before the loop and lines after its step."""
    later = "".join(f"    {part}\n" for part in after.splitlines())
    lines = "".join(f"    {part}\n" for part in line.splitlines())
    text = f"{HEAD}{before}\nfor x, y in loader:\n{lines}{step}{later}"
    return cures.cure(text, 1 + (HEAD + before).count("\n") + len(line.splitlines()) + 1)


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("level = 1.0\ndef make(x): return x * level", MAKE, "level = 0.9 * level + loss.item()"),
        ("def make(x): return x * make.level", MAKE, "make.level = loss.item()"),
        ("class C: level = 1.0\ndef make(x): return x * C.level", MAKE, "C.level = loss.item()"),
        ("seen = [1.0]\ndef make(x, seen=seen): return x * seen[-1]", MAKE, "seen.append(loss.item())"),
        ("feats = {}\nnet[0].register_forward_hook(lambda m, i, o: feats.update(a=o))\ndef make(x): return x + feats.get('a', 0)", MAKE, ""),
        ("def scaled(f): return lambda x: f(x) + net(x)\n@scaled\ndef make(x): return x * 2", MAKE, ""),
        ("level = 1.0\ndef make(x): return x * level", MAKE, "globals()['level'] = loss.item()"),
        ("s = [1.0]\ndef work(s): s[0] = float(net[0].weight.norm())\nthreading.Thread(target=work, args=(s,)).start()\ndef make(x): return x * s[0]",
         MAKE, ""),
        ("class A:\n    @property\n    def level(self): return net[0].weight.norm()\na = A()", "batch = (x * a.level).cumsum(0)", ""),
        ("class A:\n    def __getitem__(self, i): return net[0].weight[i]\na = A()", "batch = (x * a[0]).cumsum(0)", ""),
        ("class A:\n    def __init__(self): self.p = np.ones(99)\n    def draw(self): return np.random.choice(99, 9, p=self.p)\na = A()",
         "batch = xs[a.draw()]", "a.p[0] = loss.item()"),
        ("ws = [net[0].weight]", "batch = (x @ ws[0]).cumsum(0)", ""),
        ("w, *rest = net.parameters()", "batch = (x @ w).cumsum(0)", ""),
        ("w = net[0].weight.detach().numpy()", "batch = torch.from_numpy(x.numpy() @ w)", ""),
        ("w = Parameter(torch.randn(8, 8))", "batch = (x @ w).cumsum(0)", ""),
        ("w = torch.randn(8, 8).requires_grad_()", "batch = (x @ w).cumsum(0)", ""),
        ("w = torch.randn(8, 8)\nws = [w]", "batch = (x @ w).cumsum(0)", "torch._foreach_add_(ws, [net[0].weight.grad])"),
        ("s = np.ones(99)\nflat = s.reshape(-1)", "batch = xs[np.random.choice(99, 9, p=s)]", "flat[0] = loss.item()"),
        ("s = torch.ones(())", "batch = (x * s).cumsum(0)", "torch.mul(loss.detach(), 2, out=s)"),
        ("def put(value, into): into[0] = value\ns = torch.ones(8)", "batch = (x * s).cumsum(0)", "put(value=loss.item(), into=s)"),
        ("def put(**both): both['s'][0] = both['l']\ns = torch.ones(8)", "batch = (x * s).cumsum(0)", "put(s=s, l=loss.item())"),
        ("level = 1.0", "batch = (x * level).cumsum(0)", "if loss.item() < 1: level = 2.0"),
        ("", "k = 0\nwhile net(x).mean() > k: k += 1\nbatch = (x * k).cumsum(0)", ""),
        ("", "z = x.view(-1)\nz.add_(net(x).detach().view(-1))\nbatch = (x * 2).cumsum(0)", ""),
        ("", "n = net(x).argmax(1).unique().numel()\nbatch = (x * n).cumsum(0)", ""),
        ("class A:\n    def __init__(self, x): self.z = net(x)", "a = A(x)\nbatch = a.z.cumsum(0)", ""),
        ("elsewhere.use(net)", "batch = elsewhere.mixed(x).cumsum(0)", ""),
        ("s = torch.ones(8)", "batch = (x * s).cumsum(0)", "s.data = net(x).detach()[0]"),
        ("s = torch.ones(8)\ns.requires_grad = True", "batch = (x * s).cumsum(0)", ""),
        ("s = {1: 1}", "batch = (x * max(s)).cumsum(0)", "s[loss.item()] = 1"),
        ("s = torch.ones(())", "batch = (x * s).cumsum(0)", "z = torch.mul(loss.detach(), 2, out=s)"),
        ("s = torch.ones(8)", "batch = (x * s).cumsum(0)", "z = torch._foreach_add_([s], loss.detach())"),
        ("c = 0", "for k in range(int(net(x).norm())): c = k\nbatch = (x * c).cumsum(0)", ""),
        ("", "match net(x).argmax().item():\n    case 1: k = 1\n    case _: k = 2\nbatch = (x * k).cumsum(0)", ""),
        ("old = torch.load('old')\nold.train()\nclass A:\n    def __getitem__(self, i): return old(i)\na = A()", "batch = (x * a[0]).cumsum(0)", ""),
        ("class D:\n    def __get__(self, o, t): return net[0].weight.norm()\nclass A: level = D()\na = A()", "batch = (x * a.level).cumsum(0)", ""),
        ("", "for k in range(9):\n    if net(x).norm() > k: break\nbatch = (x * k).cumsum(0)", ""),
        ("", "for i in range(9):\n    if net(x).norm() > i: continue\n    k = i\nbatch = (x * k).cumsum(0)", ""),
        ("@functools.singledispatch\ndef make(x): return x\n@make.register\ndef _(x: torch.Tensor): return net(x)", MAKE, ""),
        ("@functools.singledispatch\ndef make(x): return x\n@make.register(torch.Tensor)\ndef _(x): return net(x)", MAKE, ""),
        ("def make(x, level=1): return x * level", MAKE, "make.__defaults__ = (loss.item(),)"),
        ("s = np.ones(99)\nt = getattr(s, 'T')", "batch = xs[np.random.choice(99, 9, p=s)]", "t[0] = loss.item()"),
        ("s = np.ones(99)\nt = np.array(s, copy=False)", "batch = xs[np.random.choice(99, 9, p=s)]", "t[0] = loss.item()"),
        (FLAT, CHOSEN, "flat[int(loss.item())] = 0.5"),
        (FLAT, CHOSEN, "flat += loss.item()"),
        (FLAT, CHOSEN, "if loss.item() < 1: flat.sort()"),
        (FLAT, CHOSEN, "elsewhere.mix(flat, loss.item())"),
        (FLAT, CHOSEN, "flat[0] = float(elsewhere.weight.grad[0])"),
        (FLAT + "\nz, v = elsewhere.made()", CHOSEN, "flat[0] = float(torch.autograd.grad(z, v)[0])"),
        (FLAT + "\ndef collect():\n    while True: flat[0] = yield\nc = collect()\nnext(c)", CHOSEN, "c.send(loss.item())"),
        (FLAT + "\nclass Keep:\n    def __init__(self, s, v): s[0] = v", CHOSEN, "k = Keep(s, loss.item())"),
        ("s = np.ones(99)\ncopy = s.reshape(-1)", CHOSEN, "copy.fill(loss.item())"),
        (KEPT, "batch = a.make(x).cumsum(0)", "seen.append(loss.item())"),
        ("class A:\n    def __len__(self): return int(net[0].weight.norm())\na = A()", "n = len(a)\nbatch = (x * n).cumsum(0)", ""),
        ("seen = [1.0]\nkept = [seen]", "n = len(seen)\nbatch = (x * n).cumsum(0)", "if loss.item() < 1: kept[0].append(1)"),
        ("c = 0", "for _ in range(int(net(x).norm())): c = 2\nbatch = (x * c).cumsum(0)", ""),
        ("", "n = net(x).nonzero().shape[0]\nbatch = (x * n).cumsum(0)", ""),
        ("", "o = net(x)\nn = o[o > 0].numel()\nbatch = (x * n).cumsum(0)", ""),
        ("", "n = torch.stack([o for o in net(x) if o.sum() > 0]).shape[0]\nbatch = (x * n).cumsum(0)", ""),
        ("", "o = net(x).nonzero()\nn = o.shape[0]\nbatch = (x * n).cumsum(0)", ""),
        ("ws = list(elsewhere.net.parameters())", "batch = (x @ ws[0]).cumsum(0)", ""),
        ("ws = [torch.randn(8, 8).requires_grad_()]", "batch = (x @ ws[0]).cumsum(0)", ""),
        ("learns = True\nw = torch.randn(8, 8, requires_grad=learns)", "batch = (x @ w).cumsum(0)", ""),
        ("m, ps = elsewhere.made()", "z = torch.func.functional_call(m, ps, x)\nbatch = z.cumsum(0)", ""),
        ("m, ps = elsewhere.made()", "batch = torch.func.functional_call(m, ps, x).cumsum(0)", ""),
        ("", DRAWN, "torch.manual_seed(int(loss.item()))"),
        ("", DRAWN, "if loss.item() < 1: torch.manual_seed(3)"),
        ("", DRAWN, "torch.set_rng_state(loss.detach().byte())"),
        ("", "batch = xs[np.random.randint(0, 99, 9)].cumsum(0)", "np.random.seed(int(loss.item()))"),
    ],
)  # fmt: skip
def test_what_a_model_has_a_part_in_is_not_data_alone(before: str, line: str, after: str) -> None:
    assert of(before, line, after) in ("", "outputs", "loss")


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("def make(x): return x * 2", MAKE, "print(loss.item())"),
        ("losses = []\ndef make(x): return x * 2", MAKE, "losses.append(loss.item())"),
        ("", "batch = elsewhere.mixed(x).cumsum(0)", ""),
        ("k = torch.ones(8)", "batch = (x * k).cumsum(0)", ""),
        ("", "for k in range(9):\n    if x.norm() > k: break\nbatch = (x * k).cumsum(0)", ""),
        ("", "batch = x.cumsum(0)", "if loss.item() < 0.1: break"),
        ("def part(v): return v / v.max()\ndef make(x): return part(x)", MAKE, "print(part(loss.detach()))"),
        ("def crop(x):\n    if random.random() < 0.5: return x / 2\n    return x", "batch = crop(x).cumsum(0)", ""),
        ("", "batch = x.cumsum(0)", "print(x, loss.item())"),
        ("def show(a, b): print(a, b)", "batch = x.cumsum(0)", "show(x, loss.item())"),
        ("", "batch = x.cumsum(0)", "rows = x.view(-1, 8)\nz = rows.matmul(net[0].weight)"),
        ("", "batch = (x * y[:, None]).cumsum(0)", "right = y.eq(net(x).argmax(1)).sum()"),
        ("kind = net[0].weight.dtype", "batch = torch.rand(9, 8, dtype=kind).cumsum(0)", ""),
        ("n = net[0].weight.shape[1]", "batch = x[:, :n].cumsum(0)", ""),
        ("n = net[0].weight.numel()", "batch = x[:, :n].cumsum(0)", ""),
        ("class A:\n    def setup(self): self.t = 2\n    def make(self, x): return x / self.t\na = A()", "batch = a.make(x).cumsum(0)", ""),
        ("", "torch.manual_seed(3)\n" + DRAWN, ""),
    ],
)
def test_data_stays_data(before: str, line: str, after: str) -> None:
    assert of(before, line, after) == "data"


FIT = """\
def fit(batch, y):
    loss = F.cross_entropy(net(batch), y)
    loss.backward()
    opt.step()
    return loss
def outer(batch, y): return fit(batch, y)
"""


@pytest.mark.parametrize("name", ["fit", "outer"])
@pytest.mark.parametrize("end", ["break", "continue"])
def test_a_loop_whose_steps_are_in_a_function_may_end_by_its_loss(name: str, end: str) -> None:
    assert of(FIT, "batch = x.cumsum(0)", f"if loss.item() < 0.1: {end}\nprint(loss)", f"    loss = {name}(batch, y)\n") == "data"


def test_a_loop_of_steps_may_run_until_its_loss_is_low() -> None:
    head = HEAD + "loss = torch.ones(())\nwhile loss.item() > 0.1:\n    x, y = torch.rand(9, 8), 3\n"

    assert cures.cure(head + "    batch = x.cumsum(0)\n" + STEP, 1 + head.count("\n")) == "data"


TRAINER = """\
class Trainer:
{maker}
    def make(self, x): return x / self.t
    def log(self, loss):
        t = loss.item()
        print(t)
    def run(self):
        for x, y in loader:
            batch = self.make(x).cumsum(0)
            loss = F.cross_entropy(net(batch), y)
            loss.backward()
            self.log(loss)
"""


@pytest.mark.parametrize(
    "maker",
    [
        *(f"    def {name}(self): self.t = 2" for name in ("__init__", "__post_init__", "setup")),
        "    def __new__(cls):\n        made = object.__new__(cls)\n        made.t = 2\n        return made",
    ],
)
def test_what_a_constructor_gives_its_object_is_data(maker: str) -> None:
    """A name of a method is not the attribute of that name."""
    text = HEAD + TRAINER.format(maker=maker)

    assert cures.cure(text, 1 + text.splitlines().index("            batch = self.make(x).cumsum(0)")) == "data"


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("class A:\n    def __init__(self): self.t = 1\n    def make(self, x): return x / self.t\na = A()", "batch = a.make(x).cumsum(0)", "a.t += 1"),
        ("class A:\n    def __init__(self): self.t = 1\n    def make(self, x):\n        self.t += 1\n        return x / self.t\na = A()",
         "batch = a.make(x).cumsum(0)", "print(a.t)"),
        ("t = 1\ndef make(x): return x / t", MAKE, "t += 1"),
    ],
)  # fmt: skip
def test_what_others_change_or_read_goes_to_no_other_process(before: str, line: str, after: str) -> None:
    """A worker has a copy: what the loop changes it would not see, and what it changes the loop would not."""
    assert of(before, line, after) == ""


NORM = "n = sum(p.norm() for p in net.parameters())"
CE = "    loss = F.cross_entropy(net(x), y)\n"
END = "    loss.backward()\n    opt.step()\n"


@pytest.mark.parametrize(
    ("before", "line", "step"),
    [
        ("", f"terms = {{}}\nterms['l2'] = {NORM[4:]}", CE + "    loss = loss + sum(terms.values())\n" + END),
        ("class T: pass\nt = T()", f"t.reg = {NORM[4:]}", CE + "    loss = loss + t.reg\n" + END),
        ("", NORM, CE + "".join(f"    a{i} = {f'a{i - 1}' if i else 'n'} * 2\n" for i in range(9)) + "    loss = loss + a8\n" + END),
        ("def finish(l, pen): (l + pen).backward()", NORM, CE + "    finish(l=loss, pen=n)\n    opt.step()\n"),
        ("", NORM, CE + "    elsewhere.finish(loss, n)\n    opt.step()\n"),
        ("n = 0\ndef crit(o, y): return F.cross_entropy(o, y) + n", NORM, "    loss = crit(net(x), y)\n" + END),
        ("", NORM, "    def closure():\n        l = F.cross_entropy(net(x), y) + n\n        l.backward()\n        return l\n    opt.step(closure)\n"),
        ("", NORM, CE + "    loss.mul_(n)\n" + END),
        ("", NORM, CE + "    if n > 3: loss = loss * 2\n" + END),
        ("", NORM, CE + "    loss.backward()\n    for p in net.parameters(): p.grad.mul_(n)\n    use(net)\n    loss.mul_(n)\n    loss.backward()\n"),
        ("", NORM, CE + "    parts = [loss]\n    parts.append(n)\n    sum(parts).backward()\n    opt.step()\n"),
        ("", NORM, CE + "    for term in (n,): loss = loss + term\n" + END),
        ("", "for p in net.parameters(): p.data.clamp_(-1, 1)", CE + END),
        ("def finish(*both): sum(both).backward()", NORM, CE + "    finish(loss, n)\n    opt.step()\n"),
        ("", NORM, CE + "    loss.backward()\n    for p in net.parameters(): p.grad.mul_(n)\n    opt.step()\n"),
        ("", NORM, "    def closure(): return F.cross_entropy(net(x), y) + n\n    print(closure())\n    opt.step(closure)\n"),
        ("", NORM, CE + "    loss.backward()\n    nn.utils.clip_grad_norm_(net.parameters(), n)\n    opt.step()\n"),
        ("", NORM, CE + "    loss.backward()\n    for p in net.parameters(): p.grad /= n\n    opt.step()\n"),
        ("", NORM, CE + "    for k in range(9):\n        if n > k: break\n    loss = loss * k\n" + END),
        ("", "saved = copy.deepcopy(net.state_dict())", CE + END + "    net.load_state_dict(saved)\n"),
        ("", "net[0].weight.data = torch.linalg.qr(net[0].weight.data)[0]", CE + END),
        ("def pre(m, i): return (i[0] @ torch.linalg.qr(m.weight)[0],)\nnet[0].register_forward_pre_hook(pre)", "q = torch.linalg.qr(net[0].weight)[0]",
         "    loss = F.cross_entropy(net(x) @ q, y)\n" + END),
        ("", NORM, "    def closure(): return F.cross_entropy(net(x), y) + n\n    print(closure())\n    loss = opt.step(closure)\n"),
        ("", NORM, CE + "    for _ in range(int(n)): loss = loss * 2\n" + END),
        ("", NORM, CE + "    gs = torch.autograd.grad(loss * n, list(net.parameters()))\n    for p, g in zip(net.parameters(), gs): p.data -= 0.1 * g\n"),
        ("", NORM, "    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * n, lambda t: t):\n    " + CE + END),
        ("", NORM, "    out = net(x)\n    out.mul_(n)\n    loss = F.cross_entropy(out, y)\n" + END),
    ],
)  # fmt: skip
def test_what_a_loss_is_made_of_is_needed_in_each_step(before: str, line: str, step: str) -> None:
    assert of(before, line, "", step) in ("", "loss", "outputs")


def test_what_only_weights_are_made_of_need_not_be_made_in_each_step() -> None:
    """Masks go back into the weights, and no loss is made of them."""
    use = "    for w, m in zip(net.parameters(), masks): w.data.mul_(m)\n"

    assert of("", "masks = [p.abs() > p.abs().median() for p in net.parameters()]", "", use + CE + END) == "weights"
    assert of("", "m = net[0].weight.abs() > 0.1", "", "    net[0].weight.data.mul_(m)\n" + CE + END) == "weights"


@pytest.mark.parametrize(
    "line",
    [
        "old = [p.clone().requires_grad_() for p in net.parameters()]",
        "old = [p.detach().numpy().copy() for p in net.parameters()]",
        "old = copy.deepcopy(net.state_dict())",
        "old = {k: v.cpu() for k, v in net.state_dict().items()}",
        "old = tuple(p.to('cpu') for p in net.state_dict().values())",
        "old = dict(zip('ab', net.parameters()))",
        "old = list(enumerate(net.modules()))",
    ],
)
def test_a_copy_of_the_weights_is_one_of_this_step(line: str) -> None:
    """What is compared with it afterwards would be another thing if the copy were older."""
    assert of("", line, "moved = far(net, old)\nif moved > 3: break") == ""


def test_many_methods_of_one_name_are_given_up_in_time() -> None:
    classes = "".join(f"class C{i}:\n def run(self, x): return x\n" for i in range(900))
    before = classes + "".join(f"c.run(xs, {i})\n" for i in range(4000)) + "def make(x): return x * 2"
    start = time.process_time()

    assert of(before, MAKE, "") == ""
    assert time.process_time() - start < 4

"""What a statement keeps for reports alone, and what training reads, too."""

from __future__ import annotations

import pytest

from sysperf.script import cures

METER = """\
import collections, random, numpy as np, torch, torch.nn.functional as F, elsewhere
class Meter:
    def __init__(self):
        self.rows = [[0] * 9 for _ in range(9)]
        self.total, self.count = 0.0, 0
    def update(self, target, found):
        for t, p in zip(target.tolist(), found.tolist()):
            self.rows[t][p] += 1
        self._add(len(target))
    def _add(self, n):
        self.count += n
    def mean(self):
        return sum(row[0] for row in self.rows) / max(1, self.count)
    def reset(self):
        self.rows = [[0] * 9 for _ in range(9)]
        self.count = 0
net = torch.nn.Linear(9, 9)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{made}
for epoch in range(9):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y)
        {before}
        loss.backward()
        opt.step()
        {line}
    {after}
"""
LINE = "meter.update(y, out.argmax(1))"
MADE = "meter = Meter()"
TRAINER = """\
class Trainer:
    def __init__(self):
        self.meter = Meter()
        self.opt = opt
    def train(self, y, out):
        self.opt.step()
        self.meter.update(y, out)
trainer = Trainer()"""
NORMS = """\
class Norms:
    def __init__(self): self.kept = collections.defaultdict(list)
    def collect(self, model):
        for name, p in model.named_parameters():
            g = p.grad
            if g is not None: self.kept[name].append((g.norm().item(), g.max().item()))
norms = Norms()"""
AVERAGE = NORMS.replace("(g.norm().item(), g.max().item())", "p.clone()")
RATES = """\
class Rates(Meter):
    def update(self, target, found): self.rate = float((target != found).float().sum())
    def level(self): return self.rate
meter = Rates()"""
TOLD = "print(epoch, meter.mean()); meter.reset()"


def of(line: str = LINE, after: str = TOLD, made: str = MADE, before: str = "pass") -> str:
    text = METER.format(made=made, before=before, line=line, after=after)
    return cures.cure(text, 1 + text.splitlines().index(f"        {line}"))


@pytest.mark.parametrize(
    ("line", "after", "made"),
    [
        (LINE, TOLD, MADE),
        (LINE, "if epoch % 2: print(meter.mean())", MADE),
        (LINE, "value = meter.mean(); text = f'{value:.3f}'; print(text)", MADE),
        (LINE, "if meter.count > 3: print(meter.mean())", MADE),
        ("np.add.at(table, (y.numpy(), out.argmax(1).numpy()), 1)", "print(table.diagonal().sum())", "table = np.zeros((9, 9))"),
        ("counts.update(out.argmax(1).tolist())", "print(counts)", "counts = collections.Counter()"),
        ("for row in (out @ out.t()).tolist(): best.append(sorted(row, key=lambda one: -one)[0])", "print(best)", "best = []"),
        ("for row in out.detach(): sums.append(float(row.max()))", "print(sums)", "sums = []"),
        ("norms.collect(net)", "print(norms.kept)", NORMS),
        ("norms.append([p.grad.norm().item() for p in net.parameters()])", "print(norms)", "norms = []"),
        ("seen['a'] = np.sort(out.detach().numpy().ravel())", "writer.writerows(seen)", "seen = {}"),
    ],
)
def test_what_a_meter_counts_is_only_reported(line: str, after: str, made: str) -> None:
    assert of(line, after, made) == "reported"


def test_a_meter_of_an_object_that_steps_itself_is_only_reported() -> None:
    """`self` has an optimizer, too."""
    text = METER.format(made=TRAINER, before="pass", line="trainer.train(y, out)", after="print(trainer.meter.mean())")

    assert cures.cure(text, 1 + text.splitlines().index("        self.meter.update(y, out)")) == "reported"


@pytest.mark.parametrize(
    ("line", "after", "made", "before"),
    [
        (LINE, "if meter.mean() > 0.9: break", MADE, "pass"),
        (LINE, "if meter.mean() > 0.9: torch.save(net, 'best.pt')\n    print(meter.mean())", MADE, "pass"),
        (LINE, "print(meter.mean()); scheduler.step(meter.mean())", MADE, "pass"),
        (LINE, "print(meter.mean()); opt.param_groups[0]['lr'] *= meter.mean()", MADE, "pass"),
        (LINE, "print(meter.mean()); torch.save(meter.rows, 'rows.pt')", MADE, "pass"),
        (LINE, "print(meter.mean()); trial.report(meter.mean(), epoch)", MADE, "pass"),
        (LINE, "assert meter.mean() < 9; print(meter.mean())", MADE, "pass"),
        (LINE, "print(meter.mean()); net.p = meter.mean()", MADE, "pass"),
        (LINE, "print(meter.mean()); elsewhere.p = meter.mean()", MADE, "pass"),
        (LINE, "print(meter.mean()); meter.mean() > 0.9 and elsewhere.stop()", MADE, "pass"),
        (LINE, "print(meter.mean()); print(elsewhere.stop() if meter.mean() > 0.9 else 1)", MADE, "pass"),
        (LINE, "print(meter.mean()); meter.mean() > 0.9 and stop()", MADE + "; stop = 3\ndef stop(): elsewhere.stop()", "pass"),
        (LINE, "print(meter.mean()); opt = torch.optim.SGD(net.parameters(), lr=meter.mean())", MADE, "pass"),
        (
            LINE,
            "print(meter.mean()); step(x)",
            MADE + "\ndef step(x):\n    if meter.mean() > 0.9: return\n    net(x).sum().backward()",
            "pass",
        ),
        (LINE, "print(meter.mean()); loader = torch.utils.data.DataLoader(meter.rows)", MADE, "pass"),
        (LINE, "print(meter.mean()); sampler.weights = meter.rows", MADE, "pass"),
        (LINE, "for m in [meter]: print(m.mean()); opt.param_groups[0]['lr'] *= m.mean()", MADE, "pass"),
        (
            LINE,
            TOLD,
            MADE.replace("Meter()", "Loud()") + "\nclass Loud(Meter):\n    def __setattr__(self, name, value): elsewhere.seen(value)",
            "pass",
        ),
        (LINE, "while meter.mean() < 0.9: print(meter.mean())", MADE, "pass"),
        (LINE, "print(meter.mean()); trainer.opt = elsewhere.SGD(lr=meter.mean()); trainer.opt.step()", MADE, "pass"),
        (LINE, "meter.reset()", MADE, "pass"),
        (LINE, TOLD, MADE, "loss = loss * (1 + meter.mean())"),
        (LINE, TOLD, MADE, "loss = loss * meter.rows[0][0]"),
        (LINE, TOLD, MADE + "; rows = meter.rows[0]", "loss = loss * rows[0]"),
        (LINE, TOLD, RATES, "loss = loss * meter.level()"),
        (LINE, "print(meter.mean())", "meter = elsewhere.Meter()", "pass"),
        (LINE, "print(meter.mean())", "meter = Meter() if elsewhere.a else elsewhere.b", "pass"),
        ("counts.update(out.argmax(1).tolist())", "print(counts); torch.manual_seed(counts[0])", "counts = collections.Counter()", "pass"),
        ("counts.update(random.sample(range(9), 3))", "print(counts)", "counts = collections.Counter()", "pass"),
        ("sums.append(net(y).sum())", "print(sums)", "sums = []", "pass"),
        ("sums.append([p.clone() for p in net.parameters()])", "print(elsewhere.test(sums))", "sums = []", "pass"),
        ("norms.collect(net)", "print(norms.kept)", AVERAGE, "pass"),
        ("norms.append([p.detach() for p in net.parameters()])", "print(norms)", "norms = []", "pass"),
        (
            "norms.append([p.grad.norm().item() for p in net.parameters()])",
            "print(norms); opt.param_groups[0]['lr'] /= norms[-1][0]",
            "norms = []",
            "pass",
        ),
        ("memory.append(out.detach().sort().values)", "print(memory)", "memory = []", "loss = loss + (out - memory[-1]).sum()"),
        ("memory.append(out.detach().sort().values)", "print(elsewhere.mine(memory))", "memory = []", "pass"),
        ("replay.record(out.detach().sort().values)", "print(replay)", "replay = elsewhere.Replay()", "pass"),
    ],
)
def test_what_training_reads_too_is_needed(line: str, after: str, made: str, before: str) -> None:
    """Or what somebody out of sight is given, who may hand it on."""
    assert of(line, after, made, before) != "reported"


OWN = """\
class Own{base}:
    def __init__(self): self.n = 0
    {decorator}
    def update(self, y, found):
        {body}
        self.n += len(y)
    def mean(self): return self.n
meter = Own()"""


def own(body: str = "pass", base: str = "(object)", decorator: str = "") -> str:
    return OWN.format(body=body, base=base, decorator=decorator)


@pytest.mark.parametrize(
    ("line", "after", "made"),
    [
        (LINE, "print(meter.mean()); kept.append(meter.mean())", MADE + "; kept = []"),
        (LINE, "show(meter.mean())", MADE + "\ndef show(one): print(one)"),
        (LINE, "print(meter.mean() if meter.count else len(meter.rows))", MADE),
        (LINE, "print(meter.mean()); print(level() if meter.count else 0)", MADE + "\ndef level(): return 1"),
        (LINE, "print(meter.mean()); print(np.percentile(meter.rows, 5) if meter.count else 0)", MADE),
        (LINE, "print(meter.mean()); print(meter.rows[0].count(1) if meter.count else 0)", MADE),
        (LINE, "print(meter.mean()); loader.epoch = epoch", MADE),
        (LINE, "print(meter.mean()); elsewhere.note(epoch)", MADE),
        (LINE, "print(meter.mean()); epoch > 3 and elsewhere.stop()", MADE),
        (LINE, "show(meter)", MADE + "\ndef show(one): print(one.mean())"),
        (LINE, "print(Row(meter.mean()))", MADE + "\nclass Row:\n    def __init__(self, value): self.value = value"),
        (LINE, "if meter.count > 3:\n        if epoch: print(meter.mean())", MADE),
        (LINE, "if meter.count > 3: kept.append(meter.mean())\n    print(kept)", MADE + "; kept = []"),
        (LINE, "if meter.count > 3: text: str = f'{meter.mean():.3f}'\n    else: pass\n    print(meter.mean())", MADE),
        (LINE, "print(level())", MADE + "\ndef level():\n    if meter.count == 0: return 0.0\n    return meter.mean()"),
        (LINE, "print(meter.mean() if meter.count else float('nan'))", MADE),
        (LINE, "print(np.mean(meter.rows) if meter.count else 0)", MADE),
        (LINE, "meter.count and print(meter.mean())", MADE),
        (LINE, "meter.count and kept.append(meter.mean())\n    print(kept)", MADE + "; kept = []"),
        ("for row in out.argmax(1).split(3): meter.update(y, row)", TOLD, MADE),
        ("meter.update(y[:1], out.argmax(1)[:1])", TOLD, MADE),
        ("meter.update(y, out.argmax(1).mul(2))", TOLD, MADE),
        (LINE, "print(meter.mean())", own()),
        (LINE, "print(meter.mean())", own("with torch.no_grad(): n: int = len(y)")),
        (LINE, "print(meter.mean())", own("print(len(y)); elsewhere.log(len(y))")),
        (LINE, "print(meter.mean())", own("return None")),
        ("counts.update({1: out.argmax(1).float().mean().item()})", "print(counts)", MADE + "; counts = {}"),
        ("counts.update({1: out.argmax(1).float().mean().item()})", "print(counts)", MADE + "; counts = collections.Counter()"),
        ("counts.update(best(out))", "print(counts)", "counts = collections.Counter()\ndef best(out): return out.argmax(1).tolist()"),
        ("scores.append(accuracy_score(y, out.argmax(1)))", "print(scores)", "from sklearn.metrics import accuracy_score\nscores = []"),
        ("norms.append({'norm': net.weight.grad.norm().item()})", "print(norms)", "norms = []"),
        ("norms.append([net.weight.grad.norm().item()])", "print(norms)", "norms = []"),
        ("norms.collect(net)", "print(norms.kept)", NORMS.replace("(g.norm().item(), g.max().item())", "{'norm': g.norm().item()}")),
        (LINE, TOLD, "import others\n" + MADE + "\ntable = others.table()\ntable['a'] = 3"),
        ("meter.update(y, torch.topk(out, k=epoch).indices)", "print(meter.mean()); elsewhere.note(epoch)", MADE),
    ],
)
def test_what_reports_compute_of_it_is_only_reported(line: str, after: str, made: str) -> None:
    """And what is beside it."""
    assert of(line, after, made) == "reported"


@pytest.mark.parametrize(
    ("line", "after", "made", "before"),
    [
        (LINE, "print(meter.mean())", MADE, "loss = loss * eval(options.weight)"),
        (LINE, "value = float(meter.mean())", MADE, "pass"),
        (LINE, "print(meter.mean()); elsewhere.update(meter.mean())", MADE, "pass"),
        (
            "seen = meter.update(y, out)",
            "print(meter.mean())",
            own().replace("len(y)", "len(y); return found.mean()"),
            "loss = loss * seen",
        ),
        (
            LINE,
            "print(meter.mean())",
            own("self.n += self.rate", decorator="@property\n    def rate(self): return elsewhere.stop()"),
            "pass",
        ),
        (LINE, "print(meter.mean())", own("list(map(self.note, y))", decorator="def note(self, one): elsewhere.stop()"), "pass"),
        (LINE, "print(meter.mean())", own("torch.save(found, 'found.pt')"), "pass"),
        ("counts.update(hooks[0](out))", "print(counts)", "counts = collections.Counter()", "pass"),
        ("counts.update(copy.model(out))", "print(counts)", "import copy\ncounts = collections.Counter(); copy = elsewhere.copy", "pass"),
        ("counts.update(filter(out))", "print(counts)", "counts = collections.Counter(); filter = elsewhere.filter", "pass"),
        ("table[0] = np.add(held, 1, out=held)", "print(table)", "table = {}; held = np.ones(9)", "loss = loss * held[0]"),
        (LINE, "print(meter)", MADE + "\nclass Other(elsewhere.Meter): pass\nif elsewhere.a: meter = Other()", "pass"),
        (LINE, "print(meter.mean())", MADE + "\nif elsewhere.a: meter = elsewhere.Meter()", "pass"),
        ("kept.update(out.argmax(1))", "print(kept)", "from others import *\n" + MADE, "pass"),
        (LINE, "print(meter.mean())", MADE, "options.__dict__.update(meter.rows[0])"),
        (
            LINE,
            "print(meter.mean())",
            "shared = {}\n"
            + own().replace(
                "    def mean",
                "    def __setattr__(self, name, value):\n        object.__setattr__(self, name, value)\n        shared[name] = value\n    def mean",
            ),
            "loss = loss * shared['n']",
        ),
        (LINE, "print(meter.mean()); torch.manual_seed(meter.count)", MADE, "pass"),
        (LINE, "meter.reset()", MADE, "pass"),
        ("nets.append(net)", "print(nets)", "nets = []", "pass"),
        ("last, rows[0] = out.argmax(1), 3", "print(last, rows)", "rows = {}; last = 1", "loss = loss * last"),
        (
            "meter.update(y, np.clip(out.detach().numpy(), 0, 1, out=held))",
            TOLD,
            MADE + "; held = np.ones((9, 9))",
            "loss = loss * held[0][0]",
        ),
        (LINE, "print(meter.mean())", own("torch.use_deterministic_algorithms(True)"), "pass"),
        (
            LINE,
            "print(meter.mean())",
            MADE
            + "\nclass Base:\n    def update(self, y, found): elsewhere.stop()\nclass Other(Base): pass\nif elsewhere.a: meter = Other()",
            "pass",
        ),
        ("other.extend(out.argmax(1).tolist())", "print(other)", "class Own(elsewhere.Metric): pass\nother = Own()", "pass"),
        ("pick().update(y, out.argmax(1))", TOLD, MADE + "\ndef pick(): return meter", "pass"),
        ("table.get(0).update(y, out.argmax(1))", "print(table)", MADE + "; table = {0: elsewhere.Meter()}", "pass"),
        (LINE, "print(epoch); meter.reset()", MADE, "pass"),
        (LINE, "print(meter.mean()); net.p = meter.mean()", MADE, "pass"),
        (
            "trainer.note(elsewhere, out)",
            "print(elsewhere.best)",
            "class Trainer:\n    def note(self, logger, out): logger.best = out.argmax(1).tolist()\ntrainer = Trainer()",
            "pass",
        ),
        (
            "trainer.note(out)",
            "print(trainer.logger.best)",
            "class Trainer:\n    def __init__(self): self.logger = elsewhere.Logger()\n    def note(self, out): self.logger.best = out.argmax(1).tolist()\ntrainer = Trainer()",
            "pass",
        ),
        (LINE, "print(meter.mean())", own(base="(elsewhere.Metric)"), "pass"),
        (LINE, "print(meter.mean())", "from metrics import Metric\n" + own(base="(Metric)"), "pass"),
        (LINE, "print(meter.mean())", "class Base(elsewhere.Metric): pass\n" + own(base="(Base)"), "pass"),
        (LINE, "print(meter.mean()); elsewhere.set(meter.mean())", MADE, "pass"),
        (LINE, "print(meter.mean()); meter.mean() > 0.9 and elsewhere.clear()", MADE, "pass"),
        (LINE, "print(meter.mean()); meter.mean() > 0.9 and stop.set()", MADE + "; stop = elsewhere.stop", "pass"),
        (LINE, "print(meter.mean()); meter.mean() > 0.9 and torch.save(net, 'best.pt')", MADE, "pass"),
        (LINE, "print(meter.mean()); meter.mean() > 0.9 and scheduler.halve()", MADE, "pass"),
        (LINE, "print(meter.mean())\n    if meter.mean() > 0.9: break", MADE, "pass"),
        (LINE, "print(meter.mean())\n    if meter.mean() > 0.9: scheduler.step()", MADE, "pass"),
        (LINE, "print(meter.mean())", own(decorator="@elsewhere.hook"), "pass"),
        (LINE, "print(meter.mean())", own("if len(y) > 9: raise ValueError"), "pass"),
        (LINE, "print(meter.mean())", own("with elsewhere.lock(): pass"), "pass"),
        (LINE, "print(meter.mean())", own("with elsewhere.lock: pass"), "pass"),
        (LINE, "print(meter.mean())", MADE, "loss = loss * meter.count"),
        (
            "seen = meter.update(y, out.argmax(1))",
            "print(meter.mean())",
            MADE.replace("Meter()", "Own()")
            + "\n"
            + own("").replace("        self.n += len(y)", "        self.n += len(y); return self.n"),
            "loss = loss * seen",
        ),
        (
            "averages.take(net)",
            "print(averages.kept)",
            "class Averages:\n    def take(self, model): self.kept = model.weight.clone()\naverages = Averages()",
            "pass",
        ),
        (
            "counts.update(all_reduce(out))",
            "print(counts)",
            "from torch.distributed import all_reduce\ncounts = collections.Counter()",
            "pass",
        ),
        ("counts.update(found(out))", "print(counts)", "from others import found\ncounts = collections.Counter()", "pass"),
        ("counts.update(found(out))", "print(counts)", "counts = collections.Counter(); found = elsewhere.found", "pass"),
        ("counts.update(elsewhere.item(out))", "print(counts)", "counts = collections.Counter()", "pass"),
        ("np.copyto(x, out.argmax(1).numpy())", "print(x)", "", "pass"),
        ("table[0] = np.add(x, 1, out=x)", "print(table)", "table = {}", "pass"),
        ("np.random.put(table, out)", "print(table)", "table = np.zeros(9)", "pass"),
        ("kept[0].update(y, out)", "print(kept)", MADE + "; kept = [elsewhere.Meter()]", "pass"),
        ("meter.update(y, out.argmax(1))", "print(meter)", "class Other:\n    pass\nmeter = Meter() if elsewhere.a else Meter()", "pass"),
        ("meter.update(y, out.argmax(1))", "print(meter)", MADE + "; meter = Other()\nclass Other:\n    pass", "pass"),
    ],
)
def test_what_does_more_than_count_is_needed(line: str, after: str, made: str, before: str) -> None:
    """Or may: the code of another file, a text that is run, an attribute that calls a method."""
    assert of(line, after, made, before) != "reported"


def test_a_sum_of_an_object_that_steps_itself_is_only_reported() -> None:
    text = METER.format(made=TRAINER, before="pass", line="trainer.train(y, out)", after="print(trainer.total)")
    text = text.replace("self.opt = opt", "self.opt, self.total = opt, 0").replace(
        "self.meter.update(y, out)", "self.total += out.argmax(1).sum()"
    )

    assert cures.cure(text, 1 + text.splitlines().index("        self.total += out.argmax(1).sum()")) == "reported"


def test_attributes_of_two_classes_may_have_one_name() -> None:
    """A model's layers are none of the rows of a meter, unless one of the classes is made of the other or somebody names it by a text."""
    own = "class Net(torch.nn.Module):\n    def forward(self, x): return x * self.rows[0]\nnet = Net()\nmeter = Meter()"

    assert of(LINE, TOLD, own) == "reported"
    assert of(LINE, TOLD, own.replace("torch.nn.Module", "Meter")) != "reported"
    assert of(LINE, TOLD, own + "\nnet.rows = meter.rows") != "reported"
    assert of(LINE, TOLD, own + "\nsetattr(net, 'rows', [2])") != "reported"
    assert of(LINE, TOLD, own + "\ngetattr(meter, 'rows')") != "reported"


TRAINED = """\
import csv, torch
net = torch.nn.Linear(9, 9)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def predict(net, test, path):
    rows = []
    for x, ids in test:
        out = net(x).argmax(1)
        rows += [f"{i},{v}" for i, v in zip(ids, out.tolist())]
    with open(path, "w") as file:
        file.writelines(rows)
for epoch in range(9):
    for x, y in loader:
        net(x).sum().backward()
        opt.step()
"""


@pytest.mark.parametrize(("where", "cure"), [("    ", "reported"), ("", "outputs")])
def test_what_is_written_of_a_test_set_after_training_is_the_result(where: str, cure: str) -> None:
    """In each epoch it may be made less often, or of a part; at the end nothing may be left out."""
    assert cures.cure(f"{TRAINED}{where}predict(net, test, 'results.csv')\n", 8) == cure


KEPT = """\
import torch
{before}
net = torch.nn.Linear(9, 9)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    out = net(x)
    out.sum().backward()
    opt.step()
    {line}
    print({kept})
"""


@pytest.mark.parametrize(
    ("before", "line", "kept", "reported"),
    [
        ("w = torch.ones(3)", "w[y] = out.argmax(1).float()", "w", True),
        ("from others import table\nw = torch.ones(3); table['a'] = 3", "w[y] = out.argmax(1).float()", "w", True),
        ("w = torch.ones(3); chooser = choose(w)", "w[y] = out.argmax(1).float()", "w", False),
        ("w = torch.ones(3); Process(target=choose, args=(w,)).start()", "w[y] = out.argmax(1).float()", "w", False),
        ("from others import table\nw = torch.ones(3); table['w'] = w", "w[y] = out.argmax(1).float()", "w", False),
        ("from others import table", "table['w'] = out.argmax(1).float()", "table['w']", False),
        ("import others\ntable = others.table()", "table['w'] = out.argmax(1).float()", "table['w']", False),
    ],
)
def test_what_another_file_may_read_is_not_for_reports_alone(before: str, line: str, kept: str, reported: bool) -> None:
    text = KEPT.format(before=before, line=line, kept=kept)

    assert (cures.cure(text, 1 + text.splitlines().index(f"    {line}")) == "reported") == reported


LOOP = """\
def train(y, out, loss):
    for row in out.argmax(1).split(3):
        if len(row) > 2: meter.update(y, row)
        {end}
    loss.backward()"""


@pytest.mark.parametrize(("end", "cure"), [("pass", "reported"), ("if len(row) > 3: return", "outputs")])
def test_a_loop_that_counts_is_only_reported_unless_it_ends_its_function(end: str, cure: str) -> None:
    made = f"{MADE}\n{LOOP.format(end=end)}"
    text = METER.format(made=made, before="pass", line="train(y, out, loss)", after="print(meter.mean())")

    assert cures.cure(text, 1 + text.splitlines().index("    for row in out.argmax(1).split(3):")) == cure


def test_a_branch_that_ends_training_does_more_than_count() -> None:
    text = METER.format(made="seen = []", before="pass", line="if out.max() > 9:\n            seen.append(1); break", after="print(seen)")

    assert cures.cure(text, 1 + text.splitlines().index("        if out.max() > 9:")) != "reported"


TOP = """\
def top(rows):
    best = rows.max(-1)
    return best.values
counts = collections.Counter()"""


@pytest.mark.parametrize(
    "line", ["counts.update(top(out).tolist())", "for row in out.chunk(3):\n            counts.update(top(row).tolist())"]
)
def test_a_function_that_training_calls_too_may_make_what_is_counted(line: str) -> None:
    text = METER.format(made=TOP, before="loss = loss + top(out).sum()", line=line, after="print(counts)")

    assert cures.cure(text, 1 + text.splitlines().index(f"        {line}".splitlines()[0])) == "reported"

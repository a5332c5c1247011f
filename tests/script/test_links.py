"""What files that are linted together say of each other: who calls a function how often, and what it gives."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sysperf.collect.gpu import Gpu
from sysperf.engine import lint as engine
from sysperf.engine.lint import beside
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.finding import Finding, Place
from sysperf.script.changes.codemods import changes
from sysperf.script.changes.edits import Change
from sysperf.script.file import File
from sysperf.script.hypothesis import Examined
from sysperf.script.semantics.modules import Modules
from sysperf.script.semantics.outside import NOTHING
from tests.fuzzing import fuzz
from tests.script.scripts import shipped

TRAIN = """\
import torch
from pkg import {names}

def main(net, images, args):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
    for epoch in range(10):
        for x, y in {loader}:
            x, y = x.cuda(), y.cuda()
            output = net(x)
            loss = criterion(output, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            {step}
"""


def training(step: str, names: str = "helpers", loader: str = "images") -> str:
    """A training loop that calls something of a package in each step."""
    return TRAIN.format(names=names, step=step, loader=loader)


def hits(folder: Path, **files: str) -> set[tuple[str, int, str]]:
    """The hits in a folder of files, whose names have two underscores for a slash."""
    for name, text in {"pkg____init__": "", **files}.items():
        path = folder / (name.replace("__", "/", 1) + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    found = engine.lint([str(folder)], shipped(), choice=engine.Choice(least="medium"))
    assert not found.unread
    return {(place.file[len(str(folder)) + 1 :], place.line, hit.rule) for hit in found.hypotheses for place in hit.places}


READS = """\
def report(value, outputs):
    history.append(float(value))
    kept = outputs.detach().cpu().numpy()
    if value > 3:
        print("high")
"""


def test_parameters_that_another_file_reads(tmp_path: Path) -> None:
    """A sum of the gradients' norms becomes a number there, in each step."""
    helpers = """\
        import math, torch
        def norm_of(parameters):
            total = 0
            for p in parameters:
                total += p.grad.norm() ** 2
            return math.sqrt(total)
        def size_of(parameters):
            return math.sqrt(sum(p.numel() for p in parameters))
        """
    step = "helpers.norm_of(net.parameters()); helpers.size_of(net.parameters())"
    found = hits(tmp_path, pkg__helpers=helpers, train=training(step))
    assert {hit[2] for hit in found if hit[0].endswith("helpers.py")} == {"optimizer.own-loop", "sync.per-step"}


def test_what_a_function_of_another_file_reads_in_each_step(tmp_path: Path) -> None:
    """It is told where it is read, although that file does not even name PyTorch."""
    found = hits(tmp_path, train=training("helpers.report(loss, output)"), pkg__helpers=READS)

    assert found >= {
        ("pkg/helpers.py", 2, "sync.per-step"),
        ("pkg/helpers.py", 3, "sync.per-step"),
        ("pkg/helpers.py", 4, "sync.branch-on-loss"),
    }


@pytest.mark.parametrize(
    "step", ["if epoch % 100 == 0: helpers.report(loss, output)", "helpers.report(loss.item(), 3)", "other.report(loss, output)"]
)
def test_what_is_called_seldom_or_with_numbers_waits_for_nothing(tmp_path: Path, step: str) -> None:
    """A condition at the call counts, too, and so does what is given."""
    found = hits(tmp_path, train=training(step), pkg__helpers=READS.replace("kept = outputs.detach().cpu().numpy()", "pass"))

    assert not {place for place in found if place[0] == "pkg/helpers.py"}


def test_names_are_followed_through_packages(tmp_path: Path) -> None:
    """What `__init__.py` passes on, under another name and by a star."""
    found = hits(
        tmp_path,
        train=training("count(output, y)", "accuracy as count"),
        pkg____init__="from .metrics import *",
        pkg__metrics="from .inner import accuracy\n",
        pkg__inner="def accuracy(a, b):\n    return (a.argmax(1) == b).float().mean().item()\n",
    )

    assert ("pkg/inner.py", 2, "sync.per-step") in found


DATA = """\
from torch.utils.data import DataLoader

def make(images):
    return DataLoader(images, batch_size=8, num_workers={workers})

class Data:
    def __init__(self, images):
        self.training = make(images)

    @property
    def rows(self):
        return self.training
"""


def test_a_loader_that_another_file_makes(tmp_path: Path) -> None:
    """What is done with its batches is known where it is made: anew in each epoch, without workers, copied to the device."""
    again = hits(tmp_path, train=training("pass", "data", "data.make(images)"), pkg__data=DATA.format(workers=4))
    without = hits(tmp_path, train=training("pass", "data", "data.Data(images).training"), pkg__data=DATA.format(workers=0))
    kept = hits(tmp_path, train=training("pass", "data", "data.Data(images).rows"), pkg__data=DATA.format(workers=4))

    assert again >= {("pkg/data.py", 4, "dataloader.rebuilt"), ("pkg/data.py", 4, "dataloader.pin-memory-off")}
    assert ("pkg/data.py", 4, "dataloader.inline") in without
    assert ("pkg/data.py", 4, "dataloader.pin-memory-off") in kept


TRAINER = """\
import torch

class Trainer:
    def fit(self, loader):
        for epoch in range(3):
            for batch in loader:
                batch = batch.cuda()
                loss = self.advance(batch)
                self.seen += float(loss)
                if self.step % 100 == 0:
                    self.show(loss)
                self.after(loss)

    def advance(self, batch):
        raise NotImplementedError
"""

HEIR = """\
import torch
from pkg.trainer import Trainer

class Mine(Trainer):
    def advance(self, batch):
        loss = self.net(batch).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def after(self, value):
        print(value.item())

    def show(self, value):
        print(value.item())
"""


def test_a_class_is_called_by_the_one_that_it_inherits_from(tmp_path: Path) -> None:
    """Each in a file of its own: the loop is a training, and what it calls seldom is none of a step."""
    found = hits(tmp_path, pkg__trainer=TRAINER, mine=HEIR)

    assert ("pkg/trainer.py", 9, "sync.per-step") in found
    assert ("mine.py", 12, "sync.per-step") in found
    assert not {place for place in found if place[:2] == ("mine.py", 15)}


def test_what_a_class_is_by_one_of_another_file(tmp_path: Path) -> None:
    """A hook of Lightning behind a class of the project, and an object that a function makes."""
    found = hits(
        tmp_path,
        pkg__module="import lightning as L\nclass Module(L.LightningModule):\n    pass\n",
        mine="""\
            import torch
            from pkg.module import Module
            class Net(Module):
                def training_step(self, batch, index):
                    loss = self.net(batch).mean()
                    self.sum += loss.item()
                    return loss
            """,
        train=training("meter.add(loss)", "meters\nmeter = meters.build()"),
        pkg__meters="import torch\nclass Meter:\n    def add(self, x):\n        self.sum += x.item()\ndef build():\n    return Meter()\n",
    )

    assert ("mine.py", 6, "sync.per-step") in found
    assert ("pkg/meters.py", 4, "sync.per-step") in found


def test_which_file_an_import_names(tmp_path: Path) -> None:
    """Beside a script, above a package, in `src`; the standard library and what is not linted are none of them."""
    for name in ("a/__init__.py", "a/b.py", "a/logging.py", "src/c/__init__.py", "tool.py", "d/run.py", "d/near.py", "d/torch.py", "b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    paths = [str(path) for path in tmp_path.rglob("*.py")]
    modules = Modules(paths)

    def find(module: str, path: str, level: int = 0) -> str:
        found = modules.find(module, level, str(tmp_path / path))
        return found[len(str(tmp_path)) + 1 :] if found is not None else ""

    assert [find("near", "d/run.py"), find("a.b", "d/run.py"), find("c", "d/run.py")] == ["d/near.py", "a/b.py", "src/c/__init__.py"]
    assert [find("b", "a/__init__.py", 1), find("tool", "a/b.py"), find("", "a/b.py", 1)] == ["a/b.py", "tool.py", "a/__init__.py"]
    assert [find("logging", "a/b.py"), find("torch", "d/run.py"), find("x", "a/b.py", 3)] == ["", "", ""]
    assert [find("b", "a/__init__.py"), find("b", "a/__init__.py", 1)] == ["b.py", "a/b.py"]


def test_a_batch_is_where_it_was_when_it_was_given(tmp_path: Path) -> None:
    """What another file does with a batch before it is copied to the device waits for nothing."""
    helpers = "import torch\ndef mask(batch):\n    labels = batch.clone()\n    return [mark(each) for each in labels.tolist()]\n"
    before = training("pass", loader="loader").replace(
        "x, y = x.cuda(), y.cuda()", "helpers.mask(x)\n            x, y = x.cuda(), y.cuda()"
    )
    after = training("helpers.mask(x)", loader="loader")

    assert not {place for place in hits(tmp_path / "a", train=before, pkg__helpers=helpers) if place[0] == "pkg/helpers.py"}
    assert ("pkg/helpers.py", 4, "sync.per-step") in hits(tmp_path / "b", train=after, pkg__helpers=helpers)


def test_an_object_that_another_file_makes_and_a_third_gets(tmp_path: Path) -> None:
    """Its methods are found by its class; by their name alone, as of an object that is not known, nothing is said."""
    log = "class Log:\n    def add_metric(self, name, value):\n        self.kept[name] = value.item()\n"
    by_class = hits(
        tmp_path / "a",
        train=training("step.finish(loss, log)", "step, logs\nlog = logs.Log()"),
        pkg__logs=log.replace("add_metric", "add"),
        pkg__step="import torch\ndef finish(loss, log):\n    log.add('loss', loss)\n",
    )
    by_name = hits(tmp_path / "b", train=training("log.add_metric('loss', loss)"), pkg__logs=log)

    assert ("pkg/logs.py", 3, "sync.per-step") in by_class
    assert not {place for place in by_name if place[0] == "pkg/logs.py"}


def test_what_is_kept_from_the_first_call_on_is_none_of_a_step(tmp_path: Path) -> None:
    """A function with a cache, and what is put into a dictionary that has no such key yet."""
    helpers = """\
        import functools
        import torch
        def compiled(function):
            if function not in KEPT:
                KEPT[function] = torch.compile(function)
            return KEPT[function]
        @functools.lru_cache
        def table(value):
            return torch.zeros(4).cuda().sum().item()
        """
    found = hits(tmp_path, train=training("helpers.compiled(net); helpers.table(4)"), pkg__helpers=helpers)

    assert not {place for place in found if place[0] == "pkg/helpers.py"}


def test_the_order_of_files_and_processors_changes_nothing(tmp_path: Path) -> None:
    """Where more different calls of a function are made than are told, one of which gives the loss."""
    for number in range(12):
        given = ["loss"] if not number else ["args.unknown", *"3" * number]
        step = f"helpers.report({', '.join(given)})"
        (tmp_path / f"train{number:02}.py").write_text(training(step))
    hits(tmp_path, pkg__helpers="def report(value, *others):\n    history.append(float(value))\n")
    paths = [str(path) for path in sorted(tmp_path.rglob("*.py"))]

    def said(paths: list[str]) -> list[tuple[str, str]]:
        found = engine.lint(paths, shipped(), choice=engine.Choice(least="low"))
        return sorted((hit.places[0].start, f"{hit.rule} {hit.message}") for hit in found.hypotheses)

    processors = os.sched_getaffinity(0)
    expected = said(paths)
    assert any("helpers.py" in place for place, _ in expected)
    try:
        os.sched_setaffinity(0, {min(processors)})
        assert [said(paths[::-1]), said(paths[5:] + paths[:5])] == [expected, expected]
    finally:
        os.sched_setaffinity(0, processors)


def test_classes_that_inherit_from_many_others(tmp_path: Path) -> None:
    """Each is looked at once, not once for each way that leads to it: here there are 20⁶ of them."""
    names = [f"C{number}" for number in range(20)]
    root = "import torch\nclass C0:\n    def add(self, value):\n        self.sum += value.item()\n"
    files = {"pkg__layer0": root + "".join(f"class {name}: pass\n" for name in names[1:])}
    for layer in range(1, 7):
        classes = "".join(f"class {name}({', '.join(names)}): pass\n" for name in (f"{name}_{layer}" for name in names))
        files[f"pkg__layer{layer}"] = f"import torch\nfrom pkg.layer{layer - 1} import {', '.join(names)}\n{classes}"
        names = [f"{name}_{layer}" for name in names]
    found = hits(tmp_path, train=training("last.add(loss)", f"layer6\nlast = layer6.{names[0]}()"), **files)

    assert ("pkg/layer0.py", 4, "sync.per-step") in found


def test_a_file_whose_second_look_fails_keeps_what_the_first_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process ends where it hears of the others: the report has what it said alone, and all of the others."""
    judged = engine.judged

    def fails(file: File, ruleset: Ruleset, gpus: Gpu | None = None, choice: engine.Choice = engine.EVERYTHING) -> Examined:
        if file.names.outside.news != NOTHING and file.source.path.endswith("data.py"):
            os.kill(os.getpid(), signal.SIGKILL)
        return judged(file, ruleset, gpus, choice)

    monkeypatch.setattr(engine, "judged", fails)
    again = "\ndef train(net, optimizer, images):\n    for x in images:\n        loss = net(x.cuda()).mean()\n        loss.backward()\n"
    again += "        optimizer.step()\n        print(loss.item())\n"
    step = "helpers.report(loss, output)"
    train = training(step, "helpers, data", "data.make(images)")
    found = hits(tmp_path, train=train, pkg__helpers=READS, pkg__data=DATA.format(workers=0) + again)

    assert {place[2] for place in found if place[0] == "pkg/data.py"} == {"sync.per-step"}
    assert ("pkg/helpers.py", 2, "sync.per-step") in found


def test_a_change_is_made_of_what_one_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--fix` makes it, which reads each file alone: also where others said something of the file."""
    asked = tmp_path / "asked"

    def noted(file: File, hypotheses: Sequence[Finding]) -> Iterator[Change]:
        with asked.open("a") as log:
            log.write(f"{os.path.basename(file.source.path)} {file.names.outside.news == NOTHING}\n")
        return changes(file, hypotheses)

    monkeypatch.setattr(engine, "changes", noted)
    hits(tmp_path, train=training("pass", "data", "data.make(images)"), pkg__data=DATA.format(workers=4))

    assert set(asked.read_text().splitlines()) == {"data.py True"}


def test_an_object_made_in_each_step_and_a_name_that_hides_an_import(tmp_path: Path) -> None:
    """Its `__init__` is called; a parameter of a module's name is not that module."""
    meter = "class Meter:\n    def __init__(self, value):\n        self.last = value.item()\n"
    made = hits(tmp_path / "a", train=training("meters.Meter(loss)", "meters"), pkg__meters=meter)
    hidden = hits(tmp_path / "b", train=training("args.report(loss, output)", "args"), pkg__args=READS)

    assert ("pkg/meters.py", 3, "sync.per-step") in made
    assert not {place for place in hidden if place[0] == "pkg/args.py"}


@pytest.mark.parametrize(("step", "shown"), [("helpers.report(loss)", False), ("helpers.report(loss, history)", True)])
def test_what_only_runs_with_a_parameter_that_is_left_out(tmp_path: Path, step: str, shown: bool) -> None:
    """A call that gives nothing for a parameter with a default does not run what asks for it."""
    helpers = "import torch\ndef report(value, history=None):\n    if history is not None:\n        history.append(value.item())\n"

    assert (("pkg/helpers.py", 4, "sync.per-step") in hits(tmp_path, train=training(step), pkg__helpers=helpers)) == shown


@pytest.mark.parametrize("imports", ["", "import torch\n"])
def test_what_is_read_by_a_helper_of_the_helper(tmp_path: Path, imports: str) -> None:
    """The function that another file calls only hands its value on, within its file, to one that does so, too."""
    helpers = "def report(value):\n    _keep(value)\n\ndef _keep(value):\n    _write(value)\n\n"
    helpers = f"{imports}{helpers}def _write(value):\n    history.append(float(value))\n"
    found = hits(tmp_path, train=training("helpers.report(loss)"), pkg__helpers=helpers)

    assert ("pkg/helpers.py", helpers.count("\n"), "sync.per-step") in found


FIT = """\
import torch

class Trainer:
    def __init__(self, net, batches, on_step=None, hooks=()):
        self.net, self.batches, self.hooks = net, batches, hooks
        self.images = batches
        self.on_step = on_step

    def fit(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for epoch in range(10):
            for x in self.images:
                loss = self.net(x.cuda()).mean()
                loss.backward()
                optimizer.step()
                self.on_step(loss)
                for hook in self.hooks:
                    hook(loss)
"""
MAIN = """\
from torch.utils.data import DataLoader

def log(value):
    history.append(value.item())

def main(net, data):
    images = DataLoader(data, batch_size=8, num_workers=4)
    Trainer(net, images, on_step=log).fit()
"""


def test_a_loader_and_a_function_that_are_handed_over_once(tmp_path: Path) -> None:
    """Who gets them uses them in each step: in the same file, and in another one."""
    one = hits(tmp_path / "a", train=FIT + MAIN)
    two = hits(tmp_path / "b", train=f"from pkg.trainer import Trainer\n{MAIN}", pkg__trainer=FIT)
    seldom = FIT.replace("self.on_step(loss)", "if epoch % 10 == 0: self.on_step(loss)")
    without = hits(tmp_path / "c", train=f"from pkg.trainer import Trainer\n{MAIN}", pkg__trainer=seldom)

    lines = FIT.count("\n")
    assert {("train.py", lines + 4, "sync.per-step"), ("train.py", lines + 7, "dataloader.pin-memory-off")} <= one
    assert {("train.py", 5, "sync.per-step"), ("train.py", 8, "dataloader.pin-memory-off")} <= two
    assert ("train.py", 5, "sync.per-step") not in without


HELPERS = """\
from functools import partial

def first(value, other=None):
    history.append(float(value))

def second(value):
    kept.append(value.item())
"""


@pytest.mark.parametrize(
    ("given", "found"), [("[first, second]", {4, 7}), ("[]", set()), ("[partial(first, 3)]", set()), ("[first(3)]", set())]
)
def test_functions_in_a_list_that_a_step_goes_through(tmp_path: Path, given: str, found: set[int]) -> None:
    """They are called there with the loss; what a call gives back is another function, and with values of its own nothing is known."""
    fit = FIT.replace("                self.on_step(loss)\n", "")
    said = hits(tmp_path, train=f"{HELPERS}{fit}\ndef main(net, data):\n    Trainer(net, data, hooks={given}).fit()\n")

    assert {line for _, line, rule in said if rule == "sync.per-step"} == found


ROWS = """\
import torch
from torch.utils.data import Dataset, TensorDataset

class Rows(Dataset):
    def __getitem__(self, i):
        return self.x[i], self.y[i]

class Read(Rows):
    def __getitem__(self, i):
        return decode(self.paths[i]), self.y[i]

def whole(x):
    return TensorDataset(x)

def some(x):
    return Read(x)
"""


@pytest.mark.parametrize(
    ("made", "more", "shown"),
    [
        ("rows.Rows(x)", "", False),
        ("rows.Rows(x)", ", collate_fn=tokenize", True),
        ("rows.Read(x)", "", True),
        ("rows.whole(x)", "", False),
        ("rows.some(x)", "", True),
    ],
)
def test_a_data_set_of_another_file_may_take_rows_out_of_memory(tmp_path: Path, made: str, more: str, shown: bool) -> None:
    """Then workers would only copy them, unless an heir, or who puts a batch together, does more."""
    loader = f"DataLoader({made}, batch_size=8{more})"
    train = f"from torch.utils.data import DataLoader\n{training('pass', 'rows', 'images')}"
    train = train.replace("    optimizer = ", f"    images = {loader}\n    optimizer = ", 1)

    assert (("train.py", 6, "dataloader.inline") in hits(tmp_path, train=train, pkg__rows=ROWS)) == shown


@pytest.mark.parametrize(
    ("default", "given", "shown"), [("None", "", False), ("True", "", True), ("None", ", *more", True), ("True", ", False", False)]
)
def test_what_a_call_leaves_out_in_another_file_does_nothing(tmp_path: Path, default: str, given: str, shown: bool) -> None:
    """Where that is nothing by default, and the call shows all that it gives."""
    helpers = f"import torch\ndef report(loss, sink={default}):\n    if sink:\n        sink.append(loss.item())\n"
    found = hits(tmp_path, train=training(f"helpers.report(loss{given})"), pkg__helpers=helpers)
    assert (("pkg/helpers.py", 4, "sync.per-step") in found) == shown


@pytest.mark.parametrize(("name", "shown"), [("log", True), ("test_log", False)])
def test_a_test_that_hands_itself_over_is_no_step(tmp_path: Path, name: str, shown: bool) -> None:
    """Its name begins like one of pytest."""
    found = hits(tmp_path, train=FIT + MAIN.replace("def log", f"def {name}").replace("=log", f"={name}"))
    assert any(rule == "sync.per-step" for _, _, rule in found) == shown


DECODING_HEIR = (
    "from pkg import rows\nclass Heir(rows.Rows):\n    def __getitem__(self, i):\n        return decode(self.paths[i]), self.y[i]\n"
)


@pytest.mark.parametrize("own", [True, False])
def test_an_heir_of_a_data_set_of_another_file_may_decode(tmp_path: Path, own: bool) -> None:
    """In the file that makes it, and in a third one."""
    loader = "    images = DataLoader(Heir(x), batch_size=8)\n    optimizer = "
    train = training("pass", "rows", "images").replace("    optimizer = ", loader, 1)
    train = f"from torch.utils.data import DataLoader\n{DECODING_HEIR if own else 'from pkg.heirs import Heir'}\n{train}"
    found = hits(tmp_path, train=train, pkg__rows=ROWS, pkg__heirs="import torch\n" + DECODING_HEIR)
    assert any(rule == "dataloader.inline" for _, _, rule in found)


@pytest.mark.parametrize(
    ("imports", "called", "where", "found"),
    [
        ("from data import advance", "advance", "data.py", True),
        ("import data", "data.advance", "data.py", True),
        ("from helpers.data import advance", "advance", "helpers/data.py", True),
        ("from helpers import data", "data.advance", "helpers/data.py", True),
        ("from helpers import data as d", "d.advance", "helpers/data.py", True),
        ("import math, data as d", "d.advance", "data.py", True),
        ("from helpers import (\n    cut,  # (of a, b)\n    data,\n)", "data.advance", "helpers/data.py", True),
        ("from other import data", "data.advance", "helpers/data.py", False),
    ],
)
def test_a_file_that_is_named_alone_is_read_with_what_it_imports(
    imports: str, called: str, where: str, found: bool, tmp_path: Path
) -> None:
    """Of the others nothing is said."""
    made = tmp_path / where
    made.parent.mkdir(exist_ok=True)
    made.write_text("import torch\ndef advance(loss, optimizer):\n    print(loss.item())\n    loss.backward()\n    optimizer.step()\n")
    train = tmp_path / "train.py"
    loop = f"for x in batches:\n    value = model(x.cuda()).mean()\n    {called}(value, given)\n    total = value.item()\n"
    train.write_text(f"import torch\n{imports}\n{loop}")
    lint = engine.lint([str(train)], shipped(), choice=engine.Choice(least="medium"))
    places = [(place.file, place.line) for hit in lint.hypotheses if hit.rule == "sync.per-step" for place in hit.places]
    assert (lint.files, {file for file, _ in places}) == (1, {str(train)} if found else set())
    assert [*beside.imported([(str(train), None)])] == ([str(made)] if found else [])
    left_out = engine.Choice(least="medium", exclude=(made.name,))
    assert not [hit for hit in engine.lint([str(tmp_path)], shipped(), choice=left_out).hypotheses if hit.rule == "sync.per-step"]


LISTENS = "loss.backward()\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"from pkg import fit\n{LISTENS}", {"pkg/__init__.py", "pkg/fitting.py", "pkg/steps.py", "pkg/more.py"}),
        (
            f"import pkg\npkg.fit(pkg.Data())\n{LISTENS}",
            {"pkg/__init__.py", "pkg/fitting.py", "pkg/steps.py", "pkg/data.py", "pkg/more.py"},
        ),
        (f"import pkg\npkg.Data()\n{LISTENS}", {"pkg/__init__.py", "pkg/data.py", "pkg/more.py"}),
        (f"from pkg import data\n{LISTENS}", {"pkg/data.py"}),
        (f"from pkg import other\n{LISTENS}", {"pkg/__init__.py", "pkg/more.py"}),
        (f"from pkg import other\nfrom pkg import fit\n{LISTENS}", {"pkg/__init__.py", "pkg/more.py", "pkg/fitting.py", "pkg/steps.py"}),
        ("from pkg import fit\nclass AdamW(fit): ...\n", set()),
    ],
)
def test_of_a_package_only_what_is_asked_of_it_is_read(text: str, read: set[str], tmp_path: Path) -> None:
    """What its `__init__.py` imports besides costs nothing; and nothing is read for a script without steps, batches and loaders."""
    (tmp_path / "pkg").mkdir()
    for name in ("data", "steps", "more"):
        (tmp_path / f"pkg/{name}.py").write_text("import torch\n")
    (tmp_path / "pkg/fitting.py").write_text("from pkg import data, steps\ndef run(): steps.one()\n")
    (tmp_path / "pkg/__init__.py").write_text(
        "from .data import Data\nfrom .fitting import run as fit\nfrom .more import *\nfrom . import lost\n"
    )
    found = beside.imported([(str(tmp_path / "train.py"), text.encode())])
    assert {os.path.relpath(each, tmp_path) for each in found} == read


OF_MANY = """\
import torch
from other import unused
from steps import advance

__all__ = ["fit", "Left"]


@torch.no_grad()
def left(
    x,
) -> None:
    x.item()


class Base:
    def fit(self, step):
        for batch in self.loader:
            step(batch)
            advance()


class Heir(Base):
    pass


class Left(torch.nn.Module):
    pass


if __name__ == "__main__":
    left(Left())
"""


def test_of_a_file_beside_only_what_is_asked_of_it_is_read(tmp_path: Path) -> None:
    """With what that needs and what inherits from it, on the lines where they stand; and so of what it imports."""
    for name in ("other", "steps"):
        (tmp_path / f"{name}.py").write_text("import torch\n")
    (tmp_path / "many.py").write_text(OF_MANY)
    found = beside.imported([(str(tmp_path / "train.py"), f"from many import Base\n{LISTENS}".encode())])
    assert [os.path.basename(each) for each in found] == ["many.py", "steps.py"]
    whole, part = OF_MANY.splitlines(), found[str(tmp_path / "many.py")].decode().splitlines()
    kept = [number for number, line in enumerate(part) if line]
    assert [whole[number] for number in kept] == [part[number] for number in kept]
    assert [part[number] for number in kept if part[number].startswith(("class", "def", "@", "_", "if"))] == [
        "class Base:",
        "class Heir(Base):",
    ]


@pytest.mark.parametrize(
    ("left", "cut"),
    [
        ("def left():\n    return 3\n", True),
        ("def left(\na,\n):\n    return a\n", True),
        ('def left():\n    """\ntext\n    """\n', False),
        ('TEXT = """\ndef left():\n    """\n{}\nMORE = """\ndef more():\n    """\n', False),
        ('def left(): return 3\nTEXT = """\nif __name__ == 3:\n    """\n{}\nMORE = """\nif __name__ == 4:\n    """\n', False),
        ("TEXT = '''\ndef left():\n    '''\n{}\nMORE = '''\ndef more():\n    '''\n", False),
    ],
)
@pytest.mark.parametrize(("end", "head"), [("\n", ""), ("\r\n", ""), ("\n", "# coding: latin-1\n# \xe9\n"), ("\n", "\f\n")])
def test_a_file_beside_that_cannot_be_cut_is_read_whole(left: str, cut: bool, end: str, head: str, tmp_path: Path) -> None:
    """A text without indentation looks like statements of the module, and statements in a text like those of the module."""
    advance = "def advance(loss):\n    loss.backward()\n    optimizer.step()\n"
    text = head + "import torch\n" + (left.replace("{}", advance) if "{}" in left else left + advance)
    (tmp_path / "data.py").write_bytes(text.replace("\n", end).encode("latin-1"))
    train = tmp_path / "train.py"
    train.write_text(
        "import torch\nfrom data import advance\nfor x in batches:\n    loss = model(x.cuda()).mean()\n    advance(loss)\n    loss.item()\n"
    )
    assert (b"def left" not in beside.imported([(str(train), None)])[str(tmp_path / "data.py")]) == cut
    assert any(hit.rule == "sync.per-step" for hit in engine.lint([str(train)], shipped()).hypotheses)


BLOCKS = st.sampled_from(
    (
        "def left(x):\n    return x.item()\n",
        "def left(x): return advance(x)\n",
        "async def left(\n  x,\n):\n\treturn x\n",
        'def left():\n    """\ndef advance(loss):\n    loss.item()\n    """\n',
        "def left():\n    return '''\nclass Base:\n'''\n",
        'def left():\n    # """\n    return """\nclass Left:\n"""\n',
        'TEXT = """\ndef left():\n    """\n',
        '"""\n',
        "def left():\n    quotes = \"'''\"\n    return '''\nclass Left:\n'''\n",
        "QUOTED = \"'''\"\n",
        '# """ begins a text\n',
        "@decorated(\n    of=3,\n)\n@torch.no_grad()\n",
        "@cached\n\n# why\n",
        "level = 3 + \\\n4\n",
        "def \\\nleft(x):\n    return x\n",
        "def left(x):\n    return 3 + \\\nx\n",
        "class Base:\n    def fit(self, loss): loss.item()\n",
        "class Heir(Base):\n\tdef more(self): pass\n",
        "if True:\n    def left(x): return x\nelse:\n    left = None\n",
        "try:\n    import left\nexcept ImportError:\n    left = None\n",
        'if __name__ == "__main__":\n    left(3)\nelse:\n    advance = print\n',
        '__all__ = ["advance",\n"left"]\n',
        "left = {\n'a': 3,\n}\n",
        "\f\n",
        "word = 'caf\xe9'\n",
    )
)
ADVANCE = "def advance(loss):\n    loss.backward()\n    optimizer.step()\n"


@fuzz
@given(
    st.lists(BLOCKS, max_size=4), st.lists(BLOCKS, max_size=4), st.sampled_from(("\n", "\r\n", "\r")), st.sampled_from(("utf-8", "latin-1"))
)
@example(['def left():\n    # """\n    return """\nclass Left:\n"""\n'] * 2, [], "\n", "utf-8")
def test_a_part_of_a_file_says_what_the_whole_of_it_says(
    tmp_path: Path, before: list[str], after: list[str], end: str, encoding: str
) -> None:
    """Its statements may be written in any way, and texts may hold lines that look like some."""
    text = f"# coding: {encoding}\nimport torch\n{''.join(before)}{ADVANCE}{''.join(after)}".replace("\n", end)
    data, train = tmp_path / "data.py", tmp_path / "train.py"
    data.write_bytes(text.encode(encoding))
    train.write_text(
        "import torch\nfrom data import advance\nfor x in batches:\n    loss = model(x.cuda()).mean()\n    advance(loss)\n    loss.item()\n"
    )
    try:
        compile(data.read_bytes(), "data.py", "exec")
    except SyntaxError:
        return

    def found(*paths: Path) -> list[tuple[str, Place]]:
        hits = engine.lint([str(path) for path in paths], shipped()).hypotheses
        return [(hit.rule, place) for hit in hits for place in hit.places if place.file == str(train)]

    assert found(train) == found(train, data)


def test_a_file_of_pytorch_itself_is_read_without_the_rest_of_it(tmp_path: Path) -> None:
    """What its own names are is known; what lies beside the file is read."""
    for name in ("torch/__init__.py", "torch/_utils.py", "torch/optim/__init__.py", "torch/optim/optimizer.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    text = f"from torch import Tensor, _utils\nfrom .optimizer import Optimizer\n{LISTENS}"
    assert beside.imported([(str(tmp_path / "torch/optim/swa.py"), text.encode())]) == {str(tmp_path / "torch/optim/optimizer.py"): b""}


def test_only_what_lies_beside_a_file_is_read_with_it(tmp_path: Path) -> None:
    """Of a package in a folder of packages, its own modules; above a script nothing."""
    for name in ("site/pkg/__init__.py", "site/pkg/sub/__init__.py", "site/pkg/data.py", "site/torch/__init__.py", "site/above.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import torch\nfrom pkg.sub import more\nx = more.x\n")
    script, site = tmp_path / "site/pkg/sub/train.py", tmp_path / "site"
    script.write_text(f"import torch, above\nfrom ..data import x\nfrom .... import above\nfrom . import train\n{LISTENS}")
    assert set(beside.imported([(str(script), None)])) == {str(site / "pkg/data.py"), str(site / "pkg/sub/__init__.py")}
    alone = tmp_path / "site/plain/run.py"
    alone.parent.mkdir()
    assert beside.imported([(str(alone), f"import above\nfrom .. import above\nfrom ..above import x\n{LISTENS}".encode())]) == {}


def test_what_is_read_beside_a_file_is_bounded(tmp_path: Path) -> None:
    """By number, by size, by name and, of lines that were made to be long, by time."""
    names = [f"m{number:02}" for number in range(40)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("import torch\n")
    script = str(tmp_path / "train.py")
    text = (LISTENS + "".join(f"import {name}\n" for name in names)).encode()
    assert beside.imported([(script, text)]) == {str(tmp_path / f"{name}.py"): b"import torch\n" for name in names[: beside.MAX_FILES]}

    (tmp_path / "m01.py").write_text("#" * (beside.MAX_BYTES - 5))
    assert [*beside.imported([(script, f"{LISTENS}import m01, m02".encode())])] == [str(tmp_path / "m01.py")]
    (tmp_path / "sub").mkdir()
    assert (
        beside.imported([(str(tmp_path / "sub/train.py"), f"import ../m04, {tmp_path}/m04\nfrom . import m04\n{LISTENS}".encode())]) == {}
    )

    start = time.process_time()
    for line in (
        b"from " + b"." * 300_000,
        b"from" + b" " * 300_000,
        b"from a import (" * 20_000,
        b"from a import (\n" * 20_000,
        b"import a," * 30_000,
    ):
        assert beside.imported([(script, LISTENS.encode() + line)]) == {}
    assert time.process_time() - start < 3


AGENT = """\
import torch

class Agent:
    def __init__(self, net):
        self.net, self.optimizer = net, torch.optim.Adam(net.parameters())

    def update(self, rollouts):
        for batch in rollouts:
            loss = self.net(batch).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.total += loss.item()
"""


@pytest.mark.parametrize(("device", "called", "shown"), [("cuda", "Agent", True), ("cpu", "Agent", False), ("cuda", "other.Agent", False)])
def test_a_file_that_trains_hears_of_a_device_from_who_calls_it(device: str, called: str, shown: bool, tmp_path: Path) -> None:
    """It names none itself; the loop above, in which it is called, need not be one of steps."""
    main = f"import torch, other\nfrom pkg.agent import Agent\ndevice = torch.device('{device}')\nagent = {called}(net)\n"
    found = hits(tmp_path, main=f"{main}for round in range(1000):\n    agent.update(rollouts)\n", pkg__agent=AGENT)
    assert (("pkg/agent.py", 13, "sync.per-step") in found) == shown


def test_a_notebook_is_read_alone(tmp_path: Path) -> None:
    """Its cells stand in JSON, and where it runs is not known."""
    (tmp_path / "data.py").write_text("import torch\n")
    cells = b'{"cells": [{"cell_type": "code", "source": ["import data\\n", "loss.backward()\\n"]}], "nbformat": 4}'
    assert beside.imported([(str(tmp_path / "train.ipynb"), cells)]) == {}

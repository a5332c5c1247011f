"""What runs for each batch although no call in the file shows it: half steps, closures, metrics by their method (draws 51 and 52)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.script.scripts import hits, sure
from tests.script.test_links import hits as hits_of_files


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("train_step", True),
        ("training_batch", True),
        ("compute_loss", True),
        ("valid_step", True),
        ("explain", False),
        ("compute_size", False),
    ],
)
def test_a_half_of_a_step_is_known_by_its_name(name: str, shown: bool) -> None:
    """Whoever trains with what it gives completes it, for each batch."""
    text = f"import torch\nclass Task:\n    def {name}(self, batch):\n        loss = self.criterion(self.model(batch['x'].cuda()), batch['y'].cuda())\n        self.note('loss', loss.item())\n        return loss\n"
    assert ("sync.per-step" in sure(text)) == shown


def test_a_half_of_a_step_that_something_calls_runs_as_often_as_that() -> None:
    """Once, before the training."""
    text = "import torch\ndef compute_loss(model, batch):\n    loss = criterion(model(batch['x'].cuda()), batch['y'].cuda())\n    print(loss.item())\n    return loss\n"
    assert "sync.per-step" not in sure(f"{text}compute_loss(model, first)\n")


@pytest.mark.parametrize(("step", "shown"), [("optimizer.step(closure)", True), ("", False)])
def test_an_optimizer_calls_its_closure(step: str, shown: bool) -> None:
    """In each step."""
    text = "import torch\ndef fit(model, x, y, optimizer):\n    model.cuda()\n    for i in range(1000):\n        def closure():\n            optimizer.zero_grad()\n"
    text += f"            loss = criterion(model(x), y)\n            loss.backward()\n            kept.append(loss.item())\n            return loss\n        {step or 'pass'}\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("taken", "shown"), [("batches", True), ("iter([first])", False)])
def test_a_loader_whose_next_batch_a_step_takes_trains(taken: str, shown: bool) -> None:
    """Without workers each step waits for it."""
    text = f"import torch\nfrom torch.utils.data import DataLoader\nbatches = iter(DataLoader(Images(path), batch_size=8))\nmodel.cuda()\nstep = 0\nwhile step < 100:\n    x, y = next({taken})\n"
    text += "    loss = criterion(model(x.cuda()), y.cuda())\n    loss.backward()\n    optimizer.step()\n    step += 1\n"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("methods", "given", "shown"),
    [
        ("def compute(self):\n                return self.right", "output, y", True),
        ("def compute(self):\n                return self.right", "len(x), 3", False),
        ("def send(self):\n                return self.right", "output, y", False),
    ],
)
def test_a_metric_of_a_list_is_known_by_its_method(methods: str, given: str, shown: bool, tmp_path: Path) -> None:
    """What is given a batch and tells what it has measured reads it for each."""
    metrics = f"""\
        class Accuracy:
            def update(self, output, y):
                self.right += (output.argmax(1) == y).sum().item()
            {methods}
        """
    train = f"""\
        import torch
        def validate(model, loader, metrics):
            model.cuda().eval()
            with torch.no_grad():
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()
                    output = model(x)
                    for metric in metrics:
                        metric.update({given})
        """
    found = hits_of_files(tmp_path, pkg__metrics=metrics, train=train)
    assert (("pkg/metrics.py", 3, "sync.per-step") in found) == shown


@pytest.mark.parametrize(
    "uses", ["config.model(x.cuda())", "config.model.forward(x.cuda())", "passed(x, config.model)"], ids=["called", "a method", "handed on"]
)
def test_settings_may_hold_the_model_and_the_loaders(uses: str) -> None:
    """What they hold is a thing itself where it is called or gone through; elsewhere it may be a name."""
    text = f"import torch\ndef train(config):\n    for x, y in config.data_loaders.train:\n        loss = config.loss_fn({uses}, y)\n        config.optimizer.zero_grad()\n        loss.backward()\n        config.optimizer.step()\n        total += loss.item()\n"
    text += "def quality(config):\n    config.model.eval()\n    with torch.no_grad():\n        for x, y in config.data_loaders.val:\n            right += (config.model(x.cuda()) == y.cuda()).sum().item()\n"
    assert hits(text)["sync.per-step"] == [8, 13]


@pytest.mark.parametrize(("base", "shown"), [("Base", True), ("Other", False)])
def test_a_method_of_one_family_is_called_by_its_name(base: str, shown: bool) -> None:
    """Whatever object of the classes is given; those that have nothing in common are told apart by nobody."""
    text = "import torch\ndef train(task, model, loader, optimizer):\n    model.cuda()\n    for x, y in loader:\n        loss = criterion(model(x.cuda()), y)\n        loss.backward()\n        optimizer.step()\n        task.note_batch(loss)\n"
    text += f"class Base:\n    def note_batch(self, loss):\n        pass\nclass Own({base}):\n    def note_batch(self, loss):\n        self.kept = loss.item()\n"
    assert ("sync.per-step" in sure(text)) == shown


def test_one_of_several_methods_that_a_name_stands_for_is_called() -> None:
    """By the one that a dictionary has under a key."""
    text = "import torch\nclass Solver:\n    def setup(self, how):\n        self.gradient = {'auto': self.by_graph, 'manual': self.by_hand}[how]\n    def fit(self, loader):\n        for x in loader:\n            loss = self.gradient(x.cuda())\n            self.optimizer.step()\n            self.total += loss.item()\n"
    text += "    def by_graph(self, x):\n        loss = self.model(x).mean()\n        loss.backward()\n        return loss\n    def by_hand(self, x):\n        return self.other(x)\n"
    assert "sync.per-step" in sure(text)


def test_a_copy_of_itself_is_the_same_class(tmp_path: Path) -> None:
    """A method of an heir runs where its base calls it on a copy."""
    base = """\
        import copy, torch
        class Engine(torch.nn.Module):
            def adapt(self, inputs):
                pass
            def run(self, inputs):
                engine = copy.deepcopy(self) if self.copies else self
                for i in range(steps):
                    self.optimizer.zero_grad()
                    loss = engine.adapt(inputs.cuda())
                    loss.backward()
                    self.optimizer.step()
        """
    own = """\
        import torch
        from pkg.base import Engine
        class Own(Engine):
            def adapt(self, inputs):
                entropy = self.model(inputs).mean()
                self.kept.append(entropy.item())
                return entropy
        """
    assert ("pkg/own.py", 6, "sync.per-step") in hits_of_files(tmp_path, pkg__base=base, pkg__own=own)

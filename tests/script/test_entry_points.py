"""What runs for each batch although no call in the file shows it: half steps, closures, metrics by their method (draws 51 and 52)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.script.scripts import sure
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

"""Parts that a trainer is given: loaders, models and optimizers in lists and under names, and what it does for each batch."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, judged, sure

TRAINER = """\
import math
import torch
class Trainer:
    def __init__(self, models, optimizers, loader, device):
        self.models, self.optimizers, self.loader, self.device = models, optimizers, loader, device
"""
STEP = """\
    def fit(self, show_loss=False):
        for x, y in self.loader:
            loss = self.models[0](x.to(self.device), y)
            loss.backward()
            self.optimizers[0].step()
"""
EVALUATION = """\
    def evaluate(self, batches):
        self.model.{mode}
        bar = tqdm(range(batches))
        with torch.no_grad():
            for number in {counted}:
                self.total += self.criterion(self.model(self.batch(number).cuda()), 0).item()
"""


@pytest.mark.parametrize("together", ["enumerate(zip(self.optimizers, self.models))", "zip(self.models, self.optimizers)"])
def test_models_that_learn_side_by_side_are_parts_of_one_step(together: str) -> None:
    """What the step does behind their loop is done in each step, too."""
    text = f"""{TRAINER}
    def fit(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            outputs = [model(x) for model in self.models]
            for number, pair in {together}:
                optimizer = self.optimizers[number]
                loss = self.losses(outputs, y)[number]
                loss.backward()
                optimizer.step()
            self.right += outputs[0].eq(y).sum().item()
"""
    assert hits(text)["sync.per-step"] == [16]


@pytest.mark.parametrize(
    ("mode", "counted"),
    [("eval()", "bar"), ("train(False)", "range(batches)"), ("train(mode=False)", "tqdm(range(batches))")],
)
def test_an_evaluation_counts_its_batches(mode: str, counted: str) -> None:
    """Under the name of a bar as well, and whichever way the model was put into evaluation."""
    text = "import torch\nfrom tqdm import tqdm\nclass Trainer:\n" + EVALUATION.format(mode=mode, counted=counted)
    assert "sync.per-step" in hits(text)


@pytest.mark.parametrize(("name", "shown"), [("val_step", True), ("validate_batch", True), ("test_step", True), ("test_shapes", False)])
def test_a_method_evaluates_a_batch_beside_one_that_trains_with_it(name: str, shown: bool) -> None:
    """An engine of another file calls both, once a batch."""
    step = "x, y = deep_to(batch, device=self.device)\n        loss = self.criterion(self.model(x), y)\n"
    text = f"""{TRAINER}
    def train_step(self, batch):
        {step}        loss.backward()
        self.optimizer.step()
    def {name}(self, batch):
        {step}        return {{"loss": loss.item()}}
"""
    assert (hits(text).get("sync.per-step") == [15]) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("self.writer.add_scalar('loss', loss, 1)", True),
        ("self.writer.add_scalar('rate', self.rate, 1)", False),
        ("if loss.isnan(): log.warning(f'{loss}')", False),
        ("if show_loss: print(loss.item())", False),
        ("if self.when_due(): print(loss.item())", False),
        ("loss_denominator = self.tail or 2; self.n = int(loss_denominator)", False),
    ],
)
def test_a_value_is_read_in_each_step(line: str, shown: bool) -> None:
    """By a logger that takes tensors; not by what warns, shows, or asks if it is time."""
    assert ("sync.per-step" in hits(f"{TRAINER}{STEP}            {line}\n")) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("total += torch.sum(p.grad ** 2)", True),
        ("total += p.grad.detach().norm() ** 2", True),
        ("total += p.numel()", False),
        ("total += torch.sum(p ** 2)", False),
    ],
)
def test_a_norm_of_all_gradients_is_summed_up_one_by_one(line: str, shown: bool) -> None:
    """A norm of all at once takes a few kernels; a penalty of weights is differentiated."""
    loop = f"            for p in self.models[0].parameters():\n                {line}\n"
    assert ("optimizer.own-loop" in hits(f"{TRAINER}{STEP}            total = 0\n{loop}")) == shown


def test_what_a_star_brings_may_be_torch() -> None:
    """A scaler of losses is for GPUs, whoever names the device."""
    text = f"from .prelude import *\nclass Loop:\n    scaler = GradScaler()\n    def check(self): torch.seed()\n{STEP}            total += self.losses[0].item()\n"
    assert "sync.per-step" in hits(text)


def test_an_object_may_give_itself_to_a_function() -> None:
    """Its `self` has no place among the arguments of a call."""
    text = """
def show(owner):
    if owner:
        print(owner.loss.item())
class Trainer:
    def advance(self):
        show(self)
def main(trainer):
    trainer.advance()
"""
    assert judged(f"import torch\n{text}").unread is None


@pytest.mark.parametrize(
    ("hook", "base", "shown"),
    [("on_batch_end", "", True), ("after_backward", "class TrainingCallback:\n    pass\n", True), ("on_epoch_end", "", False)],
)
def test_a_trainer_of_the_project_calls_its_callbacks_for_each_batch(hook: str, base: str, shown: bool) -> None:
    """By the names that such hooks have, whether the base class is of this file or of another."""
    text = f"import torch\n{base}class Accuracy(TrainingCallback):\n    def {hook}(self, log):\n        self.all.append(log['output'].to('cpu'))\n"
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("self.options.forward(model=self.model, x=x, optimizer=self.optimizer)", True),
        ("self.train_step(self.model, x, self.optimizer)", True),
        ("self.options.forward(model=self.model, x=x)", False),
        ("self.show(self.model, self.optimizer)", False),
    ],
)
def test_who_is_given_model_batch_and_optimizer_makes_the_step(call: str, shown: bool) -> None:
    """Although the backward pass is in a function of a caller."""
    head = TRAINER.replace("models", "model").replace("optimizers", "optimizer")
    text = f"{head}    def fit(self):\n        for x in self.loader:\n            x = x.to(self.device)\n            loss = {call}\n            self.total += float(loss)\n"
    assert ("sync.per-step" in hits(text)) == shown


def test_an_evaluation_asks_whether_its_loss_is_a_number() -> None:
    """Of each batch, which waits for it."""
    text = "import torch, math\nmodel.eval()\nwith torch.no_grad():\n    for x, y in loader:\n        loss = criterion(model(x.cuda()), y.cuda())\n"
    assert hits(f"{text}        if math.isnan(loss):\n            raise ValueError\n")["sync.per-step"] == [6]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("return y, {'loss': y.mean().item()}", True),
        ("top = y.max().item()\n        if top > self.size:\n            raise ValueError(f'{top}')", False),
    ],
)
def test_a_forward_pass_reads_numbers_for_a_log(line: str, shown: bool) -> None:
    """Which it could give as tensors; what it raises an error for must be known."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        y = torch.relu(x)\n        {line}\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("condition", "end", "shown"),
    [
        ('kind == "a"', "    else:\n        raise ValueError\n", True),
        ('kind == "a"', "    return loss, None\n", False),
        ("debug", "    else:\n        return loss, x\n", False),
    ],
)
def test_one_of_several_ways_is_gone_in_each_round(condition: str, end: str, shown: bool) -> None:
    """``if kind == "a": … elif kind == "b": …`` chooses once and for all; what is left before the rest is an exception."""
    text = f"""\
import torch
def forward(kind, model, x, y):
    loss = criterion(model(x.cuda()), y)
    if {condition}:
        return loss, {{"loss": loss.item()}}
{end}
def evaluate(kind, model, loader):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            show(forward(kind, model, x, y))
"""
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("right += ((given.argmax(1) == y) & (y != 0)).sum().item()", False),
        ("right += given.argmax(1).sum().item() + out.sum().item()", True),
    ],
)
def test_what_two_tensors_of_the_host_have_in_common_lies_there(line: str, shown: bool) -> None:
    """One was copied, the other made of numbers; `target` is a device where the copy is asynchronous."""
    text = f"""\
import torch
def evaluate(model, loader, target):
    model.eval()
    for x, labels in loader:
        out = model(x.to(target, non_blocking=True))
        given = show(out).cpu()
        y = torch.tensor([numbers[each] for each in labels])
        {line}
"""
    assert (8 in hits(text)["sync.per-step"]) == shown

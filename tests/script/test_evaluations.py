"""Evaluations: loops of their own, and what runs between the steps of a training loop."""

from __future__ import annotations

import pytest

from sysperf.model.finding import Finding
from tests.script.scripts import hits, judged, sure

EVALUATES = """
import torch
device = torch.device("cuda")
@torch.no_grad()
def evaluate(model, loader):
    right = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        scores = model(x)
        right += (scores.argmax(1) == y).sum().item()
        kept.append(scores.cpu())
        mask = x.sum(1).type(torch.BoolTensor).to(device)
"""
BETWEEN = """
import torch
class Net(torch.nn.Module):
    def fit(self, x, y, optimizer, steps):
        for i in range(steps):
            {train}
            loss = torch.nn.functional.nll_loss(self(x), y)
            loss.backward()
            optimizer.step()
            {switch}
            {forward}
            {after}
"""


def test_values_of_an_evaluation_are_read_batch_by_batch() -> None:
    """A sum can stay on the device, and so can a mask; results that are kept have to leave it."""
    found = [each for each in judged(EVALUATES).hypotheses if each.rule == "sync.per-step"]
    assert [(_line(each), each.severity) for each in found] == [(10, "hint"), (12, "hint")]


@pytest.mark.parametrize(
    ("train", "switch", "forward", "after", "shown"),
    [
        ("self.train()", "self.eval()", "best = self(x)", "pass", True),
        ("self.train()", "self.eval()", "best = self.forward(x)", "pass", True),
        ("self.train()", "self.eval()", "with torch.no_grad(): best = self(x)", "pass", False),
        ("self.train()", "pass", "best = self(x)", "pass", False),
        ("pass", "self.eval()", "self.train()", "other = self(x)", False),
        ("pass", "self.eval()", "more = self(x).sum()", "more.backward()", False),  # layers of which the sums are frozen
    ],
)
def test_an_evaluation_between_steps_needs_no_gradients(train: str, switch: str, forward: str, after: str, shown: bool) -> None:
    """It is what follows `eval()`, up to `train()`, and is differentiated nowhere."""
    text = BETWEEN.format(train=train, switch=switch, forward=forward, after=after)
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(
    ("first", "given", "shown"),
    [("0", "accuracy(scores, y)", True), ("0", "accuracy(scores, y).item()", False), ("None", "len(y)", False)],
)
def test_what_item_is_called_of_is_a_tensor(first: str, given: str, shown: bool) -> None:
    """A value of another file's function is known by its use, unless the file itself makes it a number."""
    text = f"""
        import torch
        def fit(model, loader, optimizer):
            best = {first}
            for x, y in loader:
                scores = model(x)
                criterion(scores, y).backward()
                optimizer.step()
                right = {given}
                if best < right:
                    best = right
            print(best.item())
    """
    assert ("sync.branch-on-loss" in hits(text)) == shown


FOUND = """
import torch
class Trainer:
    def __init__(self, valid_iter, device):
        self.valid_iter = valid_iter
        self.model = Net().to(device)
    def {name}(self, batches, models):
        {mode}
        with torch.no_grad():
            for {each} in {over}:
                loss = self.of_batch(each.text)
                total += loss.item()
    def of_batch(self, text):
        return self.model(text)
"""


@pytest.mark.parametrize(
    ("name", "mode", "each", "over", "shown"),
    [
        ("evaluate", "self.model.eval()", "each", "self.valid_iter", True),
        ("Test", "self.model.eval()", "each", "batches", True),
        ("inference", "self.model.eval()", "each", "cut(batches)", True),
        ("compare", "self.model.eval()", "each", "cut(batches)", False),
        ("validate", "self.model.eval()", "each", "self.progress(over=batches)", True),
        ("evaluate", "pass", "each", "cut(batches)", False),
        ("evaluate", "self.model.eval()", "model", "models", False),
    ],
)
def test_what_evaluates_goes_over_anything(name: str, mode: str, each: str, over: str, shown: bool) -> None:
    """A function that says so, switches a model over and calls it; not one over several models."""
    assert ("sync.per-step" in hits(FOUND.format(name=name, mode=mode, each=each, over=over))) == shown


def test_a_batch_that_is_copied_back_was_there_before() -> None:
    """Whoever needs it on the host has it."""
    back = EVALUATES.replace("kept.append(scores.cpu())", "kept.append(x.cpu())")
    assert hits(back)["sync.per-step"] == [10, 11, 12]


def test_an_evaluation_on_the_host_waits_for_nothing() -> None:
    """Neither the model nor a batch goes to a device."""
    text = EVALUATES.replace('device = torch.device("cuda")', "").replace("        x, y = x.to(device), y.to(device)\n", "")
    assert "sync.per-step" not in hits(text.replace("        mask = x.sum(1).type(torch.BoolTensor).to(device)\n", ""))


@pytest.mark.parametrize(
    ("decorator", "trains", "shown"), [("", "pass", True), ("@torch.no_grad()", "pass", False), ("", "loss.backward()", False)]
)
def test_a_helper_may_call_the_model(decorator: str, trains: str, shown: bool) -> None:
    """One function for the batches of a training and of an evaluation."""
    text = f"""
        import torch
        {decorator}
        def of_batch(model, x, y):
            loss = criterion(model(x), y)
            {trains}
            return loss
        def validate(model, val_loader):
            model.eval()
            for x, y in val_loader:
                keep(of_batch(model, x, y))
    """
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(("first", "shown"), [("", False), ("        x, y = x.to(device), y.to(device)\n", True)])
def test_a_batch_lies_on_the_host_as_the_loader_gives_it(first: str, shown: bool) -> None:
    """Also what a name for all of it unpacks to."""
    text = (
        "import torch\n@torch.no_grad()\ndef evaluate(model, loader, device):\n    for batch in loader:\n        x, y = batch\n"
        f"{first}        keep(y.cpu(), model(x.to(device)))\n"
    )
    assert ("sync.per-step" in hits(text)) == shown


def _line(hypothesis: Finding) -> int:
    assert hypothesis.place is not None
    return hypothesis.place.line or 0


@pytest.mark.parametrize(
    ("loop", "shown"),
    [
        ("right += (model(x).argmax(1) == y).sum().item()", True),
        ("kept.append(model(x).detach().cpu())", True),
        ("right += model.loss(x, y).item()", True),
        ("right = right + model(x).mean()", False),  # which may be differentiated by whoever asked for it
        ("model(x)", False),  # statistics of batch norm
        ("with torch.no_grad(): right += model(x).sum().item()", False),
        ("yield model(x).detach()", False),
    ],
)
@pytest.mark.parametrize(("before", "trains"), [("", False), ("(model(x) - y).sum().backward()", True), ("freeze(model)", True)])
def test_an_evaluation_may_have_no_eval(loop: str, shown: bool, before: str, trains: bool) -> None:
    """What a loop over a loader only reads is differentiated nowhere."""
    text = f"""
    import torch
    def accuracy(model, loader, right=0):
        {before or "pass"}
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            {loop}
        return right
    for epoch in range(3):
        accuracy(torch.nn.Linear(3, 3).cuda(), torch.utils.data.DataLoader(rows, num_workers=3))
    """
    assert ("program.gradients-in-evaluation" in hits(text)) == (shown and not trains)


def test_a_model_is_evaluated_by_its_loss() -> None:
    """An epoch that goes on with a sum over held-out data."""
    text = """
    import torch
    for epoch in range(3):
        model.train()
        for x, y in train_loader:
            model.loss(x.cuda(), y.cuda()).backward()
            optimizer.step()
        model.eval()
        total = 0
        for x, y in val_loader:
            total += model.loss(x.cuda(), y.cuda())
    """
    assert hits(text)["program.gradients-in-evaluation"] == [10]


EITHER = """
import torch
device = torch.device("cuda")
def run(model, loader, {given}):
    {before}
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        {forward}
        if {asked}:
            loss.backward()
            optimizer.step()
for epoch in range(9):
    run(model, train_loader, {trains})
    run(model, val_loader{evaluates})
"""


@pytest.mark.parametrize(
    ("given", "asked", "trains", "evaluates", "shown"),
    [
        ("optimizer=None", "optimizer is not None", "optimizer", "", True),
        ("optimizer=None", "optimizer", "optimizer=optimizer", ", optimizer=None", True),
        ("train", "train", "True", ", False", True),
        ("*, train=True", "train", "train=True", ", train=False", True),
        ("test=False", "not test", "False", ", True", True),
        ("train", "train", "True", ", True", False),
        ("train", "train or x is None", "True", ", False", False),
        ("epoch", "epoch % 3", "epoch", ", epoch", False),
    ],
)
@pytest.mark.parametrize(
    ("before", "forward", "keeps"),
    [
        ("pass", "loss = criterion(model(x), y)", True),
        ("torch.set_grad_enabled(True)", "loss = criterion(model(x), y)", False),
        ("pass", "with torch.set_grad_enabled(train): loss = criterion(model(x), y)", False),
        ("pass", "with torch.no_grad(): loss = criterion(model(x), y)", False),
    ],
)
def test_one_function_trains_or_evaluates(
    given: str, asked: str, trains: str, evaluates: str, shown: bool, before: str, forward: str, keeps: bool
) -> None:
    """Its caller says which, by what it leaves out."""
    text = EITHER.format(given=given, asked=asked, trains=trains, evaluates=evaluates, before=before, forward=forward)
    assert hits(text).get("program.gradients-in-evaluation", []) == ([14] if shown and keeps else [])


def test_a_helper_moves_the_batches() -> None:
    """A file that names no device, but a function that copies to one."""
    text = """
    import torch
    from mine import move_to_device
    def evaluate(model, loader, total=0):
        with torch.no_grad():
            for x, y in loader:
                x, y = move_to_device(x, where), move_to_device(y, where)
                total += torch.nn.functional.mse_loss(model(x), y).item()
        return total
    """
    assert hits(text)["sync.per-step"] == [8]


@pytest.mark.parametrize(
    ("base", "hook", "called", "shown"),
    [
        ("lightning.LightningModule", "on_validation_epoch_end", "score", False),
        ("lightning.LightningModule", "on_test_start", "score", False),
        ("lightning.LightningModule", "on_train_epoch_end", "score", True),
        ("lightning.LightningModule", "on_validation_epoch_end", "other", True),
        ("lightning.Callback", "on_predict_batch_end", "score", False),
        ("lightning.Callback", "on_fit_end", "score", True),
        ("torch.nn.Module", "on_validation_epoch_end", "score", True),
    ],
)
def test_lightning_turns_gradients_off_around_its_hooks_of_evaluations(base: str, hook: str, called: str, shown: bool) -> None:
    """In what only they call, too."""
    text = f"""
    import lightning, torch
    class Net({base}):
        def {hook}(self, *given):
            self.{called}()
        def score(self):
            self.net.eval()
            for x, y in self.val_loader:
                self.right += (self.net(x.cuda()).argmax(1) == y).sum().item()
    """
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


NEEDED = """
import contextlib, functools, higher, lightning, torch
from elsewhere import evaluation_mode, pgd
from torch import no_grad as off
device = torch.device("cuda")
class Net(torch.nn.Module):
    def forward(self, x):
        {forward}
class {owner}:
    {decorator}
    def validate(self, model, loader):
        {evaluates}
def differs(u, x):
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]
def quietly(function):
    @functools.wraps(function)
    def inner(*given):
        with torch.no_grad():
            return function(*given)
    return inner
def eval_mode(function):
    return function
@contextlib.contextmanager
def phase(train):
    with torch.set_grad_enabled(train):
        yield
def run(model, loader, train):
    context = contextlib.nullcontext() if train else torch.no_grad()
    {before}
    with {context}:
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            {within}
            loss = criterion(model(x), y)
            if train:
                loss.backward()
                optimizer.step()
            {otherwise}
    return loss
model = Net().to(device)
for epoch in range(9):
    run(model, train_loader, True)
    {called}
"""
PLAIN = {
    "forward": "return x",
    "owner": "Evaluator",
    "decorator": "",
    "evaluates": "pass",
    "before": "pass",
    "context": "contextlib.nullcontext()",
    "within": "pass",
    "otherwise": "",
    "called": "run(model, val_loader, False)",
}


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({}, True),
        ({"forward": "self.weight.requires_grad = False"}, True),
        ({"forward": "return x\n    def fit(self, x):\n        self(x).sum().backward()"}, True),
        ({"within": "x.requires_grad_()"}, False),
        ({"within": "z = torch.zeros(8, requires_grad=True)"}, False),
        ({"within": "z = torch.zeros(8, requires_grad=False)"}, True),
        ({"within": "x = pgd(model, x, y)"}, False),
        ({"within": "y = y + differs(model(x), x)"}, False),
        ({"within": "with higher.innerloop_ctx(model, inner) as (fast, learns): learns.step(fast(x))"}, False),
        ({"forward": "return torch.autograd.grad(self.energy(x), x, create_graph=True)[0]"}, False),
        ({"otherwise": "else: model(x).max().backward()"}, False),
        ({"before": "torch._C._set_grad_enabled(train)"}, False),
        ({"context": "context"}, False),
        ({"context": "contextlib.nullcontext() if train else torch.no_grad()"}, False),
        ({"context": "phase(train)"}, False),
        ({"context": "lost().no_grad()"}, False),
        ({"called": "pass", "evaluates": "run(model, loader, True), run(model, loader, False)"}, True),
        ({"called": "with off(): run(model, val_loader, False)"}, False),
        ({"called": "run(model, val_loader, False).backward()"}, False),
        *(
            ({"called": called, "evaluates": "run(model, loader, False)", "decorator": decorator, "owner": owner}, shown)
            for called, decorator, owner, shown in (
                ("Evaluator().validate(model, val_loader)", "", "Evaluator", True),
                ("Evaluator().validate(model, val_loader)", "@off()", "Evaluator", False),
                ("Evaluator().validate(model, val_loader)", "@quietly", "Evaluator", False),
                ("Evaluator().validate(model, val_loader)", "@evaluation_mode", "Evaluator", False),
                ("Evaluator().validate(model, val_loader)", "@eval_mode", "Evaluator", True),
                ("Evaluator().validate(model, val_loader)", "", "Evaluator(lightning.LightningModule)", False),
                ("pass", "", "Evaluator", False),
            )
        ),
    ],
)
def test_gradients_are_needed_or_off(changed: dict[str, str], shown: bool) -> None:
    """In attacks, forces and what learns in its evaluation; and off by other names, by a function around, or by whoever calls."""
    text = NEEDED.format(**{**PLAIN, **changed})
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(
    ("within", "forward", "shown"),
    [
        ("pass", "return x", True),
        ("x.requires_grad_()", "return x", False),
        ("x = attack(x, y)", "return x", False),
        ("pass", "return torch.autograd.grad(x.sum(), x)[0]", False),
    ],
)
def test_an_evaluation_may_need_gradients(within: str, forward: str, shown: bool) -> None:
    """It asks for them in its loop, or in its model."""
    text = f"""
    import torch
    class Net(torch.nn.Module):
        def forward(self, x):
            {forward}
    def evaluate(model, loader, right=0):
        model.eval()
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            {within}
            right += (model(x).argmax(1) == y).sum().item()
        return right
    """
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(
    ("context", "shown"),
    [("tqdm(loader)", True), ("open(path)", True), ("validation(self)", False), ("modes.evaluating(self.model)", False)],
)
def test_what_changes_a_model_in_a_with_may_turn_gradients_off(context: str, shown: bool) -> None:
    """A `with` of another file is given the trainer, or the model."""
    text = f"""
        import torch
        class Trainer:
            def __init__(self):
                self.model = torch.nn.Linear(3, 3)
            def fit(self, loader):
                self.model.eval()
                with {context}:
                    for x, y in loader:
                        right = (self.model(x.cuda()).argmax(1) == y.cuda()).sum()
    """
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(("condition", "shown"), [("pass", False), ("if other:", True)])
def test_a_label_may_leave_the_device_beside_the_results(condition: str, shown: bool) -> None:
    """Where a condition lets both be copied, the label waits for nothing more."""
    text = f"""
        import torch
        @torch.no_grad()
        def evaluate(model, loader, wanted, other):
            for x, y in loader:
                x, y = x.cuda(), y.cuda()
                if wanted:
                    kept.append(model(x).cpu())
                    {condition if condition == "pass" else ""}
                {condition if condition != "pass" else ""}
                    kept.append(y.cpu())
    """
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("quick", "other", "shown"), [(True, False, False), (True, True, False), (False, False, True)])
def test_one_of_two_ways_may_run_without_gradients(quick: bool, other: bool, shown: bool) -> None:
    """Where an option decides which is taken, the source does not tell."""
    around = {True: "with torch.inference_mode():", False: "if True:"}
    text = f"""
        import torch
        class Learner:
            def predict(self, x):
                {around[quick]}
                    return self.model(x)
            def predict_exported(self, x):
                {around[other]}
                    return self.model(x)
            def predictions(self, loader):
                self.model.eval()
                for x, y in loader:
                    if self.exported:
                        z = self.predict_exported(x.cuda())
                    else:
                        z = self.predict(x.cuda())
    """
    assert ("program.gradients-in-evaluation" in hits(text)) == shown

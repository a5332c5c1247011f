"""What a reader of packages called hardly worth a change, or wrong: draws 36 and 37 of docs/validation/lint.md."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, sure
from tests.script.test_codemods import fixed

LOADER = "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
STEP = "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("torch.tensor(cloud(names[:-3])).to(x.device)", False),
        ("torch.Tensor(rows.numpy()).to(x.device)", False),
        ("torch.tensor(rows.astype(int)).to(x.device)", False),
        ("torch.tensor(len(names)).to(x.device)", True),
        ("torch.tensor(math.sqrt(width)).to(x.device)", True),
        ("torch.tensor(weights_of(3)).to(x.device)", True),
        ("torch.tensor(self.table(x)).to(x.device)", True),
    ],
)
def test_what_a_function_makes_of_data_comes_from_the_host(made: str, shown: bool) -> None:
    """A tensor of numbers and sizes may be made where it is used; one of data must be copied there."""
    text = f"import math\nimport torch\nclass Net(torch.nn.Module):\n    def forward(self, x, names, rows, width):\n        return x * {made}\n"
    assert ("transfer.tensor-made-on-cpu" in sure(text)) == shown


@pytest.mark.parametrize(
    ("between", "shown"),
    [("", True), ("second = model(y).to('cpu', non_blocking=True)", True), ("second = model(y).to('cpu')", False), ("z = y.sum()", True)],
)
def test_a_copy_that_waits_waits_for_those_before_it(between: str, shown: bool) -> None:
    """They are made one after the other."""
    text = f"import torch\ndef split(model, x, y):\n    model.cuda()\n    first = model(x.cuda()).to('cpu', non_blocking=True)\n    {between}\n    return first.tolist()\n"
    assert ("transfer.back-unsynchronised" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "goes", "shown"),
    [
        ("DataLoader(train_set, batch_size=8)", "network.fit(loader)", True),
        ("DataLoader(train_set, batch_size=8, shuffle=False)", "network.fit(loader)", False),
        ("DataLoader(X, batch_size=8)", "network.fit(loader)", False),
    ],
)
def test_a_training_set_may_be_gone_through_to_learn_of_it(made: str, goes: str, shown: bool) -> None:
    """In order, and once; features that a caller gives lie in memory."""
    text = f"{LOADER}def describe(network, X, train_set):\n    network.cuda()\n    loader = {made}\n    return {goes}\n"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(("around", "shown"), [("if True:", False), ("for _ in range(3):", True)])
def test_one_batch_is_copied_once(around: str, shown: bool) -> None:
    """The whole of a data set, for instance."""
    text = f"{LOADER}def whole(rows):\n    loader = DataLoader(Rows(rows), batch_size=len(rows), num_workers=2)\n    {around}\n        x, y = next(iter(loader))\n        x = x.cuda()\n    return x\n"
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


@pytest.mark.parametrize(
    ("code", "shown"),
    [("y = (x[x > 0] - 1).abs().max().mean()", True), ("assert (x[x > 0] - 1).abs().max().mean() < 1e-7", False)],
)
def test_an_assertion_is_a_check(code: str, shown: bool) -> None:
    """It may be turned off."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        x = x.cuda()\n        {code}\n        return x\n"
    assert ("sync.boolean-index" in sure(text)) == shown


def test_batches_that_a_norm_has_seen_are_counted_on_the_host() -> None:
    """As PyTorch's own norms do, where they have no momentum."""
    text = """
        import torch
        class Norm(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("{0}", torch.tensor(0))
            def forward(self, x):
                return x / self.{0}.item()
    """
    assert "sync.per-step" not in sure(text.format("num_batches_tracked"))
    assert "sync.per-step" in sure(text.format("scale"))


@pytest.mark.parametrize(("asked", "shown"), [("isinstance(p, ManifoldParameter)", False), ("p.grad is not None", True)])
def test_parameters_of_a_class_of_its_own_have_operators_of_their_own(asked: str, shown: bool) -> None:
    """A manifold's exponential map, for instance."""
    text = f"""
        import torch
        class Own(torch.optim.Optimizer):
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        if {asked}:
                            p.data.add_(p.grad, alpha=-group["lr"])
    """
    assert ("optimizer.own-loop" in hits(text)) == shown


@pytest.mark.parametrize(("collate", "shown"), [("lambda batch: batch[0]", False), ("lambda batch: tokenizer(batch)", True)])
def test_a_lambda_that_takes_does_no_work(collate: str, shown: bool) -> None:
    """Rows of memory need no workers."""
    text = f"{LOADER}class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.x[i]\n"
    text += f"loader = DataLoader(Rows(a), batch_size=1, collate_fn={collate})\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(("copied", "shown"), [("outputs.detach().cpu().numpy()", False), ("outputs.shape", True)])
def test_a_loss_is_read_beside_results_that_a_helper_copies(copied: str, shown: bool) -> None:
    """A logger is given both of each batch."""
    text = f"""
        import torch
        class Log:
            def update(self, outputs, loss):
                kept = {copied}
                self.loss.update(loss.item())
                self.scores.append(kept)
        @torch.no_grad()
        def evaluate(model, loader, log):
            log = Log()
            for x, y in loader:
                outputs = model(x.cuda())
                loss = torch.nn.functional.cross_entropy(outputs, y.cuda())
                log.update(outputs, loss)
    """
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("given", "changed"), [("data", True), ("X", False), ("X_train", False)])
def test_features_that_a_caller_gives_may_lie_on_the_device(given: str, changed: bool) -> None:
    """What lies there cannot be pinned: that raises."""
    text = f"{LOADER}def fit(model, {given}, criterion, optimizer):\n    model.cuda()\n    for epoch in range(9):\n        for x in DataLoader({given}, batch_size=8, num_workers=2, persistent_workers=True):\n            x = x.cuda()\n            criterion(model(x)).backward()\n            optimizer.step()\n"
    assert ("pin_memory=True" in fixed(text)) == changed


@pytest.mark.parametrize(("asked", "shown"), [("_native_amp_available", False), ("use_amp", True)])
def test_a_condition_that_autocast_exists_is_for_other_versions(asked: str, shown: bool) -> None:
    """The newer name may not exist there."""
    text = f"import torch\ndef cast(use_amp):\n    if {asked}:\n        return torch.cuda.amp.autocast()\n"
    assert ("precision.amp-old-names" in hits(text)) == shown


@pytest.mark.parametrize("goes", ["Trainer(accelerator='gpu').fit(model, loader)", "engine.train(model, loader)"])
@pytest.mark.parametrize("looks", ["", "x, y = next(iter(loader))\nprint(len(loader))\n"])
def test_a_look_at_the_first_batch_is_not_all_that_becomes_of_a_loader(looks: str, goes: str) -> None:
    """Who is given the loader goes through all of it."""
    text = f"{LOADER}from lightning import Trainer\nmodel = Net().cuda()\nloader = DataLoader(train_set, batch_size=8)\n{looks}{goes}\n"
    assert "dataloader.inline" in hits(text)

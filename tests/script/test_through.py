"""What waits although the call, the value or the loop is written in another way than the plain one."""

from __future__ import annotations

import pytest

from tests.script.scripts import judged

HEAD = "import torch\nimport functools\nfrom torch.utils.checkpoint import checkpoint\ndevice = torch.device('cuda')\n"
STEP = (
    "    x, y = x.to(device), y.to(device)\n    out = model(x)\n    loss = criterion(out, y)\n    loss.backward()\n    optimizer.step()\n"
)
LOOP = f"for i, (x, y) in enumerate(loader):\n{STEP}"


def lines(text: str, rule: str = "sync.per-step") -> list[str]:
    """The lines of a script that a rule names as it is shown unasked."""
    hits = [each for each in judged(text).hypotheses if each.rule == rule and each.confidence != "low"]
    written = text.splitlines()
    return [written[place.line - 1].strip() for hit in hits for place in hit.places]


@pytest.mark.parametrize(
    "call",
    [
        "list(map(read, [loss]))",
        "checkpoint(read, loss, use_reentrant=False)",
        "torch.utils.checkpoint.checkpoint(read, loss)",
    ],
)
def test_a_function_is_called_by_what_it_is_given_to(call: str) -> None:
    """``map`` and checkpointing run their first argument where they stand."""
    assert lines(f"{HEAD}def read(value):\n    return value.item()\n{LOOP}    {call}\n") == ["return value.item()"]
    assert not lines(f"{HEAD}def read(value):\n    return value.item()\n{LOOP}{call}\n")


def test_a_method_that_is_called_map_is_another() -> None:
    """``pool.map(read, names)`` gives the work to other processes."""
    assert not lines(f"{HEAD}def read(value):\n    return (value * 2).cpu()\n{LOOP}    pool.map(read, [loss])\n")


@pytest.mark.parametrize(("given", "shown"), [("model, optimizer", True), ("model, optimizer, criterion", True)])
def test_a_function_some_of_whose_arguments_are_kept(given: str, shown: bool) -> None:
    """The rest is given where it is called."""
    text = f"{HEAD}def note(model, optimizer, value):\n    total = float(value)\n"
    text += f"run = functools.partial(note, model, optimizer)\n{LOOP}    run(out.mean())\n"
    assert bool(lines(text)) == shown, given


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("log.info('%s', loss)", True),
        ("log.info(f'{out.mean()}')", True),
        ("print(f'{(out.argmax(1) == y).float().mean():.2f}')", True),
        ("bar.set_postfix(loss=loss)", True),
        ("bar.set_postfix({'loss': loss.detach()})", True),
        ("bar.set_postfix(loss=meter.average)", False),
        ("log.info('%s', x.shape)", False),
        ("log.info(f'{out.shape} {len(out)}')", False),
        ("log.info(f'{out}')", False),  # a model may give a text
        ("if i % 100 == 0:\n        bar.set_postfix(loss=loss)", False),
        ("if torch.max(out) > 1.0:\n        log.info(f'{torch.max(out)}')", False),
        ("if torch.min(out) < -1.0:\n        log.info(f'{torch.min(out)}')", False),
    ],
)
def test_a_value_that_is_shown(shown: str, found: bool) -> None:
    """A text needs the number."""
    assert bool(lines(f"{HEAD}{LOOP}    {shown}\n")) == found


@pytest.mark.parametrize(
    ("made", "found"),
    [("torch.zeros(100)", True), ("torch.zeros(100, device=device)", False), ("torch.zeros(100).to(device)", False), ("{}", False)],
)
def test_a_value_that_is_kept_in_memory_of_the_host(made: str, found: bool) -> None:
    """Each is copied back by itself."""
    assert bool(lines(f"{HEAD}scores = {made}\n{LOOP}    scores[i] = loss\n")) == found


@pytest.mark.parametrize(("divided", "found"), [("(a + b) / 2", True), ("(3 + 1) / 2", False)])
def test_what_is_divided_by_a_number(divided: str, found: bool) -> None:
    """Of what nobody knows, a part is no number."""
    assert bool(lines(f"{HEAD}{LOOP}    a, b = model.losses(out)\n    mean = {divided}\n    kept.append(mean.detach().cpu())\n")) == found


@pytest.mark.parametrize(
    ("rounds", "body", "found"),
    [
        ("range(0, n, size)", "total += model(batch(k)).sum().item()", True),
        ("range(n)", "x = batch(k)\n                total += model(x).sum().item()", True),
        ("range(n)", "x = model(x)\n                total += x.sum().item()", False),
        ("range(n)", "y = model(x)\n                x = torch.cat([x, y])\n                total += y.sum().item()", False),
        ("parts", "x = batch(k)\n                total += model(x).sum().item()", True),
    ],
)
def test_an_evaluation_in_the_middle_of_a_training(rounds: str, body: str, found: bool) -> None:
    """Parts of an array, after the model was put into evaluation; one word after the other is none."""
    text = f"{HEAD}model = torch.nn.Linear(2, 2).to(device)\ndef fit():\n    for epoch in range(9):\n        model.train()\n        for k in range(0, n, size):\n"
    text += "            loss = criterion(model(batch(k)))\n            loss.backward()\n            optimizer.step()\n"
    text += f"        for k in {rounds}:\n            with torch.no_grad():\n                model.eval()\n                {body}\n"
    assert bool(lines(text)) == found


@pytest.mark.parametrize(
    ("base", "hook", "found"),
    [
        ("lightning.Callback", "on_train_batch_end", True),
        ("lightning.Callback", "on_train_epoch_end", False),
        ("transformers.TrainerCallback", "on_step_end", True),
        ("mmengine.hooks.Hook", "after_train_iter", True),
        ("Callback", "after_batch", True),
        ("object", "after_batch", False),
    ],
)
def test_hooks_of_a_callback(base: str, hook: str, found: bool) -> None:
    """A framework calls them in each step."""
    text = f"import torch, lightning, transformers, mmengine.hooks\nclass Note({base}):\n    def {hook}(self, *given, outputs):\n        self.total += outputs['loss'].item()\n"
    assert bool(lines(text)) == found


def test_batches_of_several_loaders_beside_each_other() -> None:
    """A bar of ``zip`` under a name."""
    text = f"{HEAD}from torch.utils.data import DataLoader\nfrom tqdm import tqdm\na = DataLoader(one, num_workers=4)\nb = DataLoader(other, num_workers=4)\n"
    text += f"bar = tqdm(zip(a, b))\nfor (x, _), (y, _) in bar:\n{STEP}"
    assert len(lines(text, "dataloader.pin-memory-off")) == 2


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ("best = out['score'].max()", True),
        ("best = out['score'].max().item()", False),
        ("best = max(scores)", False),
        ("best = 1.0", False),
        ("best = limits[0]\n    if i:\n        best = out['score'].max()", False),
    ],
)
def test_a_branch_on_what_was_computed(bound: str, found: bool) -> None:
    """The greatest of a batch, under a name."""
    assert bool(lines(f"{HEAD}{LOOP}    {bound}\n    if best > limit:\n        kept = out\n", "sync.branch-on-loss")) == found


def test_a_loss_of_a_dictionary() -> None:
    """What a backward pass begins at is a loss, also under a key; its optimizers may be in a dictionary, too."""
    text = "import torch\nclass Fit:\n    def run(self, loader):\n        for x in loader:\n            self.losses['all'] = self.compute(x.cuda())\n"
    text += (
        "            self.losses['all'].backward()\n            for name, each in self.optimizers.items():\n                each.step()\n"
    )
    text += "            bar.set_description('%.3f' % self.losses['all'])\n            bar.set_description('%.3f' % self.losses['part'])\n"
    assert lines(text) == ["bar.set_description('%.3f' % self.losses['all'])"]


@pytest.mark.parametrize(
    ("hook", "found"),
    [
        ("def train_dataloader(self):\n        return DataLoader(self.data, num_workers=4)", True),
        (
            "def train_dataloader(self):\n        return self.made()\n    def made(self):\n        return DataLoader(self.data, num_workers=4)",
            True,
        ),
        ("def train_dataloader(self):\n        return DataLoader(self.data, num_workers=4, pin_memory=True)", False),
        ("def test_dataloader(self):\n        return DataLoader(self.data, num_workers=4)", False),  # once
        ("def setup(self, stage):\n        self.first = DataLoader(self.data, num_workers=4)", False),
    ],
)
def test_a_loader_that_lightning_goes_through(hook: str, found: bool) -> None:
    """It copies the batches itself."""
    text = f"import lightning\nfrom torch.utils.data import DataLoader\nclass Data(lightning.LightningDataModule):\n    {hook}\n"
    assert bool(lines(text, "dataloader.pin-memory-off")) == found


@pytest.mark.parametrize(
    ("dataset", "workers", "found"),
    [("Images('val')", "", True), ("Images('val')", ", num_workers=4", False), ("torch.utils.data.TensorDataset(x)", "", False)],
)
def test_a_loader_of_an_evaluation(dataset: str, workers: str, found: bool) -> None:
    """It is gone through once an epoch, and its samples are read."""
    text = f"{HEAD}from torch.utils.data import DataLoader, Dataset\nclass Images(Dataset):\n    def __getitem__(self, i):\n        return read(self.names[i])\n"
    text += f"val = DataLoader({dataset}{workers})\nfor epoch in range(9):\n"
    text += "".join(f"    {line}\n" for line in LOOP.splitlines())
    text += "    model.eval()\n    with torch.no_grad():\n        for x, y in val:\n            out = model(x.to(device))\n"
    assert bool(lines(text, "dataloader.inline")) == found


@pytest.mark.parametrize(
    ("made", "found"),
    [("tracker = Tracker()", True), ("tracker = make()", False), ("tracker = torch.optim.Adam(p)", False)],
)
def test_a_method_of_what_a_class_of_the_file_makes(made: str, found: bool) -> None:
    """Also where each model has one of its name, and what is annotated as a tensor is one."""
    text = f"{HEAD}class Tracker:\n    def update(self, loss: torch.Tensor, best):\n        if loss > self.best:\n            self.best = loss\n"
    text += f"class Other:\n    def update(self):\n        pass\n{made}\n{LOOP}    tracker.update(history(loss), 1)\n"
    assert bool(lines(text, "sync.branch-on-loss")) == found


@pytest.mark.parametrize(
    ("copied", "found"),
    [
        ("out.to('cpu').numpy()", True),
        ("out.to('cpu')", True),
        ("loss.detach().numpy().item()", False),
        ("out.to(device)", False),
        ("x.to(torch.int)", False),
    ],
)
def test_a_copy_by_the_name_of_the_host(copied: str, found: bool) -> None:
    """``to("cpu")`` waits as ``cpu()`` does, and is told once with what follows."""
    assert len(lines(f"{HEAD}{LOOP}    kept.append({copied})\n")) == found


@pytest.mark.parametrize(
    ("pinned", "found"),
    [
        ("True", True),
        ("device == 'cuda'", True),
        ("device.type != 'cpu'", True),
        ("torch.cuda.is_available()", True),
        ("args.pin", False),
        ("device == 'cpu'", False),
    ],
)
def test_batches_that_are_pinned_where_there_is_a_gpu(pinned: str, found: bool) -> None:
    """Copies of them may run beside the kernels."""
    text = f"{HEAD}from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=4, pin_memory={pinned})\n{LOOP}"
    assert bool(lines(text, "transfer.blocking")) == found


@pytest.mark.parametrize(("base", "found"), [("torch.nn.DataParallel", True), ("torch.nn.Module", False)])
def test_an_heir_of_data_parallel(base: str, found: bool) -> None:
    """It does the same, whatever attributes it gives besides."""
    assert bool(lines(f"{HEAD}class Several({base}):\n    pass\nmodel = Several(net)\n{LOOP}", "ddp.dataparallel")) == found


@pytest.mark.parametrize(
    ("pinned", "found"), [("", True), (", pin_memory=True", False), (", pin_memory=self.args.dataloader_pin_memory", False)]
)
def test_a_loader_that_a_trainer_goes_through(pinned: str, found: bool) -> None:
    """It copies the batches itself, too."""
    text = "from transformers import Trainer\nfrom torch.utils.data import DataLoader\nclass Fit(Trainer):\n    def get_train_dataloader(self):\n"
    text += f"        return DataLoader(self.train_dataset, num_workers=4{pinned})\n    def run(self, x):\n        return x.cuda()\n"
    assert bool(lines(text, "dataloader.pin-memory-off")) == found


@pytest.mark.parametrize(("handed", "shown"), [("apply(score, x)", True), ("apply(other, x)", False)])
def test_what_a_function_that_is_handed_over_is_given(handed: str, shown: bool) -> None:
    """Also where it calls what it is given, and stands above who calls it."""
    helpers = (
        "def score(inner, given):\n    kept.append(float(inner(given)))\n\ndef apply(function, given):\n    function(network, given)\n\n"
    )
    assert bool(lines(f"{HEAD}{helpers}network = torch.nn.Linear(4, 1)\n{LOOP}    {handed}\n")) == shown


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("bad = math.isnan(norm)", True),
        ("fine = math.isfinite(loss)", True),
        ("bad = math.isnan(total)", False),
        ("bad = torch.isnan(norm)", False),
        ("if i % 100 == 0:\n        bad = math.isnan(norm)", False),
    ],
)
def test_a_value_that_python_asks_for_no_number(asked: str, shown: bool) -> None:
    """``math.isnan`` needs the value; ``torch.isnan`` asks on the device."""
    clipped = "    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    assert bool(lines(f"{HEAD}import math\n{LOOP}{clipped}    {asked}\n")) == shown


@pytest.mark.parametrize(
    ("root", "shown"),
    [
        ("math.sqrt(total)", True),
        ("math.exp(loss)", True),
        ("total.sqrt()", False),
        ("math.sqrt(count)", False),
        ("math.log(x.shape[0])", False),
        ("math.sqrt(x.size(1) + 1)", False),
    ],
)
def test_a_number_that_python_computes_of_a_tensor(root: str, shown: bool) -> None:
    """``math.sqrt`` of the gradients' norms reads them; of sizes it reads nothing."""
    norms = (
        "    total = 0\n    count = 0\n    for p in model.parameters():\n        total += p.grad.norm() ** 2\n        count += p.numel()\n"
    )
    assert bool(lines(f"{HEAD}import math\n{LOOP}{norms}    norm = {root}\n")) == shown


@pytest.mark.parametrize(
    "gathered", ["model.parameters()", "list(model.parameters())", "[p for p in model.parameters() if p.requires_grad]"]
)
def test_parameters_that_a_function_is_given(gathered: str) -> None:
    """What it adds up of them is read where it gives a number back."""
    helper = "def norm_of(given):\n    total = 0.0\n    for p in given:\n        total += p.grad.norm() ** 2\n    return math.sqrt(total)\n"
    assert lines(f"{HEAD}import math\n{helper}{LOOP}    norm = norm_of({gathered})\n") == ["return math.sqrt(total)"]
    assert not lines(f"{HEAD}import math\n{helper}{LOOP}norm = norm_of({gathered})\n")


@pytest.mark.parametrize(("shown", "found"), [("f'{loss:.4f}'", True), ("f'{rest}'", False)])
def test_a_loss_that_a_model_gives_beside_others(shown: str, found: bool) -> None:
    """What is differentiated is a tensor for certain, also where the model is one by its name only."""
    step = f"    rest, loss = model(x.to(device))\n    bar.set_postfix({{'loss': {shown}}})\n    loss.backward()\n    optimizer.step()\n"
    assert bool(lines(f"{HEAD}def run(model, loader, optimizer, bar):\n  for x in loader:\n{step}")) == found


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("RoFormerForSequenceClassification.from_pretrained('m')", True),
        ("BertModel.from_config(config)", True),
        ("BertTokenizer.from_pretrained('m')", False),
        ("AutoConfig.from_pretrained('m')", False),
    ],
)
def test_what_a_library_loads(made: str, found: bool) -> None:
    """A class of transformers that is called a model, or one for a task, makes a model; a tokenizer and settings are none."""
    text = f"from transformers import AutoConfig, BertModel, BertTokenizer, RoFormerForSequenceClassification\n{HEAD}made = {made}\n"
    assert bool(lines(f"{text}{LOOP}    given = made(x)\n    print(given)\n")) == found


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("Tensor(np.random.normal(0, 1, (16, 8)))", True),
        ("torch.cuda.FloatTensor(np.random.randn(16, 8))", True),
        ("torch.from_numpy(np.random.randn(16, 8)).float().to(device)", True),
        ("torch.from_numpy(noise.astype('float32')).cuda()", True),
        ("torch.tensor(np.random.uniform(0, 1, 16), device=device)", True),
        ("torch.tensor(np.random.uniform(0, 1, 16), device='cpu')", False),
        ("torch.from_numpy(np.random.randn(16, 8))", False),
        ("torch.from_numpy(np.random.choice(rewards, 16)).to(device)", False),
        ("Tensor(16, 8)", False),
        ("Tensor(rewards)", False),
        ("torch.FloatTensor(np.random.randn(16, 8))", False),
    ],
)
def test_random_numbers_of_numpy(made: str, shown: bool) -> None:
    """They are drawn on the host, and copied; the device draws its own. A choice among data is no such number."""
    head = (
        f"{HEAD}import numpy as np\nTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\nrewards = load()\n"
    )
    text = f"{head}{LOOP}    noise = np.random.randn(16, 8)\n    z = {made}\n"
    assert bool(lines(text, "transfer.tensor-made-on-cpu")) == shown


@pytest.mark.parametrize("name", ["loss_fn", "loss_func", "criterion", "self.loss_function"])
def test_what_a_criterion_gives_by_its_name(name: str) -> None:
    """A loss, also where an evaluation of the same function makes a number of one under the same name."""
    text = f"""{HEAD}def fit(model, {name.rpartition(".")[2]}, optimizer, loader, others):
    for x, y in loader:
        loss = {name}(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        loss = loss.item()
    model.eval()
    for x, y in others:
        loss = {name}(model(x.to(device)), y.to(device)).item()
"""
    assert lines(text)[0] == "loss = loss.item()"


@pytest.mark.parametrize(("read", "shown"), [("first.item()", False), ("rest[:n].item()", False), ("first.to(device).item()", True)])
def test_a_size_tells_nothing_of_where_something_lies(read: str, shown: bool) -> None:
    """What is split by the size of a batch on the device is still where the loader made it."""
    text = f"""{HEAD}def score(model, loader):
    model.eval()
    for x, y in loader:
        x = x.cuda()
        n = x.shape[0]
        first, rest = y.split([1, n - 1], dim=0)
        kept.append(model(x)[rest != {read}])
"""
    assert bool(lines(text)) == shown


@pytest.mark.parametrize(("other", "shown"), [("float('inf')", True), ("0.0", True), ("loss.item()", True)])
def test_one_of_two_values_is_not_known(other: str, shown: bool) -> None:
    """A number on the other side does not make it one."""
    assert bool(lines(f"{HEAD}{LOOP}    value = compared(out) if flag else {other}\n    total += value.item()\n")) == shown


@pytest.mark.parametrize(
    ("name", "shown"), [("Hanguldataset", True), ("ImageDataset", True), ("InMemorydataset", False), ("Images", False)]
)
def test_a_data_set_by_the_name_of_its_class(name: str, shown: bool) -> None:
    """In any spelling."""
    text = f"from torch.utils.data import DataLoader\nfrom data import {name}\n{HEAD}val_loader = DataLoader({name}('val'), batch_size=8)\n"
    text += f"for epoch in range(9):\n  for x, y in loader:\n{STEP.replace('    ', '     ')}"
    text += "  model.eval()\n  for x, y in val_loader:\n    total += criterion(model(x.to(device)), y.to(device))\n"
    assert bool(lines(text, "dataloader.inline")) == shown


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("model.eval()", True),
        ("model.train(False)", True),
        ("model.train(mode=False)", True),
        ("model.train(True)", False),
        ("model.train(mode=flag)", False),
    ],
)
def test_a_model_that_is_not_to_train_evaluates(mode: str, shown: bool) -> None:
    """``train(False)`` is ``eval()``."""
    text = f"""import torch
def score(model, loss_fn, train_loader, device):
    total = 0
    {mode}
    for x, y in train_loader:
        total += loss_fn(model(x.to(device)), y.to(device)).item()
    return total, torch.autograd.grad(total, model.parameters())
"""
    assert bool(lines(text)) == shown

"""How training programs are written: each idiom is read as its author meant it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sysperf.engine import lint as engine
from sysperf.script.notebook import Notebook
from tests.script.scripts import facts, hits, shipped

LOADER = "import torch\nfrom torch.utils.data import DataLoader\n"


def workers(text: str) -> list[tuple[int | None, bool | None]]:
    """The number of workers, and whether memory is pinned, of each loader."""
    return [(loader.workers, loader.pin_memory) for loader in facts(LOADER + text).loaders or ()]


@pytest.mark.parametrize(
    "text",
    [
        "kwargs = {'num_workers': 3, 'pin_memory': True}\nloader = DataLoader(data, **kwargs)\n",
        "kwargs = dict(num_workers=3, pin_memory=True)\nloader = DataLoader(data, **kwargs)\n",
        "kwargs = {'batch_size': 3}\nif cuda:\n    more = {'num_workers': 3, 'pin_memory': True}\n    kwargs.update(more)\nloader = DataLoader(data, **kwargs)\n",
        "kwargs = {'num_workers': 3}\nkwargs['pin_memory'] = True\nloader = DataLoader(data, **kwargs)\n",
        "kwargs = {'num_workers': 3, 'pin_memory': True} if cuda else {}\nloader = DataLoader(data, **kwargs)\n",
        "config = {'workers': 3}\nloader = DataLoader(data, num_workers=config['workers'], pin_memory=True)\n",
        "def make(data, **rest):\n    return DataLoader(data, **rest)\nloader = make(data, num_workers=3, pin_memory=True)\n",
        "@dataclass\nclass Args:\n    workers: int = 3\nargs = tyro.cli(Args)\nloader = DataLoader(data, num_workers=args.workers, pin_memory=True)\n",
        "@dataclass\nclass Setup:\n    workers: int = field(default=3)\ndef f(cfg):\n    return DataLoader(data, num_workers=cfg.workers, pin_memory=True)\n",
        "class Config:\n    workers = 3\nloader = DataLoader(data, num_workers=Config.workers, pin_memory=True)\n",
        "@click.option('--workers', default=3)\ndef f(**args):\n    pass\nloader = DataLoader(data, num_workers=args.workers, pin_memory=True)\n",
    ],
)
def test_options_are_found_where_they_are_written(text: str) -> None:
    """In dictionaries that are spread, in records of options, in what a helper passes on."""
    assert workers(text) == [(3, True)]


@pytest.mark.parametrize(
    "text",
    ["def make(data, **rest):\n    return DataLoader(data, **rest)\n", "loader = DataLoader(data, **read(path))\n"],
)
def test_options_of_another_file_are_unknown(text: str) -> None:
    """Neither the default nor anything else."""
    assert workers(text) == [(None, None)]


@pytest.mark.parametrize(
    "head",
    [
        "for x, y in loader:",
        "for i, (x, y) in enumerate(loader):",
        "for i, (x, y) in enumerate(tqdm(loader)):",
        "for i, ((x, _), y) in enumerate(loader):",
        "for _, (x, y) in zip(range(100), loader):",
        "for (x, y), _ in zip(loader, other):",
        "for batch in loader:\n    x = batch['image']",
    ],
)
def test_batches_are_found_behind_any_target(head: str) -> None:
    """The names of a tuple within a tuple are parts of the batch."""
    text = f"""
loader = DataLoader(data, num_workers=2, pin_memory=True)
{head}
    x = x.cuda()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
"""
    assert "transfer.blocking" in hits(LOADER + text)


@pytest.mark.parametrize(
    "step",
    [
        "loss_scaler(loss, optimizer, parameters=model.parameters())",
        "accelerator.backward(loss); optim.step()",
        "scaler.scale(loss).backward()",
        "trainer.optimize_parameters()",
    ],
)
def test_a_step_may_be_made_by_another_object(step: str) -> None:
    """A call that gets a loss and an optimizer trains."""
    text = f"import torch\nfor x in loader:\n    loss = model(x).mean()\n    {step}\n    print(value.item())\n"
    assert "sync.per-step" in hits(text)


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        (
            "for fold in range(10):\n    loader = DataLoader(data, num_workers=2)\n    for epoch in range(90):\n        for x in loader:",
            False,
        ),
        ("for epoch in range(90):\n    loader = DataLoader(data, num_workers=2)\n    if True:\n        for x in loader:", True),
        ("for seed in seeds:\n    loader = DataLoader(data, num_workers=2)\n    if True:\n        for x in loader:", False),
    ],
)
def test_a_fold_is_no_epoch(head: str, shown: bool) -> None:
    """What repeats the whole training makes its loader once for each."""
    body = "\n            loss = model(x).mean()\n            loss.backward()\n            optimizer.step()\n"
    assert ("dataloader.rebuilt" in hits(LOADER + head + body)) == shown


def test_an_epoch_of_one_step_and_a_warm_up_are_no_steps() -> None:
    """All data at once, and three rounds before a measurement."""
    step = "    loss = model(x).mean()\n    loss.backward()\n    optimizer.step()\n    print(loss.item())\n"

    assert "sync.per-step" not in hits("import torch\nfor epoch in range(200):\n" + step)
    assert "sync.per-step" not in hits("import torch\nfor _ in range(3):\n" + step)
    assert "sync.per-step" in hits("import torch\nfor iteration in range(200):\n" + step)


def test_hints_about_a_file_come_once() -> None:
    """However many loops it trains in."""
    step = "model = torch.nn.Linear(8, 2).cuda()\nfor x in loader:\n    loss = model(x.cuda()).mean()\n    loss.backward()\n    optimizer.step()\n"

    assert len(hits("import torch\n" + step * 3)["compile.not-compiled"]) == 1


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("pattern = re.compile('x')", True),
        ("model = torch.compile(model)", False),
        ("model.compile()", False),
        ("if args.compile: prepare(model)", False),
        ("if is_compiled_module(model): model = model._orig_mod", True),
    ],
)
def test_not_everything_called_compile_is_torch_compile(line: str, shown: bool) -> None:
    """A regular expression is compiled, too; an option of that name may stand for it."""
    step = "model = torch.nn.Linear(8, 2).cuda()\nfor x in loader:\n    loss = model(x.cuda()).mean()\n    loss.backward()\n    optimizer.step()\n"
    assert ("compile.not-compiled" in hits(f"import re\nimport torch\n{line}\n{step}")) == shown


@pytest.mark.parametrize(
    "branch",
    [
        "try:\n    scaler = torch.amp.GradScaler()\nexcept AttributeError:\n    scaler = torch.cuda.amp.GradScaler()\n",
        "if TORCH_VERSION >= (2, 4):\n    pass\nelse:\n    scaler = torch.cuda.amp.GradScaler()\n",
        "scaler = torch.amp.GradScaler() if hasattr(torch.amp, 'GradScaler') else torch.cuda.amp.GradScaler()\n",
        "if version.parse(torch.__version__) < version.parse('2.4'):\n    scaler = torch.cuda.amp.GradScaler()\n",
    ],
)
def test_a_branch_for_older_versions_keeps_the_old_name(branch: str) -> None:
    """The new name does not exist there."""
    assert "precision.amp-old-names" not in hits("import torch\n" + branch)


def test_a_number_that_is_divided_by_itself_ends() -> None:
    """A mean over an evaluation: `total = total / n` behind a sum of numbers."""
    text = """
import torch
class Net(torch.nn.Module):
    def forward(self, x): return x
@torch.no_grad()
def evaluate(model, loader):
    total = 0.0
    for x in loader:
        total += model(x).sum().item()
    total = total / len(loader)
    return total
"""
    assert "program.no-grad-in-evaluation" in hits(text)


CELLS = (
    "import torch\nif COLAB:\n    %pip install torch\n",
    "!pip install \\\n  this \\\n  that\nfiles = !ls\n",
    "this is no Python\n",
    "torch.nn.Linear?\n",
    "for x in loader:\n    loss = model(x).mean()\n    loss.backward()\n    print(loss.item())\n",
)


def test_a_notebook_is_read_cell_by_cell(tmp_path: Path) -> None:
    """Magics, shell commands over several lines, help and a cell that is no Python: the others are judged."""
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in CELLS], "nbformat": 4}))
    (hypothesis,) = [found for found in engine.lint([str(path)], shipped()).hypotheses if found.rule == "sync.per-step"]

    assert [(place.cell, place.line) for place in hypothesis.places] == [(5, 4)]
    assert Notebook("book.ipynb", path.read_bytes()).text.count("pass") == 4


def test_packages_named_build_are_read_and_tests_are_not(tmp_path: Path) -> None:
    """Only a folder of tests that is named itself is read; what is skipped is counted."""
    script = "import torch\nfor x in loader:\n    loss = model(x).mean()\n    loss.backward()\n    print(loss.item())\n"
    for name in ("dist/a.py", "env/a.py", "tests/test_a.py", "tests/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(script)
    (tmp_path / "env/__init__.py").touch()

    found = engine.lint([str(tmp_path)], shipped())
    assert {place.file for hypothesis in found.hypotheses for place in hypothesis.places} == {str(tmp_path / "env/a.py")}
    assert len(engine.lint([str(tmp_path / "tests")], shipped()).hypotheses) > 1


TOKENS = (
    "from transformers import AutoTokenizer{}\nfor texts in loader:\n    {}\n    model(**batch).loss.backward()\n    optimizer.step()\n"
)


@pytest.mark.parametrize(
    ("imported", "line", "shown"),
    [
        ("", "batch = tokenizer(texts, padding='max_length')", True),
        (", CLIPTextModel", "batch = tokenizer(texts, padding='max_length')", False),
        ("\nimport diffusers", "batch = tokenizer(texts, padding='max_length')", False),
        ("", "if is_xla:\n        batch = tokenizer(texts, padding='max_length')", False),
        ("", "batch = tokenizer(texts, padding='max_length' if args.pad_to_max_length else 'longest')", False),
    ],
)
def test_prompts_and_choices_are_no_waste(imported: str, line: str, shown: bool) -> None:
    """Text encoders of image models take one length; so do programs that are compiled for one."""
    assert ("program.padded-to-maximum" in hits(TOKENS.format(imported, line))) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("data = load_dataset('text').shuffle(seed=1)", True),
        ("data = load_dataset('text').shuffle(seed=1).map(f)", False),
        ("data = load_dataset('text').shuffle(seed=1)\ndata = data.map(f)", False),
        ("data = load_dataset('text').select(range(1000))", False),
        ("data = load_dataset('text', streaming=True).shuffle(seed=1)", False),
        ("data = load_dataset('text').shuffle(seed=1)\nloader = DataLoader(data, shuffle=True)", False),
    ],
)
def test_rows_are_mapped_where_nothing_writes_them_anew(line: str, shown: bool) -> None:
    """A range of rows lies in order; `map` writes new ones; a sampler jumps anyhow."""
    text = (
        f"from datasets import load_dataset\n{line}\nfor batch in data.iter(8):\n    model(**batch).loss.backward()\n    optimizer.step()\n"
    )
    assert ("dataloader.dataset-indices-mapped" in hits(text)) == shown


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ("def evaluate(model, loader):\n    model.eval()\n    stack.enter_context(torch.no_grad())", False),
        ("def evaluate(model, loader):\n    model.eval()", True),
        ("def evaluate(model, loader):\n    pass", False),
    ],
)
def test_gradients_are_off_where_a_stack_or_a_caller_turns_them_off(head: str, shown: bool) -> None:
    """A function that only other files call is not judged, unless it turns the model to evaluation itself."""
    text = f"import torch\n{head}\n    for x in loader:\n        show(model(x))\n"
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


def test_a_loop_over_loaders_is_no_evaluation() -> None:
    """Each round has a loader, and no batch."""
    text = "import torch\ndef test(model, train_loader, test_loader):\n    model.eval()\n    for loader in (train_loader, test_loader):\n        run(model(loader))\n"
    assert "program.gradients-in-evaluation" not in hits(text)


def test_a_run_object_logs() -> None:
    """What `wandb.init` gives back is wandb."""
    text = "import torch, wandb\nrun = wandb.init()\nfor x in loader:\n    model(x).mean().backward()\n    optimizer.step()\n    run.log({'x': 1})\n"
    assert hits(text)["program.logging"] == [6]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("losses.append(loss)", True),
        ("losses.append(loss)\n    total = torch.stack(losses)", False),
        ("total += loss", True),
        ("total += loss.detach()", False),
    ],
)
def test_a_list_of_losses_that_becomes_one_is_no_leak(line: str, shown: bool) -> None:
    """Only what grows keeps the graphs."""
    text = f"import torch\nlosses, total = [], 0\nfor x in loader:\n    loss = criterion(model(x))\n    loss.backward()\n    optimizer.step()\n    {line}\n"
    assert ("program.loss-keeps-graph" in hits(text)) == shown


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("class Net(torch.nn.Module):\n    def forward(self, x):\n        return x[x > 0]\n", "sync.boolean-index"),
        (
            "for x in loader:\n    x = x.pin_memory().to('cuda', non_blocking=True)\n    model(x).backward()\n    optimizer.step()\n",
            "transfer.pinned-by-hand",
        ),
        (
            "class D(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return sorted(glob.glob(self.root))[i]\n",
            "dataloader.decoding-in-getitem",
        ),
        (
            "for x in loader:\n    loss_value = model(x).mean()\n    loss_value.backward()\n    optimizer.step()\n    print(loss_value.item())\n",
            "sync.per-step",
        ),
        ("for x in loader:\n    model(x).backward()\n    optimizer.step()\n    right += p.eq(y).sum().item()\n", "sync.per-step"),
        (
            "for x in loader:\n    loss = f(model(x))\n    loss.backward()\n    optimizer.step()\n    if torch.isnan(loss): fail()\n",
            "sync.branch-on-loss",
        ),
        (
            "def update(self, batch):\n    loss = f(batch)\n    loss.backward()\n    self.optimizer.step()\n    return loss.item()\n",
            "sync.per-step",
        ),
    ],
)
def test_what_a_careful_reader_finds(text: str, rule: str) -> None:
    """By what is done with a value, whatever its name."""
    assert rule in hits("import glob\nimport torch\n" + text)


@pytest.mark.parametrize(
    "text",
    [
        "for x in loader:\n    model(x).backward()\n    optimizer.step()\n    if args.val_loss_every > 0: print('x')\n",
        "for x in loader:\n    model(x).backward()\n    optimizer.step()\n    if epoch < kl_loss_start_epoch: print('x')\n",
        "for x in loader:\n    model(x).backward()\n    optimizer.step()\n    n += np.sum(rewards).item()\n",
        "def main():\n    def step(engine, batch):\n        model(batch).backward()\n        optimizer.step()\n    torch.cuda.empty_cache()\nmain()\n",
    ],
)
def test_what_a_careful_reader_does_not_say(text: str) -> None:
    """Settings named after losses, numbers of NumPy, a function that only defines the step."""
    found = hits("import torch\nimport numpy as np\n" + text)
    assert not {rule for rule in found if rule.startswith("sync.")}


@pytest.mark.parametrize("name", ["autocast", "GradScaler", "custom_fwd", "autocast_mode.autocast"])
def test_names_that_moved_are_old_ones(name: str) -> None:
    assert "precision.amp-old-names" in hits(f"import torch\nx = torch.cuda.amp.{name}()\n")


def test_what_did_not_move_is_no_old_name() -> None:
    """A helper of the same module."""
    assert "precision.amp-old-names" not in hits("import torch\nx = torch.cuda.amp.common.amp_definitely_not_available()\n")


OUTPUTS = """
import torch
for x, y in loader:
    output = model(x)
    loss_function(output, y).backward()
    optimizer.step()
    for i in range(len(output)):
        {}
"""


def test_several_outputs_are_no_elements_of_a_tensor() -> None:
    """Some of which are None."""
    assert "program.element-loop" in hits(OUTPUTS.format("print(output[i].max())"))
    assert "program.element-loop" not in hits(OUTPUTS.format("if output[i] is not None:\n            keep(output[i])"))

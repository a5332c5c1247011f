"""What a reader of packages called hardly worth a change, or wrong: samples 17 and on of docs/validation/lint.md."""

from __future__ import annotations

import pytest

from tests.script.scripts import judged

LOADER = "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
STEP = "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"


def hits(text: str) -> set[str]:
    """The rules that name a place of a script as it is shown unasked."""
    return {each.rule for each in judged(text).hypotheses if each.confidence != "low"}


@pytest.mark.parametrize(
    ("gives", "shown"),
    [
        ("return self.x[i], self.y[i]", False),
        ("return torch.tensor(self.x[i], dtype=torch.float32), self.y[i]", False),
        ("return self.transform(self.x[i]), self.y[i]", True),
        ("return self.dataset[self.rows[i]]", True),
        ("return read(self.x[i]), self.y[i]", True),
    ],
)
def test_rows_of_memory_need_no_workers(gives: str, shown: bool) -> None:
    """A data set of the file that only takes what it keeps."""
    text = f"{LOADER}class Rows(Dataset):\n    def __getitem__(self, i):\n        {gives}\n"
    text += f"loader = DataLoader(Rows(a), batch_size=8)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in hits(text)) == shown


@pytest.mark.parametrize(
    ("made", "shown"), [("numpy.load(path)", False), ("h5py.File(path)['x']", True), ("numpy.load(path, mmap_mode='r')", True)]
)
def test_rows_of_a_file_do(made: str, shown: bool) -> None:
    """What looks like an array may read a file."""
    text = f"{LOADER}import h5py, numpy\nclass Rows(Dataset):\n    def __init__(self, path):\n        self.x = {made}\n    def __getitem__(self, i):\n        return self.x[i]\n"
    text += f"loader = DataLoader(Rows(a), batch_size=8)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in hits(text)) == shown


@pytest.mark.parametrize(("collate", "shown"), [("return torch.stack(batch)", False), ("return tokenizer(batch)", True)])
def test_a_batch_may_be_put_together_by_work(collate: str, shown: bool) -> None:
    """A tokenizer in `collate_fn` is what workers are for."""
    text = f"{LOADER}class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.x[i]\ndef collate(batch):\n    {collate}\n"
    text += f"loader = DataLoader(Rows(a), batch_size=8, collate_fn=collate)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in hits(text)) == shown


@pytest.mark.parametrize(("around", "shown"), [("if True:", True), ("with torch.no_grad():", False)])
def test_an_evaluation_between_steps_needs_no_workers(around: str, shown: bool) -> None:
    """A loop over another loader within the step is a part of it only where gradients are recorded."""
    text = f"{LOADER}loader, other = DataLoader(data, num_workers=4), DataLoader(more)\nfor x, y in loader:\n{STEP}    {around}\n        for z in other:\n            model(z.cuda())\n"
    assert ("dataloader.inline" in hits(text)) == shown


@pytest.mark.parametrize(("counted", "shown"), [("mapping", False), ("output", True)])
def test_what_lies_beside_a_list_is_a_list(counted: str, shown: bool) -> None:
    """As many rounds as a mapping has items, and one of several outputs for each."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, mapping, x):\n        output = self.net(x)\n        for i in range(len({counted})):\n            self.add(mapping[i], output[i])\n"
    text = text.replace("forward(self, mapping, x)", "forward(self, x, mapping=None)")
    assert ("program.element-loop" in hits(text)) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("save_image(y.cpu(), path)", False),
        ("imwrite(path, y.cpu().numpy())", False),
        ("self.keep(y.cpu())", True),
    ],
)
def test_what_is_written_leaves_the_device(line: str, shown: bool) -> None:
    """A picture is saved from the host's memory."""
    text = f"import torch\ndef evaluate(self, model, loader):\n    for x, y in loader:\n        y = y.cuda()\n        model(x.cuda())\n        {line}\n"
    assert ("sync.per-step" in hits(text)) == shown


def test_what_is_saved_by_a_function_of_its_name_leaves_the_device() -> None:
    """The copy is its purpose; a loss that it shows is none."""
    text = "import torch\ndef save_audio(wave, path):\n    put(path, wave.detach().cpu())\ndef evaluate(loader):\n    for wave in loader:\n        save_audio(wave.cuda(), 'a')\n"
    assert "sync.per-step" not in hits(text)
    assert "sync.per-step" in hits(text.replace("save_audio", "keep"))


@pytest.mark.parametrize(("leaves", "shown"), [("break", False), ("n += 1", True)])
def test_a_value_may_end_a_text(leaves: str, shown: bool) -> None:
    """Which word is the last one, the host must know."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    for i in range(20):\n        word = decoder(word.cuda()).argmax()\n        if word.item() == end:\n            {leaves}\n"
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("default", "shown"), [("False", False), ("True", True)])
def test_a_bar_is_shown_where_somebody_asks(default: str, shown: bool) -> None:
    """An option that is off by default."""
    text = f"import torch\ndef fit(model, loader, show_progress={default}):\n  for x, y in loader:\n    x = x.cuda()\n{STEP}    if show_progress:\n        bar.set_postfix_str(f'{{loss:.3f}}')\n"
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("keys", "shown"), [("self.keys.T", False), ("k.T", True)])
def test_a_table_is_no_attention(keys: str, shown: bool) -> None:
    """Products with what belongs to the module are a layer's."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, q, k, v):\n        w = torch.softmax(q @ {keys}, dim=-1)\n        return w @ v\n"
    assert ("attention.unfused" in hits(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("torch.empty(0)", False), ("torch.tensor([])", False), ("torch.zeros(3)", True)])
def test_nothing_is_copied_of_an_empty_tensor(made: str, shown: bool) -> None:
    """It has no elements."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.cat([x, {made}.to(x.device)])\n"
    assert ("transfer.tensor-made-on-cpu" in hits(text)) == shown


@pytest.mark.parametrize(("begins", "shown"), [("[]", False), ("[0.5, 0.5]", True)])
def test_numbers_that_a_function_collects_must_be_copied(begins: str, shown: bool) -> None:
    """Values that are written there may be made once."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        widths = {begins}\n        widths = torch.tensor(widths, device=x.device)\n        return x * widths\n"
    assert ("transfer.tensor-from-python" in hits(text)) == shown


@pytest.mark.parametrize(
    ("switch", "shown"),
    [
        ("model.eval()", True),
        ("model.norm.eval()", False),
        ("bn.eval()", False),
        ("for m in model.modules():\n        m.eval()", False),
    ],
)
def test_batch_norms_are_locked_in_evaluation_mode(switch: str, shown: bool) -> None:
    """The model that is called then goes on training; its backward pass may be in another function."""
    text = f"import torch\nmodel = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    {switch}\n    out = model(x)\n    advance(out, optimizer)\ndef advance(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n"
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(("optimizer", "shown"), [("LBFGS", False), ("Adam", True)])
def test_lbfgs_waits_itself(optimizer: str, shown: bool) -> None:
    """It reads the loss and the gradients several times a step."""
    text = f"import torch\ndef fit(model, loader):\n  optimizer = torch.optim.{optimizer}(model.parameters())\n  for x, y in loader:\n    x = x.cuda()\n{STEP}    print(loss.item())\n"
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("option", "shown"), [("args.data_parallel", False), ("torch.cuda.device_count() > 1", True)])
def test_somebody_may_ask_for_dataparallel(option: str, shown: bool) -> None:
    """An option of that name."""
    text = f"import torch\nif {option}:\n    model = torch.nn.DataParallel(model)\n"
    assert ("ddp.dataparallel" in hits(text)) == shown


def test_two_names_that_unpack_each_other_end() -> None:
    """``a, b = b`` again and again."""
    text = "import torch\nfor x in loader:\n    a, b = x\n    a, b = b\n    b, a = a\n    y = model(a.cuda())\n    y.mean().backward()\n    optimizer.step()\n    print(b.cpu().numpy())\n"
    assert judged(text).file == "train.py"

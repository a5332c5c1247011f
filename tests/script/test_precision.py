"""What a reader of packages called hardly worth a change, or wrong: samples 17 and on of docs/validation/lint.md."""

from __future__ import annotations

import textwrap

import pytest

from sysperf.script.file import File
from sysperf.script.semantics.bindings import MAX_CALLS
from sysperf.script.source import Source
from tests.script.scripts import judged, sure
from tests.script.test_codemods import fixed

LOADER = "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
STEP = "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"


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
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "shown"), [("numpy.load(path)", False), ("h5py.File(path)['x']", True), ("numpy.load(path, mmap_mode='r')", True)]
)
def test_rows_of_a_file_do(made: str, shown: bool) -> None:
    """What looks like an array may read a file."""
    text = f"{LOADER}import h5py, numpy\nclass Rows(Dataset):\n    def __init__(self, path):\n        self.x = {made}\n    def __getitem__(self, i):\n        return self.x[i]\n"
    text += f"loader = DataLoader(Rows(a), batch_size=8)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(("collate", "shown"), [("return torch.stack(batch)", False), ("return tokenizer(batch)", True)])
def test_a_batch_may_be_put_together_by_work(collate: str, shown: bool) -> None:
    """A tokenizer in `collate_fn` is what workers are for."""
    text = f"{LOADER}class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.x[i]\ndef collate(batch):\n    {collate}\n"
    text += f"loader = DataLoader(Rows(a), batch_size=8, collate_fn=collate)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(("around", "shown"), [("if True:", True), ("with torch.no_grad():", False)])
def test_an_evaluation_between_steps_needs_no_workers(around: str, shown: bool) -> None:
    """A loop over another loader within the step is a part of it only where gradients are recorded."""
    text = f"{LOADER}loader, other = DataLoader(data, num_workers=4), DataLoader(more)\nfor x, y in loader:\n{STEP}    {around}\n        for z in other:\n            model(z.cuda())\n"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(("counted", "given", "shown"), [("mapping", "x", False), ("output", "x", True), ("output", "**x", False)])
def test_what_lies_beside_a_list_is_a_list(counted: str, given: str, shown: bool) -> None:
    """As many rounds as a mapping has items, and one of several outputs for each; a model that gets its inputs by name gives several, too."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, mapping, x):\n        output = self.net({given})\n        for i in range(len({counted})):\n            self.add(mapping[i], output[i])\n"
    text = text.replace("forward(self, mapping, x)", "forward(self, x, mapping=None)")
    assert ("program.element-loop" in sure(text)) == shown


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
    assert ("sync.per-step" in sure(text)) == shown


def test_what_is_saved_by_a_function_of_its_name_leaves_the_device() -> None:
    """The copy is its purpose; a loss that it shows is none."""
    text = "import torch\ndef save_audio(wave, path):\n    put(path, wave.detach().cpu())\ndef evaluate(loader):\n    for wave in loader:\n        save_audio(wave.cuda(), 'a')\n"
    assert "sync.per-step" not in sure(text)
    assert "sync.per-step" in sure(text.replace("save_audio", "keep"))


@pytest.mark.parametrize(("leaves", "shown"), [("break", False), ("n += 1", True)])
def test_a_value_may_end_a_text(leaves: str, shown: bool) -> None:
    """Which word is the last one, the host must know."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    for i in range(20):\n        word = decoder(word.cuda()).argmax()\n        if word.item() == end:\n            {leaves}\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("default", "shown"), [("False", False), ("True", True)])
def test_a_bar_is_shown_where_somebody_asks(default: str, shown: bool) -> None:
    """An option that is off by default."""
    text = f"import torch\ndef fit(model, loader, show_progress={default}):\n  for x, y in loader:\n    x = x.cuda()\n{STEP}    if show_progress:\n        bar.set_postfix_str(f'{{loss:.3f}}')\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("keys", "shown"), [("self.keys.T", False), ("k.T", True)])
def test_a_table_is_no_attention(keys: str, shown: bool) -> None:
    """Products with what belongs to the module are a layer's."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, q, k, v):\n        w = torch.softmax(q @ {keys}, dim=-1)\n        return w @ v\n"
    assert ("attention.unfused" in sure(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("torch.empty(0)", False), ("torch.tensor([])", False), ("torch.zeros(3)", True)])
def test_nothing_is_copied_of_an_empty_tensor(made: str, shown: bool) -> None:
    """It has no elements."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.cat([x, {made}.to(x.device)])\n"
    assert ("transfer.tensor-made-on-cpu" in sure(text)) == shown


@pytest.mark.parametrize(("begins", "shown"), [("[]", False), ("[0.5, 0.5]", True)])
def test_numbers_that_a_function_collects_must_be_copied(begins: str, shown: bool) -> None:
    """Values that are written there may be made once."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        widths = {begins}\n        widths = torch.tensor(widths, device=x.device)\n        return x * widths\n"
    assert ("transfer.tensor-from-python" in sure(text)) == shown


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
    assert ("program.gradients-in-evaluation" in sure(text)) == shown


@pytest.mark.parametrize(("optimizer", "shown"), [("LBFGS", False), ("Adam", True), ("LBFGS(others); second = torch.optim.SGD", True)])
def test_lbfgs_waits_itself(optimizer: str, shown: bool) -> None:
    """It reads the loss and the gradients several times a step."""
    text = f"import torch\ndef fit(model, loader):\n  optimizer = torch.optim.{optimizer}(model.parameters())\n  for x, y in loader:\n    x = x.cuda()\n{STEP}    print(loss.item())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("option", "shown"), [("args.data_parallel", False), ("torch.cuda.device_count() > 1", True)])
def test_somebody_may_ask_for_dataparallel(option: str, shown: bool) -> None:
    """An option of that name."""
    text = f"import torch\nif {option}:\n    model = torch.nn.DataParallel(model)\n"
    assert ("ddp.dataparallel" in sure(text)) == shown


def test_two_names_that_unpack_each_other_end() -> None:
    """``a, b = b`` again and again."""
    text = "import torch\nfor x in loader:\n    a, b = x\n    a, b = b\n    b, a = a\n    y = model(a.cuda())\n    y.mean().backward()\n    optimizer.step()\n    print(b.cpu().numpy())\n"
    assert judged(text).file == "train.py"


def test_training_arguments_that_nobody_gets_make_no_loader() -> None:
    """They are made for what they set up."""
    text = "import torch\nfrom transformers import TrainingArguments\nTrainingArguments('dummy', ddp_timeout=9)\n"
    assert "dataloader.inline" not in sure(text)
    assert "dataloader.inline" in sure(text.replace("\nTraining", "\narguments = Training"))


@pytest.mark.parametrize(("call", "shown"), [("pack_padded_sequence(x, n.cpu())", False), ("pack(x, n.cpu())", True)])
def test_some_functions_take_what_the_host_has(call: str, shown: bool) -> None:
    """Lengths of packed sequences must lie in its memory."""
    text = f"import torch\nfor x, n in loader:\n    x, n = x.cuda(), n.cuda()\n    h = {call}\n    loss = model(h)\n    loss.backward()\n    optimizer.step()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("Stepper(loss, optimizer)", False), ("advance(loss, optimizer)", True)])
def test_an_object_that_gets_an_optimizer_makes_no_step(made: str, shown: bool) -> None:
    """It is made once, by a function that runs once."""
    text = f"import torch\ndef main(cfg):\n    loss = make(cfg)\n    optimizer = torch.optim.Adam(parameters)\n    total = torch.tensor([0.0], device='cuda')\n    for x in loader:\n        {made}\n        print(total.item())\nmain(cfg)\n"
    assert ("sync.per-step" in sure(text)) == shown
    assert "transfer.tensor-from-python" not in sure(text)


@pytest.mark.parametrize(("function", "shown"), [("save_checkpoint", False), ("advance", True)])
def test_a_checkpoint_waits_for_the_device(function: str, shown: bool) -> None:
    """What calls it may ask when it is due."""
    text = f"import torch\ndef {function}():\n    torch.cuda.synchronize()\n    write()\nfor x, y in loader:\n{STEP}    {function}()\n"
    assert ("sync.explicit" in sure(text)) == shown


@pytest.mark.parametrize(("iterated", "shown"), [("collector", False), ("loader", True)])
def test_who_draws_from_a_collector_acts(iterated: str, shown: bool) -> None:
    """Each batch is made by an environment."""
    text = f"import torch, gymnasium\ndraw_{iterated} = iter({iterated})\nfor i in range(n):\n    x, y = next(draw_{iterated})\n    x = x.cuda()\n{STEP}    log(x['reward'].mean().item())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("graph", "shown"), [("torch.cuda.CUDAGraph()", False), ("None", True)])
def test_gradients_of_a_graph_keep_their_memory(graph: str, shown: bool) -> None:
    """Set to None, they would lie elsewhere when the graph is replayed."""
    text = f"import torch\ngraph = {graph}\nfor x, y in loader:\n    optimizer.zero_grad(set_to_none=False)\n{STEP}"
    assert ("optimizer.zero-grad-fills" in sure(text)) == shown


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("h[0] = self.cell(x[i], h[0])", False),
        ("y[i] = y[i - 1] + x[i]", False),
        ("y.append(ops[i](x[i]))", False),
        ("y[i] = self.norm(x[i])", True),
    ],
)
def test_rounds_that_need_each_other_are_no_elements(body: str, shown: bool) -> None:
    """A recurrence, also through a list; an operation for each of several features."""
    text = (
        f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        for i in range(x.shape[0]):\n            {body}\n"
    )
    assert ("program.element-loop" in sure(text)) == shown


@pytest.mark.parametrize(
    ("drawn", "shown"), [("replay_buffer.sample()", False), ("replay_buffer.sample().to('cuda')", True), ("update(batch)", True)]
)
def test_a_buffer_lies_in_the_memory_of_the_host(drawn: str, shown: bool) -> None:
    """Its numbers cost no wait, unless they were copied."""
    text = f"import torch\nfor x, y in loader:\n    x = x.cuda()\n{STEP}    data = {drawn}\n    rewards = data['reward']\n    log(rewards.mean().item())\n"
    assert ("sync.per-step" in sure(text)) == shown


def test_functions_that_return_each_other_are_looked_at_once() -> None:
    """Some lines of them took a minute."""
    text = "import torch\nclass Sampler:\n" + "".join(
        f"    def f{n}(self, x):\n        if x:\n            a, b = self.f{(n + 1) % 6}(x)\n            return a, b\n        a, b = self.f{(n + 2) % 6}(x)\n        return b, a\n"
        for n in range(6)
    )
    assert judged(text + "a, b = Sampler().f0(1)\nadvance(a, optimizer)\n").file == "train.py"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("keep(out.cpu().numpy())", False),
        ("if pictures:\n            keep(out.cpu().numpy())", True),
        ("keep(out)", True),
    ],
)
def test_an_evaluation_that_copies_its_results_waits_anyway(line: str, shown: bool) -> None:
    """A loss that is read beside them costs nothing more."""
    text = f"import torch\ndef evaluate(model, loader):\n    model.eval()\n    for x, y in loader:\n        out = model(x.cuda())\n        loss = criterion(out, y)\n        {line}\n        total += loss.item()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("value", "shown"), [("self.steps", False), ("self.norm", True)])
def test_a_counter_may_be_a_tensor(value: str, shown: bool) -> None:
    """It is one to be saved with the model."""
    text = f"import torch\nclass Trainer:\n  def train_step(self, x, y):\n    x = x.cuda()\n{STEP}    if {value}.item() % 10 == 0:\n        self.save()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("chosen", "shown"), [("x[mask]", False), ("x.sum()", True)])
def test_choosing_elements_waits_anyway(chosen: str, shown: bool) -> None:
    """So a question about their mask costs nothing more."""
    text = (
        f"import torch\nfor x, y in loader:\n    x = x.cuda()\n    mask = x[:, 0]\n    if mask.sum() > 0:\n        part = {chosen}\n{STEP}"
    )
    assert ("sync.branch-on-loss" in sure(text)) == shown


@pytest.mark.parametrize(("window", "shown"), [("first <= i < last", False), ("0 <= i < n", True)])
def test_some_steps_in_the_middle_are_few(window: str, shown: bool) -> None:
    """A profile or pictures of them."""
    text = f"import torch\nfor i, (x, y) in enumerate(loader):\n    x = x.cuda()\n{STEP}    if {window}:\n        keep(loss.item())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("call", "shown"), [("sort_inputs_by_model(x)", False), ("teacher_model(x)", True)])
def test_a_word_in_the_middle_makes_a_function_of_a_name(call: str, shown: bool) -> None:
    """``by`` and ``for`` are in no name of a model."""
    text = f"import torch\ndef evaluate(test_loader):\n    net.eval()\n    for x in test_loader:\n        {call}\n"
    assert ("program.gradients-in-evaluation" in sure(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("valid", False), ("train", True)])
def test_a_batch_of_an_evaluation_now_and_then_need_not_be_pinned(name: str, shown: bool) -> None:
    """The loader is drawn from by `next`."""
    text = f"{LOADER}{name}_loader = DataLoader(data, num_workers=2)\n{name}_iter = iter({name}_loader)\nfor i in range(9):\n    x = next({name}_iter)\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "changed"),
    [
        ("torch.as_tensor(x)", False),
        ("torch.stack(x)", False),
        ("torch.zeros_like(x)", False),
        ("torch.as_tensor(numpy.load('x'))", True),
        ("torch.tensor(frame.values)", True),
        ("torch.from_numpy(x)", True),
        ("torch.zeros(8)", True),
    ],
)
def test_only_what_lies_in_memory_for_certain_is_pinned(made: str, changed: bool) -> None:
    """A tensor that is made of another lies where that does, and pinning one of a device raises."""
    text = f"{LOADER}import numpy\nfrom torch.utils.data import TensorDataset\ndef fit(x, frame, device='cuda'):\n  loader = DataLoader(TensorDataset({made}), num_workers=2)\n  for x, y in loader:\n    x, y = x.to(device), y.to(device)\n{STEP}"
    assert ("pin_memory=True" in fixed(text)) == changed


def test_a_hook_that_evaluates_has_no_loop_to_copy_in() -> None:
    """What another function copies says nothing of it."""
    text = "import torch, lightning\nclass Net(lightning.LightningModule):\n    def validation_step(self, batch, i):\n        loss = self(batch)\n        keep(loss.item())\n    def embed(self, x):\n        return self(x).cpu()\n"
    assert "sync.per-step" in sure(text)


@pytest.mark.parametrize(("otherwise", "shown"), [("optimizer.step()", False), ("pass", True)])
def test_a_condition_with_the_step_on_both_sides_is_about_something_else(otherwise: str, shown: bool) -> None:
    """``if it is time to log: step and log; else: step``."""
    text = f"import torch\nfor i, (x, y) in enumerate(loader):\n    loss = criterion(model(x.cuda()), y)\n    loss.backward()\n    if i % 100 == 0:\n        optimizer.step()\n        keep(loss.item())\n    else:\n        {otherwise}\n"
    assert ("sync.per-step" in sure(text)) == shown


def test_a_mask_is_told_once() -> None:
    """Its places are found once, for all that is chosen by it."""
    text = f"import torch\nfor x, y in loader:\n    x = x.cuda()\n    mask = x > 0\n    a = x[mask].sum()\n    b = y[~mask].sum()\n    c = x[x < 9].sum()\n{STEP}"
    places = [each for each in judged(text).hypotheses if each.rule == "sync.boolean-index"]
    assert [place.line for each in places for place in each.places] == [5, 7]


@pytest.mark.parametrize(("base", "shown"), [("EnvBase", False), ("Layer", True)])
def test_an_environment_makes_its_tensors_from_data_of_the_host(base: str, shown: bool) -> None:
    """A reward has to be copied."""
    text = f"import torch\nclass Cart({base}):\n    def advance(self, reward):\n        return torch.tensor(reward, device='cuda')\ncart = Cart()\nfor x, y in loader:\n{STEP}    cart.advance(1.0)\n"
    text = text.replace("    cart.advance(1.0)\n", "    self.advance(1.0)\n")
    assert ("transfer.tensor-from-python" in sure(text)) == shown


@pytest.mark.parametrize(
    ("test", "shown"), [("is_best", False), ("value < best_loss", False), ("best_loss > value", False), ("value < other", True)]
)
def test_the_best_so_far_is_seldom(test: str, shown: bool) -> None:
    """It is saved where it is found."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    if {test}:\n        torch.save(model, 'm.pt')\n"
    assert ("program.checkpoint-in-step" in sure(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("torch.from_numpy(x)", False), ("model(x.cuda())", True)])
def test_what_numpy_gives_is_converted_where_it_lies(made: str, shown: bool) -> None:
    """A type of the host's memory means no copy then."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    z = {made}.type(torch.FloatTensor)\n"
    assert ("sync.per-step" in sure(text)) == shown


def test_a_loss_may_be_nothing_on_one_side() -> None:
    """What another class gives is unknown, and lies on the device."""
    text = "import torch\nfor x, y in loader:\n    x = x.cuda()\n    loss = self.criterion.of(x) if used else torch.tensor(0.0)\n    loss.backward()\n    optimizer.step()\n    print(loss.item())\n"
    assert "sync.per-step" in sure(text)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("[data[i] for i in chosen]", False),
        ("train_test_split(data)[0]", True),
        ("Rows(ids)", False),
        ("Files(ids)", True),
        ("torchio.Queue(data, 300, 4)", False),
    ],
)
def test_lists_of_samples_and_rows_by_their_ids_need_no_workers(made: str, shown: bool) -> None:
    """They lie in memory; a queue of patches has workers of its own, and allows no others."""
    classes = "class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.input_ids[i]\n"
    classes += "class Files(Dataset):\n    def __getitem__(self, i):\n        return self.train_ds[i]\n"
    text = f"{LOADER}import torchio\n{classes}rows = {made}\nloader = DataLoader(rows, batch_size=8)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


def test_a_part_that_sklearn_split_off_is_a_list() -> None:
    """It is one for each side of the split."""
    text = f"{LOADER}from sklearn.model_selection import train_test_split\nrows, others = train_test_split(data)\nloader = DataLoader(rows, batch_size=8)\n"
    assert "dataloader.inline" not in sure(f"{text}for x, y in loader:\n    x = x.cuda()\n{STEP}")


EVALUATION = f"""\
{LOADER}
def evaluate(model, loader):
    model.eval()
    kept, labels = [], []
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        with torch.no_grad():
            output = model(x)
        {{results}}
        labels.append(y.cpu())
"""


@pytest.mark.parametrize(("results", "shown"), [("kept.append(output.cpu())", False), ("kept.append(output)", True)])
def test_labels_beside_results_that_are_copied_wait_for_nothing(results: str, shown: bool) -> None:
    """The round has waited for the results already."""
    assert ("sync.per-step" in sure(EVALUATION.format(results=results))) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("output = output.cpu() / 2", False),
        ("output = output / 2", True),
        ("if x is not None:\n            output = output.cpu()", True),
        ("output = output.cpu()" + "\n        count += 1" * 9, False),
    ],
)
def test_what_was_copied_back_just_before_is_read_for_nothing(given: str, shown: bool) -> None:
    """Where no branch and no loop lies between: then it may lie on the device still."""
    text = EVALUATION.replace("labels.append(y.cpu())", "kept.append(output.max().item())").format(results=given)
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("image", "shown"), [("torch.cat([x[key] for key in keys])", False), ("torch.cat([x[key].cuda() for key in keys])", True)]
)
def test_parts_of_a_batch_that_are_joined_lie_where_they_did(image: str, shown: bool) -> None:
    """In the host's memory, unless something copies them."""
    text = (
        f"{LOADER}device = 'cuda'\nloader = DataLoader(data)\nfor x in loader:\n    whole = {image}\n    loss = criterion(model(whole))\n"
    )
    assert ("sync.per-step" in sure(f"{text}    loss.backward()\n    optimizer.step()\n    seen.append(whole.item())\n")) == shown


def test_a_loop_around_an_evaluation_is_not_told_beside_it() -> None:
    """The inner one calls the model."""
    text = f"{LOADER}def inference(model, folders):\n    model.eval().cuda()\n    for folder in folders:\n        loader = DataLoader(read(folder))\n"
    text += "        for x in loader:\n            show(model(x.cuda()))\n"
    assert len([hit for hit in judged(text).hypotheses if hit.rule == "program.gradients-in-evaluation"]) == 1


HELPER = """\
import torch
def step(x, train={default}):
    loss = criterion(model(x.cuda()))
    {asked}:
        print(loss.item())
    return loss
for x in loader:
    loss = step(x{given})
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("default", "asked", "given", "shown"),
    [
        ("True", "if not train", "", False),
        ("True", "if not train and x.ready", "", False),
        ("True", "if not train", ", train=False", True),
        ("False", "if not train", "", True),
        ("False", "if not train", ", True", False),
        ("True", "if train", "", True),
        ("True", "if train or x.ready", ", False", True),
        ("None", "if train and x.ready", "", False),
    ],
)
def test_what_runs_only_without_an_option_that_is_given(default: str, asked: str, given: str, shown: bool) -> None:
    """By the call, or by its default."""
    assert ("sync.per-step" in sure(HELPER.format(default=default, asked=asked, given=given))) == shown


@pytest.mark.parametrize(("home", "shown"), [("False", False), ("True", True)])
def test_what_a_function_hands_to_itself_is_what_others_gave_it(home: str, shown: bool) -> None:
    """Only these say whether it copies."""
    text = "import torch\ndef detach(output, home):\n    if isinstance(output, list):\n        return [detach(each, home) for each in output]\n"
    text += "    else:\n        if home:\n            output = output.cpu()\n        return output\n"
    text += "for x in loader:\n    output = model(x.cuda())\n    loss = criterion(output)\n    loss.backward()\n    optimizer.step()\n"
    text += f"    update(detach(output, {home}))\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("if loss.item() > 1e4:\n        print(loss.item())", 1),
        ("if loss.item() > 1e4:\n        scale(loss.item())", 2),
        ("if rank == 0:\n        print(loss.item())", 1),
    ],
)
def test_an_alarm_is_seldom(asked: str, shown: int) -> None:
    """What is only shown where a value is out of its bounds: the condition waits, the text does not."""
    text = (
        f"import torch\nfor x in loader:\n    loss = criterion(model(x.cuda()))\n    loss.backward()\n    optimizer.step()\n    {asked}\n"
    )
    assert len([hit for hit in judged(text).hypotheses if hit.rule == "sync.per-step" and hit.confidence != "low"]) == shown


def test_an_update_waits_for_no_environment() -> None:
    """Whatever a file speaks of: only where the environment acts beside the update, it waits anyway."""
    text = "import torch\nclass Learner:\n    def update(self, batch, rewards, policy):\n        batch = batch.cuda()\n        loss = (policy(batch) * rewards).mean()\n"
    text += "        loss.backward()\n        self.optimizer.step()\n        self.seen.append(loss.item())\n"
    assert "sync.per-step" in sure(text)
    assert "sync.per-step" in sure(text.replace("self.seen", "self.episodes"))
    acts = "        obs, reward, done, info = self.env.step(action)\n"
    assert "sync.per-step" not in sure(text.replace("self.seen", "self.episodes") + acts)
    loop = "def run(env, learner):\n    while True:\n        obs, reward, done = env.step(action)\n        learner.update(obs, reward, learner.act)\n"
    assert "sync.per-step" not in sure(text.replace("self.seen", "self.episodes") + loop)


def test_an_evaluation_whose_helper_calls_eval() -> None:
    """It goes through parts of data, and what it calls for each switches the model."""
    text = "import torch\nclass Fit:\n    def __init__(self):\n        self.net = torch.nn.Linear(2, 2).cuda()\n    def score(self, x):\n        self.net.eval()\n"
    text += "        return self.net(x.cuda())\n    def evaluate(self, parts):\n        for part in parts:\n            self.total += float(self.score(part).item())\n"
    assert "sync.per-step" in sure(text)


@pytest.mark.parametrize(("shown_by", "found"), [("torch.ones(3)", True), ("", False)])
def test_how_a_function_is_shown_is_not_how_it_is_used(shown_by: str, found: bool) -> None:
    """What a module gives it when it is run itself says nothing, where something else calls it, too."""
    text = "import torch\ndef accuracy(matrix):\n    return matrix.sum().item()\nfor x in loader:\n    matrix = model(x.cuda())\n    loss = criterion(matrix)\n"
    text += "    loss.backward()\n    optimizer.step()\n    USE\nif __name__ == '__main__':\n    accuracy(torch.ones(3))\n"
    assert ("sync.per-step" in sure(text.replace("USE", "accuracy(matrix)" if shown_by else "pass"))) == found


@pytest.mark.parametrize(("switch", "shown"), [("self.net.eval()", False), ("self.net(x)", True)])
def test_a_forward_that_draws_whole_pictures_is_no_part_of_a_step(switch: str, shown: bool) -> None:
    """It puts its models into evaluation, and goes through all steps of a diffusion: what it makes once costs nothing beside that."""
    text = f"import torch\nclass Sample(torch.nn.Module):\n    def forward(self, x):\n        x = torch.randn(8, 3).to('cuda')\n        {switch}\n        for t in self.times:\n            x = self.net(x)\n"
    assert ("transfer.tensor-made-on-cpu" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("TensorDataset(a.cuda(), b.cuda())", False),
        ("TensorDataset(c, d)", False),
        ("TensorDataset(a, b)", True),
        ("TensorDataset(a.to(torch.float32), b)", True),
        ("TensorDataset(a.to('cpu'), b)", True),
    ],
)
def test_what_lies_on_the_device_is_not_pinned(made: str, shown: bool) -> None:
    """A loop that copies its batches there does nothing."""
    text = f"{LOADER}from torch.utils.data import TensorDataset\nc, d = a.cuda(), b.cuda()\nloader = DataLoader({made}, batch_size=8)\n"
    text += f"for epoch in range(9):\n    for x, y in loader:\n        x, y = x.cuda(), y.cuda()\n{textwrap.indent(STEP, '    ')}"
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


def test_a_function_that_is_handed_over_is_followed_to_few_calls() -> None:
    """Each way to it is gone again for each question."""
    calls = "".join(f"def use_{number}(hook):\n    hook({number})\n\nuse_{number}(show)\n" for number in range(2 * MAX_CALLS))
    names = File(Source("train.py", f"import torch\ndef show(x):\n    print(x)\n{calls}".encode())).names
    assert len(names.call_sites(names.functions["show"][0])) == MAX_CALLS


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("torch.tensor(0.0, device=x.device)", True),
        ("torch.tensor([1, 2], device=x.device)", True),
        ("torch.tensor([], device=x.device)", False),
        ("torch.tensor([h, w], device=x.device)", True),
        ("torch.tensor(lengths, device=x.device)", False),
        ("torch.tensor(self.mask(x), device=x.device)", True),
        ("torch.tensor(sizes, device=x.device)", True),
        ("torch.tensor(either, device=x.device)", False),
    ],
)
def test_a_tensor_of_what_a_caller_gives_must_be_copied(made: str, shown: bool) -> None:
    """A constant may be kept on the device."""
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, lengths):\n        sizes = either = [1, 2]\n"
    text += f"        if self.ragged:\n            either = lengths\n        return x * {made}\n"
    assert ("transfer.tensor-from-python" in sure(text)) == shown


@pytest.mark.parametrize(
    ("used", "shown"),
    [
        ("for i in range(n):\n        seen.append(i)", False),
        ("part = x[:n]", False),
        ("part = x[:, start + n]", False),
        ("seen.append(n)", True),
        ("total = total + n", True),
    ],
)
def test_a_number_that_python_needs(used: str, shown: bool) -> None:
    """The end of a range and a part of an index are no tensors."""
    text = f"import torch\ndef train(loader):\n    for x in loader:\n        x = x.cuda()\n    {STEP.replace(chr(10), chr(10) + '    ').rstrip()}\n"
    text += f"        n = (x > 0).sum().item()\n        {used.replace(chr(10), chr(10) + '    ')}\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("if torch.isnan(x).any():\n        warnings.warn('no number')", False),
        ("if model(x).max() > 0:\n        kept = torch.masked_select(x, mask)", False),
        ("if model(x).max() > 0:\n        kept = x", True),
        ("if torch.isnan(loss):\n        continue", True),
    ],
)
def test_conditions_that_a_program_needs(asked: str, shown: bool) -> None:
    """A check of an input, and a choice that waits for its number anyway."""
    text = f"import torch, warnings\nfor x, y in loader:\n    x = x.cuda()\n    mask = model(x) > 0\n{STEP}    {asked}\n"
    assert ("sync.branch-on-loss" in sure(text)) == shown


def test_gradients_that_are_off_by_another_name() -> None:
    """A name that says what it stands for."""
    text = "import torch\nclass Net:\n    def predict(self, loader):\n        off = imported('torch.no_grad')\n        torchNo_grad = off\n        self.model.eval()\n"
    text += "        with torchNo_grad():\n            for x in loader:\n                self.kept.append(self.model(x.cuda()))\n"
    assert "program.gradients-in-evaluation" not in sure(text)


@pytest.mark.parametrize(("kept", "shown"), [("known[x.device] = made", False), ("other = made", True)])
def test_what_is_looked_up_before_it_is_made(kept: str, shown: bool) -> None:
    """It is made once a device."""
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        made = known.get(x.device)\n        if made is None:\n"
    text += f"            made = torch.tensor(1.0, device=x.device)\n            {kept}\n        return x * made\n"
    assert ("transfer.tensor-from-python" in sure(text)) == shown


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        ("parser = argparse.ArgumentParser()\nparser.add_argument('--device', default='cpu')\nargs = parser.parse_args()\nplace = args.device", False),
        ("place = 'cpu'", True),
    ],
)  # fmt: skip
def test_a_device_that_is_only_a_default_is_not_the_cpu(chosen: str, shown: bool) -> None:
    """Who starts a program names another one: batches do not go back to the host there."""
    text = f"import argparse\n{LOADER}{chosen}\nmodel.cuda()\nloader = DataLoader(data, num_workers=4)\nfor x, y in loader:\n    x = model(x).to(place)\n{STEP}"
    assert ("sync.per-step" in sure(text)) == shown


def test_nor_is_that_which_a_base_class_keeps() -> None:
    """Heirs copy to whatever device they were given."""
    text = f"{LOADER}class Shadow(Attack):\n    def __init__(self, model, device='cpu'):\n        super().__init__(model, device=device)\n    def fit(self):\n"
    text += "        for x, y in self.loader:\n            x = x.to(self.device)\n" + "".join(
        f"        {line}\n" for line in STEP.splitlines()
    )
    assert "sync.per-step" not in sure(f"{text}print(torch.cuda.is_available())\n")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("kept, _ = random_split(Rows(a), [8, 2])", False),
        ("kept = Subset(Rows(a), rows)", False),
        ("kept, _ = random_split(TensorDataset(a, b), [8, 2])", False),
        ("kept, _ = random_split(Files(a), [8, 2])", True),
        ("whole = TUDataset(root='data', name='MUTAG').to('cuda')\nkept = whole.shuffle()[:150]", False),
        ("whole = TUDataset(root='data', name='MUTAG')\nwhole = whole.to(torch.device('cuda'))\nkept = whole[:150]", False),
        ("whole = Files(root='data')\nkept = whole[:150]", True),
    ],
)
def test_a_part_of_a_data_set_lies_where_the_whole_does(data: str, shown: bool) -> None:
    """Rows that are taken out of memory, and graphs that lie on the device, need no workers."""
    text = f"{LOADER}from torch.utils.data import Subset, TensorDataset, random_split\nfrom torch_geometric.datasets import TUDataset\n"
    text += "class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.x[i]\n"
    text += "class Files(Dataset):\n    def __getitem__(self, i):\n        return self.transform(read(self.x[i]))\n"
    text += f"{data}\nloader = DataLoader(kept, batch_size=8, shuffle=True)\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("gives", "shown"),
    [
        ("if self.training:\n            return y\n        return y.detach().cpu().numpy()", False),
        ("if not self.training:\n            self.kept = y.detach().cpu().numpy()\n        return y", False),
        ("if self.training:\n            self.kept = y.detach().cpu().numpy()\n        return y", True),
        ("self.kept = y.detach().cpu().numpy()\n        return y", True),
    ],
)
def test_what_is_left_before_by_a_model_in_training_is_no_part_of_a_step(gives: str, shown: bool) -> None:
    """A result goes back to the host where the same function makes samples."""
    text = f"{LOADER}class Gan:\n    def generate(self, z):\n        y = self.generator(z)\n        {gives}\n"
    text += "    def fit(self):\n        self.generator.cuda()\n        for x in self.loader:\n            loss = self.criterion(self.generate(x.cuda()), x)\n            loss.backward()\n            self.optimizer.step()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("finds", "shown"),
    [
        ("_, rows = tree.query(key)\n    near = torch.tensor(kept[rows]).cuda()", False),
        ("rows = linear_model.predict(key)\n    near = torch.from_numpy(rows).cuda()", True),
        ("rows = numpy.sort(key)\n    near = torch.from_numpy(rows).cuda()", True),
        ("_, rows = tree.query(key)\n    history.append(rows)", True),
    ],
)
def test_what_a_library_for_cpus_finds_for_the_step_is_needed(finds: str, shown: bool) -> None:
    """NumPy's functions have their like on the device, a tree of SciPy does not; what is only kept could be found later."""
    text = f"import numpy\nfrom scipy.spatial import KDTree\n{LOADER}tree = KDTree(kept)\ndef step(x, y):\n    key = model(x.cuda()).detach().cpu().numpy()\n    {finds}\n{STEP}"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("reduction", "shown"), [("reduction='none'", False), ("", True)])
def test_the_losses_of_samples_are_results(reduction: str, shown: bool) -> None:
    """An evaluation that keeps one for each sample needs them all."""
    text = f"{LOADER}import numpy\ncriterion = torch.nn.CrossEntropyLoss({reduction})\nmodel.cuda()\nmodel.eval()\nkept = []\nwith torch.no_grad():\n"
    text += "    for x, y in DataLoader(data, num_workers=4, pin_memory=True):\n        kept.append(criterion(model(x.cuda()), y.cuda()).cpu().numpy())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("tuple(map(known, y))", False), ("list(range(8))", True), ("list((1, 2))", True)])
def test_what_lists_data_is_no_constant(made: str, shown: bool) -> None:
    """It must come from the host in each step."""
    text = f"{LOADER}model.cuda()\nfor x, y in DataLoader(data, num_workers=4, pin_memory=True):\n    mask = torch.tensor({made}, device='cuda')\n{STEP}"
    assert ("transfer.tensor-from-python" in sure(text)) == shown


@pytest.mark.parametrize(("moves", "shown"), [("", False), ("    x = x.cuda()\n", True)])
def test_workers_of_a_program_for_cpus_take_them_from_it(moves: str, shown: bool) -> None:
    """Where nothing goes to a device, whoever computes and whoever reads share the CPUs."""
    text = f"{LOADER}for x, y in DataLoader(Files('train'), batch_size=8, shuffle=True):\n{moves}{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        ("print(y.sum())", True),
        ("kept = y.numpy()", True),
        ("return y", False),
        ("self.kept.append(y)", False),
        ("event.record()\n    event.synchronize()\n    print(y.sum())", False),
    ],
)
def test_a_copy_to_the_host_that_is_given_on_may_be_waited_for_there(then: str, shown: bool) -> None:
    """What reads it before a wait gets wrong numbers; who gets it may wait."""
    text = f"import torch\ndef home(self, x, event):\n    y = self.model(x).to('cpu', non_blocking=True)\n    {then}\n"
    assert ("transfer.back-unsynchronised" in sure(text)) == shown


@pytest.mark.parametrize(("other", "shown"), [("torch._foreach_lerp_(params, kept, 0.1)", False), ("self.other(params)", True)])
def test_a_loop_beside_one_operator_for_all_is_the_second_way(other: str, shown: bool) -> None:
    """Optimizers choose by `foreach`."""
    text = "import torch\nclass Mine(torch.optim.Optimizer):\n    def step(self):\n        for group in self.param_groups:\n            params = group['params']\n"
    text += f"            if group['foreach']:\n                {other}\n            else:\n                for p in group['params']:\n                    p.data.add_(p.grad, alpha=-0.1)\n"
    assert ("optimizer.own-loop" in sure(text)) == shown


@pytest.mark.parametrize(("owner", "shown"), [("config", False), ("outputs", True)])
def test_an_option_is_no_tensor_whatever_gives_the_options(owner: str, shown: bool) -> None:
    """A function with `model` in its name may give a configuration."""
    text = f"{LOADER}model.cuda()\n{owner} = starting_model(x)\nfor x, y in loader:\n    {owner} = starting_model(x)\n    shown = float({owner}.offset)\n{STEP}"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("use", "shown"),
    [
        ("count = int(round(size * ratio))\n    loss = torch.topk(model(x), k=count)[0].mean()", False),
        ("loss = model(x)[: int(size * ratio)].mean() + torch.zeros(ratio).sum()", False),
        ("kept.append(ratio)\n    loss = model(x).mean()", True),
    ],
)
def test_a_number_of_elements_is_needed(use: str, shown: bool) -> None:
    """Python makes a tensor of so many."""
    text = f"{LOADER}model.cuda()\nfor x, y in loader:\n    ratio = model(x.cuda()).mean().item()\n    {use}\n    loss.backward()\n    optimizer.step()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("given", "shown"), [("Streamed(url, batch_size=64)", False), ("Streamed(url), batch_size=64", True)])
def test_a_data_set_with_a_size_of_batches_makes_them(given: str, shown: bool) -> None:
    """Its loader hands them on."""
    text = f"{LOADER}model.cuda()\nloader = DataLoader({given})\nfor x, y in loader:\n    x = x.cuda()\n{STEP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("moves", "shown"),
    [
        ("y = y.cpu() if place is None else y.to(place)", False),
        ("if place:\n        y = y.cuda()\n    else:\n        y = y.cpu()", False),
        ("if place:\n        y = y.cpu()\n    else:\n        y = y * 2", True),
    ],
)
def test_one_of_two_places_to_put_a_tensor_is_no_wait(moves: str, shown: bool) -> None:
    """A helper that moves to where it is told puts it on the host where that is told."""
    text = f"{LOADER}for x, y in loader:\n    y = model(x.cuda())\n    {moves}\n    loss = criterion(y)\n    loss.backward()\n    optimizer.step()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("kept", "shown"), [("results.append(output.cpu().numpy())", False), ("total += 1", True)])
def test_the_loss_of_an_evaluation_beside_results_that_are_copied_waits_no_longer(kept: str, shown: bool) -> None:
    """Whatever method reads it."""
    text = f"{LOADER}model.cuda()\nmodel.eval()\nwith torch.no_grad():\n    for x, y in DataLoader(data, num_workers=4, pin_memory=True):\n"
    text += f"        output = model(x.cuda())\n        losses.append(criterion(output, y.cuda()).cpu().numpy())\n        {kept}\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("asks", "shown"),
    [
        ("if debug['isnan']:", False),
        ("if self.free_memory:", False),
        ("if not self.initialized:", False),
        ("if chosen['isolated']:", True),
        ("if self.initialized:", True),
    ],
)
def test_a_switch_for_faults_or_memory_and_what_is_made_first_are_seldom(asks: str, shown: bool) -> None:
    """Whoever turns one on knows that it costs."""
    text = f"{LOADER}def fit(self, chosen, debug):\n    model.cuda()\n    for x, y in loader:\n        {asks}\n            torch.cuda.empty_cache()\n        loss = model(x)\n        loss.backward()\n        optimizer.step()\n"
    assert ("sync.explicit" in sure(text)) == shown


@pytest.mark.parametrize(("given", "shown"), [("time", False), ("self.rate", True), ("0.5", True), ("len(x)", True)])
def test_a_number_that_a_caller_gives_comes_from_the_host(given: str, shown: bool) -> None:
    """``if not torch.is_tensor(time): time = torch.tensor([time], device=x.device)``."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, time):\n        return x * torch.tensor([{given}], device=x.device)\n"
    assert ("transfer.tensor-from-python" in sure(text)) == shown


@pytest.mark.parametrize(("rounds", "shown"), [("self.strides.shape[0]", False), ("x.shape[0]", True)])
def test_the_levels_of_a_model_are_a_list(rounds: str, shown: bool) -> None:
    """It gives one tensor for each of its strides; of the elements of a batch it gives one."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        scores = torch.sigmoid(self.head(x))\n        return [scores[i] * 2 for i in range(4)]\n    def other(self, x):\n        scores = torch.sigmoid(x)\n        for i in range({rounds}):\n            kept = torch.relu(scores[i])\n        return kept\n".replace(
        "other", "forward"
    ).replace("forward", "first", 1)
    assert ("program.element-loop" in sure(text)) == shown


@pytest.mark.parametrize(("moves", "shown"), [("", False), ("place = torch.device('cuda')\n", True)])
def test_weights_that_go_to_numpy_are_those_of_a_program_for_cpus(moves: str, shown: bool) -> None:
    """Where no device is named, a layer that is computed elsewhere lies on the host."""
    text = f"import torch\n{moves}class Layer(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.weight = torch.nn.Parameter(torch.zeros(8))\n"
    text += "    def forward(self, x):\n        return outside(x, self.weight.detach().cpu().numpy())\n"
    assert ("sync.per-step" in sure(text)) == shown

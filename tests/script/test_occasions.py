"""What looks like a wait in each step and is none: made first, every Nth time, of numbers, of one batch after the other (draws 50 to 56)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.script.scripts import hits, sure
from tests.script.test_links import hits as hits_of_files

LOADER = "import os, torch\nfrom torch.utils.data import DataLoader\n"
LOOP = "model.cuda()\nfor x, y in loader:\n    loss = criterion(model(x.cuda()), y.cuda())\n    loss.backward()\n    optimizer.step()\n"


@pytest.mark.parametrize(
    ("asks", "shown"),
    [
        ("if len(kept) == 0:\n        kept['norm'] = loss.item()", False),
        ("if not kept:\n        kept['norm'] = loss.item()", False),
        ("if not len(kept):\n        kept['norm'] = loss.item()", False),
        ("if 'norm' not in kept:\n        kept['norm'] = 0.0\n    else:\n        kept['norm'] += loss.item()", True),
        ("if rounds >= every_few:\n        rounds = 0\n        show(loss.item())", False),
        ("if rounds >= first:\n        show(loss.item())", True),
        ("if os.environ.get('CHECK'):\n        show(loss.item())", False),
        ("if os.getenv('CHECK', '0') == '1':\n        show(loss.item())", False),
        ("if os.getenv('CHECK', '1') == '1':\n        show(loss.item())", True),
        ("if os.environ.get('RANK', '0') == '0':\n        show(loss.item())", True),
        ("if os.environ.get('QUIET') != '1':\n        show(loss.item())", True),
    ],
)
def test_what_is_made_first_or_every_nth_time_is_seldom(asks: str, shown: bool) -> None:
    """An empty container is filled once, a counter starts again, and only a variable of the environment turns a check on."""
    assert ("sync.per-step" in sure(f"{LOADER}{LOOP}    {asks}\n")) == shown


@pytest.mark.parametrize(
    ("read", "shown"),
    [
        ("float(value) if not torch.is_tensor(value) else 0", False),
        ("0 if torch.is_tensor(value) else float(value)", False),
        ("float(value) if isinstance(value, float) else 0", False),
        ("float(value) if torch.is_tensor(value) else 0", True),
        ("float(state.last_loss)", False),
        ("float(state.loss)", True),
        ("torch.as_tensor(padding).to(dtype=x.dtype).item()", False),
        ("torch.from_numpy(padding).sum().item()", False),
        ("torch.as_tensor(loss).sum().item()", True),
    ],
)
def test_what_is_no_tensor_of_a_device_is_read_at_no_cost(read: str, shown: bool) -> None:
    """A condition says so, a name says that it is kept for later, or what the host has becomes a tensor there."""
    assert ("sync.per-step" in sure(f"{LOADER}{LOOP}    value = loss\n    kept = {read}\n")) == shown


def test_a_type_that_was_asked_before_is_another() -> None:
    """``if torch.is_tensor(x): return x.mean()`` leaves only what is none."""
    text = f"{LOADER}def value_of(loss):\n    if torch.is_tensor(loss):\n        return loss.mean()\n    return float(loss)\n{LOOP}    show(value_of(loss))\n"
    assert "sync.per-step" not in hits(text)


@pytest.mark.parametrize(
    ("name", "uses", "shown"),
    [
        ("generate", "words = torch.cat([words, best], 1)", False),
        ("generate", "found.append(best.item())\n        words = torch.tensor([found]).cuda()", False),
        ("evaluate", "words = torch.cat([words, best], 1)", True),
        ("predict", "found.append(best)", True),
    ],
)
def test_a_word_that_the_next_one_needs_is_no_batch(name: str, uses: str, shown: bool) -> None:
    """What a model gives in one round is what it is given in the next."""
    text = f"{LOADER}def {name}(model, texts):\n    model.eval()\n    words, found = texts[0], []\n    for i in range(0, 80, 8):\n"
    text += f"        {'words = texts[i : i + 8].cuda()' if shown and name == 'predict' else 'pass'}\n        best = model(words.cuda()).argmax(1)\n        show(best.sum().item())\n        {uses}\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("within", "shown"), [("pass", False), ("result = model(x[c].cuda())", True)])
def test_a_loop_behind_the_one_pass_of_an_evaluation_has_no_batches(within: str, shown: bool) -> None:
    """It goes over classes."""
    text = f"{LOADER}def evaluate(model, x, y):\n    model.eval()\n    {'result = model(x.cuda())' if not shown else 'pass'}\n    for c in range(classes):\n        {within}\n        hit = (result.argmax(1) == c).sum().item()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("rounds", "shown"), [("range(epochs)", False), ("range(1, args.num_epochs + 1)", True), ("range(steps)", True)])
def test_a_step_that_is_a_whole_epoch_may_say_something_of_itself(rounds: str, shown: bool) -> None:
    """Whatever the loop's counter is called."""
    text = f"import torch\nx = x.cuda()\nfor e in {rounds}:\n    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n    print(loss.item())\n"
    assert ("sync.per-step" in sure(text)) == shown


def test_a_size_beside_another_is_needed() -> None:
    """``n, size = len(x), index.max().item() + 1``, which a tensor is made of."""
    text = f"{LOADER}model.cuda()\nfor x, y in loader:\n    n, size = len(x), model(x.cuda()).max().item() + 1\n    loss = torch.zeros(n, size).sum()\n    loss.backward()\n    optimizer.step()\n"
    assert "sync.per-step" not in sure(text)


@pytest.mark.parametrize(
    ("layer", "shown"),
    [("self.paths[self.name(i)](x[i])", False), ("getattr(self, f'path{i}')(x[i])", False), ("self.path(x[i])", True)],
)
def test_a_layer_for_each_element_makes_a_list_of_them(layer: str, shown: bool) -> None:
    """By a name that the counter makes."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        kept = []\n        for i in range(len(x)):\n            kept.append({layer})\n        return kept\n"
    assert ("program.element-loop" in sure(text)) == shown


@pytest.mark.parametrize(("use", "shown"), [("wrapped.load_state_dict(weights)", False), ("wrapped(x)", True)])
def test_a_model_that_is_wrapped_to_take_weights_is_not_run_so(use: str, shown: bool) -> None:
    """Its names have a prefix then."""
    text = f"{LOADER}{LOOP}def made(net, weights, x):\n    wrapped = torch.nn.DataParallel(net)\n    {use}\n    return wrapped.module.state_dict()\n"
    assert ("ddp.dataparallel" in sure(text)) == shown


@pytest.mark.parametrize(("beside", "shown"), [("began = time.perf_counter()", False), ("began = 0", True)])
def test_a_helper_that_waits_beside_a_clock_measures(beside: str, shown: bool) -> None:
    """Where all of its calls are beside one."""
    text = f"import time, torch\ndef wait(device):\n    if device == 'cuda':\n        torch.cuda.synchronize()\n{LOOP}    wait('cuda')\n    {beside}\n"
    assert ("sync.explicit" in sure(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("find_optimal_batch_size", False), ("fit_all", True)])
def test_who_looks_for_a_size_of_batches_does_not_train(name: str, shown: bool) -> None:
    """Some steps tell whether there is memory for them."""
    text = f"import torch\ndef {name}(model):\n    for size in [2**i for i in range(9)]:\n        model(torch.randn(size, 3).cuda()).sum().backward()\n        torch.cuda.empty_cache()\n"
    assert ("sync.explicit" in sure(text)) == shown


def test_a_loop_without_gradients_evaluates() -> None:
    """Whatever the function is called that goes through a loader."""
    text = f"{LOADER}def report(self):\n    with torch.no_grad():\n        for x, y in self.data.dataloader:\n            out = self.model(x.cuda())\n            total += (out.argmax(1) == y.cuda()).sum().item()\n"
    assert "sync.per-step" in sure(text)


@pytest.mark.parametrize(
    "moves",
    [
        "x, y = self.unpack(batch)",
        "x, y = unpack_batch(batch, device)",
    ],
)
def test_a_helper_that_unpacks_a_batch_moves_it(moves: str) -> None:
    """Its own calls show it, or the device that it is given."""
    text = f"{LOADER}class Trainer:\n    def unpack(self, batch):\n        return batch[0].to(self.device), batch[1].to(self.device)\n    def validate(self, device):\n        self.model.eval()\n"
    text += f"        for batch in self.val_loader:\n            {moves}\n            active = y != -100\n            self.total += active.sum().item()\n"
    assert "sync.per-step" in sure(text)


@pytest.mark.parametrize(("says", "shown"), [("-> Penalty", True), ('-> "Penalty"', True), ("-> Penalty | None", True), ("-> int", False)])
def test_what_a_function_says_that_it_gives_is_followed(says: str, shown: bool, tmp_path: Path) -> None:
    """The methods of a class, and of its heirs, run where an object of it is used that a function makes by a name."""
    penalties = f"""\
        import torch
        class Penalty:
            def cost(self, model):
                pass
        class Own(Penalty):
            def cost(self, model):
                return torch.tensor(0.0, device=next(model.parameters()).device)
        def find(name) {says}:
            return known[name]()
        """
    train = """\
        import torch
        from pkg.penalties import find
        class Trainer:
            def __init__(self, name):
                self.penalty = find(name)
            def fit(self, model, loader, optimizer):
                model.cuda()
                for x, y in loader:
                    loss = criterion(model(x.cuda()), y) + self.penalty.cost(model)
                    loss.backward()
                    optimizer.step()
        """
    found = hits_of_files(tmp_path, pkg__penalties=penalties, train=train)
    assert (("pkg/penalties.py", 7, "transfer.tensor-from-python") in found) == shown


@pytest.mark.parametrize(
    ("around", "shown"),
    [("with torch.no_grad():\n            out = self.one(x)", False), ("if True:\n            out = self.one(x)", True)],
)
def test_a_model_that_a_helper_calls_runs_as_its_caller_does(around: str, shown: bool) -> None:
    """Gradients are off around the call of the helper."""
    text = f"{LOADER}class Task:\n    def one(self, x):\n        return self.model(x.cuda())\n    def validate(self, loader):\n        self.model.eval()\n        for x in loader:\n            {around.replace('            ', '                ')}\n"
    assert ("program.gradients-in-evaluation" in sure(text)) == shown


@pytest.mark.parametrize(("given", "shown"), [("compute_force=True", False), ("training=False", True)])
def test_a_model_that_gives_forces_needs_gradients(given: str, shown: bool) -> None:
    """It differentiates an energy."""
    text = (
        f"{LOADER}def evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        results.append(model(x.cuda(), {given}))\n"
    )
    assert ("program.gradients-in-evaluation" in sure(text)) == shown


@pytest.mark.parametrize(
    ("read", "shown"),
    [
        ("with Clock('step').cpu(with_gpu=True):\n        pass", False),
        ("run.losses.append(float(loss.detach()))\n    if math.isfinite(run.losses[-1]):\n        pass", False),
        ("if math.isnan(loss):\n        pass", True),
    ],
)
def test_what_only_sounds_like_a_tensor_is_none(read: str, shown: bool) -> None:
    """A method of a clock, and numbers in a list."""
    said = sure(f"import math\n{LOADER}{LOOP}    {read}\n")
    assert ("sync.branch-on-loss" in said) == shown
    assert "append" in read or "sync.per-step" not in said


@pytest.mark.parametrize(("asks", "shown"), [("marked('detect_anomaly')", False), ("marked('speed')", True)])
def test_anomaly_detection_that_somebody_asks_for_by_a_text_is_wanted(asks: str, shown: bool) -> None:
    """Also where a name was given the answer."""
    text = f"import torch\nfound = {asks}\nif found is not None:\n    torch.autograd.set_detect_anomaly(True)\n"
    assert ("program.anomaly-detection-on" in sure(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("Polyfill", False), ("Picture", True)])
def test_code_for_old_versions_keeps_their_names(name: str, shown: bool) -> None:
    """The class says that it is there for these."""
    text = (
        f"import torch\nclass {name}:\n    @staticmethod\n    def cast(enabled):\n        return torch.cuda.amp.autocast(enabled=enabled)\n"
    )
    assert ("precision.amp-old-names" in sure(text)) == shown


def test_a_method_that_an_heir_has_itself_is_not_called_there() -> None:
    """`self.weight()` in the heir is its own."""
    text = "import torch\nclass Layer(torch.nn.Module):\n    def weight(self):\n        return self.w.cpu().detach().numpy()\nclass Own(Layer):\n    def weight(self):\n        return self.w\n    def forward(self, x):\n        return x.cuda() @ self.weight()\n"
    assert "sync.per-step" not in sure(f"{text}device = 'cuda'\n")


@pytest.mark.parametrize(("rounds", "shown"), [("range(len(out))", True), ("layers", False)])
def test_what_a_model_gives_by_names_has_no_rows(rounds: str, shown: bool) -> None:
    """A loop over names takes the results of layers, each as a whole."""
    text = f"{LOADER}def collect(model, loader, layers):\n    model.cuda().eval()\n    with torch.no_grad():\n        for x in loader:\n            out = model(x.cuda())\n            for i in {rounds}:\n                kept.append(out[i].cpu())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("taken", "shown"), [("[first] = list(loader)", False), ("train(loader)", True)])
def test_a_loader_that_is_listed_once_needs_no_workers(taken: str, shown: bool) -> None:
    """All of it is there then."""
    text = f"{LOADER}def first_of(train_set):\n    loader = DataLoader(Images(path), batch_size=64, shuffle=True)\n    {taken}\n"
    assert ("dataloader.inline" in sure(f"{text}train_loader = DataLoader(data, num_workers=4)\n")) == shown


def test_a_helper_that_copies_to_the_host_waits_itself() -> None:
    """What it gave is read at no cost."""
    text = f"{LOADER}def to_cpu(x):\n    return x.detach().cpu()\n{LOOP}    loss_parts = to_cpu(loss)\n    shown = float(loss_parts[0])\n"
    assert hits(text)["sync.per-step"] == [4]


@pytest.mark.parametrize(("draws", "shown"), [("rows = random.sample(all_rows, 64)", True), ("rows = all_rows", False)])
def test_an_epoch_that_draws_some_rows_is_a_step(draws: str, shown: bool) -> None:
    """Whatever its counter is called."""
    text = f"import random, torch\nmodel.cuda()\nfor epoch in range(9000):\n    {draws}\n    loss = criterion(model(x[rows]), y[rows])\n    loss.backward()\n    optimizer.step()\n    kept.append(loss.item())\n"
    assert ("sync.per-step" in sure(text)) == shown


WHERE = "        rows = torch.where(mask)[0]\n"


@pytest.mark.parametrize(
    ("found", "reads", "shown"),
    [
        (WHERE, "first = rows[0].item()", False),
        ("        kinds = x.unique()\n", "known = all(kind.item() in (0, 1) for kind in kinds)", False),
        ("        places = mask.nonzero(as_tuple=False).flatten()\n", "max_length = lengths.max().item()", False),
        ("        places = mask.long()\n", "max_length = lengths.max().item()", True),
        ("        rows = torch.where(mask, x, 0)[0]\n", "first = rows[0].item()", True),
    ],
)
def test_where_something_was_found_the_host_has_waited(found: str, reads: str, shown: bool) -> None:
    """The number of places was needed to make them."""
    text = f"{LOADER}class Net(torch.nn.Module):\n    def forward(self, x, mask, lengths):\n{found}        {reads}\n        return self.layer(x)\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("step", "shown"), [("optimizer.step(closure)", False), ("closure()", True)])
def test_an_optimizer_reads_the_loss_of_its_closure(step: str, shown: bool) -> None:
    """LBFGS does, beside other optimizers, too."""
    made = "optimizer = torch.optim.LBFGS(model.parameters()) if second else torch.optim.Adam(model.parameters())\n"
    text = f"{LOADER}{made}for x, y in loader:\n    def closure():\n        loss = criterion(model(x.cuda()), y)\n        loss.backward()\n"
    text += f"        kept.append(loss.item())\n        return loss\n    {step}\n    optimizer.step()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("loop", "shown"),
    [
        ("for column in columns:\n            if (x[:, column] == 0).sum() < 1:\n                break", True),
        ("for round in columns:\n            word = model(word)\n            if word.sum() < 1:\n                break", False),
    ],
)
def test_a_loop_that_ends_by_what_is_there_already_waits(loop: str, shown: bool) -> None:
    """That it makes the last word only its model tells."""
    text = f"{LOADER}def train(loader, columns):\n    for x, y in loader:\n        x = x.cuda()\n        {loop}\n        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    assert ("sync.branch-on-loss" in sure(text)) == shown


def test_a_debug_message_of_an_evaluation_is_told_once() -> None:
    """As one of a step."""
    text = f"import logging\n{LOADER}model.cuda()\nmodel.eval()\nwith torch.no_grad():\n    for x, y in loader:\n        loss = criterion(model(x.cuda()), y)\n        logging.debug('%f', loss.item())\n"
    assert {"sync.value-in-debug-log"} == {rule for rule in sure(text) if rule.startswith("sync.")}


@pytest.mark.parametrize(
    ("name", "other", "shown"),
    [("compute_gradients", "apply_gradients", True), ("explain", "apply_gradients", False), ("compute_gradients", "log", False)],
)
def test_half_a_step_that_another_process_completes(name: str, other: str, shown: bool) -> None:
    """Its gradients are sent, and another method applies them; without one they may be what the program is for."""
    text = f"import torch\nclass Learner:\n    def __init__(self, model):\n        self.model = model.cuda()\n        self.optimizer = torch.optim.Adam(model.parameters())\n    def {name}(self, batch):\n        loss = self.model(batch).mean()\n        loss.backward()\n        return [p.grad for p in self.model.parameters()], loss.item()\n"
    text += f"    def {other}(self, gradients):\n        {'self.optimizer.step()' if other == 'apply_gradients' else 'print(gradients)'}\n"
    text += "def fit(model, loader, optimizer):\n    for x in loader:\n        model(x).backward()\n        optimizer.step()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("chosen", "shown"), [("if name.startswith('encoder'):\n        ", True), ("", False)])
def test_gradients_are_on_where_only_some_parameters_have_none(chosen: str, shown: bool) -> None:
    """Those of the other layers are recorded in an evaluation."""
    text = f"{LOADER}model = torch.nn.Linear(8, 8).cuda()\nfor name, p in model.named_parameters():\n    {chosen}p.requires_grad_(False)\nmodel.eval()\nfor x in loader:\n    kept.append(model(x.cuda()).argmax(1).cpu())\n"
    assert ("program.gradients-in-evaluation" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "use", "shown"),
    [
        ("out = torch.relu(x)", "kept.append(out[i] * 2)", True),
        ("out = torch.relu(x)\n        out = non_max_suppression(out)", "kept.append(out[i] * 2)", False),
        ("out = numpy.zeros(len(x))", "out[i] = known[x[i]]", True),
        ("out = numpy.zeros(len(x))", "out[i] = self.dict[x[i]]", False),
    ],
)
def test_what_is_a_list_or_a_key_is_no_row_of_a_tensor(made: str, use: str, shown: bool) -> None:
    """A list has a tensor for each picture, and text is looked up."""
    text = f"import numpy, torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        {made}\n        for i in range(len(x)):\n            {use}\n        return self.layer(x)\n"
    assert ("program.element-loop" in sure(text)) == shown


@pytest.mark.parametrize(("library", "shown"), [("other", False), ("torch", True)])
def test_a_loop_over_parameters_of_another_library_is_its_own_matter(library: str, shown: bool) -> None:
    """It may have no operators for all of them."""
    text = f"# as torch.optim\nfrom {library} import Tensor\nclass SGD(Optimizer):\n    def step(self):\n        for group in self.param_groups:\n            for p in group['params']:\n                p.data = p.data - group['lr'] * p.grad\n"
    assert ("optimizer.own-loop" in sure(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("torchio.Queue(pictures, 64, 8)", False), ("Pictures(folder)", True)])
def test_a_queue_of_patches_allows_no_workers_whatever_puts_them_together(made: str, shown: bool) -> None:
    """It has workers of its own."""
    text = f"import torchio\n{LOADER}patches = {made}\nloader = DataLoader(patches, batch_size=4, collate_fn=joined)\n{LOOP}"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("fake = netG(z).detach()", True),
        ("fake = netG(z)\n    kept = fake.detach()", False),
        ("with torch.no_grad():\n        fake = netG(z).detach()", False),
        ("if i % 100 == 0:\n        fake = netG(z).detach()", False),
    ],
)
def test_a_result_that_is_detached_as_a_whole_needs_no_gradients(call: str, shown: bool) -> None:
    """The graph of a teacher, or of a generator while the discriminator learns, is made in vain."""
    text = f"{LOADER}netG, netD = netG.cuda(), netD.cuda()\nfor i, z in enumerate(loader):\n    {call}\n    loss = criterion(netD(fake), z)\n    loss.backward()\n    optimizer.step()\n"
    assert ("program.gradients-in-evaluation" in sure(text)) == shown


@pytest.mark.parametrize(
    ("text", "rule", "shown"),
    [
        (
            "device = 'cuda'\ndef vae_loss(x, y):\n    loss = torch.nn.functional.mse_loss(x, y)\n    return loss, loss.item()\n",
            "sync.per-step",
            True,
        ),
        (
            "device = 'cuda'\ndef log_loss(x, y):\n    loss = torch.nn.functional.mse_loss(x, y)\n    return loss, loss.item()\n",
            "sync.per-step",
            False,
        ),
        (
            "class Detector:\n    def detect_anomalies(self):\n        torch.autograd.set_detect_anomaly(True)\n",
            "program.anomaly-detection-on",
            False,
        ),
        ("torch.nn.Embedding(50257, 768)\n", "kernels.sizes-not-aligned", False),
        ("self.head.weight = torch.nn.Embedding(50257, 768).weight\n", "kernels.sizes-not-aligned", True),
        ("torch.nn.Linear(768, 50257)\n", "kernels.sizes-not-aligned", True),
    ],
)
def test_halves_of_a_step_tools_and_tables_by_their_names(text: str, rule: str, shown: bool) -> None:
    """A loss is a part of a step, a tool for anomalies has to find some, and a table multiplies nothing."""
    assert (rule in sure(f"import torch\n{text}")) == shown


def test_what_is_moved_in_the_same_statement_lies_on_the_host_before() -> None:
    """`type` converts it there."""
    text = f"{LOADER}for x, y in loader:\n    x, y = x.cuda(), y.type(torch.LongTensor).cuda()\n    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
    assert "sync.per-step" not in sure(text)


@pytest.mark.parametrize(("base", "shown"), [("Metric", True), ("Table", False)])
def test_a_library_gives_a_metric_each_batch(base: str, shown: bool) -> None:
    """Nobody of the program calls its `update`."""
    text = f"import torch\nfrom ignite.metrics import {base}\ndevice = 'cuda'\nclass Right({base}):\n    def update(self, output):\n        y, labels = output\n        self.right += (y.argmax(1) == labels).sum().item()\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("given", "call", "shown"),
    [
        ("data: Rows", "train", False),
        ("data: Rows | None", "train", False),
        ("data", "train", True),
        ("data", "benchmark_step", False),
    ],
)
def test_rows_by_an_annotation_and_loaders_of_a_measurement_need_no_workers(given: str, call: str, shown: bool) -> None:
    """Workers would copy what lies in memory, and what measures the rest is no training."""
    rows = "class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.rows[i], torch.tensor(self.labels[i])\n"
    text = f"{LOADER}from torch.utils.data import Dataset\n{rows}def {call}(model, {given}):\n    loader = DataLoader(data, batch_size=4, shuffle=True)\n    for x, y in loader:\n        loss = criterion(model(x.cuda()), y)\n        loss.backward()\n        optimizer.step()\n"
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(
    ("body", "rule", "shown"),
    [
        ("shown.append(model.loss(x, y).detach())", "program.gradients-in-evaluation", False),
        ("shown.append(model.forward(x).detach())", "program.gradients-in-evaluation", True),
        ("for i in range(len(x)):\n            shown.append(torch.relu(x)[i] * z[i])", "program.element-loop", True),
        (
            "if n % 100 == 0:\n            for i in range(len(x)):\n                shown.append(torch.relu(x)[i] * z[i])",
            "program.element-loop",
            False,
        ),
    ],
)
def test_what_is_detached_or_gone_through_for_a_log(body: str, rule: str, shown: bool) -> None:
    """A loss is no forward pass that is made in vain, and every hundredth time costs little."""
    text = f"{LOADER}model = torch.nn.Linear(8, 8).cuda()\nfor n, (x, y) in enumerate(loader):\n        x = x.cuda()\n        z = torch.relu(x)\n        {body}\n        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    assert (rule in sure(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("to_coco_results", False), ("to_results", True)])
def test_results_in_the_format_of_coco_are_for_the_host(name: str, shown: bool) -> None:
    """Its library computes on CPUs."""
    text = f"{LOADER}device = 'cuda'\ndef {name}(boxes):\n    kept.append(boxes.max().item())\n{LOOP}    {name}(model(x))\n"
    assert ("sync.per-step" in sure(text)) == shown

"""Habits of public code that made a hit needless, or hid a place: each as it was met, in a few lines."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, sure
from tests.script.test_codemods import fixed

STEP = "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
LOADER = "import torch\nfrom torch.utils.data import DataLoader\ndevice = torch.device('cuda')\n"
AGENT = """\
import torch
class Agent:
    def act(self, state):
        return self.actor(state.to('cuda')).argmax().item()
    def learn(self, batch):
        with torch.no_grad():
            following = {call}(batch.states)
        loss = self.criterion(self.actor(batch.states), following)
        loss.backward()
        self.optimizer.step()
"""
ATTENTION = """\
import torch
class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
        {line}
"""


@pytest.mark.parametrize(("call", "shown"), [("self.target.act", False), ("self.act", True)])
def test_a_network_that_acts_is_not_its_agent(call: str, shown: bool) -> None:
    """`self.target.act` is a method of the network, not of the class around it."""
    assert ("sync.per-step" in hits(AGENT.format(call=call))) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("loss.item() if isinstance(loss, torch.Tensor) else loss", False),
        ("loss", True),
    ],
)
def test_a_sum_of_what_is_no_tensor_keeps_no_graph(value: str, shown: bool) -> None:
    """What is no tensor is left as it is, and has no graph."""
    text = f"import torch\ntotal = 0\nfor x, y in loader:\n    loss = criterion(model(x), y)\n    part = {value}\n    total += part / 2\n"
    assert ("program.loss-keeps-graph" in hits(text + "    loss.backward()\n    optimizer.step()\n")) == shown


@pytest.mark.parametrize(("part", "shown"), [("", True), (".batch_sampler", False), (".sampler", False)])
def test_a_sampler_makes_no_batches(part: str, shown: bool) -> None:
    """A loader that is made for its sampler reads nothing."""
    text = f"{LOADER}train_loader = DataLoader(train_set, shuffle=True){part}\n"
    assert ("dataloader.inline" in hits(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("CPUBackend", False), ("Backend", True)])
def test_a_class_for_cpus_waits_for_none(name: str, shown: bool) -> None:
    """Its name says where it computes."""
    text = f"import torch\nclass {name}:\n    def fit(self):\n        for x, y in loader:\n            x = x.to(device)\n"
    steps = STEP.replace("    ", "            ") + "            print(loss.item())\n"
    assert ("sync.per-step" in sure(text + steps)) == shown


@pytest.mark.parametrize(("method", "shown"), [("update_priorities", False), ("append", True)])
def test_priorities_are_kept_on_the_host(method: str, shown: bool) -> None:
    """A buffer of samples draws by them."""
    text = f"import torch\nfor x, y in loader:\n    x = x.to('cuda')\n{STEP}    buffer.{method}(loss.detach().cpu().numpy())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("return weights @ v", True),
        ("outputs = (weights @ v,)\n        return outputs + (weights,)", False),
        ("weights = weights * self.head_mask\n        return weights @ v", False),
    ],
)
def test_a_fused_kernel_gives_no_weights(line: str, shown: bool) -> None:
    """Weights that are given back, or multiplied by a mask of heads, must be computed."""
    assert ("attention.unfused" in hits(ATTENTION.format(line=line))) == shown


def test_what_is_converted_once_is_seldom() -> None:
    """After the first forward pass it is what it has to be."""
    text = """\
    import torch
    class Loss(torch.nn.Module):
        def forward(self, x):
            if self.weights is not None and not isinstance(self.weights, torch.Tensor):
                self.weights = torch.tensor(self.weights, device=x.device)
            return (x * self.weights).sum()
    """
    assert "transfer.tensor-from-python" not in hits(text)
    assert "transfer.tensor-from-python" not in hits(
        text.replace("not isinstance(self.weights, torch.Tensor)", "type(self.weights) is list")
    )
    assert "transfer.tensor-from-python" in hits(text.replace("not isinstance(self.weights, torch.Tensor)", "self.uses_weights"))


@pytest.mark.parametrize(("made", "shown"), [("[x]", False), ("self.net(x)", True)])
def test_a_caller_says_that_a_parameter_is_a_list(made: str, shown: bool) -> None:
    """Outputs of layers in a list cost nothing to go through."""
    text = f"""\
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        outputs = {made}
        return self.cut(outputs)
    def cut(self, outputs):
        made = []
        for i in range(len(outputs)):
            made.append(outputs[i] * 2)
        return made
"""
    assert ("program.element-loop" in hits(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("Data(X_train, y_train)", False), ("Data(root, y_train)", True), ("Data(args.path)", True)])
def test_features_and_targets_lie_in_memory(made: str, shown: bool) -> None:
    """Workers would only copy them."""
    text = f"{LOADER}train_set = {made}\nloader = DataLoader(train_set, batch_size=8)\nfor epoch in range(9):\n    for x, y in loader:\n"
    assert ("dataloader.inline" in hits(text + STEP.replace("    ", "        "))) == shown


def test_the_parts_of_a_model_are_one_place() -> None:
    """What is told of each part of a model is done once for all."""
    text = "import torch\nwide = torch.nn.DataParallel(wide)\ndeep = torch.nn.DataParallel(deep)\n"
    assert hits(text)["ddp.dataparallel"] == [2]
    assert "ddp.dataparallel" not in hits("import torch\ndef predict(model):\n    model = torch.nn.DataParallel(model)\n    return model\n")


def test_a_hook_trains() -> None:
    """A backward pass in a hook of the model: nothing is evaluated."""
    text = f"""\
{LOADER}
def train(self, data):
    self.model.eval()
    loader = DataLoader(data)
    def hook(module, given, output):
        loss = criterion(self.coder(output), output)
        {{line}}
    self.layer.register_forward_hook(hook)
    for batch in loader:
        self.model(batch.to(device))
"""
    assert "program.gradients-in-evaluation" not in hits(text.format(line="loss.backward()"))
    assert "program.gradients-in-evaluation" in hits(text.format(line="self.losses.append(loss)"))


@pytest.mark.parametrize(("name", "shown"), [("evaluate", True), ("generate_text", False)])
def test_each_word_needs_the_one_before(name: str, shown: bool) -> None:
    """Who generates must read each word."""
    text = f"""\
import torch
def {name}(model, words):
    model.eval()
    words = words.to("cuda")
    for i in range(100):
        words = model(words)
        found.append(words.argmax().item())
"""
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize("name", ["classifier", "backbone"])
def test_what_has_parameters_is_a_model(name: str) -> None:
    """Its `eval()` may stand in the loop that evaluates."""
    text = f"""\
{LOADER}
optimizer = torch.optim.Adam({name}.parameters(), fused=True)
loader = DataLoader(data)
for x, y in loader:
    {name} = {name}.eval()
    predicted = {name}(x.cuda())
"""
    assert "program.gradients-in-evaluation" in hits(text)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("print('{:.4}'.format(loss))", True),
        ("bar.set_description('loss %f' % loss)", True),
        ("bar.set_description('loss %f of %d' % (loss, 3))", True),
        ("bar.set_description('step {}'.format(3))", False),
        ("print('%d' % len(x))", False),
    ],
)
def test_a_formatted_loss_is_read(line: str, shown: bool) -> None:
    """As in an f-string."""
    assert ("sync.per-step" in hits(f"import torch\nfor x, y in loader:\n    x = x.cuda()\n{STEP}    {line}\n")) == shown


@pytest.mark.parametrize(("given", "shown"), [("extra", True), ("extra is not None", False), ("len(extra)", False)])
def test_the_truth_of_a_tensor_is_read(given: str, shown: bool) -> None:
    """`if extra:` needs its value."""
    text = f"import torch\nfor x, y in loader:\n    x = x.cuda()\n    out = model(x)\n    out, extra = out\n    if {given}:\n        total += extra.item()\n{STEP}"
    assert ("sync.branch-on-loss" in hits(text)) == shown


@pytest.mark.parametrize(("base", "shown"), [("", True), ("(torch.optim.Optimizer)", False)])
def test_a_method_named_step_may_be_one(base: str, shown: bool) -> None:
    """A class that has an optimizer makes a step of training; an optimizer itself does not."""
    text = f"""\
import torch
class Manager{base}:
    def step(self, batch):
        loss = self.criterion(self.model(batch.to("cuda")))
        if self.training:
            loss.backward()
            self.optimizer.step()
        return loss.detach().item()
"""
    assert ("sync.per-step" in hits(text)) == shown


def test_a_number_of_workers_may_be_converted() -> None:
    """``int(args.workers)`` is the default of the option."""
    text = f"""\
import argparse
{LOADER}
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()
loader = DataLoader(data, num_workers=int(args.workers), pin_memory=True)
for epoch in range(90):
    for x, y in loader:
"""
    assert "dataloader.workers-made-again" in hits(text + STEP.replace("    ", "        "))


def test_fix_leaves_features_alone_that_may_be_on_a_device() -> None:
    """Tensors of a device cannot be pinned, and a caller may give some."""
    text = f"{LOADER}def fit(X, y, path):\n    loader = DataLoader(Data(X=X, y=y), num_workers=2)\n    for x, y in loader:\n        x, y = x.to(device), y.to(device)\n"
    text += STEP.replace("    ", "        ")
    assert "pin_memory" not in fixed(text)
    assert "pin_memory" in fixed(text.replace("Data(X=X, y=y)", "Data(path)"))


@pytest.mark.parametrize(
    ("beside", "shown"), [("start = time.time()", False), ("start = time.perf_counter()", False), ("seen += len(x)", True)]
)
def test_who_takes_times_must_wait(beside: str, shown: bool) -> None:
    """A clock beside a synchronization measures."""
    text = f"import time, torch\nfor x, y in loader:\n{STEP}    if torch.cuda.is_available():\n        torch.cuda.synchronize()\n    {beside}\n"
    assert ("sync.explicit" in hits(text)) == shown


@pytest.mark.parametrize(("path", "shown"), [("data/transforms.py", False), ("augmentations.py", False), ("models/net.py", True)])
def test_samples_are_transformed_on_the_cpu(path: str, shown: bool) -> None:
    """A module of transforms runs where samples are read."""
    text = """\
    import torch
    class Crop(torch.nn.Module):
        def forward(self, image):
            fill = torch.tensor([0.5], device=image.device)
            return image + fill + torch.zeros(3).to(image.device)
    """
    expected = {"transfer.tensor-from-python", "transfer.tensor-made-on-cpu"} if shown else set()
    assert hits(text, path).keys() & {"transfer.tensor-from-python", "transfer.tensor-made-on-cpu"} == expected


@pytest.mark.parametrize(("exchange", "shown"), [("broadcast(rate, src=0)", False), ("all_reduce(rate)", True)])
def test_a_number_that_all_ranks_must_have_is_copied(exchange: str, shown: bool) -> None:
    """It is known to one rank only."""
    text = f"import torch\ndef update(self, batch):\n    rate = torch.tensor(self.rate, device='cuda')\n    torch.distributed.{exchange}\n"
    assert ("transfer.tensor-from-python" in hits(text + "    self.model(batch).mean().backward()\n    self.optimizer.step()\n")) == shown


@pytest.mark.parametrize(("annotation", "shown"), [(": list[torch.Tensor]", False), ("", True)])
def test_an_annotation_says_what_is_a_list(annotation: str, shown: bool) -> None:
    """The features of several layers cost nothing to go through."""
    text = f"""\
import torch
class Net(torch.nn.Module):
    def forward(self, x{annotation}):
        for i in range(len(x)):
            x[i] = torch.zeros_like(x[i])
        return x
"""
    assert ("program.element-loop" in hits(text)) == shown


@pytest.mark.parametrize(("workers", "shown"), [("self.num_workers", False), ("0", True)])
def test_whoever_makes_a_trainer_gives_its_workers(workers: str, shown: bool) -> None:
    """An option of a class, which a base class keeps, is the caller's."""
    text = f"""\
{LOADER}
class Net(Base):
    def __init__(self, num_workers=0):
        super().__init__(num_workers=num_workers)
    def fit(self, data):
        loader = DataLoader(data, num_workers={workers}, pin_memory=True)
        for epoch in range(9):
            for x, y in loader:
"""
    assert ("dataloader.inline" in hits(text + STEP.replace("    ", "                "))) == shown


@pytest.mark.parametrize(("size", "shown"), [("batch_size=None", False), ("batch_size=8", True)])
def test_a_data_set_that_makes_batches_may_make_them_anywhere(size: str, shown: bool) -> None:
    """A buffer of samples may lie on the device."""
    text = f"{LOADER}loader = DataLoader(ReplayData(memory), {size}, num_workers=2)\nfor epoch in range(9):\n    for x, y in loader:\n"
    text += "        x, y = x.to(device), y.to(device)\n" + STEP.replace("    ", "        ")
    assert ("dataloader.pin-memory-off" in hits(text)) == shown


def test_what_was_never_moved_is_not_waited_for() -> None:
    """Labels stay where the loader made them."""
    text = f"""\
{LOADER}
def predict(net, data):
    net.eval()
    loader = DataLoader(data)
    with torch.no_grad():
        for batch in loader:
            x, y = batch[0], batch[1]
            x = x.to(device)
            found.append(net(x))
            labels.extend({{read}})
"""
    assert "sync.per-step" not in hits(text.format(read="y.cpu().numpy()"))
    assert "sync.per-step" in hits(text.format(read="net(x).sum().item()"))


def test_a_tensor_of_an_option_is_the_same_in_each_step() -> None:
    """It may be made once, wherever `to` copies it."""
    text = f"import torch\nfor x, y in loader:\n    x = x.to(device)\n    weights = torch.tensor(args.weights).to(x)\n{STEP}"
    assert "transfer.tensor-made-on-cpu" in sure(text)
    assert "transfer.tensor-made-on-cpu" not in sure(text.replace("args.weights", "weights_of(y)").replace("to(x)\n", "to(names)\n"))


@pytest.mark.parametrize(("name", "shown"), [("learn", True), ("save", False)])
def test_a_method_that_learns_may_let_another_do_it(name: str, shown: bool) -> None:
    """Whoever calls it repeats it."""
    text = f"""\
import torch
class Agent:
    def {name}(self, batch):
        loss = self._update(batch.to("cuda"))
        return loss.item()
    def _update(self, batch):
        loss = self.criterion(self.net(batch))
        loss.backward()
        self.optimizer.step()
        return loss
"""
    assert ("sync.per-step" in hits(text)) == shown


def test_who_asks_for_data_parallel_by_name_wants_it() -> None:
    """An engine of that name is one among others."""
    text = "import torch\nclass {name}:\n    def prepare(self, model):\n        return torch.nn.DataParallel(model)\n"
    assert "ddp.dataparallel" not in hits(text.format(name="DataParallelEngine"))
    assert "ddp.dataparallel" in hits(text.format(name="Engine"))


def test_whether_something_is_supported_is_asked_once() -> None:
    """A backward pass in it trains nothing."""
    text = "import torch\ndef {name}(device):\n    sizes = torch.tensor([5, 8], device=device)\n    net(sizes).sum().backward()\n    optimizer.step()\n"
    assert "transfer.tensor-from-python" not in hits(text.format(name="grouped_mm_supported"))
    assert "transfer.tensor-from-python" in hits(text.format(name="update"))


@pytest.mark.parametrize(("line", "shown"), [("optimizer.step()", True), ("attacked = attacked + 0.1 * x.grad", False)])
def test_a_backward_pass_alone_trains_nothing(line: str, shown: bool) -> None:
    """An attack or an explanation needs its values."""
    text = "import torch\nfor x, y in loader:\n    x = x.to('cuda')\n    loss = criterion(model(x), y)\n    loss.backward()\n"
    assert ("sync.per-step" in sure(f"{text}    {line}\n    found.append(loss.item())\n")) == shown


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("torch.FloatTensor(1 - d)", False),
        ("torch.LongTensor(memory[:, 3:4].astype(int))", False),
        ("torch.tensor([0] * len(x))", True),
        ("torch.tensor(len(x) / 2)", True),
    ],
)
def test_arithmetic_on_data_of_the_host_gives_such_data(made: str, shown: bool) -> None:
    """It must be copied."""
    text = f"import torch\nfor x, d in loader:\n    x = x.to('cuda')\n    done = {made}.to('cuda')\n{STEP}"
    assert ("transfer.tensor-made-on-cpu" in sure(text)) == shown


@pytest.mark.parametrize(("read", "shown"), [("if torch.isnan(loss): raise ValueError", True), ("pass", False)])
def test_a_loss_that_becomes_a_number_later_is_a_tensor_before(read: str, shown: bool) -> None:
    """The name is given its own value at the end."""
    text = f"import torch\nfor x, y in loader:\n    x = x.cuda()\n{STEP}    {read}\n    loss = float(loss)\n"
    assert ("sync.branch-on-loss" in hits(text)) == shown


@pytest.mark.parametrize(("condition", "shown"), [("torch.isfinite(norm)", True), ("norm is not None", False)])
def test_a_norm_of_gradients_lies_on_the_device(condition: str, shown: bool) -> None:
    """What clipping gives back is a tensor."""
    text = "import torch\nfor x, y in loader:\n    x = x.cuda()\n    criterion(model(x), y).backward()\n"
    text += "    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    assert ("sync.branch-on-loss" in hits(f"{text}    if {condition}:\n        optimizer.step()\n")) == shown


@pytest.mark.parametrize(
    ("moved", "read", "shown"),
    [
        ("x, y = x.cuda(), y.cuda()", "targets.extend(y.tolist())", True),
        ("x = x.cuda()", "targets.extend(y.tolist())", False),
        ("x = x.cuda()", "targets.extend(y.tolist())\n            y = y.cuda()", False),
        ("x = x.cuda()", "losses.append(criterion(net(x), y).cpu().numpy())", True),
        ("x = x.cuda()", "found.append(net(x).cpu())", False),
    ],
)
def test_what_an_evaluation_copies_back(moved: str, read: str, shown: bool) -> None:
    """Labels that were copied there and the loss; results must be kept somewhere."""
    text = f"""\
{LOADER}
def evaluate(net, loader):
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            {moved}
            {read}
"""
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("loader", "line", "shown"),
    [
        ("DataLoader(data, 32, num_workers=4)", "x, y = next(iter(loader))", True),
        ("DataLoader(data, 32, num_workers=args.workers)", "x, y = next(iter(loader))", True),
        ("DataLoader(data, 32)", "x, y = next(iter(loader))", False),
        ("DataLoader(data, 32, num_workers=4)", "x, y = next(batches)", False),
        (
            "DataLoader(data, 32, num_workers=4)",
            "try:\n        x, y = next(batches)\n    except StopIteration:\n        x, y = next(iter(loader))",
            False,
        ),
        ("DataLoader(data, 32, num_workers=4)", "if step == 0:\n        x, y = next(iter(loader))", False),
    ],
)
def test_a_loader_that_is_begun_anew_for_each_batch(loader: str, line: str, *, shown: bool) -> None:
    """Its workers start again for one batch; an iterator that is kept, and one batch to look at, are none."""
    text = f"{LOADER}loader = {loader}\nbatches = iter(loader)\nfirst = next(iter(loader))\nfor step in range(1000):\n    {line}\n{STEP}"
    found = hits(text).get("dataloader.workers-made-again", [])
    assert found == ([8] if shown else [])


def test_the_parts_of_a_batch_are_steps_and_no_epochs() -> None:
    """The optimizer steps behind the loop over micro-batches: what is read in it is read in each step."""
    text = """
        import torch
        def train(net, loader, optimizer, criterion):
            for batches in loader:
                accumulate(net, batches, optimizer, criterion)
        def accumulate(net, batches, optimizer, criterion):
            for batch in batches:
                x = batch.cuda()
                words = net(x).sum().item()
                for part in x.chunk(4):
                    loss = criterion(net(part), words)
                    loss.backward()
            optimizer.step()
    """
    assert hits(text)["sync.per-step"] == [9]


def test_sums_of_losses_data_and_batches_by_name() -> None:
    """A sum on the device that is converted in each step, `.data`, the items of a batch, and a comprehension over a loader."""
    text = """
        import torch
        from torch.utils.data import DataLoader
        def train(net, data, optimizer, bar, device):
            loader = DataLoader(data, num_workers=4, pin_memory=True)
            total = 0.0
            for features in loader:
                features = {name: value.to(device) for name, value in features.items()}
                loss = net(**features).mean()
                loss.backward()
                optimizer.step()
                total += loss.detach()
                bar.set_postfix(loss=float(total))
                kept.append(float(loss.data))
            net.eval()
            with torch.no_grad():
                return [net(x.cuda()).mean().item() for x in loader]
    """
    found = hits(text)

    assert found["sync.per-step"] == [13, 14, 17]
    assert found["transfer.blocking"] == [8, 17]


def test_a_function_by_another_name() -> None:
    """A choice of two, and one that is compiled, are called where their name is."""
    text = """
        import torch
        def first(net, x, optimizer):
            print(net(x).sum().item())
        def second(net, x, optimizer):
            loss = net(x.cuda()).mean()
            loss.backward()
            optimizer.step()
            return loss.item()
        def train(net, loader, optimizer, warm):
            show = first if warm else print
            step = torch.compile(second)
            for x in loader:
                show(net, x, optimizer)
                step(net, x, optimizer)
    """
    assert hits(text)["sync.per-step"] == [4, 9]

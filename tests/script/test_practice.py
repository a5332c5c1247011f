"""What programs of other people showed: each class of a place that was missed, or of a hit that was none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sysperf.engine import lint as engine
from sysperf.model.finding import Finding
from tests.script.scripts import hits, judged, shipped

STEP = "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
LOADER = "import torch\nfrom torch.utils.data import DataLoader\ndevice = torch.device('cuda')\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("print(loss.detach().numpy())", False),
        ("print(loss.detach().cpu().numpy())", True),
        ("print(loss.detach().cpu().reshape(-1).numpy())", True),
        ("print(loss.numpy(force=True))", True),
    ],
)
def test_numpy_waits_for_no_device(line: str, shown: bool) -> None:
    """Of a tensor there, it raises: without a copy to the CPU the program trains on the CPU."""
    assert ("sync.per-step" in hits(f"import torch\nfor x, y in loader:\n{STEP}    {line}\n")) == shown


@pytest.mark.parametrize("line", ["loss = loss.item()", "y = y.cpu().numpy()", "y = y.detach().cpu()"])
def test_a_name_may_be_given_its_own_number(line: str) -> None:
    """What is read is what the name was before."""
    text = f"import torch\ndef show(loss, y):\n    {line}\nfor x, y in loader:\n    y = y.cuda()\n{STEP}    show(loss, y)\n"
    assert "sync.per-step" in hits(text)


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("loss.detach().mean() > other_loss.detach()", True),
        ("bound > loss.detach()", True),
        ("len(x) > 3", False),
        ("x.size(0) > 3", False),
    ],
)
def test_detached_losses_are_compared_on_the_host(condition: str, shown: bool) -> None:
    """A loss without its graph is on the device all the same."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    if {condition}:\n        scale = 2\n"
    assert ("sync.branch-on-loss" in hits(text)) == shown


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("train_one_epoch(model, loader, optimizer, device)", {"dataloader.workers-made-again", "dataloader.pin-memory-off"}),
        ("engine.train(model, data=loader)", {"dataloader.workers-made-again"}),
        ("print(len(loader))", set()),
        ("if epoch % 10 == 0: evaluate(model, loader, device)", set()),
    ],
)
def test_a_function_of_another_file_goes_through_a_loader(call: str, found: set[str]) -> None:
    """Once an epoch; one that gets the device, too, copies batches there."""
    text = f"{LOADER}loader = DataLoader(data, num_workers=4)\nfor epoch in range(90):\n    {call}\n"
    assert set(hits(text)) == found


@pytest.mark.parametrize(
    ("condition", "shown"), [("if torch.cuda.is_available():", True), ("if args.deterministic:", False), ("if True:", False)]
)
def test_a_gpu_is_no_choice(condition: str, shown: bool) -> None:
    """A setting for every machine with a GPU is one that nobody chose."""
    text = f"import torch\n{condition}\n    torch.backends.cudnn.deterministic = True\n"
    assert ("kernels.deterministic-on" in hits(text)) == shown


@pytest.mark.parametrize(
    ("loader", "call", "shown"),
    [
        ("testLoader", "model(a)", True),
        ("tqdm(val_dataloader)", "model.forward(a)", True),
        ("enumerate(test_loader, 1)", "model(a)", True),
        ("testLoader", "model(a).backward()", False),
        ("source_loader", "model(a)", False),
    ],
)
def test_a_loader_of_held_out_data_is_an_evaluation(loader: str, call: str, shown: bool) -> None:
    """Also in the middle of a training loop, without `eval()`."""
    text = f"import torch\nfor step, (x, y) in enumerate(loader):\n{STEP}    if step % 100 == 0:\n        for a in {loader}:\n            show({call})\n"
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(("given", "kept"), [("", True), (", worker_init_fn=seed", False)])
def test_workers_that_are_seeded_for_each_epoch_are_started_for_each(given: str, kept: bool) -> None:
    """Their samples would be others."""
    text = f"{LOADER}import torchvision\ndata = torchvision.datasets.MNIST('x')\nloader = DataLoader(data, num_workers=4{given})\nfor epoch in range(90):\n    for x, y in loader:\n        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    (found,) = [each for each in judged_text(text) if each.rule == "dataloader.workers-made-again"]
    assert (found.source_fix is not None) == kept


@pytest.mark.parametrize(("dataset", "pins"), [("Images('train')", True), ("Images('train', device)", False)])
def test_a_data_set_for_a_device_is_not_pinned(dataset: str, pins: bool) -> None:
    """Its samples may lie there, which pinning does not take."""
    text = f"{LOADER}loader = DataLoader({dataset}, num_workers=4)\nfor x in loader:\n    x = x.to(device)\n    model(x).mean().backward()\n    optimizer.step()\n"
    (found,) = [each for each in judged_text(text) if each.rule == "dataloader.pin-memory-off"]
    assert (found.source_fix is not None) == pins


def judged_text(text: str) -> list[Finding]:
    """What the shipped rules say."""
    return list(engine.examine_file(engine.Target("train.py", True, text.encode()), shipped()).hypotheses)


TRAINS = "import torch\nfor x in loader:\n    loss = model(x).mean()\n    loss.backward()\n    print(loss.item())\n"


def test_a_notebook_of_version_3_is_read(tmp_path: Path) -> None:
    """Its cells are in sheets, and have an input."""
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": TRAINS}]}], "nbformat": 3, "metadata": {}}))
    assert [found.rule for found in engine.lint([str(path)], shipped()).hypotheses] == ["sync.per-step"]


@pytest.mark.parametrize("metadata", [{"kernelspec": {"language": "julia"}}, {"language_info": {"name": "R"}}])
def test_a_notebook_in_another_language_is_named(metadata: dict[str, object], tmp_path: Path) -> None:
    """Not what its first line is no Python for."""
    path = tmp_path / "other.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": "x <- 1 # torch"}], "nbformat": 4, "metadata": metadata}))
    (unread,) = engine.lint([str(path)], shipped()).unread
    assert unread.reason in ("a notebook in julia", "a notebook in R")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("assert x.max() <= 3", True),
        ("assert not torch.isnan(loss)", True),
        ("assert len(x) == 3, loss.item()", False),
        ("scale = 2 if loss > 3 else 1", True),
        ("assert x.shape[0] <= 3", False),
    ],
)
def test_what_is_asserted_of_a_tensor_is_waited_for(line: str, shown: bool) -> None:
    """In each step; a message is made of what failed only."""
    found = hits(f"import torch\nfor x, y in loader:\n    x = x.cuda()\n{STEP}    {line}\n")
    assert bool({"sync.branch-on-loss", "sync.per-step"} & set(found)) == shown


@pytest.mark.parametrize(("index", "shown"), [("y > 0", True), ("mask", True), ("kept", False), ("3", False)])
def test_a_mask_may_have_a_name(index: str, shown: bool) -> None:
    """It is a comparison of tensors; an index of numbers has a known length."""
    text = f"import torch\nfor x, y in loader:\n    mask = y > 0\n    kept = torch.arange(3)\n    output = model(x)\n    loss = criterion(output[{index}], y)\n    loss.backward()\n    optimizer.step()\n"
    assert ("sync.boolean-index" in hits(text)) == shown


@pytest.mark.parametrize("name", ["NoamOptimizer", "OptimWrapper"])
def test_a_class_around_an_optimizer_makes_the_step(name: str) -> None:
    """Its `step` gets the loss, and makes the backward pass."""
    text = f"""
import torch
class {name}:
    def step(self, loss):
        loss.backward()
        self._adam.step()
class Trainer:
    def __init__(self, model):
        self._opt = {name}(model)
    def run(self, loader):
        for x in loader:
            loss = self._model(x).mean()
            self._opt.step(loss)
            print(loss.item())
"""
    assert "sync.per-step" in hits(text)


@pytest.mark.parametrize(
    ("head", "shown"), [("model.eval()", True), ("model.eval()\n    torch.set_grad_enabled(False)", False), ("model.train()", False)]
)
def test_an_evaluation_may_go_over_parts_of_what_lies_in_memory(head: str, shown: bool) -> None:
    """A function that says so, and turns the model to evaluation."""
    text = f"import torch\ndef evaluate(model, data):\n    {head}\n    for i in range(0, len(data), 8):\n        show(model(data[i]))\nfor x, y in loader:\n{STEP}evaluate(model, data)\n"
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


def test_a_wait_is_told_once() -> None:
    """Where it is read, not again by what takes the number."""
    assert hits(f"import torch\nfor x, y in loader:\n{STEP}    show(float(loss.cpu().detach()))\n")["sync.per-step"] == [6]


@pytest.mark.parametrize(
    ("scores", "dim", "shown"),
    [
        ("torch.einsum('bid,bjd->bij', q, k)", "-1", True),
        ("torch.einsum('bid,bjd->bij', q, k)", "1", False),
        ("torch.einsum('bsd,dk->bsk', q, self.weight)", "-1", False),
        ("torch.matmul(q, k.transpose(-2, -1))", "-1", True),
    ],
)
def test_pooling_by_parameters_is_no_attention(scores: str, dim: str, shown: bool) -> None:
    """Nor is a softmax over what no fused kernel normalises."""
    text = f"import torch\nclass Pool(torch.nn.Module):\n    def forward(self, q, k, v):\n        a = torch.softmax({scores}, dim={dim})\n        return torch.matmul(a, v)\n"
    assert ("attention.unfused" in hits(text)) == shown


def test_what_a_test_does_is_no_step() -> None:
    """One backward pass beside a reference, with the device waited for."""
    body = "    out = model(x)\n    out.backward()\n    torch.cuda.synchronize()\n"
    assert "sync.explicit" not in hits(f"import torch\ndef test_backward(x):\n{body}for x in sizes:\n    test_backward(x)\n")
    assert "sync.explicit" in hits(f"import torch\ndef run_backward(x):\n{body}for x in sizes:\n    run_backward(x)\n")


@pytest.mark.parametrize(("given", "shown"), [("batch_size=8", True), ("batch_size=None", False)])
def test_a_data_set_that_makes_batches_needs_no_workers(given: str, shown: bool) -> None:
    """A loader around it only passes them on."""
    assert ("dataloader.inline" in hits(f"{LOADER}train_loader = DataLoader(data, {given})\nfor x, y in train_loader:\n{STEP}")) == shown


@pytest.mark.parametrize(("default", "shown"), [("0", False), ("4", True)])
def test_a_base_class_may_keep_an_option(default: str, shown: bool) -> None:
    """Under the name of the parameter that it is given."""
    text = f"""{LOADER}
class Net(Base):
    def __init__(self, workers={default}):
        super().__init__(workers=workers)
    def fit(self):
        loader = DataLoader(data, num_workers=self.workers)
        for epoch in range(90):
            for x, y in loader:
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
"""
    assert ("dataloader.workers-made-again" in hits(text)) == shown


def test_a_loader_that_is_made_anew_is_told_as_that() -> None:
    """Workers that persist would not help it."""
    text = f"{LOADER}for epoch in range(90):\n    loader = DataLoader(data, num_workers=4)\n    for x, y in loader:\n        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    assert {"dataloader.rebuilt"} == {rule for rule in hits(text) if rule.startswith("dataloader")}


def test_a_function_that_makes_everything_deterministic_was_chosen() -> None:
    """By its name."""
    line = "torch.backends.cudnn.deterministic = True"
    assert "kernels.deterministic-on" not in hits(f"import torch\ndef enable_full_determinism():\n    {line}\n")
    assert "kernels.deterministic-on" in hits(f"import torch\ndef seed_everything():\n    {line}\n")


@pytest.mark.parametrize(
    ("made", "body", "shown"),
    [
        ("out = model(x)", "take(out[i])", True),
        ("out = model(x)", "h = self.cells[i](out[i])", False),
        ("out = [layer(x) for layer in layers]", "take(out[i])", False),
        ("out = model(x).cpu().numpy()", "take(out[i])", False),
    ],
)
def test_a_loop_over_layers_or_lists_is_no_loop_over_elements(made: str, body: str, shown: bool) -> None:
    """A list's elements are whole tensors; each round of the others runs a layer of its own."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        {made}\n        for i in range(len(out)):\n            {body}\n"
    assert ("program.element-loop" in hits(text.replace("model(x)", "torch.relu(x)"))) == shown


def test_an_array_is_indexed_at_once() -> None:
    """Its mask is in the host's memory."""
    assert "sync.boolean-index" not in hits(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        y = x.detach().cpu().numpy()\n        return y[y > 0]\n"
    )


@pytest.mark.parametrize(("owner", "shown"), [("batches", True), ("losses", False), ("self.optimizers", False)])
def test_items_of_a_dictionary_of_batches_are_steps(owner: str, shown: bool) -> None:
    """Several losses or optimizers are parts of one."""
    text = f"import torch\nfor name, x in {owner}.items():\n    loss = criterion(model(x))\n    loss.backward()\n    optimizer.step()\n    print(loss.item())\n"
    assert ("sync.per-step" in hits(text)) == shown


def test_a_step_may_have_several_optimizers() -> None:
    """Each in a round of its own."""
    body = "    loss = self.model(batch)\n    loss.backward()\n    for each in self.optimizers.values():\n        each.step()\n    return loss.item()\n"
    assert "sync.per-step" in hits(f"import torch\ndef step_batch(self, batch):\n{body.replace('each', 'opt')}")


def test_a_loader_may_be_gathered_in_each_epoch() -> None:
    """By a comprehension."""
    text = (
        f"{LOADER}loader = DataLoader(data, num_workers=4)\nfor epoch in range(90):\n    batches = [x for x in loader]\n    fit(batches)\n"
    )
    assert "dataloader.workers-made-again" in hits(text)


@pytest.mark.parametrize(
    ("after", "shown"), [("history.append(sum(losses) / 3)", True), ("total = sum(losses)\n    total.backward()", False)]
)
def test_losses_that_are_only_shown_keep_their_graphs(after: str, shown: bool) -> None:
    """Their mean is put into a list, and differentiated by nobody."""
    step = "        loss = criterion(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    text = (
        f"import torch\nfor epoch in range(90):\n    losses = []\n    for x, y in loader:\n{step}        losses.append(loss)\n    {after}\n"
    )
    assert ("program.loss-keeps-graph" in hits(text)) == shown


def test_the_data_of_a_loss_have_no_graph() -> None:
    """A sum of them keeps none."""
    text = "import torch\ndef train(x):\n    loss = criterion(model(x))\n    loss.backward()\n    optimizer.step()\n    return loss.data[0]\nfor x in loader:\n    loss = train(x)\n    total += loss\n"
    assert "program.loss-keeps-graph" not in hits(text)


@pytest.mark.parametrize(
    ("line", "shown"),
    [("info['error'] = y.sum(1).to('cpu')", False), ("info['error'] = y.sum(1)", True), ("info['error'] = y.numpy()", False)],
)
def test_an_item_of_a_dictionary_is_what_it_was_given(line: str, shown: bool) -> None:
    """Copied to the CPU, it is waited for there."""
    text = f"import torch\nfor x, z in loader:\n    y = model(x)\n    loss = criterion(y, z)\n    loss.backward()\n    optimizer.step()\n    {line}\n    print(torch.max(info['error']).item())\n"
    assert (text.count("\n") in hits(text).get("sync.per-step", [])) == shown


def test_the_places_of_a_mask_are_no_mask() -> None:
    """They are numbers, as many as were waited for."""
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n        rows, cols = (x == y).nonzero(as_tuple=True)\n        return x[rows]\n"
    assert "sync.boolean-index" not in hits(text)
    assert "sync.dynamic-shape" in hits(text)


def test_a_statement_with_several_masks_is_one_place() -> None:
    """All of them wait for the same mask."""
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n        m = y > 0\n        return torch.dist(x[m], y[m])\n"
    assert hits(text)["sync.boolean-index"] == [5]


def test_the_cache_is_emptied_for_each_batch_of_an_evaluation() -> None:
    """As in a training step."""
    text = "import torch\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        show(model(x))\n        torch.cuda.empty_cache()\n"
    assert "sync.explicit" in hits(text)


def test_who_turns_the_collector_off_chooses_when_it_runs() -> None:
    """In each step, where nothing else collects."""
    text = f"import gc\nimport torch\n{{off}}\nfor x, y in loader:\n{STEP}    gc.collect()\n"
    assert "sync.explicit" in hits(text.format(off=""))
    assert "sync.explicit" not in hits(text.format(off="gc.disable()"))


@pytest.mark.parametrize(("line", "shown"), [("", True), ("import opacus\n", False), ("def reward_of(obs, action, reward): pass\n", False)])
def test_small_or_hooked_networks_are_not_to_be_compiled(line: str, shown: bool) -> None:
    """Those that learn from an environment, or with a gradient for each sample."""
    step = "model = torch.nn.Linear(8, 2).cuda()\nfor x in loader:\n    loss = model(x.cuda()).mean()\n    loss.backward()\n    optimizer.step()\n"
    assert ("compile.not-compiled" in hits(f"import torch\n{line}{step}")) == shown


def test_a_number_or_an_output_is_asked_for_its_item() -> None:
    """Numbers have none, so it is the output."""
    text = "import torch\nfor x in loader:\n    extra = model(x).extra if wide else 0\n    loss = criterion(model(x))\n    loss.backward()\n    optimizer.step()\n    print(extra.item())\n"
    assert hits(text)["sync.per-step"] == [7]
    rates = text.replace("extra.item()", "[lr.item() for lr in scheduler.rates()]")
    assert "sync.per-step" not in hits(rates)  # what a scheduler gives is a number of Python, or of numpy


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("torch.randint(9, (1,))", False),
        ("torch.tensor([1, 2]).repeat(3)", False),
        ("torch.randint(9, (1,), device='cuda')", True),
        ("torch.randint(9, (1,)).to('cuda')", True),
        ("torch.nn.functional.mse_loss(torch.tensor(a), torch.tensor(b))", False),
    ],
)
def test_what_is_made_on_the_host_is_read_at_once(made: str, shown: bool) -> None:
    """Without a device, and not copied to one; so is what is computed of it."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    n = {made}\n    print(n.item())\n"
    assert ("sync.per-step" in hits(text)) == shown
    assert ("sync.per-step" in hits("import torch\ntorch.set_default_device('cuda')\n" + text)) or "mse" in made


def test_elements_of_a_list_of_host_tensors_lie_there() -> None:
    """Also where a comprehension makes the list."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    parts = [torch.tensor(n) for n in names]\n    rows = [each.flatten().tolist() for each in parts]\n"
    assert "sync.per-step" not in hits(text)


def test_gated_weights_are_no_fused_attention() -> None:
    """They are multiplied by something else before the values."""
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, q, k, v, g):\n        a = torch.softmax(q @ k.transpose(-2, -1), dim=-1) * g\n        return a @ v\n"
    assert "attention.unfused" not in hits(text)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [("True", True), ("mode=True", True), ("self.detect", False), ("self.detect, check_nan=True", False), ("False", False)],
)
def test_an_option_of_anomaly_detection_is_a_choice(arguments: str, shown: bool) -> None:
    """Somebody asks for it."""
    text = f"import torch\nclass Run:\n    def start(self):\n        torch.autograd.set_detect_anomaly({arguments})\n"
    assert ("program.anomaly-detection-on" in hits(text)) == shown


def test_numpy_counts_at_once() -> None:
    """Its nonzero has the same name."""
    assert "sync.dynamic-shape" not in hits(f"import torch\nimport numpy as np\nfor x, y in loader:\n{STEP}    print(np.nonzero(mask))\n")


@pytest.mark.parametrize(
    ("head", "dataset", "shown"), [("", "Images()", True), ("import gym\n", "Experience()", False), ("", "range(9)", False)]
)
def test_samples_of_an_environment_need_no_workers(head: str, dataset: str, shown: bool) -> None:
    """They are made while the program trains; numbers need none either."""
    text = f"{LOADER}{head}train_loader = DataLoader({dataset})\nfor x, y in train_loader:\n{STEP}"
    assert ("dataloader.inline" in hits(text)) == shown


def test_what_a_helper_copies_to_the_cpu_lies_there() -> None:
    """Also what is computed of it: only the copies wait."""
    text = """
import torch
class Agent:
    def evaluate(self, states):
        dist = self.policy(states)
        return self.value(states), dist.log_prob(states).cpu()
    def update_params(self):
        for batch in self.rollout:
            values, log_prob = self.evaluate(batch.states)
            loss = -torch.mean(batch.advantages * log_prob)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.logs.append(loss.item())
"""
    assert hits(text)["sync.per-step"] == [6]


@pytest.mark.parametrize("test", ["torch.isnan(loss).sum() != 0", "torch.isnan(loss).any() == True"])
def test_a_count_of_nans_is_compared_on_the_host(test: str) -> None:
    """With zero, or with a truth."""
    assert "sync.branch-on-loss" in hits(f"import torch\nfor x, y in loader:\n{STEP}    if {test}:\n        raise ValueError\n")


@pytest.mark.parametrize("wrapper", ["model = FSDP(Net())", "model = DDP(Net())", "import opacus"])
def test_inference_mode_is_not_for_wrapped_models(wrapper: str) -> None:
    """They keep parameters or buffers of their own."""
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x\n{}\n@torch.no_grad()\ndef evaluate(model, loader):\n    n = 0\n    for x in loader:\n        n += model(x).sum().item()\n    return n\n"
    assert "program.no-grad-in-evaluation" in hits(text.format(""))
    assert "program.no-grad-in-evaluation" not in hits(text.format(wrapper))


ACTS = """
import torch, gymnasium
def learn(env, agent, optimizer, buffer):
    state = env.reset()
    while True:
        state, reward, done, info = env.step(agent(state))
        loss = agent.loss(buffer.sample())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
REPLAYS = """
import torch
def update(self, rollout):
    rewards, actions = rollout.rewards, rollout.actions
    for batch in rollout.minibatches():
        loss = self.loss(batch.to(self.device))
        loss.backward()
        self.optimizer.step()
        losses.append(loss.item())
"""
HANDED = """
import torch
class Agent:
    def update(self, batch, rewards, actions):
        loss = self.loss(batch, rewards, actions)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
"""


@pytest.mark.parametrize(("text", "confidence"), [(ACTS, ""), (REPLAYS, "medium"), (HANDED, "low")])
def test_an_environment_waits_for_each_action_anyway(text: str, confidence: str) -> None:
    """A loop over replayed samples does not act; who repeats an agent's step is not known."""
    found = [each.confidence for each in judged(text).hypotheses if each.rule == "sync.per-step"]
    assert found == ([confidence] if confidence else [])


@pytest.mark.parametrize(
    ("place", "shown"),
    [("def train_epoch({}):", True), ("def search_learning_rate({}):", False), ("class LRFinder:\n  def find({}):", False)],
)
def test_steps_that_look_for_a_learning_rate_are_few(place: str, shown: bool) -> None:
    """They need each loss, and end soon; nothing is trained."""
    body = f"for x, y in loader:\n{STEP}    print(loss.item())\n"
    text = "import torch\n" + place.format("model, loader, optimizer") + "\n" + "".join(f"      {line}\n" for line in body.splitlines())
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("device", "shown"), [("torch.device('cpu')", False), ("'cpu'", False), ("x.device", True)])
def test_a_device_may_be_that_of_the_host(device: str, shown: bool) -> None:
    """Also as an object."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.tensor([1, 2], device={device})\n"
    assert ("transfer.tensor-from-python" in hits(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("torch.Tensor()", False), ("torch.Tensor(3)", True), ("torch.zeros(len(x))", True)])
def test_an_empty_tensor_copies_nothing(made: str, shown: bool) -> None:
    """It is a start for torch.cat."""
    text = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return {made}.to(x.device)\n"
    assert ("transfer.tensor-made-on-cpu" in hits(text)) == shown


@pytest.mark.parametrize(("made", "shown"), [("model(x)", True), ("[x] + model(x)", False), ("[x] * 4", False)])
def test_a_list_that_is_put_together_is_no_tensor(made: str, shown: bool) -> None:
    """Its elements cost nothing."""
    text = (
        f"import torch\nfor x, y in loader:\n{STEP}    output = {made}\n    for i in range(len(output)):\n        print(output[i].max())\n"
    )
    assert ("program.element-loop" in hits(text)) == shown


@pytest.mark.parametrize(
    ("made", "confidence"),
    [
        ("DataLoader(Images(), shuffle=True)", "medium"),
        ("DataLoader(train_set)", "medium"),
        ("DataLoader(val_set)", ""),
        ("DataLoader(Images())", "low"),
    ],
)
def test_a_loader_that_shuffles_trains(made: str, confidence: str) -> None:
    """A loader that no loop of the file goes through is known by its order, or by what its data set is called."""
    text = f"from torch.utils.data import DataLoader\ndef build(train_set, val_set):\n    return {made}\n"
    found = [each.confidence for each in judged(text).hypotheses if each.rule == "dataloader.inline"]
    assert found == ([confidence] if confidence else [])


def test_who_offers_both_ways_knows_dataparallel() -> None:
    """Where DistributedDataParallel is in the same file, somebody chooses."""
    text = "import torch\nmodel = torch.nn.DataParallel(model)\n"
    assert "ddp.dataparallel" in hits(text)
    assert "ddp.dataparallel" not in hits(text + "model = torch.nn.parallel.DistributedDataParallel(model)\n")


@pytest.mark.parametrize(("call", "confidence"), [("Image.open(self.files[at])", "low"), ("glob.glob(self.folder + '/*')", "medium")])
def test_listing_a_folder_for_each_sample_is_surer_than_opening_a_file(call: str, confidence: str) -> None:
    """Most data sets have to open something."""
    head = "import glob\nfrom PIL import Image\nfrom torch.utils.data import Dataset\n"
    text = f"{head}class Images(Dataset):\n    def __getitem__(self, at):\n        return {call}\n"
    assert [each.confidence for each in judged(text).hypotheses if each.rule == "dataloader.decoding-in-getitem"] == [confidence]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("step % args.accum_steps == 0", True),
        ("step % args.update_freq == 0", True),
        ("step % args.weight_update_frequency == 0", False),
        ("step % args.target_update_freq == 0", False),
        ("profiling_enabled", False),
    ],
)
def test_networks_that_are_copied_now_and_then_accumulate_nothing(condition: str, shown: bool) -> None:
    """What runs once an accumulated step runs in each step of the optimizer; a copy for actors does not."""
    text = f"import torch\nfor step, (x, y) in enumerate(loader):\n{STEP}    if {condition}:\n        torch.cuda.empty_cache()\n"
    assert ("sync.explicit" in hits(text)) == shown


@pytest.mark.parametrize(
    ("path", "shown"), [("train.py", True), ("benchmarks/rnn.py", False), ("bench_rnn.py", False), ("a/bench/b/x.py", True)]
)
def test_a_benchmark_waits_to_measure(path: str, shown: bool) -> None:
    """By the name of the file, or of its folder."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    torch.cuda.synchronize()\n"
    assert ("sync.explicit" in hits(text, path)) == shown


def test_a_function_for_older_versions_uses_older_names() -> None:
    """A decorator names the version."""
    text = "import torch\n{}\ndef make():\n    return torch.cuda.amp.GradScaler()\n"
    assert "precision.amp-old-names" in hits(text.format("@cached"))
    assert "precision.amp-old-names" not in hits(text.format('@implement_for("torch", None, "2.3")'))


def test_a_loader_of_an_environment_is_no_loader_of_training() -> None:
    """It gives prompts and tasks."""
    text = "from torch.utils.data import DataLoader\ndef {}(train_dataset):\n    return DataLoader(train_dataset, shuffle=True)\n"
    assert "dataloader.inline" in hits(text.format("make_loader"))
    assert "dataloader.inline" not in hits(text.format("make_gsm8k_env"))


@pytest.mark.parametrize(
    ("condition", "body", "shown"),
    [
        ("not self.made", "self.made = True", False),
        ("not self.made", "self.other = True", True),
        ("self.makes", "self.makes = 1", True),
        ("not self.size or self.size != x.shape", "self.size = x.shape", False),
        ("not self.size or self.size != x.shape", "self.other = x.shape", True),
    ],
)
def test_a_flag_that_is_set_lets_it_run_once(condition: str, body: str, shown: bool) -> None:
    """Like `is None`, and an assignment."""
    text = f"""
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                if {condition}:
                    self.sums = torch.zeros(3).to(x.device)
                    {body}
    """
    assert ("transfer.tensor-made-on-cpu" in hits(text)) == shown


def test_a_sum_on_the_host_is_copied_once() -> None:
    """Numbers of the host are added up there first."""
    text = """
        import torch
        for x, y in loader:
            count = torch.tensor(0)
            count += y.numel()
            loss = criterion(model(x), y) / count.to(device)
            loss.backward()
            optimizer.step()
    """
    assert "transfer.tensor-made-on-cpu" not in hits(text)
    assert "transfer.tensor-made-on-cpu" in hits(text.replace("count += y.numel()", "pass"))


def test_anomaly_detection_is_an_option() -> None:
    """Somebody who debugs asks for it."""
    text = "import torch\n{}torch.autograd.set_detect_anomaly(True)\nfor x, y in loader:\n" + STEP
    assert "program.anomaly-detection-on" in hits(text.format(""))
    assert "program.anomaly-detection-on" not in hits(text.format("if config.detect_anomaly:\n    "))


@pytest.mark.parametrize(("body", "shown"), [("pass", False), ("return x, loss", True)])
def test_an_abstract_method_gives_nothing_back(body: str, shown: bool) -> None:
    """The one that is written says what `train_step` gives."""
    text = f"""
        import torch
        class Trainer:
            def fit(self, loader, optimizer):
                total = 0
                for x, y in loader:
                    out, loss = self.train_step(x, y)
                    total += loss
                    optimizer.step()
            def train_step(self, x, y):
                {body}
        class Default(Trainer):
            def train_step(self, x, y):
                loss = criterion(self.model(x), y)
                loss.backward()
                return x, loss.item()
    """
    assert ("program.loss-keeps-graph" in hits(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("train_loader", True), ("batches", False)])
def test_a_loader_of_a_setup_is_known_by_its_name(name: str, shown: bool) -> None:
    """One function makes it, another goes through it, and a third file calls both."""
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        device = torch.device("cuda")
        def setup(data):
            {name} = DataLoader(data, num_workers=4)
            return {name}
        def run({name}, model, optimizer):
            for epoch in range(4):
                for x, y in {name}:
                    x, y = x.to(device), y.to(device)
                    criterion(model(x), y).backward()
                    optimizer.step()
    """
    assert ({"dataloader.pin-memory-off", "dataloader.workers-made-again"} <= hits(text).keys()) == shown


@pytest.mark.parametrize(("name", "shown"), [("train", True), ("find_lr", False)])
def test_a_step_that_measures_is_one_elsewhere(name: str, shown: bool) -> None:
    """A function that both the training and the search for a learning rate call."""
    text = f"""
        import torch
        class Trainer:
            def step(self, loss):
                loss.backward()
                self.optimizer.step()
            def {name}(self, loader):
                for x, y in loader:
                    loss = criterion(self.model(x), y)
                    self.step(loss)
                    self.losses.append(loss.item())
    """
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("condition", "shown"), [("self.verbosity >= 2", False), ("self.size >= 2", True)])
def test_what_is_verbose_is_asked_for(condition: str, shown: bool) -> None:
    """As a level, too."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    if {condition}:\n        show(loss.item())\n"
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("default", "condition", "shown"),
    [
        ("=1", "verbose > 0", True),
        ("=1", "verbose > 1", False),
        ("", "verbose > 0", False),
        ("=True", "verbose", True),
        ("=False", "verbose", False),
    ],
)
def test_what_is_shown_by_default_need_not_be_asked_for(default: str, condition: str, shown: bool) -> None:
    """``verbose=1`` of a library's function is what its callers leave there."""
    step = STEP.replace("\n", "\n    ")
    text = f"import torch\ndef fit(model, loader, verbose{default}):\n    for x, y in loader:\n    {step}    if {condition}:\n            show(loss.item())\n"
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("other", "shown"), [("configure_optimizers", True), ("configure", False)])
def test_hooks_tell_what_a_base_of_another_file_is(other: str, shown: bool) -> None:
    """A class with a step and its optimizers is a module of Lightning."""
    text = f"""
        import torch
        from .base import GanModule
        class Gan(GanModule):
            def {other}(self):
                return torch.optim.Adam(self.parameters())
            def training_step(self, batch, index):
                loss = self.net(batch).mean()
                self.total = loss.item()
                return loss
    """
    assert ("sync.per-step" in hits(text)) == shown


def test_an_element_is_told_once() -> None:
    """Of two loops, one inside of the other, both of which go over its sizes."""
    text = """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                scores = self.net(x)
                for i in range(len(x)):
                    for i in range(len(scores)):
                        self.take(scores[i])
    """
    assert hits(text)["program.element-loop"] == [8]

"""What a place needs before it is said with medium confidence: that it runs in each step, that it waits for a device, that nobody needs it."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, sure

STEP = "    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("model = Net()", False),
        ("model = Net().to(device)", True),
        ("model = Net(cfg.optim.device)", True),
        ("model = Net().cuda()", True),
        ("model = Net(torch.device('cuda'))", True),
    ],
)
def test_a_file_without_a_word_of_devices_may_run_on_the_cpu(made: str, shown: bool) -> None:
    """Of the values that it reads, three in eight were no tensors of a device."""
    text = f"import torch\n{made}\nfor x, y in loader:\n{STEP}    losses.append(loss.item())\n    if torch.isnan(loss): continue\n"
    assert ({"sync.per-step", "sync.branch-on-loss"} <= sure(text)) == shown
    assert {"sync.per-step", "sync.branch-on-loss"} <= hits(text).keys()


@pytest.mark.parametrize(
    ("check", "shown"),
    [
        ("if torch.isnan(x).any(): raise ValueError('x')", False),
        ("if torch.isnan(x).any(): x = torch.nan_to_num(x)", True),
        ("if torch.isnan(loss): raise ValueError('loss')", True),
    ],
)
def test_an_input_that_is_checked_is_somebodys_wish(check: str, shown: bool) -> None:
    """A loss that is no number is looked for in each step; it can be looked for every N steps."""
    text = f"import torch\nfor x, y in loader:\n    x = x.cuda()\n{STEP}    {check}\n"
    assert ("sync.branch-on-loss" in sure(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("_check_finite", False), ("look", True)])
def test_a_function_that_checks_is_there_to_check(name: str, shown: bool) -> None:
    """By its name."""
    text = f"import torch\ndef {name}(out):\n    return out.max().item() < 9\nfor x, y in loader:\n    x = x.cuda()\n{STEP}    {name}(model(x))\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "exchanged", "shown"),
    [
        ("torch.tensor([stop]).to(device)", "dist.all_reduce(value)", False),
        ("torch.tensor([stop]).to(device)", "show(value)", True),
        ("loss.detach()", "dist.all_reduce(value)", True),
    ],
)
def test_ranks_need_what_they_agree_on(made: str, exchanged: str, shown: bool) -> None:
    """A flag of the host goes through a collective and comes back; a loss need not."""
    text = f"""
        import torch
        import torch.distributed as dist
        def train(loader, device):
            for x, y in loader:
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                value = {made}
                {exchanged}
                if value.item() == 1:
                    break
    """
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("loop", "shown"), [("collector", False), ("buffer", True)])
def test_a_collector_acts(loop: str, shown: bool) -> None:
    """TorchRL's collectors run the environment between the steps."""
    text = f"import torch, torchrl\ndevice = torch.device('cuda')\nfor x, y in {loop}:\n{STEP}    log(loss.item())\n"
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("torch.masked_select(out, mask).mean()", True),
        ("torch.masked_select(out, mask)", False),
        ("torch.unique(out)", False),
        ("(out > 0).nonzero()", False),
        ("out.repeat_interleave(counts + 1)", True),
    ],
)
def test_chosen_elements_are_needed_as_a_rule(expression: str, shown: bool) -> None:
    """Of 24 places that were judged, 17 needed just these elements; a sum, or a size that is known, needs no wait."""
    text = f"""
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                out = self.net(x)
                counts = x.sum(dim=1)
                mask = self.mask(x)
                return self.head({expression})
    """
    assert "sync.dynamic-shape" in hits(text)
    assert ("sync.dynamic-shape" in sure(text)) == shown


def test_deterministic_algorithms_are_wanted_as_a_rule() -> None:
    """None of seven such places would have been changed by anybody."""
    text = "import torch\ntorch.backends.cudnn.deterministic = True\n"
    assert "kernels.deterministic-on" in hits(text)
    assert "kernels.deterministic-on" not in sure(text)


@pytest.mark.parametrize(
    ("function", "epochs", "shown"),
    [("fit", "for epoch in range(9):", True), ("fit", "if True:", True), ("predict", "if True:", False)],
)
def test_a_loader_of_one_pass_gains_little_by_pinning(function: str, epochs: str, shown: bool) -> None:
    """Neither trained on nor gone through once an epoch."""
    step = "loss(model(x)).backward(); optimizer.step()" if function == "fit" else "outputs.append(model(x))"
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        device = torch.device("cuda")
        def {function}(data):
            loader = DataLoader(data, batch_size=64)
            {epochs}
                for x in loader:
                    x = x.to(device)
                    {step}
    """
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


@pytest.mark.parametrize("body", ["self.set_up(x)", "self.size = len(self.table(torch.arange(9).to(x.device)))"])
@pytest.mark.parametrize(("asked", "shown"), [("self.size is None or self.size < len(x)", False), ("self.other", True)])
def test_what_is_missing_may_be_made_by_a_method(body: str, asked: str, shown: bool) -> None:
    """Once, or once a size."""
    text = f"""
        import torch
        class Net(torch.nn.Module):
            def set_up(self, x):
                self.size = len(x)
                self.table = torch.arange(9).to(x.device)
            def forward(self, x):
                if {asked}:
                    {body}
                return self.net(x)
    """
    assert ("transfer.tensor-made-on-cpu" in hits(text)) == shown


def test_a_model_that_is_missing_is_compiled_once() -> None:
    """An evaluation once an epoch sets it up if nobody has."""
    text = """
        import torch
        class Trainer:
            def set_up(self):
                self.model = torch.compile(Net())
            def train(self):
                for epoch in range(9):
                    for x, y in self.loader:
                        criterion(self.model(x), y).backward()
                        self.optimizer.step()
                    self.evaluate()
            def evaluate(self):
                if self.model is None:
                    self.set_up()
    """
    assert "compile.in-loop" not in hits(text)
    assert "compile.in-loop" in hits(text.replace("if self.model is None", "if self.again"))


@pytest.mark.parametrize(("call", "shown"), [("save_model(model, x)", False), ("teacher_model(x)", True)])
def test_a_verb_names_a_function_and_no_model(call: str, shown: bool) -> None:
    """``save_model`` saves one."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    if step % 100 == 0:\n        model.eval()\n        out = {call}\n        model.train()\n"
    assert ("program.gradients-in-evaluation" in hits(text.replace("step % 100 == 0", "options.shows"))) == shown
    assert "program.gradients-in-evaluation" not in hits(text)  # one pass now and then costs little


def test_of_alternatives_one_tensor_is_made() -> None:
    """Branches that give a name its value are one place."""
    text = """
        import torch
        for x, y in loader:
            if kind == "even":
                weight = torch.tensor([1.0, 1.0]).to(device)
            elif kind == "log":
                weight = torch.tensor([1.0, share]).to(device)
            else:
                weight = torch.tensor([share, 1.0]).to(device)
            other = torch.zeros(3).to(device)
            loss = criterion(model(x), y, weight, other)
            loss.backward()
            optimizer.step()
    """
    assert hits(text)["transfer.tensor-made-on-cpu"] == [5, 10]


@pytest.mark.parametrize(
    "made", ["(torch.ones(9) * i).long()", "draw(9)", "Variable(torch.zeros(9))", "torch.zeros(9)", "(2 + torch.ones(9))"]
)
@pytest.mark.parametrize("device", ["device", ""])
def test_what_is_made_on_the_cpu_stays_there(made: str, device: str) -> None:
    """Through arithmetic, a helper, and the old Variable."""
    text = f"""
        import torch
        from torch.autograd import Variable
        def draw(n):
            return torch.randint(low=0, high=9, size=(n,))
        for i, (x, y) in enumerate(loader):
            t = {made}.to({device})
            loss = criterion(model(x, t), y)
            loss.backward()
            optimizer.step()
    """
    assert ("transfer.tensor-made-on-cpu" in hits(text)) == bool(device)


def test_tensors_are_made_for_each_batch_of_an_evaluation_too() -> None:
    """It costs there what it costs in training."""
    text = """
        import torch
        def evaluate(model, loader, device):
            model.eval()
            with torch.no_grad():
                for x, y in loader:
                    start = torch.zeros(3).to(device)
                    model(x.to(device), start)
    """
    assert "transfer.tensor-made-on-cpu" in sure(text)


def test_a_loader_that_a_generator_repeats_trains() -> None:
    """`cycle` gives its batches for ever, and the loop over steps takes the next one."""
    text = """
        import torch
        from accelerate import Accelerator
        from torch.utils.data import DataLoader
        accelerator = Accelerator()
        def cycle(loader):
            while True:
                for batch in loader:
                    yield batch
        def train(data, model, optimizer):
            loader = accelerator.prepare(DataLoader(data, shuffle=True))
            batches = cycle(loader)
            for step in range(1000):
                loss = model(next(batches))
                accelerator.backward(loss)
                optimizer.step()
    """
    assert {"dataloader.inline", "dataloader.pin-memory-off"} <= sure(text)


@pytest.mark.parametrize(("iterated", "shown"), [("self.loader", False), ("range(9)", True)])
def test_a_round_that_goes_through_a_loader_is_an_epoch(iterated: str, shown: bool) -> None:
    """Also where it ends with a step of the optimizer for what is left over."""
    text = f"""
        import torch
        class Trainer:
            def epoch(self):
                for x in {iterated}:
                    self.loss(x).backward()
                    self.optimizer.step()
                self.optimizer.step()
            def fit(self, rounds):
                for _ in rounds:
                    self.epoch()
                    torch.save(self.model, "last.pt")
    """
    assert ("program.checkpoint-in-step" in hits(text)) == shown


def test_a_name_of_itself_is_followed_so_far_and_no_further() -> None:
    """Each round makes it of what it was: looking for where it came from ends."""
    text = f"import torch\nfor x, y in loader:\n{STEP}    x = x * x + (x * x + x) * x\n    x = x.to(device)\n"
    assert "transfer.tensor-made-on-cpu" not in hits(text)


@pytest.mark.parametrize(
    ("given", "shown"), [("None", False), ("False", False), ("", False), ("data", True), ("data=data", True), ("*rest", True)]
)
@pytest.mark.parametrize("condition", ["if data:", "if data is not None:"])
def test_what_a_call_leaves_out_does_not_run(given: str, shown: bool, condition: str) -> None:
    """An evaluation hands over what training does not, also through another function."""
    text = f"""
        import torch
        def measure(loss, data=None):
            {condition}
                show(loss.cpu())
        def passed_on(loss, data=None):
            return measure(loss, data)
        for x, y in loader:
            loss = criterion(model(x.cuda()), y)
            loss.backward()
            optimizer.step()
            {{}}(loss, {given})
    """
    assert ("sync.per-step" in hits(text.format("measure"))) == shown
    assert ("sync.per-step" in hits(text.format("passed_on"))) == shown


def test_parts_are_wrapped_where_the_model_is() -> None:
    """Somebody chose DataParallel elsewhere, which is told there."""
    text = "import torch\npart = {}torch.nn.DataParallel(model.part)\n"
    assert "ddp.dataparallel" in hits(text.format(""))
    assert "ddp.dataparallel" not in hits(text.format("model.part if not isinstance(model, torch.nn.DataParallel) else "))


@pytest.mark.parametrize(("enabled", "shown"), [("", True), ("enabled=True", True), ("enabled=False", False)])
def test_a_profiler_that_is_off_records_nothing(enabled: str, shown: bool) -> None:
    """Some turn it off in so many words."""
    text = f"import torch\nwith torch.autograd.profiler.profile({enabled}):\n    main()\n"
    assert ("profiler.old-names" in hits(text)) == shown


@pytest.mark.parametrize(("kept", "shown"), [("self.weights = weights", False), ("weights = self.dropout(weights)", True)])
def test_weights_that_are_kept_are_needed(kept: str, shown: bool) -> None:
    """No fused kernel gives them."""
    text = f"""
        import torch
        class Attention(torch.nn.Module):
            def forward(self, q, k, v):
                scores = q @ k.transpose(-2, -1)
                weights = scores.softmax(dim=-1)
                {kept}
                return weights @ v
    """
    assert ("attention.unfused" in hits(text)) == shown


def test_of_loaders_that_one_function_goes_through_each_has_its_own_calls() -> None:
    """The test set is gone through once, after the last epoch."""
    text = """
        import torch
        from torch.utils.data import DataLoader
        def evaluate(loader):
            for x in loader:
                show(model(x))
        valid = DataLoader(valid_data, num_workers=2)
        test = DataLoader(test_data, num_workers=2)
        for epoch in range(9):
            train()
            evaluate(valid)
        evaluate(test)
    """
    assert hits(text)["dataloader.workers-made-again"] == [7]


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("torch.FloatTensor(rewards)", False),
        ("torch.FloatTensor([0.5])", True),
        ("torch.tensor(self.weights)", True),
        ("torch.zeros(len(rewards))", True),
    ],
)
def test_data_of_the_host_must_be_copied(made: str, shown: bool) -> None:
    """A batch out of a memory, not a constant."""
    text = f"""
        import torch
        class Agent:
            def update(self, memory):
                rewards, states = memory.sample()
                scale = {made}.to(self.device)
                loss = self.loss(states, scale)
                loss.backward()
                self.optimizer.step()
    """
    assert "transfer.tensor-made-on-cpu" in hits(text)
    assert ("transfer.tensor-made-on-cpu" in sure(text)) == shown


def test_a_validation_reads_values_too() -> None:
    """Its name is none of a check."""
    text = """
        import torch
        def validate(model, loader):
            model.eval()
            for x, y in loader:
                total += torch.nn.functional.mse_loss(model(x.cuda()), y).item()
    """
    assert "sync.per-step" in sure(text)


@pytest.mark.parametrize(("before", "after", "shown"), [("kept.append(loss)", "", True), ("", "kept.append(loss)", False)])
def test_a_backward_pass_frees_what_it_saved(before: str, after: str, shown: bool) -> None:
    """What is kept of the loss then is small."""
    text = f"""
        import torch
        def train(loader):
            kept = []
            for x, y in loader:
                loss = criterion(model(x), y)
                {before or "pass"}
                loss.backward()
                optimizer.step()
                {after or "pass"}
            show(kept)
    """
    assert "program.loss-keeps-graph" in hits(text)
    assert ("program.loss-keeps-graph" in sure(text)) == shown


@pytest.mark.parametrize("read", ["print(batch)", "int(batch['label'])"])
@pytest.mark.parametrize(("moved", "shown"), [("batch = batch.to('cuda')", True), ("pass", False)])
def test_a_batch_as_the_loader_made_it_lies_on_the_host(read: str, moved: str, shown: bool) -> None:
    """Nobody waits for it until it was copied."""
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        loader = DataLoader(data)
        for batch in loader:
            {moved}
            show({read})
            loss = model(batch)
            loss.backward()
            optimizer.step()
    """
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(("workers", "shown"), [("4", True), ("args.workers", True), ("self.workers", False), ("0", False)])
def test_workers_are_started_again_where_there_are_some(workers: str, shown: bool) -> None:
    """Of loaders with a number that others give, half had none by default."""
    text = f"""
        import argparse
        from torch.utils.data import DataLoader
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=8)
        args = parser.parse_args()
        class Trainer:
            def fit(self, data):
                loader = DataLoader(data, num_workers={workers})
                for epoch in range(9):
                    for x in loader:
                        self.loss(x).backward()
                        self.optimizer.step()
    """
    assert ("dataloader.workers-made-again" in sure(text)) == shown


@pytest.mark.parametrize(
    ("data", "shown"), [("MemoryMappedTextDataset", False), ("CustomDatasetFromAdata", False), ("AnnDataset", True), ("ImageDataset", True)]
)
def test_a_data_set_in_memory_needs_no_workers(data: str, shown: bool) -> None:
    """By its name."""
    text = f"""
        from torch.utils.data import DataLoader
        from data import {data}
        loader = DataLoader({data}("data"))
        for x, y in loader:
            x = x.cuda()
            loss(model(x), y).backward()
            optimizer.step()
    """
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize(("name", "shown"), [("to_torchscript", False), ("export", False), ("fit", True)])
def test_a_model_is_traced_to_be_exported(name: str, shown: bool) -> None:
    """Beside the training of the same file."""
    text = f"""
        import torch
        def {name}(model, example):
            return torch.jit.trace(model, example)
        for x, y in loader:
            loss(model(x), y).backward()
            optimizer.step()
    """
    assert ("compile.torchscript" in sure(text)) == shown


@pytest.mark.parametrize("name", ["check_accuracy", "sanity_check_of_labels"])
def test_what_evaluates_is_no_check_by_its_name(name: str) -> None:
    """It goes through a loader with a model."""
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        loader = DataLoader(rows, num_workers=2)
        def {name}(model):
            model.eval()
            right = 0
            with torch.no_grad():
                for x, y in loader:
                    right += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
            return right
    """
    assert "sync.per-step" in sure(text)

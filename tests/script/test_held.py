"""Loaders and models that a list or a dictionary holds, what other objects of the file keep, and what PyTorch's functions make."""

from __future__ import annotations

import pytest

from tests.script.scripts import facts, hits, sure

GOES = """
import torch
from torch.utils.data import DataLoader
def go(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
def make(rows):
    return {{"train": DataLoader(Images(rows), num_workers=0), "test": DataLoader(Images(rows), num_workers=4, pin_memory=True)}}
def fit(model, optimizer):
    {made}
    for epoch in range(3):
        go(model, {given}, optimizer)
"""
CALLS = """
import torch
def {name}(loader, {model}):
    {before}
    right = 0
    for x, y in loader:
        output = {called}(x.cuda())
        {read}
    return right
{name}(test, made)
"""


@pytest.mark.parametrize(
    ("made", "given", "shown"),
    [
        ("loaders = {k: DataLoader(Images(k)) for k in parts}", "loaders['train']", True),
        ("loaders = {'train': DataLoader(Images(3)), 'test': other}", "loaders['train']", True),
        ("loaders = dict(train=DataLoader(Images(3)))", "loaders['train']", True),
        ("loaders = []\n    for k in parts: loaders.append(DataLoader(Images(k)))", "loaders[0]", True),
        ("loaders = {}\n    for k in parts: loaders[k] = DataLoader(Images(k))", "loaders['train']", True),
        ("loaders = make(rows)", "loaders['train']", True),
        ("loaders = make(rows)", "loaders['test']", False),
        (
            "loaders = {'train': DataLoader(Images(3), num_workers=4, pin_memory=True), 'test': DataLoader(Images(3))}",
            "loaders['train']",
            False,
        ),
    ],
)
def test_a_loader_is_known_out_of_what_holds_it(made: str, given: str, shown: bool) -> None:
    """By its key where that is written, and as any of those that are held where it is not."""
    text = GOES.format(made=made, given=given)
    assert ("dataloader.pin-memory-off" in sure(text)) == shown
    assert any(loader.trains and loader.epochs for loader in facts(text).loaders or ())


@pytest.mark.parametrize(
    ("name", "model", "before", "called", "read", "shown"),
    [
        ("scores", "networks", "netC = networks['classifier']", "netC", "right += (output.argmax(1) == y).sum().item()", True),
        ("scores", "models", "pass", "models[0]", "right += torch.exp(output).sum().item()", True),
        ("scores", "netC", "pass", "netC", "kept.extend(torch.nn.functional.softmax(output, dim=1).data.cpu().numpy())", True),
        ("scores", "netC", "pass", "netC", "output.sum().backward(); right += output.sum().item()", False),
        ("scores", "networks", "netC = networks['classifier']", "describe", "right += output.sum().item()", False),
    ],
)
def test_a_network_is_known_out_of_what_holds_it(name: str, model: str, before: str, called: str, read: str, shown: bool) -> None:
    """What goes over a loader with it, and only reads, is an evaluation that keeps gradients."""
    text = CALLS.format(name=name, model=model, before=before, called=called, read=read)
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(
    ("inside", "shown"),
    [
        ("kept.append(model(x.cuda()).detach().cpu())", True),
        ("model(x.cuda())", False),  # statistics of a normalisation
        ("kept.append(model(x.cuda()))", False),
    ],
)
def test_what_follows_the_training_in_an_epoch_and_only_reads_evaluates(inside: str, shown: bool) -> None:
    """Also where nobody switched to evaluation, and where it goes over the same data."""
    text = f"""
import torch
for epoch in range(9):
    model.train()
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    for x, y in loader:
        {inside}
"""
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(
    ("mode", "inside", "after", "shown"),
    [
        ("model.eval()", "total += criterion(model(x), y)", "", True),
        ("model.eval()", "total += criterion(model(x), y)", "total.backward()", False),
        ("model.eval()", "loss = criterion(model(x), y); loss.backward()", "", False),
        ("pass", "total += criterion(model(x), y)", "", False),
        ("torch.set_grad_enabled(False); model.eval()", "total += criterion(model(x), y)", "", False),
    ],
)
def test_what_follows_the_training_may_go_over_a_list(mode: str, inside: str, after: str, shown: bool) -> None:
    """In evaluation mode, whatever it goes over; a backward pass may go through what it gives."""
    text = f"""
import torch
from torch.utils.data import DataLoader
pairs = [(torch.randn(9, 9), torch.randn(9)) for _ in range(9)]
while True:
    model.train()
    for x, y in DataLoader(data):
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    {mode}
    total = 0
    for x, y in pairs:
        {inside}
    {after}
"""
    assert ("program.gradients-in-evaluation" in hits(text)) == shown


@pytest.mark.parametrize(
    ("rank", "shown"),
    [("int(os.environ['RANK']), 2", True), ("torch.distributed.get_rank(), 2", True)],
)
def test_what_one_rank_does_is_done_in_each_step(rank: str, shown: bool) -> None:
    """A number of a rank is none of a round, although it is unpacked."""
    text = f"""
import os, torch
rank, world = {rank}
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    if rank == 0:
        kept.append(loss.item())
"""
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "read", "shown"),
    [
        ("register_buffer('decay', torch.zeros(()))", "self.average.decay.item()", True),
        ("register_buffer('decay', torch.zeros(()))", "self.average.decay > 3", True),
        ("decay = 0.9", "self.average.decay > 3", False),
    ],
)
def test_a_buffer_of_a_part_of_a_model_is_one(made: str, read: str, shown: bool) -> None:
    """Which class of the file the part is, its constructor says."""
    text = f"""
import torch
class Average(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{made}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.average = Average()
    def forward(self, x):
        if {read}:
            x = x * 2
        return x
net = Net().cuda()
"""
    assert bool({"sync.per-step", "sync.branch-on-loss"} & sure(text)) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("output.argmax(1) == y.cuda()", True),
        ("output.argmax(1).cpu().numpy() == y.numpy()", False),
        ("kept", False),
        ("a == b for a, b in kept", False),
    ],
)
def test_the_sum_of_python_goes_through_a_tensor(given: str, shown: bool) -> None:
    """A kernel for each element of a comparison; of an array there is none."""
    text = CALLS.format(name="evaluate", model="model", before="model.eval()", called="model", read=f"right += sum({given})")
    assert ("program.element-loop" in sure(text)) == shown


@pytest.mark.parametrize(("hook", "shown"), [("val_dataloader", True), ("predict_dataloader", False)])
def test_lightning_validates_after_each_epoch(hook: str, shown: bool) -> None:
    """Its hook gives a loader of a data set that does more than take rows."""
    text = f"""
import lightning
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __getitem__(self, i):
        return self.transform(self.open(i))
class Data(lightning.LightningDataModule):
    def setup(self, stage):
        self.images = Images()
    def {hook}(self):
        return DataLoader(self.images, batch_size=8)
"""
    assert ("dataloader.inline" in sure(text)) == shown


def test_a_call_may_be_copied_to_the_device() -> None:
    """``Net().cuda()`` names one, without a name of its own."""
    assert facts("import torch\nnet = Net().cuda()\n").device == "cuda"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("torch.cuda.FloatTensor if cuda else torch.FloatTensor", True), ("torch.cuda.FloatTensor", True), ("torch.FloatTensor", False)],
)
def test_a_type_of_the_device_copies_to_it(kind: str, shown: bool) -> None:
    """``x.type(Tensor)``, where that is one of torch.cuda."""
    text = f"""
import torch
from torch.utils.data import DataLoader
Tensor = {kind}
net = Net().cuda()
loader = DataLoader(Images(), num_workers=4)
for x, _ in loader:
    loss = net(x.type(Tensor))
    loss.backward()
    optimizer.step()
"""
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


@pytest.mark.parametrize(
    ("update", "shown"),
    [("p.data.add_(p.grad, alpha=-0.1)", True), ("p.data.add_(-0.1 * p.grad)", True), ("p.data.clamp_(-1, 1)", False)],
)
def test_whoever_moves_parameters_by_their_gradients_trains(update: str, shown: bool) -> None:
    """Without an optimizer; where nothing moves, gradients are an explanation or an attack."""
    text = f"""
import torch
net = Net().cuda()
for x, y in loader:
    loss = criterion(net(x.cuda()), y.cuda())
    loss.backward()
    for p in net.parameters():
        {update}
    total += loss.item()
"""
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("given", "shown"), [("device", True), ("'cpu'", False), ("torch.float32", False)])
def test_a_device_that_a_caller_names_is_one(given: str, shown: bool) -> None:
    """The file itself names no accelerator; what goes to the CPU, or is converted, goes to none."""
    text = f"""
import torch
from torch.utils.data import DataLoader
def fit(net, data, optimizer, device):
    loader = DataLoader(data, num_workers=4)
    for epoch in range(3):
        for x in loader:
            loss = net(x.to({given}))
            loss.backward()
            optimizer.step()
"""
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


@pytest.mark.parametrize(("imported", "shown"), [("*", True), ("frames", False)])
def test_a_loader_may_come_with_a_star(imported: str, shown: bool) -> None:
    """What another module hands on under the name of PyTorch's class, is it."""
    text = f"""
import torch
from helpers import {imported}
loader = DataLoader(Images(), num_workers=4)
for x in loader:
    loss = net(x.cuda())
    loss.backward()
    optimizer.step()
"""
    assert ("dataloader.pin-memory-off" in sure(text)) == shown


@pytest.mark.parametrize(
    ("made", "shown"), [("PetDataset(root)", True), ("TensorDataset(x, y)", False), ("InMemoryDataset(root)", False), ("read(root)", False)]
)
def test_a_data_set_may_be_known_by_its_name_alone(made: str, shown: bool) -> None:
    """An evaluation in each epoch, on samples of which a class of another file says that they are some."""
    text = f"""
import torch
from torch.utils.data import DataLoader
from pets import PetDataset, InMemoryDataset, TensorDataset, read
loader, other = DataLoader(data, num_workers=4), DataLoader({made})
for epoch in range(9):
    net.train()
    for x, y in loader:
        loss = criterion(net(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for x, y in other:
            total += criterion(net(x.cuda()), y.cuda())
"""
    assert ("dataloader.inline" in sure(text)) == shown


@pytest.mark.parametrize("number", ["loss.item() * param.parts", "loss.item() / (3 * parts)"])
def test_a_number_may_have_the_name_of_its_loss(number: str) -> None:
    """The wait is where it is read; what is shown later is a number."""
    text = f"""
import torch
net.cuda()
for x, y in bar:
    loss.backward()
    optimizer.step()
    loss = {number}
    print(f"{{loss:.3f}}")
"""
    assert hits(text)["sync.per-step"] == [7]


def test_an_evaluation_every_so_many_steps_goes_over_its_loader_often() -> None:
    """Its batches may be pinned, although no epoch is around it."""
    text = """
import torch
from torch.utils.data import DataLoader
loader, other = DataLoader(data, num_workers=4, pin_memory=True), DataLoader(more, num_workers=4)
for step, (x, y) in enumerate(loader):
    loss = criterion(net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        net.eval()
        with torch.no_grad():
            for x, y in other:
                total += criterion(net(x.cuda()), y.cuda())
        net.train()
"""
    assert hits(text)["dataloader.pin-memory-off"] == [4]

"""Names are followed through a file: what a value is does not depend on where it was made."""

from __future__ import annotations

import pytest

from sysperf.script.facts import Loader
from tests.script.scripts import TRAINING, facts, hits


def loader_of(text: str) -> Loader:
    """The one loader of a script."""
    (loader,) = facts(text).loaders or ()
    return loader


def test_a_loader_of_a_helper_is_known_where_it_is_iterated() -> None:
    """Made in one function, passed to another, iterated there within an epoch: workers come from the default of a parameter."""
    loader = loader_of(TRAINING)

    assert (loader.function, loader.line) == ("make_loader", 5)
    assert (loader.workers, loader.pin_memory, loader.persistent) == (4, False, False)
    assert (loader.trains, loader.moved, loader.epochs) == (True, True, True)


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        ("", 0),
        ("num_workers=3", 3),
        ("32, False, None, None, 5", 5),
        ("num_workers=WORKERS", 6),
        ("num_workers=args.workers", 8),
        ("num_workers=os.cpu_count()", None),
        ("**options", None),
    ],
)
def test_a_number_of_workers_is_what_the_source_says(arguments: str, workers: int | None) -> None:
    """A constant by place or name, through a name, an option's default; what is computed is unknown, never 0."""
    text = f"""
        import argparse, os
        from torch.utils.data import DataLoader as Loading
        WORKERS = 6
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=8)
        args = parser.parse_args()
        loader = Loading(data, {arguments})
    """
    assert loader_of(text).workers == workers


def test_a_name_with_two_values_is_unknown() -> None:
    """Nothing is guessed from one branch."""
    text = """
        from torch.utils.data import DataLoader
        workers = 4
        if debug:
            workers = 0
        loader = DataLoader(data, num_workers=workers)
    """
    assert loader_of(text).workers is None
    assert "dataloader.inline" not in hits(text)


def test_loaders_of_a_tuple_keep_their_places() -> None:
    """`train, val = loaders()`: the training loop iterates the first."""
    text = """
        from torch.utils.data import DataLoader
        def loaders():
            return DataLoader(a, num_workers=1), DataLoader(b, num_workers=2)
        first, second = loaders()
        for batch in first:
            loss = model(batch)
            loss.backward()
    """
    trained, other = facts(text).loaders or ()
    assert (trained.workers, trained.trains) == (1, True)
    assert (other.workers, other.trains) == (2, None)


def test_timm_and_transformers_have_defaults_of_their_own() -> None:
    """create_loader starts one worker and keeps it; TrainingArguments pins and starts none."""
    timm = loader_of("from timm.data import create_loader\nloader = create_loader(data, 224, 32)\n")
    trainer = loader_of("from transformers import TrainingArguments\narguments = TrainingArguments('out')\n")

    assert (timm.workers, timm.persistent, timm.pin_memory) == (1, True, False)
    assert (trainer.workers, trainer.persistent, trainer.pin_memory, trainer.trains) == (0, False, True, True)


def test_accelerate_moves_what_it_prepares() -> None:
    """The loop over a prepared loader trains, and its batches are moved by the library."""
    text = """
        from accelerate import Accelerator
        from torch.utils.data import DataLoader
        accelerator = Accelerator()
        loader = DataLoader(data, num_workers=2)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for epoch in range(3):
            for batch in loader:
                accelerator.backward(model(batch).loss)
                optimizer.step()
    """
    loader = loader_of(text)
    assert (loader.trains, loader.moved, loader.epochs) == (True, True, True)


def test_hooks_of_lightning_run_each_step() -> None:
    """training_step is called by the framework; no loop of the file calls it."""
    text = """
        import lightning as L
        class Module(L.LightningModule):
            def training_step(self, batch, index):
                loss = self.model(batch)
                self.total = loss.item()
                return loss
            def validation_step(self, batch, index):
                return self.model(batch).item()
    """
    assert hits(text)["sync.per-step"] == [6, 9]


def test_a_model_that_is_moved_later_is_a_model() -> None:
    """`model.to(device)` in one function, the model made in another."""
    text = """
        import torch
        class Net(torch.nn.Module): pass
        def build(): return Net()
        def main():
            model = torch.compile(build())
            model.to("cuda")
    """
    (copy,) = facts(text).transfers or ()
    assert (copy.of, copy.to) == ("model", "cuda")

"""How often code runs decides what a place may cost."""

from __future__ import annotations

import pytest

from tests.script.scripts import TRAINING, facts, hits

STEP = """
    import torch
    def train(model, loader, optimizer):
        for step, x in enumerate(loader):
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            {}
"""


def often(statement: str) -> list[tuple[str | None, bool | None]]:
    """How often each wait for a value runs."""
    return [(sync.often, sync.guarded) for sync in facts(STEP.format(statement)).syncs or ()]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("print(loss.item())", [("step", False)]),
        ("if step % 100 == 0: print(loss.item())", [("step", True)]),
        ("if verbose: print(loss.item())", [("step", True)]),
        ("raise ValueError(loss.item())", [("step", True)]),
        ("show(step)", []),
        ("print(step.item())", []),
    ],
)
def test_what_a_condition_makes_seldom_is_guarded(statement: str, expected: list[tuple[str, bool]]) -> None:
    """Every 100th step is no illness; numbers need no wait."""
    assert often(statement) == expected


def test_a_function_that_a_step_calls_runs_each_step() -> None:
    """Through one call, and through two."""
    text = """
        import torch
        def log(loss): note(loss)
        def note(loss): print(loss.item())
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            log(loss)
    """
    assert hits(text)["sync.per-step"] == [4]


def test_a_function_that_nobody_calls_is_no_step() -> None:
    """Nothing is said of code whose use is not known."""
    assert "sync.per-step" not in hits("import torch\ndef show(loss):\n    print(loss.item())\n")


def test_an_epoch_is_a_loop_around_the_one_that_trains() -> None:
    """Also through the function that holds the loop."""
    assert [loop.often for loop in facts(TRAINING).loops or ()] == ["step"]
    text = TRAINING.replace("    loader = make_loader(dataset)\n", "").replace(
        "        train(model, loader", "        loader = make_loader(dataset)\n        train(model, loader"
    )
    assert hits(text)["dataloader.rebuilt"] == [5]


def test_micro_steps_accumulate() -> None:
    """The optimizer steps outside of the loop of backward passes, or under a modulus."""
    text = """
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model)
        while True:
            for micro in range(8):
                loss = model(batch())
                loss.backward()
            optimizer.step()
    """
    assert hits(text)["ddp.accumulation-without-no-sync"] == [7]
    assert "ddp.accumulation-without-no-sync" not in hits(
        text.replace("for micro", "with model.no_sync():\n                pass\n            for micro")
    )


def test_evaluation_is_a_loop_over_a_loader_that_does_not_train() -> None:
    """After `eval()`, or in a function of such a name; gradients are off by decorator, `with`, switch, or at the caller."""
    text = """
        import torch
        {}
        def evaluate(model, loader):
            model.eval()
            for x in loader:
                show(model(x))
    """
    assert hits(text.format(""))["program.gradients-in-evaluation"] == [6]
    assert "program.gradients-in-evaluation" not in hits(text.format("@torch.no_grad()"))
    called = text.format("") + "    with torch.inference_mode():\n            evaluate(model, loader)\n"
    assert "program.gradients-in-evaluation" not in hits(called)


def test_a_closure_of_an_optimizer_is_part_of_its_step() -> None:
    """LBFGS evaluates it several times; it has no loop of its own."""
    text = """
        import torch
        for x in loader:
            def closure():
                loss = model(x).mean()
                loss.backward()
                return loss
            optimizer.step(closure)
            torch.cuda.empty_cache()
    """
    assert hits(text)["sync.explicit"] == [9]


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("torch.optim.LBFGS([point])", False),
        ("self.optimizer_class(model.parameters(), lr=1.0)", False),
        ("self.optimizers()", True),
        ("chosen", True),
    ],
)
def test_a_round_with_an_optimizer_of_its_own_is_a_whole_fit(made: str, shown: bool) -> None:
    """From another start, or of another part: what is read after it is read once a fit."""
    text = f"""
        import torch
        def search(self, model, starts, x, chosen):
            for start in starts:
                point = start.clone().cuda()
                optimizer = {made}
                loss = model(x.cuda(), point).mean()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
    """
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("loop", "taken"),
    [
        ("for x, y in loader:", "pass"),
        ("for i, (x, y) in enumerate(tqdm(loader)):", "pass"),
        ("for i in range(10_000):", "x, y = next(batches)"),
        ("for i in range(0, len(rows), 64):", "x, y = rows[i : i + 64], labels[i : i + 64]"),
        ("while True:", "x, y = next(batches)"),
    ],
)
@pytest.mark.parametrize("made", ["optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "scheduler = StepLR(optimizer, 1)"])
def test_a_round_of_a_batch_is_a_step_whatever_is_made_in_it(loop: str, taken: str, made: str) -> None:
    """An optimizer that each batch makes anew is a mistake of its own, and no fit."""
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        from torch.optim.lr_scheduler import StepLR
        def train(model, rows, labels, optimizer, batches):
            loader = DataLoader(rows, num_workers=2)
            {loop}
                {taken}
                {made}
                loss = model(x.cuda(), y.cuda()).mean()
                loss.backward()
                optimizer.step()
                scheduler.step()
                found.append(loss.item())
    """
    assert "sync.per-step" in hits(text)


@pytest.mark.parametrize(("leaves", "shown"), [("break", False), ("if len(found) == 100: break", True)])
@pytest.mark.parametrize("step", ["loss.backward(); optimizer.step()", "pass"])
def test_a_loop_that_ends_with_its_first_round_repeats_nothing(leaves: str, step: str, shown: bool) -> None:
    """One batch an epoch, to look at or to try a program."""
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        def run(model, rows, optimizer):
            loader = DataLoader(rows, num_workers=2)
            for epoch in range(90):
                for x, y in loader:
                    model(x.cuda(), y.cuda()).backward()
                    optimizer.step()
                for x, y in loader:
                    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
                    {step}
                    found.append(loss.item())
                    {leaves}
    """
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize("again", ["while True:", "for attempt in range(3):"])
def test_what_is_tried_again_is_a_step_of_the_loop_around(again: str) -> None:
    """A batch that failed is computed once more; each batch ends in a step all the same."""
    text = f"""
        import torch
        from torch.utils.data import DataLoader
        def run(model, rows, optimizer):
            for x, y in DataLoader(rows, num_workers=2):
                {again}
                    try:
                        loss = model(x.cuda(), y.cuda())
                        loss.backward()
                        optimizer.step()
                    except RuntimeError:
                        continue
                    total += loss.item()
                    break
    """
    assert "sync.per-step" in hits(text)

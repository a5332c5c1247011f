"""A condition that holds seldom makes what is under it cost little; one that holds nearly always does not."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, judged

STEP = """
import torch
def train(model, loader, optimizer, args, log_every, infos):
    for step, x in enumerate(loader):
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        {}
            writer.add_scalar("loss", 1.0, step)
"""
SELDOM = (
    "if step == 1:",
    "if step in (1, 10):",
    "if step < 3:",
    "if step == args.warmup_steps:",
    "if args.rank == 0 and (step % args.n == 0 or last):",
    "if not step % 100:",
    "if step % 100 == 0 or step == len(loader) - 1:",
    "if (step + 1) & 63 == 0:",
    "if 'episode' in infos:",
    "if not torch.isfinite(loss):",
    "if torch.isnan(loss).any():",
    "if time.time() - shown > 60:",
    "if random.random() < 0.01:",
    "if self.should_log(step):",
    "if step + 1 == args.epochs:",
    "if not step < len(loader) - 1:",
    "if len(loader) > step + 1:\n            pass\n        else:",
)
OFTEN = (
    "if step < len(loader) - 1:",
    "if True:",
    "if args.rank == 0:",
    "if step % 1 == 0:",
    "if step != 0:",
    "if step % 100 != 0:",
    "if step >= args.warmup_steps:",
    "if (step + 1) % args.accumulation_steps == 0:",
    "if args.mode == 'train':",
    "if torch.isfinite(loss):",
    "if not verbose:",
    "if x is not None:",
)


@pytest.mark.parametrize("condition", SELDOM)
def test_what_holds_seldom_is_no_step(condition: str) -> None:
    """The first step, every Nth, the end of an episode, a loss that is no number."""
    assert "program.logging" not in hits(STEP.format(condition))


@pytest.mark.parametrize("condition", OFTEN)
def test_what_holds_nearly_always_is_a_step(condition: str) -> None:
    """A rank, a mode, a remainder of one, the steps of an optimizer between micro-steps."""
    assert hits(STEP.format(condition))["program.logging"] == [9]


@pytest.mark.parametrize(
    ("leave", "shown"),
    [
        ("if step % 100 != 0: return", False),
        ("if not should_save(step): return", False),
        ("if rank != 0: return", True),
        ("if step % 100 == 0: return", True),
    ],
)
def test_a_helper_that_returns_at_its_top_runs_seldom(leave: str, shown: bool) -> None:
    """What follows an early return runs where that condition fails."""
    text = f"""
import torch
def save(model, step, rank):
    {leave}
    torch.save(model.state_dict(), "last.pt")
for step, x in enumerate(loader):
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    save(model, step, rank)
"""
    assert ("program.checkpoint-in-step" in hits(text)) == shown


def test_a_remainder_of_an_option_that_is_one_is_no_guard() -> None:
    """By default each step is logged."""
    option = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--every', type=int, default={})\nargs = parser.parse_args()\n"
    step = STEP.format("if step % args.every == 0:").replace(", args,", ",")

    assert "program.logging" in hits(option.format(1) + step)
    assert "program.logging" not in hits(option.format(50) + step)
    assert "program.logging" in hits((option.format(1) + step).replace("args = parser", "a = parser").replace("args.every", "a.every"))


@pytest.mark.parametrize(
    "body",
    [
        "if step % 4 == 0:\n        loss = model(x).mean()\n        loss.backward()\n        optimizer.step()\n        print(loss.item())",
        "if step % 4 != 0:\n        continue\n    loss = model(x).mean()\n    loss.backward()\n    optimizer.step()\n    print(loss.item())",
        "loss = model(x).mean()\n    loss.backward()\n    if step % 4 == 0:\n        optimizer.step()\n        print(loss.item())",
    ],
)
def test_a_condition_around_the_step_itself_is_no_guard(body: str) -> None:
    """Each training step waits, however seldom there is one."""
    assert "sync.per-step" in hits(f"import torch\nfor step in range(1000):\n    {body}\n")


@pytest.mark.parametrize(("name", "shown"), [("batch_idx", False), ("optimizer_idx", True)])
def test_a_number_of_an_optimizer_is_no_round(name: str, shown: bool) -> None:
    """Each of several optimizers steps every time."""
    text = f"""
        import pytorch_lightning as pl
        class Gan(pl.LightningModule):
            def training_step(self, batch, batch_idx, optimizer_idx):
                loss = self.net(batch).mean()
                if {name} == 1:
                    self.total = loss.item()
                return loss
    """
    assert ("sync.per-step" in hits(text)) == shown


@pytest.mark.parametrize(
    ("call", "confidence"), [('writer.add_scalar("loss", 1.0, step)', "low"), ('writer.add_image("x", x, step)', "medium")]
)
def test_a_number_in_a_log_is_cheap(call: str, confidence: str) -> None:
    """A thread of the writer's takes it; an image is encoded where it is given."""
    text = STEP.format("if True:").replace('writer.add_scalar("loss", 1.0, step)', call)
    assert [each.confidence for each in judged(text).hypotheses if each.rule == "program.logging"] == [confidence]


KEPT = """
import torch
known = {{}}
def table(size, device):
    key = (size, str(device))
{}
    made = torch.tensor([1.0, 4.0, 1.0]).to(device)
    {} = made
    return made
class Net(torch.nn.Module):
    def forward(self, x):
        return x * table(3, x.device)
"""


@pytest.mark.parametrize(
    ("asked", "stored", "shown"),
    [
        ("    if key in known:\n        return known[key]", "known[key]", False),
        ("    hit = known.get(key)\n    if hit is not None:\n        return hit", "known[key]", False),
        ("    hit = known.get(key)\n    if hit:\n        return hit", "known[key]", False),
        ("    hit = known.get(key)\n    if hit is not None:\n        return hit", "other[key]", True),
        ("    hit = other(key)\n    if hit is not None:\n        return hit", "known[key]", True),
        ("    if key in known:\n        return None", "first", True),
    ],
)
def test_what_a_function_keeps_is_made_once(asked: str, stored: str, shown: bool) -> None:
    """It gives back what it made for the same key before."""
    assert ("transfer.tensor-made-on-cpu" in hits(KEPT.format(asked, stored))) == shown


@pytest.mark.parametrize(
    ("other", "default", "shown"),
    [
        ("loss = (x * y).mean()", "torch.tensor(0.0, device=x.device)", False),
        ("loss = (x * y).mean()", "torch.tensor([self.first], device=x.device)", True),
        ("mean = (x * y).mean()", "torch.tensor(0.0, device=x.device)", True),
        ("loss = torch.tensor(1.0, device=x.device)", "torch.tensor(0.0, device=x.device)", True),
    ],
)
def test_a_default_is_made_where_nothing_is_computed(other: str, default: str, shown: bool) -> None:
    """A batch without a sample of a kind is seldom."""
    text = f"""
        import torch
        class Loss(torch.nn.Module):
            def forward(self, x, y):
                if self.holds(y):
                    {other}
                else:
                    loss = {default}
                return loss
    """
    assert ("transfer.tensor-from-python" in hits(text)) == shown


@pytest.mark.parametrize(("other", "shown"), [("(x * y).mean()", False), ("torch.tensor(1.0).to(x.device)", True)])
@pytest.mark.parametrize("default", ["torch.tensor(0.0).to(x.device)", "torch.zeros(1).cuda()"])
def test_a_default_may_be_copied_to_a_device(other: str, default: str, shown: bool) -> None:
    """Where both branches write a number, one of them is copied each time."""
    text = f"""
        import torch
        class Loss(torch.nn.Module):
            def forward(self, x, y):
                if self.holds(y):
                    loss = {other}
                else:
                    loss = {default}
                return loss
    """
    assert ("transfer.tensor-made-on-cpu" in hits(text)) == shown

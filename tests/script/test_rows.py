"""Results that leave the device one row after the other, or only for a number, and evaluations that go over samples."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits, sure

EVALUATES = """
import torch
def evaluate(model, loader, device):
    model.eval()
    right, kept = 0, []
    with torch.no_grad():
        for x, y in loader:
            output = model(x.to(device))
            target = y.to(device)
            {body}
    return right, kept
"""
MEASURES = """
import numpy as np
from sklearn import metrics
def scored(output, target, other=None):
    labels = np.argmax(output, axis=1).flatten()
    return metrics.accuracy_score(target, labels)
def shown(output, target):
    print(output)
    return metrics.accuracy_score(target, output)
"""
"""Metrics of a library, and functions around them."""
OVER = """
import torch
{decorator}
def {name}(model, data, optimizer):
    right, x = 0, start()
    for {each} in {over}:
        {first}
        with {around}:
            output = model(x)
        right += (output - 1).abs().mean().item()
        {last}
    return right
"""


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("kept += [row.cpu().numpy() for row in output]", True),
        ("kept.extend(row.tolist() for row in output.argmax(1))", True),
        ("for row in output: kept.append(row.cpu())", True),
        ("for i in range(len(x)): kept.append(output[i].cpu().numpy())", True),
        ("for i in range(len(x)): kept.append(output[i, :3].cpu().numpy())", True),
        ("for p, t in zip(output.argmax(1), target): right += int(p == t)", True),
        ("for p, t in zip(output.argmax(1), target): right += float(p)", True),
        ("for p, t in zip(output.argmax(1), target):\n                if p == t: right += 1", True),
        ("for p, t in zip(output.argmax(1).cpu(), y):\n                if p == t: right += 1", False),
        ("kept.append(output.cpu().numpy())", False),
        ("rows = output.cpu().numpy()\n            for row in rows: kept.append(row)", False),
        ("rows = output.tolist()\n            for i in range(len(rows)): kept.append(float(rows[i]))", False),
        ("for row in y: kept.append(row.numpy())", False),
        ("for row in output: kept.append(row['boxes'].cpu())", False),
        ("for name, value in output.items(): kept.append(value.cpu())", False),
        ("for i in range(len(x)): imsave(names[i], output[i].cpu().numpy())", False),
        ("for i in range(len(x)): kept.append(output[:, best].cpu())", False),
    ],
)
def test_rows_are_copied_as_a_whole(body: str, shown: bool) -> None:
    """One wait for each row of a batch; a batch that is kept has to be copied, and so has what is written to files."""
    assert ("sync.per-step" in sure(EVALUATES.format(body=body))) == shown


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("right += (output.argmax(1).cpu() == y).sum()", True),
        ("right += output.argmax(1).cpu().eq(y).sum()", True),
        ("right += torch.eq(output.argmax(1).cpu(), y).sum()", True),
        ("p = output.argmax(1).cpu()\n            right += (p == y).sum()", True),
        ("p = output.argmax(1).cpu().numpy()\n            right += np.sum(p == y.numpy())", True),
        ("p = output.argmax(1).cpu()\n            right += (p == y).sum()\n            kept.append(p)", False),
        ("p = output.argmax(1).cpu()\n            kept.append(p == y)", False),
        ("p = output.argmax(1).cpu()\n            right += f1_score(y, p)", False),
        ("p, q = output.argmax(1).cpu().numpy(), y.numpy()\n            right += metrics.f1_score(q, p)", True),
        ("right += metrics.roc_auc_score(y_true=y, y_score=output[:, 1].cpu())", True),
        ("p = output.cpu().numpy()\n            right += scored(p, y)", True),
        ("p = output.cpu().numpy()\n            right += shown(p, y)", False),
        ("p = output.cpu().numpy()\n            right += scored(y, other=p)", False),
        ("kept = np.concatenate([kept, output.cpu().numpy()])\n    right = metrics.f1_score(kept, y)", False),
        ("p = output.argmax(1).cpu()\n    right = metrics.f1_score(y, p)", False),
        ("right += metrics.f1_score(y, p)\n            p = output.argmax(1).cpu()", False),
        ("p = next(drawn)\n            use(p)\n            p = output.argmax(1).cpu()\n            right += metrics.f1_score(y, p)", True),
        ("kept.extend(output.argmax(1).cpu().numpy())\n    right = metrics.f1_score(y, kept)", False),
    ],
)
def test_what_is_only_measured_can_be_measured_on_the_device_or_at_the_end(body: str, shown: bool) -> None:
    """A count is summed up there, and a metric of a library needs no batch before the last; what is kept has to leave it."""
    assert ("sync.per-step" in sure(MEASURES + EVALUATES.format(body=body))) == shown


def test_a_loss_beside_what_is_only_measured() -> None:
    """It waits by itself, as the copies beside it need not be; beside results that are kept it does not."""
    measured, kept = "right += (output.argmax(1).cpu() == y).sum()", "kept.append(output.cpu())"
    loss = "\n            total += criterion(output, y.cuda()).item()"
    assert len(hits(EVALUATES.format(body=measured + loss))["sync.per-step"]) == 2
    assert "sync.per-step" not in sure(EVALUATES.format(body=kept + loss))


@pytest.mark.parametrize(
    ("decorator", "name", "over", "first", "around", "last", "shown"),
    [
        ("", "accuracy", "data", "x = each.cuda()", "torch.no_grad()", "pass", True),
        ("@torch.inference_mode()", "score", "data", "x = each.cuda()", "span()", "pass", True),
        ("", "accuracy", "range(len(data))", "x = data[each].cuda()", "torch.no_grad()", "pass", True),
        ("", "accuracy", "data", "x = each.cuda()", "span()", "pass", False),  # nothing says that it evaluates
        ("", "predict", "data", "x = each.cuda()", "torch.no_grad()", "pass", False),
        ("", "accuracy", "range(9)", "pass", "torch.no_grad()", "x = output", False),  # each round needs the one before
        ("", "accuracy", "range(9)", "x = x.cuda()", "torch.no_grad()", "x = next_of(output)", False),
    ],
)
def test_what_calls_a_model_without_gradients_on_one_sample_after_the_other_evaluates(
    decorator: str, name: str, over: str, first: str, around: str, last: str, shown: bool
) -> None:
    """Whatever its name, unless it gives results, or goes on with what it computed."""
    text = OVER.format(decorator=decorator, name=name, each="each", over=over, first=first, around=around, last=last)
    assert ("sync.per-step" in sure(text)) == shown


@pytest.mark.parametrize(("around", "shown"), [("for _ in range(100)", True), ("if True", False)])
def test_workers_are_not_begun_anew_for_each_batch_of_an_evaluation(around: str, shown: bool) -> None:
    """One batch is drawn each time, and the others are dropped."""
    text = f"""
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, num_workers=4)
def evaluate(model):
    model.eval()
    with torch.no_grad():
        {around}:
            x, y = next(iter(loader))
            total += model(x.cuda(), y.cuda())
"""
    assert (9 in hits(text).get("dataloader.workers-made-again", ())) == shown

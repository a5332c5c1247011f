"""Whether what a statement makes only goes to reports: said of what can be followed completely, and of nothing else."""

from __future__ import annotations

import time

import pytest

from sysperf.script.cures.needless import only_reported

STEP = """\
import logging, json, trainer
from agents import learn
import numpy as np
import torch
SHARED = {{}}

def distance(a, b):
    row = list(range(len(b)))
    for letter in a:
        row[0] = min(row[0], row[-1]) + (letter != b[0])
        row.append(row[0])
    return row[-1]

def counted(a, b):
    SHARED[a] = b
    return b

def longest(batch):
    batch.sort()
    return batch[-1]

def scaled(rows):
    for row in rows:
        row[0] = 0
    return rows

def train(model, loader, optimizer, self):
    history, best, stats = [], 9.0, dict()
    for step, (x, y) in enumerate(loader):
        out = model(x)
        loss = out.mean()
        loss.backward()
        optimizer.step()
        {statement}
        {use}
    return model
"""


def is_needless(statement: str, use: str = "pass") -> bool:
    text = STEP.format(statement=statement, use=use)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if line.strip() == statement)
    return only_reported(text, line)


@pytest.mark.parametrize(
    "use",
    [
        "pass",
        "print(cer)",
        "logging.info('%s', cer)",
        "history.append(cer)",
        "stats['cer'] = float(cer); print(json.dumps(stats))",
        "self.log('cer', cer)",
        "if step % 50 == 0: print(cer)",
        "if cer < best: best = cer",
        "best += cer; print(best / (step + 1))",
    ],
)
def test_what_is_only_reported_is_needless(use: str) -> None:
    """A rate of errors by a function of the program that changes nothing."""
    assert is_needless("cer = sum(distance(a, b) for a, b in zip(out.argmax(-1).tolist(), y.tolist())) / len(y)", use)


@pytest.mark.parametrize(
    "use",
    [
        "loss = loss + cer",
        "x['cer'] = cer",
        "y.append(cer)",
        "scheduler.step(cer)",
        "self.cer = cer",
        "stats[cer].add_(1)",
        "if cer < best: torch.save(model, 'best.pt')",
        "if cer < 0.1: break",
        "return cer",
        "yield cer",
        "while cer > 1: pass",
        "model = wrap(lambda: cer)",
        "out.data[cer] = 0",
        "optimizer.param_groups[0]['lr'] = cer",
        "x = [model(cer)]; print(x)",
    ],
)
def test_what_training_may_use_is_not(use: str) -> None:
    """Into the loss, an object, a decision, or out of the function."""
    assert not is_needless("cer = distance(x, y)", use)


@pytest.mark.parametrize(
    "statement",
    [
        "loss = out.sum() + distance(x, y)",
        "cer = counted(x, y)",
        "cer = longest(x)",
        "cer = scaled(x)",
        "cer = history.pop()",
        "cer = buffer.sample(64)",
        "cer = update_ema(model)",
        "cer = optimizer.step()",
        "cer = x.mul_(2)",
        "cer = next(loader)",
        "cer = learn(x)",
        "cer = agent.learn(x)",
        "cer = trainer.learn(x)",
        "cer = criterion(x, y)",
        "x.data = distance(x, y)",
        "self.cer = distance(x, y)",
        "distance(x, y)",
        "out[0] = distance(x, y)",
        "cer = (seen := distance(x, y))",
    ],
)
def test_what_may_change_something_is_not(statement: str) -> None:
    """Calls that change what they get, or nobody knows; targets that are no names."""
    assert not is_needless(statement, "print(step)" if not statement.startswith("loss") else "loss.backward()")


LOOPS = """\
def train(model, loader, self):
    for x, y in loader:
        counts: dict[int, int] = {{}}
        model(x).mean().backward()
        for word in y.tolist():
            {body}
        {use}
"""


@pytest.mark.parametrize(
    ("body", "use", "needless"),
    [
        ("counts[word] = counts.get(word, 0) + 1", "print(len(counts))", True),
        ("counts[word] = counts.get(word, 0) + 1", "pass", True),
        ("if word > 3: counts[word] = 1", "self.log('words', len(counts))", True),
        ("counts[word] = counts.get(word, 0) + 1", "x = counts[3]; y = model(x)", False),
        ("counts[word] = counts.get(word, 0) + 1", "model(counts[3]).backward()", False),
        ("counts[word] = self.of(word)", "pass", False),
        ("if word > 3: break", "pass", False),
        ("self.counts[word] = 1", "pass", False),
        ("pass", "pass", False),
        ("counts[word] = 1\n        else:\n            model(x)", "pass", False),
        ("if word > 3: counts[word] = 1\n            else: model(x)", "pass", False),
        ("if model(word): counts[word] = 1", "pass", False),
        ("counts[word] = 1", "counts = self.counts", False),
    ],
)
def test_a_loop_is_followed_as_a_statement_is(body: str, use: str, needless: bool) -> None:
    """Its head stands for all of it."""
    text = LOOPS.format(body=body, use=use)
    head = 1 + next(number for number, line in enumerate(text.splitlines()) if "for word" in line)

    assert only_reported(text, head) == needless


def test_a_value_of_the_top_level_that_a_function_uses_is_needed() -> None:
    """It may be called from anywhere."""
    text = "while True:\n    loss.backward()\n    key = str(x)\ndef cached():\n    return table[key]\n"

    assert not only_reported(text, 3)
    assert only_reported(text.replace("[key]", "[0]"), 3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def train():\n    global key\n    while True:\n        key = str(x)\n        loss.backward()\n", 4),
        ("def outer():\n    key = 1\n    def train():\n        nonlocal key\n        key = str(x)\n    return key\n", 5),
    ],
)
def test_a_name_that_is_not_the_functions_own_is_needed(text: str, line: int) -> None:
    """Others read it after the function has given it a value."""
    assert not only_reported(text, line)
    assert only_reported(text.replace("global key", "pass").replace("nonlocal key", "pass"), line)


@pytest.mark.parametrize(
    "call",
    [
        "replay_buffer.record(key)",
        "self.record_transition(key)",
        "self.socket.write(key)",
        "trial.report(key)",
        "tune.report(key=key)",
        "report(key=key)",
        "train.report(key)",
    ],
)
def test_what_is_kept_for_training_or_handed_on_is_no_report(call: str) -> None:
    """A replay buffer records, and a search for hyperparameters decides by what is reported."""
    assert not is_needless("key = str(x)", call)
    assert is_needless("key = str(x)", "meter.record(key)")


@pytest.mark.parametrize("text", ["", "def broken(:\n", "x = 1\n" * 300_000])
def test_of_what_cannot_be_followed_nothing_is_said(text: str) -> None:
    """No source, no Python, too long."""
    assert not only_reported(text, 1)


@pytest.mark.parametrize(
    "text",
    [
        "while True:\n    a0 = str(x)\n" + "".join(f"    a{number + 1} = str(a{number})\n" for number in reversed(range(4_000))),
        "".join(f"def f{number}(x):\n    return {' + '.join([f'f{number + 1}(x)'] * 50)}\n" for number in range(60)) + "y = f0(x)\n",
        "y = " + "str(" * 80 + "x" + ")" * 80 + "\n",
        "".join(f"def f{number}(x):\n    return f{number + 1}(x)\n" for number in range(5_000)) + "y = f0(x)\n",
    ],
)
def test_source_that_is_written_to_take_long_does_not(text: str) -> None:
    """Values that are handed on against the order of lines, and functions that call each other many times, or in a chain."""
    lines = text.splitlines()
    start = time.thread_time()

    only_reported(text, len(lines) if lines[-1].startswith("y") else 2)

    assert time.thread_time() - start < 2.0

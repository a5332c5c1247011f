"""What `--fix` changes: exactly that, twice nothing, never what it does not understand."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine import lint as engine
from sysperf.engine.lint import fix as lint_fix
from sysperf.script.changes.edits import comments
from sysperf.script.file import File
from sysperf.script.source import Source
from tests.fuzzing import fuzz
from tests.script.scripts import shipped

CURABLE = """\
import torch
from torch.cuda.amp import GradScaler, autocast  # by their old names
from torch.utils.data import DataLoader

WORKERS = 2


class Net(torch.nn.Module):
    def forward(self, x):
        return x


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():  # nothing learns here
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
    return right / len(loader)


class Samples(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return self.items[index]


def train(model, items, optimizer, args):
    loader = DataLoader(
        Samples(items),
        batch_size=32,
        num_workers=args.workers,  # of the command line
    )
    scaler = GradScaler(enabled=False)
    for epoch in range(10):
        total = 0.0
        for x, y in loader:
            x = x.cuda()
            y = y.to("cuda")
            optimizer.zero_grad(set_to_none=False)
            with autocast(True):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            total += loss.item() * len(x)  # a sum
        print(f"{epoch} {total / 3}")
"""


def fix(raw: bytes, path: str = "train.py") -> bytes:
    """A script after all changes that can be made."""
    file = File(Source(path, raw))
    return lint_fix.fixed(file, engine.judged(file, shipped()).hypotheses).after


def fixed(text: str) -> str:
    """As `fix`, of text."""
    return fix(text.encode()).decode()


def changed_lines(text: str) -> list[str]:
    """The lines that are there after the changes and were not before."""
    before = text.splitlines()
    return [line.strip() for line in fixed(text).splitlines() if line not in before]


def test_each_change_is_the_one_that_is_meant() -> None:
    """All codemods on one script; every other line is as it was."""
    assert changed_lines(CURABLE) == [
        "from torch.amp import GradScaler, autocast  # by their old names",
        "with torch.inference_mode():  # nothing learns here",
        "pin_memory=True,",
        "persistent_workers=args.workers > 0,",
        'scaler = GradScaler("cuda", enabled=False)',
        "x = x.cuda(non_blocking=True)",
        'y = y.to("cuda", non_blocking=True)',
        "optimizer.zero_grad()",
        'with autocast("cuda", enabled=True):',
        "total += loss.detach().double() * len(x)  # a sum",
        "total = float(total)",
    ]


TESTS = "import pytest\n", "def test_training():\n    pass\n"


@pytest.mark.parametrize("path", ["test_train.py", "pkg/train_test.py", "tests/training.py", "./tests/unit/../training.py", "conftest.py"])
@pytest.mark.parametrize("begin", TESTS)
def test_a_test_is_left_alone_also_where_it_is_named(path: str, begin: str) -> None:
    """It may test the very thing that would be changed."""
    text = (begin + CURABLE).encode()

    assert fix(text, path) == text
    assert fix(text, "train.py") != text


@pytest.mark.parametrize("path", ["eval_test.py", "test_model.py", "tests/train.py"])
def test_a_script_with_the_name_of_a_test_is_changed(path: str) -> None:
    """Without a test in it."""
    assert fix(CURABLE.encode(), path) == fix(CURABLE.encode())


def test_a_second_run_changes_nothing() -> None:
    """The result is what was wanted, with all comments."""
    once = fixed(CURABLE)

    assert fixed(once) == once
    assert comments(once) == comments(CURABLE)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("indent", ["    ", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encoding_line_ends_and_indentation_stay(end: str, indent: str, encoding: str) -> None:
    """Only the changed places differ, in the file's own bytes."""
    head = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    text = (head + "# café\n" + CURABLE).replace("    ", indent).replace("\n", end)
    after = fix(text.encode(encoding)).decode(encoding)

    assert fixed((head.replace("latin-1", "utf-8") + "# café\n" + CURABLE).replace("    ", indent)).replace(
        "utf-8", encoding
    ) == after.replace(end, "\n").replace("utf-8", encoding)
    assert after.count("\r") == (after.count(end) if "\r" in end else 0)


LEFT_ALONE = {
    "set_epoch of a data set": (
        "persistent_workers",
        """
        for epoch in range(3):
            dataset.set_epoch(epoch)
            for x in loader:
                model(x).backward()
        """,
    ),
    "a data set that changes with the epoch": (
        "persistent_workers",
        """
        for epoch in range(3):
            dataset.size = epoch
            for x in loader:
                model(x).backward()
        """,
    ),
    "a sum that the loop shows": (
        "detach",
        """
        total = 0.0
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            total += loss.item()
            print(total)
        """,
    ),
    "a sum that does not begin at zero": (
        "detach",
        """
        total = start
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            total += loss.item()
        """,
    ),
    "a loop that returns": (
        "detach",
        """
        def run():
            total = 0.0
            for x in loader:
                loss = model(x).mean()
                loss.backward()
                total += loss.item()
                if total > 3:
                    return total
        """,
    ),
    "gradients that are looked at": (
        "zero_grad()",
        """
        for x in loader:
            model(x).mean().backward()
            print(weight.grad)
            optimizer.zero_grad(set_to_none=False)
        """,
    ),
    "an old name that is passed on": (
        "torch.amp",
        """
        from torch.cuda.amp import autocast
        run(autocast)
        with autocast():
            pass
        """,
    ),
    "arguments that are not written": (
        "pin_memory",
        """
        loader = DataLoader(data, **options)
        for x in loader:
            model(x.cuda()).backward()
        """,
    ),
    "a pin_memory that somebody chose": (
        "pin_memory=True",
        """
        loader = DataLoader(data, pin_memory=False)
        for x in loader:
            model(x.cuda()).backward()
        """,
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_not_understood_is_left_alone(case: str) -> None:
    """A change that could alter results, or that rests on a guess, is not made."""
    word, body = LEFT_ALONE[case]
    loader = "loader = DataLoader(dataset, num_workers=2)\n" if word == "persistent_workers" else ""
    text = "import torch\nfrom torch.utils.data import DataLoader\n" + loader + textwrap.dedent(body)

    assert word not in fixed(text)
    assert changed_lines(text) == []


def test_inference_mode_is_not_for_what_keeps_tensors() -> None:
    """A result that is a tensor, a list outside, a model with a cache: each might meet autograd later."""
    for harm in ("return model(x)", "kept.append(model(x))", "self.last = model(x)"):
        text = CURABLE.replace("right += (model(x).argmax(1) == y).sum().item()", harm)
        assert "inference_mode" not in fixed(text), harm
    cached = CURABLE.replace("        return x\n", "        self.cache = x\n        return x\n", 1)
    assert "inference_mode" not in fixed(cached)


NAMES = st.sampled_from(["loader", "data", "x", "args.workers", "2", "4 + 1"])
SPACE = st.sampled_from(["", " ", "\n    ", "  # why\n    "])


def test_a_comment_behind_the_only_line_of_arguments_is_not_written_into() -> None:
    """There is no line of its own to put the new argument on."""
    text = "from torch.utils.data import DataLoader\nloader = DataLoader(data,  # why\n    )\nfor x in loader:\n    x.cuda().mean().backward()\n"
    assert fixed(text) == text


@fuzz
@given(
    st.lists(st.tuples(SPACE, NAMES, SPACE), min_size=1, max_size=4),
    st.booleans(),
    SPACE,
    st.sampled_from(["DataLoader", "Loading", "DataLoader[int]"]),
)
def test_any_layout_of_a_call_stays_a_call(arguments: list[tuple[str, str, str]], comma: bool, tail: str, name: str) -> None:
    """Parentheses, comments, commas and lines in any order: the result parses, keeps comments, and has one argument more or is the same."""
    inside = ",".join(f"{before}{value}{after}" for before, value, after in arguments) + ("," if comma else "") + tail
    text = (
        f"from torch.utils.data import DataLoader\nloader = {name}({inside})\nfor x in loader:\n    x = x.cuda()\n    x.mean().backward()\n"
    )
    try:
        ast.parse(text)
    except SyntaxError:
        return
    after = fixed(text)

    assert [token.string for token in tokenize.generate_tokens(io.StringIO(after).readline) if token.type == tokenize.COMMENT] == comments(
        text
    )
    if after != text:
        call = next(node for node in ast.walk(ast.parse(after)) if isinstance(node, ast.Call))
        assert [ast.unparse(given) for given in call.args] == [value for _, value, _ in arguments]
        assert [given.arg for given in call.keywords] == ["pin_memory"]


HEAD = "import torch\nfrom torch.utils.data import DataLoader, Dataset, TensorDataset\n"
STEP = """
for batch in loader:
    loss = model(batch["x"].to("cuda"), batch["y"])
    loss.backward()
    optimizer.step()
"""
PLAIN = "class Images(Dataset):\n    def __getitem__(self, index):\n        return read(self.paths[index])\n"
ON_DEVICE = PLAIN.replace("read(self.paths[index])", "read(self.paths[index]).to(device)")


@pytest.mark.parametrize(
    ("dataset", "pins"),
    [
        (f"{PLAIN}loader = DataLoader(Images(args.root), num_workers=2)", True),
        ("loader = DataLoader(torchvision.datasets.MNIST('data'), num_workers=2)", True),
        (f"{ON_DEVICE}loader = DataLoader(Images(args.root), num_workers=2)", False),
        (f"{PLAIN}prompt = encoder_model(tokens)\nloader = DataLoader(Images(args.root, prompt), num_workers=2)", False),
        (f"{PLAIN}loader = DataLoader(Images(torch.zeros(3)), num_workers=2)", False),
        (f"{PLAIN}loader = DataLoader(Images(args.root), num_workers=2, collate_fn=to_gpu)", False),
        ("loader = DataLoader(TensorDataset(torch.randn(9, 3)), num_workers=2)", True),
        ("loader = DataLoader(TensorDataset(torch.randn(9, 3, device='cuda')), num_workers=2)", False),
        ("loader = DataLoader(TensorDataset(features), num_workers=2)", False),
        ("loader = DataLoader(make_dataset(), num_workers=2)", False),
    ],
)
def test_what_may_hold_tensors_of_a_device_is_not_pinned(dataset: str, pins: bool) -> None:
    """They cannot be pinned: the first batch would raise."""
    imports = "import torchvision\n"
    assert ("pin_memory=True" in fixed(HEAD + imports + dataset + STEP)) == pins


@pytest.mark.parametrize(("default", "pins"), [("'cpu'", False), ("'cuda'", True)])
def test_where_the_device_by_default_is_the_cpu_nothing_is_pinned(default: str, pins: bool) -> None:
    """It would make a context on a GPU that nobody uses."""
    loop = "    for x in loader:\n        loss = model(x.to(device))\n        loss.backward()\n        optimizer.step()\n"
    text = f"{HEAD}{PLAIN}def train(root, device={default}):\n    loader = DataLoader(Images(root), num_workers=2)\n{loop}"
    assert ("pin_memory=True" in fixed(text)) == pins


@pytest.mark.parametrize(
    "line",
    [
        "device = torch.accelerator.current_accelerator()",
        "device = 'mps' if torch.backends.mps.is_available() else 'cuda'",
        "from accelerate import Accelerator; device = 'cuda'",
        "device = args.device",
        "parser.add_argument('--device', default='cuda'); device = parser.parse_args().device",
        "def start(device='cuda'): return torch.device(device)",
    ],
)
def test_a_sum_stays_where_the_device_may_have_no_doubles(line: str) -> None:
    """MPS has no numbers of 64 bits."""
    text = f"import torch\n{line}\ntotal = 0\nfor x in loader:\n    loss = model(x.to(device)).mean()\n    loss.backward()\n    total += loss.item()\n"

    assert ".double()" not in fixed(text)
    assert ".double()" in fixed(text.replace(line, "device = torch.device('cuda')"))


def test_an_import_that_may_fail_stays() -> None:
    """An older version has no such name, and the error tells what to install."""
    text = "try:\n    from torch.cuda.amp import GradScaler\nexcept ImportError:\n    raise ImportError('PyTorch 1.6 is needed')\nscaler = GradScaler()\n"

    assert fixed("import torch\n" + text) == "import torch\n" + text


@pytest.mark.parametrize(
    ("begin", "changed"), [("start, seen, total = now(), 0, 0.0", True), ("seen, total = read()", False), ("total, seen = 1, 0", False)]
)
def test_a_sum_may_begin_beside_others(begin: str, changed: bool) -> None:
    """In a tuple, as long as it begins at 0."""
    text = f"import torch\nmodel.cuda()\n{begin}\nfor x in loader:\n    loss = model(x).mean()\n    loss.backward()\n    total += loss.item()\n"

    assert (".double()" in fixed(text)) == changed


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("data", False),
        ("known", True),
        ("mixed", False),
        ("TensorDataset(x)", True),
        ("Plain(path)", True),
        ("Subset(Plain(path), x)", True),
        ("Counting(path)", False),
        ("Subset(Counting(path), x)", False),
        ("Reader(path)", False),
        ("make(path)", False),
    ],
)
def test_workers_of_a_data_set_with_a_state_are_left_alone(made: str, kept: bool) -> None:
    """A position in a file goes on where workers live on; of what a caller or another file gives nobody knows."""
    text = f"""
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from reader import Reader, make
class Plain(Dataset):
    def __getitem__(self, index):
        return self.items[index]
class Counting(Dataset):
    def __getitem__(self, index):
        self.position += 1
        return self.items[self.position]
def train(data, known, mixed, path, x):
    samples, other = {made}, Counting(path)
    loader = DataLoader(samples, num_workers=4)
    for epoch in range(3):
        for batch in loader:
            loss(model(batch)).backward()
            optimizer.step()
train(other, Plain(path), Plain(path), path, x)
train(other, Plain(path), Counting(path), path, x)
"""
    assert ("persistent_workers=True" in fixed(text)) == kept

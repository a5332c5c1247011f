"""What statements of a step do beside the model, and what a data set does for each sample: told by lines, loops and callers."""

from __future__ import annotations

from functools import partial

import pytest

from sysperf.diagnosis import stacks
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.statements import Tells
from sysperf.engine.diagnose.inside import RULES
from sysperf.model.profile import Frame, Sample, Samples
from sysperf.script.reached import loops
from tests.diagnosis.test_made_again import BACKWARD, CALL, FETCH, FILE, TORCH, at, seen

OPTIM = Frame("wrapper", f"{TORCH}/optim/optimizer.py", 9)

SORTS = """\
def next_batch(seen):
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    return order[seen:]

while True:
    x = next_batch(seen)
    loss = objective(model(x))
    loss.backward()
    rate = errors(x)
"""


def test_the_statement_of_the_step_with_most_of_the_time_is_named() -> None:
    """What it calls is its time; the lines of both are named. A forward or a backward pass is none."""
    sorting = (at("<lambda>", 2), at("next_batch", 2), at("<module>", 6))
    described = seen(
        SORTS, sorting, sorting, (at("errors", 20), at("<module>", 9)), (CALL, at("<module>", 7)), (BACKWARD, at("<module>", 8))
    )

    assert described.statement == 0.4
    assert {(line.what, line.line) for line in described.lines if line.what in ("statement", "within")} == {("statement", 6), ("within", 2)}
    assert described.cure == ""


def test_a_torn_stack_makes_no_function_one_of_the_step() -> None:
    """One of sixty shows a model's call in a function that calls none."""
    inner, torn = (at("next_batch", 2), at("<module>", 6)), (CALL, at("next_batch", 2), at("<module>", 6))
    described = seen(SORTS, *[inner] * 60, torn, *[(BACKWARD, at("<module>", 8))] * 10)

    assert [line.line for line in described.lines if line.what == "statement"] == [6]


def test_a_loop_that_calls_no_model_is_one_statement() -> None:
    """Its head stands for all of its lines; the loop of steps is none."""
    source = (
        "for x, y in batches:\n    for word in words:\n        counts[word] = 1\n        total += 1\n    model(x).backward()\n    y = 3\n"
    )
    inner = [(at("<module>", line),) for line in (2, 3, 4)]
    described = seen(source, *inner, (at("<module>", 6),), (BACKWARD, at("<module>", 5)))

    assert described.statement == 0.6
    assert [line.line for line in described.lines if line.what == "statement"] == [2]


def test_without_a_step_there_is_no_statement_of_one() -> None:
    """A server, or a program that loads: nothing tells where its steps are."""
    described = seen(SORTS, (at("next_batch", 2), at("<module>", 6)))

    assert (described.statement, described.cure) == (0.0, None)


def test_what_an_activity_names_is_no_statement_without_a_name() -> None:
    """Logging has a cause of its own."""
    writes = (Frame("write", "/env/lib/python3.11/site-packages/tensorboardX/writer.py", 3), at("<module>", 6))

    assert seen(SORTS, writes, (BACKWARD, at("<module>", 8))).statement == 0.0


def test_functions_of_pytorch_are_no_work_of_the_programs_own() -> None:
    """Clipping is written in Python, too: beside it stands what the program calls for its argument."""
    clips = Frame("clip_grad_norm_", f"{TORCH}/nn/utils/clip_grad.py", 9), at("<module>", 6)
    described = seen(SORTS, clips, clips, (at("settings", 2), at("<module>", 6)), (BACKWARD, at("<module>", 8)))

    assert (described.statement, described.statement_own) == (0.75, 0.25)


def test_the_cure_of_a_statement_is_asked_of_the_lines_on_its_stacks() -> None:
    """Of the one in the step, and of those that it calls; the surest kind is taken of two of the same size."""
    frames = [(at("errors", 20), at("<module>", 9)), (BACKWARD, at("<module>", 8))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    def cure_of(frame: Frame) -> str:
        return {at("<module>", 9): "data", at("errors", 20): "fixed"}.get(frame, "")

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(cure_of))

    assert described is not None
    assert (described.statement, described.cure) == (0.5, "fixed")
    assert [line.line for line in described.lines if line.what == "statement"] == [20]


def test_lines_within_a_forward_pass_and_in_hooks_are_asked_for_too() -> None:
    """What a module calls of the program's own is at work from its own lines on; a layer's time is none of it."""
    frames = [(at("forward", 30), CALL, at("<module>", 9)), (at("helper", 40), at("hook", 31), CALL, at("<module>", 9))]
    frames += [(CALL, at("forward", 32), CALL, at("<module>", 9)), (BACKWARD, at("<module>", 8))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    asked: dict[bool, set[int | None]] = {True: set(), False: set()}

    def cure_of(one: Frame, *, call: bool) -> str:
        asked[call].add(one.line)
        return ""

    stacks.describe(taken, RULES, lambda _: "", tells=Tells(partial(cure_of, call=False), partial(cure_of, call=True)))

    assert asked == {False: {30, 31, 40}, True: {32, 9}}


def test_a_model_that_is_called_row_by_row_is_named_by_its_line() -> None:
    """It is asked of the lines of the program that call a module, and is no statement beside it."""
    frames = [(CALL, at("collect", 30), at("<module>", 9)), (BACKWARD, at("<module>", 8))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))
    tells = Tells(call=lambda one: "singles" if one.line == 30 else "")

    described = stacks.describe(taken, RULES, lambda _: "", tells=tells)

    assert described is not None
    assert (described.singles, described.statement) == (0.5, 0.0)
    assert [line.line for line in described.lines if line.what == "singles"] == [30]


@pytest.mark.parametrize(("proven", "cure"), [("fixed", "fixed"), ("rows", "rows"), ("", None)])
def test_what_each_sample_makes_anew_is_named(proven: str, cure: str | None) -> None:
    """A table of all data is the same for each sample, and what is read of a text is in each pass."""
    frames = [(at("__getitem__", 30), *FETCH, at("<module>", 9)), (BACKWARD, at("<module>", 8))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))
    tells = Tells(sample=lambda one: proven if one.line == 30 else "")

    described = stacks.describe(taken, RULES, lambda _: "", tells=tells)

    assert described is not None
    assert (described.inline_fetch, described.cure) == (0.5, cure)
    assert [line.line for line in described.lines if line.what == "statement"] == ([30] if cure else [])


def test_what_a_line_calls_for_most_of_its_time_is_asked_for() -> None:
    """Of a loss with weights for its classes, the weights are the same in each step."""
    frames = [(at("weights", 20), at("<module>", 9)), (at("weights", 21), at("<module>", 9)), (at("other", 30), at("<module>", 9))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in (*frames, (BACKWARD, at("<module>", 8)))))

    described = stacks.describe(
        taken, RULES, lambda _: "", tells=Tells(part=lambda one, name: "fixed" if (one.line, name) == (9, "weights") else "")
    )

    assert described is not None
    assert (described.statement, described.cure) == (0.5, "fixed")
    assert [line.line for line in described.lines if line.what == "statement"] == [9]


def test_a_model_that_is_called_on_what_grows() -> None:
    """Its time is in forward passes; the line that calls it is asked for."""
    frames = [(CALL, at("forward", 30), CALL, at("<module>", 9))] * 3 + [(at("pick", 20), at("<module>", 10))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(call=lambda one: "grows" if one.line == 9 else ""))

    assert described is not None
    assert (described.statement, described.cure) == (0.75, "grows")


def test_a_statement_of_pieces() -> None:
    """Most of its time is in a loop within it, and the source proves nothing else."""
    source = "def pick(a):\n    while a:\n        b = iou(a)\n\nx = pick(model(y))\nloss.backward()\n"
    frames = (at("pick", 3), at("<module>", 5))

    assert seen(source, frames, frames, (CALL, at("<module>", 5)), (BACKWARD, at("<module>", 6))).loop == ("pieces",)


@pytest.mark.parametrize("inner", [(at("<listcomp>", 5),), ()])
def test_a_batch_that_is_made_row_by_row_is_in_pieces(inner: tuple[Frame, ...]) -> None:
    """A function is called for each of them, by a comprehension, which has a frame of its own until Python 3.12."""
    source = "def augment(a):\n    return a.flip(0) * 2\n\nfor rows in order:\n    x = stack([augment(a) for a in images[rows]])\n    model(x).backward()\n"
    frames = [(at("augment", 2), *inner, at("<module>", 5))] * 3 + [(CALL, at("<module>", 6)), (BACKWARD, at("<module>", 6))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(
        taken, RULES, lambda _: "", loop_of=lambda one: min((lines for lines in loops(source) if one.line in lines), key=len, default=range(0)),
        tells=Tells(line=lambda one: "data" if one.line == 5 else ""),
    )  # fmt: skip

    assert described is not None
    assert (described.statement, described.cure, described.loop) == (0.6, "data", ("pieces", "data"))


def test_how_a_loop_works_is_asked_of_its_largest_line() -> None:
    source = "for a in steps:\n    y = model(a)\n    for t in tables:\n        t.mul_(2)\n    y.backward()\n"
    frames = [(at("<module>", 4),)] * 2 + [(CALL, at("<module>", 2)), (BACKWARD, at("<module>", 5))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))
    loop = ("chain",)

    described = stacks.describe(
        taken, RULES, lambda one: source.splitlines()[(one.line or 1) - 1].strip(), loop_of=lambda one: range(3, 5) if (one.line or 0) in (3, 4) else range(1, 6),
        tells=Tells(loop=lambda one: loop if one.line == 4 else ()),
    )  # fmt: skip

    assert described is not None
    assert (described.looping, described.loop) == (0.5, ("pieces", *loop))


def test_a_line_that_searches_a_list_and_one_that_draws_of_a_deque() -> None:
    """What they call in Python is another line's time."""
    stdlib = Frame("sample", "/usr/lib/python3.11/random.py", 430)
    frames = [
        (at("encode", 8), at("<module>", 2)),
        (stdlib, at("take", 9), at("<module>", 2)),
        (at("other", 3), at("encode", 8)),
        (CALL, at("<module>", 2)),
    ]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(searches=lambda one: one.line in (8, 9)))

    assert described is not None
    assert described.searching == 0.25


def test_a_generator_has_its_part_of_the_backward_passes() -> None:
    """It is as large as its part of the forward passes."""
    forward, backward = (
        Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3),
        Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 9),
    )
    frames = (
        ((forward, Frame("main", "/me/a.py", 9)), 30),
        ((forward, Frame("main", "/me/a.py", 10)), 10),
        ((backward, Frame("main", "/me/a.py", 11)), 60),
    )
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, count) for stack, count in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(call=lambda one: "detached" if one.line == 9 else ""))

    assert described is not None
    assert (described.backward, described.detached) == (0.6, 0.45)


def test_a_part_of_few_backward_passes_is_smaller_than_its_forward_passes() -> None:
    forward, backward = (
        Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3),
        Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 9),
    )
    frames = ((forward, Frame("main", "/me/a.py", 9)), 80), ((backward, Frame("main", "/me/a.py", 11)), 20)
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, count) for stack, count in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(call=lambda one: "detached" if one.line == 9 else ""))

    assert described is not None
    assert (described.forward, described.detached) == (0.8, 0.2)


def test_layers_that_are_called_one_by_one() -> None:
    frames = [(CALL, at("forward", 9), CALL, at("<module>", 2)), (BACKWARD, at("<module>", 5))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(call=lambda one: "layers" if one.line == 9 else ""))

    assert described is not None
    assert (described.layers, described.singles) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("bank = torch.cat([bank, query.detach()])[-9:]", 0.5),
        ("bank = np.concatenate((bank, query))", 0.5),
        ("self.bank = torch.cat([self.bank, query])", 0.5),
        ("bank = torch.cat([query, other])", 0.0),
        ("both = torch.cat([bank, query])", 0.0),
        ("x = torch.cat([x, query])", 0.0),
        ("y = torch.cat([y, query])", 0.0),
    ],
)
def test_an_array_that_grows_is_told_from_parts_that_are_joined(line: str, share: float) -> None:
    """What the loop makes anew, or iterates over, does not grow."""
    source = f"for x in loader:\n    y = model(x)\n    y.sum().backward()\n    {line}\n"

    assert seen(source, (at("<module>", 4),), (BACKWARD, at("<module>", 3))).appending == share


@pytest.mark.parametrize(("line", "share"), [("self.bank = torch.cat([self.bank, query])", 0.5), ("bank = torch.cat([bank, query])", 0.0)])
def test_outside_of_a_loop_only_what_an_object_keeps_grows(line: str, share: float) -> None:
    """A method is called in each step; a name of its own is gone when it returns."""
    described = seen(f"def keep(self, query):\n    {line}\nstep()\n", (at("keep", 2), at("<module>", 3)), (BACKWARD, at("<module>", 3)))

    assert described.appending == share


def test_the_name_of_an_object_grows_also_where_the_loop_gives_it_a_value() -> None:
    """It is emptied once in an epoch, and grows from step to step."""
    source = "while True:\n    self.bank = torch.cat([self.bank, query])\n    self.bank = self.bank[-9:]\n    loss.backward()\n"

    assert seen(source, (at("<module>", 2),), (BACKWARD, at("<module>", 4))).appending == 0.5


def test_layers_that_are_joined_in_a_forward_pass_do_not_grow() -> None:
    """A skip connection."""
    source = "while True:\n    def forward(self, x):\n        x = torch.cat([x, skip])\n"

    assert seen(source, (at("forward", 3), CALL, at("<module>", 1)), (BACKWARD, at("<module>", 1))).appending == 0.0


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("for loss in losses:\n    loss.backward(retain_graph=True)\noptimizer.step()\n", 1.0),
        ("while True:\n    first.backward(retain_graph=True)\n    second.backward()\n    optimizer.step()\n", 1.0),
        (
            "while True:\n    d_loss.backward(retain_graph=True)\n    d_optimizer.step()\n    g_loss.backward()\n    g_optimizer.step()\n",
            0.0,
        ),
        ("while True:\n    loss.backward(retain_graph=True)\n    optimizer.step()\n", 0.0),
        ("for loss in losses:\n    loss.backward()\noptimizer.step()\n", 0.0),
        ("for x in loader:\n    loss.backward(retain_graph=True)\n    self.apply_gradients()\n", 0.0),
        ("for x in loader:\n    loss.backward(retain_graph=True)\n    update(optimizer)\n", 0.0),
        ("for x in loader:\n    loss.backward(retain_graph=True)\n" + "    total += 1\n" * 70 + "    optimizer.step()\n", 0.0),
        ("def first(loss):\n    loss.backward(retain_graph=True)\ndef second(loss):\n    loss.backward()\n", 0.0),
        ("for loss in losses:\n    loss.backward(retain_graph=True)\n    clip_grad_norm_(weights, 1.0)\n    total += p.grad\n", 0.0),
        (
            "while True:\n    old.backward(retain_graph=True)\n    kept = [p.grad for p in weights]\n    new.backward()\n    optimizer.step()\n",
            0.0,
        ),
        ("while True:\n    old.backward(retain_graph=True)\n    optimizer.zero_grad()\n    new.backward()\n    optimizer.step()\n", 0.0),
    ],
)
def test_passes_through_one_graph_are_told_from_those_of_two_optimizers(source: str, share: float) -> None:
    """The critic's step lies between its pass and that of the generator."""
    assert seen(source, (BACKWARD, at("<module>", 2))).retained == share


def test_an_optimizer_of_the_programs_own_is_told_from_pytorchs_and_from_a_closure() -> None:
    """The closure of LBFGS runs within the optimizer, too, and calls the model there."""
    own, theirs = (at("step", 9), OPTIM, at("<module>", 4)), (Frame("adam", f"{TORCH}/optim/adam.py", 3), OPTIM, at("<module>", 4))
    closure = (BACKWARD, at("closure", 9), OPTIM, at("<module>", 4))

    assert seen("", own).own_optimizer == 1.0
    assert seen("", theirs).own_optimizer == seen("", closure).own_optimizer == 0.0


@pytest.mark.parametrize(
    ("head", "body", "share"),
    [
        ("for p in model.parameters():", "p.data -= 0.1 * p.grad", 1.0),
        ("for p in model.parameters():", "p.data.add_(p.grad, alpha=-0.1)", 1.0),
        ("for p in model.parameters():", "p.grad.clamp_(-1, 1)", 0.0),
        ("for ours, theirs in zip(ema.parameters(), model.parameters()):", "ours.mul_(0.9).add_(theirs)", 0.0),
        ("for w in weights:", "w -= 0.1 * w.grad", 0.0),
        ("for p in model.parameters():", "p.data -= 0.1 * (left @ p.grad @ right)", 0.0),
    ],
)
def test_weights_that_are_updated_in_a_loop_are_told_from_gradients_and_averages(head: str, body: str, share: float) -> None:
    """A few large weights of a model that is written as functions are no loop through parameters."""
    assert seen(f"{head}\n    {body}\n", (at("<module>", 2),)).own_optimizer == share


def test_weights_that_a_forward_pass_adapts_are_no_optimizer() -> None:
    """Meta-learning makes weights of weights, in a module of its own."""
    source = "for p in model.parameters():\n    p.data -= 0.1 * p.grad\n"

    assert seen(source, (at("forward", 2), CALL, at("<module>", 9))).own_optimizer == 0.0


POOLS = """\
class Encoder(Module):
    def forward(self, x):
        h = self.line(x)
        for b in range(len(x)):
            parts.append({part})
        return parts
"""


@pytest.mark.parametrize(("part", "inner", "looping"), [("h[b].sum(0)", (), 0.5), ("self.cell(h[b])", (CALL,), 0.0)])
def test_a_loop_in_a_forward_pass_counts_where_it_calls_no_layer(part: str, inner: tuple[Frame, ...], looping: float) -> None:
    """A recurrent cell in a loop is what its many operators are."""
    passes = CALL, at("<module>", 40)
    frames = (*inner, at("Encoder.forward", 5), *passes), (CALL, at("Encoder.forward", 3), *passes)

    assert seen(POOLS.format(part=part), *frames).looping == looping


ITEMS = """\
class Items(Dataset):
    def __getitem__(self, {name}):
        user = self.users[{name}]
        {line}
            {below}
"""


@pytest.mark.parametrize(
    ("line", "below", "again", "searched"),
    [
        ("with zipfile.ZipFile(self.path) as archive:", "return archive", 1.0, 0.0),
        ("with h5py.File(self.path, 'r') as file:", "pass", 1.0, 0.0),
        ("db = sqlite3.connect(self.path, timeout=5)", "", 1.0, 0.0),
        ("data = np.load(self.path, mmap_mode='r')", "", 1.0, 0.0),
        ("with open(self.paths[i]) as file:", "pass", 0.0, 0.0),
        ("name = sorted(os.listdir(self.root))[i]", "", 1.0, 0.0),
        ("name = glob.glob(os.path.join(self.root, '*.png'))[i]", "", 1.0, 0.0),
        ("name = glob(f'{self.root}/*.png')[i]", "", 1.0, 0.0),
        ("name = sorted(self.root.glob('*.pt'))[i]", "", 1.0, 0.0),
        ("names = os.listdir(self.folders[i])", "", 0.0, 0.0),
        ("names = glob.glob(f'{self.root}/{i}/*.png')", "", 0.0, 0.0),
        ("names = glob.glob(os.path.join(self.root, user, '*.png'))", "", 0.0, 0.0),
        ("names = list(self.root.glob(f'{i}_*'))", "", 0.0, 0.0),
        ("image = load_image(self.root, i)", "", 0.0, 0.0),
        ("x = self.table[self.table['user'] == user]", "", 0.0, 1.0),
        ("x = self.events[(self.events.user == i).numpy()]", "", 0.0, 1.0),
        ("at = self.names.index(i)", "", 0.0, 1.0),
        ("if i == 0:", "pass", 0.0, 0.0),
        ("x = self.table[i]", "", 0.0, 0.0),
        ("same = self.labels[i] == self.labels[other]", "", 0.0, 0.0),
    ],
)
def test_what_a_data_set_does_for_each_sample_that_could_be_done_once(line: str, below: str, again: float, searched: float) -> None:
    """Files whose names depend on the sample, and elements that are taken, are as they should be."""
    described = seen(ITEMS.format(name="i", line=line, below=below), (at("Items.__getitem__", 4), *FETCH))

    assert (described.opened_again, described.searched) == (again, searched)


@pytest.mark.parametrize(("name", "again"), [("self.path", 1.0), ("self.paths[i]", 0.0)])
def test_all_of_a_file_is_read_below_the_line_that_opens_it(name: str, again: float) -> None:
    """Opening takes no time, and the pickle is that of all samples, or of one."""
    source = ITEMS.format(name="i", line=f"with open({name}, 'rb') as file:", below="return pickle.load(file)[i]")

    assert seen(source, (at("Items.__getitem__", 5), *FETCH)).opened_again == again


@pytest.mark.parametrize(("condition", "share"), [("row.user == user", 1.0), ("row.kept", 0.0)])
def test_a_comprehension_that_searches_is_a_function_of_its_own(condition: str, share: float) -> None:
    """Before Python 3.12 it has a frame, within that of the data set."""
    source = ITEMS.format(name="i", line=f"return [row for row in self.table if {condition}]", below="")

    assert seen(source, (at("<listcomp>", 4), at("__getitem__", 4), *FETCH)).searched == share


def test_a_loop_that_counts_to_a_sample_searches_for_it() -> None:
    """The comparison is in the loop, and the time in the loop's head."""
    source = "class Items:\n    def __getitem__(self, index):\n        for n, text in enumerate(open(self.path)):\n            if n == index:\n                break\n"

    assert seen(source, (at("Items.__getitem__", 3), *FETCH)).searched == 1.0


def test_what_another_thread_does_is_located() -> None:
    """A server's main thread accepts, and its handlers parse."""
    waits = Sample(7, "MainThread", (Frame("select", "/usr/lib/python3.11/selectors.py", 4), at("<module>", 50)), 90)
    parses = Sample(8, "Thread-1", (Frame("raw_decode", "/usr/lib/python3.11/json/decoder.py", 9), at("do_POST", 18)), 60)

    described = stacks.describe(Samples(7, 2, 50, (waits, parses)), RULES, lambda _: "")

    assert described is not None
    assert {(line.what, line.line) for line in described.lines} >= {("other_threads", 18)}
    assert isinstance(described, Stacks)
    assert described.lines[0].file in (FILE, "")


@pytest.mark.parametrize(
    ("inner", "decodes", "resizes"),
    [
        (("load", "convert"), 1.0, 0.0),
        (("load", "resize"), 1.0, 0.0),
        (("resize",), 0.0, 1.0),
        (("open",), 0.0, 0.0),
    ],
)
def test_an_image_is_decoded_where_its_first_pixel_is_asked_for(inner: tuple[str, ...], decodes: float, resizes: float) -> None:
    """Image.open() reads a header only, and resize() decodes first."""
    pillow = "/env/lib/python3.11/site-packages/PIL"
    frames = tuple(Frame(function, f"{pillow}/{'ImageFile' if function == 'load' else 'Image'}.py", 9) for function in inner)
    described = seen("", (*frames, at("Photos.__getitem__", 4), *FETCH))

    assert (described.image_decode, described.image_resize) == (decodes, resizes)


@pytest.mark.parametrize(
    ("inner", "share"),
    [
        (
            (
                Frame("_recv", "/usr/lib/python3.11/multiprocessing/connection.py", 4),
                Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 4),
            ),
            1.0,
        ),
        ((Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 4),), 1.0),
        ((Frame("get", "/usr/lib/python3.11/queue.py", 4),), 0.0),
        ((Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 4), Frame("_worker", f"{TORCH}/utils/data/dataloader.py", 9)), 0.0),
    ],
)
def test_what_comes_from_processes_is_told_from_threads_and_loaders(inner: tuple[Frame, ...], share: float) -> None:
    """A thread hands over the object itself; a loader has causes of its own."""
    assert seen("", (*inner, at("<module>", 4))).from_processes == share


@pytest.mark.parametrize(
    ("head", "body", "share"),
    [
        ("for tensor in model.state_dict().values():", "dist.broadcast(tensor, 0)", 1.0),
        ("for p in model.parameters():", "dist.all_reduce(p.data)", 1.0),
        ("for p in model.parameters():", "dist.all_reduce(p.grad)", 0.0),
        ("for p in model.parameters():", "dist.all_reduce(flat_of(p.grad.view(-1)))", 0.0),
        ("for value in metrics:", "dist.all_reduce(value)", 0.0),
    ],
)
def test_weights_that_ranks_send_are_told_from_gradients_and_metrics(head: str, body: str, share: float) -> None:
    """By the loop around the call."""
    assert seen(f"{head}\n    {body}\n", (at("<module>", 2),)).weights_sent == share


def test_a_line_that_takes_an_array_of_a_tensor_reads_no_values() -> None:
    """Hashing is what takes the time: on a CPU the array is the tensor's own memory."""
    described = seen("key = sha256(batch.numpy().tobytes())\nloss.backward()\n", (at("<module>", 1),), (BACKWARD, at("<module>", 2)))

    assert (described.readback, described.to_host, described.statement) == (0.0, 0.5, 0.5)


def test_a_backward_pass_counts_by_the_part_of_a_model_that_nobody_updates() -> None:
    """Two thirds of the forward passes are the backbone's; of a line with a ninth nobody asks."""
    calls = [(CALL, at("<module>", 5))] * 6 + [(CALL, at("<module>", 6))] * 2 + [(CALL, at("<module>", 8))]
    frames = [*calls, *[(BACKWARD, at("<module>", 7))] * 6]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(taken, RULES, lambda _: "", is_unoptimized=lambda frame: frame.line in (5, 8))

    assert described is not None
    assert described.unoptimized == pytest.approx(4 / 15)
    assert [line.line for line in described.lines if line.what == "unoptimized"] == [5]

    both = stacks.describe(
        taken, RULES, lambda _: "", is_unoptimized=lambda frame: frame.line in (5, 8), tells=Tells(call=lambda _: "detached")
    )
    assert both is not None
    assert both.unoptimized + both.detached <= both.backward


def test_a_backward_pass_counts_by_the_calls_of_a_model_whose_head_alone_is_updated() -> None:
    frames = [*[(CALL, at("<module>", 5))] * 3, (CALL, at("<module>", 6)), *[(BACKWARD, at("<module>", 7))] * 4]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(one_part=lambda frame: frame.line == 5))

    assert described is not None
    assert (described.beside_part, described.unoptimized) == (0.375, 0.0)
    assert [line.line for line in described.lines if line.what == "beside_part"] == [5]


def test_gradients_of_one_row_after_the_other() -> None:
    frames = [(BACKWARD, at("step", 17), at("<module>", 2))] * 3 + [(CALL, at("step", 15), at("<module>", 2))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(taken, RULES, lambda _: "", tells=Tells(loop=lambda one: ("gradients", "chain") if one.line == 17 else ()))

    assert described is not None
    assert (described.row_gradients, described.loop) == (0.75, ("gradients", "chain"))


def test_a_loop_of_which_a_loss_is_made_is_asked_how_it_works() -> None:
    """It may be the model, and is no loop over pieces; of a loop in Python the cure is the same."""
    source = "def mine(a):\n    for b in a:\n        c = sorted(b)\n\nx = mine(model(y))\nloss.backward()\n"
    frames = (at("mine", 3), at("<module>", 5))
    tells = Tells(lambda one: "loss" if one.line == 5 else "", loop=lambda one: ("chain",) if one.line == 3 else ())
    stack = [frames, frames, (CALL, at("<module>", 5)), (BACKWARD, at("<module>", 6))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", one, 10) for one in stack))

    described = stacks.describe(
        taken, RULES, lambda one: source.splitlines()[(one.line or 1) - 1].strip(),
        loop_of=lambda one: range(2, 4) if one.function == "mine" else range(0), tells=tells,
    )  # fmt: skip

    assert described is not None
    assert (described.cure, described.loop) == ("loss", ("chain",))


def test_a_loop_through_the_tensors_of_a_model_is_one_in_the_step() -> None:
    """As a penalty for what is far from the weights of before, or an average of them."""
    source = ["total = 0", "for n, p in model.named_parameters():", "total = total + (p - old[n]).sum()"]
    frames = [(at("penalty", 3), at("<module>", 9)), (CALL, at("<module>", 9)), (BACKWARD, at("<module>", 10))]
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", stack, 10) for stack in frames))

    described = stacks.describe(
        taken, RULES, lambda one: source[one.line - 1] if one.line is not None and one.line < 4 else "",
        loop_of=lambda one: range(2, 4) if one.line == 3 else range(0), tells=Tells(loop=lambda _: ("parameters", "chain")),
    )  # fmt: skip

    assert described is not None
    assert (round(described.looping, 2), described.loop) == (0.33, ("pieces", "parameters", "chain"))

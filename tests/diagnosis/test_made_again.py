"""What a step makes anew although it could be made once, or at once: told by the lines of a program, and by its loops."""

from __future__ import annotations

import pytest

from sysperf.diagnosis import native, stacks
from sysperf.diagnosis.activities import Stacks
from sysperf.engine.diagnose.inside import RULES
from sysperf.model.profile import Frame, Sample, Samples
from sysperf.script.reached import loops

FILE = "/home/me/train.py"
TORCH = "/env/lib/python3.11/site-packages/torch"
CALL = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 9)
BACKWARD = Frame("backward", f"{TORCH}/autograd/__init__.py", 9)
FETCH = Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 52), Frame("__next__", f"{TORCH}/utils/data/dataloader.py", 9)


def at(function: str, line: int) -> Frame:
    return Frame(function, FILE, line)


def seen(source: str, *stacks_seen: tuple[Frame, ...]) -> Stacks:
    """Equally many samples of each stack of a program of one file."""
    lines, around = source.splitlines(), loops(source)
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", frames, 10) for frames in stacks_seen))

    def loop_of(frame: Frame) -> range:
        return min((each for each in around if frame.file == FILE and (frame.line or 0) in each), key=len, default=range(0))

    def line(frame: Frame) -> str:
        number = frame.line or 0
        return lines[number - 1].strip() if frame.file == FILE and 0 < number <= len(lines) else ""

    described = stacks.describe(taken, RULES, line, loop_of=loop_of)
    assert described is not None
    return described


RETURNS = """\
def returns(rewards, values):
    for t in reversed(range(128)):
        result[t] = rewards[t] + 0.9 * values[t]
    return result

while True:
    x = x / 255
    gains = returns(rewards, values)
    windows = torch.stack([x[i : i + 9] for i in range(99)])
    loss = model(x).mean()
    loss.backward()
"""


def test_a_loop_within_the_step_is_told_from_the_loop_of_steps() -> None:
    """A function that is called in each step, and a comprehension in the training loop; what else that loop does is none."""
    wrapper = Frame("__rsub__", f"{TORCH}/_tensor.py", 9)
    inner, outer = (wrapper, at("returns", 3), at("<module>", 8)), (at("<module>", 9),)
    steps = (BACKWARD, at("<module>", 11)), (CALL, at("<module>", 10))

    assert seen(RETURNS, inner, inner, outer, *steps).looping == 0.6
    assert seen(RETURNS, (at("<module>", 7),), *steps).looping == 0.0
    assert seen(RETURNS, inner).looping == 0.0  # nothing tells which loop is that of steps


def test_a_torn_stack_makes_no_loop_one_of_steps() -> None:
    """A sample is taken while the program runs on: the frames of two moments stand in one stack."""
    inside, torn = (at("returns", 3), at("<module>", 8)), (CALL, at("returns", 3), at("<module>", 8))
    steps = (BACKWARD, at("<module>", 11)), (CALL, at("<module>", 10))

    assert seen(RETURNS, *[inside] * 30, torn, *steps).looping >= 30 / 33
    assert seen(RETURNS, *[inside] * 3, torn, *steps).looping == 0.0
    assert seen(RETURNS, *[(at("<module>", 7),)] * 60, *steps).looping < 0.1


def test_a_loop_over_parameters_is_one_too() -> None:
    """An average of weights is neither windows nor returns: its source tells its own cure."""
    source = (
        "def average(model):\n    for p in model.parameters():\n        p.mul_(0.9)\nwhile True:\n    average(model)\n    loss.backward()\n"
    )

    assert seen(source, (at("average", 3), at("<module>", 5)), (BACKWARD, at("<module>", 6))).looping == 0.5


def test_a_loop_that_calls_a_model_is_none_of_these() -> None:
    """A model for each sample: its many operators are seen as what they are."""
    source = "while True:\n    for i in range(64):\n        parts.append(model(x[i]))\n    loss.backward()\n"

    assert seen(source, (at("<module>", 3),), (CALL, at("<module>", 3)), (BACKWARD, at("<module>", 4))).looping == 0.0


MASKS = """\
def alibi(length, heads):
    return slopes * torch.arange(length)[None]
def padding(tokens):
    return torch.arange(9)[None] < tokens
def noise(length):
    return torch.randn(length)
def forward(self, x, t, lengths):
    b, n, _ = x.shape
    bias = {call}
    self.trace += x.sum()
    self.mean.mul_(0.9)
    return self.line(x)
"""


@pytest.mark.parametrize(
    ("call", "function", "line", "share"),
    [
        ("alibi(x.shape[1], self.config.heads)", "alibi", 2, 1.0),
        ("alibi(len(x), 8, device=x.device)", "alibi", 2, 1.0),
        ("alibi(n, self.heads)", "alibi", 2, 1.0),
        ("alibi(max_len, self.heads)", "alibi", 2, 1.0),
        ("padding(lengths_of(x))", "padding", 4, 0.0),
        ("padding(x)", "padding", 4, 0.0),
        ("padding(lengths)", "padding", 4, 0.0),
        ("padding(x_lens)", "padding", 4, 0.0),
        ("alibi(t, 8)", "alibi", 2, 0.0),
        ("alibi(step, 8)", "alibi", 2, 0.0),
        ("alibi(self.trace, 8)", "alibi", 2, 0.0),
        ("alibi(self.mean, 8)", "alibi", 2, 0.0),
        ("alibi(torch.rand(n), 8)", "alibi", 2, 0.0),
        ("noise(x.shape[1])", "noise", 6, 0.0),
    ],
)
def test_what_depends_on_sizes_alone_is_told_by_its_call(call: str, function: str, line: int, share: float) -> None:
    """A mask of lengths is made of data, noise is another one each time, and a state that the layer changes is none of sizes."""
    assert seen(MASKS.format(call=call), (at(function, line), at("Block.forward", 9), CALL, at("<module>", 99))).constants == share


GRAPHS = """\
def {name}(edges, nodes):
    return torch.unique(edges)
def forward(self, x, edges):
    for layer in self.layers:
        a = {name}(edges, len(x))
edges = read()
for epoch in range(9):
    for x in xs:
        {drawn}
        loss = loss_of(net({given}), y)
"""


@pytest.mark.parametrize(
    ("name", "drawn", "given", "share"),
    [
        ("gcn_norm", "pass", "x, edges", 1.0),
        ("gcn_norm", "pass", "data.x, data.edge_index", 1.0),
        ("gcn_norm", "pass", "data", 1.0),
        ("attend", "pass", "x, edges", 0.0),
        ("gcn_norm", "edges = neighbours(all_edges)", "x, edges", 0.0),
        ("gcn_norm", "nodes, edges = neighbours(all_edges)", "x, edges", 0.0),
        ("gcn_norm", "pass", "x.x, x.edge_index", 0.0),
        ("gcn_norm", "pass", "x", 0.0),
        ("gcn_norm", "i = next(order)", "graphs[i]", 0.0),
    ],
)
def test_a_graph_is_normalised_again(name: str, drawn: str, given: str, share: float) -> None:
    """Its edges are the same in each step as far as the loop tells: those that are drawn there, or come with a batch, are not."""
    source = GRAPHS.format(name=name, drawn=drawn, given=given)
    unique = Frame("_unique_impl", f"{TORCH}/functional.py", 9)

    assert seen(source, (unique, at(name, 2), at("Net.forward", 5), CALL, at("<module>", 10))).constants == share


def test_a_graph_in_a_loop_that_nobody_sees_may_be_another_one_each_time() -> None:
    """A trainer's own loop hands a batch on."""
    source = GRAPHS.format(name="gcn_norm", drawn="pass", given="x, edges")

    assert seen(source, (at("gcn_norm", 2), at("Net.forward", 5), CALL, at("training_step", 6))).constants == 0.0


def test_what_a_layer_computes_is_no_constant() -> None:
    """A table of positions is learned, though its argument is a size."""
    source = "def positions(self, length):\n    return self.table(torch.arange(length))\ndef forward(self, x):\n    p = self.positions(x.shape[1])\n"

    assert seen(source, (CALL, at("Net.positions", 2), at("Net.forward", 4), CALL, at("<module>", 99))).constants == 0.0
    assert seen(source, (at("Net.positions", 2), at("Net.forward", 4), CALL, at("<module>", 99))).constants == 0.0


@pytest.mark.parametrize(("file", "share"), [("core/indexing.py", 1.0), ("core/series.py", 1.0), ("io/parsers/readers.py", 0.0)])
def test_a_data_frame_that_is_asked_for_rows_is_told_from_a_file_that_is_read(file: str, share: float) -> None:
    """Outside of a loader, what pandas does may be done once."""
    inner = (
        Frame("parse", "/usr/lib/python3/dist-packages/pandas/core/frame.py", 9),
        Frame("get", f"/usr/lib/python3/dist-packages/pandas/{file}", 3),
    )
    source = "def __getitem__(self, index):\n    row = self.frame.iloc[index]\n"

    assert seen(source, (*inner, at("Rows.__getitem__", 2), *FETCH)).of_frame == share
    assert seen(source, (*inner, at("Rows.__getitem__", 2))).of_frame == 0.0


@pytest.mark.parametrize(("function", "share"), [("collate_int_fn", 1.0), ("collate_tensor_fn", 0.0)])
def test_lists_of_numbers_that_are_collated_are_told_from_tensors(function: str, share: float) -> None:
    inner = Frame(function, f"{TORCH}/utils/data/_utils/collate.py", 9)

    assert seen("for x in loader:\n", (inner, *FETCH)).collated_numbers == share


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("return self.x[index], self.y[index]", 1.0),
        ("return torch.as_tensor(self.x[i])", 1.0),
        ("return self.read(self.files[index])", 0.0),
    ],
)
def test_rows_in_memory_are_told_from_what_is_read(line: str, share: float) -> None:
    """Of a TensorDataset, and of one that looks like it."""
    source = f"def __getitem__(self, index):\n    {line}\nfor x, y in loader:\n"
    table = Frame("<genexpr>", f"{TORCH}/utils/data/dataset.py", 9)

    assert seen(source, (at("Rows.__getitem__", 2), *FETCH, at("<module>", 3))).rows == share
    assert seen(source, (table, *FETCH, at("<module>", 3))).rows == 1.0


@pytest.mark.parametrize(
    ("line", "activity"),
    [
        ("index = torch.randperm(len(table))[:64]", "drawing"),
        ("index = np.random.choice(SIZE, size, replace=False)", "drawing"),
        ("index = np.random.choice(SIZE, size, p=weights)", "drawing"),
        ("index = np.random.randint(SIZE, size=size)", ""),
        ("index = random.choice(rows)", ""),
        ("x = F.one_hot(tokens, VOCABULARY).float()", "one_hot"),
        ("x = F.embedding(tokens, table)", ""),
    ],
)
def test_lines_that_draw_all_rows_or_make_one_hot_vectors(line: str, activity: str) -> None:
    """By their text."""
    described = seen(line, (at("<module>", 1),))

    assert {name for name in ("drawing", "one_hot") if getattr(described, name)} == ({activity} - {""})


@pytest.mark.parametrize(
    ("file", "function", "activity"),
    [
        ("omegaconf/dictconfig.py", "__getattr__", "configuring"),
        ("psutil/__init__.py", "process_iter", "logging"),
        ("torch/nn/utils/parametrize.py", "get_parametrized", "parametrizing"),
    ],
)
def test_libraries_that_cost_each_step(file: str, function: str, activity: str) -> None:
    """Configuration, meters of the system, weights of a parametrization."""
    called = Frame(function, f"/env/lib/python3.11/site-packages/{file}", 9)

    assert getattr(seen("y = net(x)\n", (called, at("<module>", 1))), activity) == 1.0


def test_a_gradient_that_is_summed_alone_is_told_by_its_line() -> None:
    """One tensor of all of them is none."""
    called = Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 9)

    assert seen("dist.all_reduce(p.grad.data, op=SUM)\n", (called, at("average", 1))).one_gradient == 1.0
    assert seen("dist.all_reduce(flat)\n", (called, at("average", 1))).one_gradient == 0.0


def test_convolutions_outside_of_onednn_are_told_by_their_kernels() -> None:
    """PyTorch's own, and NNPACK's; a product is none."""
    library = f"{TORCH}/lib/libtorch_cpu.so"

    assert "reference" in native.kinds(Frame("at::native::im2col<float>", library))
    assert "reference" in native.kinds(Frame("nnp_owt8x8_3x3_with_bias__avx2", library))
    assert "reference" not in native.kinds(Frame("mkl_blas_def_sgemm_kernel_0_zen", library))
    assert "reference" not in native.kinds(Frame("dnnl::impl::cpu::jit_gemm_convolution_utils::im2col_3d<float>", library))


def test_what_another_program_writes_is_no_small_file() -> None:
    """It is started in each step, and its answer read by the line itself."""
    for line in ('rss = os.popen(f"ps -o rss= -p {pid}").read()', "text = child.stdout.read()"):
        described = seen(f"{line}\n", (at("usage", 1),))
        assert (described.children, described.opening) == (1.0, 0.0)
    assert seen("text = file.read()\n", (at("usage", 1),)).opening == 1.0


def test_kernels_of_pytorch_are_none_of_its_dispatch() -> None:
    """Pooling and batch normalisation name no instruction set, and what oneDNN makes at run time has no name at all."""
    library = f"{TORCH}/lib/libtorch_cpu.so"
    inner = "at::native::(anonymous namespace)::"
    kernels = [
        f"{inner}cpu_max_pool<float, false>",
        f"{inner}batch_norm_cpu_collect_stats_kernel",
        f"{inner}cpu_max_pool_backward<float, false>",
    ]
    kernels += [
        f"{inner}batch_norm_cpu_backward_contiguous_impl<float>(at::Tensor&)",
        "at::CPUGeneratorImpl::random",
        f"{inner}NormalFill16<float, true>",
    ]

    assert all("math" in native.kinds(Frame(kernel, library)) for kernel in kernels)
    assert native.kinds(Frame("[unknown]", "/tmp/perf-2246.map")) == {"math"}


@pytest.mark.parametrize(
    "wrapper",
    [
        "at::_ops::convolution::redispatch",
        "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<float>>::call",
        "at::native::empty_cpu",
        "c10::KernelFunction::callBoxed",
        "at::native::batch_norm_cpu",
        "c10::impl::make_boxed_from_unboxed_functor<float, false>::call",
    ],
)
def test_what_leads_to_a_kernel_is_none(wrapper: str) -> None:
    assert "math" not in native.kinds(Frame(wrapper, f"{TORCH}/lib/libtorch_cpu.so"))


def test_a_connection_that_is_left_commits() -> None:
    """`with` on one of a database waits for the disk at its end; on a lock it does not."""
    assert seen("with self.db:\n", (at("scalar", 1),)).syncing == 1.0
    assert seen("with self.db_lock:\n", (at("scalar", 1),)).syncing == 0.0

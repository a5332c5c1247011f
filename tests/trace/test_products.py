"""Operations of products and convolutions, by what a trace says of their inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.trace.accounting.products import Product, product
from sysperf.trace.peaks import bandwidth_gb_s, dense_16bit

from .labelled import analyzed
from .synthetic import Machine, steps

HALF = ["c10::Half", "c10::Half"]


def said(shapes: list[Any], values: list[str] | None = None, types: list[str] | None = None) -> str:
    return json.dumps([shapes, types or HALF, *([values] if values is not None else [])])


@pytest.mark.parametrize(
    ("name", "shapes", "values", "flop"),
    [
        ("aten::mm", [[8, 16], [16, 4]], None, 2 * 8 * 16 * 4),
        ("aten::baddbmm", [[1], [3, 8, 16], [3, 16, 4]], None, 3 * 2 * 8 * 16 * 4),
        # 7x7, stride 2, padding 3: 32x32 becomes 16x16
        ("aten::cudnn_convolution", [[2, 3, 32, 32], [16, 3, 7, 7]], ["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1"], 2 * 2 * 16 * 256 * 147),
        ("aten::miopen_convolution", [[2, 3, 32, 32], [16, 3, 7, 7], []], ["", "", "", "[3, 3]", "[2, 2]", "[1, 1]"], 2 * 2 * 16 * 256 * 147),
        ("aten::cudnn_convolution_relu", [[2, 3, 32, 32], [16, 3, 7, 7], []], ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]"], 2_408_448),
        # one channel a group, taps two apart, and a length that is not the other
        ("aten::_conv_depthwise2d", [[2, 8, 9, 7], [8, 1, 3, 3], [], [], [], [], []], ["", "", "", "", "[1, 1]", "[0, 0]", "[2, 2]"], 2 * 2 * 8 * 15 * 9),
        # one dimension, whose options are one number
        ("aten::convolution_overrideable", [[4, 8, 100], [16, 8, 5], []], ["", "", "", "[1]", "[0]", "[1]", "False"], 2 * 4 * 16 * 96 * 40),
        # two dimensions, for which one number stands
        ("aten::cudnn_convolution", [[2, 3, 32, 32], [16, 3, 7, 7]], ["", "", "[3]", "[2]", "[1]"], 2 * 2 * 16 * 256 * 147),
        # each of the input's places is spread over 4x4
        ("aten::cudnn_convolution_transpose", [[2, 16, 16, 16], [16, 8, 4, 4]], ["", "", "[1, 1]"], 2 * 2 * 16 * 256 * 128),
        ("aten::convolution_overrideable", [[2, 16, 16, 16], [16, 8, 4, 4], []], ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True"], 2 * 2 * 16 * 256 * 128),
    ],
)  # fmt: skip
def test_operations_follow_from_shapes_and_options(name: str, shapes: list[Any], values: list[str] | None, flop: int) -> None:
    """Two for each multiplication and its addition."""
    assert product(name, said(shapes, values)).flop == flop


@pytest.mark.parametrize(
    ("name", "shapes", "values", "numbers"),
    [
        ("aten::bmm", [[3, 8, 16], [3, 16, 4]], None, 3 * (8 * 16 + 16 * 4 + 8 * 4)),
        ("aten::cudnn_convolution", [[2, 3, 32, 32], [16, 3, 7, 7]], ["", "", "[3, 3]", "[2, 2]", "[1, 1]"], 2 * 3 * 1024 + 16 * 147 + 2 * 16 * 256),
        # the gradient of the weight needs the input and itself beside the one that comes
        (
            "aten::convolution_backward", [[2, 16, 9, 7], [2, 8, 11, 9], [16, 8, 3, 3]],
            ["", "", "", "", "", "", "", "False", "", "", "[False, True, False]"], 2 * 16 * 63 + 2 * 8 * 99 + 16 * 72,
        ),
        (
            "aten::convolution_backward", [[2, 16, 9, 7], [2, 8, 11, 9], [16, 8, 3, 3]],
            ["", "", "", "", "", "", "", "False", "", "", "[True, False, False]"], 2 * 16 * 63 + 16 * 72 + 2 * 8 * 99,
        ),
    ],
)  # fmt: skip
def test_each_tensor_is_moved_once(name: str, shapes: list[Any], values: list[str] | None, numbers: int) -> None:
    """In the type of the inputs: two bytes a number here, four of float, and none of a type that is not known."""
    assert product(name, said(shapes, values)).bytes == 2 * numbers
    assert product(name, said(shapes, values, ["float", "float"])).bytes == 4 * numbers
    assert product(name, said(shapes, values, ["c10::Strange"] * 2)).bytes == 0


@pytest.mark.parametrize(("mask", "times"), [("[True, True, False]", 2), ("[False, True, True]", 1), ("[True, False, False]", 1)])
@pytest.mark.parametrize("transposed", ["False", "True"])
def test_each_gradient_takes_as_much_as_the_convolution(mask: str, times: int, transposed: str) -> None:
    """The input of the first layer gets none; of groups, only a group's channels are multiplied."""
    values = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", transposed, "[0, 0]", "2", mask]
    gradient, given_, weight = [2, 16, 16, 16], [2, 8, 32, 32], [16, 4, 4, 4]
    if transposed == "True":
        gradient, given_ = [2, 8, 32, 32], [2, 16, 16, 16]

    assert product("aten::convolution_backward", said([gradient, given_, weight], values)).flop == times * 2 * 2 * 16 * 256 * 64


def attends(causal: str, query: list[int], key: list[int], *, cumulative: list[int] | None = None, window: str = "") -> str:
    shapes = [query, key, key, cumulative or [], cumulative or [], *([[]] * 12)]
    return said(shapes, ["", "", "", "", "", "128", "128", "0.", causal, "False", "0.125", window, *([""] * 5)], ["c10::BFloat16"] * 3)


@pytest.mark.parametrize(("causal", "flop"), [("False", 4 * 2 * 8 * 128 * 128 * 64), ("True", 2 * 2 * 8 * 128 * 128 * 64)])
def test_attention_is_two_products_of_which_a_causal_one_needs_half(causal: str, flop: int) -> None:
    """Fewer heads of the keys are shared by those of the queries."""
    text = attends(causal, [2, 128, 8, 64], [2, 128, 2, 64])

    assert product("aten::_flash_attention_forward", text) == Product(flop, 2 * 2 * 128 * 64 * (8 + 2 + 2 + 8), is_half=True)


def test_attention_of_other_operators_is_the_same() -> None:
    """Their heads stand before the sequence, or their mask is a number; the backward pass has five products."""
    flop, heads_first = 4 * 2 * 8 * 128 * 128 * 64, [2, 8, 128, 64]
    cudnn = said([heads_first] * 3 + [[]] * 10, ["", "", "", "", "", "", "128", "128", "True", "0.", "False", "False", ""])
    efficient = said([[2, 128, 8, 64]] * 3 + [[]] * 11, [*([""] * 8), "0.", "1", "True", "", "", ""])
    backward = said([[2, 128, 8, 64]] * 5 + [[]] * 12, [*([""] * 8), "128", "128", "0.", "False", *([""] * 5)])
    outer = said([heads_first] * 3 + [[], [], [], [7]], [*([""] * 4), "True", "0.", "False"])
    crossing = attends("False", [2, 32, 8, 64], [2, 128, 8, 64])

    assert product("aten::_cudnn_attention_forward", cudnn).flop == flop
    assert product("aten::_efficient_attention_forward", efficient).flop == flop // 2
    assert product("aten::_flash_attention_backward", backward) == Product(int(2.5 * flop), 2 * 8 * 2 * 128 * 8 * 64, is_half=True)
    assert product("aten::_scaled_dot_product_cudnn_attention", outer).flop == flop
    assert product("aten::_flash_attention_forward", crossing).flop == flop // 4


@pytest.mark.parametrize(
    "text",
    [
        attends("True", [2, 1, 8, 64], [2, 128, 8, 64]),
        attends("False", [300, 8, 64], [300, 8, 64], cumulative=[5]),
        attends("False", [2, 128, 8, 64], [2, 128, 8, 64], cumulative=[5]),
        attends("True", [2, 128, 8, 64], [2, 128, 8, 64], window="64"),
        attends("", [2, 128, 8, 64], [2, 128, 8, 64]),
    ],
)
def test_attention_whose_extent_is_not_told_is_unknown(text: str) -> None:
    """One query of many keys, sequences of several lengths, a window, and files without options."""
    assert product("aten::_flash_attention_forward", text) == Product()


@pytest.mark.parametrize(("window", "is_known"), [("-1", True), ("", True), ("64", False)])
def test_flash_attention_of_8_bits_has_its_window_behind_its_scales(window: str, is_known: bool) -> None:
    """PyTorch's schema has three scales more, and nothing in a file tells but the types."""
    shapes = [[2, 128, 8, 64]] * 3 + [[]] * 15
    values = [*([""] * 5), "128", "128", "0.", "True", "False", "", "", "", "0.125", window, "0", "", ""]
    text = said(shapes, values, ["c10::Float8_e4m3fn"] * 3)

    assert bool(product("aten::_flash_attention_forward", text).flop) == is_known


def products(machine: Machine, untold: int) -> None:
    """Twelve products of 100 TFLOP/s, and so many beside them that a graph launches."""
    args: dict[str, Any] = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::Half", "c10::Half"]}
    us = 2 * 4096**3 / 100e12 * 1e6
    for number in range(12):
        start = machine.now
        machine.kernel(us)
        machine.event("cpu_op", "aten::mm", start, machine.now - start, **args)
        if number < untold:
            machine.graph(us)
    machine.synchronize()


@pytest.mark.parametrize(("untold", "tflops"), [(0, 100.0), (12, None)])
def test_operations_count_where_their_kernels_run_and_most_are_told(tmp_path: Path, untold: int, tflops: float | None) -> None:
    """A host that is ahead has no time in which a device's products could be counted, and graphs do not say what they multiply."""

    def step(machine: Machine) -> None:
        products(machine, untold)

    def ahead(machine: Machine) -> None:
        machine.synchronize = lambda *_: 0.0  # type: ignore[method-assign]
        products(machine, untold)

    for body in (step, ahead):
        (rank,) = analyzed(tmp_path, steps(Machine(), 6, body)).analysis.trace.ranks
        assert rank.work.tflops == (None if tflops is None else pytest.approx(tflops, rel=0.05))


def test_a_truth_value_is_no_kind_of_mask() -> None:
    """In old versions of PyTorch, what stands there says whether sums are kept."""
    old = said([[2, 128, 8, 64]] * 3 + [[]] * 10, [*([""] * 6), "128", "0.", "0", "True", "", "", ""])

    assert product("aten::_efficient_attention_forward", old) == Product()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("aten::cudnn_convolution", said([[2, 3, 32, 32], [16, 3, 7, 7]])),
        ("aten::cudnn_convolution", said([[2, 3, 32, 32], [16, 3, 7, 7]], ["", "", "", "", ""])),
        ("aten::cudnn_convolution", said([[2, 3, 4, 4], [16, 3, 7, 7]], ["", "", "[0, 0]", "[1, 1]", "[1, 1]"])),
        ("aten::cudnn_convolution", said([[2, 3, 32, 32], [16, 3, 7, 7]], ["", "", "[0, 0]", "[0, 0]", "[1, 1]"])),
        ("aten::convolution_backward", said([[2, 3, 32, 32], [2, 3, 32, 32], [16, 3, 7, 7]], ["", "", "", ""])),
        ("aten::cudnn_convolution_transpose", said([[-2, -16, 16, 16], [16, 8, 4, 4]], [])),
        ("aten::cudnn_convolution_transpose", said([[2.5, 16, 16, 16], [16, 8, 4, 4]], [])),
        ("aten::cudnn_convolution_transpose", said([[2, 16], [16, 8]], [])),
        ("aten::relu", said([[8, 16], [16, 4]])),
        ("aten::mm", ""),
        ("aten::mm", "[1"),
        ("aten::mm", said([[-8, 16], [16, 4]])),
        ("aten::mm", said([[1e150, 1e150], [1e150, 4]])),
        ("aten::cudnn_convolution", said([[2, 3, 32, 32], [16, 3, 7, 7]], ["", "", f"[{'9' * 400}, 3]", "[2, 2]", "[1, 1]"])),
    ],
)
def test_what_the_file_does_not_tell_is_unknown(name: str, text: str) -> None:
    """Old versions of PyTorch write no options, and without the stride the result's size is not known."""
    assert product(name, text).flop == 0


@given(
    st.sampled_from(
        ["aten::mm", "aten::cudnn_convolution", "aten::convolution_backward", "aten::_conv_depthwise2d", "aten::_flash_attention_backward"]
    ),
    st.data(),
)
def test_nothing_in_a_file_breaks_it(name: str, data: st.DataObject) -> None:
    item = st.one_of(
        st.none(), st.integers(-3, 1 << 70), st.text(max_size=5), st.lists(st.one_of(st.integers(-3, 99), st.text(max_size=2)), max_size=5)
    )
    lists = data.draw(st.lists(st.lists(item, max_size=12), max_size=3))

    assert product(name, json.dumps(lists)).flop >= 0


def test_convolutions_have_their_share_of_the_peak(tmp_path: Path) -> None:
    """They are what most vision models spend their time with."""
    flop = 2 * 2 * 64 * 256 * 56 * 56 * 256 * 9
    shapes: list[Any] = [[64, 256, 56, 56], [64, 256, 56, 56], [256, 256, 3, 3], *([[]] * 8)]
    values = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    types = ["c10::BFloat16"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"]
    args: dict[str, Any] = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}

    def step(machine: Machine) -> float:
        for _ in range(12):
            start = machine.now
            machine.think(2)
            machine.kernel(flop / 200e12 * 1e6, "cutlass_tensorop_f16_s16816fprop_optimized_f16")
            machine.think(2)
            machine.event("cpu_op", "aten::convolution_backward", start, machine.now - start, **args)
        return machine.synchronize()

    row = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0].busy[0]

    assert (row.operator, row.shapes, row.bound) == ("aten::convolution_backward", "64×256×56×56, 64×256×56×56, 256×256×3×3", "compute")
    assert row.tflops == pytest.approx(200, rel=0.02)
    assert row.peak_pct == pytest.approx(100 * 200 / 312, rel=0.02)


@pytest.mark.parametrize(
    ("name", "peak", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None, None),
        ("NVIDIA RTX A1000", None, None),
        ("Tesla V100-PCIE-32GB", 112.0, 900.0),
        ("Tesla V100-SXM2-16GB", 125.0, 900.0),
        ("Tesla V100S-PCIE-32GB", 130.0, 1134.0),
        ("Tesla V100-FHHL-16GB", None, None),
        ("NVIDIA RTX A4000", None, None),
        ("NVIDIA GB200", 2500, 8000),
        ("NVIDIA GH200 480GB", 989, 4000),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA GeForce RTX 3080 Ti", None, None),
        ("AMD Instinct MI250X", 191.5, 1638),
        (None, None, None),
    ],
)
def test_a_peak_is_that_of_the_device_and_of_none_with_a_longer_name(name: str | None, peak: float | None, bandwidth: float | None) -> None:
    """A part of a device, or one of a laptop, would reach a share that it does not have."""
    assert (dense_16bit(name), bandwidth_gb_s(name)) == (peak, bandwidth)

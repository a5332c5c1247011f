"""Floating-point operations of matrix products, convolutions and attention, by the shapes of their inputs and their options."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from sysperf.model.record import Json, from_json
from sysperf.trace.timeline import PRODUCTS

WIDTHS = {"float": 4, "int": 4, "long int": 8, "double": 8, "c10::half": 2, "c10::bfloat16": 2, "half": 2, "bfloat16": 2, "bool": 1,
          "unsigned char": 1, "signed char": 1, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1}  # fmt: skip
"""Bytes of an element by the types that PyTorch writes, in lower case."""
_FORWARD = {
    "aten::cudnn_convolution": (2, 3, 4),
    "aten::miopen_convolution": (3, 4, 5),
    "aten::miopen_depthwise_convolution": (3, 4, 5),
    "aten::cudnn_convolution_relu": (4, 3, 5),
    "aten::cudnn_convolution_add_relu": (6, 5, 7),
    "aten::convolution_overrideable": (4, 3, 5),
    "aten::_conv_depthwise2d": (5, 4, 6),
    "aten::conv_depthwise3d": (5, 4, 6),
}
"""Convolutions: where among their arguments padding, stride and dilation stand, as the operators' schemas say."""
_TRANSPOSED = frozenset(("aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose"))
_BACKWARD = "aten::convolution_backward"
_OPTION_OF_TRANSPOSED = {"aten::convolution_overrideable": 6, _BACKWARD: 7}


class _Attention(NamedTuple):
    """Places among an operator's arguments: of the query, of whether it is causal, and of where sequences of other lengths begin."""

    query: int
    causal: int
    lengths: int
    heads: int = 1
    """The dimension of the heads; the other one is the sequence."""


_ATTENTION = {
    "aten::_flash_attention_forward": _Attention(0, 8, 3, heads=2),
    "aten::_flash_attention_backward": _Attention(1, 11, 6, heads=2),
    "aten::_efficient_attention_forward": _Attention(0, 9, 4, heads=2),
    "aten::_efficient_attention_backward": _Attention(1, 14, 6, heads=2),
    "aten::_cudnn_attention_forward": _Attention(0, 10, 4),
    "aten::_cudnn_attention_backward": _Attention(1, 14, 9),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(0, 6, -1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(1, 14, 9),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Attention(0, 5, -1),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _Attention(1, 13, 8),
}
"""As their schemas say."""
_CAUSAL, _MASKS = {"True": 2, "False": 1}, {"1": 2, "2": 2, "0": 1}
"""By how much less a causal one computes. Memory-efficient attention has kinds of masks, and its old versions a truth value there."""
_WINDOWS = {"aten::_flash_attention_forward": 11, "aten::_flash_attention_backward": 15, "aten::_efficient_attention_forward": 13,
            "aten::_efficient_attention_backward": 18}  # fmt: skip
"""Where the length stands at which a sliding window ends."""
_WINDOW_OF_QUANTIZED = 14
"""Of flash attention of 8 bits, whose scales stand before it."""
BACKWARD_PRODUCTS = 2.5
"""Five products, one of them the scores again, where the forward pass has two."""
MAX_COUNT = 1 << 63
"""No operator of today has so many operations, or bytes; a file may say anything."""


class Product(NamedTuple):
    """One matrix product, convolution or attention, by the shapes and types of its inputs."""

    flop: int = 0
    bytes: int = 0
    is_half: bool = False
    is_misaligned: bool = False
    """A 16-bit dimension of a product is no multiple of 8."""


class Inputs(NamedTuple):
    """What an operator was called with: of each argument the shape, the type, and the value where it is a number or a list."""

    shapes: list[Json]
    types: list[Json]
    values: list[Json]

    @classmethod
    def of(cls, text: str) -> Inputs:
        """Read lists of `Timeline.shapes`; empty ones where they cannot be read."""
        try:
            lists = from_json(text or "[]", list[list[Json]])
        except ValueError:
            lists = []
        return cls(*(lists[place] if place < len(lists) else [] for place in range(3)))


def product(name: str, text: str) -> Product:
    """What `Timeline.shapes` says of one of them; nothing of another operator, or where that does not tell."""
    try:
        found = _product(name, Inputs.of(text))
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return Product()
    return found if 0 <= found.flop < MAX_COUNT and 0 <= found.bytes < MAX_COUNT else Product()


def _product(name: str, inputs: Inputs) -> Product:
    if name in PRODUCTS:
        return _of_matrices(name, inputs)
    if name == _BACKWARD:
        return _backward(inputs)
    if name in _ATTENTION:
        return _attention(name, _ATTENTION[name], inputs)
    return _convolution(name, inputs) if name in _FORWARD or name in _TRANSPOSED else Product()


def _of_matrices(name: str, inputs: Inputs) -> Product:
    shapes, types, _ = inputs
    left, right = (shapes[1], shapes[2]) if name in ("aten::addmm", "aten::baddbmm") else (shapes[0], shapes[1])
    *batch, rows, inner = left
    columns, count = right[-1], prod(batch)
    kind = str(types[1] if len(types) > 1 else "").lower()
    odd = _is_half(kind) and any(size % 8 for size in (rows, inner, columns) if size > 1)
    moved = count * (rows * inner + inner * columns + rows * columns) * WIDTHS.get(kind, 0)
    return Product(int(2 * count * rows * inner * columns), int(moved), _is_half(kind), odd)


def _convolution(name: str, inputs: Inputs) -> Product:
    given, weight = _sizes(inputs.shapes[0]), _sizes(inputs.shapes[1])
    if name in _TRANSPOSED or _is_transposed(name, inputs):
        return _moving(inputs, 2 * prod(given) * prod(weight[1:]), (given, weight))
    padding, stride, dilation = (_numbers(inputs.values[place], len(weight) - 2) for place in _FORWARD[name])
    spans = zip(given[2:], weight[2:], padding, stride, dilation, strict=True)
    out = [given[0], weight[0], *((size + 2 * pad - far * (taps - 1) - 1) // by + 1 for size, taps, pad, by, far in spans)]
    return _moving(inputs, 2 * prod(out) * prod(weight[1:]), (given, weight, out)) if min(out) > 0 else Product()


def _backward(inputs: Inputs) -> Product:
    """Count both gradients where they are asked for: each takes as much as the convolution."""
    gradient, given, weight = map(_sizes, inputs.shapes[:3])
    of_input, of_weight, *_ = (word == "True" for word in str(inputs.values[10]).strip("[]").split(", "))
    around = given if _is_transposed(_BACKWARD, inputs) else gradient
    flop = 2 * prod(around) * prod(weight[1:]) * (of_input + of_weight)
    return _moving(inputs, flop, (gradient, *((weight, given) * of_input), *((given, weight) * of_weight)))


def _attention(name: str, at: _Attention, inputs: Inputs) -> Product:
    """Scores and their product with the values; nothing of sequences of several lengths, of windows, and of queries that only end alike."""
    query, key, value = (_sizes(inputs.shapes[at.query + place]) for place in range(3))
    is_quantized = name == "aten::_flash_attention_forward" and "float8" in str(inputs.types[0]).lower()
    sequence, window = 3 - at.heads, _WINDOW_OF_QUANTIZED if is_quantized else _WINDOWS.get(name)
    less = (_MASKS if "efficient" in name else _CAUSAL)[str(inputs.values[at.causal])]
    several = at.lengths >= 0 and inputs.shapes[at.lengths]
    if len(query) != 4 or several or (window is not None and inputs.values[window : window + 1] not in ([], [""], ["-1"])):
        return Product()
    if less > 1 and query[sequence] != key[sequence]:
        return Product()
    flop = 2 * query[0] * query[at.heads] * query[sequence] * key[sequence] * (query[3] + value[3]) // less
    of = inputs._replace(types=inputs.types[at.query :])
    if "backward" in name:
        return _moving(of, int(BACKWARD_PRODUCTS * flop), (query, key, value) * 2 + (query, query))
    return _moving(of, flop, (query, key, value, query))


def _is_transposed(name: str, inputs: Inputs) -> bool:
    place = _OPTION_OF_TRANSPOSED.get(name)
    return place is not None and inputs.values[place] == "True"


def _moving(inputs: Inputs, flop: int, tensors: Sequence[Sequence[int]]) -> Product:
    kind = str(inputs.types[0]).lower()
    return Product(flop, sum(map(prod, tensors)) * WIDTHS.get(kind, 0), _is_half(kind))


def _is_half(kind: str) -> bool:
    return "half" in kind or "bfloat16" in kind


def _sizes(shape: Json) -> list[int]:
    """The sizes of a tensor of at least one dimension besides batch and channels. Raises ValueError for anything else."""
    if not isinstance(shape, list) or len(shape) < 3 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError
    return shape


def _numbers(text: Json, count: int) -> list[int]:
    """An option of so many dimensions, from ``[2, 2]``; one number stands for all. Raises ValueError for anything else."""
    numbers = [int(number) for number in str(text).strip("[]").split(",")]
    return numbers * count if len(numbers) == 1 else numbers

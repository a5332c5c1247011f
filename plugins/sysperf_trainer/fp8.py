"""Linear layers whose three matrix products run in 8 bits, each tensor scaled by its own largest value.

Values and weights are e4m3 (3 bits of mantissa), gradients e5m2 (a larger range), as in torchao's tensorwise recipe:
https://github.com/pytorch/ao/tree/main/torchao/float8. It pays from about a billion weights on, and only under torch.compile, which
joins the scaling with what is before it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

ALIGNMENT = 16
"""What `torch._scaled_mm` wants of both sizes of a weight."""


def convert_linear_layers(module: nn.Module) -> None:
    """Have each aligned linear layer within a module compute in 8 bits. Weights, names and state stay what they are."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and child.in_features % ALIGNMENT == child.out_features % ALIGNMENT == 0:
            layer = Float8Linear(child.in_features, child.out_features, bias=child.bias is not None, device="meta")
            layer.weight, layer.bias = child.weight, child.bias
            setattr(module, name, layer)
        else:
            convert_linear_layers(child)


class Float8Linear(nn.Linear):
    """A linear layer in 8 bits."""

    def forward(self, values: Tensor) -> Tensor:
        flat = values.reshape(-1, self.in_features).to(torch.bfloat16)
        product = _Float8Product.apply(flat, self.weight.to(torch.bfloat16))
        result = product.view(*values.shape[:-1], self.out_features)
        return result if self.bias is None else result + self.bias.to(result.dtype)


class _Float8Product(torch.autograd.Function):
    """values (rows, in) times weight (out, in), transposed; and both products of its backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401 - torch's context has no type of its own
        ctx.save_for_backward(values, weight)
        return _product(values, weight.t(), torch.float8_e4m3fn, torch.float8_e4m3fn)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - torch's context has no type of its own
        values, weight = ctx.saved_tensors
        of_values = _product(gradient, weight, torch.float8_e5m2, torch.float8_e4m3fn)
        of_weight = _product(gradient.t(), values, torch.float8_e5m2, torch.float8_e4m3fn)
        return of_values, of_weight


def _product(left: Tensor, right: Tensor, left_type: torch.dtype, right_type: torch.dtype) -> Tensor:
    """The product of two matrices in 8 bits: the left one by rows, the right one by columns, as the hardware reads them."""
    left_8, left_scale = _scaled(left.contiguous(), left_type)
    right_8, right_scale = _scaled(right.t().contiguous(), right_type)
    return torch._scaled_mm(left_8, right_8.t(), scale_a=left_scale, scale_b=right_scale, out_dtype=torch.bfloat16)  # noqa: SLF001 - the only entry to it


def _scaled(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Values in 8 bits, and the factor that gives them back."""
    scale = values.abs().amax().float().clamp(min=1e-12) / torch.finfo(dtype).max
    return (values.float() / scale).to(dtype), scale

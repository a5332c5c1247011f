"""What a function says of its own parameters, where no call tells what is given."""

from __future__ import annotations

import ast

from sysperf.script.nodes import last_name
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.value import Value
from sysperf.script.syntax import Function, within

_NUMBERS = frozenset(("float", "int", "bool", "Optional", "Union"))
"""What an annotation of a number is made of."""


def of_forward(kind: str, function: Function, index: int) -> list[Value]:
    """The parameters of a model's `forward` are tensors, unless an annotation or a default says otherwise. `kind`: what its class is."""
    if function.name != "forward" or kind not in ("model", "lightning"):
        return []
    arguments = [*function.args.posonlyargs, *function.args.args]
    required = range(1, len(arguments) - len(function.args.defaults))
    annotation = arguments[index].annotation if index in required else None
    return [Value("tensor", guess=True)] if index in required and (annotation is None or "Tensor" in ast.dump(annotation)) else []


def annotated(names: Names, annotation: ast.expr | None) -> list[Value]:
    """What its annotation says of a parameter: ``loss: torch.Tensor``, ``loss_divisor: float | None``."""
    if annotation is None:
        return []
    if names.qualified(annotation) in ("torch.Tensor", "Tensor"):
        return [Value("tensor")]
    words = {last_name(part) for part in within(annotation) if isinstance(part, ast.Name | ast.Attribute)}
    return [Value("number")] if words and words <= _NUMBERS and words & {"float", "int"} else []

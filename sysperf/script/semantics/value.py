"""One value of an expression: its kind, what made it, and the device that an expression names."""

from __future__ import annotations

import ast
from typing import NamedTuple

from sysperf.script.nodes import argument, asked_key, keyword, last_name
from sysperf.script.semantics.names import Names


class Value(NamedTuple):
    """What an expression is, and the call that made it, where that is in the file; a guess rests on the name alone."""

    kind: str
    origin: ast.AST | None = None
    guess: bool = False


def several(value: Value) -> Value:
    """A value in a list."""
    return value._replace(kind=f"{value.kind}s") if value.kind in ("loader", "model", "parameter") else value


def single(value: Value) -> Value:
    """A value out of a list."""
    return value._replace(kind=value.kind[:-1]) if value.kind in ("loaders", "models", "parameters") else value


def element_of(value: Value) -> Value:
    """What iterating a value gives."""
    kinds = {"loader": "batch", "loaders": "loader", "models": "model", "parameters": "parameter"}
    return value._replace(kind=kinds.get(value.kind, value.kind))


def device_text(names: Names, node: ast.expr | None) -> str:
    """``cuda`` or ``cpu`` where an expression names that device; ``device`` for a name that stands for one; empty otherwise.

    Whoever starts a program may name another device than the CPU that is only a default.
    """
    if node is None:
        return ""
    value = names.constant(node)
    if isinstance(value, str):
        known = value.partition(":")[0] if value.startswith(("cuda", "cpu", "mps", "xpu")) else ""
        return "device" if known == "cpu" and names.is_left_open(node) else known
    if isinstance(node, ast.Call) and names.qualified(node.func).startswith("torch.accelerator."):
        return "device"
    if isinstance(node, ast.Call) and names.qualified(node.func) == "torch.device":
        return device_text(names, argument(node, "type", 0) or keyword(node, "device")) or "device"
    words = (asked_key(node) or last_name(node.func if isinstance(node, ast.Call) else node)).lower()
    return "device" if words in ("device", "rank", "local_rank", "gpu", "gpu_id", "device_id", "dev", "torch_device", "cuda") else ""

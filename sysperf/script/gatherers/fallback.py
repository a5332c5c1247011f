"""Code for another version of a library, or for where a name is missing."""

from __future__ import annotations

import ast

from sysperf.script.file import File
from sysperf.script.nodes import last_name
from sysperf.script.syntax import within
from sysperf.startup import lazy

_VERSION = lazy(r"\d+\.\d+[\w.]*")
_AMP_EXISTS = lazy(r"\w*(amp|autocast)_(is_)?(available|supported|exists)")
_OF_OLD = lazy(r"(?i)polyfill|backport|fallback|compat")
"""Functions and classes for versions that have no such thing."""
_MISSING = frozenset(("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "NameError", "hasattr", "getattr"))


def is_fallback(file: File, node: ast.AST) -> bool:
    """Whether code is for another version, or for where a name is missing: a branch on a version, `except ImportError`, `hasattr`."""
    child = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.ExceptHandler) or (isinstance(parent, ast.Try) and parent.handlers and child in parent.body):
            caught = parent.type if isinstance(parent, ast.ExceptHandler) else parent.handlers[0].type
            if caught is None or any(last_name(part) in _MISSING for part in within(caught)):
                return True
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            names = {word.lower() for part in within(parent.test) for word in (last_name(part), *_text_of(part)) if word}
            if any(
                "version" in name or name in _MISSING or name.startswith(("torch_", "has_", "is_torch")) or _AMP_EXISTS.fullmatch(name)
                for name in names
            ):
                return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and any(_names_version(each) for each in parent.decorator_list):
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _OF_OLD.search(parent.name):
            return True
        child = parent
    return False


def _names_version(decorator: ast.expr) -> bool:
    """``@implement_for("torch", None, "2.3")``."""
    given = decorator.args if isinstance(decorator, ast.Call) else []
    return any(_VERSION.fullmatch(text) for part in given for text in _text_of(part))


def _text_of(node: ast.AST) -> tuple[str, ...]:
    return (node.value[:60],) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ()

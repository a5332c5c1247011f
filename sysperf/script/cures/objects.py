"""Whether a line of a data set makes an object anew for each sample, as a transform or a tokenizer, that could be made once and kept."""

from __future__ import annotations

import ast

from sysperf.script.cures.apart import MAKERS, is_hidden
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import RANDOM, Depends
from sysperf.script.nodes import arguments, last_name, root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

_LIBRARIES = lazy(r"^(?:torchvision|torchaudio|albumentations|monai|kornia|transformers|tokenizers|(?:torch_)?audiomentations)\b")
"""Libraries whose transforms and tokenizers draw their chances when they are called, and not when they are made."""
_OF_SAMPLES = ("__getitem__", "__getitems__")


def made_for_each(source: Depends, statement: ast.stmt) -> bool:
    """Whether a statement of a data set makes an object of constants and of what its constructor has kept, and only calls it then."""
    function = source.tree.function_of(statement)
    owner = source.tree.class_of(statement)
    if function is None or owner is None or function.name in MAKERS or not _has_samples(owner) or is_hidden(source):
        return False
    if not isinstance(statement, ast.Assign) or not isinstance(call := statement.value, ast.Call):
        return False
    if not all(isinstance(target, ast.Name) for target in statement.targets):
        return False
    return _makes_the_same(source, call) and all(_is_used(source, target) for target in statement.targets if isinstance(target, ast.Name))


def _has_samples(owner: ast.ClassDef) -> bool:
    return any(isinstance(part, Function) and part.name in _OF_SAMPLES for part in owner.body)


def _makes_the_same(source: Depends, call: ast.Call) -> bool:
    """Whether a call makes the same object each time."""
    is_known = _is_plain(source.classes[called(call)]) if called(call) in source.classes else _is_of_library(source, call)
    return is_known and all(_stays(source, part) for part in arguments(call))


def _stays(source: Depends, part: ast.expr) -> bool:
    """Whether an argument is made of constants, of the program's own names outside of functions, and of what a constructor has kept."""
    calls = [node for node in ast.walk(part) if isinstance(node, ast.Call)]
    names = [node for node in ast.walk(part) if isinstance(node, ast.Name)]
    own = [node for node in ast.walk(part) if isinstance(node, ast.Attribute) and last_name(node.value) == "self"]
    return (
        all(_makes_the_same(source, call) for call in calls)
        and all(name.id == "self" or _is_outside(source, name) for name in names)
        and all(_is_kept(source, node) for node in own)
    )


def _is_outside(source: Depends, name: ast.Name) -> bool:
    """Whether a name is a module, a class or a constant of the file."""
    definitions = source.definitions(name)
    return all(source.scope_of(one.node) is source.tree.module for one in definitions) and not any(
        source.tree.function_of(node) for node in source.changed(name.id)
    )


def _is_kept(source: Depends, part: ast.Attribute) -> bool:
    makers = [source.tree.function_of(node) for node in source.changed(f".{part.attr}")]
    return bool(makers) and all(maker is not None and maker.name in MAKERS for maker in makers)


def _is_plain(owner: ast.ClassDef) -> bool:
    """Whether a class draws nothing when it is made, and its objects keep nothing of their calls."""
    for function in (node for node in ast.walk(owner) if isinstance(node, Function)):
        nodes = list(ast.walk(function))
        is_maker = function.name in MAKERS
        if not is_maker and any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for node in nodes):
            return False
        makes = is_maker or function.name not in ("forward", "__call__")
        if makes and any(RANDOM.search(called(node)) for node in nodes if isinstance(node, ast.Call)):
            return False
        if any(isinstance(node, ast.Global | ast.Nonlocal) for node in nodes):
            return False
    return True


def _is_of_library(source: Depends, call: ast.Call) -> bool:
    """Whether a call makes an object of a library whose objects keep nothing of their calls."""
    root = root_of(call.func)
    name = called(call)
    if not isinstance(root, ast.Name) or not (name[:1].isupper() or name == "from_pretrained"):
        return False
    return any(_LIBRARIES.match(module) for module in _modules(source, root.id))


def _modules(source: Depends, name: str) -> list[str]:
    """The modules that a name may stand for, or be of."""
    plain = [alias for node in source.tree.of(ast.Import) for alias in node.names]
    parts = [(node.module or "", alias) for node in source.tree.of(ast.ImportFrom) for alias in node.names]
    found = [alias.name for alias in plain if (alias.asname or alias.name.partition(".")[0]) == name]
    return [*found, *(module for module, alias in parts if (alias.asname or alias.name) == name)]


def _is_used(source: Depends, target: ast.Name) -> bool:
    """Whether what is made is only called, or asked for what it has."""
    function, tree = source.tree.function_of(target), source.tree
    uses = [node for node in source.names.get(target.id, ()) if isinstance(node.ctx, ast.Load) and tree.function_of(node) is function]
    return bool(uses) and all(
        (isinstance(parent := tree.parents[use], ast.Call) and parent.func is use)
        or (isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load))
        for use in uses
    )

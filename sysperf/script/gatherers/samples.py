"""Samples that lie in memory ready to be taken, where workers of a loader would only copy them."""

from __future__ import annotations

import ast

from sysperf.script.file import File
from sysperf.script.nodes import dotted, keyword, last_name
from sysperf.script.semantics.binding import Binding
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

_TAKING = frozenset(
    (
        "tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor", "LongTensor", "BoolTensor", "IntTensor", "array", "asarray",
        "astype", "copy", "clone", "cat", "stack", "concatenate", "squeeze", "unsqueeze", "reshape", "view", "flatten", "float",
        "long", "int", "bool", "double", "item", "tolist", "to", "type", "len", "isinstance", "is_tensor", "hasattr", "dict", "list",
        "tuple", "size", "dim", "zeros", "get", "append", "range", "TypeError", "IndexError", "ValueError", "super",
    )
)  # fmt: skip
"""Calls that cost a few microseconds."""
_ELSEWHERE = lazy(
    r"(?i)\w*(data_?sets?|base|source|reader|stores?|files?|paths?|h5\w*|hdf\w*|lmdb|zarr|mem_?map|mmap|mmap_mode|netcdf|loader"
    r"|load_dataset|streams?|arrow|parquet|images?|img|imgs|audios?|videos?)|(\w*_)?(ds|db|env)"
)
"""Names of what may read a file, or another data set that does more."""

_ON_DISK = lazy(r"(?i)h5py|\w*mem_?map\w*|mmap_mode|lmdb|zarr|netcdf4|load_dataset|load_from_disk|hdfstore")


def are_at_hand(file: File, loader: ast.Call, dataset: ast.expr) -> bool:
    """Whether a data set of this file takes rows out of memory, and nothing else puts a batch together."""
    made = {value.origin for value in file.values.of(dataset) if value.kind == "dataset" and isinstance(value.origin, ast.Call)}
    names = {file.names.qualified(call.func) for call in made if isinstance(call, ast.Call)} or _said(file, dataset)
    return (
        not is_put_together(file, loader)
        and bool(names)
        and all(name in file.names.classes and gives_rows(file.names.classes[name]) for name in names)
    )


def _said(file: File, dataset: ast.expr) -> set[str]:
    """The classes that annotations name, where whoever calls a function gives the data set."""
    bound = file.names.lookup(dataset, dataset.id) if isinstance(dataset, ast.Name) else []
    said = (part for each in bound if each.parameter is not None and each.annotation is not None for part in within(each.annotation))
    return {part.id for part in said if isinstance(part, ast.Name)} - {"Optional", "Union"}


def is_put_together(file: File, loader: ast.Call) -> bool:
    """Whether a function makes a batch of samples that may work for it: a tokenizer in `collate_fn`."""
    collate = keyword(loader, "collate_fn")
    functions = [collate] if isinstance(collate, ast.Lambda) else file.names.functions.get(last_name(collate), []) if collate else []
    return collate is not None and not (len(functions) == 1 and _takes(functions[0]))


def are_listed(file: File, dataset: ast.expr) -> bool:
    """Whether a data set is a list of samples: ``[data[i] for i in chosen]``, a part that sklearn split off."""
    bindings = file.names.lookup(dataset, dotted(dataset)) if dotted(dataset) else []
    return bool(bindings) and all(_is_list(file, binding) for binding in bindings)


def _is_list(file: File, binding: Binding) -> bool:
    if isinstance(binding.value, ast.List | ast.ListComp):
        return not binding.path and not binding.element
    called = file.names.qualified(binding.value.func) if isinstance(binding.value, ast.Call) else ""
    return bool(binding.path) and called.startswith("sklearn.") and called.endswith(".train_test_split")


def gives_rows(dataset: ast.ClassDef) -> bool:
    """Whether a class has a `__getitem__` that only indexes what its objects keep."""
    parts = list(within(dataset, functions=True))
    words = [last_name(part) for part in parts] + [part.arg or "" for part in parts if isinstance(part, ast.keyword)]
    if any(_ON_DISK.fullmatch(word) for word in words):
        return False
    methods = {part.name: part for part in dataset.body if isinstance(part, ast.FunctionDef)}
    gives = methods.get("__getitem__")
    return gives is not None and _takes(gives)


def _takes(function: Function | ast.Lambda) -> bool:
    """Whether a function indexes and converts, and calls nothing that may work."""
    body: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
    parts = [part for each in body for part in within(each)]
    calls = (last_name(part.func) for part in parts if isinstance(part, ast.Call))
    indexed = (dotted(part.value) for part in parts if isinstance(part, ast.Subscript))
    plain = not any(isinstance(part, ast.While | ast.With | ast.Lambda) for part in parts)
    return plain and all(name in _TAKING for name in calls) and not any(_ELSEWHERE.fullmatch(name.rpartition(".")[2]) for name in indexed)

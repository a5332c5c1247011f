"""Facts of layers: convolutions with what follows them, layers of constant sizes, and whether products are computed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Layer
from sysperf.script.file import OPEN, File
from sysperf.script.nodes import argument, dotted
from sysperf.script.semantics.kinds import SETTINGS
from sysperf.script.syntax import within
from sysperf.startup import lazy

_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
_CONVS = ("Conv1d", "Conv2d", "Conv3d")
_TIES = lazy(r"(?i)\w*(tie|tied)_\w+|\w*(tie|share)_?(weights|embeddings?|heads?)\w*")
_PRETRAINED = lazy(r"(?i)\w*pretrained\w*|serialization|load_checkpoint\w*|from_hf\w*|hf_\w+")


def layers(file: File) -> Iterator[Layer]:
    """Convolutions with what follows them, and layers of constant sizes."""
    normed, tied = _normed(file), _is_tied(file)
    loads = any(_PRETRAINED.fullmatch(word) for word in (*file.words, *file.names.imports))
    for call in file.tree.of(ast.Call):
        name = file.names.qualified(call.func)
        if not name.startswith("torch.nn."):
            continue
        last = name.rpartition(".")[2]
        if last in _CONVS:
            given = argument(call, "bias", 7)
            value = file.names.constant(given) if given is not None else True
            bias = value if isinstance(value, bool) else None
            yield Layer(**file.site(call), what=name, bias=bias, before_norm=call in normed, sizes=_sizes(file, call))
        elif last in ("Linear", "Embedding"):
            multiplies = last == "Linear" or tied
            sizes = _sizes(file, call) if multiplies and not (loads and _is_configured(call)) else ()
            yield Layer(**file.site(call), what=name, bias=None, before_norm=False, sizes=sizes)


def _is_tied(file: File) -> bool:
    """Whether the weights of an embedding are those of a product, too: ``self.head.weight = self.embedding.weight``."""
    tied = (target for part in file.tree.of(ast.Assign) for target in part.targets if isinstance(target, ast.Attribute))
    return any(target.attr == "weight" for target in tied) or any(_TIES.fullmatch(word) for word in file.words)


def _is_configured(call: ast.Call) -> bool:
    """Whether a configuration has the sizes of a layer: where a file loads weights, those decide on them."""
    return any(SETTINGS.fullmatch(dotted(part.value)) for given in call.args for part in within(given) if isinstance(part, ast.Attribute))


def _sizes(file: File, call: ast.Call) -> tuple[int, ...]:
    values = [file.names.constant(given) for given in call.args[:2]]
    return tuple(value for value in values if isinstance(value, int)) if len(values) == 2 and OPEN not in values else ()


def _normed(file: File) -> set[ast.AST]:
    """The convolutions that a batch norm follows: beside it in a Sequential, or around it in `forward`."""
    convolutions: set[ast.AST] = set()
    for call in file.tree.of(ast.Call):
        if file.names.qualified(call.func) == "torch.nn.Sequential":
            for first, second in zip(call.args, call.args[1:], strict=False):
                if _is_layer(file, second, _NORMS):
                    convolutions.add(first)
        elif len(call.args) == 1 and isinstance(inner := call.args[0], ast.Call) and _attribute_of(file, call, _NORMS):
            convolutions |= set(_attribute_of(file, inner, _CONVS))
    return convolutions


def _is_layer(file: File, node: ast.AST, names: tuple[str, ...]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = file.names.qualified(node.func)
    return name.startswith("torch.nn.") and name.rpartition(".")[2] in names


def _attribute_of(file: File, call: ast.Call, names: tuple[str, ...]) -> list[ast.expr]:
    """The one layer that a called attribute such as `self.conv1` is."""
    name = dotted(call.func)
    if not name.startswith("self."):
        return []
    values = [binding.value for binding in file.names.lookup(call, name) if binding.value is not None]
    return values if len(values) == 1 and _is_layer(file, values[0], names) else []


def uses_products(file: File) -> bool:
    """Whether matrix products of float32 are computed: by layers of this file, or a model that is loaded."""
    names = (file.names.qualified(call.func) for call in file.tree.of(ast.Call))
    products = (
        "torch.nn.Linear",
        "torch.nn.MultiheadAttention",
        "torch.nn.Transformer",
        "torch.nn.LSTM",
        "torch.nn.GRU",
        "transformers.Auto",
    )
    return any(name.startswith(products) or name.endswith(".from_pretrained") for name in names)


def uses_convolutions(file: File) -> bool:
    """Whether two-dimensional convolutions are made or come with a pretrained model."""
    names = (file.names.qualified(call.func) for call in file.tree.of(ast.Call))
    return any(name == "torch.nn.Conv2d" or name.startswith(("torchvision.models.", "segmentation_models_pytorch.")) for name in names)

"""A source file to the facts of the area `script`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Script, Setting
from sysperf.script.file import File
from sysperf.script.gatherers import (
    calls,
    inference,
    layers,
    loaders,
    modes,
    patterns,
    settings,
    syncs,
    tensors,
    training,
    transfers,
    updates,
)
from sysperf.script.nodes import keyword, last_name
from sysperf.script.semantics.links import Surroundings
from sysperf.script.source import Source
from sysperf.startup import lazy

FRAMEWORKS = ("lightning", "pytorch_lightning", "accelerate", "transformers", "timm", "deepspeed", "ultralytics")
WORDS = ("torch", "lightning", "accelerate", "transformers", "timm", "datasets", "gc.disable", "wandb")
"""A file in which none of these stands has nothing to say."""
_PRECISION_WORDS = lazy(
    r"(?i)(\w*_)?(autocast\w*|amp|b?f(p|loat)?16|half|mixed\w*|apex|precision|grad_?scaler|set_default_dtype|dtype_\w+|\w+_dtype)(_\w+)?"
)
"""Names and options that say that the number format is chosen somewhere."""

_DEVICE_WORDS = lazy(r"(?i)(\w*_)?(devices?|gpus?|cuda|accelerator|to_device|grad_?scaler)(_\w+)?")


def is_relevant(source: Source) -> bool:
    """Whether a file can hold anything that a rule is about; other files need no parsing."""
    return any(word in source.text for word in WORDS)


def examine(source: Source) -> Script:
    """The facts of a file. Raises Unreadable."""
    return facts(File(source))


def facts(file: File) -> Script:
    """The facts of a file that was parsed."""
    found_calls = tuple(calls.calls(file))
    found_settings = tuple(settings.settings(file))
    frameworks = _frameworks(file)
    names = {call.what for call in found_calls}
    around = surroundings(file)
    return Script(
        file=file.source.path,
        lines=len(file.source.starts),
        frameworks=frameworks,
        device=around.device,
        moves=around.moves,
        gpu=around.gpu or None,
        trains=around.trains,
        by_hand=bool(file.loops.steps) and file.loops.optimizes,
        precision=_precision(file),
        matmul_precision="torch.set_float32_matmul_precision" in names or _sets(found_settings, "allow_tf32", "fp32_precision"),
        compiles=_compiles(file),
        convolutions=layers.uses_convolutions(file),
        channels_last="channels_last" in file.words,
        distributed=any(name is not None and name.endswith("DistributedDataParallel") for name in names),
        no_sync=any(name in file.words for name in ("no_sync", "require_backward_grad_sync", "accumulate")),
        sets_epoch=".set_epoch" in names,
        simulates=file.simulates,
        makes_model=layers.uses_products(file) or layers.uses_convolutions(file) or _makes_model(file),
        multiplies=layers.uses_products(file),
        collects_garbage=bool({"gc.collect", "gc.enable"} & names),
        freezes_garbage="gc.freeze" in names,
        cudnn_benchmark=_sets(found_settings, "cudnn.benchmark"),
        deterministic="torch.use_deterministic_algorithms" in names or _sets(found_settings, "cudnn.deterministic"),
        loaders=tuple(loaders.loaders(file)),
        loops=(*training.step_loops(file), *(training.evaluation_at(file, call) for call in modes.evaluating_calls(file))),
        calls=found_calls,
        syncs=tuple(syncs.syncs(file)),
        transfers=tuple(transfers.transfers(file)),
        accumulations=tuple(training.accumulations(file)),
        optimizers=tuple(training.optimizers(file)),
        layers=tuple(layers.layers(file)),
        settings=found_settings,
        patterns=(*patterns.patterns(file), *inference.patterns(file), *updates.patterns(file)),
    )


def surroundings(file: File) -> Surroundings:
    """Return where a file computes and whether it trains, by itself and by what others say of it."""
    heard = file.names.outside.news.around
    device = _device(file, _frameworks(file)) or heard.device
    moves = heard.moves or any(tensors.sends(file, call) for call in file.tree.of(ast.Call))
    gpu = bool(device) or moves or heard.gpu or any(_DEVICE_WORDS.fullmatch(word) for word in _said(file))
    return Surroundings(device=device, gpu=gpu, moves=moves, trains=_trains(file))


def as_surroundings(script: Script) -> Surroundings:
    """Return the same of a file whose facts were gathered."""
    return Surroundings(device=script.device or "", gpu=bool(script.gpu), moves=bool(script.moves), trains=bool(script.trains))


def _frameworks(file: File) -> tuple[str, ...]:
    roots = {name.partition(".")[0] for name in file.names.imports.values()}
    return tuple(sorted({"lightning" if name == "pytorch_lightning" else name for name in roots & set(FRAMEWORKS)}))


def _device(file: File, frameworks: tuple[str, ...]) -> str:
    """Whether an accelerator is named in the file, or chosen by a framework."""
    texts = (node.value for node in file.tree.of(ast.Constant) if isinstance(node.value, str))
    if any(text == "cuda" or text.startswith("cuda:") for text in texts):
        return "cuda"
    if "torch.cuda" in file.names.imports.values() or file.attributes & {"cuda", "local_rank"}:
        return "cuda"
    hooks = any(file.values.base_of(node) in ("lightning", "callback") for node in file.names.classes.values())
    return "chosen" if {"lightning", "accelerate", "deepspeed"} & set(frameworks) or hooks or calls.hands_over(file) else ""


def _makes_model(file: File) -> bool:
    """Whether a class of this file is a model, or a library's is made or loaded."""
    if any(file.values.base_of(node) in ("model", "lightning") for node in file.names.classes.values()):
        return True
    names = (file.names.qualified(call.func) for call in file.tree.of(ast.Call))
    return any(
        name.startswith(("torchvision.models.", "timm.create_model", "torch.hub.load", "segmentation_models_pytorch.")) for name in names
    )


def _trains(file: File) -> bool:
    modules = any(file.values.base_of(node) == "lightning" for node in file.names.classes.values())
    return modules or bool(file.loops.steps or file.loops.step_functions) or calls.hands_over(file)


_AUTOCASTS = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.autocast_mode.autocast",
    "torch.cuda.amp.autocast",
    "torch.cpu.amp.autocast",
)


def _precision(file: File) -> str:
    """The 16-bit type that the file trains in, by autocast, a framework's option, or conversion."""
    texts = []
    for node in file.tree.of(ast.Call):
        if (name := file.names.qualified(node.func)) in _AUTOCASTS:
            texts.append(_autocast(file, node, name))
        texts += [file.text(keyword(node, key)) for key in ("precision", "mixed_precision", "torch_dtype", "amp_dtype")]
        texts += [key for key in ("bf16", "fp16") if file.text(keyword(node, key)) not in ("", "False")]
        method = last_name(node.func)
        if isinstance(node.func, ast.Attribute) and method in ("half", "bfloat16") and file.values.is_a(node.func.value, "model"):
            texts.append("float16" if method == "half" else "bfloat16")
    return _named(texts) or ("mixed" if any(_PRECISION_WORDS.fullmatch(word) for word in _said(file)) else "")


def _said(file: File) -> Iterator[str]:
    """Names of a file, of its arguments and options."""
    yield from file.words
    yield from (given.arg for given in file.tree.of(ast.arg))
    yield from (given.arg for call in file.tree.of(ast.Call) for given in call.keywords if given.arg)
    yield from file.names.options
    yield from file.names.imports


def _autocast(file: File, call: ast.Call, name: str) -> str:
    """The type that autocast computes in: as given, else the default of its device."""
    if file.text(keyword(call, "enabled")) == "False":
        return ""
    given = [file.text(argument) for argument in call.args]
    dtype = file.text(keyword(call, "dtype")) or next((text for text in given if "float16" in text), "")
    on_cpu = ".cpu." in name or "cpu" in (*given, file.text(keyword(call, "device_type")))
    return dtype or ("bfloat16" if on_cpu else "float16")


def _named(texts: list[str]) -> str:
    for text in texts:
        if "bf16" in text or "bfloat16" in text:
            return "bfloat16"
    for text in texts:
        if "16" in text or text == "half":
            return "float16"
    return "mixed" if any(text == "…" for text in texts) else ""


def _compiles(file: File) -> bool | None:
    """Whether torch.compile is used; None where another name, or an option, may stand for it."""
    names = (file.names.qualified(node) for node in (*file.tree.of(ast.Attribute), *file.tree.of(ast.Name)))
    if _given(file, "torch_compile") or "torch.compile" in names:
        return True
    methods = (node for node in file.tree.of(ast.Attribute) if node.attr == "compile")
    if any(file.values.is_a(node.value, "model", "lightning") for node in methods):
        return True
    if any(name.partition(".")[0] == "opacus" for name in file.names.imports.values()):
        return None  # its hooks for the gradient of each sample are not compiled
    others = {word for word in file.words if "compile" in word or "dynamo" in word}
    plain = {node.attr for node in file.tree.of(ast.Attribute) if node.attr == "compile" and file.names.qualified(node) in _PATTERNS}
    return None if {word for word in others - plain if not word.startswith(("is_", "_is_", "precompile"))} else False


_PATTERNS = ("re.compile", "regex.compile", "sre_compile.compile")


def _sets(settings: tuple[Setting, ...], *names: str) -> bool:
    return any(setting.variable is not None and setting.variable.endswith(names) for setting in settings)


def _given(file: File, name: str) -> bool:
    return any(file.text(keyword(call, name)) not in ("", "False") for call in file.tree.of(ast.Call))

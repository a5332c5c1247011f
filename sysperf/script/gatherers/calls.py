"""Facts of calls that matter for speed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Call
from sysperf.script.file import File
from sysperf.script.gatherers.fallback import is_fallback
from sysperf.script.gatherers.masks import is_reduced
from sysperf.script.gatherers.transfers import is_empty, is_written
from sysperf.script.nodes import argument, dotted, keyword, last_name
from sysperf.script.semantics.kinds import FACTORIES
from sysperf.script.syntax import within
from sysperf.startup import lazy

WATCHED = frozenset(
    (
        "torch.cuda.synchronize",
        "torch.cuda.empty_cache",
        "gc.collect",
        "gc.disable",
        "gc.enable",
        "gc.freeze",
        "torch.autograd.set_detect_anomaly",
        "torch.autograd.detect_anomaly",
        "torch.autograd.anomaly_mode.set_detect_anomaly",
        "torch.autograd.profiler.emit_nvtx",
        "torch.autograd.profiler.profile",
        "torch.profiler.profile",
        "torch.compile",
        "torch.jit.script",
        "torch.jit.trace",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.utils.checkpoint.checkpoint",
        "torch.utils.checkpoint.checkpoint_sequential",
        "torch.save",
        "torch.set_num_threads",
        "torch.nn.utils.clip_grad_norm_",
        "torch.nn.utils.clip_grad.clip_grad_norm_",
        "torch.use_deterministic_algorithms",
        "torch.set_float32_matmul_precision",
        "torch.nonzero",
        "torch.masked_select",
        "torch.unique",
        "torch.repeat_interleave",
        "torch.argwhere",
        "torch.tensor",
        "torch.nn.functional.scaled_dot_product_attention",
        "PIL.Image.open",
        "cv2.imread",
        "h5py.File",
        "numpy.load",
        "torchaudio.load",
        "soundfile.read",
        "librosa.load",
        "skimage.io.imread",
        "glob.glob",
        "glob.iglob",
        "os.listdir",
        "os.scandir",
        "os.walk",
        "wandb.log",
        "mlflow.log_metric",
        "mlflow.log_metrics",
        "open",
    )
)
READERS = frozenset(
    (
        "PIL.Image.open", "cv2.imread", "h5py.File", "numpy.load", "torchaudio.load", "soundfile.read", "librosa.load", "skimage.io.imread",
        "open",
    )
)  # fmt: skip
LISTERS = frozenset(("glob.glob", "glob.iglob", "os.listdir", "os.scandir", "os.walk", ".glob", ".rglob", ".iterdir"))
PREFIXES = ("torch.cuda.amp.", "torch.cpu.amp.", "torch.amp.")
METHODS = frozenset(
    (
        "zero_grad",
        "add_scalar",
        "add_scalars",
        "add_image",
        "add_histogram",
        "masked_select",
        "nonzero",
        "repeat_interleave",
        "unscale_",
        "set_epoch",
        "glob",
        "rglob",
        "iterdir",
        "set_format",
        "with_format",
        "flatten_indices",
    )
)
_HEIRS = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
"""Classes of which an heir of the file does the same."""
_OF_WEIGHTS = ("load_state_dict", "state_dict", "module")
_CLOCKS = ("time.time", "time.perf_counter", "time.monotonic", "timeit.default_timer", "time.process_time")
_WRITES_ROWS = frozenset(("map", "flatten_indices", "to_iterable_dataset", "save_to_disk", "train_test_split", "filter", "set_transform"))
_CHOICES = lazy(r"(?i)\w*(pad_to|xla|tpu|max_length|compile|hpu|neuron)\w*")
"""Options for which texts of one length are wanted."""
_BY_NAME = lazy(r"(?i)\w*data_?parallel\w*")
"""Options that ask for DataParallel."""
_OF_CHECKS = lazy(r"(?i)\w*(detect|anomal|nan|debug|check|sanity)\w*")
"""Options that ask to look for errors."""
_GRAPHS = lazy(r"(?i)\w*cuda_?graph\w*|make_graphed_callables")
"""What records a step as a graph, in which gradients keep their memory."""
_ENVIRONMENT = lazy(r"\w*(Env|Environment|EnvBase|EnvWrapper|Simulator)\w{0,2}")
_PROMPTS = lazy(r"(?i)\w*(clip|t5|text_encoder|prompt)\w*")
"""Encoders of prompts, which take texts of a fixed length."""


def calls(file: File) -> Iterator[Call]:
    """All calls that rules look at."""
    told: set[tuple[str, bool]] = set()
    for call in file.tree.of(ast.Call):
        if (what := _watched(file, call)) and not _is_meant(file, call, what):
            if (matter := _matter(file, call, what)) in told:
                continue
            told |= {matter} if matter is not None else set()
            arguments = tuple(file.text(given) for given in call.args[:6])
            yield Call(
                **file.site(call),
                what=what,
                keywords=file.keywords(call),
                arguments=arguments,
                constant=(is_written(file, call.args[0]) or None) if what == "torch.tensor" and call.args else None,
                fallback=is_fallback(file, call),
                reduced=is_reduced(file, call) if what.endswith("masked_select") else None,
                around_steps=_around_steps(file, call),
            )


def _is_meant(file: File, call: ast.Call, what: str) -> bool:
    """Whether a call is no matter: somebody asked for it, or its place makes it harmless."""
    if what in READERS or what in LISTERS:
        return file.loops.where(call).often != "sample"
    if what in (".set_format", ".with_format"):
        return bool(file.words & {"set_transform", "with_transform"})
    if what.endswith((".DataParallel", "detect_anomaly")):
        return _is_asked_for(file, call) or _is_only_loaded(file, call) if what.endswith("Parallel") else _is_optional(file, call)
    if what == "torch.tensor":
        of_numpy = bool(call.args) and file.values.is_a(call.args[0], "array")  # data of the host, which must be copied
        return is_empty(call) or of_numpy or _is_broadcast(file, call) or _is_gathered(file, call) or _is_of_an_environment(file, call)
    if what == "torch.cuda.synchronize":
        return _is_timed(file, call)
    recorded = what == ".zero_grad" and any(_GRAPHS.fullmatch(word) for word in file.words)
    return recorded or (what.endswith("repeat_interleave") and not _repeats_by_tensor(file, call))


def _is_optional(file: File, call: ast.Call) -> bool:
    """Whether an option decides if a call is made, by its name: ``if args.detect_nan:``."""
    tests = [parent.test for parent in file.tree.ancestors(call) if isinstance(parent, ast.If)]
    asked = [test for test in tests if file.names.constant(test) is not True]
    named = [
        binding.value
        for test in asked
        for part in within(test)
        if isinstance(part, ast.Name)
        for binding in file.names.lookup(part, part.id)
    ]
    words = [part for node in (*asked, *named) if node is not None for part in within(node)]
    return any(
        _OF_CHECKS.fullmatch(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else last_name(part))
        for part in words
    )


def _matter(file: File, call: ast.Call, what: str) -> tuple[str, bool] | None:
    """What is told once: a function that reads ten files per sample, a model whose parts are wrapped."""
    if what in READERS or what in LISTERS:
        return file.function_name(call), what in LISTERS
    return ("", True) if what.endswith(".DataParallel") else None


def _repeats_by_tensor(file: File, call: ast.Call) -> bool:
    """Whether the numbers of repetitions are a tensor, whose sum decides on the size of the result."""
    by_function = file.names.qualified(call.func) == "torch.repeat_interleave"
    given = argument(call, "repeats", 1 if by_function else 0)
    if isinstance(given, ast.Call) and file.names.qualified(given.func) in FACTORIES and keyword(given, "device") is None:
        return False  # on the CPU, where nobody waits
    return given is not None and file.values.is_a(given, "tensor", "output", "batch")


def _is_broadcast(file: File, call: ast.Call) -> bool:
    """Whether a number becomes a tensor for all ranks: ``rate = torch.tensor(lr, device=d)``, ``broadcast(rate, src=0)``."""
    statement, function = file.tree.statement_of(call), file.tree.function_of(call)
    names = {dotted(target) for target in statement.targets} - {""} if isinstance(statement, ast.Assign) else set()
    parts = (part for part in within(function) if isinstance(part, ast.Call)) if function is not None and names else ()
    return any(last_name(other.func) == "broadcast" and other.args and dotted(other.args[0]) in names for other in parts)


def _is_gathered(file: File, call: ast.Call) -> bool:
    """Whether a tensor is made of a list that the function fills: data of the host, which must be copied."""
    name = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
    statement = file.tree.statement_of(call)
    bound = [binding.value for binding in file.names.lookup(call, name)] if name else []
    values = [value for value in bound if not isinstance(statement, ast.Assign) or value is not statement.value]
    return bool(values) and all(isinstance(value, ast.List) and not value.elts for value in values)


def _is_of_an_environment(file: File, call: ast.Call) -> bool:
    """Whether a class is an environment by its name, or what it is made from: its rewards and observations come from the host."""
    owner = file.tree.class_of(call)
    return owner is not None and any(_ENVIRONMENT.fullmatch(name) for name in (owner.name, *map(last_name, owner.bases)))


def _is_only_loaded(file: File, call: ast.Call) -> bool:
    """Whether a model is wrapped only to take weights whose names have the prefix of one: ``wrapped.load_state_dict(weights)``."""
    statement, function = file.tree.statement_of(call), file.tree.function_of(call)
    name = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) and statement.value is call else ""
    around = function if function is not None else file.tree.module
    loads = (part for part in within(around) if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load))
    uses = [file.tree.parents.get(part) for part in loads if part.lineno > call.lineno]
    return bool(uses) and all(isinstance(use, ast.Attribute) and use.attr in _OF_WEIGHTS for use in uses)


def _is_timed(file: File, call: ast.Call, depth: int = 2) -> bool:
    """Whether a clock is read in a statement beside a call, or beside the condition around it; of a helper, beside each of its calls."""
    function = file.tree.function_of(call)
    sites = file.names.call_sites(function) if function is not None and len(function.body) == 1 and depth else []
    if sites and all(_is_timed(file, site, depth - 1) for site in sites):
        return True
    statement = file.tree.statement_of(call)
    around = file.tree.parents.get(statement)
    places = [statement, around] if isinstance(around, ast.If) else [statement]
    for place in places:
        block, number = file.tree.place_of(place)
        beside = (part for each in block[max(0, number - 1) : number + 2] for part in within(each) if isinstance(part, ast.Call))
        if any(file.names.qualified(other.func) in _CLOCKS for other in beside):
            return True
    return False


def _is_asked_for(file: File, call: ast.Call) -> bool:
    """Whether a condition looks for what is made: parts of a model are wrapped where the model is."""
    tests = (parent.test for parent in file.tree.ancestors(call) if isinstance(parent, ast.If | ast.IfExp))
    words = [last_name(part) for test in tests for part in within(test)]
    return any(word == last_name(call.func) or _BY_NAME.fullmatch(word) for word in words)


def _around_steps(file: File, call: ast.Call) -> bool | None:
    """Whether the body of a `with` holds a training loop, itself or in what it calls."""
    item = file.tree.parents.get(call)
    around = file.tree.parents.get(item) if isinstance(item, ast.withitem) else None
    if not isinstance(around, ast.With):
        return None
    parts = [part for statement in around.body for part in within(statement)]
    called = {function for part in parts if isinstance(part, ast.Call) for function in file.names.functions.get(last_name(part.func), ())}
    loops = [loop for loop in file.loops.steps if loop in parts or file.tree.function_of(loop) in called]
    return bool(loops) and not any(isinstance(part, ast.Break) for loop in loops for part in within(loop))


def _watched(file: File, call: ast.Call) -> str:
    name = file.names.qualified(call.func)
    if name in WATCHED or name.startswith(PREFIXES):
        return name
    made = file.names.classes.get(name)
    bases = [file.names.qualified(base) for base in made.bases] if made is not None else []
    if inherited := [base for base in bases if base in _HEIRS]:
        return inherited[0]
    if isinstance(call.func, ast.Attribute) and (what := _method(file, call, call.func)):
        return what
    if name == "next" and _begins_anew(file, call):
        return "next(iter)"
    if last_name(call.func) == "Trainer" and file.values.is_a(call, "lightning-trainer"):
        return "lightning.Trainer"
    return "tokenizer" if file.text(argument(call, "padding", 99)) == "max_length" and not _wants_one_length(file, call) else ""


def _begins_anew(file: File, call: ast.Call) -> bool:
    """Whether a batch is taken of an iterator that is made for it, by a loader that may have workers."""
    made = call.args[0] if call.args else None
    if not isinstance(made, ast.Call) or file.names.qualified(made.func) != "iter" or not made.args:
        return False
    loaders = [value for value in file.values.of(made.args[0]) if value.kind == "loader"]
    return bool(loaders) and not all(_is_without_workers(file, value.origin) for value in loaders)


def _is_without_workers(file: File, made: ast.AST | None) -> bool:
    if not isinstance(made, ast.Call) or file.names.qualified(made.func) != "torch.utils.data.DataLoader" or file.names.is_open(made):
        return False
    given = file.names.argument(made, "num_workers", 5)
    return given is None or file.names.constant(given) == 0


def _method(file: File, call: ast.Call, method: ast.Attribute) -> str:
    """What a method is by its name, and by what it is called on."""
    if method.attr in METHODS:
        return "" if file.names.qualified(method).startswith("numpy.") else f".{method.attr}"
    kinds = file.values.kinds(method.value)
    if method.attr == "shuffle" and "hf-dataset" in kinds and _is_read_in_order(file, call):
        return "datasets.shuffle"
    if method.attr in ("log", "log_metric", "log_metrics") and (run := kinds & {"wandb", "comet"}):
        return f"{run.pop()}.{'log' if method.attr == 'log' else 'log_metric'}"
    return f"model.{method.attr}" if method.attr in ("eval", "train") and "model" in kinds else ""


def _wants_one_length(file: File, call: ast.Call) -> bool:
    """Whether texts are prompts of a model of images, or somebody chose that they have one length."""
    if "diffusers" in {name.partition(".")[0] for name in file.names.imports.values()} or any(
        _PROMPTS.fullmatch(word) for word in (*file.words, *file.names.imports)
    ):
        return True
    tests = [parent.test for parent in file.tree.ancestors(call) if isinstance(parent, ast.If | ast.IfExp)]
    return any(_CHOICES.fullmatch(last_name(part)) for test in tests for part in within(test))


def _is_read_in_order(file: File, call: ast.Call) -> bool:
    """Whether nothing writes the rows of a shuffled data set anew, or reads them in an order of its own."""
    parent = file.tree.parents.get(call)
    statement = file.tree.statement_of(call)
    names = {dotted(target) for target in statement.targets} if isinstance(statement, ast.Assign) else set()
    later = (other.func for other in file.tree.of(ast.Call) if isinstance(other.func, ast.Attribute))
    if any(method.attr in _WRITES_ROWS and dotted(method.value) in names for method in later):
        return False
    samples = any(file.text(argument(other, "shuffle", 2)) == "True" for other in file.tree.of(ast.Call))
    return not (isinstance(parent, ast.Attribute) and parent.attr in (*_WRITES_ROWS, "select")) and not samples and not hands_over(file)


def hands_over(file: File) -> bool:
    """Whether a model is given to the trainer of a framework."""
    trainers = (call for call in file.tree.of(ast.Call) if last_name(call.func).endswith("Trainer"))
    return any(file.values.is_a(call, "lightning-trainer", "hf-trainer") for call in trainers)

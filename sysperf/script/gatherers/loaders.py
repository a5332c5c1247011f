"""Facts of data loaders: their arguments with the defaults of whoever makes them, and what the file does with their batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Loader
from sysperf.script.file import File
from sysperf.script.gatherers import samples
from sysperf.script.gatherers.gradients import without_gradients
from sysperf.script.gatherers.makers import DATALOADER, TIMM, TRANSFORMERS, Maker, truth
from sysperf.script.gatherers.transfers import is_to_device, prepared
from sysperf.script.nodes import arguments, dotted, keyword, last_name
from sysperf.script.semantics.kinds import ARRAYS, DATASETS, LISTED, LOADERS, PARTS_OF_DATA, is_in_memory
from sysperf.script.semantics.links import Use
from sysperf.script.semantics.value import device_text
from sysperf.script.syntax import Function, Loop, within
from sysperf.startup import lazy

_TRAINS = lazy(r"(?i)train")
_EVALUATES = lazy(r"(?i)(^|_)(val|valid|validation|test|eval|predict|dev|infer|envs?($|_)|calib\w*|dummy|export|demo|plot|vis)")
_GOES_THROUGH = lazy(r"(?i)train|epoch|eval|valid|fit|test")
"""Functions that are given a loader to go through it."""
_DATASET = lazy(r"\w*[Dd]ata_?[Ss]et|_*[A-Z]\w*Dataset\w*")
"""What makes a data set, by its name."""
_FEATURES = lazy(r"(\w+_)?X(_\w+)?")
MAX_DEPTH = 4
"""Names that a data set is followed through."""
_HOOKS = frozenset(("train_dataloader", "val_dataloader", "get_train_dataloader", "get_eval_dataloader"))


def loaders(file: File) -> Iterator[Loader]:
    """All loaders of a file; Trainer's arguments describe one too."""
    moved = _moved(file)
    for call in file.tree.of(ast.Call):
        name = file.names.qualified(call.func)
        if name in LOADERS and not _gives_a_part(file, call):
            yield _loader(file, call, name, TIMM if last_name(call.func) == "create_loader" else DATALOADER, moved)
        elif name.startswith("transformers.") and name.endswith("TrainingArguments") and not isinstance(file.tree.parents[call], ast.Expr):
            yield _loader(file, call, name, TRANSFORMERS, {call})


def _gives_a_part(file: File, call: ast.Call) -> bool:
    """``DataLoader(data).batch_sampler``: what goes through that makes no batches."""
    parent = file.tree.parents.get(call)
    return isinstance(parent, ast.Attribute) and parent.attr in ("batch_sampler", "sampler", "dataset")


def _loader(file: File, call: ast.Call, name: str, maker: Maker, moved: set[ast.AST]) -> Loader:
    loops = _loops_over(file, call)
    trainer = maker is TRANSFORMERS
    other = file.names.outside.use(place_of(file, call)) or Use()
    seen = bool(loops) or trainer or other.seen
    handed = [] if seen else _handed_over(file, call)
    trains = trainer or other.trains or any(_trains(file, loop) for loop in loops) if seen else _by_name(file, call)
    if (not seen and _is_taken_once(file, call)) or file.loops.measures(call):
        trains = False
    drawn = False if trains is False and call in moved else None  # a batch of an evaluation now and then
    copied = (
        trainer
        or maker is TIMM
        or other.moved
        or _is_asked_for(file, call)
        or call in moved
        or any(_gets_device(file, each) for each in handed)
    )
    return Loader(
        **file.site(call),
        made_by=name,
        workers=_number(file, call, *maker.workers),
        optional=_is_parameter(file, call, *maker.workers),
        batches=_puts_together(file, call),
        pin_memory=truth(file, call, *maker.pin),
        persistent=truth(file, call, maker.persistent[0], 99, maker.persistent[1]),
        prefetch_factor=_number(file, call, maker.prefetch, 99, 0),
        dataset=_dataset(file, call),
        trains=trains,
        moved=False if _lies_on_device(file, call) else copied or (False if seen else None),
        epochs=trainer or other.epochs or any(_in_epochs(file, loop, call) for loop in loops)
        if seen
        else bool(handed) or _gathered(file, call) or _validates(file, call) or drawn,
    )


def _is_taken_once(file: File, made: ast.Call) -> bool:
    """Whether all that is taken of a loader is its first batch, once, or all batches at once: ``next(iter(loader))``, ``list(loader)``."""
    calls = [call for call in file.tree.of(ast.Call) if last_name(call.func) == "next" and call.args]
    begun = [(call, call.args[0]) for call in calls if isinstance(call.args[0], ast.Call) and last_name(call.args[0].func) == "iter"]
    begun += [(call, call) for call in file.tree.of(ast.Call) if last_name(call.func) in LISTED]
    taken = [call for call, new in begun if new.args and any(value.origin is made for value in file.values.of(new.args[0]))]
    if not taken or any(file.loops.where(call).often or _is_repeated(file, call) for call in taken):
        return False
    others = (call for call in file.tree.of(ast.Call) if last_name(call.func) not in ("iter", "next", "len", "print", *LISTED))
    return not any(value.origin is made for call in others for given in arguments(call) for value in file.values.of(given))


def _is_repeated(file: File, call: ast.Call) -> bool:
    """Whether a loop is around a call in its function."""
    around = (parent for parent in file.tree.ancestors(call) if isinstance(parent, ast.For | ast.AsyncFor | ast.While | Function))
    return not isinstance(next(around, None), Function | None)


def _puts_together(file: File, call: ast.Call) -> bool:
    """Whether a loader makes batches of samples: with ``batch_size=None``, or where only its data set has a size of them, that does."""
    size = file.names.argument(call, "batch_size", 1)
    data = file.names.argument(call, "dataset", 0)
    made = [binding.value for binding in file.names.lookup(data, dotted(data))] if data is not None and dotted(data) else [data]
    has_size = any(isinstance(each, ast.Call) and keyword(each, "batch_size") is not None for each in made)
    return file.text(size) != "None" and not (has_size and size is None and keyword(call, "batch_sampler") is None)


def _is_asked_for(file: File, call: ast.Call) -> bool:
    """Whether a hook of Lightning or of a Trainer gives a loader, itself or by a method that it calls: its asker copies the batches."""
    function, owner = file.tree.function_of(call), file.tree.class_of(call)
    if function is None or owner is None or file.values.base_of(owner) not in ("lightning", "datamodule", "hf-trainer"):
        return False
    callers = [file.tree.function_of(site) for site in file.names.call_sites(function)]
    return any(each is not None and each.name in _HOOKS for each in (function, *callers))


def _validates(file: File, call: ast.Call) -> bool:
    """Whether Lightning asks for a loader to go through it after each epoch."""
    function, owner = file.tree.function_of(call), file.tree.class_of(call)
    named = function is not None and function.name == "val_dataloader"
    return named and owner is not None and file.values.base_of(owner) in ("lightning", "datamodule")


def _lies_on_device(file: File, loader: ast.Call) -> bool:
    """Whether a data set, or the tensors it is made of, were copied to a device before: what moves its batches does nothing."""
    given = file.names.argument(loader, "dataset", 0)
    if given is None:
        return False
    values = [binding.value for binding in file.names.lookup(given, dotted(given))] if dotted(given) else [given]
    sets = [value for value in values if isinstance(value, ast.Call)]
    return _is_moved(file, given) or (bool(sets) and all(any(_was_copied(file, part) for part in made.args) for made in sets))


def _is_moved(file: File, dataset: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """``dataset.to(device)``, or a part of it: ``dataset.shuffle()[:100]``, ``random_split(dataset, …)``."""
    if isinstance(dataset, ast.Subscript):
        return _is_moved(file, dataset.value, depth)
    if isinstance(dataset, ast.Call):
        method = dataset.func if isinstance(dataset.func, ast.Attribute) else None
        if file.names.qualified(dataset.func) in PARTS_OF_DATA:
            return bool(dataset.args) and _is_moved(file, dataset.args[0], depth)
        return method is not None and (
            (method.attr in ("to", "cuda") and is_to_device(file, dataset)) or _is_moved(file, method.value, depth)
        )
    bound = file.names.lookup(dataset, dotted(dataset)) if dotted(dataset) and depth else []
    return any(each.value is not None and not each.element and _is_moved(file, each.value, depth - 1) for each in bound)


def _was_copied(file: File, node: ast.expr) -> bool:
    values = (
        [binding.value for binding in file.names.lookup(node, node.id) if not binding.element] if isinstance(node, ast.Name) else [node]
    )
    parts = [part for value in values if value is not None for part in (value.elts if isinstance(value, ast.Tuple) else (value,))]
    return any(isinstance(part, ast.Call) and last_name(part.func) in ("to", "cuda") and is_to_device(file, part) for part in parts)


def place_of(file: File, call: ast.Call) -> str:
    """How other files name what a call makes."""
    return f"{file.source.path}:{call.lineno}:{call.col_offset}"


def uses(file: File) -> dict[str, Use]:
    """What a file does with loaders that others make, by their places."""
    if not (made := list(file.names.outside.loaders)):
        return {}
    moved = _moved(file)
    found = {}
    for loader in made:
        loops = _loops_over(file, loader)
        found[loader.place] = Use(
            seen=bool(loops),
            trains=any(_trains(file, loop) for loop in loops),
            moved=loader in moved,
            epochs=any(_in_epochs(file, loop, loader) for loop in loops),
        )
    return {place: use for place, use in found.items() if use != Use()}


def _handed_over(file: File, made: ast.Call) -> list[ast.Call]:
    """The calls, one an epoch, that give a loader to a function of another file which goes through it."""
    return [
        call
        for call in file.tree.of(ast.Call)
        if _GOES_THROUGH.search(last_name(call.func)) and last_name(call.func) not in file.names.functions
        if any(value.origin is made and value.kind in ("loader", "loaders") for given in arguments(call) for value in file.values.of(given))
        if (where := file.loops.where(call)).often == "epoch" and not where.guarded
    ]


def _gathered(file: File, made: ast.Call) -> bool:
    """Whether a comprehension goes through a loader once an epoch: ``[*(x for x in loader)]``."""
    return any(
        file.loops.where(file.tree.parents[each]).often == "epoch"
        for each in file.tree.of(ast.comprehension)
        if any(value.origin is made and value.kind == "loader" for value in file.values.of(each.iter))
    )


def _gets_device(file: File, call: ast.Call) -> bool:
    return any(device_text(file.names, given) for given in arguments(call))


def _number(file: File, call: ast.Call, name: str, place: int, default: int) -> int | None:
    given = file.names.argument(call, name, place)
    if given is None:
        return None if file.names.is_open(call) else default
    value = file.names.constant(given)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_parameter(file: File, call: ast.Call, name: str, place: int, _: int) -> bool:
    """Whether whoever makes an object of a class gives an option: ``self.workers``, which a base class keeps."""
    given = file.names.argument(call, name, place)
    owner, _dot, option = dotted(given).rpartition(".") if given is not None else ("", "", "")
    return given is not None and owner == "self" and file.names.passed_on(given, option) is not None


def _dataset(file: File, call: ast.Call) -> str:
    given = file.names.argument(call, "dataset", 0)
    if isinstance(given, ast.Call) and last_name(given.func) == "range":
        return "memory-dataset"
    kinds = file.values.kinds(given) if given is not None else set()
    if given is not None and _is_moved(file, given):
        return "memory-dataset"
    if given is not None and (_is_made_of_arrays(file, given) or samples.are_listed(file, given) or samples.are_at_hand(file, call, given)):
        return "memory-dataset"
    if samples.is_put_together(file, call) and not (given is not None and _allows_no_workers(file, given)):
        kinds -= {"memory-dataset"}
    return next((kind for kind in DATASETS if kind in kinds), "") or _named_dataset(file, given)


def _allows_no_workers(file: File, given: ast.expr) -> bool:
    """Whether a data set is a queue with workers of its own: ``torchio.Queue``."""
    bound = [each.value for each in file.names.lookup(given, dotted(given))] if dotted(given) else [given]
    return any(isinstance(each, ast.Call) and file.names.qualified(each.func).endswith("torchio.Queue") for each in bound)


def _named_dataset(file: File, given: ast.expr | None, depth: int = 1) -> str:
    """``dataset`` for what a class of another file makes that is called so, and does not say that its samples lie in memory."""
    bound = [each.value for each in file.names.lookup(given, dotted(given))] if given is not None and dotted(given) else [given]
    made = [value for value in bound if isinstance(value, ast.Call)]
    if len(made) == 1 and made[0].args and file.names.qualified(made[0].func) in PARTS_OF_DATA and depth:
        return _named_dataset(file, made[0].args[0], depth - 1)
    named = bool(made) and len(made) == len(bound) and all(_DATASET.fullmatch(last_name(each.func)) for each in made)
    names = {last_name(each.func) for each in made}
    return "dataset" if named and not any(is_in_memory(name) or name in file.names.classes for name in names) else ""


def _is_made_of_arrays(file: File, dataset: ast.expr) -> bool:
    """``Data(X_train, y_train)``: all that it is given are features and targets; or they are what it goes through: ``DataLoader(X)``."""
    if isinstance(dataset, ast.Name) and _FEATURES.fullmatch(dataset.id) and _is_given(file, dataset):
        return True
    values = [binding.value for binding in file.names.lookup(dataset, dotted(dataset))] if dotted(dataset) else [dataset]
    made = [value for value in values if isinstance(value, ast.Call) and len(value.args) > 1 and not value.keywords]
    return bool(made) and len(made) == len(values) and all(ARRAYS.fullmatch(last_name(given)) for call in made for given in call.args)


def _is_given(file: File, name: ast.Name) -> bool:
    """Whether a name stands for what a caller gives."""
    bound = file.names.lookup(name, name.id)
    return bool(bound) and all(each.parameter is not None for each in bound)


def _loops_over(file: File, call: ast.AST) -> list[Loop]:
    """The loops that iterate what a call makes, or take its next batch in each step.

    Of a generator that gives on its batches, whoever asks that for them is not seen.
    """
    loops = [
        loop
        for loop in file.tree.loops
        if (not isinstance(loop, ast.While) and file.loops.iterates(loop, call)) or _takes_next(file, loop, call)
    ]
    return [loop for loop in loops if not any(isinstance(part, ast.Yield) for part in within(loop))]


def _takes_next(file: File, loop: Loop, made: ast.AST) -> bool:
    """``batch = next(batches)`` in a loop that makes steps."""
    if loop not in file.loops.steps:
        return False
    calls = [part for part in within(loop) if isinstance(part, ast.Call) and last_name(part.func) == "next" and part.args]
    return any(value.kind == "loader" and value.origin is made for call in calls for value in file.values.of(call.args[0]))


def _trains(file: File, loop: Loop) -> bool:
    """Whether a loop makes the steps, or a part of them: an evaluation between them is none."""
    if loop in file.loops.steps:
        return True
    within_step = any(parent in file.loops.steps for parent in file.tree.ancestors(loop))
    return within_step and loop not in file.loops.evaluations and not without_gradients(file, loop)


def _by_name(file: File, call: ast.Call) -> bool | None:
    """Whether a loader that no loop of the file iterates is for training, by what it is called; None where that does not tell."""
    parent = file.tree.parents.get(call)
    if isinstance(parent, ast.Call) and last_name(parent.func) == "iter":
        return False  # the first batch, to look at
    statement = file.tree.statement_of(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    function = file.tree.function_of(call)
    names = [last_name(place) for place in targets] + ([function.name] if function is not None else [])
    in_order = file.text(file.names.argument(call, "shuffle", 2)) == "False" and keyword(call, "sampler") is None
    if not in_order:  # a training set may be gone through in order, to learn something about it
        names += [last_name(given) for given in (file.names.argument(call, "dataset", 0),) if given is not None]
    for name in names:
        if _TRAINS.search(name) and not _EVALUATES.search(name):
            return True
        if _EVALUATES.search(name) and not _TRAINS.search(name):
            return False
    return True if file.text(file.names.argument(call, "shuffle", 2)) == "True" else None


def _in_epochs(file: File, loop: Loop, made: ast.AST) -> bool:
    """Whether a loop over a loader runs once an epoch; of a function that several loaders are given to, the calls with this one count."""
    function = file.tree.function_of(loop)
    sites = file.names.call_sites(function) if function is not None else []
    own = [site for site in sites if any(value.origin is made for given in arguments(site) for value in file.values.of(given))]
    return any(file.loops.where(each).often in ("epoch", "step") for each in (own if len(own) < len(sites) and own else [loop]))


def _moved(file: File) -> set[ast.AST]:
    """The loaders whose batches are copied to a device in this file."""
    loaders = prepared(file)
    for call in file.tree.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda", "type") and is_to_device(file, call):
            loaders |= {value.origin for value in file.values.of(call.func.value) if value.kind == "batch" and value.origin is not None}
    return loaders

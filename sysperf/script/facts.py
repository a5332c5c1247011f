"""The area `script`: what the source of one file says, as facts that rules judge. None means that the source does not say."""

from typing import Annotated

from sysperf.model.record import Record, fact


class Site(Record, kw_only=True):
    """A place in the source, and how often the code there runs."""

    line: Annotated[int | None, fact("line, from 1")] = None
    column: Annotated[int | None, fact("column in characters, from 1")] = None
    end_line: int | None = None
    end_column: Annotated[int | None, fact("column behind the last character")] = None
    function: Annotated[str | None, fact("function or method around it, with its class: `Trainer.fit`; empty: the module")] = None
    often: Annotated[str | None, fact("runs once a step, evaluation, forward, sample or epoch; empty: none of these, or not known")] = None
    guarded: Annotated[bool | None, fact("a condition lets it run seldom: every Nth time, for a log, before leaving")] = None

    @property
    def path(self) -> str:
        """What findings call it within its file."""
        return f"{self.line}:{self.column}"


class Loader(Site, kw_only=True):
    """A call that makes a data loader."""

    made_by: str | None = None
    workers: Annotated[int | None, fact("num_workers, where the source says it; 0 is the default of DataLoader")] = None
    optional: Annotated[bool | None, fact("whoever makes its owner gives num_workers")] = None
    batches: Annotated[bool | None, fact("it puts samples together: with batch_size=None, the data set does")] = None
    pin_memory: bool | None = None
    persistent: Annotated[bool | None, fact("persistent_workers")] = None
    prefetch_factor: Annotated[int | None, fact("0: not given")] = None
    dataset: Annotated[str | None, fact("memory-dataset, iterable-dataset, dataset, hf-dataset; empty: not known")] = None
    trains: Annotated[bool | None, fact("a training loop iterates it")] = None
    moved: Annotated[bool | None, fact("its batches are copied to a device")] = None
    epochs: Annotated[bool | None, fact("it is iterated once an epoch")] = None


class Call(Site, kw_only=True):
    """A call of something that matters for speed."""

    what: Annotated[str | None, fact("qualified name (`torch.cuda.empty_cache`), or a method with its dot (`.zero_grad`)")] = None
    keywords: Annotated[dict[str, str] | None, fact("keyword arguments as text, `…` where not constant; null with **keywords")] = None
    arguments: Annotated[tuple[str, ...] | None, fact("positional arguments as text, `…` where not constant")] = None
    constant: Annotated[bool | None, fact("a tensor that is made there has no values of others; null: it may hold data of the host")] = None
    fallback: Annotated[bool | None, fact("in a branch for other versions, or where a newer name is missing")] = None
    reduced: Annotated[bool | None, fact("of what masked_select gives, only a loss, a sum or the like is made; null: not known")] = None
    around_steps: Annotated[bool | None, fact("a `with` whose body holds a training loop; null: no `with`")] = None


class Sync(Site, kw_only=True):
    """An expression for whose value the host waits until the device has computed it."""

    how: Annotated[
        str | None,
        fact("item, cpu, numpy, tolist, type, float, int, bool, print, set_postfix, add_scalar, copy (into the host's memory), if"),
    ] = None
    of: Annotated[str | None, fact("loss, output, batch, tensor, or parameter (of a model: also its gradient, or a buffer)")] = None
    debug: Annotated[bool | None, fact("an argument of logging.debug, which is evaluated whether or not it is shown")] = None
    needed: Annotated[bool | None, fact("null: ranks agree on the value, or an input is checked by it; else false")] = None
    needless: Annotated[bool | None, fact("a result of an evaluation leaves the device row by row, or only for a number")] = None
    paced: Annotated[bool | None, fact("its loop, or the function that makes its step, acts in an environment each time")] = None


class Transfer(Site, kw_only=True):
    """A copy of a tensor or model between devices."""

    of: Annotated[str | None, fact("batch, model, factory (a tensor that is made there), tensor")] = None
    to: Annotated[str | None, fact("cuda, cpu or device")] = None
    non_blocking: bool | None = None
    pinned: Annotated[bool | None, fact("the loader of the batch pins its memory")] = None
    constant: Annotated[bool | None, fact("a tensor that is made there has no values of others; null: it may hold data of the host")] = None
    pinned_here: Annotated[bool | None, fact("`.pin_memory()` is called in the same expression")] = None
    read: Annotated[bool | None, fact("what came to the CPU is read where it was copied; false: after a wait; null: it is given on")] = None


class Accumulation(Site, kw_only=True):
    """A sum or list over the steps to which a loss is added."""

    name: str | None = None
    keeps_graph: Annotated[bool | None, fact("the loss is added with its graph")] = None
    into: Annotated[str | None, fact("sum or list")] = None
    freed: Annotated[bool | None, fact("null: a backward pass came before, which frees what it saved; else false")] = None


class Optimizer(Site, kw_only=True):
    """An optimizer of torch.optim, or of a library without kernels of its own."""

    what: str | None = None
    fused: Annotated[str | None, fact("the argument as text; empty: not given")] = None
    foreach: Annotated[str | None, fact("the argument as text; empty: not given")] = None


class StepLoop(Site, kw_only=True):
    """A loop, or a hook of a framework, that trains or evaluates."""

    kind: Annotated[str | None, fact("step or evaluation")] = None
    by: Annotated[str | None, fact("loop, lightning, transformers; steps: between the steps of a training loop")] = None
    no_grad: Annotated[bool | None, fact("gradients are off in it")] = None
    calls_model: bool | None = None
    accumulates: Annotated[bool | None, fact("the optimizer steps once every few backward passes")] = None


class Layer(Site, kw_only=True):
    """A layer with what its sizes and neighbours say."""

    what: str | None = None
    bias: bool | None = None
    before_norm: Annotated[bool | None, fact("a batch norm follows directly")] = None
    sizes: Annotated[tuple[int, ...] | None, fact("the two sizes, where both are constants")] = None


class Setting(Site, kw_only=True):
    """A variable of the environment or a flag of torch.backends that the source sets."""

    variable: Annotated[str | None, fact("`OMP_NUM_THREADS`, `torch.backends.cudnn.benchmark`")] = None
    value: Annotated[str | None, fact("`…` where not constant")] = None
    after_torch: Annotated[bool | None, fact("torch is imported above it")] = None
    conditional: Annotated[bool | None, fact("somebody chooses it: it stands under an `if`, or is no constant")] = None


class Pattern(Site, kw_only=True):
    """A piece of code of a known shape."""

    what: str | None = None
    reduced: Annotated[bool | None, fact("of chosen elements: only a loss, a sum or the like is made of them; null: not known")] = None


class Script(Record, kw_only=True):
    """One file."""

    file: str | None = None
    lines: int | None = None
    frameworks: Annotated[tuple[str, ...] | None, fact("lightning, accelerate, transformers, timm, deepspeed, as imported")] = None
    device: Annotated[str | None, fact("cuda: it names one; chosen: a framework chooses; empty: neither")] = None
    moves: Annotated[bool | None, fact("it copies something to a device")] = None
    gpu: Annotated[bool | None, fact("it names devices, or a framework chooses one; null: the CPU, or what others put there")] = None
    trains: Annotated[bool | None, fact("it has a training loop, or hands a model to a trainer")] = None
    by_hand: Annotated[bool | None, fact("it has a training loop of its own")] = None
    precision: Annotated[str | None, fact("bfloat16, float16, mixed (not known which) or empty")] = None
    matmul_precision: Annotated[bool | None, fact("it sets float32_matmul_precision or allow_tf32")] = None
    compiles: Annotated[bool | None, fact("it uses torch.compile; null: it names something of the kind")] = None
    convolutions: Annotated[bool | None, fact("it makes or loads two-dimensional convolutions")] = None
    multiplies: Annotated[bool | None, fact("it makes or loads linear layers, attention or whole models")] = None
    makes_model: Annotated[bool | None, fact("it defines or loads a model: one that it is given may be of any size")] = None
    simulates: Annotated[bool | None, fact("it learns from environments: it imports them, or names rewards and actions")] = None
    channels_last: bool | None = None
    distributed: Annotated[bool | None, fact("it wraps a model in DistributedDataParallel")] = None
    no_sync: Annotated[bool | None, fact("it uses no_sync or require_backward_grad_sync")] = None
    sets_epoch: Annotated[bool | None, fact("it calls set_epoch on a data set")] = None
    collects_garbage: Annotated[bool | None, fact("it calls gc.collect or gc.enable")] = None
    freezes_garbage: Annotated[bool | None, fact("it calls gc.freeze")] = None
    cudnn_benchmark: Annotated[bool | None, fact("it sets torch.backends.cudnn.benchmark")] = None
    deterministic: Annotated[bool | None, fact("it asks for deterministic algorithms")] = None
    loaders: tuple[Loader, ...] | None = None
    loops: tuple[StepLoop, ...] | None = None
    calls: tuple[Call, ...] | None = None
    syncs: tuple[Sync, ...] | None = None
    transfers: tuple[Transfer, ...] | None = None
    accumulations: tuple[Accumulation, ...] | None = None
    optimizers: tuple[Optimizer, ...] | None = None
    layers: tuple[Layer, ...] | None = None
    settings: tuple[Setting, ...] | None = None
    patterns: tuple[Pattern, ...] | None = None

"""Kinds of values by the names of what makes them: classes and functions of libraries, and words in a name of the file."""

from __future__ import annotations

from sysperf.startup import lazy

LOADERS = frozenset(
    (
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
        "torchdata.stateful_dataloader.StatefulDataLoader",
        "monai.data.DataLoader",
        "timm.data.create_loader",
        "timm.data.loader.create_loader",
    )
)
_DATASETS = {
    "torch.utils.data.TensorDataset": "memory-dataset",
    "torch.utils.data.IterableDataset": "iterable-dataset",
    "torchio.Queue": "memory-dataset",  # a queue of patches, which has workers of its own and allows none
    "torchio.data.Queue": "memory-dataset",
    "torch.utils.data.Dataset": "dataset",
    "datasets.load_dataset": "hf-dataset",
    "datasets.load_from_disk": "hf-dataset",
    "datasets.Dataset.from_dict": "hf-dataset",
}
DATASETS = ("memory-dataset", "iterable-dataset", "dataset", "hf-dataset")
PARTS_OF_DATA = frozenset(f"torch.utils.data.{name}" for name in ("Subset", "random_split", "dataset.Subset", "dataset.random_split"))
"""What makes parts of a data set, which give its samples."""
WRAPPERS = frozenset(
    (
        "torch.compile",
        "torch.jit.script",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "copy.deepcopy",
        "torch.autograd.Variable",
    )
)
"""Calls that give their first argument back, wrapped."""
PASSED_ON = frozenset(
    ("tqdm", "progress_bar", "enumerate", "zip", "iter", "cycle", "islice", "log_every", "track", "prefetch", "setup_dataloaders")
)
"""Functions whose elements are those of their argument."""
TO_HOST = frozenset(("to_cpu", "to_numpy", "tensor_to_numpy", "tensor2numpy", "to_np"))
"""Functions that copy what they are given to the host."""
LISTED = ("list", "tuple", "reversed")
"""Functions that make a list of what they go through."""
SAME = frozenset(
    (
        "double", "to", "cuda", "cpu", "eval", "train", "half", "float", "bfloat16", "requires_grad_", "contiguous", "mean", "sum", "view",
        "pin_memory", "type",
    )
)  # fmt: skip
"""Methods that give back what they are called on, converted."""
FACTORIES = frozenset(
    f"torch.{name}"
    for name in (  # noqa: SIM905 - a list of one word a line would be longer than the code
        "tensor as_tensor zeros ones empty full rand randn randint arange eye linspace randperm normal from_numpy zeros_like ones_like"
        " rand_like randn_like stack cat einsum matmul bmm softmax sigmoid relu where exp log sqrt abs sum mean max min argmax topk norm"
    ).split()
)
FROM_ARRAYS = ("torch.tensor", "torch.as_tensor", "torch.from_numpy")
"""What makes a tensor that may be copied to a device; other functions give back what lies where their argument does."""
MADE_ON_CPU = frozenset(
    f"torch.{name}"
    for name in (  # noqa: SIM905 - a list of one word a line would be longer than the code
        "tensor zeros ones empty full rand randn randint arange eye linspace randperm normal Tensor FloatTensor LongTensor BoolTensor"
    ).split()
)
"""What makes a tensor in the host's memory, unless a device is given."""
ARRAYS = lazy(r"(\w+_)?([XY]|y)(_?\w+)?|x_(train|test|val)\w*")
"""Names of features and targets that lie in memory, as arrays or tensors."""
AS_NUMBERS = ("math.sqrt", "math.exp", "math.log", "math.log2", "math.log10", "math.log1p", "math.pow", "math.tanh")
"""Functions of Python that take a number, and make one of a tensor."""
JOINS = frozenset(("torch.cat", "torch.concat", "torch.stack", "torch.hstack", "torch.vstack"))
"""What makes one tensor of several, which lies where they do."""
LOSS_CALLS = lazy(r"torch\.nn\.functional\.\w*(loss|cross_entropy|kl_div)\w*|torch\.nn\.\w+Loss")
BY_NAME = (
    ("loaders", lazy(r"(\w*_)?(data_?)?loaders|\w*dataloaders")),
    (
        "loader",
        lazy(
            r"(\w*_)?(data_?)?loaders?(_\w+)?|\w*dataloader|(train|val|test)_?dl|\w*[a-z]Loader|(train|test|val|valid|eval|dev)(ing|set)?loader"
        ),
    ),
    ("loader", lazy(r"(train|valid|val|test|dev|eval)_?(iter|iterator|batches)")),
    ("optimizer", lazy(r"(\w+_)?(optimi[sz]ers?|optim|opt)(_\w+|\w{1,3})?")),
    ("scaler", lazy(r"(grad_|loss_|amp_)?scaler")),
    ("accelerator", lazy(r"accelerator")),
    ("criterion", lazy(r"(\w+_)?(criterion|loss_fn|loss_func|loss_function)")),
    ("loss", lazy(r"(\w+_)?loss(_\w+)?|err[DG](_\w+)?")),
    ("model", lazy(r"(\w+_)?(model|net|network|ddp_model|unet|generator|discriminator)(_\w+)?|net[A-Z]\w{0,2}")),
    ("models", lazy(r"(\w+_)?(models|nets|networks)")),
)
DOES = lazy(
    r"_*(save|load|build|create|get|make|init|setup|set|test|eval|evaluate|train|fit|run|check|compile|export|download|register|update|reset"
    r"|prepare|freeze|unfreeze|wrap|unwrap|convert|find|choose|select|configure|instantiate|initialize|summarize|print|plot|log)_\w+"
    r"|\w+_(by|from|to|for|of|with|per)_\w+"
)
"""Names of functions by what they do: ``save_model`` is called, and is no model."""
OPTIMIZER_CLASSES = lazy(r"\w*Optim(izer)?\w*")
"""Classes of the file around an optimizer, whose `step` may take the loss and make the backward pass, too."""
HOSTED = lazy(
    r"_*(last|prev|previous|best|old)_loss|(\w+_)?(loss_?(sum|avg|average|meter|history|list|values?|dict|log|weights?|scales?|scaler|str|names?|type|type_id|item|every|interval|freq"
    r"|start\w*|end\w*|epochs?|steps?|coefs?|coeff\w*|factor|alpha|lambda|config|kwargs|mode|key|mask|denom\w*|divisor|and_\w+)|losses|loss_\w+_epochs?)"
)
"""Names with `loss` in them that stand for numbers, settings and containers."""
SETTINGS = lazy(r"(self\.)?(\w+_)?(args|arguments|opts?|options|hparams|flags|FLAGS|cfg|config|conf|params|hps|settings)")
OF_MODELS = ("parameters", "buffers", "named_parameters", "named_buffers")
"""Methods of a model that give its tensors one by one, the latter two with their names."""
LOSS_METHODS = lazy(r"(compute_|calc(ulate)?_|get_)?(loss|nll|elbo)(_fn|_function)?|neg_log_likelihood|log_prob")
"""Methods of a model that go through it to a loss."""
NUMBERS = frozenset(
    (
        "item", "tolist", "numpy", "size", "dim", "numel", "nelement", "ndimension", "get_device", "data_ptr", "is_contiguous",
        "stride", "storage_offset", "element_size",
    )
)  # fmt: skip
"""Methods of a tensor whose result is none."""
DESCRIBING = frozenset(("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "layout", "names", "grad_fn", "itemsize"))
OF_MASKS = ("nonzero", "sum", "cumsum", "argmax", "argsort", "sort", "topk", "long", "int")
ON_DEVICE = ("loss", "tensor", "output", "batch", "parameter")
TENSORS = (*ON_DEVICE, "detached")
_NAMED = {
    "accelerate.Accelerator": "accelerator",
    "wandb.init": "wandb",
    "comet_ml.Experiment": "comet",
    "comet_ml.start": "comet",
    "timm.create_model": "model",
    "torch.nn.utils.clip_grad_norm_": "tensor",
    **dict.fromkeys(("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer", "self.register_buffer"), "parameter"),
    **dict.fromkeys(("len", "int", "float", "round"), "number"),
    **_DATASETS,
    **dict.fromkeys(LOADERS, "loader"),
    **dict.fromkeys(FACTORIES, "tensor"),
}
_STARTS = (
    *((f"torch.optim.{name}.", "scheduler") for name in ("lr_scheduler", "swa_utils")),
    *((name, "optimizer") for name in ("torch.optim.", "bitsandbytes.optim.", "timm.optim.create_optimizer")),
    *((f"torch.nn.{name}.", "") for name in ("functional", "utils", "init")),
    *((name, "model") for name in ("torchvision.models.", "transformers.AutoModel", "torch.nn.", "segmentation_models_pytorch.")),
    *((f"{name}.datasets.", "dataset") for name in ("torchvision", "torchaudio")),
    ("numpy.", "array"),
)
"""Kinds by how a name begins; the first that fits counts."""


_PRETRAINED = lazy(
    r"(transformers|diffusers|peft)\.(\w+\.)*\w*(Model|For[A-Z]\w*|Encoder|Decoder|Transformer|ControlNet)\.from_(pretrained|config)"
)
"""What makes a model of a class of these libraries."""
_BASES = {
    "LightningModule": "lightning",
    "LightningDataModule": "datamodule",
    "IterableDataset": "iterable-dataset",
    "Hook": "callback",
}
"""Classes of libraries by the last part of their names; a framework calls the hooks of callbacks."""
_IN_MEMORY = lazy(r"\w*(InMemory|MemoryMapped|Memmap|Mmap|A(nn|)[dD]ata(?!set\b)|TensorData)\w*")
"""Data sets that lie in memory by their name."""


def is_in_memory(name: str) -> bool:
    """Whether the name of a class says that its samples lie in memory."""
    return _IN_MEMORY.fullmatch(name) is not None or name == "TensorDataset"


def made_by(name: str) -> str:
    """The kind of what a library's class or function makes; empty for what is not known."""
    if kind := _NAMED.get(name) or library_kind(name):
        return kind
    if is_in_memory(name.rpartition(".")[2]):
        return "memory-dataset"
    if name.endswith((".GradScaler", ".ShardedGradScaler")):
        return "scaler"
    if _PRETRAINED.fullmatch(name):
        return "model"
    if LOSS_CALLS.fullmatch(name):
        return "criterion" if name.endswith("Loss") else "loss"
    return next((kind for start, kind in _STARTS if name.startswith(start)), "")


def library_kind(name: str) -> str:
    """What classes of libraries are, also as bases of the file's own."""
    last = name.rpartition(".")[2]
    if last in _BASES:
        return _BASES[last]
    if name in ("torch.nn.Module", "torch.nn.Sequential") or (last == "PreTrainedModel"):
        return "model"
    if name.startswith(("lightning.", "pytorch_lightning.")) and last == "Trainer":
        return "lightning-trainer"
    if name.startswith("transformers.") and last.endswith("Trainer"):
        return "hf-trainer"
    return "dataset" if name in ("torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset") or last == "VisionDataset" else ""

"""The owner of a frame's code: the program, an installed package, PyTorch or the standard library.

torch.profiler cuts off a path what stands in sys.path: the folder of the script (of the current folder with `python -m`), that of
installed packages and that of the standard library alike (torch/profiler/python_tracer.py). So `models/net.py` beside the script
looks as `transformers/trainer.py` does, and packages are known by their names; one that is not counts as the program's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec

from sysperf.model.finding import Place
from sysperf.startup import lazy

_FRAME = lazy(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)")
_INSTALLED = lazy(r".*/(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/.*)?")
_STANDARD = lazy(r".*/lib/python3[^/]*/.*")
_GENERATED = lazy(r"(?:^|/)torchinductor_[^/]*/|(?:^|/)torch_compile_debug/|(?:^|/)inductor_cache/")
"""What torch.compile wrote is nobody's line."""
TORCH = ("torch", "functorch", "torchgen")
PACKAGES = frozenset((
    "PIL", "absl", "accelerate", "aiohttp", "albumentations", "apex", "av", "bitsandbytes", "boto3", "botocore", "click", "cloudpickle",
    "colossalai", "composer", "cv2", "dask", "decord", "deepspeed", "detectron2", "dgl", "diffusers", "dill", "einops", "fairscale",
    "fastai", "fbgemm_gpu", "ffcv", "flash_attn", "fsspec", "gcsfs", "gensim", "google", "grpc", "gymnasium", "h5py", "httpx",
    "huggingface_hub", "hydra", "ignite", "imageio", "joblib", "kornia", "lightning", "lightning_fabric", "lightning_utilities", "lmdb",
    "loguru", "matplotlib", "mlflow", "mmcv", "mmdet", "mmengine", "monai", "multiprocess", "nltk", "numba", "numpy", "omegaconf",
    "open_clip", "optimum", "pandas", "peft", "pkg_resources", "polars", "psutil", "pyarrow", "pydantic", "pytorch_lightning", "ray",
    "requests", "rich", "s3fs", "safetensors", "scipy", "sentence_transformers", "sentencepiece", "setuptools", "skimage", "sklearn",
    "soundfile", "spacy", "stable_baselines3", "sympy", "tensorboard", "tensorboardX", "tensorflow", "tiktoken", "timm", "tokenizers",
    "torch_geometric", "torch_xla", "torchao", "torchaudio", "torchdata", "torchmetrics", "torchrec", "torchtext", "torchtune",
    "torchvision", "tqdm", "transformer_engine", "transformers", "triton", "trl", "typer", "ultralytics", "unsloth", "urllib3", "vllm",
    "wandb", "webdataset", "xformers", "yaml", "zarr",
))  # fmt: skip
"""Packages that training programs have, by the names that they are imported by; names that people give folders of their own
(`datasets`, `evaluate`, `models`) are not among them."""


def innermost(frames: Iterable[Place | None]) -> Place | None:
    """The program's own innermost line, and the package that it is in there; the package's line where no other is known.

    Frames of neither are None; the outermost comes first.
    """
    own: Place | None = None
    inside: Place | None = None
    for place in frames:
        if place is not None and not place.package:
            own, inside = place, None
        elif place is not None:
            inside = place
    if own is None or inside is None:
        return own or inside
    return msgspec.structs.replace(own, calls=inside.package)


def line(frame: str, *, numbered: bool = True) -> Place | None:
    """The line of a frame; None of PyTorch, the standard library and what is no file."""
    parts = _FRAME.fullmatch(frame)
    if not parts or parts["file"].startswith("<"):
        return None
    path = parts["file"]
    top = _top(path)
    if _GENERATED.search(path):
        return None
    if top in TORCH or top in sys.stdlib_module_names or (not top and _STANDARD.fullmatch(path)):
        return None
    is_installed = top in PACKAGES or bool(_INSTALLED.fullmatch(path))
    number = int(parts["line"][:9]) if numbered else 0
    return Place(path, number, parts["function"], package=top if is_installed else "")


def _top(path: str) -> str:
    """The name by which a module is imported, up to the first dot; empty of a file elsewhere, of which only its whole path is known."""
    if installed := _INSTALLED.fullmatch(path):
        return installed[1]
    return "" if path.startswith("/") else path.partition("/")[0].removesuffix(".py")


def of_stack(stack: str) -> Place | None:
    """The same of a call stack in one text, in which the innermost frame comes first."""
    return innermost(line(frame.strip()) for frame in reversed(stack.split(";")))

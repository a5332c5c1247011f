"""What a rung needs of this machine, and the reason where that is absent."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable

import torch

from sysperf_trainer.options import Options
from sysperf_trainer.rung import Rung

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a file system of its own rather than a folder for temporary files
MIN_SHARED_BYTES = 64 << 20


def lacks(rung: Rung, options: Options) -> str:
    """Return why a rung cannot be had in a run like this; empty where it can."""
    reasons = (_reason(need, options) for need in rung.needs)
    return next((reason for reason in reasons if reason), "")


def _reason(need: str, options: Options) -> str:
    if need.startswith("capability-"):
        return _capability(need.removeprefix("capability-"))
    return CHECKS[need](options)


def _cuda(options: Options) -> str:
    if options.device.startswith("cuda"):
        return ""
    return "it is about a GPU, and the run is on the CPU" if torch.cuda.is_available() else "torch sees no GPU"


def _capability(least: str) -> str:
    major, minor = torch.cuda.get_device_capability()
    return "" if f"{major}.{minor}" >= least else f"the GPU has compute capability {major}.{minor}, and this needs {least}"


def _bf16(options: Options) -> str:
    if options.device.startswith("cuda"):
        return "" if torch.cuda.is_bf16_supported() else "the GPU has no bfloat16"
    return "" if _cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"} else "the CPU computes no bfloat16 (no AVX512-BF16, no AMX)"


def _cpu_flags() -> set[str]:
    """What the first CPU can do: `flags` on x86, `Features` on ARM."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next((set(line.split()) for line in file if line.startswith(("flags", "Features"))), set())
    except OSError:
        return set()


def _shared_memory(_options: Options) -> str:
    try:
        free = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        return f"workers pass batches through {SHARED_MEMORY}: {error.strerror}"
    if not os.access(SHARED_MEMORY, os.W_OK):
        return f"workers pass batches through {SHARED_MEMORY}, which cannot be written to"
    free_bytes = free.f_bavail * free.f_frsize
    return "" if free_bytes >= MIN_SHARED_BYTES else f"workers pass batches through {SHARED_MEMORY}, which has {free_bytes >> 20} MB free"


def _compiler(options: Options) -> str:
    if options.device.startswith("cuda") and importlib.util.find_spec("triton") is None:
        return "torch.compile makes a GPU's kernels with Triton, which is not installed"
    wanted = (
        (os.environ.get("CC"), "gcc", "cc", "clang") if options.device.startswith("cuda") else (os.environ.get("CXX"), "g++", "clang++")
    )
    if not any(name and shutil.which(name) for name in wanted):
        return "torch.compile needs a compiler: install g++ (Debian: apt-get install g++)"
    header = f"{sysconfig.get_path('include')}/Python.h"
    return (
        "" if os.path.exists(header) else f"torch.compile needs Python's headers: {header} is absent (Debian: apt-get install python3-dev)"
    )


def _sdpa_cudnn(_options: Options) -> str:
    from torch.nn.attention import SDPBackend  # noqa: PLC0415 - on its own page of torch

    return "" if hasattr(SDPBackend, "CUDNN_ATTENTION") else f"torch {torch.__version__} has no attention by cuDNN (2.5 has)"


def _flex_attention(_options: Options) -> str:
    found = importlib.util.find_spec("torch.nn.attention.flex_attention")
    return "" if found else f"torch {torch.__version__} has no flex attention (2.5 has)"


def _products_in_8_bits(_options: Options) -> str:
    returned = torch.ops.aten._scaled_mm.default._schema.returns  # noqa: SLF001 - the only entry to it
    return "" if len(returned) == 1 else f"products in 8 bits of torch {torch.__version__} return something else (2.5 has what is needed)"


def _torchscript(_options: Options) -> str:
    return "" if sys.version_info < (3, 14) else "TorchScript does not support Python 3.14"


def _checkpoints(options: Options) -> str:
    return (
        "" if options.checkpoints and options.checkpoint_every else "no checkpoints are written: --checkpoints FOLDER --checkpoint-every N"
    )


def _ranks(_options: Options) -> str:
    return "" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "there is one rank: torchrun starts several"


def _nodes(_options: Options) -> str:
    folder = "/sys/devices/system/node"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    nodes = sum(name.startswith("node") and name[4:].isdigit() for name in names)
    return "" if nodes > 1 else "the machine has one memory node"


def _numactl(_options: Options) -> str:
    return "" if shutil.which("numactl") else "numactl is not installed"


def _jemalloc(_options: Options) -> str:
    return "" if ctypes.util.find_library("jemalloc") else "jemalloc is not installed"


CHECKS: dict[str, Callable[[Options], str]] = {
    "cuda": _cuda,
    "bf16": _bf16,
    "shared-memory": _shared_memory,
    "compiler": _compiler,
    "sdpa-cudnn": _sdpa_cudnn,
    "flex-attention": _flex_attention,
    "products-in-8-bits": _products_in_8_bits,
    "torchscript": _torchscript,
    "checkpoints": _checkpoints,
    "ranks": _ranks,
    "nodes": _nodes,
    "numactl": _numactl,
    "jemalloc": _jemalloc,
}

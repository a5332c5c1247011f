"""Variables of programs: those that explain performance, and of their values what is no secret."""

from __future__ import annotations

from sysperf.host.harmless import is_path, is_place, is_readable
from sysperf.host.secret_words import names_secret, without_keys
from sysperf.model.text import HIDDEN
from sysperf.startup import lazy

_KEPT_PREFIXES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "BLIS_", "VECLIB_", "ATEN_", "ONEDNN_", "DNNL_",
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCHELASTIC_",
    "PYTORCH_", "TRITON_", "KINETO_", "NSYS_PROFILING_", "MALLOC_", "TCMALLOC_", "MIMALLOC_", "THP_MEM_ALLOC_", "NVTX_INJECTION",
    "OMPI_COMM_WORLD_", "MPI_LOCAL", "MV2_COMM_WORLD_", "PALS_", "FLUX_TASK_", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES",
    "SLURM_STEP_", "HSA_", "HIP_", "ROCR_", "MIOPEN_", "AMD_", "RCCL_", "ROCBLAS_", "HIPBLASLT_", "GPU_MAX_",
    "GPU_DEVICE_ORDINAL", "ZE_", "ONEAPI_", "SYCL_", "UR_", "CCL_", "IPEX_", "CUBLASLT_",
)  # fmt: skip
_KEPT_NAMES = frozenset((
    "SYSPERF_WRAPPED", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_BIND_NOW", "GLIBC_TUNABLES", "JE_MALLOC_CONF", "GOTO_NUM_THREADS",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER",
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "TMPDIR",
    "TOKENIZERS_PARALLELISM", "ACCELERATE_USE_CPU", "NV_INJECTION64_PATH", "ROC_GLOBAL_CU_MASK", "ROCP_TOOL_LIBRARIES",
    "VLLM_ROCM_USE_AITER", "SGLANG_USE_AITER",
    "SLURM_STEPID", "SLURM_JOB_ID",
    "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST", "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPU_BIND", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_STEP_GPUS", "SLURM_TASKS_PER_NODE", "SLURM_MEM_BIND",
    "SLURM_THREADS_PER_CORE", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SRUN_CPUS_PER_TASK",
))  # fmt: skip
_IDENTIFIES = lazy(r"_ID$|_NAME$|_DEFAULT_ENV$")
_UUID = lazy(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDENTIFIER = lazy(rf"[0-9.:]{{0,40}}|{_UUID.pattern}|none|base")
_IS_PLACE = lazy(r"(?:_DIR|_HOME|_PATH|_FILE|_ROOT|_PREFIX|_PRELOAD|PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|TMPDIR)$")
_PARTS = lazy(r"([:; ,=])")
_OF_LOADER = lazy(r"/?\$\{?(?:LIB|ORIGIN|PLATFORM)\}?")  # https://man7.org/linux/man-pages/man8/ld.so.8.html
_LIBRARY = lazy(r"[\w.+-]{1,120}\.so(?:\.[0-9]{1,6}){0,4}")
_SETTING = lazy(r"[A-Za-z0-9_.,:;=+|/^*(){}\[\]<>! ~%-]*")
MAX_BYTES = 32_768
"""A longer variable is dropped: it explains nothing, and hostile ones would cost time."""
MAX_BYTES_OF_ALL = 65_536
"""So much of all variables of a process together."""


def keeps(name: str) -> bool:
    """Whether a variable of this name explains performance and is no secret."""
    return (name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES)) and not names_secret(name)


def environment(raw: bytes) -> bytes:
    """The performance variables of a NUL-separated environment block; all else, secrets included, is dropped."""
    kept = []
    left = MAX_BYTES_OF_ALL
    for entry in raw.split(b"\0"):
        key, equals, value = entry.partition(b"=")
        name = key.decode("utf-8", "replace")
        if equals and len(value) <= MAX_BYTES and keeps(name) and (left := left - len(entry)) >= 0:
            kept.append(f"{name}={shown(name, value.decode('utf-8', 'replace'))}".encode())
    return b"\0".join(kept)


def shown(name: str, value: str) -> str:
    """The value of a variable that is kept: a setting, paths where it names places, a number or a UUID where it identifies something."""
    value = without_keys(value)
    if _IDENTIFIES.search(name):
        return value if _IDENTIFIER.fullmatch(value) else HIDDEN
    if _IS_PLACE.search(name):
        return "".join(part if not part.strip(":; ,=") or _is_place(part) else HIDDEN for part in _PARTS.split(value))
    if _UUID.search(value) and not name.endswith("_DEVICES"):
        return HIDDEN
    paths = (part for part in _PARTS.split(value) if "/" in part)
    return value if _SETTING.fullmatch(value.replace(HIDDEN, "")) and all(map(is_readable, paths)) else HIDDEN


def _is_place(part: str) -> bool:
    part = _OF_LOADER.sub("/lib", part)
    return bool(_LIBRARY.fullmatch(part)) or is_path(part) or is_place(part)

"""What other processes say is kept only as far as it explains performance. Secrets never pass this door.

Three signs give a secret away: what it is named (``--token X``, ``API_KEY=X``), where it stands (a login in a URL,
what follows ``Bearer``), and its shape (``hf_…``, ``AKIA…``, a JWT, a long random word). In doubt we hide.
"""

from __future__ import annotations

import re

HIDDEN = "<hidden>"

_KEPT_PREFIXES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "BLIS_", "VECLIB_", "ATEN_", "ONEDNN_", "DNNL_",
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "TORCH", "PYTORCH_", "TRITON_", "KINETO_",
    "MALLOC_", "TCMALLOC_", "MIMALLOC_", "THP_MEM_ALLOC_", "NVTX_INJECTION",
    "OMPI_COMM_WORLD_", "MPI_LOCAL", "PALS_", "FLUX_TASK_", "HSA_", "HIP_", "ROCR_", "MIOPEN_",
)  # fmt: skip
_KEPT_NAMES = frozenset((
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_BIND_NOW", "GLIBC_TUNABLES", "JE_MALLOC_CONF", "GOTO_NUM_THREADS",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
    "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER",
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "TMPDIR",
    "TOKENIZERS_PARALLELISM", "ACCELERATE_USE_CPU", "NV_INJECTION64_PATH",
    "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST", "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPU_BIND", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_STEP_GPUS", "SLURM_TASKS_PER_NODE", "SLURM_MEM_BIND",
    "SLURM_THREADS_PER_CORE", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SRUN_CPUS_PER_TASK",
))  # fmt: skip

# ---------------------------------------------------------------------- names of secrets

_SECRET_ANYWHERE = re.compile(
    r"secret|passw|passphrase|api_?key|access_?key|private_?key|auth_?token|access_?token|credential|bearer|cookie", re.IGNORECASE
)
_SECRET_LAST = frozenset(("token", "key", "pass", "pwd", "pw", "auth", "authorization", "sig", "signature", "sas", "jwt", "pat", "pin"))
_NOT_SECRET = frozenset(
    ("max", "min", "num", "per", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "special", "image", "sort", "primary", "foreign")
)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

# ---------------------------------------------------------------------- where secrets stand

_QUOTED = r""""(?:[^"\\\0]|\\.)*"|'[^'\0]*'"""
_VALUE = rf"(?:{_QUOTED}|[^\s\0]+)"
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20}://)[^/\s\0@?#]*(?:@[^/\s\0@?#]*)*@")
_AFTER_SCHEME = re.compile(rf"(?i)\b((?:bearer|basic|digest)[ \0]+){_VALUE}")
_ASSIGNED = re.compile(rf"""((?<![\w.])[\w.-]{{1,100}}["')\]]{{0,3}}\s{{0,3}}=\s{{0,3}}|(?<![^\s\0"'{{,\[(])[\w.-]{{1,100}}["']?\s{{0,3}}:\s{{0,3}})({_VALUE})""")

"""What a main thread's CPU time goes to, by samples of its machine code: libraries and symbols, as a profiler of the machine sees them."""

from __future__ import annotations

from collections import Counter

from sysperf.diagnosis.facts import Native
from sysperf.model.profile import Frame, Samples
from sysperf.startup import lazy

MIN_SAMPLES = 20
"""Of fewer samples no shares are made: the thread hardly ran."""
MIN_TYPED = 8
"""Samples in kernels that name their type; with fewer, the share is unknown."""
_PYTHON = lazy(r"/(?:python[0-9.]*|libpython[0-9.]*\.so[0-9.]*)$")
_OPENMP = lazy(r"/lib(?:gomp|iomp5|omp)[-.0-9a-f]*\.so")
_TORCH = lazy(r"/lib(?:torch\w*|c10\w*|mkl\w*|openblas\w*|dnnl)[-.0-9a-f]*\.so")
_NO_EXTENSION = lazy(
    r"/(?:libc|libm|ld|ld-linux\S*|libpthread|librt|libdl|libgcc_s|libstdc\+\+)[-.0-9]*\.so|-packages/torch/|torchinductor|/triton/"
)
"""Libraries of the system and of PyTorch, and kernels that were compiled at run time."""
_COLLECTION = lazy(
    r"^(?:gc_collect\w*|visit_(?:decref|reachable)|deduce_unreachable|subtract_refs|update_refs|\w+_traverse|traverse\w*|move_unreachable|untrack_\w+)$"
)
_FAULT = lazy(
    r"page_fault|clear_page|handle_mm_fault|do_anonymous|alloc_pages|zap_|unmap|free_unref|charge|clear_huge|folio_add|lru_add|exc_page"
)
_FILES = lazy(
    r"lookup|namei|do_sys_?open|path_|vfs_|filp|filemap|ext4|xfs|overlay|ovl_|fsync|dentry|inode|d_alloc|kernfs|nfs|getname|filename"
)
_DOUBLE = lazy(
    r"[_.]dgem[mv]|_d(?:gemm|dot|axpy|trsm|scal|copy)|<double|double[>,]|[^a-z]double\b|_pd\b|scopyd|[a-z]_f64|mkl_vml\w*_kernel_d\w*|mkl_blas\w*_dg"
)
_FLOAT = lazy(
    r"[_.]sgem[mv]|_s(?:gemm|dot|axpy|trsm|scal)|<float|float[>,]|[^a-z]float\b|mkl_vml\w*_kernel_s\w*|mkl_blas\w*_sg|_f32|bf16|jit_"
)
_MATH = lazy(r"[sd]gem[mv]|mkl_|dnnl|oneapi|cpublas|jit_|AVX|::DEFAULT::|[vV]ectorized|loop_?2d")
_SORTS = lazy(r"[a-z]sort|sort_|topk|quick_?select|RandomAccess")
"""Kernels of PyTorch whose names tell nothing else."""
_KERNELS = lazy(
    r"_kernel(?:_impl|_f32)?(?:[<(]|$)|\bcpu_(?!dispatch|fallback)\w+<|_(?:contiguous|channels_last)_impl<|NormalFill|mt19937|GeneratorImpl::random"
)
"""Kernels of PyTorch without the name of an instruction set: pooling, batch normalisation, random numbers. None is a wrapper of one."""
_COMPILED = lazy(r"/perf-\d+\.map$|^//anon$")
"""Machine code that was made at run time: convolutions and products of oneDNN, which tell no name."""
_REFERENCE = lazy(r"slow_conv|\bim2col|\bcol2im|unfolded[23]d|vol2col|col2vol|^nnp_")
"""Convolutions of PyTorch itself and of NNPACK."""


def describe(samples: Samples, tid: int) -> Native | None:
    """The shares of one thread's CPU time; None of too few samples."""
    mine = [sample for sample in samples.samples if sample.tid == tid and sample.frames]
    total = sum(sample.count for sample in mine)
    if total < MIN_SAMPLES:
        return None
    counts: Counter[str] = Counter()
    for sample in mine:
        for kind in kinds(sample.frames[0]):
            counts[kind] += sample.count
    typed = counts.pop("double", 0), counts.pop("float", 0)
    double = typed[0] / sum(typed) if sum(typed) >= MIN_TYPED else None
    return Native(samples=total, double=double, **{kind: count / total for kind, count in counts.items()})


def kinds(frame: Frame) -> set[str]:
    """What a place in machine code is: of whom, and what it does."""
    if frame.file.startswith("["):
        return {"kernel"} | ({"faults"} if _FAULT.search(frame.function) else {"files"} if _FILES.search(frame.function) else set())
    if _PYTHON.search(frame.file):
        return {"python"} | ({"collection"} if _COLLECTION.search(frame.function) else set())
    if _OPENMP.search(frame.file):
        return {"openmp"}
    return _of_library(frame)


def _of_library(frame: Frame) -> set[str]:
    names = {"torch"} if _TORCH.search(frame.file) else set[str]()
    if _REFERENCE.search(frame.function) and "dnnl::" not in frame.function:  # oneDNN has such functions of its own
        names |= {"math", "reference"}
    of_torch = "torch" in names and (_SORTS.search(frame.function) or _KERNELS.search(frame.function))
    if _MATH.search(frame.function) or of_torch or _COMPILED.search(frame.file):
        names.add("math")
    is_double, is_float = _DOUBLE.search(frame.function), _FLOAT.search(frame.function)
    if is_double and not is_float:  # sums of float32 are kept in float64, too
        names.add("double")
    elif is_float:
        names.add("float")
    return names or ({"extensions"} if ".so" in frame.file and not _NO_EXTENSION.search(frame.file) else set())

"""What kernels and calls do, by their names. Substrings are in lower case and compared with names in lower case."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sysperf.startup import lazy
from sysperf.trace.timeline import Names

_NO_MATMUL = (
    "nchwtonhwc", "nhwctonchw", "elementwise", "layer_norm", "bn_fw", "bn_bw", "reduce_kernel", "scalepacked", "transform",
    "conv1d_depthwise", "winogradforwarddata", "winogradforwardoutput", "winogradforwardfilter", "winogradwgrad", "computeoffsets",
    "flip_filter", "nccl", "globalkernel", "fbgemm", "copy_kernel", "splitkreduce", "generatewino", "dropout", "foreach", "multi_tensor",
    "convert", "triton_poi", "triton_red", "triton_per",
)  # fmt: skip
_MATMUL = (
    "gemm", "gemv", "conv", "dgrad", "wgrad", "fprop", "scudnn", "winograd", "flash", "fmha", "cutlass", "nvjet", "cijk_", "implicit",
    "bmm_",
)  # fmt: skip
_PLAIN = ("ffma", "sgemm", "scudnn", "f32f32_f32f32")
_TENSOR = (
    "tensorop", "tensor16x", "hmma", "884", "1688", "16816", "161616", "wmma", "gmma", "tf32", "bf16bf16", "f16f16", "nvjet", "flash",
    "fmha", "bmm_mxe", "bmm_bfloat16",
)  # fmt: skip
_FLOAT = ("sgemm", "scudnn", "ffma", "f32f32_f32f32")
_FLOAT_FORM = lazy(r"(?:gemm|conv|dgrad|wgrad|fprop|winograd)\w*<float\b|cijk_\w*_sb_")
"""Multiplying 32-bit floats by the plain units: as cuBLAS, cuDNN and CUTLASS say it, as a template's first type, and as rocBLAS does."""
_OTHER_TYPE = (
    "half", "fp16", "bf16", "bfloat16", "hgemm", "hfma", "f16", "e4m3", "e5m2", "e2m1", "fp8", "float8", "fp4", "mxf", "i8i8", "int8",
    "imma", "igemm", "dgemm", "double", "f64",
)  # fmt: skip
_BY_VECTOR = ("gemv", "depthwise", "grouped_direct", "_c1_k1_")
"""Limited by memory: a matrix times a vector, and convolutions of one channel each."""
_AMD_TENSOR = lazy(r"cijk_.*_mi\d+x\d+")
_COLLECTIVE = lazy(
    r"nccl|(?<![a-z0-9])(?:deep_?)?ep::|nvshmem|rocshmem|msccl|multimem|quick_?reduce|cross_device_reduce|userbuffers"
    r"|oneccl|all_?(?:reduce|gather|to_?all)|reduce_?scatter|a2a_(?:dispatch|combine)|(?<![a-z])ep_?(?:dispatch|combine)"
)
"""NCCL and RCCL, DeepEP, NVSHMEM and rocSHMEM, MSCCL++, vLLM's and SGLang's own, FlashInfer and TensorRT-LLM, symmetric memory of PyTorch,
Transformer Engine, oneCCL, PPLX and MORI."""
_NO_COLLECTIVE = lazy(r"^triton_|gemm|matmul|(?:warp|block|cta|thread|wave|lane)_?(?:wide_?)?all_?reduce|elementwise")
_COPIES = ("direct_copy_kernel", "copy_kernel", "copykernel", "bfloat16_copy", "float8_copy", "float16_copy")
_POINTWISE = (
    "elementwise", "triton_poi", "layer_norm", "layernorm", "bn_fw", "bn_bw", "batch_norm", "batchnorm", "rms_norm", "rmsnorm",
    "activation", "dropout", "gelu", "silu", "relu",
)  # fmt: skip
_OPTIMIZER = ("multi_tensor_apply", "fusedadam", "fused_adam", "adam_kernel", "sgd_kernel", "lamb")
_TO_HOST = "DtoH", "Device -> Pageable", "Device -> Pinned", "DeviceToHost", "D2M", "D2H"
_TO_DEVICE = "HtoD", "Pageable -> Device", "Pinned -> Device", "HostToDevice", "M2D", "H2D"
"""As CUPTI, roctracer and Level Zero call it."""
_FLASH = ("flash", "fmha_cutlass", "cudnn_generated_fort_native_sdpa", "sdpa_sm", "fmha_v2", "fmha::")


def is_matmul(name: str) -> bool:
    """Whether a kernel multiplies matrices: GEMM, convolution, attention."""
    return not any(word in name for word in _NO_MATMUL) and any(word in name for word in _MATMUL)


def uses_tensor_cores(name: str) -> bool:
    """Whether a matmul kernel runs on tensor cores (matrix cores on AMD), as far as its name tells."""
    if any(word in name for word in _PLAIN) and "tensorop" not in name and "tf32" not in name:
        return False
    return any(word in name for word in _TENSOR) or bool(_AMD_TENSOR.search(name))


def is_plain_float(name: str) -> bool | None:
    """Whether a matmul kernel multiplies 32-bit floats where tensor cores could; None where its name does not tell."""
    if uses_tensor_cores(name) or any(word in name for word in (*_BY_VECTOR, *_OTHER_TYPE)):
        return False
    return any(word in name for word in _FLOAT) or bool(_FLOAT_FORM.search(name)) or None


def is_plain_product(name: str, signatures: Mapping[str, Collection[str]]) -> bool | None:
    """The same, also by the full names of a short one; None where they do not tell or disagree."""
    answers = {is_plain_float(name)}
    if None in answers and name in signatures:
        answers = set(map(is_plain_float, signatures[name]))
    return answers.pop() if len(answers) == 1 else None


def is_untyped_product(name: str) -> bool:
    """Whether a kernel multiplies matrices of a type that its name does not tell."""
    return is_matmul(name) and is_plain_float(name) is None


def is_collective(name: str) -> bool:
    """Whether a kernel exchanges data between devices. Fused pointwise code and products name what they follow, and are none."""
    return bool(_COLLECTIVE.search(name)) and not _NO_COLLECTIVE.search(name)


def is_copy(name: str) -> bool:
    """Whether a kernel copies or converts elements: `copy_`, `contiguous`, `to`."""
    return any(word in name for word in _COPIES)


def is_pointwise(name: str) -> bool:
    """Whether a kernel is limited by memory because it works element by element, or normalises."""
    return any(word in name for word in _POINTWISE) and not is_copy(name)


def is_softmax(name: str) -> bool:
    return "softmax" in name


def is_flash(name: str) -> bool:
    """Whether a kernel is a fused attention."""
    return any(word in name for word in _FLASH)


def is_efficient_attention(name: str) -> bool:
    """PyTorch's memory-efficient attention, which a dense mask leads to where flash attention would do without."""
    return "fmha_cutlass" in name


def is_optimizer(name: str) -> bool:
    return any(word in name for word in _OPTIMIZER)


def is_page_migration(name: str) -> bool:
    """Whether a copy is one that unified memory makes by itself: no call launches it."""
    return " unified " in name


def is_memory_pageable(name: str) -> bool:
    return "Pageable" in name


def is_h2d(name: str) -> bool:
    return any(word in name for word in _TO_DEVICE)


def is_d2h(name: str) -> bool:
    return any(word in name for word in _TO_HOST)


# ---------------------------------------------------------------------- calls of the host

_LAUNCH = ("LaunchKernel", "GraphLaunch", "LaunchCooperativeKernel", "EnqueueKernelLaunch")
_SYNC = ("Synchronize", "urQueueFinish", "urEventWait", "piQueueFinish", "piEventsWait")
POLLED = " until done"
"""What is added to the name of a query that stands for a run of them (`polling`)."""
_QUERY = ("EventQuery", "StreamQuery")
_WITHOUT_EFFECT = ("GetLastError", "PeekAtLastError", "GetDevice", "SetDevice", "CtxGetCurrent", "CtxSetCurrent")
_SYNC_ALL = ("DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize")
_COPY = ("Memcpy", "EnqueueMemBuffer", "AppendMemoryCopy")
"""Calls of CUDA, HIP, and SYCL's runtimes and Level Zero."""
_ALLOCATION = lazy(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|FreeHost|HostMalloc|MemGetInfo)|urUSM(?:Device|Host|Shared)?(?:Alloc|Free)|zeMem(?:Alloc|Free)"
)
_CREATION = lazy(
    r"(?:cuda|cu|hip)(?:\w*StreamCreate|EventCreate|CtxCreate|\w*PrimaryCtxRetain|Init$|DeviceReset)|(?:ur|ze)(?:Context|CommandQueue|Queue)Create$"
)
_MODULE = lazy(r"(?:cu|hip)(?:ModuleLoad|LibraryLoad|LinkAddData|LinkComplete)|nvrtc|urProgram(?:Create|Build|Link)|zeModuleCreate")

CUDA, HIP, XPU = "cuda", "hip", "xpu"
"""Runtimes through which PyTorch drives devices."""
_OF_RUNTIME = {HIP: lazy(r"hip[A-Z]"), XPU: lazy(r"(?:ur|ze|pi)[A-Z]"), CUDA: lazy(r"cu(?:da)?[A-Z]")}


def runtime(names: Collection[str]) -> str | None:
    """The runtime whose calls these are; None where none of them is known."""
    return next((runtime for runtime, own in _OF_RUNTIME.items() if any(map(own.match, names))), None)


def is_sync_call(name: str) -> bool:
    return any(word in name for word in _SYNC) or name.endswith(POLLED)


def is_query_call(name: str) -> bool:
    """Whether a call asks if the device is done, and does not wait until it is."""
    return any(word in name for word in _QUERY) and not name.endswith(POLLED)


def is_call_without_effect(name: str) -> bool:
    """Whether a call neither asks anything of a device nor waits for it."""
    return any(word in name for word in _WITHOUT_EFFECT)


def is_device_sync_call(name: str) -> bool:
    """Whether a call waits for everything that was launched before it, on whatever stream."""
    return any(word in name for word in _SYNC_ALL)


def is_copy_call(name: str) -> bool:
    return any(word in name for word in _COPY) and "Peer" not in name


def is_launch_call(name: str) -> bool:
    return any(word in name for word in _LAUNCH)


def is_graph_launch(name: str) -> bool:
    return "GraphLaunch" in name


def is_allocation_call(name: str) -> bool:
    return bool(_ALLOCATION.match(name))


def is_module_load(name: str) -> bool:
    return bool(_MODULE.match(name))


def is_start_up(name: str) -> bool:
    """Whether a call is one that programs make while they start, and hardly ever later."""
    return is_module_load(name) or is_allocation_call(name) or bool(_CREATION.match(name))


def begins_capture(name: str) -> bool:
    """Whether a call begins the capture of a graph: what is launched into it does not run."""
    return "StreamBeginCapture" in name


def ends_capture(name: str) -> bool:
    return "StreamEndCapture" in name


def is_instantiation(name: str) -> bool:
    """Whether a call makes a graph ready that was captured."""
    return "GraphInstantiate" in name


_TEMPLATE = lazy(r"<[^<>]*>")
_PARAMETERS = lazy(r"\((?!anonymous).*$")
_NAMESPACES = lazy(r"(?:\(anonymous namespace\)|\b\w+)::(?=[\w(])")


def short(name: str, most: int = 60) -> str:
    """A kernel's name for people: without result, parameters, template arguments and namespaces, unless nothing else is left."""
    text = name[:1_000]
    while (less := _TEMPLATE.sub("", text)) != text:
        text = less
    text = _PARAMETERS.sub("", text.partition("<")[0].removeprefix("void "))
    return (_NAMESPACES.sub("", text).strip() or name)[:most]


class ByName(dict[int, bool]):
    """The answer of a question about names by their numbers, asked once a name."""

    def __init__(self, names: Names, question: Callable[[str], bool], *, lower: bool = False) -> None:
        super().__init__()
        self._texts, self._question, self._lower = names.texts, question, lower

    def __missing__(self, number: int) -> bool:
        text = self._texts[number]
        answer = self[number] = self._question(text.lower() if self._lower else text)
        return answer

    __call__ = dict.__getitem__
    """As fast as a look-up: it is asked for every row."""

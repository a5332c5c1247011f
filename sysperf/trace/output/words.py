"""The words of a device's own runtime in what is said of a trace. Rules speak of CUDA, whose names PyTorch keeps on GPUs of AMD."""

from __future__ import annotations

import re

import msgspec

from sysperf.model.finding import Finding
from sysperf.trace.kernels import HIP, XPU

_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    HIP: (
        (r"CUDA graph", "HIP graph"),
        (r"\bcuda(?=Malloc|Free)", "hip"),
        (r"\bPYTORCH_CUDA_ALLOC_CONF\b", "PYTORCH_HIP_ALLOC_CONF"),
        (r"\bCUPTI\b", "ROCprofiler"),
        (r"\bnvidia-smi\b", "amd-smi"),
        (r"\bNCCL\b", "RCCL"),
        (r"\bcuDNN\b", "MIOpen"),
        (r"\b[Tt]ensor[ -]core", "matrix core"),
    ),
    XPU: (
        (r"CUDA graph", "XPU graph"),
        (r"\bcudaMalloc, cudaFree\b", "urUSMDeviceAlloc, urUSMFree"),
        (r"\bcudaFree\b", "urUSMFree"),
        (r"; torch\.cuda\.set_sync_debug_mode\(1\) names the lines", ""),
        (r"; PYTORCH_ALLOC_CONF=expandable_segments:True \(PYTORCH_CUDA_ALLOC_CONF before 2\.10\)", ""),
        (r" cudnn\.benchmark=False where sizes change;", ""),
        (r"\btorch\.cuda\.", "torch.xpu."),
        (r"\bCUPTI\b", "PTI"),
        (r"\bnvidia-smi\b", "xpu-smi"),
        (r"\bNCCL\b", "XCCL"),
        (r"\bcuDNN\b", "oneDNN"),
        (r"\b[Tt]ensor[ -]core", "matrix engine"),
    ),
}
"""By runtime: patterns of CUDA's words, and what they are called there, in this order; empty: there is no such thing."""
_NOTES = "https://docs.pytorch.org/docs/stable/notes/"
_REFS = {HIP: {f"{_NOTES}cuda.html": f"{_NOTES}hip.html"}, XPU: {f"{_NOTES}cuda.html": f"{_NOTES}get_start_xpu.html"}}
_OF_NVIDIA = "https://docs.nvidia.com/"


def of_runtime(finding: Finding, runtime: str | None) -> Finding:
    """The finding as its device's maker would say it. That of a trace of CUDA, or of no device, stays as it is."""
    words = _WORDS.get(runtime or "")
    if words is None:
        return finding

    def said(text: str) -> str:
        for pattern, own in words:
            text = re.sub(pattern, own, text)
        return text

    fixes = tuple(
        msgspec.structs.replace(fix, title=said(fix.title), command=said(fix.command), note=said(fix.note)) for fix in finding.fixes
    )
    gain = msgspec.structs.replace(finding.gain, text=said(finding.gain.text), assumes=said(finding.gain.assumes))
    pages = _REFS[runtime or ""]
    refs = tuple(pages.get(ref, ref) for ref in finding.refs if not ref.startswith(_OF_NVIDIA))
    return msgspec.structs.replace(
        finding, title=said(finding.title), message=said(finding.message), why=said(finding.why), fixes=fixes, gain=gain, refs=refs
    )

"""CUDA toolkits and ROCm of the system, beside what PyTorch's wheels bring. No area of its own; `driver` asks.

Reads   /usr/local/cuda*/{version.json,version.txt,bin/nvcc,compat,lib64}  /opt/rocm*/.info/version
NVIDIA  https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers.compute_libraries import SONAME
from sysperf.host import Host
from sysperf.model.record import Json, Record, fact, from_json
from sysperf.startup import lazy

TOOLKITS = "/usr/local/cuda*"
ROCM = "/opt/rocm*/.info/version"
MAX_TOOLKITS = 32
_RELEASE = lazy(r"[0-9]{1,3}\.[0-9]{1,3}(?:\.[0-9]{1,4}){0,2}")
_CUDNN = lazy(r"libcudnn\.so\.[0-9.]{1,20}$")


class Toolkit(Record):
    """One CUDA toolkit of the system, or what a container image has of it."""

    path: Annotated[str, fact("its folder", TOOLKITS)]
    version: Annotated[str | None, fact("its version", f"{TOOLKITS}/version.json", f"{TOOLKITS}/version.txt")] = None
    nvcc: Annotated[bool | None, fact("whether the compiler is there", f"{TOOLKITS}/bin/nvcc")] = None
    compat_version: Annotated[
        str | None, fact("driver version of the forward-compatibility libcuda in it; '' when there is none", f"{TOOLKITS}/compat")
    ] = None
    cudnn: Annotated[tuple[str, ...] | None, fact("cuDNN libraries that were copied into it", f"{TOOLKITS}/lib64")] = None


def toolkits(host: Host) -> tuple[Toolkit, ...] | None:
    names = host.names("/usr/local")
    if names is None:
        return () if host.exists("/usr/local") is False else None
    folders = [name for name in names if name == "cuda" or name.startswith("cuda-")]
    # /usr/local/cuda leads, sometimes through /etc/alternatives, to one of the others.
    real = [name for name in folders if name != "cuda"] or folders
    return tuple(_toolkit(host, f"/usr/local/{name}") for name in real[:MAX_TOOLKITS])


def _toolkit(host: Host, path: str) -> Toolkit:
    return Toolkit(
        path=path,
        version=_toolkit_version(host, path),
        nvcc=host.exists(f"{path}/bin/nvcc"),
        compat_version=_compat_version(host, f"{path}/compat"),
        cudnn=_cudnn(host, f"{path}/lib64"),
    )


def _toolkit_version(host: Host, path: str) -> str | None:
    text = host.text(f"{path}/version.json") if host.exists(f"{path}/version.json") else None
    if text is None:
        old = host.text(f"{path}/version.txt", 4096) if host.exists(f"{path}/version.txt") else None
        match = _RELEASE.search(old or path.rpartition("/")[2])
        return match[0] if match else None
    try:
        packages = from_json(text, dict[str, dict[str, Json]])
    except ValueError as error:
        host.refuse(f"{path}/version.json", str(error)[:200])
        return None
    match = _RELEASE.fullmatch(str((packages.get("cuda") or packages.get("cuda_cudart") or {}).get("version", "")))
    return match[0] if match else None


def _compat_version(host: Host, folder: str) -> str | None:
    if not (exists := host.exists(folder)):
        return "" if exists is False else None
    names = host.names(folder)
    if names is None:
        return None
    versions = [match[1] for name in names if name.startswith("libcuda.so.") and (match := SONAME.search(name))]
    return versions[0] if versions else ""


def _cudnn(host: Host, folder: str) -> tuple[str, ...] | None:
    if not (exists := host.exists(folder)):
        return () if exists is False else None
    names = host.names(folder)
    return None if names is None else tuple(f"{folder}/{name}" for name in names if _CUDNN.match(name))[:16]


def rocm_version(host: Host) -> str | None:
    """``6.2.0-66``, as the packages write it."""
    names = host.names("/opt") if host.exists("/opt") else ()
    if names is None:
        return None
    versions = [
        host.word(f"/opt/{name}/.info/version") for name in names if name.startswith("rocm") and host.exists(f"/opt/{name}/.info/version")
    ]
    known = [match[0] for word in versions if (match := _RELEASE.match(word or ""))]
    return max(known, key=lambda text: [int(part) for part in text.split(".")], default=None if versions else "")

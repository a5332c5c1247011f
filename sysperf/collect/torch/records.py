"""What is known of one PyTorch installation. The records of the area `torch`.

Reads   */site-packages/torch/{version.py,lib}  */site-packages/*.dist-info/{METADATA,INSTALLER}  */conda-meta
"""

from __future__ import annotations

import functools
from typing import Annotated

from sysperf.model.record import Record, fact

VERSION = "/*/torch/version.py"
SITES = "/*-packages"
METADATA = "/*-packages/torch-*.dist-info/METADATA"
INSTALLER = "/*-packages/*.dist-info/INSTALLER"
TORCH_LIB = "/*/torch/lib"
CONDA = "/*/conda-meta"
PROBE = "probe:torch:*"
GPU_CODE = "gpu-code:*/torch/lib/libtorch_python.so"
PROBE_EXTENSIONS = "probe:torch-extensions:*"
ROCBLAS = "/*/rocblas/library"
LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "pixi.lock", "conda-lock.yml")


class Pin(Record):
    """A library that torch pins, and what is installed instead."""

    name: Annotated[str, fact("distribution that torch requires", METADATA)]
    wanted: Annotated[str, fact("versions that torch asks for", METADATA)]
    installed: Annotated[str, fact("version that is installed; empty when it is absent", SITES)]


class Companion(Record):
    """A package that is built for one version of torch."""

    name: Annotated[str, fact("its distribution", SITES)]
    version: Annotated[str, fact("its version", SITES)]
    wants: Annotated[str, fact("the versions of torch that it asks for; empty when it does not say", "/*-packages/*.dist-info/METADATA")]
    fits: Annotated[bool | None, fact("whether the installed torch is one of them", "/*-packages/*.dist-info/METADATA", VERSION)]
    runtime: Annotated[str, fact("whose GPUs it is built for: cuda, rocm, xpu, or cpu; empty where nothing says", SITES)] = ""


class Package(Record):
    """An installed distribution."""

    name: Annotated[str, fact("its name", SITES)]
    version: Annotated[str, fact("its version", SITES)]


class Copy(Record):
    """Another torch that the same interpreter can import."""

    site_packages: Annotated[str, fact("the folder that holds it", SITES)]
    version: Annotated[str, fact("its version; empty when its files do not say", VERSION)]


class Broken(Record):
    """An extension that is installed and cannot be imported."""

    name: Annotated[str, fact("its module", PROBE_EXTENSIONS)]
    error: Annotated[str, fact("what importing it says", PROBE_EXTENSIONS)]


class Deep(Record):
    """What torch says of itself in the user's interpreter."""

    version: Annotated[str | None, fact("torch.__version__", PROBE)] = None
    cuda: Annotated[str | None, fact("torch.version.cuda; empty without CUDA", PROBE)] = None
    cudnn: Annotated[str | None, fact("version of the cuDNN that torch loads; empty without", PROBE)] = None
    nccl: Annotated[str | None, fact("version of NCCL in torch; empty without", PROBE)] = None
    arch_list: Annotated[tuple[str, ...] | None, fact("torch.cuda.get_arch_list()", PROBE)] = None
    cuda_available: Annotated[bool | None, fact("torch.cuda.is_available()", PROBE)] = None
    cuda_error: Annotated[str | None, fact("why CUDA cannot be used; empty when it can or is not built in", PROBE)] = None
    devices: Annotated[int | None, fact("GPUs that torch sees", PROBE)] = None
    threads: Annotated[int | None, fact("torch.get_num_threads()", PROBE)] = None
    interop_threads: Annotated[int | None, fact("torch.get_num_interop_threads()", PROBE)] = None
    cpu_capability: Annotated[str | None, fact("instruction set that torch's CPU kernels use", PROBE)] = None
    blas: Annotated[str | None, fact("matrix library of the build: mkl, open, …", PROBE)] = None
    numpy_blas: Annotated[str | None, fact("matrix library of NumPy; empty without NumPy", PROBE)] = None
    gil_enabled: Annotated[bool | None, fact("whether the GIL is on once torch is imported", PROBE)] = None
    error: Annotated[str, fact("why torch cannot be imported; empty when it can", PROBE)] = ""
    broken: Annotated[tuple[Broken, ...] | None, fact("installed extensions that cannot be imported", PROBE_EXTENSIONS)] = None


class Install(Record):
    """One PyTorch that an interpreter of this machine imports."""

    prefix: Annotated[str, fact("folder of the environment", "/*/pyvenv.cfg", CONDA)]
    site_packages: Annotated[str, fact("folder that holds torch", VERSION)]
    manager: Annotated[str, fact("who made the environment: venv, conda, pyenv, uv, system, user or other", "/*/pyvenv.cfg", CONDA)]
    python_version: Annotated[str | None, fact("version of the interpreter", "/*/pyvenv.cfg", "/*/bin/python3")] = None
    active: Annotated[bool, fact("what the shell that started sysperf would import", "/proc/self/environ", "PATH")] = False
    interpreter: Annotated[str | None, fact("the program to start", "/*/bin/python3")] = None
    free_threaded: Annotated[bool | None, fact("an interpreter built to run without the GIL", "/*/bin/python3")] = None
    py_debug: Annotated[bool | None, fact("an interpreter built with Py_DEBUG", "/*/_sysconfigdata_d*_linux_*.py")] = None
    headers: Annotated[bool | None, fact("Python.h is there, which compiled kernels need", "/*/include/python*/Python.h")] = None
    compiler: Annotated[bool | None, fact("a C++ compiler is on the PATH or in the environment", "PATH", CONDA)] = None
    version: Annotated[str | None, fact("version of torch, with its local part", VERSION)] = None
    release: Annotated[str | None, fact("the same without its local part", VERSION)] = None
    local: Annotated[str | None, fact("local part of the version, such as cpu or cu130; empty without", VERSION)] = None
    cuda: Annotated[str | None, fact("CUDA that it was built with; empty without", VERSION)] = None
    hip: Annotated[str | None, fact("ROCm that it was built with; empty without", VERSION)] = None
    xpu: Annotated[str | None, fact("Intel GPU runtime that it was built with; empty without", VERSION)] = None
    debug: Annotated[bool | None, fact("a debug build of torch", VERSION)] = None
    official: Annotated[bool | None, fact("a release of the PyTorch project; unknown for rebuilds that look alike", VERSION, CONDA)] = None
    editable: Annotated[bool | None, fact("installed from a source folder", SITES)] = None
    installer: Annotated[str | None, fact("what installed torch: pip, uv, conda, …; empty when nothing says", INSTALLER, CONDA)] = None
    conda_channel: Annotated[
        str | None, fact("conda channel of torch; empty when conda did not install it", "/*/conda-meta/history", CONDA)
    ] = None
    pin_mismatches: Annotated[tuple[Pin, ...] | None, fact("libraries that torch pins and that differ or are absent", METADATA)] = None
    cudnn: Annotated[str | None, fact("version of cuDNN in the environment; empty without CUDA", SITES, CONDA, PROBE)] = None
    nccl: Annotated[str | None, fact("version of NCCL in the environment; empty without CUDA", SITES, CONDA, PROBE)] = None
    cublas: Annotated[str | None, fact("version of cuBLAS in the environment; empty without CUDA", SITES, CONDA)] = None
    triton: Annotated[str | None, fact("version of triton; empty when it is absent", SITES, CONDA)] = None
    tritons: Annotated[tuple[str, ...] | None, fact("installed packages that bring the folder triton", SITES)] = None
    cuda_majors: Annotated[tuple[str, ...] | None, fact("CUDA majors of the nvidia-*-cuNN packages in the environment", SITES)] = None
    companions: Annotated[tuple[Companion, ...] | None, fact("packages that are built for one torch", SITES)] = None
    extensions: Annotated[tuple[Package, ...] | None, fact("packages with compiled kernels for torch", SITES)] = None
    second_amdsmi: Annotated[
        bool | None, fact("amdsmi is there with a library of its own, beside the one that PyTorch for ROCm brings", SITES)
    ] = None
    product_targets: Annotated[
        tuple[str, ...] | None,
        fact("AMD's targets for which its rocBLAS has matrix products; empty for builds that are not for ROCm", ROCBLAS),
    ] = None
    jit_extensions: Annotated[bool | None, fact("extensions were compiled on this machine by torch", "/*/.cache/torch_extensions")] = None
    arch_list: Annotated[
        tuple[str, ...] | None, fact("GPU code in the build, as torch names it: sm_80, compute_120, gfx942", GPU_CODE, VERSION, PROBE)
    ] = None
    arch_source: Annotated[
        str | None, fact("where arch_list is from: probe, library, or version for a build without GPU code", GPU_CODE, VERSION, PROBE)
    ] = None
    wheel: Annotated[
        str | None, fact("release, CUDA and machine of an official build, such as 2.8 12.8 x86_64; empty for others", VERSION, CONDA)
    ] = None
    sass: Annotated[tuple[str, ...] | None, fact("compute capabilities with native code", GPU_CODE, VERSION, PROBE)] = None
    ptx: Annotated[
        tuple[str, ...] | None, fact("compute capabilities with code that the driver compiles at start", GPU_CODE, VERSION, PROBE)
    ] = None
    foreign_rocm_runtime: Annotated[
        bool | None,
        fact(
            "in WSL: a build for ROCm brings another runtime than the system's, by size",
            TORCH_LIB,
            "owner:/opt/rocm/lib/libhsa-runtime64.so.1",
        ),
    ] = None
    openmp_runtime: Annotated[str | None, fact("OpenMP runtime of torch: libgomp, libiomp5 or libomp", TORCH_LIB, CONDA)] = None
    other_openmp: Annotated[
        tuple[str, ...] | None, fact("OpenMP runtimes that other packages of the environment bring", "/*-packages/*.libs", CONDA)
    ] = None
    blas: Annotated[str | None, fact("matrix library of torch on CPUs: mkl, openblas, …", TORCH_LIB, CONDA, PROBE)] = None
    numpy: Annotated[str | None, fact("version of NumPy; empty when it is absent", SITES)] = None
    numpy_installer: Annotated[str | None, fact("what installed NumPy; empty when nothing says", INSTALLER, CONDA)] = None
    numpy_blas: Annotated[
        str | None,
        fact("matrix library of NumPy: openblas, mkl, reference, …", "/*/numpy.libs", CONDA, "/etc/alternatives/libblas.so.3*", PROBE),
    ] = None
    duplicates: Annotated[tuple[Copy, ...] | None, fact("further copies of torch that the same interpreter can import", VERSION)] = None
    stale_dists: Annotated[tuple[str, ...] | None, fact("leftovers of other torch versions in the same folder", SITES)] = None
    ipex: Annotated[str | None, fact("version of intel-extension-for-pytorch; empty when it is absent", SITES)] = None
    torchvision: Annotated[str | None, fact("version of torchvision; empty when it is absent", SITES)] = None
    pillow: Annotated[str | None, fact("version of Pillow; empty when it is absent", SITES)] = None
    image_decoders: Annotated[tuple[str, ...] | None, fact("faster image decoders than Pillow that are installed", SITES)] = None
    prefix_fstype: Annotated[str | None, fact("file system that holds the environment", "/proc/self/mountinfo")] = None
    project: Annotated[
        str | None, fact("folder of the project that the environment belongs to; empty when it lies in none", "/*/pyproject.toml")
    ] = None
    lock_file: Annotated[str | None, fact("lock file of the project; empty without", *(f"/*/{name}" for name in LOCKS))] = None
    requirements_pinned: Annotated[bool | None, fact("requirements.txt pins torch exactly", "/*/requirements.txt")] = None
    deep: Annotated[Deep | None, fact("what torch says of itself; only with --deep", PROBE)] = None


part = functools.partial(Install, prefix="", site_packages="", manager="")
"""Make what one reader says of an installation. Which one it is, `surroundings` says."""

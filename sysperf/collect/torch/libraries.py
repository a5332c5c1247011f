"""The libraries that PyTorch loads: CUDA, ROCm's runtime, OpenMP, BLAS.

Reads   */site-packages/torch/lib  */site-packages/*.libs  /etc/alternatives/libblas.so.3-*
        /opt/rocm/lib/libhsa-runtime64.so.1, its size, in Windows Subsystem for Linux
        {torch,_rocm_sdk_libraries*,/opt/rocm}/lib/rocblas/library
"""

from sysperf.collect.torch.build import OFFICIAL
from sysperf.collect.torch.records import Deep, Install, part
from sysperf.collect.torch.site_packages import Site, conda_blas, openmp_runtimes
from sysperf.host import Host
from sysperf.startup import lazy

TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton-xpu", "triton-xpu")
"""Packages that bring the one folder `triton`."""
WSL = "/dev/dxg"
ROCM_RUNTIME = "/opt/rocm/lib/libhsa-runtime64.so.1"
ROCBLAS = "lib/rocblas/library"
SYSTEMS_ROCM = "/opt/rocm"
_PRODUCTS = lazy(r"TensileLibrary_(?:lazy_)?(gfx[0-9a-f]{3,4})\.(?:dat|yaml)")
_CUDA_MAJOR = lazy(r"-cu([0-9]{2})$")
_DEBIAN_BLAS = (("openblas", "openblas"), ("blis", "blis"), ("atlas", "atlas"), ("mkl", "mkl"), ("/blas/", "reference"))


def libraries(site: Site, names: tuple[str, ...] | None, version_fields: dict[str, str], answers: Deep | None) -> Install:
    """Versions and kinds of the libraries that the build loads."""
    shipped = None if names is None else openmp_runtimes(names)
    return part(
        cudnn=_cuda_library(site, version_fields, "cudnn", answers.cudnn if answers else None),
        nccl=_cuda_library(site, version_fields, "nccl", answers.nccl if answers else None),
        cublas=_cuda_library(site, version_fields, "cublas", None),
        triton=site.version_of("triton", "pytorch-triton", "triton-rocm"),
        tritons=tuple(name for name in TRITONS if site.dist(name)) if site.readable else None,
        cuda_majors=_cuda_majors(site),
        openmp_runtime=_openmp_runtime(site, shipped),
        other_openmp=_other_openmp(site),
        blas=(answers.blas if answers else None) or _blas(site, names, version_fields),
        numpy_blas=_numpy_blas(site) or (answers.numpy_blas if answers else None),
    )


def foreign_rocm_runtime(host: Host, folder: str, hip: str | None) -> bool | None:
    """Whether a build for ROCm brings another runtime than the system has; told by size, and asked in WSL only.

    Before 7.2 only the runtime of ROCm's packages for WSL reaches the GPU of Windows. AMD's cure copies it over that of the build.
    """
    if not hip or not host.exists(WSL):
        return None if hip is None else False
    names = host.names(folder)
    own = None if names is None else next((name for name in names if name.startswith("libhsa-runtime64.so")), "")
    if not own:
        return None if own is None else False
    sizes = [(host.owner(path) or {}).get("size_bytes") for path in (f"{folder}/{own}", ROCM_RUNTIME)]
    return None if None in sizes else sizes[0] != sizes[1]


def product_targets(site: Site, root: str, hip: str | None) -> tuple[str, ...] | None:
    """AMD's targets for which rocBLAS has products: the build's own, that of AMD's packages beside it, else the system's.

    None where no file says: older releases have one file for all targets.
    """
    if not hip:
        return None if hip is None else ()
    packages = [f"{site.folder}/{name}" for name in site.names or () if name.startswith("_rocm_sdk_libraries")]
    own = [folder for folder in (root, *packages) if site.host.exists(f"{folder}/{ROCBLAS}")]
    found: list[str] = []
    for folder in own or [SYSTEMS_ROCM] * bool(site.host.exists(f"{SYSTEMS_ROCM}/{ROCBLAS}")):
        found += [match[1] for name in site.host.names(f"{folder}/{ROCBLAS}") or () if (match := _PRODUCTS.fullmatch(name))]
    return tuple(dict.fromkeys(found)) or None


def _cuda_library(site: Site, version_fields: dict[str, str], name: str, asked: str | None) -> str | None:
    """The version of a library of CUDA, from its wheel or conda package. One that is linked into torch has no name to tell.

    Wheels for two majors of CUDA may lie side by side: torch loads those of its own.
    """
    if asked is not None:
        return asked
    cuda = version_fields.get("cuda")
    if cuda == "":
        return ""
    own = (f"nvidia-{name}-cu{(cuda or '').partition('.')[0]}", f"nvidia-{name}")
    wheels = [*own, *(dist for dist in site.folders if dist.startswith(f"nvidia-{name}-cu"))]
    found = (site.dist(dist) for dist in wheels)
    packages = (site.conda.get(package, ("", ""))[0] for package in (name, f"lib{name}"))
    return next((version for version in (*found, *packages) if version), None)


def _cuda_majors(site: Site) -> tuple[str, ...] | None:
    majors = {match[1] for name in site.folders if name.startswith("nvidia-") and (match := _CUDA_MAJOR.search(name))}
    return tuple(sorted(majors)) if site.readable else None


def _openmp_runtime(site: Site, shipped: tuple[str, ...] | None) -> str | None:
    """The runtime that torch loads: its own, else the one that conda chose for all of the environment."""
    if shipped:
        return shipped[0]
    build = site.conda.get("_openmp_mutex", ("", ""))[1]
    return "libomp" if "llvm" in build else "libgomp" if "gnu" in build else "libiomp5" if "intel-openmp" in site.conda else None


def _other_openmp(site: Site) -> tuple[str, ...] | None:
    """Runtimes that come beside torch's own: in the library folders of wheels, and as packages of conda or Intel."""
    if not site.readable:
        return None
    runtimes = [runtime for folder in site.library_folders() for runtime in openmp_runtimes(site.host.names(folder) or ())]
    for package, runtime in (("intel-openmp", "libiomp5"), ("llvm-openmp", "libomp")):
        runtimes += [runtime] if package in site.conda or package in site.folders else []
    return tuple(dict.fromkeys(runtimes))


def _blas(site: Site, names: tuple[str, ...] | None, version_fields: dict[str, str]) -> str | None:
    """The matrix library: official x86 builds hold MKL inside libtorch_cpu.so, others show theirs by file or package."""
    for start, blas in (("libmkl", "mkl"), ("libnvpl_blas", "nvpl"), ("libopenblas", "openblas")):
        if any(name.startswith(start) for name in names or ()):
            return blas
    if "pytorch" in site.conda:
        return conda_blas(site.conda)
    local = version_fields.get("__version__", "").partition("+")[2]
    return "mkl" if OFFICIAL.fullmatch(local) and site.machine == "x86_64" else None


def _numpy_blas(site: Site) -> str | None:
    if "numpy" in site.conda:
        return conda_blas(site.conda)
    if "numpy.libs" in (site.names or ()):
        names = site.host.names(f"{site.folder}/numpy.libs") or ()
        return "openblas" if any("openblas" in name for name in names) else None
    return _debian_blas(site) if site.folder == "/usr/lib/python3/dist-packages" and site.dist("numpy") else None


def _debian_blas(site: Site) -> str | None:
    """What Debian's alternatives choose as libblas.so.3."""
    target = site.host.link(f"/etc/alternatives/libblas.so.3-{site.machine}-linux-gnu") or ""
    return next((blas for word, blas in _DEBIAN_BLAS if word in target), None)

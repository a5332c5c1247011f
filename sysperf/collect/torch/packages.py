"""The packages beside PyTorch: those built for one version of it, extensions, image decoders.

Reads   */site-packages/*.dist-info/{METADATA,INSTALLER,direct_url.json}  */site-packages/torchvision.libs  */site-packages/amdsmi
Format  https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from sysperf.collect.torch.records import Companion, Install, Package, part
from sysperf.collect.torch.site_packages import Site
from sysperf.model.requirement import fits
from sysperf.startup import lazy

COMPANIONS = (
    "torchvision", "torchaudio", "torchtext", "torchcodec", "torchdata", "torchao", "xformers", "vllm", "sglang", "flash-attn",
    "torch-scatter", "torch-sparse", "torch-cluster", "pyg-lib", "torchrec", "fbgemm-gpu", "torch-tensorrt",
)  # fmt: skip
EXTENSIONS = (
    "flash-attn", "xformers", "apex", "transformer-engine", "deepspeed", "bitsandbytes", "vllm", "torchao", "causal-conv1d",
    "mamba-ssm", "flashinfer-python", "torch-scatter", "torch-sparse",
)  # fmt: skip
IMAGE_DECODERS = (
    "pillow-simd",
    "torchcodec",
    "nvidia-dali-cuda110",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
    "pyturbojpeg",
    "kornia-rs",
)
RUNTIMES = ("rocm", "xpu", "cpu")
CUDA_RUNTIME = "libcudart"
TOOL_OF_AMD, LIBRARY_OF_AMD = "amdsmi", "_rocm_sdk_core"
_CUDA_TAG = lazy(r"cu[0-9]{2,3}")
_RELEASE = lazy(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}(?:\.post[0-9]{1,3})?")
_BUILT_FOR = lazy(r"torch([0-9]\.[0-9]{1,2})|(?:^|\.)pt([0-9])([0-9]{1,2})cu")


def packages(site: Site, version: str | None) -> Install:
    """Versions of the packages that training uses beside torch."""
    there = site.readable
    return part(
        companions=tuple(_companion(site, name, version) for name in COMPANIONS if name in site.folders) if there else None,
        extensions=tuple(Package(name, site.dist(name)) for name in EXTENSIONS if name in site.folders) if there else None,
        numpy=site.version_of("numpy"),
        numpy_installer=site.installer("numpy", "numpy"),
        ipex=site.version_of("intel-extension-for-pytorch"),
        torchvision=site.version_of("torchvision"),
        pillow=site.version_of("pillow", "pillow-simd"),
        image_decoders=tuple(name for name in IMAGE_DECODERS if name in site.folders) if there else None,
        second_amdsmi=_second_amdsmi(site),
    )


def _second_amdsmi(site: Site) -> bool | None:
    """Whether AMD's tool lies here with a library of its own, beside the one that PyTorch's packages bring."""
    if not {TOOL_OF_AMD, LIBRARY_OF_AMD} <= set(site.names or ()):
        return False if site.readable else None
    return site.host.exists(f"{site.folder}/{TOOL_OF_AMD}/libamd_smi.so")


def _companion(site: Site, name: str, torch_version: str | None) -> Companion:
    """A package built for one torch. Builds from source repositories say which in their own version, others require it."""
    version = site.dist(name)
    built_for = _BUILT_FOR.search(version.partition("+")[2])
    if built_for:
        wants = f"=={built_for[1] or f'{built_for[2]}.{built_for[3]}'}.*"
    else:
        wants = next((requirement.spec for requirement in site.requirements(name) or () if requirement.name == "torch"), "")
    return Companion(name, version, wants, None if torch_version is None else fits(torch_version, wants), _runtime(site, name, version))


def _runtime(site: Site, name: str, version: str) -> str:
    """Name whose GPUs a package is built for, by its version, else by a library that it brings.

    What PyPI has of torchaudio for x86 needs CUDA's libraries; builds of PyTorch's other indexes say in their version what they are for.
    """
    local = version.partition("+")[2]
    if local:
        return "cuda" if _CUDA_TAG.search(local) else next((runtime for runtime in RUNTIMES if runtime in local), "")
    if name == "torchvision":
        brought = site.host.names(f"{site.folder}/torchvision.libs") if "torchvision.libs" in (site.names or ()) else ()
        return "cuda" if any(library.startswith(CUDA_RUNTIME) for library in brought or ()) else ""
    of_pypi = name == "torchaudio" and site.machine == "x86_64" and _RELEASE.fullmatch(version)
    return "cuda" if of_pypi and site.from_index(name) and site.installer(name, name) in ("pip", "uv") else ""

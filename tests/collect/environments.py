"""Python environments as files, for the tests of the areas `python` and `torch`."""

from __future__ import annotations

VERSION_PY = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = {debug}
cuda: Optional[str] = {cuda}
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = {hip}
rocm: Optional[str] = None
xpu: Optional[str] = None
"""

CU130_REQUIRES = (
    "filelock",
    "setuptools<82",
    'cuda-toolkit[cublas,cudart,nvtx]==13.0.2; platform_system == "Linux"',
    'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"',
    'nvidia-only-on-arm==1.0; platform_system == "Linux" and platform_machine == "aarch64"',
    'triton==3.7.1; platform_system == "Linux"',
    'optree>=0.13.0; extra == "optree"',
)  # fmt: skip
TOOLKIT_REQUIRES = (
    "nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'cublas'",
    "nvidia-cuda-runtime==13.0.96.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'cudart'",
    "nvidia-npp==13.0.1.2.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'npp'",
)
CU130_DISTS = {
    "cuda_toolkit": "13.0.2",
    "cuda_bindings": "13.0.3",
    "nvidia_cublas": "13.1.0.3",
    "nvidia_cuda_runtime": "13.0.96",
    "nvidia_cudnn_cu13": "9.20.0.48",
    "nvidia_nccl_cu13": "2.29.7",
    "triton": "3.7.1",
    "numpy": "2.4.6",
}

Files = dict[str, str | bytes | OSError]


def python_at(prefix: str, version: str = "3.11.7", home: str = "/usr/bin") -> Files:
    """A venv without packages."""
    return {
        f"{prefix}/pyvenv.cfg": f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n",
        f"{prefix}/bin/python3": "",
        f"{site_of(prefix, version)}/pip/__init__.py": "",
    }


def site_of(prefix: str, version: str = "3.11.7") -> str:
    """Its site-packages."""
    return f"{prefix}/lib/python{version.rpartition('.')[0]}/site-packages"


def conda_at(prefix: str, *packages: str, python: str = "3.11.9", history: str = "") -> tuple[Files, dict[str, str]]:
    """A conda environment with these packages (``numpy-2.0.0-py311_0``), as files and links."""
    minor = python.rpartition(".")[0]
    files: Files = {f"{prefix}/conda-meta/{package}.json": "{}" for package in (f"python-{python}-h955ad1f_0", *packages)}
    files[f"{prefix}/conda-meta/history"] = history
    files[f"{prefix}/bin/python{minor}"] = ""
    files[f"{prefix}/lib/python{minor}/site-packages/pip/__init__.py"] = ""
    return files, {f"{prefix}/bin/python3": f"python{minor}"}


def dist(site: str, name: str, version: str, requires: tuple[str, ...] = (), installer: str = "pip") -> Files:
    """The metadata of an installed distribution."""
    folder = f"{site}/{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    return {f"{folder}/METADATA": "\n".join(lines) + "\n\nWords about it\n", f"{folder}/INSTALLER": f"{installer}\n"}


def torch_in(site: str, version: str = "2.13.0+cpu", cuda: str = "", hip: str = "", requires: tuple[str, ...] = (), **more: str) -> Files:
    """An installed torch."""
    version_file = VERSION_PY.format(
        version=version, debug=more.get("debug", "False"), cuda=f"'{cuda}'" if cuda else "None", hip=f"'{hip}'" if hip else "None"
    )
    return {
        f"{site}/torch/version.py": version_file,
        f"{site}/torch/__init__.py": "",
        f"{site}/torch/lib/libtorch_cpu.so": "",
        f"{site}/torch/lib/libgomp.so.1": "",
        **dist(site, "torch", more.get("dist_version", version), requires, more.get("installer", "pip")),
    }


def cu130_in(site: str, **instead: str) -> Files:
    """A torch of PyPI with the libraries that it pins; `instead` changes a version, "" removes the library."""
    files = torch_in(site, "2.13.0+cu130", cuda="13.0", requires=CU130_REQUIRES, dist_version="2.13.0")
    for name, version in {**CU130_DISTS, **instead}.items():
        if version:
            files.update(dist(site, name, version, TOOLKIT_REQUIRES if name == "cuda_toolkit" else ()))
    return files

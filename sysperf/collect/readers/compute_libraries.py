"""Libraries of drivers in the folders of the system: which are there, and of which version. `driver` and `gpu` ask.

Reads   /usr/lib*/{libcuda,libnvidia-ml,libze_loader,libze_intel_gpu}.so.1  /opt/rocm*/lib/librocdxg.so
        /var/lib/dpkg/info/hsa-runtime-rocr4wsl-amdgpu.list  /var/lib/rpm  /usr/lib/sysimage/rpm
"""

import re

from sysperf.host import Host
from sysperf.startup import lazy

LEVEL_ZERO_GPU = "libze_intel_gpu.so.1"
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",  # WSL 2: mounted from Windows
    "/usr/local/nvidia/lib64",  # GKE and other container platforms
    "/run/opengl-driver/lib",  # NixOS
    "/.singularity.d/libs",  # Apptainer and Singularity with --nv
)
PACKAGES = "/var/lib/dpkg/info"
WSL_RUNTIME = f"{PACKAGES}/hsa-runtime-rocr4wsl-amdgpu.list"
"""What AMD's packages of ROCm before 7.2 have for WSL, of some releases."""
RPMS = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
SONAME = lazy(r"\.so\.([0-9]{2,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)$")
"""The version of NVIDIA's driver at the end of a library's name."""
LEVEL_ZERO = "libze_loader.so.1"
_LOADER = lazy(r"\.so\.(1\.[0-9]{1,3}(?:\.[0-9]{1,3})?)$")
_RUNTIME = lazy(r"\.so\.1\.[0-9]{1,3}\.([0-9]{4,6})(?:\.[0-9]{1,5})?$")


def installed(host: Host, library: str) -> bool | None:
    """Whether a library is in a folder of the system."""
    answers = [host.exists(f"{folder}/{library}") for folder in (*LIBRARY_FOLDERS, "/usr/local/lib", "/usr/local/lib64")]
    return True if any(answers) else None if None in answers else False


def library_version(host: Host, name: str) -> str | None:
    """The driver version in the name of the file that the loader's name leads to."""
    known_absent = True
    for folder in LIBRARY_FOLDERS:
        path = f"{folder}/{name}"
        exists = host.exists(path)
        if exists:
            return _soname_version(host, path)
        known_absent = known_absent and exists is False
    return "" if known_absent else None


def _soname_version(host: Host, path: str) -> str | None:
    for _ in range(4):  # Debian leads through /etc/alternatives
        target = host.link(path)
        if target is None:
            return None
        match = SONAME.search(target)
        if match:
            return match[1]
        path = target if target.startswith("/") else f"{path.rpartition('/')[0]}/{target}"
    return None


def level_zero_version(host: Host) -> str | None:
    """Return the version of Intel's loader by its file name: 1.8.0 of ``libze_loader.so.1.8.0``, which is of release 1.8.12."""
    return _by_file_name(host, LEVEL_ZERO, _LOADER)


def compute_runtime(host: Host) -> int | None:
    """Return the build of Intel's compute driver: 28717 of ``libze_intel_gpu.so.1.3.28717.12``."""
    build = _by_file_name(host, LEVEL_ZERO_GPU, _RUNTIME)
    return int(build) if build else None


def _by_file_name(host: Host, library: str, version: re.Pattern[str]) -> str | None:
    """What the name of the file has that the first folder's link leads to."""
    path = next((f"{folder}/{library}" for folder in LIBRARY_FOLDERS if host.exists(f"{folder}/{library}")), None)
    match = version.search(host.link(path) or "") if path else None
    return match[1] if match else None


def rocdxg(host: Host) -> bool | None:
    """Look for its development name and that of a release, beside ROCm and in the folders of the system."""
    names = host.names("/opt") if host.exists("/opt") else ()
    folders = [f"/opt/{name}/lib" for name in names or () if name.startswith("rocm")]
    answers = [
        host.exists(f"{folder}/librocdxg.so{end}") for folder in (*folders, *LIBRARY_FOLDERS, "/usr/local/lib") for end in ("", ".1")
    ]
    return True if any(answers) else None if names is None or None in answers else False


def rocr4wsl(host: Host) -> bool | None:
    """Look for the package of ROCm's runtime for WSL, which AMD has for Ubuntu alone; None where neither kind of packages is kept."""
    return host.exists(WSL_RUNTIME) if host.exists(PACKAGES) else False if any(host.exists(folder) for folder in RPMS) else None

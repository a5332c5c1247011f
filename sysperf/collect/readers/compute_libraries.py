"""Libraries of drivers in the folders of the system: which are there, and of which version. `driver` and `gpu` ask.

Reads   /usr/lib*/{libze_loader,libze_intel_gpu}.so.1  /opt/rocm*/lib/librocdxg.so
"""

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
_RUNTIME = lazy(r"\.so\.1\.[0-9]{1,3}\.([0-9]{4,6})(?:\.[0-9]{1,5})?$")


def installed(host: Host, library: str) -> bool | None:
    """Whether a library is in a folder of the system."""
    answers = [host.exists(f"{folder}/{library}") for folder in (*LIBRARY_FOLDERS, "/usr/local/lib", "/usr/local/lib64")]
    return True if any(answers) else None if None in answers else False


def compute_runtime(host: Host) -> int | None:
    """Return the build of Intel's compute driver: 28717 of ``libze_intel_gpu.so.1.3.28717.12``."""
    path = next((f"{folder}/{LEVEL_ZERO_GPU}" for folder in LIBRARY_FOLDERS if host.exists(f"{folder}/{LEVEL_ZERO_GPU}")), None)
    match = _RUNTIME.search(host.link(path) or "") if path else None
    return int(match[1]) if match else None


def rocdxg(host: Host) -> bool | None:
    """Look for its development name and that of a release, beside ROCm and in the folders of the system."""
    names = host.names("/opt") if host.exists("/opt") else ()
    folders = [f"/opt/{name}/lib" for name in names or () if name.startswith("rocm")]
    answers = [
        host.exists(f"{folder}/librocdxg.so{end}") for folder in (*folders, *LIBRARY_FOLDERS, "/usr/local/lib") for end in ("", ".1")
    ]
    return True if any(answers) else None if names is None or None in answers else False

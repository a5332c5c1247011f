"""driver: kernel modules and libraries of GPUs, their versions, device nodes, daemons and toolkits.

Reads   /sys/module/nvidia/version  /proc/driver/nvidia/{version,params}  /proc/devices  /dev
        /run/nvidia-persistenced  /run/nvidia-fabricmanager  /usr/{bin,sbin}/nv-fabricmanager
        /usr/bin/nvidia-{container-runtime,container-cli,ctk}
        /dev/{kfd,dri}  and what `amdgpu_module`, `compute_libraries`, `jetson` and `toolkits` read
        NVML's System calls
NVIDIA  https://docs.nvidia.com/deploy/driver-persistence/
"""

from __future__ import annotations

import os
from typing import Annotated

from sysperf.collect.readers import amdgpu_module, jetson
from sysperf.collect.readers.compute_libraries import (
    LEVEL_ZERO,
    LEVEL_ZERO_GPU,
    WSL_RUNTIME,
    compute_runtime,
    installed,
    level_zero_version,
    library_version,
    rocdxg,
    rocr4wsl,
)
from sysperf.collect.readers.toolkits import ROCM, Toolkit, rocm_version, toolkits
from sysperf.host import Host
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.startup import lazy

MODULE = "/sys/module/nvidia"
MODULE_VERSION = f"{MODULE}/version"
PROC_VERSION = "/proc/driver/nvidia/version"
PARAMS = "/proc/driver/nvidia/params"
CONTROL_NODE = "/dev/nvidiactl"
DEVICES = "/proc/devices"
WSL = "/dev/dxg"
NOUVEAU = "/sys/bus/pci/drivers/nouveau"
PEERMEM = ("/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem")
PERSISTENCE = ("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/nvidia-persistenced.pid")
FABRIC_MANAGER = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
FABRIC_PROGRAM = ("/usr/bin/nv-fabricmanager", "/usr/sbin/nv-fabricmanager")
ROCM_LIBRARIES = "/opt/rocm*/lib"
KFD = "/dev/kfd"
RENDER = "/dev/dri"
MPS = "/tmp/nvidia-mps/nvidia-cuda-mps-control.pid"  # noqa: S108 - where NVIDIA's daemon keeps it, read only
MODPROBE = "/usr/bin/nvidia-modprobe"
CONTAINER_TOOLKIT = ("/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-cli", "/usr/bin/nvidia-ctk")
UVM = "/dev/nvidia-uvm"
UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
POWER_UNIT = "nvidia-powerd.service"
SERVICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
"""Folders that systemd has while a service runs, of either version of control groups."""
POWER_DAEMON = tuple(f"{folder}/{POWER_UNIT}" for folder in (*SERVICES, *UNITS))
NVML = "nvml:SystemGetDriverVersion()"
"""The first call: it fails with the reason why NVML as a whole does not answer."""
NO_DRIVER = "no NVIDIA driver is loaded"

_VERSION = lazy(r"[0-9]{2,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?")
_MAX_NODES = 512


class Driver(Record):
    """What of the GPUs' drivers is there, and where it was found."""

    nvidia_version: Annotated[
        str | None,
        fact(
            "version of the loaded kernel module; '' when it is known that none is loaded",
            MODULE_VERSION,
            PROC_VERSION,
            NVML,
        ),
    ]
    open_module: Annotated[bool | None, fact("whether the loaded module is the open one", PROC_VERSION)] = None
    nvml_problem: Annotated[str | None, fact("why NVML does not answer; '' when it does", NVML)] = None
    nvml_version: Annotated[str | None, fact("version of the NVML library", "nvml:SystemGetNVMLVersion", NVML)] = None
    cuda_driver_version: Annotated[
        str | None, fact("newest CUDA that this driver runs, such as 13.0", "nvml:SystemGetCudaDriverVersion_v2", NVML)
    ] = None
    library_version: Annotated[
        str | None,
        fact("driver version of libcuda.so.1 by its file name; '' when it is not installed", "/usr/lib*/libcuda.so.1", "/*/libcuda.so.1"),
    ] = None
    nvml_library_version: Annotated[
        str | None,
        fact(
            "driver version of libnvidia-ml.so.1 by its file name; '' when it is not installed",
            "/usr/lib*/libnvidia-ml.so.1",
            "/*/libnvidia-ml.so.1",
        ),
    ] = None
    device_nodes: Annotated[tuple[str, ...] | None, fact("names of NVIDIA's device nodes", "/dev")] = None
    uvm: Annotated[bool | None, fact("whether there is a device node of unified memory, which CUDA needs", "/dev")] = None
    uvm_access: Annotated[bool | None, fact("whether this process may open the node of unified memory", f"access:{UVM}", UVM)] = None
    uvm_problem: Annotated[
        str | None, fact("what opening the node of unified memory says, asked under --deep; '' where it opens", "run:uvm-open", UVM)
    ] = None
    modprobe: Annotated[bool | None, fact("whether nvidia-modprobe is there, with which CUDA makes missing device nodes", MODPROBE)] = None
    nouveau: Annotated[bool | None, fact("whether the nouveau driver holds a GPU", NOUVEAU)] = None
    persistence_daemon: Annotated[bool | None, fact("whether nvidia-persistenced runs", *PERSISTENCE)] = None
    power_daemon: Annotated[
        str | None,
        fact(
            "nvidia-powerd, which lets the GPU of a laptop draw more than its base: runs, stopped, or '' where systemd has no unit of it",
            *POWER_DAEMON,
        ),
    ] = None
    fabric_manager: Annotated[bool | None, fact("whether the fabric manager runs", FABRIC_MANAGER)] = None
    fabric_manager_version: Annotated[
        str | None,
        fact(
            "version of the installed fabric manager, asked under --deep; '' where none is installed",
            "run:fabric-manager-version",
            *FABRIC_PROGRAM,
        ),
    ] = None
    amdgpu_version: Annotated[
        str | None, fact("version of AMD's own kernel module; '' for the kernel's, or where none is loaded", amdgpu_module.VERSION)
    ] = None
    amdgpu_held_back: Annotated[
        tuple[str, ...] | None,
        fact("parameters of the loaded amdgpu that hold GPUs back, such as dpm=0", *amdgpu_module.PARAMETER_FILES),
    ] = None
    amdgpu_unbuilt: Annotated[
        str | None,
        fact(
            "version of AMD's own module that was not built for the running kernel; '' where it was, or where it is not installed",
            amdgpu_module.DKMS,
        ),
    ] = None
    rocm_version: Annotated[str | None, fact("newest ROCm in /opt; '' where none is installed", ROCM)] = None
    kfd_access: Annotated[bool | None, fact("whether this process may open AMD's compute node", f"access:{KFD}", KFD)] = None
    kfd_problem: Annotated[
        str | None, fact("what opening AMD's compute node says, asked under --deep; '' where it opens", "run:kfd-open", KFD)
    ] = None
    render_access: Annotated[bool | None, fact("whether it may open a node for rendering", "access:/dev/dri/*", RENDER)] = None
    level_zero: Annotated[bool | None, fact("whether Intel's loader libze_loader is installed", f"/usr/lib*/{LEVEL_ZERO}")] = None
    level_zero_version: Annotated[str | None, fact("version of that loader by its file name, such as 1.8.0", f"/usr/lib*/{LEVEL_ZERO}")] = (
        None
    )
    level_zero_gpu: Annotated[
        bool | None, fact("whether Intel's compute driver libze_intel_gpu is installed", "/usr/lib*/libze_intel_gpu.so.1")
    ] = None
    compute_runtime: Annotated[
        int | None,
        fact("build of Intel's compute driver by its file name: 28717 of libze_intel_gpu.so.1.3.28717.12", f"/usr/lib*/{LEVEL_ZERO_GPU}"),
    ] = None
    rocdxg: Annotated[
        bool | None, fact("whether librocdxg is installed, through which ROCm reaches the GPU of Windows", f"{ROCM_LIBRARIES}/librocdxg.so")
    ] = None
    rocr4wsl: Annotated[
        bool | None, fact("whether the runtime for WSL that ROCm before 7.2 has in a package is installed", WSL_RUNTIME)
    ] = None
    mps: Annotated[bool | None, fact("whether the multi-process service runs", MPS)] = None
    peermem: Annotated[bool | None, fact("whether a module lets network adapters reach GPU memory", *PEERMEM)] = None
    profiling_admin_only: Annotated[bool | None, fact("whether GPU performance counters are for administrators only", PARAMS)] = None
    nvlink_disabled: Annotated[bool | None, fact("whether a parameter of NVIDIA's module switches NVLink off", PARAMS)] = None
    container_toolkit: Annotated[bool | None, fact("whether NVIDIA's toolkit for containers is installed", *CONTAINER_TOOLKIT)] = None
    l4t: Annotated[str | None, fact("release of Jetson Linux, as 36.4.7; '' where there is none", jetson.RELEASE)] = None
    tegra: Annotated[bool | None, fact("whether it is a Jetson, whose driver has versions of its own", *jetson.TEGRA)] = None
    nvmap: Annotated[bool | None, fact("whether there is the node through which programs get a Jetson's memory", jetson.MEMORY_NODE)] = None
    nvmap_access: Annotated[bool | None, fact("whether this process may open it", f"access:{jetson.MEMORY_NODE}", jetson.MEMORY_NODE)] = (
        None
    )
    wsl: Annotated[bool | None, fact("whether GPUs are Windows's, reached through /dev/dxg", WSL)] = None
    toolkits: Annotated[tuple[Toolkit, ...] | None, fact("CUDA toolkits of the system", "/usr/local")] = None


def collect(host: Host) -> Driver:
    """Read the driver's own files, then ask NVML when something hints at a driver."""
    nodes = _device_nodes(host)
    proc = host.text(PROC_VERSION, 4096) if host.exists(PROC_VERSION) else None
    wsl = host.exists(WSL)
    problem = nvml_problem(host)
    level_zero_gpu = installed(host, LEVEL_ZERO_GPU)
    return Driver(
        nvidia_version=_module_version(host, proc, wsl, problem),
        open_module=None if proc is None else "Open Kernel Module" in proc,
        nvml_problem=problem,
        nvml_version=_asked(host, problem, "SystemGetNVMLVersion"),
        cuda_driver_version=_cuda_version(host, problem),
        library_version=library_version(host, "libcuda.so.1"),
        nvml_library_version=library_version(host, "libnvidia-ml.so.1"),
        device_nodes=nodes,
        uvm=None if nodes is None else "nvidia-uvm" in nodes,
        uvm_access=(uvm_access := _may_open(host, UVM)),
        uvm_problem=_open_problem(host, UVM, "uvm-open") if uvm_access and host.deep else None,
        modprobe=host.exists(MODPROBE),
        nouveau=_holds_a_device(host, NOUVEAU),
        persistence_daemon=_any_exists(host, PERSISTENCE),
        power_daemon=_power_daemon(host),
        fabric_manager=(fabric_manager := host.exists(FABRIC_MANAGER)),
        fabric_manager_version=_fabric_manager_version(host, fabric_manager),
        amdgpu_version=amdgpu_module.version(host),
        amdgpu_held_back=amdgpu_module.held_back(host),
        amdgpu_unbuilt=amdgpu_module.unbuilt(host),
        rocm_version=rocm_version(host),
        kfd_access=(kfd_access := _may_open(host, KFD)),
        kfd_problem=_open_problem(host, KFD, "kfd-open") if kfd_access and host.deep else None,
        render_access=_render_access(host),
        level_zero=(level_zero := installed(host, LEVEL_ZERO)),
        level_zero_version=level_zero_version(host) if level_zero else None,
        level_zero_gpu=level_zero_gpu,
        compute_runtime=compute_runtime(host) if level_zero_gpu else None,
        rocdxg=rocdxg(host) if wsl else None,
        rocr4wsl=rocr4wsl(host) if wsl else None,
        mps=host.exists(MPS),
        peermem=_any_exists(host, PEERMEM),
        profiling_admin_only=_profiling(parameters := _parameters(host)),
        nvlink_disabled=None if parameters is None else parameters.get("NvLinkDisable", "0") != "0",
        container_toolkit=_any_exists(host, CONTAINER_TOOLKIT),
        l4t=jetson.l4t(host),
        tegra=jetson.is_jetson(host),
        nvmap=host.exists(jetson.MEMORY_NODE),
        nvmap_access=jetson.memory_access(host),
        wsl=wsl,
        toolkits=toolkits(host),
    )


def _fabric_manager_version(host: Host, runs: bool | None) -> str | None:
    """``Fabric Manager version is : 550.54.15``. One of another version than the driver exits: what is installed is asked."""
    if runs is False and _any_exists(host, FABRIC_PROGRAM) is False:
        return ""
    if not host.deep:
        return None
    match = _VERSION.search(host.run("fabric-manager-version") or "")
    return match[0] if match else None


def nvml_problem(host: Host) -> str:
    """Why NVML does not answer, '' when it does. Where it is known that nothing hints at a driver, it is not opened."""
    if not hints_at_nvidia(host):
        host.refuse(NVML, NO_DRIVER)
        return NO_DRIVER
    if host.nvml("SystemGetDriverVersion") is not None:
        return ""
    return neutral(host.sources[-1].error or "no answer", 200).rstrip(".")


def hints_at_nvidia(host: Host) -> bool:
    """Whether anything hints at a driver of NVIDIA's, or cannot be told."""
    hints = [host.exists(PROC_VERSION), _has_control_node(host), host.exists(WSL)]
    return any(hints) or None in hints


def _has_control_node(host: Host) -> bool | None:
    """Whether /dev/nvidiactl belongs to a driver: asked by root where there is none, NVML's library makes the node all the same."""
    there = host.exists(CONTROL_NODE)
    drivers = host.text(DEVICES) if there else None
    return there if drivers is None else "nvidia" in drivers


def _may_open(host: Host, node: str) -> bool | None:
    """None where there is no such node."""
    if not host.exists(node):
        return None
    answer: bool | None = host.call(f"access:{node}", lambda: os.access(node, os.R_OK | os.W_OK), bool)
    return answer


def _open_problem(host: Host, node: str, command: str) -> str | None:
    """Open it in a process of its own: a driver that hangs keeps whoever opens its node."""
    if host.run(command) is not None:
        return ""
    reason = host.sources[-1].error or ""
    if "took too long" in reason:
        return "no answer in 10 seconds"
    return neutral(reason.rpartition(": ")[2], 80) if node in reason else None


def _power_daemon(host: Host) -> str | None:
    """Return None where systemd has no folder of services: nobody knows what runs then."""
    if not any(host.exists(folder) for folder in SERVICES):
        return None
    runs = _any_exists(host, tuple(f"{folder}/{POWER_UNIT}" for folder in SERVICES))
    if runs is not False:
        return "runs" if runs else None
    there = _any_exists(host, tuple(f"{folder}/{POWER_UNIT}" for folder in UNITS))
    return None if there is None else "stopped" if there else ""


def _render_access(host: Host) -> bool | None:
    """One that opens is enough: a batch system keeps those of other jobs closed."""
    names = host.names(RENDER) if host.exists(RENDER) else ()
    answers = [_may_open(host, f"{RENDER}/{name}") for name in (names or ())[:_MAX_NODES] if name.startswith("renderD")]
    return True if any(answers) else None if not answers or None in answers else False


def _asked(host: Host, problem: str, name: str) -> str | None:
    answer = host.nvml(name) if problem == "" else None
    return neutral(answer, 80) if isinstance(answer, str) and answer else None


def _module_version(host: Host, proc: str | None, wsl: bool | None, problem: str) -> str | None:
    loaded = host.exists(MODULE)
    word = (host.word(MODULE_VERSION) or "") if loaded else ""
    for text in (word, *(proc or "").splitlines()[:1], _asked(host, problem, "SystemGetDriverVersion") or ""):
        match = _VERSION.search(text)
        if match:
            return match[0]
    absent = loaded is False and host.exists(PROC_VERSION) is False and wsl is False and problem != ""
    return "" if absent else None


def _cuda_version(host: Host, problem: str) -> str | None:
    """NVML gives 13000 for 13.0."""
    number = host.nvml("SystemGetCudaDriverVersion_v2") if problem == "" else None
    if not isinstance(number, int) or number not in range(1_000, 1_000_000):
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def _device_nodes(host: Host) -> tuple[str, ...] | None:
    names = host.names("/dev")
    if names is None:
        return None
    return tuple(neutral(name, 64) for name in names if name.startswith("nvidia"))[:_MAX_NODES]


def _holds_a_device(host: Host, driver: str) -> bool | None:
    exists = host.exists(driver)
    if not exists:
        return exists
    names = host.names(driver)
    return None if names is None else any(":" in name for name in names)


def _any_exists(host: Host, paths: tuple[str, ...]) -> bool | None:
    answers = [host.exists(path) for path in paths]
    return True if any(answers) else None if None in answers else False


def _parameters(host: Host) -> dict[str, str] | None:
    """What the loaded module was told. One that an older driver does not list, nobody can have set."""
    return host.pairs(PARAMS) if host.exists(PARAMS) else None


def _profiling(parameters: dict[str, str] | None) -> bool | None:
    value = (parameters or {}).get("RmProfilingAdminOnly")
    return value == "1" if value in ("0", "1") else None

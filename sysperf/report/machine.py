"""Which machine a report is about, in a few lines: kernel, CPUs, memory, GPUs, PyTorch installations."""

from __future__ import annotations

from collections.abc import Iterable

from sysperf.collect.machine_facts import MachineFacts
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, size
from sysperf.report.words import count, not_examined, some

TYPE_CHECKING = False  # as typing's: records of areas that nobody read are not imported
if TYPE_CHECKING:
    from sysperf.collect.gpu.records import Device
    from sysperf.collect.torch.records import Install

MAX_INSTALLS = 3


def identity(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(what, which) lines: each names what is known and says where something is not."""
    facts = MachineFacts(snapshot.areas)
    return [
        ("kernel", _kernel(facts)),
        ("CPU", _cpu(facts)),
        ("memory", _memory(facts)),
        ("GPU", _gpus(facts, live=snapshot.root == "/")),
        ("PyTorch", _torch(facts)),
    ]


def described(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The same with the programs that nobody could look at: to have seen none is not to know that there is none."""
    process = MachineFacts(snapshot.areas).process
    if process is None or not process.unreadable:
        return identity(snapshot)
    unseen = f"{process.unreadable} {not_examined(snapshot.root)}"
    return [*identity(snapshot), ("programs", unseen)]


def _unknown(facts: MachineFacts, area: str) -> str:
    problem = facts.problem(area)
    return f"unknown: {neutral(problem, 120)}" if problem else "unknown"


def _text(text: str | None, limit: int = 120) -> str:
    return neutral(text, limit) if text else ""


def _joined(*parts: str, by: str = ", ") -> str:
    return by.join(part for part in parts if part)


def _kernel(facts: MachineFacts) -> str:
    kernel, container = facts.kernel, facts.container
    inside = _joined(_text(container.kind), "container", by=" ") if container and container.inside else ""
    if kernel is None:
        return _joined(_unknown(facts, "kernel"), inside)
    release = _joined(_text(kernel.release), _text(kernel.arch), by=" ")
    virtual = _joined(_hypervisor(kernel.hypervisor), "virtual machine", by=" ") if kernel.virtual else ""
    return _joined(f"Linux {release}" if release else _unknown(facts, "kernel"), "WSL" if kernel.wsl else "", virtual, inside)


def _hypervisor(name: str | None) -> str:
    """Return its name as its makers write it."""
    return {"kvm": "KVM", "vmware": "VMware", "xen": "Xen", "microsoft": "Hyper-V", "oracle": "VirtualBox"}.get(name or "", _text(name))


def _cpu(facts: MachineFacts) -> str:
    cpu, nodes = facts.cpu, facts.numa.nodes_with_cpus if facts.numa else None
    quota = facts.cgroup.cpu_quota if facts.cgroup else None
    near = (count(nodes, "NUMA node") if nodes and nodes > 1 else "", f"quota of {quota:g} CPUs" if quota else "")
    if cpu is None:
        return _joined(*near) or _unknown(facts, "cpu")
    return _joined(
        _text(cpu.model_name, 60),
        count(cpu.packages, "socket") if cpu.packages and cpu.packages > 1 else "",
        count(cpu.cores, "core") if cpu.cores is not None else "",
        count(len(cpu.online), "CPU") if cpu.online else "",
        near[0],
        f"{len(cpu.allowed)} allowed here" if cpu.allowed and cpu.online and len(cpu.allowed) < len(cpu.online) else "",
        near[1],
    ) or _unknown(facts, "cpu")


def _memory(facts: MachineFacts) -> str:
    memory = facts.memory
    total, available = (memory.total_bytes, memory.available_bytes) if memory else (None, None)
    limit = facts.cgroup.memory_limit_bytes if facts.cgroup else None
    return _joined(
        _unknown(facts, "memory") if total is None else size(total),
        "" if available is None else f"{size(available)} available",
        f"limit of {size(limit)}" if limit and limit < (total or limit + 1) else "",
    )


def _gpus(facts: MachineFacts, *, live: bool) -> str:
    devices = facts.gpu.devices if facts.gpu else None
    if devices:
        driver = facts.driver
        versions = (("driver", "nvidia_version"), ("CUDA", "cuda_driver_version"), ("amdgpu", "amdgpu_version"), ("ROCm", "rocm_version"))
        known = [(name, getattr(driver, version)) for name, version in versions if driver and getattr(driver, version)]
        return _joined(_models(devices), *(f"{name} {_text(version, 30)}" for name, version in known))
    none = devices is not None or (facts.pcie is not None and facts.pcie.nvidia_gpus == 0)
    others = some(facts.gpu.others or (), 3) if facts.gpu else ""
    return _on_the_bus(facts, live=live) or _joined("none" if none else _unknown(facts, "gpu"), f"but {others}" if others else "")


_MAKERS = {"10de": "NVIDIA GPU", "1002": "AMD GPU", "8086": "Intel GPU", None: "GPU of an unknown maker"}
"""Other makers' display controllers are the console of a server or of a virtual machine."""


def _on_the_bus(facts: MachineFacts, *, live: bool) -> str:
    """GPUs of which nothing but their place is known, and why; empty when there is none."""
    devices = (facts.pcie.devices if facts.pcie else None) or ()
    gpus = [device for device in devices if device.kind == "gpu" and device.vendor_id in _MAKERS]
    if not gpus:
        nodes = sum(1 for node in (facts.numa.nodes if facts.numa else ()) if node.gpu_memory)
        return f"{count(nodes, 'memory node')} of GPUs; nothing else is known of them" if nodes else ""
    makers = [gpu.vendor_id for gpu in gpus]
    named = (f"{makers.count(maker)} × {name}" for maker, name in _MAKERS.items() if maker in makers)
    unbound = {gpu.driver for gpu in gpus} == {""}
    why = "no driver is bound to them" if unbound else "no driver answers" if live else "nothing else of them was captured"
    return f"{some(named, 3)} on the bus: {why}"


def _models(devices: Iterable[Device]) -> str:
    models: dict[str, int] = {}
    for device in devices:
        total = device.memory_total_bytes
        name = _joined(_text(device.name, 60) or "unknown model", "" if total is None else f"({size(total)})", by=" ")
        models[name] = models.get(name, 0) + 1
    return some((name if number == 1 else f"{number} × {name}" for name, number in models.items()), 3)


def _torch(facts: MachineFacts) -> str:
    if facts.torch is None:
        return _unknown(facts, "torch")
    if not facts.torch.installs:
        inside = facts.container is not None and facts.container.inside
        return "no installation found" + (" in this container; what is outside of it was not seen" if inside else "")
    known_first = sorted(facts.torch.installs, key=lambda install: install.version is None)
    return some((_install(install) for install in known_first), MAX_INSTALLS)


def _install(install: Install) -> str:
    built = f"CUDA {_text(install.cuda, 40)}" if install.cuda else f"ROCm {_text(install.hip, 40)}" if install.hip else ""
    built = built or ("CPU only" if install.cuda == "" else "")
    version = _text(install.version, 40) or "unknown version"
    return _joined(version, f"({built})" if built else "", f"in {_text(install.prefix)}", by=" ")

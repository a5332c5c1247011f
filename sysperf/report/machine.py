"""Which machine a report is about, in a few lines: kernel, CPUs, memory, GPUs, PyTorch installations."""

from __future__ import annotations

from typing import Any

from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, size
from sysperf.report.words import count, some

MOST_INSTALLS = 3


def look(record: Any, *path: str) -> Any:
    """A fact by its names, in a record or in a report that was read back as plain data; None when it is not there."""
    for name in path:
        record = record.get(name) if isinstance(record, dict) else getattr(record, name, None)
    return record


def facts(snapshot: Snapshot, area: str) -> Any:
    """The facts of an area; None when it could not be read."""
    return look(snapshot.areas.get(area), "facts")


def identity(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(what, which) lines: each names what is known and says where something is not."""
    return [
        ("kernel", _kernel(snapshot)),
        ("CPU", _cpu(snapshot)),
        ("memory", _memory(snapshot)),
        ("GPU", _gpus(snapshot)),
        ("PyTorch", _torch(snapshot)),
    ]


def described(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The same with the programs that nobody could look at: to have seen none is not to know that there is none."""
    unseen = look(facts(snapshot, "process"), "unreadable")
    told = f"{count(unseen, 'large one')} of other users could not be examined; root can" if isinstance(unseen, int) and unseen else ""
    return identity(snapshot) + ([("programs", told)] if told else [])


def _unknown(snapshot: Snapshot, area: str) -> str:
    problem = look(snapshot.areas.get(area), "problem")
    return f"unknown: {neutral(problem, 120)}" if problem else "unknown"


def _text(data: Any, limit: int = 120) -> str:
    return neutral(str(data), limit) if data not in (None, "") else ""


def _joined(*parts: str, by: str = ", ") -> str:
    return by.join(part for part in parts if part)


def _kernel(snapshot: Snapshot) -> str:
    kernel, container = facts(snapshot, "kernel"), facts(snapshot, "container")
    release = _joined(_text(look(kernel, "release")), _text(look(kernel, "arch")), by=" ")
    kind = _text(look(container, "kind"))
    where = (
        "WSL" if look(kernel, "wsl") else "",
        _joined(_hypervisor(look(kernel, "hypervisor")), "virtual machine", by=" ") if look(kernel, "virtual") else "",
        _joined(kind, "container", by=" ") if look(container, "inside") else "",
    )
    return _joined(f"Linux {release}" if release else _unknown(snapshot, "kernel"), *where)


def _hypervisor(name: Any) -> str:
    """Its name as its makers write it."""
    return {"kvm": "KVM", "vmware": "VMware", "xen": "Xen", "microsoft": "Hyper-V", "oracle": "VirtualBox"}.get(name, _text(name))


def _cpu(snapshot: Snapshot) -> str:
    cpu = facts(snapshot, "cpu")
    online, allowed = _size_of(look(cpu, "online")), _size_of(look(cpu, "allowed"))
    cores, packages = look(cpu, "cores"), look(cpu, "packages")
    nodes = look(facts(snapshot, "numa"), "nodes_with_cpus")
    quota = look(facts(snapshot, "cgroup"), "cpu_quota")
    return _joined(
        _text(look(cpu, "model_name"), 60),
        count(packages, "socket") if isinstance(packages, int) and packages > 1 else "",
        count(cores, "core") if isinstance(cores, int) else "",
        count(online, "CPU") if online else "",
        count(nodes, "NUMA node") if isinstance(nodes, int) and nodes > 1 else "",
        f"{allowed} allowed here" if allowed and online and allowed < online else "",
        f"quota of {quota:g} CPUs" if isinstance(quota, int | float) and quota else "",
    ) or _unknown(snapshot, "cpu")


def _size_of(cpus: Any) -> int | None:
    """How many CPUs a set has; a report that was read back holds it as the kernel's list."""
    if isinstance(cpus, str):
        from sysperf.model.cpuset import CpuSet  # noqa: PLC0415 - only for reports that were read back

        try:
            return len(CpuSet.parse(cpus))
        except ValueError:
            return None
    return None if cpus is None else len(cpus)


def _memory(snapshot: Snapshot) -> str:
    memory = facts(snapshot, "memory")
    total, available = look(memory, "total_bytes"), look(memory, "available_bytes")
    limit = look(facts(snapshot, "cgroup"), "memory_limit_bytes")
    return _joined(
        size(total) if isinstance(total, int) else _unknown(snapshot, "memory"),
        f"{size(available)} available" if isinstance(available, int) else "",
        f"limit of {size(limit)}" if isinstance(limit, int) and 0 < limit < (total or limit + 1) else "",
    )


def _gpus(snapshot: Snapshot) -> str:
    devices = look(facts(snapshot, "gpu"), "devices")
    driver = facts(snapshot, "driver")
    if devices:
        versions = (("driver", look(driver, "nvidia_version")), ("CUDA", look(driver, "cuda_driver_version")))
        return _joined(_models(devices), *(f"{name} {_text(version, 30)}" for name, version in versions if version))
    none = devices is not None or look(facts(snapshot, "pcie"), "nvidia_gpus") == 0
    return _on_the_bus(snapshot) or ("none" if none else _unknown(snapshot, "gpu"))


_MAKERS = {"10de": "NVIDIA GPU", "1002": "AMD GPU", "8086": "Intel GPU", None: "GPU of an unknown maker"}
"""Other makers' display controllers are the console of a server or of a virtual machine."""


def _on_the_bus(snapshot: Snapshot) -> str:
    """GPUs of which nothing but their place is known, and why; empty when there is none."""
    gpus = [
        gpu for gpu in look(facts(snapshot, "pcie"), "devices") or () if look(gpu, "kind") == "gpu" and look(gpu, "vendor_id") in _MAKERS
    ]
    if not gpus:
        nodes = sum(1 for node in look(facts(snapshot, "numa"), "nodes") or () if look(node, "gpu_memory"))
        return f"{count(nodes, 'memory node')} of GPUs, which nothing else tells of" if nodes else ""
    makers = [look(gpu, "vendor_id") for gpu in gpus]
    named = (f"{makers.count(maker)} × {name}" for maker, name in _MAKERS.items() if maker in makers)
    drivers = {look(gpu, "driver") for gpu in gpus}
    why = (
        "no driver is bound to them"
        if drivers == {""}
        else "no driver answers"
        if snapshot.root == "/"
        else "nothing else of them was captured"
    )
    return f"{some(named, 3)} on the bus: {why}"


def _models(devices: Any) -> str:
    models: dict[str, int] = {}
    for device in devices:
        total = look(device, "memory_total_bytes")
        name = _joined(_text(look(device, "name"), 60) or "unknown model", f"({size(total)})" if isinstance(total, int) else "", by=" ")
        models[name] = models.get(name, 0) + 1
    return some((name if number == 1 else f"{number} × {name}" for name, number in models.items()), 3)


def _torch(snapshot: Snapshot) -> str:
    installs = look(facts(snapshot, "torch"), "installs")
    if installs is None:
        return _unknown(snapshot, "torch")
    known_first = sorted(installs, key=lambda install: look(install, "version") is None)
    return some((_install(install) for install in known_first), MOST_INSTALLS) if installs else "no installation found"


def _install(install: Any) -> str:
    version, cuda, hip = (_text(look(install, name), 40) for name in ("version", "cuda", "hip"))
    built = f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "CPU only" if look(install, "cuda") == "" else ""
    return _joined(version or "unknown version", f"({built})" if built else "", f"in {_text(look(install, 'prefix'))}", by=" ")

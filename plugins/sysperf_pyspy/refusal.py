"""Why py-spy could not look into a program, and what helps."""

from __future__ import annotations

import os

from sysperf.host import Host
from sysperf.model.errors import SysperfError

CAP_SYS_PTRACE = 19
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_NO_PERMISSION = ("Permission Denied", "Permission denied", "Operation not permitted", "os error 1)", "os error 13)")


def explained(host: Host, pid: int, complaint: str, *, me: int | None = None) -> SysperfError:
    """An error that says why and what helps, out of what py-spy complained about."""
    if not host.exists(f"/proc/{pid}/status") or (host.pairs(f"/proc/{pid}/status") or {}).get("State", "").startswith("Z"):
        return SysperfError(f"process {pid} has ended", "`sysperf ps` lists the PyTorch programs")
    if any(sign in complaint for sign in _NO_PERMISSION):
        return _forbidden(host, pid, os.geteuid() if me is None else me)
    if "python version" in complaint or "executable name" in complaint:
        return SysperfError(f"process {pid} is no Python program that py-spy knows", "`sysperf ps` lists the PyTorch programs")
    reason = next((line for line in complaint.splitlines() if line.startswith("Error: ")), "Error: no reason given")
    return SysperfError(f"py-spy could not read process {pid}: {reason.removeprefix('Error: ')[:300]}", f"py-spy dump --pid {pid}")


def _forbidden(host: Host, pid: int, me: int) -> SysperfError:
    """The reason that is known, most certain first."""
    owner = _number((host.pairs(f"/proc/{pid}/status") or {}).get("Uid", "").split("\t")[0])
    if me != 0 and owner is not None and owner != me:
        return SysperfError(f"process {pid} belongs to user {owner}, and only root may look into it", f"sudo sysperf stacks {pid}")
    scope = host.number(YAMA)
    if me != 0 and scope:
        return SysperfError(
            f"this machine lets only root look into running programs (kernel.yama.ptrace_scope = {scope})", f"sudo sysperf stacks {pid}"
        )
    if me == 0 and scope == 3:
        return SysperfError(
            "this machine lets nobody look into running programs until it is started again (kernel.yama.ptrace_scope = 3)",
            "take a trace instead, which needs no such right: `sysperf trace`",
        )
    if me == 0 and _without_ptrace(host):
        return SysperfError(
            "this container may not look into running programs: it has no CAP_SYS_PTRACE",
            "start it with --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add), or run sysperf on its host",
        )
    return SysperfError(
        f"the kernel does not let user {me} look into process {pid}",
        f"sudo sysperf stacks {pid}" if me else "run sysperf where the process was started: on the host, or in its container",
    )


def _without_ptrace(host: Host) -> bool:
    """Whether we are known to lack the capability."""
    try:
        return not int((host.pairs("/proc/self/status") or {})["CapEff"], 16) >> CAP_SYS_PTRACE & 1
    except (KeyError, ValueError):
        return False


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None

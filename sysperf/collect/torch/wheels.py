"""wheels: which GPU code a build of PyTorch holds. No area of its own; `torch` asks."""

from sysperf.model.version import Version
from sysperf.startup import lazy

_DIGITS = lazy(r"[0-9]{2,3}")


def wheel(version: str, cuda: str, machine: str) -> str:
    """Name an official build as rules/releases.toml lists what each holds: ``2.8 12.8 x86_64``; empty where a part is not known."""
    try:
        return f"{Version(version).minor} {Version(cuda).minor} {machine}" if machine else ""
    except ValueError:
        return ""


def capabilities(arch_list: tuple[str, ...] | None, kind: str) -> tuple[str, ...] | None:
    """The entries of one kind as compute capabilities: ``sm_86`` is ``8.6``, ``sm_100a`` is ``10.0``."""
    if arch_list is None:
        return None
    digits = (target.removeprefix(kind).rstrip("af") for target in arch_list if target.startswith(kind))
    return tuple(dict.fromkeys(f"{digit[:-1]}.{digit[-1]}" for digit in digits if _DIGITS.fullmatch(digit)))

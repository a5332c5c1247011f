"""wheels: which GPU code official PyTorch builds hold. No area of its own; `torch` asks.

PyTorch https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix
        (read at releases 2.9 to 2.14, as of 2026-11-20; older rows from the lists that those builds print)
"""

from sysperf.model.version import Version
from sysperf.startup import lazy

_X86, _ARM = "x86_64", "aarch64"
_TO_HOPPER = "5.0 6.0 7.0 7.5 8.0 8.6 9.0"
_FROM_TURING = "7.5 8.0 8.6 9.0 10.0 12.0"

_DIGITS = lazy(r"[0-9]{2,3}")

# (first and last release, CUDA, machine, native code, portable code). What is not listed is unknown.
WHEELS = (
    ("2.12", "2.14", ("12.6",), _X86, _TO_HOPPER, ""),
    ("2.12", "2.14", ("13.0", "13.2"), _X86, _FROM_TURING, "12.0"),
    ("2.12", "2.14", ("12.6",), _ARM, "8.0 9.0", ""),
    ("2.12", "2.14", ("13.0", "13.2"), _ARM, "8.0 9.0 10.0 11.0 12.0", "12.0"),
    ("2.11", "2.11", ("12.6",), _X86, _TO_HOPPER, ""),
    ("2.11", "2.11", ("12.8",), _X86, _FROM_TURING, ""),
    ("2.11", "2.11", ("13.0",), _X86, _FROM_TURING, "12.0"),
    ("2.11", "2.11", ("12.6",), _ARM, "8.0 9.0", ""),
    ("2.11", "2.11", ("12.8",), _ARM, "8.0 9.0 10.0 12.0", ""),
    ("2.11", "2.11", ("13.0",), _ARM, "8.0 9.0 10.0 11.0 12.0", "12.0"),
    ("2.9", "2.10", ("12.6",), _X86, _TO_HOPPER, ""),
    ("2.9", "2.10", ("12.8",), _X86, f"7.0 {_FROM_TURING}", ""),
    ("2.9", "2.10", ("13.0",), _X86, _FROM_TURING, "12.0"),
    ("2.3", "2.6", ("12.1", "12.4", "12.6"), _X86, _TO_HOPPER, ""),
)


def gpu_code(version: str, cuda: str, machine: str) -> tuple[str, ...]:
    """The list as torch.cuda.get_arch_list() prints it: ``sm_80``, ``compute_120``; empty when we do not know."""
    try:
        release, toolkit = Version(Version(version).minor), Version(cuda).minor
    except ValueError:
        return ()
    for first, last, toolkits, where, native, portable in WHEELS:
        if Version(first) <= release <= Version(last) and toolkit in toolkits and machine == where:
            code = [("sm_", word) for word in native.split()] + [("compute_", word) for word in portable.split()]
            return tuple(kind + capability.replace(".", "") for kind, capability in code)
    return ()


def capabilities(arch_list: tuple[str, ...] | None, kind: str) -> tuple[str, ...] | None:
    """The entries of one kind as compute capabilities: ``sm_86`` is ``8.6``, ``sm_100a`` is ``10.0``."""
    if arch_list is None:
        return None
    digits = (target.removeprefix(kind).rstrip("af") for target in arch_list if target.startswith(kind))
    return tuple(dict.fromkeys(f"{digit[:-1]}.{digit[-1]}" for digit in digits if _DIGITS.fullmatch(digit)))

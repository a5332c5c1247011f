"""Dense 16-bit peaks of tensor cores in TFLOP/s, with 32-bit sums, as the vendors' data sheets say."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PEAKS = (
    ("B200", 2250.0), ("GB200", 2500.0), ("H100 PCIe", 756.0), ("H100 NVL", 835.0), ("H100", 989.0), ("H200 NVL", 835.0),
    ("H200", 989.0), ("GH200", 989.0),
    ("A100", 312.0), ("A800", 312.0), ("A40", 149.7), ("A30", 165.0), ("A10G", 70.0), ("A10", 125.0), ("L40S", 362.0), ("L40", 181.0),
    ("L4", 121.0), ("V100-PCIE", 112.0), ("V100S-PCIE", 130.0),
    ("V100", 125.0), ("T4", 65.0), ("RTX 4090", 165.2), ("RTX 3090", 71.0), ("RTX 3080", 59.5), ("MI250X", 191.5),
    ("MI250", 181.0), ("MI300X", 1307.4),
)  # fmt: skip


_BANDWIDTHS = (
    ("B200", 8000.0), ("GB200", 8000.0), ("H100 PCIe", 2039.0), ("H100 NVL", 3938.0), ("H100", 3352.0), ("H200", 4800.0),
    ("GH200", 4000.0), ("A100-SXM4-80GB", 2039.0), ("A100 80GB", 1935.0), ("A100", 1555.0), ("A40", 696.0), ("A30", 933.0),
    ("A10G", 600.0), ("A10", 600.0), ("L40S", 864.0), ("L40", 864.0), ("L4", 300.0), ("V100S-PCIE", 1134.0), ("V100", 900.0), ("T4", 320.0),
    ("RTX 4090", 1008.0), ("RTX 3090", 936.0), ("RTX 3080", 760.0), ("MI250X", 1638.0), ("MI250", 1638.0), ("MI300X", 5300.0),
)  # fmt: skip
"""GB/s of the devices' memory, as the vendors' data sheets say. Each half of an MI250 is a device."""
_OTHER = re.compile(r"\b(?:Laptop|MIG|Max-Q|FHHL)\b")
"""Parts of a device, and those of laptops or of half a board, have less than the device of this name."""


def bandwidth_gb_s(name: str | None) -> float | None:
    """The bandwidth of a device's memory by its name; None where the name is not known."""
    return _of(name, _BANDWIDTHS)


def dense_16bit(name: str | None) -> float | None:
    """The peak of a device by its name; None where the name is not known."""
    return _of(name, _PEAKS)


def _of(name: str | None, table: Iterable[tuple[str, float]]) -> float | None:
    """An RTX A1000 is no A100, and a Ti no board without it."""
    if not name or _OTHER.search(name):
        return None
    return next((value for part, value in table if re.search(rf"\b{part}\b(?! (?:Ti|SUPER|D)\b)", name)), None)

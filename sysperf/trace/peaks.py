"""Dense 16-bit peaks of tensor cores in TFLOP/s, with 32-bit sums, as the vendors' data sheets say."""

from __future__ import annotations

_PEAKS = (
    ("B200", 2250.0), ("GB200", 2500.0), ("H100 PCIe", 756.0), ("H100 NVL", 835.0), ("H100", 989.0), ("H200", 989.0), ("GH200", 989.0),
    ("A100", 312.0), ("A800", 312.0), ("A40", 149.7), ("A30", 165.0), ("A10G", 70.0), ("A10", 125.0), ("L40S", 362.0), ("L40", 181.0),
    ("L4", 121.0), ("V100", 125.0), ("T4", 65.0), ("RTX 4090", 165.2), ("RTX 3090", 71.0), ("RTX 3080", 59.5), ("MI250", 362.1),
    ("MI300X", 1307.4),
)  # fmt: skip


def dense_16bit(name: str | None) -> float | None:
    """The peak of a device by its name; None where the name is not known."""
    return next((peak for part, peak in _PEAKS if name and part in name), None)

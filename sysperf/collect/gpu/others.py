"""Accelerators of other makers, which PyTorch uses by packages of their own, and of which nothing else is known here.

Reads   /proc/bus/pci/devices
Names   https://pci-ids.ucw.cz, and for TPUs https://github.com/jax-ml/jax/blob/main/jax/_src/hardware_utils.py
"""

from __future__ import annotations

from collections import Counter

from sysperf.startup import lazy

MAKERS = {
    # by vendor and device of the list
    "Gaudi of Intel's": r"1da31[0-9a-f]{3}",
    "TPU of Google's": r"1ae000(?:27|56|5e|62|63|6f|76|7c|83)",
    "Trainium or Inferentia of Amazon's": r"1d0f7[0-9a-f]6[4-7]",
    "Ascend of Huawei's": r"19e5d(?:100|500|80[0-9])",
    "Cloud AI of Qualcomm's": r"17cba(?:080|1[01]0)",
    "card of Tenstorrent's": r"1e52[0-9a-f]{4}",
    "MLU of Cambricon's": r"cabc[0-9a-f]{4}",
    "IPU of Graphcore's": r"1d95[0-9a-f]{4}",
    "DCU of Hygon's": r"1d94(?:5[3-5]b7|6[0-9a-f]{3})",  # its processors have this number, too
    "GPU of MetaX's": r"99994[0-9a-f]{3}",
    "GPU of Iluvatar's": r"1e3e[0-9a-f]{4}",
    "GPU of Biren's": r"1ee0[0-9a-f]{4}",
    "GCU of Enflame's": r"1e36[0-9a-f]{4}",
    "Kunlun of Baidu's": r"1d22368[0-9a-f]",
    "NPU of FuriosaAI's": r"1ed2[0-9a-f]{4}",
    "NPU of Rebellions'": r"1eff[0-9a-f]{4}",
    "GPU of Moore Threads'": r"1ed50[123](?!ff)[0-9a-f]{2}",  # 01ff and 02ff are their sound
}
_DEVICE = lazy(r"^[0-9a-f]{4}\t(?:" + "|".join(f"({pattern})" for pattern in MAKERS.values()) + r")\b", flags=8)


def others(listed: str | None) -> tuple[str, ...] | None:
    """Return ``8 Gaudi of Intel's`` and the like, from the kernel's list of devices; None where that is not known."""
    if listed is None:
        return None
    counts = Counter(match.lastindex for match in _DEVICE.finditer(listed))
    return tuple(f"{counts[place]} {_named(name, counts[place])}" for place, name in enumerate(MAKERS, 1) if counts[place])


def _named(name: str, count: int) -> str:
    """Return the plural of a common noun; names of products stay as they are."""
    return (
        name.replace(" of ", "s of ", 1)
        if count > 1 and name.startswith(("card ", "DCU ", "GCU ", "GPU ", "IPU ", "MLU ", "NPU ", "TPU "))
        else name
    )

"""PCI Express: addresses, ids and links as sysfs writes them, and configuration space.

Kernel  https://docs.kernel.org/PCI/sysfs-pci.html
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
"""

from __future__ import annotations

from sysperf.startup import lazy

WIDTHS = frozenset((1, 2, 4, 8, 12, 16, 32))
_ADDRESS = lazy(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BUS_ID = lazy(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(\.[0-7])?")
_HEX = lazy(r"0x[0-9a-fA-F]{1,16}")
_SPEED = lazy(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s")
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
_ACS_CAPABILITY = 0x000D
_ACS_REDIRECTS = 0x04 | 0x08 | 0x20  # request redirect, completion redirect, egress control
EXTENDED = 256
"""Where the extended configuration space begins, which only root may read."""


def is_address(text: str) -> bool:
    """Whether this is an address as sysfs writes it: ``0000:65:00.0``."""
    return bool(_ADDRESS.fullmatch(text))


def bus_id(text: str) -> str | None:
    """The address as sysfs writes it, of one as NVML (``00000000:65:00.0``) or the kernel's log (``0000:65:00``) writes it."""
    match = _BUS_ID.fullmatch(text)
    return f"{int(match[1], 16):04x}:{match[2]}{match[3] or '.0'}".lower() if match else None


def addresses_in(path: str) -> list[str]:
    """The addresses in the path of a device below /sys: bridges first, the device last."""
    return _ADDRESS.findall(path)


def address_in(path: str) -> str:
    """The last of them; empty when there is none."""
    return (addresses_in(path) or [""])[-1]


def hex_id(text: str, digits: int) -> str | None:
    """An id such as ``0x10de`` as lower-case digits; None when it is no number of so many digits."""
    return text[2:].lower() if len(text) == digits + 2 and _HEX.fullmatch(text) else None


def lanes(number: int | None) -> int | None:
    """The width of a link; None when it is down or sleeps, which the kernel shows as 0, 63 or 255."""
    return number if number in WIDTHS else None


def speed_gts(text: str | None) -> float | None:
    """``32.0 GT/s PCIe`` is 32.0; None when it is no speed (``Unknown``)."""
    match = _SPEED.match(text or "")
    return float(match[1]) if match else None


def generation(text: str | None) -> int | None:
    """``32.0 GT/s PCIe`` is generation 5."""
    speed = speed_gts(text)
    return None if speed is None else _GENERATIONS.get(speed)


def redirects_peers(config: bytes) -> bool:
    """Whether a port's Access Control Services send traffic between peers up to the CPU.

    Extended capabilities are a chain of words from byte 256 on: 16 bits id, 4 version, 12 where the next one is.
    """
    position, steps = EXTENDED, 0
    while EXTENDED <= position <= len(config) - 8 and steps < 64:
        word = int.from_bytes(config[position : position + 4], "little")
        if word & 0xFFFF == _ACS_CAPABILITY:
            return bool(int.from_bytes(config[position + 6 : position + 8], "little") & _ACS_REDIRECTS)
        position, steps = word >> 20 & 0xFFC, steps + 1
    return False

"""GPUs of AMD and Intel as the kernel's graphics drivers list them.

Reads   /sys/class/drm/card*/device/{uevent,drm,physfn,power/runtime_status}  …/hwmon/hwmon*  /dev/dri
Kernel  https://docs.kernel.org/gpu/drm-uapi.html
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from sysperf.collect.readers.gpu_sleep import ASLEEP
from sysperf.host import Host
from sysperf.model.record import Record
from sysperf.procfs import pci
from sysperf.startup import lazy

DRM = "/sys/class/drm"
NODES = "/dev/dri"
MAX_CARDS = 128
MAX_NAMES = 1_024
_CARD = lazy(r"card[0-9]{1,4}")
_VENDORS = {"1002": "amd", "8086": "intel"}


class Card(Record):
    """One GPU of AMD or Intel that a kernel driver holds."""

    folder: str
    bus_id: str
    vendor: str
    device_id: str
    driver: str
    name: str
    given: bool = True
    """Whether its node to compute on is here: a container sees all of the machine in /sys, and the nodes that it was given."""


def cards(host: Host) -> list[Card] | None:
    """List cards by their PCI address, without virtual functions of one that is here, too; None where one cannot be told.

    A host has virtual functions for its guests; a container may have been given one alone. Parts of a partitioned GPU have no address.
    """
    names = host.names(DRM) if host.exists(DRM) else ()
    if names is None:
        return None
    said = {f"{DRM}/{name}": _said(host, f"{DRM}/{name}/device/uevent") for name in names[:MAX_NAMES] if _CARD.fullmatch(name)}
    if None in said.values():
        return None
    found = [card for path, fields in said.items() if (card := _card(path, fields or {})) is not None]
    given = host.names(NODES) if found and host.exists(NODES) else None
    found = [card if given is None else structs.replace(card, given=_is_given(host, card, given)) for card in found[:MAX_CARDS]]
    whole_ones = {card.bus_id for card in found if card.given}
    return sorted((card for card in found if _whole(host, card) not in whole_ones), key=lambda card: card.bus_id)


def _whole(host: Host, card: Card) -> str | None:
    """Return the address of the GPU that a virtual function is of; None for a GPU."""
    return (host.link(f"{card.folder}/physfn") or "").rpartition("/")[2] if host.exists(f"{card.folder}/physfn") else None


def _is_given(host: Host, card: Card, given: Collection[str]) -> bool:
    names = host.names(f"{card.folder}/drm") if host.exists(f"{card.folder}/drm") else None
    nodes = [name for name in names or () if name.startswith("renderD")]
    return not nodes or nodes[0] in given


def _said(host: Host, path: str) -> dict[str, str] | None:
    """What a card's device says; nothing of a card without device."""
    return {} if host.exists(path) is False else host.pairs(path, "=")


def _card(path: str, said: dict[str, str]) -> Card | None:
    maker, _, model = said.get("PCI_ID", "").lower().partition(":")
    bus_id = pci.bus_id(said.get("PCI_SLOT_NAME", ""))
    if maker not in _VENDORS or bus_id is None:
        return None
    return Card(f"{path}/device", bus_id, _VENDORS[maker], f"{model:0>4}"[-4:], said.get("DRIVER", "")[:40], path.rpartition("/")[2])


def asleep(host: Host, card: Card) -> bool:
    """Whether the kernel has switched it off to save power: to read its sensors would wake it, or is refused."""
    path = f"{card.folder}/power/runtime_status"
    sleeps = bool(host.exists(path)) and host.word(path) == "suspended"
    if sleeps:
        host.refuse(path, ASLEEP)
    return sleeps


def sensors(host: Host, folder: str) -> str | None:
    """The folder of the card's sensors, of which it has one."""
    names = host.names(f"{folder}/hwmon") if host.exists(f"{folder}/hwmon") else None
    return f"{folder}/hwmon/{names[0]}" if names else None


def labels(host: Host, at: str) -> dict[str, int]:
    """Places of temperature sensors, by labels that older kernels do not have."""
    paths = {place: f"{at}/temp{place}_label" for place in (1, 2, 3)}
    return {host.word(path) or "": place for place, path in paths.items() if host.exists(path)}


def fan_percent(host: Host, at: str) -> int | None:
    """What the fan is told to do, of 255; 0 where it stands still all the same."""
    if optional(host, f"{at}/fan1_input") == 0:
        return 0
    told = optional(host, f"{at}/pwm1")
    return None if told is None else min(100, round(told / 2.55))


def optional(host: Host, path: str) -> int | None:
    """The number in a file that not every card has."""
    return host.number(path) if host.exists(path) else None


def scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value / unit


def whole(value: int | None, unit: int) -> int | None:
    return None if value is None else value // unit

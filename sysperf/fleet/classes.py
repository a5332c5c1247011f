"""Classes of equal hardware: a node is compared with its like only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sysperf.model.difference import NOT_SET, UNKNOWN

PARTS = ("gpu", "cpu", "rdma", "memory")
"""What the hardware of a node is told by."""
Hardware = tuple[str, ...]
"""What each of these parts is."""

MIN_CLASS = 3
STRAYS = 0.05
"""A group is a class of its own from this part of its like on: fewer are nodes that lost something."""


def hardware_key(hardware: Mapping[str, str]) -> Hardware:
    """What a class has in common."""
    return tuple(hardware.get(part, UNKNOWN) for part in PARTS)


def class_name(key: Hardware) -> str:
    """``8 x NVIDIA H100, 2 x AMD EPYC 9654, 2 TiB``."""
    known = [f"{part} unknown" if what == UNKNOWN else what for part, what in zip(PARTS, key, strict=True) if what != NOT_SET]
    return ", ".join(known) or "unknown hardware"


def classed(nodes: Sequence[Hardware]) -> dict[Hardware, list[int]]:
    """The numbers of the nodes of each class, the largest first.

    A few nodes that are like a class but for one part (7 of 8 GPUs), or of which a part is unknown, belong to that class.
    """
    groups: dict[Hardware, list[int]] = {}
    for number, key in enumerate(nodes):
        groups.setdefault(key, []).append(number)
    likes = _Likes(groups)
    for key in sorted(groups, key=lambda key: len(groups[key])):
        if (larger := likes.of(key)) is not None:
            groups[larger] = sorted(groups[larger] + groups.pop(key))
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


class _Likes:
    """Which groups are the same but for some parts, found without comparing each with each."""

    def __init__(self, groups: Mapping[Hardware, list[int]]) -> None:
        self._groups = groups
        self._known = [key for key in groups if UNKNOWN not in key]
        self._without: dict[tuple[int, ...], dict[Hardware, list[Hardware]]] = {}

    def of(self, key: Hardware) -> Hardware | None:
        """The class to which a group belongs; None: it is one."""
        if unknown := tuple(place for place, part in enumerate(key) if part == UNKNOWN):
            like = self._but(key, unknown) if len(unknown) < len(key) else []
            return like[0] if len(like) == 1 else None
        ours = len(self._groups[key])
        like = [other for place in range(len(key)) for other in self._but(key, (place,)) if self._are_strays(ours, other)]
        return max(like, key=lambda other: len(self._groups[other]), default=None)

    def _but(self, key: Hardware, places: tuple[int, ...]) -> list[Hardware]:
        """The groups that are the same but for these places."""
        if places not in self._without:
            index: dict[Hardware, list[Hardware]] = {}
            for other in self._known:
                index.setdefault(_without(other, places), []).append(other)
            # A group never joins one that is not larger: of the many that differ, only the largest can be of use.
            self._without[places] = {
                rest: sorted(others, key=lambda other: -len(self._groups[other]))[:8] for rest, others in index.items()
            }
        return [other for other in self._without[places].get(_without(key, places), ()) if other != key and other in self._groups]

    def _are_strays(self, few: int, other: Hardware) -> bool:
        many = len(self._groups[other])
        return many >= MIN_CLASS and few < many and few <= max(MIN_CLASS - 1, STRAYS * many)


def _without(key: Hardware, places: tuple[int, ...]) -> Hardware:
    return tuple(part for place, part in enumerate(key) if place not in places)

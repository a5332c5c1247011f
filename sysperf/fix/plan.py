"""From wishes to changes: what is there now, what would be, and what can not be done here and why."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sysperf.fix import conflicts, targets
from sysperf.fix.targets import Target
from sysperf.host import CAPTURED, Host
from sysperf.model.change import Change, Conflict, Plan, Setting, Skipped
from sysperf.model.knob import KNOBS, Knob
from sysperf.model.text import parse_size, size

MAX_CHANGES = 4_096


def plan(host: Host, wishes: Iterable[Setting], *, force: bool = False) -> Plan:
    """What the wishes mean on this machine. Nothing is written.

    A setting that somebody else also sets (a daemon, an administrator's file) is left out, unless `force`.
    """
    changes: dict[str, Change] = {}
    skipped: list[Skipped] = []
    for wish in wishes:
        try:
            found = _changes(host, wish)
        except OSError as error:
            skipped.append(Skipped(wish, error.strerror or str(error)))
            continue
        except _AsItIs as reason:
            skipped.append(Skipped(wish, str(reason), already=True))
            continue
        for change in found:
            first = changes.setdefault(change.target, change)
            if first.after != change.after:
                skipped.append(Skipped(wish, f"it is to be {first.after} already"))
    disputes = conflicts.find(host, tuple(changes.values()))
    kept = [change for change in changes.values() if force or not _disputed(change, disputes)]
    skipped += [Skipped(_wish(change), _reason(change, disputes)) for change in changes.values() if change not in kept]
    return Plan(tuple(kept[:MAX_CHANGES]), tuple(skipped), disputes)


class _AsItIs(Exception):
    """The wish is fulfilled already."""


def _changes(host: Host, wish: Setting) -> list[Change]:
    """Raises OSError with the reason when it can not be done here, and `_AsItIs` when it is so already."""
    knob = KNOBS.get(wish.knob)
    if knob is None:
        raise OSError("not a setting that sysperf may change")
    if not knob.accepts(wish.value):
        raise OSError(f"{wish.value[:80]!r} is no value for it: {knob.range()}")
    wish = msgspec.structs.replace(wish, value=knob.canonical(wish.value))
    found = targets.find(host, knob, wish.item)
    changes = [change for target in found if (change := _change(host, target, knob, wish)) is not None]
    if not changes:
        raise _AsItIs(f"it is {wish.value} already")
    if not host.live:
        raise OSError(CAPTURED)
    if problem := next((problem for target in found if (problem := target.problem())), ""):
        raise OSError(problem)
    return changes


def _change(host: Host, target: Target, knob: Knob, wish: Setting) -> Change | None:
    now = target.read()
    if target.same(now, wish.value):
        return None
    offers = target.offers()
    if offers is not None and wish.value not in offers:
        raise OSError(f"this machine offers {', '.join(offers)}")
    if knob.partial and (problem := _no_room(host, int(wish.value) - int(now))):
        raise OSError(problem)
    shown = now.partition(" ")[0] + " …" if " " in now else ""
    return Change(knob.name, wish.item, target.path, now, wish.value, wish.rule, target.born, shown)


def _no_room(host: Host, pages: int) -> str:
    """Why there is no memory for so many huge pages: trying would take all there is from the programs that run."""
    known = host.pairs("/proc/meminfo") or {}
    try:
        wanted, available = pages * parse_size(known["Hugepagesize"]), parse_size(known["MemAvailable"])
    except (KeyError, ValueError):
        return ""
    return f"it takes {size(wanted)} more, and {size(available)} are available" if wanted > available else ""


def _disputed(change: Change, disputes: tuple[Conflict, ...]) -> bool:
    return any(dispute.knob == change.knob for dispute in disputes)


def _reason(change: Change, disputes: tuple[Conflict, ...]) -> str:
    dispute = next(dispute for dispute in disputes if dispute.knob == change.knob)
    return f"{dispute.who} {dispute.what}"


def _wish(change: Change) -> Setting:
    return Setting(change.knob, change.after, change.item, change.rule)

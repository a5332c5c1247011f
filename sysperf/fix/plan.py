"""Changes out of requested settings: what is there now, what would be, and what can not be done here and why."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sysperf.fix import conflicts, targets
from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.host.settings import CAPTURED
from sysperf.model.change import Change, Conflict, Plan, Setting, Skipped
from sysperf.model.knob import KNOBS, Knob
from sysperf.model.text import size
from sysperf.procfs import meminfo

MAX_CHANGES = 4_096


def plan(host: Host, settings: Iterable[Setting], *, force: bool = False) -> Plan:
    """What the requested settings mean on this machine. Nothing is written.

    A setting that somebody else also sets (a daemon, an administrator's file) is left out, unless `force`.
    """
    changes: dict[str, Change] = {}
    skipped: list[Skipped] = []
    for setting in settings:
        try:
            planned = _changes(host, setting)
        except OSError as error:
            skipped.append(Skipped(setting, error.strerror or str(error)))
            continue
        except _AlreadySet as reason:
            skipped.append(Skipped(setting, str(reason), already=True))
            continue
        for change in planned:
            first = changes.setdefault(change.target, change)
            if first.after != change.after:
                skipped.append(Skipped(setting, f"it is to be {first.after} already"))
    disputes = conflicts.find(host, tuple(changes.values()))
    kept = [change for change in changes.values() if force or not _disputed(change, disputes)]
    skipped += [Skipped(_setting(change), _reason(change, disputes)) for change in changes.values() if change not in kept]
    return Plan(tuple(kept[:MAX_CHANGES]), tuple(skipped), disputes)


class _AlreadySet(Exception):
    """The setting has this value already."""


def _changes(host: Host, setting: Setting) -> list[Change]:
    """Raises OSError with the reason when it can not be done here, and `_AlreadySet` when it is so already."""
    knob = KNOBS.get(setting.knob)
    if knob is None:
        raise OSError("not a setting that sysperf may change")
    if not knob.accepts(setting.value):
        raise OSError(f"{setting.value[:80]!r} is no value for it: {knob.range()}")
    setting = msgspec.structs.replace(setting, value=knob.canonical(setting.value))
    matching = targets.find(host, knob, setting.item)
    if setting.start_time and any(target.start_time != setting.start_time for target in matching):
        raise OSError("the process that was meant has ended: another one has its number")
    changes = [change for target in matching if (change := _change(host, target, knob, setting)) is not None]
    if not changes:
        raise _AlreadySet(f"it is {setting.value} already")
    if not host.live:
        raise OSError(CAPTURED)
    if problem := next((problem for target in matching if (problem := target.problem())), ""):
        raise OSError(problem)
    return changes


def _change(host: Host, target: Target, knob: Knob, setting: Setting) -> Change | None:
    now = target.read()
    if problem := target.refuses(setting.value):
        raise OSError(problem)
    if target.fulfils(now, setting.value):
        return None
    offers = target.offers()
    if offers is not None and setting.value not in offers:
        raise OSError(f"this machine offers {', '.join(offers)}")
    if knob.partial and (problem := _no_room(host, int(setting.value) - int(now))):
        raise OSError(problem)
    first_value = now.partition(" ")[0] + " …" if " " in now else ""
    return Change(knob.name, setting.item, target.path, now, setting.value, setting.rule, target.start_time, first_value)


def _no_room(host: Host, pages: int) -> str:
    """Why there is no memory for so many huge pages: trying would take all there is from the programs that run."""
    sizes = meminfo.sizes(host.text("/proc/meminfo") or "")
    if "Hugepagesize" not in sizes or "MemAvailable" not in sizes:
        return ""
    wanted, available = pages * sizes["Hugepagesize"], sizes["MemAvailable"]
    return f"it takes {size(wanted)} more, and {size(available)} are available" if wanted > available else ""


def _disputed(change: Change, disputes: tuple[Conflict, ...]) -> bool:
    return any(dispute.knob == change.knob for dispute in disputes)


def _reason(change: Change, disputes: tuple[Conflict, ...]) -> str:
    dispute = next(dispute for dispute in disputes if dispute.knob == change.knob)
    return f"{dispute.who} {dispute.what}"


def _setting(change: Change) -> Setting:
    return Setting(change.knob, change.after, change.item, change.rule, change.start_time)

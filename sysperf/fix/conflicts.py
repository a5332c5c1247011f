"""Other setters of what sysperf would set: daemons that tune, and files in which an administrator chose.

Reads   /proc/*/comm  /etc/tuned/active_profile  tuned's profiles  /etc/sysctl.d  /run/sysctl.d  /etc/sysctl.conf  /proc/cmdline
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sysperf.host import Host
from sysperf.model.change import Change, Conflict
from sysperf.model.knob import KNOBS, Knob
from sysperf.model.text import neutral

_POWER = ("cpu.governor", "cpu.epp", "cpu.boost", "cpu.no_turbo", "cpu.max_freq_khz", "cpu.platform_profile")
DAEMONS: Mapping[str, tuple[str, ...]] = {
    # name of the main thread (15 characters) -> what it sets by itself
    "power-profiles-": ("cpu.epp", "cpu.boost", "cpu.no_turbo", "cpu.platform_profile", "cpu.governor"),
    "tuned-ppd": ("cpu.epp", "cpu.platform_profile", "cpu.governor"),
    "auto-cpufreq": _POWER,
    "thermald": ("cpu.max_freq_khz",),
    "numad": ("process.cpus", "process.pages"),
    "ananicy": ("process.nice", "process.io_class"),
    "ananicy-cpp": ("process.nice", "process.io_class"),
}
NAMES = {"power-profiles-": "power-profiles-daemon"}
"""Those whose name is longer than the kernel keeps."""
TUNED = "tuned"

_TUNED_KEYS = {
    ("vm", "transparent_hugepages"): "thp.enabled",
    ("vm", "transparent_hugepage"): "thp.enabled",
    ("vm", "transparent_hugepage.defrag"): "thp.defrag",
    ("cpu", "governor"): "cpu.governor",
    ("cpu", "energy_performance_preference"): "cpu.epp",
    ("cpu", "boost"): "cpu.boost",
    ("cpu", "no_turbo"): "cpu.no_turbo",
    ("cpu", "force_latency"): "cpu.dma_latency_us",
    ("disk", "readahead"): "block.read_ahead_kb",
    ("disk", "elevator"): "block.scheduler",
    ("acpi", "platform_profile"): "cpu.platform_profile",
}
_TUNED_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
_MAX_PROFILES = 32
_SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d")
_OURS = "90-sysperf-"


def find(host: Host, changes: Sequence[Change]) -> tuple[Conflict, ...]:
    """Return who else sets the knobs of these changes."""
    knobs = {change.knob: KNOBS[change.knob] for change in changes}
    if not knobs:
        return ()
    return (*_daemons(host, knobs), *_files(host, knobs), *_command_line(host, knobs))


def setters(host: Host, knob: str) -> tuple[str, ...]:
    """Return who may have written a setting: the running daemons that set it."""
    return tuple(conflict.who for conflict in _daemons(host, {knob: KNOBS[knob]})) if knob in KNOBS else ()


def _daemons(host: Host, knobs: Mapping[str, Knob]) -> Iterator[Conflict]:
    running = _running(host)
    for comm in sorted(running & DAEMONS.keys()):
        for knob in DAEMONS[comm]:
            if knob in knobs:
                yield Conflict(knob, NAMES.get(comm, comm), "is running and sets it by itself")
    if TUNED in running:
        yield from _tuned(host, knobs)


def _running(host: Host) -> set[str]:
    """The names of those daemons that run."""
    wanted = {*DAEMONS, TUNED}
    running = set()
    for name in host.names("/proc") or ():
        if name.isdigit() and (comm := host.word(f"/proc/{name}/comm")) in wanted:
            running.add(comm)
    return running


def _tuned(host: Host, knobs: Mapping[str, Knob]) -> Iterator[Conflict]:
    names = (host.word("/etc/tuned/active_profile") or "").split()
    for name in names:
        for section, key, value in _profile(host, name, set()):
            knob = key if section == "sysctl" else _TUNED_KEYS.get((section, key), "")
            if knob in knobs:
                yield Conflict(knob, TUNED, f"is running and sets it to {neutral(value, 40)} (profile {neutral(name, 60)})")


def _profile(host: Host, name: str, seen: set[str]) -> Iterator[tuple[str, str, str]]:
    """(section, key, value) of a profile and of those that it includes, each once."""
    if name in seen or len(seen) > _MAX_PROFILES or "/" in name or name in ("", ".", ".."):
        return
    seen.add(name)
    text = next((text for folder in _TUNED_FOLDERS if (text := host.text(f"{folder}/{name}/tuned.conf")) is not None), "")
    section = ""
    for line in text.splitlines():
        line = line.split("#")[0].strip()  # noqa: PLW2901 - the same line without its comment
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif "=" in line:
            key, _, value = (part.strip() for part in line.partition("="))
            if (section, key) == ("main", "include"):
                for included in value.replace(",", " ").split():
                    yield from _profile(host, included, seen)
            yield section, key, value.lstrip("<>").strip()


def _files(host: Host, knobs: Mapping[str, Knob]) -> Iterator[Conflict]:
    """Kernel parameters that an administrator's files set. What the distribution ships below /usr/lib is no choice of theirs."""
    wanted = {knob.path: name for name, knob in knobs.items() if knob.kind == "sysctl"}
    if not wanted:
        return
    paths = [f"{folder}/{name}" for folder in _SYSCTL_FOLDERS for name in host.names(folder) or () if name.endswith(".conf")]
    for path in (*paths, "/etc/sysctl.conf"):
        if path.rpartition("/")[2].startswith(_OURS):
            continue
        for line in (host.text(path) or "").splitlines():
            key, equals, value = line.partition("=")
            name = wanted.get("/proc/sys/" + key.strip().lstrip("-").replace(".", "/"))
            if equals and name:
                yield Conflict(name, path, f"sets it to {neutral(value.strip(), 40)}: somebody's choice, which stays")


def _command_line(host: Host, knobs: Mapping[str, Knob]) -> Iterator[Conflict]:
    """What was chosen when the machine was started."""
    if "thp.enabled" in knobs:
        for word in (host.word("/proc/cmdline") or "").split():
            key, equals, value = word.partition("=")
            if equals and key == "transparent_hugepage":
                yield Conflict(
                    "thp.enabled", "the kernel's command line", f"sets it to {neutral(value, 40)}: somebody's choice, which stays"
                )

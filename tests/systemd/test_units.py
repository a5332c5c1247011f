"""The units as files: that systemd reads them, how open it finds them, and that they allow what the knobs need and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sysperf.engine.service import units as _units
from sysperf.model.knob import KNOBS, SYSCTLS, SYSFS
from tests.golden import Golden

FOLDER = Path(__file__).resolve().parent.parent.parent / "systemd"
NAMES = sorted(_units.ALL)
NO_SYSTEMD = "no systemd-analyze: apt-get install systemd"
WRITERS = ("sysperf-helper.service", "sysperf-restore.service")
SETTINGS = (
    "# The settings of sysperf/model/knob.py, and no others: all else of /proc/sys and /sys is read-only. Written by `make generated`.\n"
)
DISKS = "# Disks by name; name more of them in a drop-in.\n"
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
PERSISTENT = {"/etc/sysctl.d", "/etc/tmpfiles.d"}
"""Where --persist writes; only what restores needs to remove files there."""
MORE = {"kernel.numa_balancing", "kernel.yama.ptrace_scope"}


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    """The units with a program that exists."""
    if not shutil.which("systemd-analyze"):
        pytest.skip(NO_SYSTEMD)
    for file in _units.wanted("/bin/true", root=str(tmp_path)):
        _units.write(file.path, file.content)
    return tmp_path / "etc/systemd/system"


def exposure(path: Path) -> float:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)], capture_output=True, text=True, check=False
    )
    match = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert match, done.stdout + done.stderr
    return float(match[1])


def settings(name: str, key: str) -> list[str]:
    text = (FOLDER / name).read_text()
    return [word for line in text.splitlines() if line.startswith(f"{key}=") for word in line.partition("=")[2].split()]


def test_all_units_are_installed() -> None:
    """No unit of the folder is forgotten by `sysperf service`."""
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_file()) == NAMES


def test_systemd_reads_them(laid: Path) -> None:
    """systemd-analyze verify finds no unknown key and no bad value."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *(str(laid / name) for name in NAMES)],
        capture_output=True,
        text=True,
        check=False,
    )
    about_us = [line for line in done.stderr.splitlines() if "sysperf" in line]

    assert about_us == []


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("sysperf-agent.service", 1.2),
        ("sysperf-audit.service", 1.2),
        ("sysperf-metrics.service", 0.7),
        ("sysperf-helper.service", 1.5),
        ("sysperf-restore.service", 1.5),
    ],
)
def test_exposure(laid: Path, name: str, limit: float) -> None:
    """What systemd makes of the sandbox: 0 is closed, 10 is open, tuned is at 9.6."""
    assert exposure(laid / name) <= limit


@pytest.mark.parametrize(("name", "limit"), [("see-all-users", 1.7), ("apply", 1.3), ("more-settings", 2.1)])
def test_exposure_with_a_drop_in(laid: Path, name: str, limit: float) -> None:
    """Who sees all users reads files with the rights of each, and has no network; the scores in docs/service.md are these."""
    for unit in _units.DROP_INS[name]:
        folder = laid / f"{unit}.d"
        folder.mkdir()
        shutil.copy(FOLDER / f"{unit}.d/{name}.conf.example", folder / "more.conf")

        assert exposure(laid / unit) <= limit


def writable() -> str:
    """The lines that let a unit write each setting that is a file, but for those of disks, which are named one by one."""
    paths = [CPUFREQ if knob.path.startswith(CPUFREQ) else knob.path for knob in (*SYSCTLS.values(), *SYSFS.values()) if not knob.item]
    return "".join(f"ReadWritePaths=-{path}\n" for path in dict.fromkeys(paths))


@pytest.mark.parametrize("name", WRITERS)
def test_the_settings_in_the_units_are_those_of_the_program(name: str, golden: Golden) -> None:
    """A setting that is added needs no edit of the units."""
    head, _, rest = (FOLDER / name).read_text().partition(SETTINGS)
    _, _, tail = rest.partition(DISKS)
    golden(FOLDER / name, f"{head}{SETTINGS}{writable()}{DISKS}{tail}")


@pytest.mark.parametrize("name", WRITERS)
def test_writable_is_what_the_knobs_need(name: str) -> None:
    """Every setting that is a file can be written, and every path that is opened belongs to a setting."""
    opened = {path.removeprefix("-") for path in settings(name, "ReadWritePaths")}
    patterns = [knob.path.replace("{item}", "[^/]+").replace("*", "[^/]*") for knob in (*SYSCTLS.values(), *SYSFS.values())]

    for knob in (*SYSCTLS.values(), *SYSFS.values()):
        path = knob.path.replace("{item}", "vda").replace("*", "0")
        assert any(path == folder or path.startswith(f"{folder}/") for folder in opened), knob.name
    for path in opened - {CPUFREQ, *PERSISTENT}:
        assert any(re.fullmatch(pattern, path) for pattern in patterns), path


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_file_does_not_keep_it_from_starting(name: str) -> None:
    """Each writable path may be absent: a virtual machine has no cpufreq."""
    assert all(path.startswith("-") for path in settings(name, "ReadWritePaths"))


@pytest.mark.parametrize("name", WRITERS)
def test_no_capability_but_one(name: str) -> None:
    """CAP_SYS_NICE, for other users' processes. What needs more is in a drop-in, which names it."""
    assert settings(name, "CapabilityBoundingSet") == ["CAP_SYS_NICE"]

    text = (FOLDER / "sysperf-helper.service.d/more-settings.conf.example").read_text()
    assert all(knob in text for knob in MORE)
    assert MORE | {"shm.size_bytes"} <= set(KNOBS)


def test_the_agent_can_do_nothing() -> None:
    """No capability, no setting, no network: reading is all that is left."""
    assert settings("sysperf-agent.service", "CapabilityBoundingSet") == []
    assert settings("sysperf-agent.service", "ReadWritePaths") == []
    assert settings("sysperf-agent.service", "RestrictAddressFamilies") == ["AF_UNIX"]
    assert settings("sysperf-agent.service", "DynamicUser") == ["yes"]


def test_agent_and_helper_share_no_folder() -> None:
    """The agent's history and the journal of changes are apart, and the sockets are systemd's."""
    assert settings("sysperf-agent.service", "StateDirectory") == ["sysperf-agent"]
    assert settings("sysperf-helper.service", "StateDirectory") == ["sysperf"]
    assert settings("sysperf-agent.service", "RuntimeDirectory") == []

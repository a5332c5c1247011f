"""Who else sets the same is named and left alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sysperf.fix import conflicts
from sysperf.model.change import Conflict
from tests.fix.kernel import Machine

TUNED = "/usr/lib/tuned/"


def machine(folder: Path, files: dict[str, str], running: Sequence[str] = ()) -> Machine:
    """A machine with these files and daemons."""
    processes = {f"/proc/{700 + number}/comm": name for number, name in enumerate(running)}
    sandbox = Machine.make(folder / "m", files)
    for path, text in processes.items():
        file = Path(f"{folder}/m/root{path}")
        file.parent.mkdir(parents=True)
        file.write_text(text + "\n")
    sandbox.kernel.has_processes = True
    return sandbox


def who(sandbox: Machine, *wishes: str) -> tuple[Conflict, ...]:
    """The conflicts; what has one is not in the plan, and is when forced."""
    planned, forced = sandbox.plan(*wishes), sandbox.plan(*wishes, force=True)
    disputed = {conflict.knob for conflict in planned.conflicts}
    assert not {change.knob for change in planned.changes} & disputed
    assert disputed <= {change.knob for change in forced.changes}
    assert {skip.setting.knob for skip in planned.skipped} >= disputed
    return planned.conflicts


def test_nobody(tmp_path: Path) -> None:
    """On a machine without them all is planned."""
    assert who(machine(tmp_path, {}, ["bash", "python3"]), "vm.swappiness=10", "cpu.governor=performance") == ()


@pytest.mark.parametrize(
    ("comm", "name", "wish"),
    [
        ("power-profiles-", "power-profiles-daemon", "cpu.governor=performance"),
        ("auto-cpufreq", "auto-cpufreq", "cpu.governor=performance"),
        ("thermald", "thermald", "cpu.max_freq_khz=3000000"),
    ],
)
def test_a_daemon_that_runs(tmp_path: Path, comm: str, name: str, wish: str) -> None:
    """By the name that the kernel keeps of it, told by its whole name."""
    sandbox = machine(tmp_path, {}, [comm])
    assert [(conflict.who, conflict.what) for conflict in who(sandbox, wish, "vm.swappiness=10")] == [
        (name, "is running and sets it by itself")
    ]
    assert [change.knob for change in sandbox.plan(wish, "vm.swappiness=10").changes] == ["vm.swappiness"]
    assert conflicts.setters(sandbox.host, wish.partition("=")[0]) == (name,)


def test_tuned_sets_what_its_profile_says(tmp_path: Path) -> None:
    """With the profiles that it includes; an administrator's own profile comes before the shipped one."""
    files = {
        "/etc/tuned/active_profile": "mine extra",
        "/etc/tuned/mine/tuned.conf": "[main]\nsummary=x\ninclude=throughput\n\n[cpu]\ngovernor=performance|powersave\n",
        TUNED + "mine/tuned.conf": "[disk]\nreadahead=>4096\n",
        TUNED + "throughput/tuned.conf": "[vm]\ntransparent_hugepages=always # why\n[sysctl]\nvm.dirty_ratio = 40\n#vm.swappiness=1\n",
        "/etc/tuned/profiles/extra/tuned.conf": "[sysctl]\nkernel.numa_balancing=>0\n",
    }
    sandbox = machine(tmp_path, files, ["tuned"])
    wishes = (
        "cpu.governor=performance",
        "thp.enabled=always",
        "vm.dirty_ratio=30",
        "vm.swappiness=10",
        "kernel.numa_balancing=0",
        "block.read_ahead_kb@nvme0n1=512",
    )
    assert {conflict.knob: conflict.what for conflict in who(sandbox, *wishes)} == {
        "cpu.governor": "is running and sets it to performance|powersave (profile mine)",
        "thp.enabled": "is running and sets it to always (profile mine)",
        "vm.dirty_ratio": "is running and sets it to 40 (profile mine)",
        "kernel.numa_balancing": "is running and sets it to 0 (profile extra)",
    }


def test_tuned_that_does_not_run_sets_nothing(tmp_path: Path) -> None:
    """A profile alone is only a file."""
    files = {"/etc/tuned/active_profile": "p", TUNED + "p/tuned.conf": "[sysctl]\nvm.swappiness=1\n"}
    assert who(machine(tmp_path, files), "vm.swappiness=10") == ()


@pytest.mark.parametrize(
    "files",
    [
        {TUNED + "p/tuned.conf": "[main]\ninclude=p p p p p p p p p p p p\n[sysctl]\nvm.swappiness=1\n"},
        {TUNED + "p/tuned.conf": "[main]\ninclude=q,q,q\n", TUNED + "q/tuned.conf": "[main]\ninclude=p q\n[sysctl]\nvm.swappiness=1\n"},
        {TUNED + "p/tuned.conf": f"[main]\ninclude={' '.join(f'p{n}' for n in range(5_000))}\n[sysctl]\nvm.swappiness=1\n"},
        {TUNED + "p/tuned.conf": "[main]\ninclude=../../../etc /etc .. .\n[sysctl]\nvm.swappiness=1\n"},
    ],
)
def test_profiles_that_include_themselves(tmp_path: Path, files: dict[str, str]) -> None:
    """Each is read once, and not without end."""
    sandbox = machine(tmp_path, {"/etc/tuned/active_profile": "p", **files}, ["tuned"])
    assert {conflict.knob for conflict in who(sandbox, "vm.swappiness=10")} == {"vm.swappiness"}
    assert len(sandbox.host.sources) < 2_000


@pytest.mark.parametrize(
    "line", ["vm.swappiness = 1", "vm.swappiness=1", "-vm.swappiness = 1", "vm/swappiness = 1", "  vm.swappiness\t=\t1"]
)
@pytest.mark.parametrize("path", ["/etc/sysctl.conf", "/etc/sysctl.d/10-mine.conf", "/run/sysctl.d/x.conf"])
def test_an_administrators_file(tmp_path: Path, path: str, line: str) -> None:
    """Is somebody's choice, in each spelling that sysctl.d has."""
    (sandbox,) = who(machine(tmp_path, {path: f"# a comment\n{line}\n"}), "vm.swappiness=10")
    assert (sandbox.who, sandbox.what) == (path, "sets it to 1: somebody's choice, which stays")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/etc/sysctl.conf", "#vm.swappiness = 1"),
        ("/etc/sysctl.conf", "; vm.swappiness = 1"),
        ("/etc/sysctl.conf", "vm.swappiness2 = 1"),
        ("/etc/sysctl.d/mine.conf.bak", "vm.swappiness = 1"),
        ("/usr/lib/sysctl.d/50-default.conf", "vm.swappiness = 1"),
        ("/etc/sysctl.d/90-sysperf-000001.conf", "vm.swappiness = 1"),
    ],
)
def test_what_is_no_choice_of_theirs(tmp_path: Path, path: str, line: str) -> None:
    """Comments, backups, what the distribution ships, and our own file."""
    assert who(machine(tmp_path, {path: line + "\n"}), "vm.swappiness=10") == ()


def test_the_kernels_command_line(tmp_path: Path) -> None:
    """transparent_hugepage= was chosen at the start."""
    (sandbox,) = who(machine(tmp_path, {"/proc/cmdline": "ro quiet transparent_hugepage=never"}), "thp.enabled=always", "vm.swappiness=10")
    assert (sandbox.who, sandbox.knob) == ("the kernel's command line", "thp.enabled")


def test_texts_of_others_are_harmless(tmp_path: Path) -> None:
    """A value with an escape sequence, of any length."""
    (sandbox,) = who(machine(tmp_path, {"/etc/sysctl.conf": f"vm.swappiness = \x1b[31m{'x' * 500}\n"}), "vm.swappiness=10")
    assert "\x1b" not in sandbox.what
    assert len(sandbox.what) < 100

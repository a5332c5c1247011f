"""What is set at every start: files in the system's own formats, gone when undone, left alone when edited."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sysperf.fix import recovery, transaction
from tests.fix.kernel import SWAPPINESS, Machine, asked
from tests.invoking import program

SYSCTL, TMPFILES = "/etc/sysctl.d/90-sysperf-000001.conf", "/etc/tmpfiles.d/sysperf-000001.conf"


@pytest.fixture
def kept(sandbox: Machine) -> Machine:
    """A machine with three settings that last."""
    planned = sandbox.plan("vm.swappiness=10", "cpu.governor=performance", "block.read_ahead_kb@nvme0n1=512")
    done = transaction.apply(sandbox.host, sandbox.journal, planned, asked(persist=True))
    assert done.state == "applied"
    assert done.persisted == (SYSCTL, TMPFILES)
    return sandbox


def content(machine: Machine, path: str) -> str:
    return Path(f"{machine.folder}/root{path}").read_text()


def test_files_say_what_they_are(kept: Machine) -> None:
    """Who wrote them, how to get rid of them, one setting a line; readable by all, without leftovers."""
    assert content(kept, SYSCTL) == "# sysperf wrote this with transaction 1; `sysperf undo 1` removes it.\nvm.swappiness = 10\n"
    assert content(kept, TMPFILES).splitlines()[1:] == [
        *(f"w /sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor - - - - performance" for number in (0, 1, 10)),
        "w /sys/block/nvme0n1/queue/read_ahead_kb - - - - 512",
    ]
    assert os.stat(f"{kept.folder}/root{SYSCTL}").st_mode & 0o777 == 0o644
    assert os.listdir(f"{kept.folder}/root/etc/sysctl.d") == ["90-sysperf-000001.conf"]


def test_sysctl_reads_them(kept: Machine) -> None:
    """procps' own parser, told to write nothing."""
    if not (sysctl := program("sysctl")):
        pytest.skip("no sysctl: install procps")
    done = subprocess.run([sysctl, "--dry-run", "-p", f"{kept.folder}/root{SYSCTL}"], capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this sysctl has no --dry-run")
    assert done.stdout.strip() == "vm.swappiness = 10"
    assert not done.returncode


def test_systemd_reads_them(kept: Machine) -> None:
    """systemd-tmpfiles on a root of its own, where it really writes."""
    if not shutil.which("systemd-tmpfiles"):
        pytest.skip("no systemd-tmpfiles: install systemd")
    kept.kernel.put("/sys/block/nvme0n1/queue/read_ahead_kb", "128")
    root = f"{kept.folder}/root"
    done = subprocess.run(
        ["systemd-tmpfiles", f"--root={root}", "--create", f"{root}{TMPFILES}"], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    assert kept.kernel.get("/sys/block/nvme0n1/queue/read_ahead_kb") == "512"


def test_undoing_removes_them(kept: Machine) -> None:
    """First the files, then the values; nothing of ours is left."""
    done = recovery.undo(kept.host, kept.journal, 1)
    assert [result.step.change.target for result in done][:2] == [TMPFILES, SYSCTL]
    assert not os.listdir(f"{kept.folder}/root/etc/sysctl.d")
    assert not os.listdir(f"{kept.folder}/root/etc/tmpfiles.d")
    assert kept.kernel.get(SWAPPINESS) == "60"


def test_a_file_that_somebody_edited_is_kept(kept: Machine) -> None:
    """And named; --force removes it."""
    with open(f"{kept.folder}/root{SYSCTL}", "a") as file:
        file.write("vm.overcommit_memory = 1\n")
    done = {result.step.change.target: result for result in recovery.undo(kept.host, kept.journal, 1)}
    assert (done[SYSCTL].step.state, done[SYSCTL].message) == ("foreign", "somebody has edited it since")
    assert "overcommit" in content(kept, SYSCTL)
    recovery.undo(kept.host, kept.journal, 1, force=True)
    assert not os.path.exists(f"{kept.folder}/root{SYSCTL}")


def test_a_file_that_somebody_removed_is_gone(kept: Machine) -> None:
    """That is what undoing would have done."""
    os.unlink(f"{kept.folder}/root{SYSCTL}")
    assert {result.step.state for result in recovery.undo(kept.host, kept.journal, 1)} == {"undone"}


def test_a_file_that_is_there_already_is_not_overwritten(sandbox: Machine) -> None:
    """Somebody's file of our name: refused, and all is taken back."""
    Path(f"{sandbox.folder}/root{SYSCTL}").write_text("vm.swappiness = 77\n")
    done = transaction.apply(sandbox.host, sandbox.journal, sandbox.plan("vm.swappiness=10"), asked(persist=True))
    assert done.state == "rolled-back"
    assert content(sandbox, SYSCTL) == "vm.swappiness = 77\n"
    assert sandbox.kernel.get(SWAPPINESS) == "60"


def test_without_the_folder_it_is_refused(sandbox: Machine) -> None:
    """A system without tmpfiles.d: nothing is changed."""
    os.rmdir(sandbox.folder / "root/etc/tmpfiles.d")
    done = transaction.apply(
        sandbox.host, sandbox.journal, sandbox.plan("vm.swappiness=10", "cpu.governor=performance"), asked(persist=True)
    )
    assert done.state == "rolled-back"
    assert done.steps[-1].reason == "No such file or directory"
    assert sandbox.kernel.get(SWAPPINESS) == "60"
    assert not os.listdir(sandbox.folder / "root/etc/sysctl.d")


def test_settings_without_such_a_mechanism_are_not_written_down(sandbox: Machine) -> None:
    """A process has no next start."""
    planned = sandbox.plan(f"process.io_class@{os.getpid()}=idle")
    done = transaction.apply(sandbox.host, sandbox.journal, planned, asked(persist=True))
    recovery.undo(sandbox.host, sandbox.journal, 1)
    assert done.persisted == ()
    assert len(done.steps) == 1

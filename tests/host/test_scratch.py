"""Folders for temporary files: whose are removed, and whose stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf.host.scratch import Scratch, sweep

OWNER = "import sys, time; from sysperf.host.scratch import Scratch; held = Scratch('verify', sys.argv[1]); print(held.name, flush=True); time.sleep(600)"


def aged(path: Path) -> Path:
    """The same folder, last changed an hour ago."""
    os.utime(path, (1e9, 1e9))
    return path


def left(place: Path, name: str = "sysperf-verify-left") -> Path:
    """A folder with a file, as a process that was killed leaves it."""
    folder = place / name
    folder.mkdir(mode=0o700)
    (folder / "steps").write_text("1")
    return aged(folder)


def test_a_killed_owners_folder_goes_and_a_living_ones_stays(tmp_path: Path) -> None:
    """The kernel releases a lock with its process, also after kill -9."""
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        folder = aged(Path(owner.stdout.readline().strip()))
        sweep("verify", str(tmp_path))
        assert folder.is_dir()
        owner.send_signal(signal.SIGKILL)
        owner.wait(60)
    with Scratch("verify", str(tmp_path)) as ours:
        assert os.listdir(tmp_path) == [os.path.basename(ours)]
    assert os.listdir(tmp_path) == []


def test_what_is_new_or_of_another_kind_stays(tmp_path: Path) -> None:
    """A folder that was made a moment ago may not be locked yet."""
    new, other = left(tmp_path), left(tmp_path, "sysperf-demo-left")
    os.utime(new)

    sweep("verify", str(tmp_path))

    assert new.is_dir()
    assert other.is_dir()


def test_links_files_and_folders_that_others_may_enter_stay(tmp_path: Path) -> None:
    """What mkdtemp has not made is not ours."""
    (tmp_path / "elsewhere").mkdir()
    precious = left(tmp_path / "elsewhere", "precious")
    (tmp_path / "sysperf-verify-link").symlink_to(precious)
    (tmp_path / "sysperf-verify-file").write_text("")
    shared = left(tmp_path, "sysperf-verify-shared")
    shared.chmod(0o755)

    sweep("verify", str(tmp_path))

    assert (precious / "steps").is_file()
    assert len(os.listdir(tmp_path)) == 4


def test_another_users_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for root, who could remove it."""
    folder = left(tmp_path)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)

    sweep("verify", str(tmp_path))

    assert folder.is_dir()


def test_a_place_that_cannot_be_listed_is_no_error(tmp_path: Path) -> None:
    """Nothing is swept; making a folder there says what is wrong."""
    sweep("verify", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError):
        Scratch("verify", str(tmp_path / "absent"))


def test_a_folder_may_be_removed_twice(tmp_path: Path) -> None:
    """By its owner, and by `with` around it."""
    with Scratch("verify", str(tmp_path)) as ours, open(f"{ours}/steps", "w") as steps:
        steps.write("1")
    scratch = Scratch("verify", str(tmp_path))
    scratch.cleanup()
    scratch.cleanup()

    assert os.listdir(tmp_path) == []

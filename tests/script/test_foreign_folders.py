"""`lint --fix` and `--undo` by root where another user may exchange files and links meanwhile."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sysperf.script import backups
from tests.script.scripts import TRAINING
from tests.script.test_lint_cli import lint

pytestmark = pytest.mark.root(users=True)
NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of root's that nobody else may read."""
    path = tmp_path / "secret.py"
    path.write_text(TRAINING)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("call", ["chown", "fchown", "chmod", "fchmod"])
def test_a_link_in_place_of_the_new_file_is_not_followed(call: str, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the folder lays it the moment before root sets owner and mode: the file that it leads to stays root's."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "train.py").write_bytes(b"before")
    os.chown(folder / "train.py", NOBODY, NOBODY)
    (folder / "train.py").chmod(0o666)
    attacks = []
    honest: Callable[..., Any] = getattr(os, call)

    def attacked(target: Any, *arguments: Any, **how: Any) -> None:
        for place in folder.glob(".sysperf-*"):
            place.unlink()
            place.symlink_to(victim)
            attacks.append(place)
        honest(target, *arguments, **how)

    monkeypatch.setattr(os, call, attacked)
    backups.write(str(folder / "train.py"), b"before", b"after")

    status = victim.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o600)
    assert bool(attacks) == call.startswith("f")


def test_owner_and_mode_stay_when_root_writes(tmp_path: Path) -> None:
    """The file is the user's as before."""
    path = tmp_path / "train.py"
    path.write_bytes(b"before")
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o640)
    backups.write(str(path), b"before", b"after")

    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777, path.read_bytes()) == (NOBODY, NOBODY, 0o640, b"after")
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_that_another_user_made_is_not_written_through(victim: Path, tmp_path: Path) -> None:
    """It would have root change a file that this user may not even read; a link of root's own is."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "train.py").symlink_to(victim)
    os.lchown(folder / "train.py", NOBODY, NOBODY)

    assert "a link that another user made" in lint(folder, "train.py", "--fix", "--yes", code=3)
    assert victim.read_text() == TRAINING
    os.lchown(folder / "train.py", 0, 0)
    lint(folder, "train.py", "--fix", "--yes")
    assert victim.read_text() != TRAINING
    assert (folder / "train.py").is_symlink()


def test_a_record_that_another_user_wrote_restores_nothing(tmp_path: Path) -> None:
    """It could name any file and any content."""
    (tmp_path / "train.py").write_text(TRAINING)
    lint(tmp_path, "train.py", "--fix", "--yes")
    fixed = (tmp_path / "train.py").read_text()
    (record,) = (tmp_path / "state/sysperf/lint").glob("*.json")
    os.chown(record, NOBODY, NOBODY)

    assert "another user wrote it" in lint(tmp_path, "--undo", code=2)
    assert (tmp_path / "train.py").read_text() == fixed
    os.chown(record, 0, 0)
    record.rename(record.with_suffix(".kept"))
    record.symlink_to(record.with_suffix(".kept"))
    assert "symbolic links" in lint(tmp_path, "--undo", code=2)
    assert (tmp_path / "train.py").read_text() == fixed

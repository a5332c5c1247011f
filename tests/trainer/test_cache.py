"""Where the trainer keeps what it makes, beside other users of the machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from sysperf_trainer import cache
from sysperf_trainer.errors import TrainerError

USER = 65_531


@pytest.mark.root(users=True)
def test_data_lies_in_no_folder_that_another_user_leads_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in the folder for temporary files, and in a home that was kept, would have had root write where they lead."""
    home, target = tmp_path / "home", tmp_path / "target"
    for folder in (home / "sysperf", target):
        folder.mkdir(parents=True)
    os.chown(home, USER, USER)
    link = tmp_path / f"sysperf-trainer-{os.getuid()}.taken"
    link.symlink_to(target)
    os.chown(link, USER, USER, follow_symlinks=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Path(cache.root(""))

    assert made.parent == tmp_path
    assert made.stat().st_mode & 0o7777 == 0o700
    assert not [*home.glob("sysperf/*"), *target.iterdir()]
    assert cache.root("") == str(made)  # the next run finds what this one made


def test_a_folder_that_was_asked_for_is_the_only_one(tmp_path: Path) -> None:
    """Data that lie elsewhere than the user said fill another disk."""
    (tmp_path / "file").touch()

    with pytest.raises(TrainerError, match="--cache"):
        cache.root(str(tmp_path / "file"))

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
    link = tmp_path / f"sysperf-trainer-{os.getuid()}"
    link.symlink_to(target)
    os.chown(link, USER, USER, follow_symlinks=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TrainerError, match="--cache"):
        cache.root("")
    assert not list(home.glob("sysperf/*"))
    link.unlink()

    assert cache.root("") == str(link)

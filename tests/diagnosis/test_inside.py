"""What a diagnosis reads of another user's program: its source, and the trace that it wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sysperf.engine import diagnose_inside
from sysperf.host import Host
from sysperf.model.errors import SysperfError
from sysperf.model.profile import Frame


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_what_is_no_trace_is_not_opened(tmp_path: Path, kind: str) -> None:
    """The folder belongs to the program's user while it writes: root would wait for a pipe for ever, or read another file."""
    path, other = tmp_path / "trace.json", tmp_path / "other"
    other.write_text("{}")
    {"link": path.symlink_to, "hard link": path.hardlink_to}.get(kind, lambda _: os.mkfifo(path))(other)

    with pytest.raises(SysperfError, match="no trace"):
        diagnose_inside._take_back(str(tmp_path), str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_the_folder_is_ours_again_before_the_trace_is_read(tmp_path: Path) -> None:
    """Else its user could replace the file between the look and the reading."""
    (tmp_path / "trace.json").write_text("{}")
    os.chown(tmp_path, 65_534, 65_534)
    diagnose_inside._take_back(str(tmp_path), str(tmp_path / "trace.json"))

    assert tmp_path.stat().st_uid == 0


def test_a_program_of_a_thousand_files_is_read_in_part(tmp_path: Path) -> None:
    """A program may name as many files as it likes, each of megabytes."""
    for number in range(1_000):
        (tmp_path / f"{number}.py").write_text("x = 1\n")
    inside = diagnose_inside.Inside(Host(), "", [])
    lines = [inside.line(os.getpid(), Frame("f", f"{tmp_path}/{number}.py", 1)) for number in range(1_000)]

    assert lines[:2] == ["x = 1", "x = 1"]
    assert 0 < sum(map(bool, lines)) <= 100

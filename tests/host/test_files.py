"""Files that sysperf writes where the user says: pipes and devices, too."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sysperf.host import files


def test_a_pipe_that_nobody_reads_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a socket, whose error is the same."""
    monkeypatch.setattr(files, "READER_S", 0.2)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="nobody reads this pipe"):
        files.replace(str(tmp_path / "pipe"), b"x")


def test_whoever_reads_a_pipe_may_come_later_and_gets_all(tmp_path: Path) -> None:
    """More than a pipe holds."""
    path, content, read = tmp_path / "pipe", b"x" * 300_000, list[bytes]()
    os.mkfifo(path)
    writer = threading.Thread(target=files.replace, args=(str(path), content))
    writer.start()
    read.append(path.read_bytes())
    writer.join()

    assert read == [content]


def test_a_device_is_written_to(tmp_path: Path) -> None:
    files.replace("/dev/null", b"x")
    with pytest.raises(OSError, match="No space left"):
        files.replace("/dev/full", b"x")

"""Reports and captures, as they are told apart."""

import os
import threading
from pathlib import Path

import pytest

from sysperf.engine.reading import is_json, read_machine
from sysperf.model.errors import CaptureError
from sysperf.model.record import to_json
from sysperf.model.snapshot import Snapshot


def test_a_pipe_is_read_as_a_whole() -> None:
    """`diff <(cat a.json) b.json`: what tells a report from a capture takes nothing away from it."""
    snapshot = Snapshot(taken_at="2026-01-01T00:00:00Z", areas={})
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as file:
            file.write(to_json(snapshot) + b" " * 4096)

    writer = threading.Thread(target=write)
    writer.start()

    assert read_machine(f"/proc/self/fd/{reading}") == snapshot
    writer.join()
    os.close(reading)


def test_files_are_told_by_their_first_letter(tmp_path: Path) -> None:
    """A report begins with a brace; a folder and what is not there are no reports."""
    (tmp_path / "report").write_text(" {}")
    (tmp_path / "other").write_text("x{}")

    assert is_json(tmp_path / "report")
    assert not is_json(tmp_path / "other")
    assert not is_json(tmp_path)
    assert not is_json(tmp_path / "nothing")
    with pytest.raises(CaptureError):
        read_machine(tmp_path / "nothing")

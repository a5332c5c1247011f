"""What tests of several commands share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FULL = 96 << 10
"""Bytes of a file system that one file fills."""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small file system without room for another byte, or another file."""
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={FULL},nr_inodes=8,mode=700", "none", folder), check=True)
    try:
        (folder / "fill").write_bytes(bytes(FULL))
        yield folder
    finally:
        subprocess.run(("umount", folder), check=True)

"""What tests of several commands share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FULL = 96 << 10
"""Bytes of a file system that one file fills."""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small file system without room for another byte, or another file."""
    if os.geteuid() != 0:
        pytest.skip("to mount a file system needs root")
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={FULL},nr_inodes=8,mode=700", "none", folder), check=False)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        (folder / "fill").write_bytes(bytes(FULL))
        yield folder
    finally:
        subprocess.run(("umount", folder), check=True)

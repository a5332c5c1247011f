"""Paths are text: pathlib costs 5 ms to import and 0.5 MB, more than what we do with paths. Callers may give theirs."""

from __future__ import annotations

import os
from typing import TypeAlias

StrPath: TypeAlias = "str | os.PathLike[str]"

"""Golden files: what a rendered report looks like, kept to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[str, str], None]
FOLDER = Path(__file__).parent / "golden"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the golden file of this name, or write it with ``--update``."""

    def check(name: str, text: str) -> None:
        path = FOLDER / name
        if request.config.getoption("--update"):
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} changed: look at it, then run pytest with --update"

    return check

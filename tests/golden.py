"""Generated files that are kept to be looked at: golden reports and screens, tables in docs, man pages.

A test that keeps one takes the fixture `golden`. `make generated` runs those tests alone and writes the files anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update`` writes generated files anew; look at the difference before you keep it."""
    parser.addoption("--update", action="store_true", help="run the tests of generated files only, and write these files anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--update``, only the tests that keep a generated file run."""
    if config.getoption("--update"):
        keeping = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in keeping])
        items[:] = keeping


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a generated file, or write the file with ``--update``."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        kept = path.read_text(encoding="utf-8")
        assert text == kept, f"{path.relative_to(ROOT)} changed: run `make generated`, and look at the difference"

    return check

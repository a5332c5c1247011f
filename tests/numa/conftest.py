"""The machines that tests boot. Where the tools are missing they are skipped, and the reason names the packages."""

from __future__ import annotations

import pytest

from tests.numa import image


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    reason = image.missing()
    if reason:
        pytest.skip(reason)

"""Collecting thousands of tests in several workers at little cost: a plugin of pytest."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage, and never look for it among the tests, which stay until the end."""
    gc.disable()
    try:
        _import_tests(session)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_tests(session: pytest.Session) -> None:
    """Import the modules of tests, in each worker from another place on.

    In a fresh checkout each module is compiled once, then, instead of once by each worker: the others read its byte code.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    paths = [path for path in sorted(ROOT.glob("tests/**/test_*.py")) if _is_asked_for(session.config, path)]
    first = len(paths) * int(worker.removeprefix("gw") or 0) // workers
    for path in (*paths[first:], *paths[:first]) if worker else ():
        with contextlib.suppress(Exception, pytest.skip.Exception):  # told when it is collected
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _is_asked_for(config: pytest.Config, path: Path) -> bool:
    """Whether a path lies in what pytest was called with."""
    asked = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return any(path.is_relative_to(folder) for folder in asked)

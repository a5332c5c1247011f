"""Fuzzers of launch profiles: the program is started by it, or one error says what is wrong with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given

from sysperf.cli import main
from sysperf.launch import profile
from sysperf.model.errors import ConfigError
from tests.fuzzing import fuzz
from tests.mutation import damaged_bytes, damaged_json

GOOD = b"""# tuned
schema = 1
threads = 4
cpus = "0-1"
allocator = "tcmalloc"
memory_policy = "interleave"
interop_threads = 1
loader_workers = 2
loader_prefetch = 4
only = ["threads.intra-op"]
note = "tuned"

[set]
OMP_NUM_THREADS = "4"

[params."threads.intra-op"]
share = 0.5
"""


@fuzz
@given(damaged_bytes(GOOD))
def test_damaged_profiles(capfd: pytest.CaptureFixture[str], raw: bytes) -> None:
    started(capfd, raw)


@fuzz
@given(damaged_json(tomli.loads(GOOD.decode())))
def test_profiles_with_values_of_any_kind(capfd: pytest.CaptureFixture[str], data: Any) -> None:
    """As far as TOML has them."""
    lines = [f"{name} = {profile._toml(value)}" for name, value in data.items() if isinstance(value, (str, int, float, list))]
    started(capfd, "\n".join(lines).encode("utf-8", "replace"))


def started(capfd: pytest.CaptureFixture[str], raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_bytes(raw)
        code = main(["wrap", "--print", "shell", "--profile", str(path), "--", "true"])
        said = capfd.readouterr()
        try:
            again = profile.text(profile.read(str(path)))
        except ConfigError as error:
            assert error.hint  # noqa: PT017 - some of what is drawn is a profile, most is none
            again = ""
    assert code in (0, 2)
    assert "internal error" not in said.err
    assert not again or tomli.loads(again)["schema"] == 1

"""Every captured machine: the command that `wrap --print` gives for typical programs, looked at by hand against its topology."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf.engine import wrap
from sysperf.launch.shown import command_line
from sysperf.model.cpuset import CpuSet
from tests.collect.machines import every_machine
from tests.conftest import captured
from tests.golden import Golden

FOLDER = Path(__file__).parent / "golden"
LAUNCHES = {
    "one program": (("python", "train.py"), None, {}),
    "two threads": (("python", "train.py"), None, {"threads": 2}),
    "two instances": (("python", "serve.py"), 2, {}),
    "four ranks": (("python", "train.py"), 4, {}),
}


@pytest.fixture(scope="module", autouse=True)
def _fresh_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Somebody without a configuration, whose cache has the rules after the first machine."""
    folder = str(tmp_path_factory.mktemp("user"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", folder)
        patched.setenv("XDG_CONFIG_HOME", folder)
        yield


def commands(kind: str, name: str) -> str:
    """The commands for all kinds of launches on one machine."""
    host, ruleset, lines = captured(kind, name), wrap.rules(), []
    for title, (argv, ranks, wishes) in LAUNCHES.items():
        lines.append(f"# {title}")
        for rank in range(ranks or 1):
            env = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)} if ranks else {}
            request = wrap.LaunchRequest(argv=argv, **wishes)  # type: ignore[arg-type]  # as the table has them
            decision = wrap.wrap(host, ruleset, request, env, "/")
            lines += [command_line(decision.plan), *(f"#   {note}" for note in decision.plan.notes)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_each_captured_machine(golden: Golden, kind: str, name: str) -> None:
    """The same commands as were reviewed."""
    golden(FOLDER / f"{name}.txt", commands(kind, name))


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_ranks_share_no_core(kind: str, name: str) -> None:
    """Whatever the machine: up to as many ranks as cores, every rank has CPUs of its own, inside what is allowed and online."""
    host, ruleset = captured(kind, name), wrap.rules()
    for size in (2, 3):
        masks = []
        for rank in range(size):
            env = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
            placement = wrap.wrap(host, ruleset, wrap.LaunchRequest(argv=("python", "x.py")), env, os.sep).placement
            assert placement.cpus
            assert placement.allowed is not None
            assert placement.cpus.issubset(placement.allowed)
            masks.append(placement.cpus)
        whole = CpuSet.union(masks)
        assert any("share" in note for note in placement.notes) or sum(map(len, masks)) == len(whole)

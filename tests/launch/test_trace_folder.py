"""The folder for the sockets of traces on demand, where other users take names in /tmp."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sysperf.launch import trace_folder
from sysperf.model.errors import UsageError

OTHER = 65_532
as_root = pytest.mark.root(users=True)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as /tmp is, and no other of a login."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(trace_folder, "_TEMPORARY", str(folder))
    monkeypatch.setattr(trace_folder, "MAX_BYTES", 200)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return folder


def theirs(at: Path, mode: int = 0o755) -> None:
    """A folder of another user."""
    at.mkdir(mode)
    at.chmod(mode)
    os.chown(at, OTHER, -1)


def opened(at: Path) -> None:
    """A folder of ours in which everybody may exchange what lies there."""
    at.mkdir()
    at.chmod(0o777)


def link_of_another(at: Path, target: Path) -> None:
    """A link to a folder of ours, which its owner can lead elsewhere later."""
    target.mkdir()
    at.symlink_to(target)
    os.lchown(at, OTHER, -1)


def test_the_usual_name_is_used_again(temporary: Path) -> None:
    """A launch leaves no new folder behind, and what is expected is what is made."""
    folder = trace_folder.made({})

    assert folder == trace_folder.made({}) == trace_folder.expected({}) == f"{temporary}/sysperf-{os.geteuid()}/sysperf/kineto"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_sockets_of_programs_that_are_gone_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kineto leaves its own behind. One that somebody listens on stays, as does what was made just now and what is no socket of Kineto's."""
    with contextlib.ExitStack() as stack:
        monkeypatch.setenv("XDG_RUNTIME_DIR", stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir="/tmp")))
        folder = Path(trace_folder.made({}))
        bound = {name: stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for name in ("lives", "gone", "new")}
        for name, end in bound.items():
            end.bind(f"{folder}/dynoconfigclient{name}")
        bound["gone"].close()
        bound["new"].close()
        (folder / "dynoconfigclientfile").touch()
        for path in folder.iterdir():
            if path.name != "dynoconfigclientnew":
                os.utime(path, (0, 0))
        (folder / "dynolog").touch()

        trace_folder.made({})

        assert sorted(path.name.removeprefix("dynoconfigclient") for path in folder.iterdir()) == ["dynolog", "file", "lives", "new"]


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(theirs, marks=as_root),
        pytest.param(partial(theirs, mode=0o777), marks=as_root),
        pytest.param(lambda at: link_of_another(at, at.with_name("target")), marks=as_root),
        opened,
        Path.touch,
    ],
)
def test_whoever_takes_the_usual_name_denies_nothing(temporary: Path, take: Callable[[Path], None]) -> None:
    """The folder then has a name that nobody could know before; what lies at the usual one is not touched."""
    usual = temporary / f"sysperf-{os.geteuid()}"
    take(usual)
    folder = trace_folder.made({})

    assert Path(folder).parent == temporary
    assert Path(folder) != usual
    status = os.stat(folder)
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o700)
    assert not usual.is_dir() or [*usual.iterdir()] == []


@as_root
def test_a_folder_that_is_taken_while_it_is_made_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the making."""
    make = os.makedirs

    def raced(path: str, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        theirs(temporary / f"sysperf-{os.geteuid()}")
        make(path, mode, exist_ok=exist_ok)

    monkeypatch.setattr(os, "makedirs", raced)
    folder = Path(trace_folder.made({}))

    assert (folder.parent, folder.stat().st_uid) == (temporary, 0)


def test_where_everybody_may_exchange_every_name_nothing_is_made(temporary: Path) -> None:
    """A /tmp without its sticky bit: a tracing daemon of anybody could have the program write where it likes."""
    temporary.chmod(0o777)

    with pytest.raises(UsageError, match="exchange"):
        trace_folder.made({})
    with pytest.raises(UsageError, match="exchange"), trace_folder.lent({}):
        pass
    assert [*temporary.iterdir()] == []


def test_a_folder_lent_to_a_program_goes_with_it(temporary: Path) -> None:
    """With the sockets in it; the one that the environment names stays."""
    with trace_folder.lent({}) as folder:
        Path(folder, "dynolog").touch()
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert [*temporary.iterdir()] == []
    with trace_folder.lent({trace_folder.VARIABLE: str(temporary)}) as folder:
        assert folder == str(temporary)
    assert temporary.exists()

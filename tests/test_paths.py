"""Our own folders: where they lie, and that no other user can lead them elsewhere."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sysperf import paths
from sysperf.cli import _options
from sysperf.ownership import EVERYBODY, stranger

USER = 65_531
as_root = pytest.mark.root(users=True)


def home() -> str:
    """The home of whoever runs the test, by the account."""
    return pwd.getpwuid(os.geteuid()).pw_dir


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The home of another user."""
    home = tmp_path / "theirs"
    (home / ".local").mkdir(parents=True)
    for path in (home, home / ".local"):
        os.chown(path, USER, USER)
    return home


def folders(environ: dict[str, str]) -> set[str]:
    """All folders of a user, less what is the same below each."""
    made = paths.config_folder(environ), paths.cache_folder(environ), paths.user_state_folder(environ), paths.data_home(environ)
    return {folder.partition("/.")[0] for folder in made}


def test_home_and_the_variables_of_xdg_say_where_files_lie(tmp_path: Path) -> None:
    """As long as they are this user's, or nobody's yet."""
    assert folders({"HOME": str(tmp_path)}) == {str(tmp_path)}
    assert folders({"HOME": "/nonexistent"}) == {"/nonexistent"}
    assert paths.user_state_folder({"HOME": "/x", "XDG_STATE_HOME": str(tmp_path / "new")}) == f"{tmp_path}/new/sysperf"
    assert paths.user_state_folder({"HOME": str(tmp_path), "XDG_STATE_HOME": "new"}) == f"{tmp_path}/.local/state/sysperf"
    assert folders({}) == folders({"HOME": "relative"}) == {home()}
    assert paths.temporary_home({"TMPDIR": str(tmp_path)}) == str(tmp_path)
    assert paths.temporary_home({}) == "/tmp"


@as_root
def test_a_home_that_sudo_has_kept_of_another_user_is_not_used(theirs: Path) -> None:
    """He may put a link there, along which root would write and remove."""
    assert folders({"HOME": str(theirs)}) == {home()}
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        assert folders({"HOME": home(), f"XDG_{name}_HOME": str(theirs / "new")}) == {home()}
    assert paths.runtime_home({"XDG_RUNTIME_DIR": str(theirs)}) == ""
    assert paths.temporary_home({"TMPDIR": str(theirs / ".local")}) == "/tmp"


@as_root
def test_a_link_in_his_own_home_does_not_make_it_roots(theirs: Path) -> None:
    """It leads to a folder of root's, where root would find everything in order."""
    (theirs / ".local").rmdir()
    (theirs / ".local").symlink_to(home())
    os.chown(theirs, 0, 0)
    assert paths.user_state_folder({"HOME": str(theirs)}) == f"{theirs}/.local/state/sysperf"
    os.lchown(theirs / ".local", USER, USER)
    assert paths.user_state_folder({"HOME": str(theirs)}) == f"{home()}/.local/state/sysperf"


def folder(at: Path, mode: int = 0o755, owner: int = 0) -> None:
    """Make a folder of this mode and owner."""
    at.mkdir()
    at.chmod(mode)
    os.chown(at, owner, -1)


def file(at: Path, mode: int) -> None:
    """Make what is no folder: nothing lies below it."""
    at.touch()
    at.chmod(mode)


def link(at: Path, target: str, owner: int = 0) -> None:
    """Make a link of this owner."""
    at.symlink_to(target)
    os.lchown(at, owner, -1)


@as_root
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (folder, None),
        (partial(folder, owner=USER), USER),
        (partial(folder, mode=0o777), EVERYBODY),
        (partial(folder, mode=0o1777), None),
        (partial(link, target="/usr"), None),
        (partial(link, target="/usr", owner=USER), USER),
        (partial(link, target="at"), EVERYBODY),
        (partial(file, mode=0o666), None),
        (str, None),
    ],
)
def test_who_decides_what_lies_at_a_path(tmp_path: Path, make: Callable[[Path], object], found: int | None) -> None:
    """Whoever owns a folder or a link of it, or may write in one that protects nobody's names; a link without an end is nobody's."""
    make(tmp_path / "at")

    assert stranger(f"{tmp_path}/at/deeper/./x") == found
    assert stranger(f"{tmp_path}/at/../none") == found


def test_sudo_finds_the_sysperf_that_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sudo does not look it is named by its path, quoted; where it finds one, or a module was run, the words stay."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    text = "run it as root: `sudo sysperf ps`"
    called = str(tmp_path / "my venv" / "sysperf")

    assert paths.pasteable(text, called, [str(tmp_path)]) == f"run it as root: `sudo '{called}' ps`"
    assert paths.pasteable("`sysperf ps`", called, []) == "`sysperf ps`"
    assert paths.pasteable(text, "/venv/lib/sysperf/__main__.py", []) == text
    (tmp_path / "sysperf").touch(mode=0o755)
    assert paths.pasteable(text, called, [str(tmp_path)]) == text


@pytest.mark.parametrize(("uid", "has_sudo", "needs"), [(0, False, False), (0, True, True), (1000, False, True)])
def test_root_without_sudo_gets_commands_without(
    uid: int, has_sudo: bool, needs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in many a container. Words about sudo stay, and so does a sudo that is no command."""
    if has_sudo:
        (tmp_path / "sudo").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    text = "where sudo is not, sudo drops it: {0}dmesg -T | {0}tee x\n{0}sysctl -w a=1; {0}sysctl -w b=1\n  fix       {0}true (`{0}sysperf ps`)"

    assert paths.pasteable(text.format("sudo "), "python", []) == text.format("sudo " if needs else "")


@pytest.mark.parametrize(("root", "said"), [("/", "  true\n"), ("machine.tar", "  sudo true\n")])
def test_commands_for_a_captured_machine_keep_their_sudo(
    root: str, said: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """They are pasted there, where sudo may be."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    _options.write("  sudo true", argparse.Namespace(output=None, root=root))

    assert capfdbinary.readouterr().out.decode() == said

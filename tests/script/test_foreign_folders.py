"""`lint --fix` and `--undo` by root where another user may exchange files and links meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sysperf.engine import judging
from sysperf.engine import lint as linting
from sysperf.engine.lint import fix as lint_fix
from sysperf.host.plain_files import ASTRAY
from sysperf.script.changes import backups
from tests.script.scripts import TRAINING
from tests.script.test_lint_cli import lint

pytestmark = pytest.mark.root(users=True)
USER = 65_531


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of root's that nobody else may read."""
    path = tmp_path / "secret.py"
    path.write_text(TRAINING)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("call", ["chown", "fchown", "chmod", "fchmod"])
def test_a_link_in_place_of_the_new_file_is_not_followed(call: str, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the folder lays it the moment before root sets owner and mode: the file that it leads to stays root's."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "train.py").write_bytes(b"before")
    os.chown(folder / "train.py", USER, USER)
    (folder / "train.py").chmod(0o666)
    attacks = []
    honest: Callable[..., Any] = getattr(os, call)

    def attacked(target: Any, *arguments: Any, **how: Any) -> None:
        for place in folder.glob(".sysperf-*"):
            place.unlink()
            place.symlink_to(victim)
            attacks.append(place)
        honest(target, *arguments, **how)

    monkeypatch.setattr(os, call, attacked)
    backups.write(str(folder / "train.py"), b"before", b"after")

    status = victim.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o600)
    assert bool(attacks) == call.startswith("f")


def test_owner_and_mode_stay_when_root_writes(tmp_path: Path) -> None:
    """The file is the user's as before."""
    path = tmp_path / "train.py"
    path.write_bytes(b"before")
    os.chown(path, USER, USER)
    path.chmod(0o640)
    backups.write(str(path), b"before", b"after")

    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777, path.read_bytes()) == (USER, USER, 0o640, b"after")
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_that_another_user_made_does_not_show_what_he_may_not_read(victim: Path, tmp_path: Path) -> None:
    """Neither named nor found, and `--fix` prints no line of it; a link of root's own leads on."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    link = folder / "train.py"
    link.symlink_to(victim)
    os.lchown(link, USER, USER)

    for asked in ("train.py", "."):
        assert ASTRAY in lint(folder, asked, "--strict", code=3)
        assert "optimizer" not in lint(folder, asked, "--fix", "--yes", code=3)
    assert victim.read_text() == TRAINING
    os.lchown(link, 0, 0)
    lint(folder, "train.py", "--fix", "--yes")
    assert victim.read_text() != TRAINING
    assert link.is_symlink()


def test_a_link_on_the_way_leads_root_as_little(victim: Path, tmp_path: Path) -> None:
    """The folder of the script is the link."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "src").symlink_to(victim.parent)
    os.lchown(folder / "src", USER, USER)

    for asked in ("src/secret.py", "src"):
        assert ASTRAY in lint(folder, asked, "--strict", code=3)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder of root's that everybody may read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("way", ["train.py", "src/train.py"])
def test_a_link_that_another_user_made_is_not_written_through(way: str, public: Path, tmp_path: Path) -> None:
    """What everybody may read is examined; it would have root change a file that this user may not write."""
    (public / "train.py").write_text(TRAINING)
    folder = tmp_path / "theirs"
    folder.mkdir()
    link = folder / way.split("/", maxsplit=1)[0]
    link.symlink_to(public / "train.py" if link.suffix else public)
    os.lchown(link, USER, USER)

    assert "a link that another user made" in lint(folder, way, "--fix", "--yes", code=3)
    assert (public / "train.py").read_text() == TRAINING


def test_a_link_to_his_own_folder_is_followed(tmp_path: Path) -> None:
    """A project that lies elsewhere and has a link in its user's home: he could write there himself."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "train.py").write_text(TRAINING)
    (tmp_path / "project").symlink_to("real")
    for path in (real, real / "train.py", tmp_path / "project"):
        os.chown(path, USER, USER, follow_symlinks=False)

    lint(tmp_path, "project/train.py", "--fix", "--yes")
    assert (real / "train.py").read_text() != TRAINING
    assert (real / "train.py").stat().st_uid == USER


@pytest.fixture
def exchange(tmp_path: Path) -> Callable[[str], Path]:
    """Exchanges a folder of another user's for a link to a folder of root's with an equal script; returns that script."""

    def exchanged(content: str) -> Path:
        (tmp_path / "roots").mkdir()
        (tmp_path / "roots/train.py").write_text(content)
        (tmp_path / "theirs/src").rename(tmp_path / "theirs/away")
        (tmp_path / "theirs/src").symlink_to(tmp_path / "roots")
        os.lchown(tmp_path / "theirs/src", USER, USER)
        return tmp_path / "roots/train.py"

    (tmp_path / "theirs/src").mkdir(parents=True)
    (tmp_path / "theirs/src/train.py").write_text(TRAINING)
    return exchanged


def test_undo_does_not_follow_a_folder_that_became_a_link(tmp_path: Path, exchange: Callable[[str], Path]) -> None:
    """The path that was kept led to the user's file, and leads to root's by now."""
    lint(tmp_path, "theirs/src/train.py", "--fix", "--yes")
    fixed = (tmp_path / "theirs/src/train.py").read_text()
    victim = exchange(fixed)

    assert "a link" in lint(tmp_path, "--undo", code=3)
    assert victim.read_text() == fixed != TRAINING


def test_fix_does_not_follow_a_folder_that_becomes_a_link(
    tmp_path: Path, exchange: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchanged at the last moment: when what the file held has been kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    keep, victims = backups.Backups.store, []

    def attacked(self: backups.Backups, changed: dict[str, tuple[bytes, bytes]]) -> backups.Batch:
        kept = keep(self, changed)
        victims.append(exchange(TRAINING))
        return kept

    monkeypatch.setattr(backups.Backups, "store", attacked)
    path = str(tmp_path / "theirs/src/train.py")
    result = lint_fix.plan(linting.lint([path], judging.load_rules()))
    done = lint_fix.write_all(result)

    assert [refused for refused, _ in done.refused] == [path]
    assert victims[0].read_text() == TRAINING


def test_a_racing_user_never_has_root_write_elsewhere(tmp_path: Path, exchange: Callable[[str], Path]) -> None:
    """His folder and his link change names as fast as he can; the file of root's that has the same content keeps it."""
    victim = exchange("before")
    theirs = tmp_path / "theirs"
    outcomes: set[str | None] = set()
    os.chown(theirs, USER, USER)
    real = os.open(theirs / "away", os.O_RDONLY)
    with changing_names(theirs):
        for _ in range(300):
            Path(f"/proc/self/fd/{real}/train.py").write_text("before")
            try:
                backups.write(f"{theirs}/src/train.py", b"before", b"after")
                outcomes.add("written")
            except OSError as error:
                outcomes.add(error.strerror)
            backups._restore(backups.Backup(f"{theirs}/src/train.py", b"restored", hashlib.sha256(b"before").hexdigest()))
    os.close(real)

    assert victim.read_text() == "before"
    assert len(outcomes) > 1, f"there was no race: {outcomes}"


@contextlib.contextmanager
def changing_names(folder: Path) -> Iterator[None]:
    """A process of the folder's owner, in which `src` is his folder and the link in turn."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            os.rename("src", "link")
            os.setresuid(USER, USER, USER)
            while True:
                for name in ("link", "away"):
                    os.rename(name, "src")
                    os.rename("src", name)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_record_that_another_user_wrote_restores_nothing(tmp_path: Path) -> None:
    """It could name any file and any content."""
    (tmp_path / "train.py").write_text(TRAINING)
    lint(tmp_path, "train.py", "--fix", "--yes")
    fixed = (tmp_path / "train.py").read_text()
    (record,) = (tmp_path / "state/sysperf/lint").glob("*.json")
    os.chown(record, USER, USER)

    assert "another user wrote it" in lint(tmp_path, "--undo", code=2)
    assert (tmp_path / "train.py").read_text() == fixed
    os.chown(record, 0, 0)
    record.rename(record.with_suffix(".kept"))
    record.symlink_to(record.with_suffix(".kept"))
    assert "symbolic links" in lint(tmp_path, "--undo", code=2)
    assert (tmp_path / "train.py").read_text() == fixed

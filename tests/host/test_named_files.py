"""Files that somebody names, in folders where another user lays links, pipes and files of his own."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sysperf.cli.verify.study import StudyFile
from sysperf.engine.configuration import read_baseline, read_config
from sysperf.engine.fleet import job
from sysperf.engine.reading import read_saved
from sysperf.engine.verify import State
from sysperf.evaluate.rule_files import read_file
from sysperf.fleet.engines import folder as folder_engine
from sysperf.host import files
from sysperf.host.archive import unpacked
from sysperf.host.folder import Folder
from sysperf.host.plain_files import ASTRAY, open_plain, read_named, read_orders
from sysperf.launch import kernelspec, profile
from sysperf.model.errors import SysperfError, TraceError
from sysperf.model.node import Asked
from sysperf.script.source import Unreadable, read_bytes
from sysperf.trace.output import annotate
from sysperf.trace.reading import nsys
from sysperf.trace.reading.readers import read as read_trace

USER = 65_531
SECRET = b"only root may read this"
as_root = pytest.mark.root(users=True)
Read = Callable[[str], object]

ORDERS: dict[str, Read] = {
    "rules": read_file,
    "configuration": read_config,
    "baseline": read_baseline,
    "profile": profile.read,
    "study": lambda path: StudyFile(path).read(State),
    "kernel": kernelspec._read,
}
"""What says how sysperf judges or starts programs."""
DATA: dict[str, Read] = {
    "report": read_saved,
    "archive": unpacked,
    "script": read_bytes,
    "trace": read_trace,
    "export": nsys.read,
    "annotated": annotate._open,
}
READERS = {**ORDERS, **DATA}
REFUSED = (SysperfError, OSError, Unreadable)


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path, reader: str) -> None:
    """Anybody can lay one where a file belongs."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(REFUSED, match=r"plain file|no file"):
        READERS[reader](str(tmp_path / "pipe"))


@as_root
@pytest.mark.parametrize("reader", READERS)
def test_a_link_of_another_user_leads_root_to_nothing_that_he_may_not_read(tmp_path: Path, reader: str) -> None:
    """Neither to its content nor to an error that tells of it; what is root's own is read behind it, too, where the link is root's."""
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    link.symlink_to(secret)
    os.lchown(link, USER, USER)

    with pytest.raises(REFUSED, match=ASTRAY):
        READERS[reader](str(link))
    os.lchown(link, 0, 0)
    with contextlib.suppress(*REFUSED):  # it is nothing of what the reader wants
        READERS[reader](str(link))


@as_root
@pytest.mark.parametrize("read", [lambda folder: job.hung(folder, "7"), lambda folder: folder_engine.nodes(Asked(where=folder))])
def test_a_link_of_another_user_tells_root_no_names(tmp_path: Path, read: Read) -> None:
    """Of a folder that he may not list; behind root's own link they are listed."""
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.mkdir(mode=0o700)
    (secret / "of-root.json").write_bytes(SECRET)
    link.symlink_to(secret)
    os.lchown(link, USER, USER)
    with pytest.raises(SysperfError, match=ASTRAY):
        read(str(link))
    os.lchown(link, 0, 0)

    assert "of-root" in str(read(str(link)))


@as_root
@pytest.mark.parametrize("reader", ORDERS)
@pytest.mark.parametrize(("owner", "mode"), [(USER, 0o644), (0, 0o664), (0, 0o646)])
def test_root_takes_no_orders_from_others(tmp_path: Path, reader: str, owner: int, mode: int) -> None:
    """A profile sets LD_PRELOAD and PATH, a rule what is advised, a study what is run."""
    path = tmp_path / "orders"
    path.write_bytes(b"")
    path.chmod(mode)
    os.chown(path, owner, -1)

    with pytest.raises(REFUSED, match=r"root (takes orders from|reads only)"):
        ORDERS[reader](str(path))


def test_what_is_ones_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current folder, behind a link of one's own, and what a shell made by `<(…)`."""
    (tmp_path / "own").write_bytes(b"own")
    (tmp_path / "folder").symlink_to(".")
    monkeypatch.chdir(tmp_path)
    ours, theirs = os.pipe()
    os.write(theirs, b"piped")
    os.close(theirs)

    for path in ("own", "./own", "folder/own", "folder/../own", str(tmp_path / "own")):
        assert read_named(path.replace("folder/..", f"../{tmp_path.name}"), 9) == b"own"
        assert read_orders(path.replace("folder/..", f"../{tmp_path.name}"), 9) == b"own"
    assert read_named(f"/dev/fd/{ours}", 9) == b"piped"
    assert read_orders("/dev/null", 9) == b""
    os.close(ours)


def test_a_step_back_behind_a_link_is_taken_where_the_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel takes it, and not as the text of the path says."""
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/file").write_bytes(b"elsewhere")
    (tmp_path / "file").write_bytes(b"here")
    (tmp_path / "link").symlink_to("elsewhere/deep")
    monkeypatch.chdir(tmp_path)

    assert read_named("link/../file", 99) == b"elsewhere"
    files.replace("link/../file", b"new")
    assert ((tmp_path / "elsewhere/file").read_bytes(), (tmp_path / "file").read_bytes()) == (b"new", b"here")


@as_root
def test_another_name_of_roots_file_is_no_file_of_everybodys_folder(tmp_path: Path) -> None:
    """Where hard links are not protected, anybody lays one into /tmp; behind a link of root's, too."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    os.link(tmp_path / "secret", tmp_path / "tmp/planted")
    (tmp_path / "link").symlink_to("tmp/planted")

    for path in ("tmp/planted", "link"):
        with pytest.raises(PermissionError, match=ASTRAY):
            open_plain(f"{tmp_path}/{path}")


# ---------------------------------------------------------------------- what is exchanged while it is read


def export(path: Path) -> None:
    """A file of SQLite."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x)")


def test_an_export_that_is_exchanged_while_sqlite_opens_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite opens names: at the last moment another file has this one."""
    export(tmp_path / "export.sqlite")
    export(tmp_path / "secret.sqlite")
    connect = sqlite3.connect

    def attacked(*arguments: Any, **how: Any) -> sqlite3.Connection:
        (tmp_path / "export.sqlite").rename(tmp_path / "away")
        (tmp_path / "export.sqlite").symlink_to("secret.sqlite")
        (tmp_path / "away").rename(tmp_path / "gone")
        return connect(f"file:{tmp_path}/export.sqlite?mode=ro&immutable=1", uri=True)

    with contextlib.closing(nsys._connected(str(tmp_path / "export.sqlite"))) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    monkeypatch.setattr(sqlite3, "connect", attacked)
    with pytest.raises(TraceError, match="exchanged"):
        nsys.read(str(tmp_path / "export.sqlite"))


def test_nsys_exports_the_report_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name that is run exchanges the report first, and copies what it was told to export."""
    export(tmp_path / "export")
    export(tmp_path / "secret")
    (tmp_path / "report.nsys-rep").write_bytes(b"the report")
    program = tmp_path / "bin/nsys"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nmv {tmp_path}/report.nsys-rep {tmp_path}/away\necho other > {tmp_path}/report.nsys-rep\ncat "$6" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    with pytest.raises(TraceError, match="the report"):
        nsys.read(str(tmp_path / "report.nsys-rep"))


def test_a_folder_of_a_capture_that_becomes_a_link_leads_nowhere(tmp_path: Path) -> None:
    """Its owner exchanges it between two readings, when sysperf knows that it was none."""
    for name in ("capture/proc", "capture/sys", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "capture/proc/version").write_text("inside")
    (tmp_path / "outside/version").write_bytes(SECRET)
    captured = Folder(tmp_path / "capture")
    assert captured.read("/proc/version", 99) == b"inside"
    shutil.rmtree(tmp_path / "capture/proc")
    (tmp_path / "capture/proc").symlink_to(tmp_path / "outside")

    with pytest.raises(NotADirectoryError):
        captured.read("/proc/version", 99)
    with pytest.raises(FileNotFoundError):  # what is absolute in a capture lies within it
        captured.names("/proc", 99)
    assert not captured.exists("/proc/version")
    shutil.rmtree(tmp_path / "capture")
    (tmp_path / "capture").symlink_to(tmp_path / "outside")
    with pytest.raises(FileNotFoundError):
        captured.read("/version", 99)


# ---------------------------------------------------------------------- what is written


@as_root
def test_output_is_written_along_no_link_into_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """Another user's link leads into his own folder at most, and is never what is replaced."""
    for name, owner in {"roots": 0, "his": USER}.items():
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, owner, -1)
    for link, target in {"to-roots": "roots", "to-his": "his", "his/report": "../roots/report"}.items():
        (tmp_path / link).symlink_to(target)
        os.lchown(tmp_path / link, USER, USER)

    for path in ("to-roots/report", "his/report"):
        for write in (files.check_replace, lambda place: files.replace(place, b"new")):
            with pytest.raises(PermissionError, match="another user made"):
                write(f"{tmp_path}/{path}")
    assert [*(tmp_path / "roots").iterdir()] == []
    files.replace(f"{tmp_path}/to-his/other", b"new")
    assert (tmp_path / "his/other").read_bytes() == b"new"
    os.lchown(tmp_path / "to-roots", 0, 0)
    files.replace(f"{tmp_path}/to-roots/report", b"new")
    assert (tmp_path / "roots/report").read_bytes() == b"new"


@as_root
def test_a_pipe_of_another_user_is_no_output(tmp_path: Path) -> None:
    """Nobody reads it, and root would wait; or he reads it."""
    os.mkfifo(tmp_path / "pipe")
    os.chown(tmp_path / "pipe", USER, USER)

    for write in (files.check_replace, lambda place: files.replace(place, b"new")):
        with pytest.raises(PermissionError, match="another user"):
            write(str(tmp_path / "pipe"))


def test_output_goes_to_the_folder_that_was_looked_at(tmp_path: Path) -> None:
    """It is exchanged for a link while the content is written."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "roots").mkdir()

    def write(file: Any) -> None:
        (tmp_path / "ours").rename(tmp_path / "away")
        (tmp_path / "ours").symlink_to("roots")
        file.write(b"new")

    files.write_whole(f"{tmp_path}/ours/report", write)
    assert (tmp_path / "away/report").read_bytes() == b"new"
    assert [*(tmp_path / "roots").iterdir()] == []

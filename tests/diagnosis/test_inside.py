"""What a diagnosis reads of another user's program: its source, and the trace that it wrote."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sysperf import plugin
from sysperf.diagnosis import traced
from sysperf.diagnosis.activities import Stacks
from sysperf.engine import judging
from sysperf.engine.diagnose import inside as diagnose_inside
from sysperf.host import Host
from sysperf.model.errors import SysperfError
from sysperf.model.finding import Place
from sysperf.model.profile import Frame, Sample, Samples

TRACE = b'{"traceEvents": []}'
SECRET = b'{"traceEvents": ["only root may read this"]}'


def folder_of(path: Path, owner: int, content: bytes = TRACE) -> Path:
    """A folder in which this user's program has written a trace."""
    path.mkdir()
    (path / "trace.json").write_bytes(content)
    for given in (path, path / "trace.json"):
        os.chown(given, owner, -1)
    return path


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_what_is_no_trace_is_not_opened(tmp_path: Path, kind: str) -> None:
    """The folder belongs to the program's user while it writes: root would wait for a pipe for ever, or read another file."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    path, other = folder / "trace.json", tmp_path / "other"
    other.write_bytes(TRACE)
    make: dict[str, Callable[[Path], object]] = {
        "link": path.symlink_to, "hard link": path.hardlink_to, "pipe": lambda _: os.mkfifo(path), "folder": lambda _: path.mkdir(),
    }  # fmt: skip
    make[kind](other)

    with pytest.raises(SysperfError, match="no trace"):
        diagnose_inside._take(str(folder), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


@pytest.mark.root(users=True)
def test_a_file_of_somebody_else_is_no_trace_of_this_user(tmp_path: Path) -> None:
    """Where hard links are not protected, he may give any file the trace's name, and take its first one away."""
    folder = folder_of(tmp_path / "theirs", 65_531)
    os.chown(folder / "trace.json", 0, 0)

    with pytest.raises(SysperfError, match="no trace"):
        diagnose_inside._take(str(folder), str(tmp_path / "copy"))


def test_a_trace_larger_than_is_read_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the disk on which temporary files lie."""
    monkeypatch.setattr(traced, "MAX_BYTES", 1 << 20)
    folder = folder_of(tmp_path / "theirs", os.geteuid())
    os.truncate(folder / "trace.json", 1 << 40)

    with pytest.raises(SysperfError, match="larger than 1 MiB"):
        diagnose_inside._take(str(folder), str(tmp_path / "copy"))


@pytest.mark.root(users=True)
def test_nobody_exchanges_or_changes_a_trace_once_it_was_looked_at(tmp_path: Path) -> None:
    """Its user has opened the folder to everybody, holds it and the file open, and writes and renames on."""
    tmp_path.chmod(0o711)
    folder = folder_of(tmp_path / "theirs", 65_531)
    folder.chmod(0o777)
    held, file = os.open(folder, os.O_RDONLY), os.open(folder / "trace.json", os.O_RDWR)
    diagnose_inside._take(str(folder), str(tmp_path / "copy"))
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.setresuid(65_531, 65_531, 65_531)
            os.pwrite(file, SECRET, 0)
            os.rename("trace.json", "away", src_dir_fd=held, dst_dir_fd=held)
        except PermissionError:
            code = 77
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o700)
    assert (folder / "trace.json").read_bytes() == SECRET
    assert (tmp_path / "copy").read_bytes() == TRACE
    assert (tmp_path / "copy").stat().st_uid == 0


@pytest.mark.slow
@pytest.mark.root(users=True)
def test_a_racing_user_never_has_root_read_a_file_of_his_choice(tmp_path: Path) -> None:
    """He exchanges his trace for a link to a root-only file, and for a pipe, as fast as he can; what is copied is his trace or nothing."""
    tmp_path.chmod(0o711)
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    seen: Counter[bytes] = Counter()
    for number in range(150):
        folder = folder_of(tmp_path / f"{number}", 65_531)
        folder.chmod(0o777)
        with exchanging(folder, secret):
            copy = tmp_path / f"{number}.copy"
            try:
                diagnose_inside._take(str(folder), str(copy))
                seen[copy.read_bytes()] += 1
            except (SysperfError, FileNotFoundError):
                seen[b"refused"] += 1

    assert set(seen) <= {TRACE, b"refused"}, seen
    assert len(seen) == 2, f"there was no race: {seen}"


@contextlib.contextmanager
def exchanging(folder: Path, target: Path) -> Iterator[None]:
    """Another user's process that gives the trace's name to a link, a pipe and the trace in turn, until it may not any more."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            os.setresuid(65_531, 65_531, 65_531)
            os.symlink(target, "link")
            os.mkfifo("pipe")
            os.write(tell, b".")
            while True:
                for name in ("link", "pipe"):
                    os.rename("trace.json", "real")
                    os.rename(name, "trace.json")
                    os.rename("trace.json", name)
                    os.rename("real", "trace.json")
        finally:
            os._exit(0)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.root(users=True)
def test_the_folder_of_a_trace_cannot_be_exchanged_for_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner would have root take away from others what the link leads to: the folder in /tmp is root's, and his lies in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as theirs, tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        os.chown(theirs, 1, 1)
        Path(temporary).chmod(0o755)
        monkeypatch.setenv("TMPDIR", temporary)

        def attack(_pid: int, folder: str, _path: str, *_: object) -> str:
            os.chown(folder, 65_531, 65_531)
            child = os.fork()
            if child == 0:
                try:
                    os.setresuid(65_531, 65_531, 65_531)
                    os.rename(folder, f"{folder}.away")
                    os.symlink(theirs, folder)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            return ""

        monkeypatch.setattr(diagnose_inside, "_write", attack)
        monkeypatch.setattr(plugin, "tracer", lambda _: SimpleNamespace(owner=lambda *_: (0, 0)))
        notes: list[str] = []
        assert diagnose_inside.trace(os.getpid(), judging.load_rules(), 1.0, 5.0, "", notes) is None

        assert os.stat(theirs).st_uid == 1
        assert "No such file" in notes[0]
        assert os.listdir(temporary) == []
        os.chown(theirs, 0, 0)


def test_a_program_of_a_thousand_files_is_read_in_part(tmp_path: Path) -> None:
    """A program may name as many files as it likes, each of megabytes."""
    for number in range(1_000):
        (tmp_path / f"{number}.py").write_text("x = 1\n")
    inside = diagnose_inside.Inside(Host(), "", [])
    lines = [inside.line(os.getpid(), Frame("f", f"{tmp_path}/{number}.py", 1)) for number in range(1_000)]

    assert lines[:2] == ["x = 1", "x = 1"]
    assert 0 < sum(map(bool, lines)) <= 100


FILE = """
import torch

def sick(model, loader):
    for batch in loader:
        loss = model(batch)
        loss.backward()
        print(loss.item())

def cured(model, loader):
    for batch in loader:
        model(batch).backward()

RUNS = {"sick": sick, "cured": cured}
"""


@pytest.mark.parametrize(("function", "lines"), [("sick", [8]), ("cured", [])])
def test_places_in_functions_that_do_not_run_say_nothing(tmp_path: Path, function: str, lines: list[int]) -> None:
    """A file may hold several programs, of which this one runs a part."""
    path = tmp_path / "train.py"
    path.write_text(FILE)
    inside = diagnose_inside.Inside(Host(), "", [])
    seen = Frame(function, str(path), 6)
    inside._remember(Samples(os.getpid(), 1, 50, (Sample(1, "MainThread", (seen, Frame("<module>", str(path), 15)), 9),)), os.getpid())
    assert inside.line(os.getpid(), seen)
    hits = inside.hits(os.getpid(), judging.load_rules(), 5.0)

    assert [hit.place.line for hit in hits if hit.rule == "sync.per-step"] == lines
    assert {hit.place.file for hit in hits} <= {str(path)}


LOADER = """
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
def train(path):
    loader = DataLoader(ImageFolder(path), num_workers=4)
    for epoch in range(9):
        for batch in loader:
            pass
"""


@pytest.mark.root(users=True)
@pytest.mark.parametrize("container", [False, True])
def test_a_file_that_has_this_name_in_a_container_only_is_not_offered_to_be_changed(tmp_path: Path, container: bool) -> None:
    """A command that names it would change another file here, or none."""
    (tmp_path / "image").mkdir()
    (tmp_path / "image/train.py").write_text(LOADER)
    path = tmp_path / "train.py"
    path.write_text(LOADER)
    mount = f"mount --bind {tmp_path}/image {tmp_path} && " if container else ""
    shell = ("unshare", "--mount", "sh", "-c", f"{mount}echo ready && exec sleep 60")
    with subprocess.Popen(shell, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        inside, pid = diagnose_inside.Inside(Host(), "", []), program.pid
        seen = Frame("train", str(path), 7)
        inside._remember(Samples(pid, 1, 50, (Sample(pid, "MainThread", (seen,), 9),)), pid)
        assert inside.line(pid, seen).startswith("for batch in")
        hits = inside.hits(pid, judging.load_rules(), 5.0)
        program.kill()

    assert {hit.fixable for hit in hits if hit.rule == "dataloader.workers-made-again"} == {not container}


MAKES = """\
import time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


print("ready", flush=True)
while True:
    for _ in range(2):
        spin(0.002)
    spin(0.04)
"""


def test_how_long_a_statement_takes_is_seen_in_the_order_of_stacks(tmp_path: Path) -> None:
    """Of a loop it is all of its rounds."""
    path = tmp_path / "train.py"
    path.write_text(MAKES)
    with subprocess.Popen((sys.executable, str(path)), stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            inside, pid = diagnose_inside.Inside(Host(), "pyspy", []), program.pid
            inside._loop(pid, Frame("<module>", str(path), 13))
            at = [Place(str(path), line, "<module>", "", "statement", 0.5) for line in (12, 14)]
            loop, one = (inside.batch_s(pid, Stacks(samples=300, statement=0.5, lines=(place,))) for place in at)
        finally:
            program.kill()

    assert inside._notes == []
    assert loop is not None
    assert one is not None
    assert 0.003 < loop < one

"""What a diagnosis reads of another user's program: its source, and the trace that it wrote."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from sysperf import plugin
from sysperf.engine import judging
from sysperf.engine.diagnose import inside as diagnose_inside
from sysperf.host import Host
from sysperf.model.errors import SysperfError
from sysperf.model.profile import Frame, Sample, Samples


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_what_is_no_trace_is_not_opened(tmp_path: Path, kind: str) -> None:
    """The folder belongs to the program's user while it writes: root would wait for a pipe for ever, or read another file."""
    path, other = tmp_path / "trace.json", tmp_path / "other"
    other.write_text("{}")
    {"link": path.symlink_to, "hard link": path.hardlink_to}.get(kind, lambda _: os.mkfifo(path))(other)

    with pytest.raises(SysperfError, match="no trace"):
        diagnose_inside._take_back(str(tmp_path), str(path))


@pytest.mark.root(users=True)
def test_the_folder_is_ours_again_before_the_trace_is_read(tmp_path: Path) -> None:
    """Else its user could replace the file between the look and the reading."""
    (tmp_path / "trace.json").write_text("{}")
    os.chown(tmp_path, 65_534, 65_534)
    diagnose_inside._take_back(str(tmp_path), str(tmp_path / "trace.json"))

    assert tmp_path.stat().st_uid == 0


@pytest.mark.root(users=True)
def test_the_folder_of_a_trace_cannot_be_exchanged_for_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner would have root take away from others what the link leads to: the folder in /tmp is root's, and his lies in it."""
    with tempfile.TemporaryDirectory() as theirs:
        os.chown(theirs, 1, 1)

        def attack(_pid: int, folder: str, _path: str, *_: object) -> str:
            os.chown(folder, 65_534, 65_534)
            child = os.fork()
            if child == 0:
                try:
                    os.setresuid(65_534, 65_534, 65_534)
                    os.rename(folder, f"{folder}.away")
                    os.symlink(theirs, folder)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            return ""

        monkeypatch.setattr(diagnose_inside, "_write", attack)
        monkeypatch.setattr(plugin, "tracer", lambda _: SimpleNamespace(owner=lambda *_: (0, 0)))
        notes: list[str] = []
        before = {*os.listdir(tempfile.gettempdir())}
        assert diagnose_inside.trace(os.getpid(), judging.load_rules(), 1.0, 5.0, "", notes) is None

        assert os.stat(theirs).st_uid == 1
        assert "No such file" in notes[0]
        assert not [name for name in {*os.listdir(tempfile.gettempdir())} - before if name.startswith("sysperf-diagnose-")]
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

    assert [hit.line for hit in hits if hit.rule == "script.sync-per-step"] == lines
    assert {hit.file for hit in hits} <= {str(path)}


LOADER = """
from torch.utils.data import DataLoader

def train(data):
    loader = DataLoader(data, num_workers=4)
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

    assert {hit.fixable for hit in hits if hit.rule == "script.loader-not-persistent"} == {not container}

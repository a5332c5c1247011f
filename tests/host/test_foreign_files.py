"""Files that another user's process offers: in namespaces of his own he binds root's files over what sysperf reads."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sysperf.collect import collect
from sysperf.collect.machine_facts import MachineFacts
from sysperf.host import Host, credentials
from sysperf.host.capture import write_capture
from sysperf.host.credentials import Credentials, reading_as
from sysperf.host.live import Live
from sysperf.host.recording import Answers
from sysperf.model.record import to_json

USER = 65_531
SECRET = "9.8.7+only.root.may.read.this"  # noqa: S105 - it is that to the user only
LIMIT = 1 << 16
PACKAGES = "venv/lib/python3.11/site-packages"
VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TORCH_HOME")
PROGRAM = """
import mmap, os, sys
os.chdir(sys.argv[1])
space = mmap.mmap(-1, 512 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
library = open(sys.argv[2], "rb")
mapped = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
folder = os.open("torch", os.O_PATH)
print(folder, flush=True)
sys.stdin.read()
"""


class Attack(NamedTuple):
    """A process of an unprivileged user who has bound a root-only file over files that are read of its PyTorch."""

    pid: int
    site: str
    folder: int
    """The descriptor at which it holds the torch folder open."""


@pytest.fixture
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    """Needs root, who makes the root-only file; the namespaces are made by the user, as an attacker makes them."""
    if not int(Path("/proc/sys/user/max_user_namespaces").read_text()):
        pytest.skip("user namespaces are off (user.max_user_namespaces)")
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("needs /usr/bin/python3 (package python3), which any user may run")
    base = tmp_path_factory.mktemp("attack")
    for folder in (base, *base.parents[:-1]):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    secret = base / "secret"
    secret.write_text(f"{SECRET}\n__version__ = '{SECRET}'\nName: {SECRET}\n")
    secret.chmod(0o600)
    hidden = base / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "x").write_text(SECRET)
    torch = base / "theirs" / PACKAGES / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "lib/libtorch_cpu.so").write_bytes(b"\x7fELF" + bytes(4092))
    covered = [
        torch / "version.py",
        torch / "build-version",
        base / "theirs/venv/pyvenv.cfg",
        torch.parent / "torch-2.9.0.dist-info/METADATA",
    ]
    for file in covered:
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    for path in (base / "theirs", *(base / "theirs").rglob("*")):
        os.chown(path, USER, USER)
    binds = "".join(f"mount --bind {secret} {file} && " for file in covered)
    line = f"{binds}exec {python} -E -c '{PROGRAM}' {torch.parent} {torch}/lib/libtorch_cpu.so"
    with subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=USER,
        group=USER,
        extra_groups=[],
        env={"PATH": os.environ["PATH"], **{name: str(hidden) for name in VARIABLES}},
    ) as process:
        assert process.stdin
        assert process.stdout
        words = process.stdout.readline().split()
        if not words:
            pytest.fail("the attack did not start")
        yield Attack(process.pid, str(torch.parent), int(words[0]))
        process.stdin.close()


def _bare(path: str) -> bytes:
    """What root reads there without any check: the attack itself works."""
    return Path(path).read_bytes()


@pytest.mark.root(users=True)
@pytest.mark.parametrize(
    "door",
    ["root{site}/torch/build-version", "cwd/torch/build-version", "fd/{folder}/build-version", "task/{pid}/root{site}/torch/version.py"],
)
def test_no_door_of_a_process_has_root_read_for_its_user(attack: Attack, door: str) -> None:
    """By its root, its working folder, an open folder, a thread: root could read it, and does not."""
    path = f"/proc/{attack.pid}/{door.format(**attack._asdict())}"

    assert SECRET in _bare(path).decode()
    with pytest.raises(PermissionError):
        Live().read(path, LIMIT)
    host = Host()
    assert host.text(path) is None
    assert host.sources[-1].error


@pytest.mark.root(users=True)
@pytest.mark.parametrize("door", ["root{site}/../../../../../hidden", "cwd/../../../../../hidden"])
def test_a_processs_folders_are_listed_as_its_user(attack: Attack, door: str) -> None:
    """Names in a root-only folder, and whether a file is in it, are root's too."""
    path = f"/proc/{attack.pid}/{door.format(**attack._asdict())}"

    assert os.listdir(path) == ["x"]
    with pytest.raises(PermissionError):
        Live().names(path, 9)
    with pytest.raises(PermissionError):
        Live().exists(f"{path}/x")
    assert Host().names(path) is None
    assert Host().exists(f"{path}/x") is None


@pytest.mark.root(users=True)
def test_what_a_process_names_is_read_as_its_user(attack: Attack) -> None:
    """Paths in its variables and maps: files outside of /proc are its user's to read, or nobody's; the kernel's are ours."""
    hidden = Path(attack.site).parents[4] / "hidden"
    host = Host()

    with host.as_owner_of(attack.pid):
        assert host.text(f"{hidden}/x") is None
        assert host.names(str(hidden)) is None
        assert host.exists(f"{hidden}/x") is None
        assert host.call("held", (hidden / "x").read_text) is None
        assert host.text(f"{attack.site}/torch/build-version") == ""
        assert host.text(f"/proc/{attack.pid}/environ")
    assert host.text(f"{hidden}/x") == SECRET


@pytest.mark.root(users=True)
@pytest.mark.parametrize("deep", [False, True])
def test_no_fact_and_no_capture_holds_what_only_root_may_read(attack: Attack, tmp_path: Path, deep: bool) -> None:
    """The whole way, with environ, maps and site-packages as doors: the program is seen, the secret is not."""
    host = Host(record=True, answers=Answers(), deep=deep)

    areas = collect(host, ("python", "torch", "process"))
    write_capture(host, tmp_path / "out.tar")

    assert attack.pid in [process.pid for process in MachineFacts(areas).programs]
    assert "only.root" not in to_json(areas).decode()
    assert b"only.root" not in (tmp_path / "out.tar").read_bytes()


@pytest.mark.root(users=True)
def test_the_rights_of_before_are_back(attack: Attack) -> None:
    """After a reading that was refused, root reads root's files; other threads never had other rights."""
    rights = Path("/proc/thread-self/status").read_text()
    inside, outside = threading.Event(), threading.Event()
    owners: list[int] = []

    def make_file() -> None:
        inside.wait(10)
        (Path(attack.site).parents[4] / "made").write_text("")
        owners.append((Path(attack.site).parents[4] / "made").stat().st_uid)
        outside.set()

    other = threading.Thread(target=make_file)
    other.start()
    with reading_as(Credentials(USER, USER, ())):
        inside.set()
        assert outside.wait(10)
        with pytest.raises(PermissionError):
            (Path(attack.site).parents[4] / "secret").read_text()
    other.join()

    assert owners == [0]
    assert SECRET in (Path(attack.site).parents[4] / "secret").read_text()
    for name in ("Uid", "Gid", "Groups", "CapEff", "CapPrm", "CapInh"):
        assert _line(Path("/proc/thread-self/status").read_text(), name) == _line(rights, name)


def _line(status: str, name: str) -> str:
    return next(line for line in status.splitlines() if line.startswith(name))


@pytest.mark.root(users=True)
def test_groups_of_the_user_count(tmp_path: Path) -> None:
    """A file of a group that the process is in is read; without it, not: neither more nor less than its user may."""
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    (tmp_path / "file").write_text("of a group")
    os.chown(tmp_path / "file", 0, 65_500)
    (tmp_path / "file").chmod(0o640)

    with reading_as(Credentials(USER, USER, (65_500,))):
        assert (tmp_path / "file").read_text() == "of a group"
    with reading_as(Credentials(USER, USER, ())), pytest.raises(PermissionError):
        (tmp_path / "file").read_text()


@pytest.mark.root(users=True)
def test_a_process_that_changes_users_is_nobodys() -> None:
    """Four user numbers that differ: whose files these are cannot be told."""
    script = f"import os, sys; os.setresuid({USER}, 0, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        host = Host()
        assert host.text(f"/proc/{process.pid}/root/etc/hostname") is None
        assert host.sources[-1].error == credentials.CHANGING
        with host.as_owner_of(process.pid):
            assert host.text("/etc/passwd") is None
        process.stdin.close()


def test_a_process_that_ended_offers_nothing() -> None:
    """Its number may be another's by now: nothing is read in its name."""
    host = Host()
    with subprocess.Popen(["true"]) as process:
        process.wait()

    with host.as_owner_of(process.pid):
        assert host.text("/etc/passwd") is None
    assert host.text("/etc/passwd")


@pytest.mark.root(users=True)
def test_a_hard_link_to_a_file_of_root_is_refused(tmp_path: Path) -> None:
    """Where fs.protected_hardlinks is off, a user gives root's file another name in a folder of his own."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, USER, USER)
    os.link(tmp_path / "secret", folder / "version.py")

    with pytest.raises(PermissionError):
        Live().read(f"{folder}/version.py", LIMIT)
    assert Live().read(f"{tmp_path}/secret", LIMIT).decode() == SECRET

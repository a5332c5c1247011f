"""A captured root is foreign input: it is read as far as it goes, and never leads anywhere else."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import socket
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sysperf.host import Host, archive, tree
from sysperf.host.archive import Archive, members, unpacked, zstd
from sysperf.host.folder import Folder
from sysperf.host.links import OwnedLinks
from sysperf.host.live import Live
from sysperf.host.opening import open_tree
from sysperf.host.tree import Tree
from sysperf.model.errors import CaptureError
from tests.bombs import repeated
from tests.conftest import fixture_folder

LIMIT = 1 << 20
Entry = tuple[str, str | bytes | None]  # (name, content | "-> target" | None for a folder)


def pack(path: Path, *entries: Entry, kind: int = tarfile.PAX_FORMAT, mode: str = "w") -> Path:
    """A tar with these members, in this order."""
    with tarfile.open(path, mode, format=kind) as tar:  # type: ignore[call-overload]  # its modes are literals
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content.removeprefix("-> ")
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content if isinstance(content, bytes) else b""))
    return path


def unpack(folder: Path, *entries: Entry) -> Path:
    """The same as a folder."""
    for name, content in entries:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_bytes(content)
    return folder


Open = Callable[..., Tree]


@pytest.fixture(params=["folder", "tar"])
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open a captured root with these entries, as a folder and as an archive."""

    def make(*entries: Entry) -> Tree:
        if request.param == "folder":
            return Folder(unpack(tmp_path / "root", *entries))
        return Archive(pack(tmp_path / "root.tar", *entries))

    return make


# ---------------------------------------------------------------------- links


@pytest.mark.parametrize(
    "target",
    ["../../etc/passwd", "../../../../../../../etc/passwd", "a/../../../etc/passwd", "/../etc/passwd", "/proc/../../etc/passwd"],
)
def test_a_link_that_leads_out_is_refused(capture: Open, target: str) -> None:
    """The real file is never shown, and the reason says why."""
    captured = capture(("proc/version", f"-> {target}"), ("sys/x", b"1"))

    with pytest.raises(OSError, match=re.escape(tree.ESCAPES)):
        captured.read("/proc/version", LIMIT)


def test_absolute_links_are_resolved_inside(capture: Open) -> None:
    """``/etc/passwd`` is the root's own, or absent: never this machine's."""
    captured = capture(("proc/a", "-> /etc/passwd"), ("proc/b", "-> /etc/hosts"), ("etc/hosts", b"captured"))

    assert captured.read("/proc/b", LIMIT) == b"captured"
    with pytest.raises(FileNotFoundError):
        captured.read("/proc/a", LIMIT)
    assert captured.exists("/proc/a") is False
    assert captured.link("/proc/a") == "/etc/passwd"


def test_links_in_the_middle_are_resolved_inside(capture: Open) -> None:
    """A folder that is a link to / is the root, and to .. above it is refused."""
    captured = capture(("sys/root", "-> /"), ("sys/out", "-> ../.."), ("etc/passwd", b"captured"))

    assert captured.read("/sys/root/sys/root/etc/passwd", LIMIT) == b"captured"
    assert captured.names("/sys/root/etc", 9) == ["passwd"]
    for path in ("/sys/out/etc/passwd", "/../etc/passwd", "/etc/../../etc/passwd", "/sys/out/.."):
        with pytest.raises(OSError, match=re.escape(tree.ESCAPES)):
            captured.read(path, LIMIT)


def test_loops_end(capture: Open) -> None:
    """A link to itself, to its partner, to its own inside, and a chain without end are errors, at once."""
    chain = [(f"sys/c{number}", f"-> c{number + 1}") for number in range(100)]
    captured = capture(("sys/self", "-> self"), ("sys/a", "-> b"), ("sys/b", "-> a"), ("sys/in", "-> in/x"), *chain, ("sys/c100", b"1"))

    for path in ("/sys/self", "/sys/a", "/sys/b/x", "/sys/in", "/sys/c0"):
        with pytest.raises(OSError, match="symbolic links"):
            captured.read(path, LIMIT)
    assert captured.read("/sys/c61", LIMIT) == b"1"


def test_dangling_links_are_listed_but_do_not_exist(capture: Open) -> None:
    """As in /sys of other projects' captures."""
    captured = capture(("sys/a", "-> nowhere"), ("sys/b", b"1"))

    assert sorted(captured.names("/sys", 9)) == ["a", "b"]
    assert captured.exists("/sys/a") is False
    with pytest.raises(FileNotFoundError):
        captured.read("/sys/a", LIMIT)


def test_the_link_at_the_end_of_a_linked_folder(capture: Open) -> None:
    """`link` resolves the folders on its way, not the link itself."""
    captured = capture(("sys/class/net/eth0", "-> ../../devices/pci/eth0"), ("sys/devices/pci/eth0/device", "-> ../driver"))

    assert captured.link("/sys/class/net/eth0/device") == "../driver"
    with pytest.raises(OSError, match="Invalid argument"):
        captured.link("/sys/devices/pci")


# ---------------------------------------------------------------------- folders


def test_a_folder_root_never_waits_or_acts(tmp_path: Path) -> None:
    """A FIFO, a socket and a device are refused without being opened."""
    folder = unpack(tmp_path, ("proc/version", b"1"), ("sys", None))
    os.mkfifo(folder / "proc/fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "proc/socket"))
    names = ["fifo", "socket"]
    if os.geteuid() == 0:
        os.mknod(folder / "proc/zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        names.append("zero")
    captured = Folder(folder)
    start = time.perf_counter()

    for name in names:
        with pytest.raises(OSError, match=tree.NOT_PLAIN):
            captured.read(f"/proc/{name}", LIMIT)
    assert time.perf_counter() - start < 1
    with pytest.raises(IsADirectoryError):
        captured.read("/proc", LIMIT)
    with pytest.raises(NotADirectoryError):
        captured.names("/proc/version", 9)


def test_the_live_machine_opens_no_devices_of_users(tmp_path: Path) -> None:
    """A user's package may hold a FIFO or a link to a watchdog where a file belongs."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")

    for name in ("fifo", "link"):
        with pytest.raises(OSError, match=tree.NOT_PLAIN):
            Live().read(str(tmp_path / name), LIMIT)
    with pytest.raises(OSError, match=tree.NOT_PLAIN):
        Live().read("/proc/self/root/dev/zero", LIMIT)
    assert Live().read("/proc/self/comm", LIMIT)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of another user in which links lead to a secret of ours, to a file of theirs, and to what everybody may read."""
    (tmp_path / "closed").mkdir(mode=0o700)
    for name, mode in {"secret": 0o600, "own": 0o600, "closed/readable": 0o644}.items():
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    os.chown(tmp_path / "own", 65_533, 65_533)
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name, target in {"secret": "../secret", "own": "../own", "within": "../closed", "public": "/etc/passwd", "here": "."}.items():
        (folder / name).symlink_to(target)
        os.chown(folder / name, 65_533, 65_533, follow_symlinks=False)
    return folder


@pytest.mark.root(users=True)
@pytest.mark.parametrize("name", ["secret", "within/readable", "here/secret"])
def test_nobodys_link_has_root_read_what_he_may_not(theirs: Path, name: str) -> None:
    """Neither by its last name nor on the way; not its folders either."""
    with pytest.raises(PermissionError, match="another user"):
        Live().read(f"{theirs}/{name}", LIMIT)
    with pytest.raises(PermissionError, match="another user"):
        Live().names(f"{theirs}/within", LIMIT)


@pytest.mark.root(users=True)
def test_honest_links_are_followed(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To files of the same user, to what everybody may read, and all of root's."""
    assert Live().read(f"{theirs}/own", LIMIT) == b"own"
    assert Live().read(f"{theirs}/here/public", LIMIT) == Path("/etc/passwd").read_bytes()
    os.chown(theirs / "secret", 0, 0, follow_symlinks=False)
    assert Live().read(f"{theirs}/secret", LIMIT) == b"secret"
    monkeypatch.setattr(OwnedLinks, "resolve", lambda *_: str(theirs / "own").lstrip("/"))
    with pytest.raises(PermissionError):  # it was another link when it was looked at
        Live().read(f"{theirs}/secret", LIMIT)


def test_a_containers_links_are_not_followed(tmp_path: Path) -> None:
    """What is absolute in a container would be a file of its host."""
    (tmp_path / "file").write_text("yes")
    (tmp_path / "link").symlink_to("/etc/passwd")
    inside = f"/proc/{os.getpid()}/root{tmp_path.resolve()}"

    assert Live().read(f"{inside}/file", LIMIT) == b"yes"
    with pytest.raises(PermissionError):
        Live().read(f"{inside}/link", LIMIT)


def test_gigantic_files_are_refused_quickly(tmp_path: Path) -> None:
    """A sparse file of a terabyte costs no more than the limit."""
    folder = unpack(tmp_path, ("proc/big", b""), ("sys", None))
    os.truncate(folder / "proc/big", 1 << 40)

    with pytest.raises(OSError, match=tree.TOO_LARGE):
        Folder(folder).read("/proc/big", LIMIT)


def test_huge_folders_are_refused(capture: Open) -> None:
    """More names than asked for are an error, not a part of the list."""
    captured = capture(*((f"sys/{number}", b"") for number in range(50)))

    assert len(captured.names("/sys", 50)) == 50
    with pytest.raises(OSError, match="more than 49 entries"):
        captured.names("/sys", 49)


def test_an_unreadable_folder_root_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that cannot be listed is said at once."""

    def refuse(_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CaptureError, match="Permission denied"):
        Folder(tmp_path)


def test_a_single_top_folder_is_a_wrapper(capture: Open) -> None:
    """hwloc and lscpu pack a machine into a folder of its name."""
    assert capture(("machine-1/proc/version", b"1"), ("machine-1/sys/x", b"2")).read("/proc/version", LIMIT) == b"1"


def test_a_single_top_folder_of_the_kernel_is_none(capture: Open) -> None:
    """A capture may hold nothing but /sys."""
    assert capture(("sys/devices/x", b"1")).read("/sys/devices/x", LIMIT) == b"1"


# ---------------------------------------------------------------------- what is no capture


def garbage(tmp_path: Path) -> dict[str, Path]:
    good = pack(tmp_path / "good.tar", ("proc/a", b"x" * 5000), ("sys/b", b"y" * 5000)).read_bytes()
    contents = {
        "a text": b"just a text file\n" * 100,
        "a short text": b"hello\n",
        "nothing": b"",
        "zeros": bytes(10_240),
        "a cut tar": good[:3000],
        "a tar cut between members": good[:6144],
        "a cut gzip": gzip.compress(good)[:-40],
        "a cut xz": lzma.compress(good)[:-40],
        "a cut bzip2": bz2.compress(good)[:-20],
        "a cut zstd": zstd().compress(good)[:-20],
        "damaged gzip": gzip.compress(os.urandom(9000))[:20] + b"\xff" * 2000,
        "damaged xz": lzma.compress(good)[:60] + b"\xff" * 2000,
        "damaged zstd": zstd().compress(good)[:30] + b"\xff" * 2000,
        "a damaged header": good[:10] + b"?" + good[11:],
        "a negative size": header("proc/a", b"-0000000777\0") + bytes(1024),
        "a huge size": header("proc/a", b"\x80" + b"\xff" * 11) + bytes(1024),
        "a size that is none": header("proc/a", b"abcdefghijk\0") + bytes(1024),
        "compressed text": gzip.compress(b"hello\n" * 1000),
        "only the root": pack(tmp_path / "root.tar", ("./", None)).read_bytes(),
        "a way out": pack(tmp_path / "out.tar", ("proc/../../etc/passwd", b"x")).read_bytes(),
        "a long name": pack(tmp_path / "long.tar", ("proc/" + "a" * 5000, b"x")).read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in contents}


def header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """A tar header with any size field and the right checksum."""
    block = bytearray(512)
    block[: len(name)] = name.encode()
    block[124:136], block[148:156], block[156:157] = size, b" " * 8, kind
    block[148:155] = b"%06o\0" % sum(block)
    return bytes(block)


def test_what_is_no_capture_is_said_with_a_hint(tmp_path: Path) -> None:
    """Every kind of garbage is one CaptureError with the path and what to do, and none takes long."""
    for name, path in garbage(tmp_path).items():
        start = time.process_time()
        with pytest.raises(CaptureError) as error:
            Host(path)
        assert str(path) in str(error.value), name
        assert error.value.hint
        assert time.process_time() - start < 1, name


def test_what_is_no_file_is_said_with_a_hint(tmp_path: Path) -> None:
    """Absent, empty, a FIFO, a device: never a wait."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")

    for path in (tmp_path / "absent", tmp_path / "fifo", Path("/dev/zero"), tmp_path / "empty", tmp_path / "loop", tmp_path / "a\0b"):
        with pytest.raises(CaptureError) as error:
            open_tree(path)
        assert error.value.hint


def test_this_machine_under_another_name_is_live() -> None:
    """``//`` and ``/proc/self/root`` are ``/``."""
    assert all(isinstance(open_tree(Path(path)), Live) for path in ("/", "//", "/proc/self/root"))


@pytest.mark.parametrize(
    "compress", [gzip.compress, lzma.compress, bz2.compress, lambda raw: zstd().compress(raw)], ids=["gzip", "xz", "bzip2", "zstd"]
)
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]) -> None:
    """What unpacks to more than the limit is refused when the limit is reached."""
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 4 << 20)
    (tmp_path / "bomb").write_bytes(compress(bytes(16 << 20)))

    with pytest.raises(CaptureError, match="more than 4 MiB"):
        Archive(tmp_path / "bomb")


@pytest.mark.parametrize("kind", ["large", "many", "a long header"])
def test_no_archive_takes_more_than_200_mb(tmp_path: Path, kind: str) -> None:
    """Compressed to nothing, it is large or has very many members: refused, or read within the bound."""
    if kind == "large":
        packed = repeated(bytes(1 << 20), 151, header("proc/x", b"%011o\0" % (150 << 20)))
    elif kind == "a long header":
        packed = repeated(bytes(1 << 20), 131, header("pax", b"%011o\0" % (130 << 20), b"x"))
    else:
        block = header("proc/000000/x", b"00000000000\0")
        names = (b"%06d" % number for number in range(170_000))
        sums = {name: int(block[148:154], 8) + sum(name) - sum(b"000000") for name in names}
        members = (b"%s%s%s%06o%s" % (block[:5], name, block[11:148], total, block[154:]) for name, total in sums.items())
        packed = gzip.compress(b"".join((*members, bytes(1024))), 1)
    (tmp_path / "x.tar.gz").write_bytes(packed)
    script = (
        "import sys\nfrom sysperf.host import Host\nfrom sysperf.model.errors import CaptureError\n"
        "try:\n Host(sys.argv[1])\nexcept CaptureError as error:\n print(error)\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "x.tar.gz")], capture_output=True, text=True, check=True)

    refusal, peak_kib = done.stdout.strip().splitlines()
    assert "more than" in refusal
    assert int(peak_kib) < 200 << 10


@pytest.mark.parametrize("limit", ["MAX_MEMBERS", "MAX_FOLDERS"])
def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Members and the folders that their names imply are counted."""
    monkeypatch.setattr(archive, limit, 100)
    packed = pack(tmp_path / "many.tar", ("sys/x", b""), *((f"proc/{number}/{number}/x", b"") for number in range(99)))
    if limit == "MAX_MEMBERS":
        assert Archive(packed).read("/sys/x", 9) == b""
        packed = pack(tmp_path / "more.tar", *((f"proc/{number}", b"") for number in range(101)))

    with pytest.raises(CaptureError, match="more than 100"):
        Archive(packed)


def test_half_a_million_members_take_seconds(tmp_path: Path) -> None:
    """The largest archive that is accepted opens in bounded time."""
    block = header("proc/000000", b"00000000000\0")
    names = b"".join(block for _ in range(50_000))
    (tmp_path / "many.tar").write_bytes(names + bytes(1024))
    start = time.process_time()
    Archive(tmp_path / "many.tar")

    assert (time.process_time() - start) * 10 < 20


# ---------------------------------------------------------------------- tars


def test_odd_members(tmp_path: Path) -> None:
    """Devices and FIFOs are there but say nothing; hard links are their file; the last of a name counts."""
    with tarfile.open(tmp_path / "odd.tar", "w") as tar:
        for name, kind, target in (
            ("proc/a", tarfile.REGTYPE, ""), ("proc/null", tarfile.CHRTYPE, ""), ("proc/disk", tarfile.BLKTYPE, ""),
            ("proc/fifo", tarfile.FIFOTYPE, ""), ("proc/hard", tarfile.LNKTYPE, "./proc/a"), ("proc/lost", tarfile.LNKTYPE, "proc/b"),
            ("/sys/absolute", tarfile.REGTYPE, ""), (".//sys/./dots", tarfile.REGTYPE, ""), ("proc/twice", tarfile.SYMTYPE, "a"),
            ("proc/twice", tarfile.REGTYPE, ""),
        ):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, len(name) if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(name.encode()))
    captured = Archive(tmp_path / "odd.tar")

    for name in ("null", "disk", "fifo", "lost"):
        assert captured.exists(f"/proc/{name}")
        with pytest.raises(OSError, match=tree.NOT_PLAIN):
            captured.read(f"/proc/{name}", LIMIT)
    assert captured.read("/proc/hard", LIMIT) == b"proc/a"
    assert captured.read("/sys/absolute", LIMIT) == b"/sys/absolute"
    assert captured.read("/sys/dots", LIMIT) == b".//sys/./dots"
    assert captured.read("/proc/twice", LIMIT) == b"proc/twice"
    with pytest.raises(OSError, match="Invalid argument"):
        captured.link("/proc/twice")


def test_a_sparse_member_is_skipped(tmp_path: Path) -> None:
    """GNU's sparse files say nothing here, and what follows them is read."""
    first = bytearray(header("proc/sparse", b"00000001000\0", b"S"))
    first[482] = 1
    first[148:156] = b" " * 8
    first[148:155] = b"%06o\0" % sum(first)
    more = bytearray(512)
    (tmp_path / "sparse.tar").write_bytes(
        bytes(first) + more + b"x" * 512 + header("proc/next", b"00000000004\0") + b"next".ljust(512, b"\0") + bytes(1024)
    )
    captured = Archive(tmp_path / "sparse.tar")

    assert captured.read("/proc/next", LIMIT) == b"next"
    with pytest.raises(OSError, match=tree.NOT_PLAIN):
        captured.read("/proc/sparse", LIMIT)


def reference(path: Path) -> list[tuple[str, bytes, str, bytes | None]]:
    """What tarfile finds: name, kind, target, content."""
    with tarfile.open(path) as tar:
        return [
            (
                member.name,
                member.type,
                member.linkname if member.issym() or member.islnk() else "",
                content.read() if member.isreg() and (content := tar.extractfile(member)) else None,
            )
            for member in tar
        ]


def ours(path: Path) -> list[tuple[str, bytes, str, bytes | None]]:
    raw = unpacked(path)
    return [
        (
            member.name.rstrip("/"),
            member.kind,
            member.target,
            bytes(raw[member.start : member.start + member.size]) if member.kind in (b"0", b"\0", b"7") else None,
        )
        for member in members(raw)
    ]


NAMES = st.lists(st.text("abc.é ", min_size=1, max_size=40).filter(lambda name: name.strip(".")), min_size=1, max_size=6).map("/".join)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=1500), NAMES)), min_size=1, max_size=6),
    st.sampled_from((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)),
    st.sampled_from(("w", "w:gz", "w:xz", "w:bz2")),
)
def test_our_reader_agrees_with_tarfile(tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], kind: int, mode: str) -> None:
    """In all three formats and compressions, long and foreign names included."""
    path = tmp_path_factory.mktemp("tar") / "x.tar"
    try:
        pack(path, *entries, kind=kind, mode=mode)
    except ValueError:  # a name that USTAR cannot hold
        assume(False)

    assert ours(path) == reference(path)


@pytest.mark.parametrize("kind", ["hwloc", "lscpu"])
def test_our_reader_agrees_with_tarfile_on_real_captures(kind: str) -> None:
    """Every member of every captured machine is the same."""
    folder = fixture_folder(kind)
    for path in sorted(folder.glob("*.tar.*"))[:3]:
        assert ours(path) == reference(path)


@settings(max_examples=80)
@given(st.binary(max_size=3000), st.integers(0, 8000), st.integers(0, 255))
def test_any_bytes_are_a_capture_or_an_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes, place: int, byte: int) -> None:
    """Random bytes, and a tar with one byte changed, raise nothing but CaptureError."""
    folder = tmp_path_factory.mktemp("any")
    good = bytearray(pack(folder / "good.tar", ("proc/a", b"x" * 50), ("sys/b", "-> ../proc/a"), ("sys/" + "c" * 200, b"")).read_bytes())
    good[place % len(good)] = byte
    for content in (raw, bytes(good)):
        (folder / "any.tar").write_bytes(content)
        try:
            captured = Archive(folder / "any.tar")
        except CaptureError:
            continue
        assert "/etc/passwd" not in captured.names("/", 1000)


# ---------------------------------------------------------------------- the resolver

PARTS = st.sampled_from(("a", "b", "c", "d"))
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
TARGETS = st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(("", "/", "../", "../../", "/../")),
    st.lists(st.sampled_from(("a", "b", "c", "..", ".", "")), min_size=1, max_size=4),
).filter(bool)
TREES = st.dictionaries(PATHS, st.one_of(st.none(), st.binary(max_size=3), TARGETS.map("-> {}".format)), min_size=1, max_size=9)
ASKED = st.lists(st.sampled_from(("a", "b", "c", "d", "..", ".", "")), min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))


def consistent(entries: dict[str, str | bytes | None]) -> list[Entry]:
    """Only those whose parents are no files and no links."""
    return [
        (name, content)
        for name, content in entries.items()
        if not any(entries.get(name[:end]) is not None for end in range(len(name)) if name[end] == "/")
    ]


def answers(captured: Tree, path: str) -> list[object]:
    """What a tree says of a path; an error is its kind."""
    asks = (
        lambda: captured.read(path, 99),
        lambda: sorted(captured.names(path, 99)),
        lambda: captured.link(path),
        lambda: captured.exists(path),
    )
    return [answer(ask) for ask in asks]


def answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except OSError as error:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return "absent" if absent else error.strerror


@settings(max_examples=100)
@given(TREES, st.lists(ASKED, min_size=1, max_size=8))
def test_a_folder_and_an_archive_answer_alike_and_nothing_is_outside(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, str | bytes | None], asked: list[str]
) -> None:
    """On random trees of files, folders and links; the kernel under the same root agrees on what can be read."""
    entries = [("proc/keep", b"1"), ("sys", None), *consistent(tree)]
    base = tmp_path_factory.mktemp("tree")
    (base / "a").write_bytes(b"OUTSIDE")
    folder = Folder(unpack(base / "root", *entries))
    packed = Archive(pack(base / "root.tar", *entries))
    for path in asked:
        of_folder = answers(folder, path)
        assert of_folder == answers(packed, path), path
        assert b"OUTSIDE" not in of_folder
        inside = str(base / "root")
        real = os.path.realpath(inside + path)
        if (
            isinstance(of_folder[0], bytes)
            and real.startswith(inside + "/")
            and "/.." not in path
            and not any(str(c).startswith("-> /") for _, c in entries)
        ):
            assert Path(real).read_bytes() == of_folder[0], "the kernel goes the same way"


def test_opening_a_real_capture_is_quick() -> None:
    """15,802 members: 80 ms where tarfile alone takes 210."""
    folder = fixture_folder("lscpu")
    times = []
    for _ in range(3):
        start = time.process_time()
        Archive(folder / "x86_64-epyc_7451.tar.gz")
        times.append(time.process_time() - start)

    assert min(times) < 0.4

"""A capture answers what the machine answered, holds no identity, and appears whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect import AREAS, collect
from sysperf.host import NOT_CAPTURED, Answers, Host
from sysperf.host import capture as captures
from sysperf.host.archive import unpacked
from sysperf.host.capture import Pseudonyms, write_capture
from sysperf.host.tree import TOO_LARGE
from sysperf.model.errors import CaptureError
from sysperf.model.record import plain
from tests.collect.programs import SMALL, process
from tests.conftest import Dict, Files, captured, fixture_folder

SUFFIXES = (".tar", ".tar.gz", ".tar.xz", ".tar.zst")
UUID = "5c9a9f6e-6a0a-1b2c-3d4e-5f60718293a4"


def recording(files: Files, links: dict[str, str] | None = None, answers: dict[str, Any] | None = None) -> Host:
    """A host that records a made-up machine."""
    return Host("/", tree=Dict(files, links), record=True, answers=Answers(answers or {}, {}))


def facts(host: Host) -> dict[str, Any]:
    """All facts and failures of a machine; not how long they took."""
    areas: dict[str, Any] = plain(collect(host))
    for area in areas.values():
        area.pop("took_ms")
    return areas


# ---------------------------------------------------------------------- replay


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_collectors_find_the_same_in_a_capture_of_this_machine(tmp_path: Path, suffix: str) -> None:
    """Every fact, every unknown and every reason is that of the live machine, but for names."""
    host = Host(record=True)
    live = facts(host)
    path = tmp_path / f"x{suffix}"
    write_capture(host, path)
    again = Host(path)

    assert not again.live
    assert without_names(facts(again)) == without_names(live)


def without_names(facts: Any) -> Any:
    """Facts in which all that pseudonyms replace, and pseudonyms, are one letter."""
    text = str(facts)
    return (
        captures._SHAPE.sub("~", text).replace(os.uname().nodename, "~") if len(os.uname().nodename) > 3 else captures._SHAPE.sub("~", text)
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("hwloc", "nvidiagpunumanodes"),
        ("hwloc", "40intel64-2g2n4c+pcilocality"),
        ("lscpu", "x86_64-epyc_7451"),
        ("lscpu", "vbox-win"),
    ],
)
def test_all_collectors_find_the_same_in_a_capture_of_a_capture(tmp_path: Path, kind: str, name: str) -> None:
    """What others captured replays from our format: same facts, same reasons."""
    folder = fixture_folder(kind)
    (archive,) = folder.glob(f"{name}.tar.*")
    host = Host(archive, record=True)
    first = facts(host)
    write_capture(host, tmp_path / "x.tar.zst")

    assert without_names(facts(Host(tmp_path / "x.tar.zst"))) == without_names(first) == without_names(facts(captured(kind, name)))


def test_a_capture_of_a_replay_replays(tmp_path: Path) -> None:
    """Also when it was unpacked into a folder."""
    host = Host(record=True)
    collect(host, AREAS[:3])
    write_capture(host, tmp_path / "one.tar")
    again = Host(tmp_path / "one.tar", record=True)
    first = plain(collect(again, AREAS[:3]))
    write_capture(again, tmp_path / "two.tar.gz")
    (tmp_path / "folder").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "two.tar.gz", "-C", tmp_path / "folder"], check=True)
    for root in (tmp_path / "two.tar.gz", tmp_path / "folder"):
        second = plain(collect(Host(root), AREAS[:3]))
        assert [area["facts"] for area in second.values()] == [area["facts"] for area in first.values()]


def test_every_kind_of_answer_replays(tmp_path: Path) -> None:
    """Files through links, folders, links, absence, errors and calls; and the error of one is not the error of another."""
    files: Files = {
        "/sys/devices/pci/eth0/mtu": "1500\n",
        "/proc/1/environ": "OMP_NUM_THREADS=4\0HF_TOKEN=secret",
        "/proc/denied": PermissionError(errno.EACCES, "Permission denied"),
        "/proc/big": "x" * 3000,
    }
    host = recording(files, {"/sys/class/net/eth0": "../../devices/pci/eth0"}, {"uname": ["6.1", "x86_64"], "space:/": {"total_bytes": 5}})

    def ask(host: Host) -> list[Any]:
        return [
            host.text("/sys/class/net/eth0/mtu"), host.text("/sys/class/net/../net/eth0/mtu"), host.text("/proc//1/environ"),
            host.names("/sys/class/net"), host.link("/sys/class/net/eth0"), host.glob("/sys/class/*/eth0/mtu"),
            host.exists("/sys/class"), host.exists("/nothing"), host.text("/nothing"), host.text("/proc/denied"), host.exists("/proc/denied"),
            host.text("/sys/class/net"), host.names("/sys/class/net"), host.names("/proc/big"), host.data("/proc/big", 10), host.link("/proc/big"),
            host.uname(), host.space("/"), host.owner("/"), host.nvml("DeviceGetCount"), host.number("/proc/1/environ"),
        ]  # fmt: skip

    live = ask(host)
    write_capture(host, tmp_path / "x.tar.zst")
    again = Host(tmp_path / "x.tar.zst")

    assert live[:4] == ["1500\n", "1500\n", "OMP_NUM_THREADS=4", ("eth0",)]
    assert ask(again) == live
    assert again.sources == host.sources


def test_a_question_never_asked_is_unknown(tmp_path: Path) -> None:
    """A capture holds one file of a folder: that does not make it the folder's only one."""
    host = recording({"/sys/a/b": "1", "/sys/a/c": "2"}, {"/sys/l": "a"})
    host.text("/sys/a/b")
    write_capture(host, tmp_path / "x.tar")
    again = Host(tmp_path / "x.tar")

    assert again.text("/sys/a/b") == "1"
    for answer in (
        again.text("/sys/a/c"),
        again.names("/sys/a"),
        again.link("/sys/l"),
        again.uname(),
        again.exists("/sys/a/c"),
        again.space("/"),
    ):
        assert answer is None
        assert again.sources[-1].error == NOT_CAPTURED
    assert again.exists("/sys/a/b") is True, "it was read"


@pytest.mark.slow
def test_a_machine_with_20_000_processes_is_captured_and_read(tmp_path: Path) -> None:
    """The bounds on archives refuse no genuine machine: each process is in the capture, and counted in it."""
    files: Files = {"/proc/uptime": "1000.50 3000.00\n"}
    for pid in range(10, 20_010):
        files.update(process(pid, pages=300_000 if pid == 7_000 else SMALL))
    host = recording(files)
    live = facts(host)["process"]["facts"]
    summary = write_capture(host, tmp_path / "x.tar.zst")

    assert summary.files > 20_000
    assert facts(Host(tmp_path / "x.tar.zst"))["process"]["facts"] == live
    assert (live["scanned"], [program["pid"] for program in live["processes"]]) == (20_000, [7_000])


def test_an_answer_nested_to_no_end_is_unknown(tmp_path: Path) -> None:
    """What a user's interpreter answers may be made to break what packs it."""
    nested: Any = []
    for _ in range(600):
        nested = [nested]
    host = Host("/", record=True)

    assert host.call("probe:torch:/x", lambda: nested) is None
    assert host.sources[-1].error == "nested too deeply"
    assert write_capture(host, tmp_path / "c.tar").unknowns == 1


def test_while_recording_each_question_has_one_answer() -> None:
    """A counter that changes between two reads must not tell the recording and its replay apart."""
    host = Host(record=True)

    assert host.text("/proc/uptime") == host.text("/proc/uptime")
    assert Host().text("/proc/self/statm") is not None


def possible(files: Mapping[str, object]) -> bool:
    """Nothing is a file and a folder at once."""
    names = [tuple(part for part in path.split("/") if part not in ("", ".")) for path in files]
    return not any(name != other and other[: len(name)] == name for name in names for other in names)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.text("ab/.é\n ", min_size=1, max_size=12).map("/".__add__),
        st.one_of(st.binary(max_size=50), st.just(OSError(5, "Input/output error"))),
        max_size=6,
    ).filter(possible),
    st.lists(
        st.tuples(
            st.sampled_from(("text", "names", "link", "exists", "number", "cpus")), st.text("ab/.é\n ", max_size=12).map("/".__add__)
        ),
        max_size=12,
    ),
)
def test_any_questions_replay(tmp_path_factory: pytest.TempPathFactory, files: Files, asked: list[tuple[str, str]]) -> None:
    """Whatever is asked, by whatever path, of whatever bytes: same answer, same reason."""
    host = recording(files)
    live = [getattr(host, kind)(path) for kind, path in (*asked, *(("text", path) for path in files))]
    path = tmp_path_factory.mktemp("capture") / "x.tar"
    write_capture(host, path)
    again = Host(path)

    assert [getattr(again, kind)(path) for kind, path in (*asked, *(("text", path) for path in files))] == live
    assert again.sources == host.sources


# ---------------------------------------------------------------------- identity

IDENTITIES = (
    "gpu-box-17",
    "S4X9NE0M123456",
    "0c:42:a1:03:d5:5e",
    "0c42:a103:00d5:5e8e",
    UUID,
    "0123456789abcdef0123456789abcdee",
    "eui.0025385b11b2a3f4",
)


def identified() -> Host:
    files: Files = {
        "/proc/sys/kernel/hostname": "gpu-box-17.cluster.example\n",
        "/sys/class/net/eth0/address": "0c:42:a1:03:d5:5e\n",
        "/sys/class/net/lo/address": "00:00:00:00:00:00\n",
        "/sys/class/net/enx0c42a103d55e/mtu": "1500",
        "/sys/class/infiniband/mlx5_0/node_guid": "0c42:a103:00d5:5e8e\n",
        "/sys/block/nvme0n1/device/serial": "S4X9NE0M123456      \n",
        "/sys/block/nvme0n1/wwid": "eui.0025385b11b2a3f4\n",
        "/etc/machine-id": "0123456789abcdef0123456789abcdee\n",
        "/proc/driver/nvidia/gpus/0000:65:00.0/information": f"Model: NVIDIA H100\nGPU UUID: GPU-{UUID}\nBus Location: 0000:65:00.0\n",
        "/proc/1/environ": f"CUDA_VISIBLE_DEVICES=GPU-{UUID}\0NCCL_IB_HCA=mlx5_0:1",
        "/proc/1/mountinfo": "1 2 0:1 / /data/gpu-box-17 rw - nfs gpu-box-17:/x rw",
        "/proc/bus/pci/devices": "6500\t10de2330\t40\n",
    }
    links = {"/dev/disk/by-id/nvme-Samsung_S4X9NE0M123456": "../../nvme0n1"}
    calls = {
        "nvml:DeviceGetUUID(0)": f"GPU-{UUID}",
        f"nvml:DeviceGetHandleByUUID(GPU-{UUID})": "ok",
        "nvml:DeviceGetPciInfo(0)": {"busId": "00000000:65:00.0"},
    }
    host = recording(files, links, calls)
    for path in files:
        host.text(path)
    host.names("/dev/disk/by-id")
    host.names("/sys/class/net")
    host.link("/dev/disk/by-id/nvme-Samsung_S4X9NE0M123456")
    host.text("/proc/gpu-box-17")
    return host


def test_no_identity_is_in_a_capture(tmp_path: Path) -> None:
    """Host name, serial numbers, UUIDs and hardware addresses are in no file, no name and no answer."""
    write_capture(identified(), tmp_path / "x.tar")
    raw = unpacked(tmp_path / "x.tar").decode("latin-1").lower()

    for identity in (*IDENTITIES, "0c42a103d55e"):
        assert identity.lower() not in raw, identity
    for kept in ("nvidia h100", "0000:65:00.0", "00000000:65:00.0", "10de2330", "mlx5_0:1", "00:00:00:00:00:00"):
        assert kept in raw, kept


def test_names_are_replaced_alike(tmp_path: Path) -> None:
    """The GPU that a process names is the GPU that NVML names; shapes and lengths stay."""
    host = identified()
    write_capture(host, tmp_path / "x.tar.gz")
    again = Host(tmp_path / "x.tar.gz")
    uuid = again.nvml("DeviceGetUUID", 0)

    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    assert again.text("/proc/1/environ") == f"CUDA_VISIBLE_DEVICES={uuid}\0NCCL_IB_HCA=mlx5_0:1"
    assert again.nvml("DeviceGetHandleByUUID", uuid) == "ok"
    assert uuid in (again.text("/proc/driver/nvidia/gpus/0000:65:00.0/information") or "")
    assert re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\n", again.text("/sys/class/net/eth0/address") or "")
    (disk,) = again.names("/dev/disk/by-id") or ()
    assert again.link(f"/dev/disk/by-id/{disk}") == "../../nvme0n1"
    assert (again.word("/sys/block/nvme0n1/device/serial") or "?") in disk
    (cable,) = (name for name in again.names("/sys/class/net") or () if name.startswith("enx"))
    assert again.number(f"/sys/class/net/{cable}/mtu") == 1500
    assert [source.error for source in again.sources] == [None] * len(again.sources)


def test_two_captures_cannot_be_matched(tmp_path: Path) -> None:
    """Each has its own salt."""
    for name in ("a.tar", "b.tar"):
        write_capture(identified(), tmp_path / name)

    first, second = (Host(tmp_path / name).nvml("DeviceGetUUID", 0) for name in ("a.tar", "b.tar"))
    assert first != second


@pytest.mark.parametrize("name", ["node1", "ubuntu", "localhost", "vm"])
def test_a_host_name_that_the_system_uses_stays(name: str) -> None:
    """A machine called node1 must not lose its NUMA node 1."""
    answers: dict[str, Any] = {
        "/sys/devices/system/node/node1/cpulist": b"0-3",
        "/etc/os-release": b'ID=ubuntu\nNAME="Ubuntu"',
        "names:/proc/sys/vm": ["vm"],
    }

    assert Pseudonyms(answers, name).text(f"/x/{name} {name}") == f"/x/{name} {name}"
    assert "tower" not in Pseudonyms(answers, "tower").text("tower, tower.local, (tower)")


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_other_bytes_stay(raw: bytes) -> None:
    """Replacing names changes no other byte and no length."""
    names = Pseudonyms({"/sys/block/sda/device/serial": b"WD-12345"}, "tower-1")
    with_names = raw + b" tower-1 WD-12345 " + UUID.encode()

    assert len(names.content(with_names)) == len(with_names)
    if not captures._SHAPE.search(raw.decode("latin-1")) and b"tower-1" not in raw and b"WD-12345" not in raw:
        assert names.content(raw) == raw


# ---------------------------------------------------------------------- the file


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_file_is_a_plain_tar_for_you_alone(tmp_path: Path, suffix: str) -> None:
    """Mode 0600 whatever the umask, and the usual tools can look into it."""
    host = recording({"/proc/version": "Linux"})
    host.text("/proc/version")
    path = tmp_path / f"x{suffix}"
    before = os.umask(0)
    try:
        summary = write_capture(host, path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (summary.files, summary.size_bytes) == (1, path.stat().st_size)
    with tarfile.open(fileobj=io.BytesIO(unpacked(path))) as tar:
        assert tar.getnames() == ["sysperf/capture.json", "proc/version"]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "nothing else is left"


def test_an_existing_file_stays_unless_forced(tmp_path: Path) -> None:
    """Refused with what to do; a link is replaced, not followed."""
    path = tmp_path / "x.tar"
    (tmp_path / "precious").write_text("precious")
    path.symlink_to("precious")
    host = recording({})

    with pytest.raises(CaptureError) as error:
        write_capture(host, path)
    assert "--force" in error.value.hint
    write_capture(host, path, force=True)
    assert (tmp_path / "precious").read_text() == "precious"
    assert not path.is_symlink()
    assert {entry.name for entry in tmp_path.iterdir()} == {"x.tar", "precious"}


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT has none: the file is renamed, and still never replaces another."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_capture(recording({}), tmp_path / "x.tar")
    with pytest.raises(CaptureError, match="there is such a file"):
        write_capture(recording({}), tmp_path / "x.tar")


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: no half capture, no rubbish, one clear error."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptureError, match="No space left on device"):
        write_capture(recording({}), tmp_path / "x.tar")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/nonexistent/x.tar", "/proc/x.tar", "x.zip", "x"])
def test_a_bad_name_is_said(path: str) -> None:
    """No such folder, no such kind."""
    with pytest.raises(CaptureError) as error:
        write_capture(recording({}), Path(path))
    assert error.value.hint


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b'{"answers": []}',
        b'{"answers": {}, "more": 1}',
        b'{"schema": 2}',
        b"[" * 100_000,
        b'{"errors": {"a": 1}}',
        b"\xff",
        b'{"answers": {"/proc/c": "cm9vdA=="}}',
    ],
)
def test_a_damaged_manifest_is_said(tmp_path: Path, manifest: bytes) -> None:
    """A hostile or newer capture is refused when it is opened."""
    (tmp_path / "sysperf").mkdir()
    (tmp_path / "sysperf/capture.json").write_bytes(manifest)
    with pytest.raises(CaptureError) as error:
        Host(tmp_path)
    assert "update" in error.value.hint or "again" in error.value.hint


def test_a_manifest_leads_nowhere_else(tmp_path: Path) -> None:
    """Moved files stay inside."""
    (tmp_path / "sysperf").mkdir()
    (tmp_path / "sysperf/capture.json").write_text('{"moved": {"/proc/a": "/../../../../etc/passwd", "/proc/b": "/etc/passwd"}}')
    host = Host(tmp_path)

    assert [host.text(f"/proc/{name}") for name in "ab"] == [None] * 2


def test_only_a_recording_host_can_be_written() -> None:
    """A mistake in our own code, not the user's."""
    with pytest.raises(ValueError, match="record"):
        write_capture(Host(), Path("x.tar"))


def test_too_large_replays_as_too_large(tmp_path: Path) -> None:
    """The reason is that of the live machine."""
    host = recording({"/proc/a": b"x" * (2 << 20)})
    host.text("/proc/a")
    write_capture(host, tmp_path / "x.tar")
    again = Host(tmp_path / "x.tar")

    assert again.text("/proc/a") is None
    assert again.sources[-1].error == TOO_LARGE

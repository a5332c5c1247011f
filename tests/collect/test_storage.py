"""What we say of disks, mounts and room is the kernel's word, and no network file system is ever asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.readers import mounts
from sysperf.collect.storage import Storage, collect, devices_below, mount_list, places
from sysperf.collect.storage.filesystems import is_network
from sysperf.collect.storage.records import Disk, Raid
from sysperf.host import Host
from tests.conftest import Dict, Files, MakeMachine, captured

ROOT = "27 1 259:2 / / rw,relatime - ext4 /dev/root rw"
NFS = (
    "90 27 0:77 / /data rw,noatime shared:5 - nfs4 filer:/export/data "
    "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=8,sec=sys,clientaddr=10.0.0.7,addr=10.0.0.1"
)
DISK: Files = {
    "size": "1953525168\n",
    "removable": "0\n",
    "queue/rotational": "0\n",
    "queue/read_ahead_kb": "128\n",
    "queue/scheduler": "[none] mq-deadline kyber\n",
    "device/model": "SAMSUNG MZVL21T0HCLR-00B00              \n",
}
NVME = "../devices/pci0000:00/0000:00:06.0/0000:04:00.0/nvme/nvme0/nvme0n1"
HERE = {"home-user": "1000", "mount-of:home": "/", "mount-of:tmp": "/", "mount-of:cwd": "/data", "home": "/home/ada"}
ROOM = {"total_bytes": 1000, "free_bytes": 50, "files": 100, "files_free": 4, "read_only": 0}


def disk(name: str, files: Files) -> Files:
    return {f"/sys/block/{name}/{path}": content for path, content in files.items()}


def on(target: str, name: str = "nvme0n1") -> tuple[dict[str, str], str]:
    """The links of one disk, and the folder of its files."""
    return {f"/sys/block/{name}": target}, "/sys/" + target.removeprefix("../")


def one_disk(machine: MakeMachine, target: str, name: str, files: Files | None = None, mountinfo: str = ROOT) -> Disk:
    links, folder = on(target, name)
    contents: Files = {f"{folder}/{path}": content for path, content in (files or DISK).items()}
    host = machine({**contents, "/proc/self/mountinfo": mountinfo}, {**links, "/sys/dev/block/259:2": f"../../block/{name}/{name}p2"}, HERE)
    (disk,) = collect(host).disks or ()
    return disk


def test_a_drive_is_described(machine: MakeMachine) -> None:
    """Model, capacity, read-ahead, scheduler, and its place on PCI by the path of its device."""
    links, folder = on(NVME)
    host = machine(
        {
            **{f"{folder}/{path}": content for path, content in DISK.items()},
            "/proc/self/mountinfo": ROOT,
            "/sys/bus/pci/devices/0000:04:00.0/numa_node": "1",
        },
        {**links, "/sys/dev/block/259:2": "../../devices/pci0000:00/0000:00:06.0/0000:04:00.0/nvme/nvme0/nvme0n1/nvme0n1p2"},
        {**HERE, "mount-of:cwd": "/"},
    )

    assert collect(host).disks == (
        Disk(
            name="nvme0n1",
            transport="nvme",
            model="SAMSUNG MZVL21T0HCLR-00B00",
            size_bytes=1953525168 * 512,
            removable=False,
            rotational=False,
            read_ahead_kb=128,
            scheduler="none",
            pci_address="0000:04:00.0",
            numa_node=1,
            holds=("root", "tmp", "home", "cwd"),
        ),
    )


@pytest.mark.parametrize(
    ("name", "target", "transport"),
    [
        ("sda", "../devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda", "ata"),
        ("sdb", "../devices/pci0000:00/0000:3b:00.0/host1/target1:2:0/1:2:0:0/block/sdb", "scsi"),
        ("sdc", "../devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdc", "usb"),
        ("vda", "../devices/pci0000:00/0000:00:02.0/virtio1/block/vda", "virtio"),
        ("nvme0n1", NVME, "nvme"),
        ("nvme1n1", "../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1", "nvme"),
        ("sdd", "../devices/LNXSYSTM:00/VMBUS:00/vmbus_0/host0/target0:0:0/0:0:0:0/block/sdd", "virtual"),
        ("xvda", "../devices/vbd-51712/block/xvda", "virtual"),
        ("mmcblk0", "../devices/platform/soc/mmc_host/mmc0/mmc0:0001/block/mmcblk0", "mmc"),
    ],
)
def test_transports(machine: MakeMachine, name: str, target: str, transport: str) -> None:
    """How a disk is attached is told by the path of its device: it says whether `rotational` can be believed."""
    assert one_disk(machine, target, name).transport == transport


def test_what_is_no_hardware_is_no_disk(machine: MakeMachine) -> None:
    """Loop devices, RAM disks and device-mapper volumes have no speed of their own."""
    links = {f"/sys/block/{name}": f"../devices/virtual/block/{name}" for name in ("loop0", "zram0", "dm-0", "md127")}

    assert collect(machine({}, links)).disks == ()


def test_a_drive_with_multipath_is_found_through_its_subsystem(machine: MakeMachine) -> None:
    """The kernel puts such a drive among virtual devices; its only controller says where it is."""
    host = machine(
        {
            "/sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1/size": "8",
            "/sys/class/nvme-subsystem/nvme-subsys1/nvme3/x": "",
            "/sys/class/nvme/nvme3/address": "0000:81:00.0\n",
        },
        {"/sys/block/nvme1n1": "../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1"},
    )

    (drive,) = collect(host).disks or ()

    assert drive.pci_address == "0000:81:00.0"


def test_places_are_followed_through_encryption_and_raid(machine: MakeMachine) -> None:
    """/ on LUKS on a mirror of two disks lies on both disks."""
    links = {f"/sys/block/{name}": f"../devices/pci0000:00/0000:00:17.0/ata1/host0/block/{name}" for name in ("sda", "sdb", "sdc")}
    host = machine(
        {
            "/proc/self/mountinfo": "27 1 253:0 / / rw - ext4 /dev/mapper/root rw",
            "/sys/block/dm-0/slaves/md127/size": "",
            "/sys/block/md127/slaves/sda1/size": "",
            "/sys/block/md127/slaves/sdb2/size": "",
        },
        {**links, "/sys/dev/block/253:0": "../../devices/virtual/block/dm-0"},
        {**HERE, "mount-of:cwd": "/"},
    )

    places = {drive.name: drive.holds for drive in collect(host).disks or ()}

    assert places == {"sda": ("root", "tmp", "home", "cwd"), "sdb": ("root", "tmp", "home", "cwd"), "sdc": ()}


def test_btrfs_is_followed_by_its_source(machine: MakeMachine) -> None:
    """btrfs numbers its devices itself (0:35): the partition is in the source."""
    assert one_disk(machine, NVME, "nvme0n1", mountinfo="27 1 0:35 /@ / rw - btrfs /dev/nvme0n1p3 rw,subvol=/@").holds == (
        "root",
        "tmp",
        "home",
        "cwd",
    )


@pytest.mark.parametrize(("says", "spins"), [("1", True), ("0", False), ("?", None)])
def test_a_mount_on_a_spinning_disk_says_so(machine: MakeMachine, says: str, spins: bool | None) -> None:
    """What lies below a mount decides how fast random reads are."""
    links, folder = on(NVME)
    files: Files = {f"{folder}/queue/rotational": says, "/proc/self/mountinfo": f"{ROOT}\n{NFS}"}
    host = machine(files, {**links, "/sys/dev/block/259:2": "../../block/nvme0n1/nvme0n1p2"}, HERE)

    rotational = {mount.path: mount.rotational for mount in collect(host).mounts or ()}

    assert rotational == {"/": spins, "/data": None}


def test_a_place_on_an_untraceable_disk_leaves_the_others_unknown(machine: MakeMachine) -> None:
    """In a container / is an overlay: any disk may be below it, so none is said to hold nothing."""
    assert one_disk(machine, NVME, "nvme0n1", mountinfo="27 1 0:50 / / rw - overlay overlay rw").holds is None


def test_a_network_mount_and_its_options(machine: MakeMachine) -> None:
    """Options that matter are kept; the server's name and addresses are not."""
    host = machine({"/proc/self/mountinfo": f"{ROOT}\n{NFS}\n", "/sys/class/bdi/0:77/read_ahead_kb": "128\n"}, calls=HERE)

    facts = collect(host)

    nfs, root = facts.mounts or ()
    assert (nfs.path, nfs.fstype, nfs.network, nfs.below) == ("/data", "nfs4", True, "/data/")
    assert (nfs.rsize_bytes, nfs.nconnect, nfs.read_ahead_kb) == (1 << 20, 8, 128)
    assert {"hard", "noatime", "vers=4.2", "proto=tcp"} <= set(nfs.options)
    assert "filer" not in repr(facts)
    assert "10.0.0" not in repr(facts)
    assert (root.network, root.source) == (False, "/dev/root")
    assert (facts.home_fstype, facts.home_user) == ("ext4", 1000)


def test_room_is_asked_of_local_file_systems_only(machine: MakeMachine) -> None:
    """The working directory lies on NFS: no call goes there, since a dead server would never answer."""
    host = machine({"/proc/self/mountinfo": f"{ROOT}\n{NFS}\n"}, calls={**HERE, "space:/": ROOM, "space:/data": ROOM})

    (root,) = collect(host).spaces or ()

    assert (root.path, root.holds, root.total_bytes, root.free_bytes, root.inodes_free) == ("/", ("root", "tmp", "home"), 1000, 50, 4)
    assert not any(source.path == "space:/data" for source in host.sources)


def test_the_kernels_own_mounts_are_not_listed(machine: MakeMachine) -> None:
    """proc, cgroups, snaps and containers' layers hold nobody's data."""
    lines = [
        ROOT,
        "22 27 0:21 / /proc rw - proc proc rw",
        "31 27 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "40 27 7:1 / /snap/core22/1 ro - squashfs /dev/loop1 ro",
        "41 27 0:51 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw",
        "42 27 0:60 / /scratch rw - tmpfs tmpfs rw",
    ]

    facts = collect(machine({"/proc/self/mountinfo": "\n".join(lines)}, calls=HERE)).mounts or ()

    assert {mount.path for mount in facts} == {"/", "/scratch"}


def test_older_captures_have_mounts_without_numbers(machine: MakeMachine) -> None:
    """Where mountinfo was not gathered, /proc/mounts tells the same of network mounts."""
    host = machine({"/proc/mounts": "/dev/sda2 / xfs rw 0 0\nfiler:/x /data nfs rw,rsize=32768,sync,noac 0 0\n"}, calls=HERE)

    nfs, _ = collect(host).mounts or ()

    assert (nfs.fstype, nfs.rsize_bytes, nfs.nconnect, nfs.options) == ("nfs", 32768, 1, ("noac", "rsize=32768", "rw", "sync"))


def test_pressure_is_a_share(machine: MakeMachine) -> None:
    """``avg60=22.50`` percent is 0.225 of the time."""
    facts = collect(
        machine(
            {"/proc/pressure/io": "some avg10=30.00 avg60=22.50 avg300=1.00 total=9\nfull avg10=0.00 avg60=10.00 avg300=0.00 total=9\n"}
        )
    )

    assert (facts.pressure_some, facts.pressure_full) == (0.225, 0.1)


def test_nothing_read_is_unknown(machine: MakeMachine) -> None:
    """Without any of the files every fact is unknown; none is empty or zero."""
    assert collect(machine({})) == Storage()


def test_links_are_followed_to_the_mount_and_never_on_a_network(machine: MakeMachine, tmp_path: Path) -> None:
    """A home that is a link leads to its real mount; what lies on a network is not even asked whether it is a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real/../real")
    (tmp_path / "far").symlink_to(tmp_path / "real")
    host = machine(
        {"/proc/self/mountinfo": f"{ROOT}\n1 1 8:1 / {tmp_path}/real rw - ext4 /dev/sda1 rw\n2 1 0:9 / {tmp_path}/far rw - nfs x:/ rw\n"}
    )

    assert places._point_of(host, str(tmp_path / "home" / "ada")) == f"{tmp_path}/real"
    assert places._point_of(host, str(tmp_path / "far" / "ada")) == f"{tmp_path}/far"


def test_a_ring_of_links_ends(machine: MakeMachine, tmp_path: Path) -> None:
    """Links that lead in a circle are refused as the kernel refuses them."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")

    with pytest.raises(OSError, match="too many links"):
        places._point_of(machine({"/proc/self/mountinfo": ROOT}), str(tmp_path / "one"))


@pytest.mark.parametrize(
    ("fstype", "network"), [("nfs4", True), ("lustre", True), ("fuse.gcsfuse", True), ("ext4", False), ("tmpfs", False), ("overlay", False)]
)
def test_network_file_systems(fstype: str, network: bool) -> None:
    """Which kinds of file systems lie beyond a network."""
    assert is_network(fstype) is network


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [("none [mq-deadline] kyber bfq", "mq-deadline"), ("none", "none"), ("[none] mq-deadline", "none"), ("a b", None)],
)
def test_schedulers(machine: MakeMachine, text: str, scheduler: str | None) -> None:
    """The active scheduler stands in brackets, or alone."""
    assert one_disk(machine, NVME, "nvme0n1", {"queue/scheduler": text}).scheduler == scheduler


@settings(max_examples=25)
@given(st.binary(max_size=600), st.binary(max_size=200), st.binary(max_size=60))
def test_any_content_is_survived(mountinfo: bytes, pressure: bytes, word: bytes) -> None:
    """Garbage gives unknowns, shares stay shares, sizes are never negative."""
    files: Files = {
        "/proc/self/mountinfo": mountinfo + b"\n" + ROOT.encode(),
        "/proc/pressure/io": pressure,
        **disk("sda", dict.fromkeys(DISK, word)),
    }
    host = Host("/test-machine", tree=Dict(files))

    facts = collect(host)

    assert facts.pressure_some is None or 0 <= facts.pressure_some <= 1
    assert all(drive.size_bytes is None or drive.size_bytes >= 0 for drive in facts.disks or ())


@settings(max_examples=25)
@given(st.text(alphabet="abdmnsv0123456789p-!", max_size=16))
def test_the_disk_of_a_partition_is_found_once(name: str) -> None:
    """Taking a partition's number off twice changes nothing more."""
    assert devices_below._whole(devices_below._whole(name)) == devices_below._whole(name)


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("nvme0n1p2", "nvme0n1"),
        ("nvme0n1", "nvme0n1"),
        ("sda1", "sda"),
        ("vdb12", "vdb"),
        ("mmcblk0p1", "mmcblk0"),
        ("dm-3", "dm-3"),
        ("md127", "md127"),
    ],
)
def test_partitions(name: str, whole: str) -> None:
    """A partition belongs to a disk; volumes are followed by their slaves."""
    assert devices_below._whole(name) == whole


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="no /proc here")
def test_this_machine_has_a_root() -> None:
    """On the machine that runs the tests, / is found, and statvfs says what `df` would."""
    host = Host("/")

    facts = collect(host)

    assert mounts.mount_of(host, "/") is not None
    for space in facts.spaces or ():
        stat = os.statvfs(space.path)
        assert space.total_bytes == stat.f_blocks * stat.f_frsize


def test_a_captured_machine_with_old_mounts() -> None:
    """The eight-accelerator server has xfs on / and /scratch; its free space was not captured and stays unknown."""
    facts = collect(captured("hwloc", "32intel64-2p8co2t+8ve"))

    assert {(mount.path, mount.fstype) for mount in facts.mounts or ()} >= {("/", "xfs"), ("/scratch", "xfs")}
    assert facts.disks is None
    assert all(space.total_bytes is None for space in facts.spaces or ())


# ---------------------------------------------------------------------- failures


def test_a_file_system_that_the_kernel_made_read_only_is_told_from_one_mounted_so(machine: MakeMachine) -> None:
    """errors=remount-ro sets the file system's flag; the mount's own options still say rw."""
    text = (
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "23 1 8:2 / /data rw,relatime - ext4 /dev/sda2 ro,errors=remount-ro\n"
        "24 1 8:3 / /iso ro,relatime - ext4 /dev/sda3 ro\n"
    )
    facts = collect(machine({mounts.MOUNTINFO: text}))

    assert {mount.path: mount.failed_read_only for mount in facts.mounts or ()} == {"/": False, "/data": True, "/iso": False}


def test_a_degraded_array_is_read(machine: MakeMachine) -> None:
    """raid0 has no file of missing disks: it cannot miss any."""
    files: Files = {f"/sys/block/md0/md/{name}": text for name, text in (("level", "raid1\n"), ("raid_disks", "2\n"), ("degraded", "1\n"))}
    files |= {f"/sys/block/md0/md/{name}": text for name, text in (("array_state", "clean\n"), ("sync_action", "recover\n"))}
    files |= {"/sys/block/md1/md/level": "raid0\n", "/sys/block/md1/md/raid_disks": "4 (3)\n"}
    facts = collect(machine(files))

    assert facts.raids == (Raid("md0", "raid1", 2, 1, "clean", "recover"), Raid("md1", "raid0", 4, None, None, None))


def test_a_file_system_is_asked_for_two_seconds_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine's root answers; without time to answer it does not; what is not there is no answer, either."""
    assert mount_list._asked_in_time("/") is True
    with pytest.raises(OSError, match="refuses"):
        mount_list._asked_in_time(str(tmp_path / "none"))
    monkeypatch.setattr(mount_list, "ANSWER_S", -1.0)
    assert mount_list._asked_in_time("/") is False


def test_only_deep_asks_network_file_systems(machine: MakeMachine) -> None:
    """A hung server must not hold up an audit that nobody told to look closer; local disks are never asked."""
    text = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 1 0:40 / /data rw - nfs4 server:/data rw\n"
    calls: dict[str, object] = {"answers:/data": False}
    deep, shallow = (collect(machine({mounts.MOUNTINFO: text}, calls=calls, deep=deep)).mounts for deep in (True, False))

    assert {mount.path: mount.answers for mount in deep or ()} == {"/data": False, "/": None}
    assert {mount.answers for mount in shallow or ()} == {None}

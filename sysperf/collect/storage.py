"""storage: disks, what is mounted where, room on local file systems, and waiting for disks.

Reads   /proc/self/mountinfo (older captures: /proc/mounts)  /proc/pressure/io  /sys/dev/block/*  /sys/class/bdi/*/read_ahead_kb
        /sys/block/*  /sys/block/*/{size,removable,slaves}  /sys/block/*/queue/{rotational,read_ahead_kb,scheduler}
        /sys/block/*/device/{model,address}  /sys/block/*/md/{level,raid_disks,degraded,array_state,sync_action}
        statvfs() of local file systems
Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
        https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-block
        https://docs.kernel.org/accounting/psi.html

A network file system whose server is gone makes every call on it wait for ever: none is made there.
"""

import os
import re
import signal
import time
from typing import Annotated

from sysperf.collect.pcie import PCI, locality
from sysperf.collect.readers import mounts
from sysperf.collect.readers.mounts import MOUNTINFO, MOUNTS
from sysperf.collect.readers.pressure import waited
from sysperf.host import Host
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs import mountinfo
from sysperf.procfs.numbers import whole
from sysperf.procfs.pci import address_in
from sysperf.startup import lazy

PRESSURE = "/proc/pressure/io"
BLOCK = "/sys/block"
EACH = f"{BLOCK}/*"
READ_AHEAD = "/sys/class/bdi/*/read_ahead_kb"
MAX_LISTED = 256
ANSWER_S = 2.0
MAX_DISKS = 128

PARALLEL = frozenset(
    ("lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "wekafs", "panfs", "pvfs2", "ceph", "fuse.ceph", "daos", "fuse.daos")
)
"""Network file systems made to deliver many GB/s."""
NETWORK = PARALLEL | frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "coda", "ncpfs", "glusterfs", "fuse.glusterfs", "ocfs2", "gfs2", "dvs",
    "fuse.sshfs", "fuse.gcsfuse", "gcsfuse", "fuse.s3fs", "s3fs", "fuse.goofys", "fuse.rclone", "fuse.mountpoint-s3", "mountpoint-s3",
    "fuse.blobfuse", "fuse.blobfuse2", "blobfuse", "blobfuse2", "fuse.juicefs", "fuse.alluxio-fuse", "fuse.davfs", "davfs", "fuse.cvmfs2",
    "9p", "drvfs", "virtiofs", "vboxsf", "prl_fs", "fuse.vmhgfs-fuse",
))  # fmt: skip
"""File systems whose data comes over a network, or from outside a virtual machine."""
LOCAL = frozenset((
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "vfat", "exfat", "ntfs3", "tmpfs", "overlay",
))  # fmt: skip
"""File systems that answer statvfs() without asking anybody else."""
_KERNELS_OWN = frozenset((
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl",
    "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "hugetlbfs", "mqueue", "nfsd", "nsfs", "proc", "pstore", "ramfs", "resctrl", "rootfs",
    "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
))  # fmt: skip
_OTHERS_OWN = lazy(r"/(?:snap|run|sys|proc|dev|boot|var/snap|var/lib/(?:snapd|docker|containerd|containers|kubelet|lxc|lxd))/.+")
_OPTIONS = lazy(
    r"r[ow]|(?:a|dir)?sync|noac|noatime|relatime|strictatime|hard|soft|fsc|dax|discard|nobarrier|lookupcache=\w{1,9}"
    r"|(?:rsize|wsize|nconnect|max_connect|actimeo|acregmax|vers|minorversion|proto|cache|max_read|data|compress|bsize|msize)=[\w.:+-]{1,24}"
)
_DEVICE = lazy(r"[0-9]{1,7}:[0-9]{1,7}")
_DISK_NAME = lazy(r"[A-Za-z0-9][A-Za-z0-9._!-]{0,63}")
_PHYSICAL_NAME = lazy(r"sd[a-z]{1,4}|[vhx]v?d[a-z]{1,3}|nvme[0-9]+n[0-9]+|mmcblk[0-9]+|pmem[0-9]+")
_RAID_NAME = lazy(r"md[0-9]{1,6}|md_[A-Za-z0-9._-]{1,60}")
_PARTITION = lazy(r"(?<=[0-9])p[0-9]+$|(?<=[a-z])[0-9]+$")
_SCHEDULER = lazy(r"\[([\w-]{1,24})\]|^([\w-]{1,24})$")
_TRANSPORTS = (
    ("virtio", "virtio"),
    ("nvme", "nvme"),
    ("usb", "usb"),
    ("/ata", "ata"),
    ("mmc_host", "mmc"),
    ("vmbus", "virtual"),
    ("vbd-", "virtual"),
)


class Disk(Record):
    """A disk that is hardware, or that a hypervisor shows as hardware."""

    name: Annotated[str, fact("kernel name", BLOCK)]
    transport: Annotated[str | None, fact("nvme, ata, scsi, usb, mmc, virtio or virtual; scsi may be a RAID volume", BLOCK, EACH)]
    model: Annotated[str | None, fact("model name; empty when it has none", f"{EACH}/device/model")] = None
    size_bytes: Annotated[int | None, fact("capacity", f"{EACH}/size")] = None
    removable: Annotated[bool | None, fact("removable medium", f"{EACH}/removable")] = None
    rotational: Annotated[
        bool | None, fact("spinning disk; disks of virtual machines and RAID volumes often say so wrongly", f"{EACH}/queue/rotational")
    ] = None
    read_ahead_kb: Annotated[int | None, fact("data read ahead of a sequential reader, KiB", f"{EACH}/queue/read_ahead_kb")] = None
    scheduler: Annotated[str | None, fact("I/O scheduler in use", f"{EACH}/queue/scheduler")] = None
    pci_address: Annotated[str | None, fact("its controller on PCI; empty when on none", BLOCK, f"{EACH}/device/address")] = None
    numa_node: Annotated[int | None, fact("memory node beside its controller", f"{PCI}/*/numa_node")] = None
    holds: Annotated[
        tuple[str, ...] | None, fact("which of root, tmp, home and cwd lie on it", "/sys/dev/block/*", MOUNTINFO, "mount-of:*")
    ] = None


class Mount(Record):
    """A mounted file system."""

    path: Annotated[str, fact("where it is mounted", MOUNTINFO, MOUNTS)]
    fstype: Annotated[str, fact("kind of file system", MOUNTINFO, MOUNTS)]
    network: Annotated[bool, fact("data comes over a network, or from outside the virtual machine", MOUNTINFO, MOUNTS)] = False
    below: Annotated[str, fact("how the path of a file in it begins: the mount's path and a slash", MOUNTINFO, MOUNTS)] = ""
    options: Annotated[tuple[str, ...], fact("options that matter for speed", MOUNTINFO, MOUNTS)] = ()
    rsize_bytes: Annotated[int | None, fact("largest read of one request (network file systems)", MOUNTINFO, MOUNTS)] = None
    nconnect: Annotated[int | None, fact("connections to the server (NFS); 1 unless given", MOUNTINFO, MOUNTS)] = None
    read_ahead_kb: Annotated[int | None, fact("data read ahead of a sequential reader, KiB (NFS)", READ_AHEAD)] = None
    rotational: Annotated[
        bool | None, fact("a spinning disk lies below it; unknown of network and overlay file systems", f"{EACH}/queue/rotational")
    ] = None
    source: Annotated[str, fact("block device; empty for all else, whose source may name a host", MOUNTINFO, MOUNTS)] = ""
    failed_read_only: Annotated[
        bool | None, fact("mounted to be written to, and made read-only by the kernel since: after an I/O error", MOUNTINFO)
    ] = None
    answers: Annotated[
        bool | None, fact("its server answers within two seconds; asked of network file systems under --deep", "answers:*")
    ] = None


class Space(Record):
    """Room on one local file system that holds root, tmp, home or cwd."""

    path: Annotated[str, fact("where it is mounted", MOUNTINFO)]
    holds: Annotated[tuple[str, ...], fact("which of root, tmp, home and cwd lie on it", MOUNTINFO)]
    fstype: Annotated[str, fact("kind of file system", MOUNTINFO)]
    total_bytes: Annotated[int | None, fact("size", "space:*")] = None
    free_bytes: Annotated[int | None, fact("free for an ordinary user", "space:*")] = None
    inodes: Annotated[int | None, fact("files it can hold; 0 where there is no such limit", "space:*")] = None
    inodes_free: Annotated[int | None, fact("files that can be added", "space:*")] = None
    read_only: Annotated[bool | None, fact("mounted read-only", "space:*")] = None


class Raid(Record):
    """A software RAID array."""

    name: Annotated[str, fact("kernel name", BLOCK)]
    level: Annotated[str | None, fact("raid0, raid1, raid5, …", f"{EACH}/md/level")] = None
    disks: Annotated[int | None, fact("disks that it is made of", f"{EACH}/md/raid_disks")] = None
    degraded: Annotated[int | None, fact("disks that it lacks; unknown of levels that can lack none", f"{EACH}/md/degraded")] = None
    state: Annotated[str | None, fact("clean, active, read-auto, inactive, failed, …", f"{EACH}/md/array_state")] = None
    action: Annotated[str | None, fact("what it does beside its work: idle, resync, recover, check", f"{EACH}/md/sync_action")] = None


class Storage(Record):
    """Disks, mounts, room and pressure."""

    disks: Annotated[tuple[Disk, ...] | None, fact("physical disks", BLOCK)] = None
    raids: Annotated[tuple[Raid, ...] | None, fact("software RAID arrays", BLOCK)] = None
    mounts: Annotated[tuple[Mount, ...] | None, fact("mounts that may hold programs or data", MOUNTINFO, MOUNTS)] = None
    spaces: Annotated[
        tuple[Space, ...] | None, fact("room on the local file systems of root, tmp, home and cwd", MOUNTINFO, "mount-of:*")
    ] = None
    root_fstype: Annotated[str | None, fact("file system of /", MOUNTINFO, MOUNTS)] = None
    home_fstype: Annotated[str | None, fact("file system of the home folder", "mount-of:home")] = None
    cwd_fstype: Annotated[str | None, fact("file system of the working directory", "mount-of:cwd")] = None
    pressure_some: Annotated[float | None, fact("share of the last 60 s in which some task waited for I/O", PRESSURE)] = None
    pressure_full: Annotated[float | None, fact("share of the last 60 s in which all tasks waited for I/O", PRESSURE)] = None


def collect(host: Host) -> Storage:
    """Read disks and mounts; ask only local file systems how full they are."""
    found = mounts.mounts(host)
    places = _places(host) if found else {}
    held, complete = _held(host, places)
    some, full = waited(host, PRESSURE)
    disks = _disks(host, held, () if complete else None)
    spinning = {disk.name: disk.rotational for disk in disks or ()}
    fstypes = {name: None if mount is None else neutral(mount.fstype, 60) for name, mount in places.items()}
    return Storage(
        disks=disks,
        raids=_raids(host),
        mounts=_listed(host, found, spinning) if found else None,
        spaces=_spaces(host, places) if found else None,
        root_fstype=fstypes.get("root"),
        home_fstype=fstypes.get("home"),
        cwd_fstype=fstypes.get("cwd"),
        pressure_some=some,
        pressure_full=full,
    )


# ---------------------------------------------------------------------- mounts


def is_network(fstype: str) -> bool:
    """Whether data of this kind of file system comes over a network."""
    return fstype in NETWORK


def _listed(host: Host, found: tuple[mountinfo.Mount, ...], spinning: dict[str, bool | None]) -> tuple[Mount, ...]:
    """The mounts of people's files: not the kernel's own, nor those of containers, snaps and sessions. The last on a path hides others."""
    wanted = {mount.point: mount for mount in found if mount.fstype not in _KERNELS_OWN and not _OTHERS_OWN.fullmatch(mount.point)}
    shown = sorted(wanted.values(), key=lambda mount: not is_network(mount.fstype))[:MAX_LISTED]
    return tuple(_mount(host, mount, spinning) for mount in shown)


def _mount(host: Host, mount: mountinfo.Mount, spinning: dict[str, bool | None]) -> Mount:
    path, nfs = neutral(mount.point, 4096), mount.fstype in ("nfs", "nfs4")
    kept = tuple(sorted(option for option in mount.options if _OPTIONS.fullmatch(option)))
    return Mount(
        path=path,
        fstype=neutral(mount.fstype, 60),
        network=is_network(mount.fstype),
        below=path if path.endswith("/") else f"{path}/",
        options=kept,
        rsize_bytes=_option(kept, "rsize"),
        nconnect=(_option(kept, "nconnect") or 1) if nfs else None,
        read_ahead_kb=host.number(f"/sys/class/bdi/{mount.device}/read_ahead_kb") if nfs and _DEVICE.fullmatch(mount.device) else None,
        rotational=_rotational(host, mount, spinning),
        source=neutral(mount.source, 200) if mount.source.startswith("/dev/") and not is_network(mount.fstype) else "",
        failed_read_only="rw" in mount.own_options and "ro" in mount.options if mount.device else None,
        answers=_answers(host, mount.point) if host.deep and is_network(mount.fstype) else None,
    )


def _answers(host: Host, path: str) -> bool | None:
    """Whether a file system says how full it is in time. Asked by a process of its own, which a dead server may hold for ever."""
    answer: bool | None = host.call(f"answers:{path}", lambda: _asked_in_time(path), bool)
    return answer


def _asked_in_time(path: str) -> bool:
    quiet = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
    asker = os.posix_spawnp("stat", ("stat", "--file-system", path), {"PATH": "/usr/bin:/bin"}, file_actions=quiet, setpgroup=0)
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        pid, status = os.waitpid(asker, os.WNOHANG)
        if pid:
            if status:
                raise OSError("the file system refuses to say how full it is")
            return True
        time.sleep(0.02)
    os.kill(asker, signal.SIGKILL)  # it ends when the kernel lets it; nobody waits for that
    return False


def _rotational(host: Host, mount: mountinfo.Mount, spinning: dict[str, bool | None]) -> bool | None:
    if mount.fstype == "tmpfs":
        return False
    found = [spinning.get(disk) for disk in disks_under(host, mount)]
    return True if True in found else None if None in found or not found else False


def _option(options: tuple[str, ...], name: str) -> int | None:
    for option in options:
        key, _, value = option.partition("=")
        if key == name and re.fullmatch(r"[0-9]{1,12}", value):
            return int(value)
    return None


# ---------------------------------------------------------------------- places


Places = dict[str, mountinfo.Mount | None]


def home_of(host: Host) -> str:
    """The home folder of the user who asks, behind sudo too; empty when not known."""
    home = host.call("home", _home, str)
    return home if isinstance(home, str) and home.startswith("/") else ""


def _home() -> str:
    user = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    return os.path.expanduser(f"~{user}")


def _places(host: Host) -> Places:
    """The mounts that hold root, tmp, home and the working directory."""
    home = home_of(host)
    return {
        "root": mounts.mount_of(host, "/"),
        "tmp": _holder(host, "tmp", os.environ.get("TMPDIR", "/tmp")),  # noqa: S108 - looked at, not written to
        "home": _holder(host, "home", home) if home else None,
        "cwd": _holder(host, "cwd", ""),
    }


def _holder(host: Host, name: str, path: str) -> mountinfo.Mount | None:
    """The mount that holds a place; its mount point is all that is recorded."""
    point = host.call(f"mount-of:{name}", lambda: _point_of(host, path or os.getcwd()), str)
    return mounts.mount_of(host, point) if isinstance(point, str) else None


def _point_of(host: Host, path: str) -> str:
    """The mount point that holds a path. Links are followed one by one, and never on a network."""
    if not path.startswith("/"):
        raise OSError("there is no such folder")
    todo, done, links = path.split("/")[::-1], "", 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        target = _link(host, here)
        if target is None:
            done = here
            continue
        links += 1
        if links > 40:
            raise OSError("too many links")
        done = "" if target.startswith("/") else done
        todo.extend(target.split("/")[::-1])
    holder = mounts.mount_of(host, done or "/")
    if holder is None:
        raise OSError("no mount holds it")
    return holder.point


def _link(host: Host, path: str) -> str | None:
    holder = mounts.mount_of(host, path)
    if holder is None or holder.fstype not in LOCAL:
        return None
    try:
        return os.readlink(path)
    except OSError:
        return None


def _spaces(host: Host, places: Places) -> tuple[Space, ...]:
    held: dict[str, list[str]] = {}
    local = {mount.point: mount for mount in places.values() if mount is not None and mount.fstype in LOCAL}
    for name, mount in places.items():
        if mount is not None and mount.point in local:
            held.setdefault(mount.point, []).append(name)
    return tuple(_space(host, local[point], tuple(names)) for point, names in held.items())


def _space(host: Host, mount: mountinfo.Mount, names: tuple[str, ...]) -> Space:
    sizes = host.space(mount.point) or {}
    read_only = sizes.get("read_only")
    return Space(
        path=neutral(mount.point, 4096),
        holds=names,
        fstype=mount.fstype,
        total_bytes=sizes.get("total_bytes"),
        free_bytes=sizes.get("free_bytes"),
        inodes=sizes.get("files"),
        inodes_free=sizes.get("files_free"),
        read_only=None if read_only is None else bool(read_only),
    )


# ---------------------------------------------------------------------- disks


def _held(host: Host, places: Places) -> tuple[dict[str, tuple[str, ...]], bool]:
    """({disk name: the places on it}, whether the disk of every place was found)."""
    held: dict[str, tuple[str, ...]] = {}
    known: dict[str, tuple[str, ...]] = {}
    complete = bool(places)
    for place, mount in places.items():
        if mount is None:
            complete = False
        elif not is_network(mount.fstype) and mount.fstype != "tmpfs":
            if mount.point not in known:
                known[mount.point] = disks_under(host, mount)
            held.update({disk: (*held.get(disk, ()), place) for disk in known[mount.point]})
            complete = complete and bool(known[mount.point])
    return held, complete


def disks_under(host: Host, mount: mountinfo.Mount) -> tuple[str, ...]:
    """The disks below a mount, through partitions, LVM, encryption and software RAID; empty when not found."""
    if not mount.source.startswith("/dev/") or not _DEVICE.fullmatch(mount.device):
        return ()
    name = _block_name(host, mount)
    found: dict[str, None] = {}
    todo, seen = [name] if name else [], 0
    while todo and seen < MAX_DISKS:
        name, seen = todo.pop(), seen + 1
        slaves = host.names(f"{BLOCK}/{name}/slaves") if name.startswith(("dm-", "md", "bcache")) else None
        if slaves:
            todo.extend(_whole(slave) for slave in slaves if _DISK_NAME.fullmatch(slave))
        else:
            found[name] = None
    return tuple(found)


def _block_name(host: Host, mount: mountinfo.Mount) -> str:
    """The whole disk's name. btrfs numbers its own devices (0:…): there the source says."""
    if mount.device.startswith("0:"):
        mapped = host.link(mount.source) if mount.source.startswith(("/dev/mapper/", "/dev/disk/")) else None
        return _whole((mapped or mount.source).rpartition("/")[2])
    name = (host.link(f"/sys/dev/block/{mount.device}") or mount.source).rpartition("/")[2]
    return _whole(name) if _DISK_NAME.fullmatch(name) else ""


def _whole(name: str) -> str:
    """The disk of a partition: ``nvme0n1`` of ``nvme0n1p2``, ``sda`` of ``sda1``."""
    if name.startswith(("dm-", "md")) or _PHYSICAL_NAME.fullmatch(name):
        return name
    whole = _PARTITION.sub("", name)
    return whole if _PHYSICAL_NAME.fullmatch(whole) else name


def _disks(host: Host, held: dict[str, tuple[str, ...]], otherwise: tuple[str, ...] | None) -> tuple[Disk, ...] | None:
    names = host.names(BLOCK)
    if names is None:
        return None
    found: list[Disk] = []
    for name in names:
        target = host.link(f"{BLOCK}/{name}") if _DISK_NAME.fullmatch(name) else None
        if _is_physical(name, target) and len(found) < MAX_DISKS:
            found.append(_disk(host, name, target or "", held.get(name, otherwise)))
    return tuple(found)


def _raids(host: Host) -> tuple[Raid, ...] | None:
    names = host.names(BLOCK)
    if names is None:
        return None
    arrays = [name for name in names if _RAID_NAME.fullmatch(name)][:MAX_DISKS]
    return tuple(_raid(host, name) for name in arrays)


def _raid(host: Host, name: str) -> Raid:
    folder = f"{BLOCK}/{name}/md"
    level, state, action = (
        neutral(word, 24) if (word := host.word(f"{folder}/{file}")) else None for file in ("level", "array_state", "sync_action")
    )
    disks = whole((host.word(f"{folder}/raid_disks") or "").partition(" ")[0])  # "4 (3)" while it is reshaped
    return Raid(name, level, disks, host.number(f"{folder}/degraded"), state, action)


def _is_physical(name: str, target: str | None) -> bool:
    if target is None:
        return _PHYSICAL_NAME.fullmatch(name) is not None
    return "/virtual/" not in target or "/nvme-subsystem/" in target


def _disk(host: Host, name: str, target: str, holds: tuple[str, ...] | None) -> Disk:
    folder = f"{BLOCK}/{name}"
    address = address_in(target) or (_nvme_address(host, name, target) if name.startswith("nvme") else "")
    sectors, removable, rotational = (
        host.number(f"{folder}/size"),
        host.number(f"{folder}/removable"),
        host.number(f"{folder}/queue/rotational"),
    )
    return Disk(
        name=name,
        transport=_transport(name, target),
        model=_model(host, folder),
        size_bytes=None if sectors is None or sectors < 0 else sectors * 512,
        removable=None if removable is None else removable == 1,
        rotational=None if rotational is None else rotational == 1,
        read_ahead_kb=host.number(f"{folder}/queue/read_ahead_kb"),
        scheduler=_scheduler(host, folder),
        pci_address=address if target else None,
        numa_node=locality(host, address)[0] if address else None,
        holds=holds,
    )


def _transport(name: str, target: str) -> str | None:
    for part, transport in _TRANSPORTS:
        if part in target:
            return transport
    named = "nvme" if name.startswith("nvme") else "scsi" if name.startswith("sd") else None
    return named or ("virtual" if target else None)


def _nvme_address(host: Host, name: str, target: str) -> str:
    """The controller of a drive with multipath, which the kernel places under virtual devices; "" when it has several."""
    subsystem = re.search(r"/(nvme-subsys[0-9]{1,6})/", target)
    if not subsystem:
        return ""
    names = host.names(f"/sys/class/nvme-subsystem/{subsystem[1]}") or ()
    controllers = [other for other in names if re.fullmatch(r"nvme[0-9]{1,6}", other)]
    if len(controllers) != 1:
        host.refuse(f"{BLOCK}/{name}/device/address", f"{len(controllers)} controllers lead to this drive")
        return ""
    return address_in(host.word(f"/sys/class/nvme/{controllers[0]}/address") or "")


def _model(host: Host, folder: str) -> str | None:
    model = host.word(f"{folder}/device/model")
    if model is None:
        return "" if host.exists(f"{folder}/device/model") is False else None
    return neutral(model, 80)


def _scheduler(host: Host, folder: str) -> str | None:
    """The word in brackets of ``none [mq-deadline] kyber``; a lone ``none`` stands without."""
    word = host.word(f"{folder}/queue/scheduler")
    if word is None:
        return None
    match = _SCHEDULER.search(word)
    if match:
        return match[1] or match[2]
    host.refuse(f"{folder}/queue/scheduler", "no scheduler in brackets")
    return None

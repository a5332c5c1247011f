"""Kinds of file systems: whose data comes over a network, and which answer without asking anybody."""

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
KERNELS_OWN = frozenset((
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl",
    "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "hugetlbfs", "mqueue", "nfsd", "nsfs", "proc", "pstore", "ramfs", "resctrl", "rootfs",
    "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
))  # fmt: skip


def is_network(fstype: str) -> bool:
    """Whether data of this kind of file system comes over a network."""
    return fstype in NETWORK

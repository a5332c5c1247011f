"""container: whether we run in one and of which kind, what it may change, and which GPUs it was given.

Reads   /proc/self/{cgroup,mountinfo,status,uid_map,environ}  /.dockerenv  /run/.containerenv  /run/systemd/container
        /.singularity.d  /singularity.d  /dev  /var/run/secrets/kubernetes.io/serviceaccount
        get_mempolicy(2) under --deep
Kernel  https://man7.org/linux/man-pages/man7/user_namespaces.7.html
Format  https://systemd.io/CONTAINER_INTERFACE/
NVIDIA  https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers.mounts import mount_of, mounts
from sysperf.host import Host
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import neutral
from sysperf.procfs import environ
from sysperf.procfs.mountinfo import Mount
from sysperf.procfs.status import CAP_SYS_NICE, Status
from sysperf.startup import lazy

ENVIRON = "/proc/self/environ"
STATUS = "/proc/self/status"
UID_MAP = "/proc/self/uid_map"
GROUP = "/proc/self/cgroup"
MANAGER = "/run/systemd/container"
MOUNTINFO = "/proc/self/mountinfo"
MEMPOLICY = "syscall:get_mempolicy"

MARKERS = (
    # a file that only a container of this kind has
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
    ("/.singularity.d", "apptainer"),
    ("/singularity.d", "apptainer"),
)
KUBERNETES = "/var/run/secrets/kubernetes.io/serviceaccount"
_GROUPS = (
    # groups of containers; those of the engines themselves (docker.service, libpod-conmon-…, lxc.monitor) must not match
    (lazy(r"kubepods"), "kubernetes"),
    (lazy(r"/docker[/-][0-9a-f]{12}"), "docker"),
    (lazy(r"/libpod-[0-9a-f]{12}"), "podman"),
    (lazy(r"/lxc/|/lxc\.payload"), "lxc"),
    (lazy(r"/(?:crio|cri-containerd|nerdctl)-[0-9a-f]{12}|/ecs/|/garden/"), "containerd"),
)
_BOUND_FILES = frozenset(("/etc/hosts", "/etc/hostname", "/etc/resolv.conf"))
_BOUND_FROM = (
    ("/kubelet/pods/", "kubernetes"),
    ("/docker/containers/", "docker"),
    ("/overlay-containers/", "podman"),
    ("/containerd/", "containerd"),
)
_KNOWN = frozenset(("docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "oci", "rkt", "wsl", "proot", "pouch"))
_GPU_NODE = lazy(r"nvidia[0-9]{1,4}")
_CUDA = lazy(r"cuda>=([0-9]{1,3}\.[0-9]{1,3})")


class Container(Record):
    """The container that we run in, if any."""

    inside: Annotated[bool | None, fact("whether we run in a container", *(path for path, _ in MARKERS), MANAGER, GROUP, MOUNTINFO)] = None
    kind: Annotated[
        str | None,
        fact(
            'docker, podman, kubernetes, containerd, lxc, apptainer, systemd-nspawn, other; "" outside',
            *(path for path, _ in MARKERS),
            MANAGER,
            GROUP,
        ),
    ] = None
    sysctl_writable: Annotated[
        bool | None,
        fact("whether we could change kernel settings: root of the machine, and /proc/sys mounted for writing", MOUNTINFO, STATUS, UID_MAP),
    ] = None
    seccomp: Annotated[bool | None, fact("whether a filter of system calls is in force", STATUS)] = None
    can_set_mempolicy: Annotated[bool | None, fact("whether NUMA memory policies are allowed, tried under --deep", MEMPOLICY, STATUS)] = (
        None
    )
    gpu_nodes: Annotated[int | None, fact("device nodes /dev/nvidia0, 1, …", "/dev")] = None
    kfd_node: Annotated[bool | None, fact("whether AMD's node for computing, /dev/kfd, is there", "/dev")] = None
    render_nodes: Annotated[
        int | None, fact("device nodes /dev/dri/renderD128, …, through which AMD's and Intel's compute", "/dev/dri")
    ] = None
    nvidia_visible_devices: Annotated[str | None, fact('NVIDIA_VISIBLE_DEVICES of our environment; "" when not set', ENVIRON)] = None
    nvidia_driver_capabilities: Annotated[str | None, fact('NVIDIA_DRIVER_CAPABILITIES of our environment; "" when not set', ENVIRON)] = (
        None
    )
    nvidia_require_cuda: Annotated[str | None, fact('CUDA version that the image asks for, such as 13.0; "" when it does not', ENVIRON)] = (
        None
    )
    nvidia_require_disabled: Annotated[bool | None, fact("whether NVIDIA_DISABLE_REQUIRE switches that check off", ENVIRON)] = None


def collect(host: Host) -> Container:
    """Read all signs of a container; one is enough, and only the absence of all says that there is none."""
    kind = _kind(host)
    nodes = host.names("/dev")
    gpu_nodes = None if nodes is None else sum(1 for name in nodes if _GPU_NODE.fullmatch(name))
    found = Container(
        inside=None if kind is None else kind != "",
        kind=kind,
        gpu_nodes=gpu_nodes,
        kfd_node=None if nodes is None else "kfd" in nodes,
        render_nodes=_render_nodes(host),
    )
    return joined(found, _rights(host), _nvidia(host))


def _render_nodes(host: Host) -> int | None:
    names = host.names("/dev/dri") if (there := host.exists("/dev/dri")) else ()
    return None if there is None or names is None else sum(name.startswith("renderD") for name in names)


def own_environment(host: Host) -> dict[str, str] | None:
    """Our own environment as it was when we started: the variables that Host keeps."""
    text = host.text(ENVIRON)
    if text is None:
        return None
    return {name: neutral(value, 1_000) for name, value in environ.variables(text).items()}


# ---------------------------------------------------------------------- which


def _kind(host: Host) -> str | None:
    """The most telling sign decides: Kubernetes runs on containerd, which Docker runs on too."""
    signs = [_of_group(host), _of_mounts(host), _of_markers(host), _of_manager(host)]
    engines = [sign for sign in signs if sign]
    if "kubernetes" in engines or (engines and host.exists(KUBERNETES)):
        return "kubernetes"
    if engines:
        return next((sign for sign in engines if sign not in ("other", "containerd")), engines[0])
    return None if None in signs else ""


def _of_group(host: Host) -> str | None:
    """Visible only without a cgroup namespace of its own: ``/docker/3f…``, ``/kubepods.slice/…/cri-containerd-….scope``."""
    text = host.text(GROUP)
    if text is None:
        return "" if host.exists(GROUP) is False else None
    return next((kind for pattern, kind in _GROUPS if pattern.search(text[:65_536])), "")


def _of_mounts(host: Host) -> str | None:
    """Engines bind their own copy of /etc/hosts and its like into a container, from a folder that tells which engine."""
    table = mounts(host)
    if table is None:
        return None
    if any(mount.fstype == "fuse.lxcfs" and mount.point.startswith("/proc/") for mount in table):
        return "lxc"
    sources = [mount.root for mount in table if mount.point in _BOUND_FILES]
    return next((kind for folder, kind in _BOUND_FROM if any(folder in source for source in sources)), "")


def _of_markers(host: Host) -> str | None:
    there = [(host.exists(path) if kind != "docker" or _like_docker(host) else False, kind) for path, kind in MARKERS]
    present = next((kind for exists, kind in there if exists), None)
    return present or (None if any(exists is None for exists, _ in there) else "")


def _like_docker(host: Host) -> bool:
    """Whether Docker can have made this file tree. Virtual machines made of a container image keep its /.dockerenv,
    but not Docker's own mounts: it binds /etc/hosts and its like, and its root is an overlay.
    """
    table = mounts(host)
    return table is None or any(mount.point in _BOUND_FILES or (mount.point == "/" and mount.fstype == "overlay") for mount in table)


def _of_manager(host: Host) -> str | None:
    """What the container's manager told systemd, in its own words."""
    word = host.word(MANAGER)
    if word is None:
        return "" if host.exists(MANAGER) is False else None
    if word == "wsl":
        return ""  # a virtual machine of Windows, whose kernel is our own
    return ("lxc" if word == "lxc-libvirt" else word) if word in _KNOWN else "other"


# ---------------------------------------------------------------------- rights


def _rights(host: Host) -> Container:
    status = Status(host.text(STATUS) or "")
    uids = (status.get("Uid") or "").split()
    foreign = _user_namespace(host)
    seccomp = {"0": False, "1": True, "2": True}.get(status.get("Seccomp") or "")
    nice = status.has_capability(CAP_SYS_NICE)
    return Container(
        sysctl_writable=_writable(mount_of(host, "/proc/sys"), uids[1] if len(uids) > 1 else "", foreign),
        seccomp=seccomp,
        can_set_mempolicy=_mempolicy(host, True if seccomp is False or nice else None),
    )


def _user_namespace(host: Host) -> bool | None:
    """The machine's own namespace maps every user to itself: ``0 0 4294967295``."""
    text = host.word(UID_MAP)
    return text.split() != ["0", "0", "4294967295"] if text else None


def _writable(mount: Mount | None, effective_uid: str, foreign: bool | None) -> bool | None:
    if mount is not None and "ro" in mount.options:
        return False
    if foreign or (effective_uid and effective_uid != "0"):
        return False
    return None if mount is None or foreign is None or not effective_uid else True


def _mempolicy(host: Host, known: bool | None) -> bool | None:
    """Docker's filter refuses get_mempolicy together with set_mempolicy; asking for the policy changes nothing."""
    if known is not None:
        return known
    if not host.deep:
        host.refuse(MEMPOLICY, "only tried with --deep")
        return None
    answer = host.call(MEMPOLICY, _get_mempolicy)
    return answer if isinstance(answer, bool) else None


def _get_mempolicy() -> bool:
    import ctypes  # noqa: PLC0415 - 10 ms, and only --deep asks
    import errno  # noqa: PLC0415
    import os  # noqa: PLC0415

    number = {"x86_64": 239, "aarch64": 236, "ppc64le": 260}.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "the number of get_mempolicy on this architecture is not known")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, None, None, 0, None, 0) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EPERM:
        return False
    raise OSError(code, os.strerror(code))


# ---------------------------------------------------------------------- GPUs


def _nvidia(host: Host) -> Container:
    """What was asked of NVIDIA's container toolkit. The first requirement names the CUDA version of the image."""
    environment = own_environment(host)
    if environment is None:
        return Container()
    required = _CUDA.search(environment.get("NVIDIA_REQUIRE_CUDA", ""))
    return Container(
        nvidia_visible_devices=environment.get("NVIDIA_VISIBLE_DEVICES", ""),
        nvidia_driver_capabilities=environment.get("NVIDIA_DRIVER_CAPABILITIES", ""),
        nvidia_require_cuda=required[1] if required else "",
        nvidia_require_disabled=environment.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true", "yes", "on"),
    )

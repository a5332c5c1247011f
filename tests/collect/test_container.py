"""Whether we run in a container, what we may change there, and which GPUs it was given."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.container import Container, collect
from sysperf.host import Host
from sysperf.model.record import from_json, to_json
from tests.conftest import Files, MakeMachine, captured

HEX = "3f2a9c84d1e67b50a2c4e6f8091b3d5f7a9c1e3f5a7b9d0c2e4f6a8b0c1d2e3f"
ROOT = "22 1 0:5 / / rw - ext4 /dev/sda rw\n23 22 0:6 / /proc rw - proc proc rw\n"
OVERLAY = ROOT.replace("ext4 /dev/sda", "overlay overlay")
BARE: Files = {
    "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n",
    "/proc/self/mountinfo": ROOT,
    "/proc/self/status": "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n",
    "/proc/self/uid_map": "         0          0 4294967295\n",
    "/proc/self/environ": "TMPDIR=/tmp\0",
    "/dev/null": "",
}


def bound(folder: str) -> str:
    """mountinfo of a container whose engine bound its own /etc/hosts into it."""
    return ROOT + f"30 22 8:1 {folder} /etc/hosts rw - ext4 /dev/sda rw\n"


# ---------------------------------------------------------------------- which


def test_bare_machine(machine: MakeMachine) -> None:
    """No sign of a container anywhere, and every sign could be read: outside."""
    facts = collect(machine(BARE))

    assert (facts.inside, facts.kind) == (False, "")


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("docker", {"/.dockerenv": "", "/proc/self/mountinfo": OVERLAY}),
        ("docker", {"/.dockerenv": "", "/proc/self/mountinfo": bound("/somewhere/else")}),
        ("docker", {"/proc/self/cgroup": f"4:cpu:/docker/{HEX}\n"}),
        ("docker", {"/proc/self/cgroup": f"0::/system.slice/docker-{HEX}.scope\n"}),
        ("docker", {"/proc/self/mountinfo": bound(f"/var/lib/docker/containers/{HEX}/hosts")}),
        ("podman", {"/run/.containerenv": ""}),
        ("podman", {"/proc/self/cgroup": f"0::/machine.slice/libpod-{HEX}.scope\n"}),
        ("kubernetes", {"/proc/self/cgroup": "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-12ab12ab12ab.scope\n"}),
        ("kubernetes", {"/proc/self/mountinfo": bound("/var/lib/kubelet/pods/0f/etc-hosts")}),
        ("kubernetes", {"/.dockerenv": "", "/proc/self/mountinfo": OVERLAY, "/var/run/secrets/kubernetes.io/serviceaccount/token": "x"}),
        ("containerd", {"/proc/self/cgroup": "0::/default/nerdctl-12ab12ab12ab.scope\n"}),
        ("lxc", {"/proc/self/cgroup": "0::/lxc.payload.web/init.scope\n"}),
        ("lxc", {"/proc/self/mountinfo": ROOT + "30 23 0:9 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n"}),
        ("lxc", {"/run/systemd/container": "lxc\n"}),
        ("systemd-nspawn", {"/run/systemd/container": "systemd-nspawn\n"}),
        ("other", {"/run/systemd/container": "unheard-of\x1b[31m\n"}),
        ("apptainer", {"/.singularity.d/runscript": ""}),
        ("docker", {"/.dockerenv": "", "/proc/self/mountinfo": OVERLAY, "/run/systemd/container": "unheard-of"}),
    ],
)
def test_one_sign_is_enough(machine: MakeMachine, kind: str, files: Files) -> None:
    """Each engine leaves its own sign; the most telling one names the kind."""
    facts = collect(machine({**BARE, **files}))

    assert (facts.inside, facts.kind) == (True, kind)


@pytest.mark.parametrize(
    "files",
    [
        {"/proc/self/cgroup": "0::/system.slice/docker.service\n"},
        {"/proc/self/cgroup": f"0::/machine.slice/libpod-conmon-{HEX}.scope\n"},
        {"/proc/self/cgroup": "0::/lxc.monitor.web\n"},
        {"/proc/self/mountinfo": ROOT + f"30 22 0:9 / /var/lib/docker/containers/{HEX}/mounts/shm rw - tmpfs shm rw\n"},
        {"/proc/self/mountinfo": ROOT + "30 22 0:9 / /var/lib/lxcfs rw - fuse.lxcfs lxcfs rw\n"},
        {"/var/run/secrets/kubernetes.io/serviceaccount/token": "x"},
        {"/run/systemd/container": "wsl\n"},
        {"/.dockerenv": ""},
    ],
)
def test_the_machine_that_runs_containers_is_none(machine: MakeMachine, files: Files) -> None:
    """The engines' own groups and mounts are no sign of being inside. WSL is a virtual machine, and so is one made of an
    image, whose /.dockerenv stands on a plain disk.
    """
    facts = collect(machine({**BARE, **files}))

    assert (facts.inside, facts.kind) == (False, "")


def test_a_sign_that_cannot_be_read_leaves_it_open(machine: MakeMachine) -> None:
    """No sign was found, but one could not be looked at: unknown, not outside."""
    facts = collect(machine({**BARE, "/proc/self/cgroup": PermissionError(13, "Permission denied")}))

    assert (facts.inside, facts.kind) == (None, None)


def test_captured_machine_is_open() -> None:
    """A capture that lacks /.dockerenv does not prove that the machine lacked it."""
    assert collect(captured("hwloc", "nvidia-dgx-gb10")).inside is None


# ---------------------------------------------------------------------- rights


def test_root_of_the_machine_may_change_settings(machine: MakeMachine) -> None:
    """/proc mounted for writing, effective user 0, the machine's own user namespace."""
    assert collect(machine(BARE)).sysctl_writable is True


@pytest.mark.parametrize(
    "files",
    [
        {"/proc/self/mountinfo": ROOT + "30 23 0:6 /sys /proc/sys ro,nosuid - proc proc rw\n"},
        {"/proc/self/uid_map": "0 100000 65536\n"},
        {"/proc/self/status": "Uid:\t1000\t1000\t1000\t1000\n"},
    ],
)
def test_who_may_not_change_settings(machine: MakeMachine, files: Files) -> None:
    """Docker mounts /proc/sys read-only; rootless engines map root to a user; a user is a user."""
    assert collect(machine({**BARE, **files})).sysctl_writable is False


def test_rights_unread_are_unknown(machine: MakeMachine) -> None:
    """Nothing read, nothing claimed."""
    facts = collect(machine({}))

    assert (facts.sysctl_writable, facts.seccomp) == (None, None)


def test_a_filter_of_system_calls(machine: MakeMachine) -> None:
    """Docker starts programs behind one."""
    docker = collect(machine({"/proc/self/status": "CapEff:\t00000000a80425fb\nSeccomp:\t2\n"}))
    full = collect(machine(BARE))

    assert (docker.seccomp, full.seccomp) == (True, False)


def test_memory_policy(machine: MakeMachine) -> None:
    """Without a filter, or with CAP_SYS_NICE, it is allowed; behind a filter only --deep tries."""
    behind: Files = {"/proc/self/status": "CapEff:\t0000000000000000\nSeccomp:\t2\n"}
    host = machine(behind, calls={"syscall:get_mempolicy": False})

    assert collect(machine(BARE)).can_set_mempolicy is True
    assert collect(host).can_set_mempolicy is None
    host.deep = True
    assert collect(host).can_set_mempolicy is False


# ---------------------------------------------------------------------- GPUs


def test_device_nodes(machine: MakeMachine) -> None:
    """Only /dev/nvidia0, 1, … are GPUs; the others serve all of them."""
    nodes: Files = {f"/dev/{name}": "" for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-caps/x")}
    facts = collect(machine({**BARE, **nodes}))

    assert facts.gpu_nodes == 2
    assert (collect(machine(BARE)).gpu_nodes, collect(machine({})).gpu_nodes) == (0, None)


def test_what_the_container_toolkit_was_asked(machine: MakeMachine) -> None:
    """The variables of our own environment; not set is empty, unread is unknown."""
    env = "NVIDIA_VISIBLE_DEVICES=all\0NVIDIA_DRIVER_CAPABILITIES=compute,utility\0NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=unknown,driver>=535,driver<536\0NVIDIA_DISABLE_REQUIRE=true\0"
    facts = collect(machine({**BARE, "/proc/self/environ": env}))
    bare, unread = collect(machine(BARE)), collect(machine({}))

    assert (facts.nvidia_visible_devices, facts.nvidia_driver_capabilities) == ("all", "compute,utility")
    assert (facts.nvidia_require_cuda, facts.nvidia_require_disabled) == ("13.0", True)
    assert (bare.nvidia_visible_devices, bare.nvidia_require_cuda, bare.nvidia_require_disabled) == ("", "", False)
    assert (unread.nvidia_visible_devices, unread.nvidia_require_disabled) == (None, None)


# ---------------------------------------------------------------------- hostile input, this machine


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=80), min_size=6, max_size=6))
def test_never_raises_and_encodes(machine: MakeMachine, contents: list[bytes]) -> None:
    """Whatever the files say, the answer is a record that survives the way through JSON."""
    names = ("/proc/self/cgroup", "/proc/self/mountinfo", "/proc/self/uid_map", "/run/systemd/container")
    files: Files = dict(zip(names, contents, strict=False))
    files["/proc/self/environ"] = b"NVIDIA_VISIBLE_DEVICES=" + contents[4]
    files["/proc/self/status"] = b"CapEff:\t" + contents[5]
    facts = collect(machine(files))

    assert from_json(to_json(facts), Container) == facts


def test_this_machine() -> None:
    """Live, every sign can be looked at: the answer is yes or no."""
    host = Host("/", deep=True)
    facts = collect(host)

    assert facts.inside in (True, False)
    assert facts.can_set_mempolicy is not None

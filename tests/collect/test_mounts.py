"""Which file system holds a path."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.readers.mounts import mount_of, mounts
from tests.conftest import MakeMachine

TABLE = """22 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:9 / /data\\040sets ro,relatime - nfs4 server:/export rw,vers=4.2
24 22 0:5 /sub /datab rw master:2 propagate_from:3 - xfs /dev/sdb rw
"""


def test_longest_mount_point_wins(machine: MakeMachine) -> None:
    """Whole parts of a path count: /datab is not below /data."""
    host = machine({"/proc/self/mountinfo": TABLE})
    kinds = [mount.fstype if (mount := mount_of(host, path)) else None for path in ("/", "/data sets/x", "/datab", "/datab2/x")]

    assert kinds == ["ext4", "nfs4", "xfs", "ext4"]


def test_options_of_mount_and_file_system_are_joined(machine: MakeMachine) -> None:
    """Read-only holds when either says so."""
    host = machine({"/proc/self/mountinfo": TABLE})
    mount = mount_of(host, "/data sets")

    assert mount is not None
    assert {"ro", "vers=4.2"} <= mount.options
    assert (mount.root, mount.source, mount.device) == ("/", "server:/export", "0:9")


def test_old_table(machine: MakeMachine) -> None:
    """/proc/mounts is used where a capture has no mountinfo."""
    host = machine({"/proc/mounts": "/dev/sda1 / ext4 rw,noatime 0 0\nnonsense\n"})

    assert [mount.fstype for mount in mounts(host) or ()] == ["ext4"]


def test_read_once_with_evidence_for_every_asker(machine: MakeMachine) -> None:
    """The second area that asks does not read again, and still has the source."""
    host = machine({"/proc/self/mountinfo": TABLE})
    first = mounts(host)
    before = len(host.sources)

    assert mounts(host) is first
    assert [source.path for source in host.sources[before:]] == ["/proc/self/mountinfo"]
    assert mounts(machine({})) is None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="01 :/-rwext4\\\n", max_size=200), st.text(alphabet="/ab", max_size=10))
def test_never_raises(machine: MakeMachine, text: str, path: str) -> None:
    """Any table gives at most one mount a line."""
    host = machine({"/proc/self/mountinfo": text})

    assert len(mounts(host) or ()) <= len(text.splitlines())
    mount_of(host, path)

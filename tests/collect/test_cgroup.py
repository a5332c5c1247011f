"""The limits of a control group: v1, v2 and both at once, wherever they are mounted, from the group up to the root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.cgroup import Cgroup, Groups, collect, read_group
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import from_json, to_json
from tests.conftest import Files, MakeMachine, captured
from tests.privileges import AS_ROOT

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
GROUP = "/sys/fs/cgroup/system.slice/job.scope"
HEX = "3f2a9c84d1e67b50a2c4e6f8091b3d5f7a9c1e3f5a7b9d0c2e4f6a8b0c1d2e3f"


def v1(controllers: str, root: str = "/", number: int = 40) -> str:
    """A line of mountinfo for a v1 hierarchy at its usual place."""
    return f"{number} 31 0:{number} {root} /sys/fs/cgroup/{controllers} rw,nosuid - cgroup cgroup rw,{controllers}\n"


def v2_machine(files: Files, group: str = "/system.slice/job.scope", mounts: str = V2) -> Files:
    return {"/proc/self/cgroup": f"0::{group}\n", "/proc/self/mountinfo": mounts, **files}


# ---------------------------------------------------------------------- CPU quota


def test_v2_quota_in_cpus(machine: MakeMachine) -> None:
    """cpu.max gives microseconds of CPU time in each period; the quotient is a number of CPUs."""
    facts = collect(machine(v2_machine({f"{GROUP}/cpu.max": "150000 100000\n"})))

    assert (facts.version, facts.cpu_quota, facts.path) == (2, 1.5, "/system.slice/job.scope")


@pytest.mark.parametrize(("text", "quota", "reason"), [("150000 100000", 1.5, None), ("much 100000", None, "no quota: 'much' of '100000'")])
def test_a_quota_that_is_none_is_unknown_with_its_reason(machine: MakeMachine, text: str, quota: float | None, reason: str | None) -> None:
    """What the file holds is said where it is no quota, and only there."""
    host = machine(v2_machine({f"{GROUP}/cpu.max": text}))

    assert collect(host).cpu_quota == quota
    assert [source.error for source in host.sources if source.path == f"{GROUP}/cpu.max" and source.error] == ([reason] if reason else [])


def test_smallest_quota_up_the_hierarchy_binds(machine: MakeMachine) -> None:
    """A group may ask for 8 CPUs and still get the 2 of the slice above it."""
    files: Files = {f"{GROUP}/cpu.max": "800000 100000", "/sys/fs/cgroup/system.slice/cpu.max": "200000 100000"}

    assert collect(machine(v2_machine(files))).cpu_quota == 2.0


@pytest.mark.parametrize("unit", ["sysperf-agent.service", "sysperf-audit.service"])
def test_the_limits_of_our_own_service_are_not_the_machines(machine: MakeMachine, unit: str) -> None:
    """The agent's unit gives it 20 % of a CPU and 128 MiB: no reason to tell that to who trains here. Its slice's limits count."""
    mine = f"/sys/fs/cgroup/system.slice/{unit}"
    files: Files = {
        f"{mine}/cpu.max": "20000 100000",
        f"{mine}/memory.max": "134217728",
        "/sys/fs/cgroup/system.slice/cpu.max": "max 100000",
    }
    files["/sys/fs/cgroup/system.slice/memory.max"] = "max"

    facts = collect(machine(v2_machine(files, group=f"/system.slice/{unit}")))
    assert (facts.path, facts.cpu_quota, facts.memory_limit_bytes) == ("/system.slice", 0.0, 0)

    files["/sys/fs/cgroup/system.slice/cpu.max"] = "150000 100000"
    assert collect(machine(v2_machine(files, group=f"/system.slice/{unit}"))).cpu_quota == 1.5


def test_no_quota_is_known_to_be_none(machine: MakeMachine) -> None:
    """`max`, and the root's absent file, mean no quota: 0.0, and nothing was throttled."""
    facts = collect(machine(v2_machine({f"{GROUP}/cpu.max": "max 100000"})))

    assert (facts.cpu_quota, facts.nr_periods, facts.nr_throttled, facts.throttled_us) == (0.0, 0, 0, 0)


def test_a_capture_without_the_roots_files(tmp_path: Path) -> None:
    """The kernel makes no limits in the root of the hierarchy: that a capture has none there is no gap in it. One below is."""
    for path, text in v2_machine({f"{GROUP}/cpu.max": "150000 100000", "/sys/fs/cgroup/system.slice/cpu.max": "max 100000"}).items():
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(str(text))

    assert collect(Host(str(tmp_path))).cpu_quota == 1.5
    (tmp_path / "sys/fs/cgroup/system.slice/cpu.max").unlink()
    assert collect(Host(str(tmp_path))).cpu_quota is None


def test_unreadable_level_makes_the_quota_unknown(machine: MakeMachine) -> None:
    """A level that could not be read might have the smallest quota, and the reason is kept."""
    files: Files = {f"{GROUP}/cpu.max": "200000 100000", "/sys/fs/cgroup/system.slice/cpu.max": PermissionError(13, "Permission denied")}
    host = machine(v2_machine(files))

    assert collect(host).cpu_quota is None
    assert any(source.error == "Permission denied" for source in host.sources)


def test_v1_quota_and_throttling(machine: MakeMachine) -> None:
    """v1 counts throttled time in nanoseconds; we give microseconds."""
    files: Files = {
        "/proc/self/cgroup": "4:cpu,cpuacct:/a/b\n",
        "/proc/self/mountinfo": v1("cpu,cpuacct"),
        "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1",
        "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "250000",
        "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat": "nr_periods 1000\nnr_throttled 400\nthrottled_time 5000000\n",
    }
    facts = collect(machine(files))

    assert (facts.version, facts.cpu_quota) == (1, 2.5)
    assert (facts.nr_periods, facts.nr_throttled, facts.throttled_us) == (1000, 400, 5000)


def test_throttling_is_taken_from_the_level_that_throttles(machine: MakeMachine) -> None:
    """Of two levels with a quota, the one whose threads waited longest explains the delay."""
    files: Files = {
        f"{GROUP}/cpu.max": "200000 100000",
        f"{GROUP}/cpu.stat": "usage_usec 1\nnr_periods 10\nnr_throttled 0\nthrottled_usec 0\n",
        "/sys/fs/cgroup/system.slice/cpu.max": "400000 100000",
        "/sys/fs/cgroup/system.slice/cpu.stat": "usage_usec 1\nnr_periods 50\nnr_throttled 40\nthrottled_usec 700\n",
    }
    facts = collect(machine(v2_machine(files)))

    assert (facts.cpu_quota, facts.nr_periods, facts.nr_throttled, facts.throttled_us) == (2.0, 50, 40, 700)


def test_a_quota_of_nonsense_is_unknown(machine: MakeMachine) -> None:
    """A period of 0 must not divide, and words are no numbers."""
    for text in ("100000 0", "x y", "0 100000", "-5 100000", ""):
        assert collect(machine(v2_machine({f"{GROUP}/cpu.max": text}))).cpu_quota is None, text


# ---------------------------------------------------------------------- where the hierarchy is


def test_hybrid_takes_each_controller_from_where_it_is(machine: MakeMachine) -> None:
    """CPU time limited by v1 and memory by v2 is a legal mix."""
    files: Files = {
        "/proc/self/cgroup": "4:cpu:/a\n0::/b\n",
        "/proc/self/mountinfo": v1("cpu") + "41 31 0:41 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/unified/b/memory.max": "1048576",
    }
    facts = collect(machine(files))

    assert (facts.version, facts.cpu_quota, facts.memory_limit_bytes) == (1, 0.5, 1 << 20)


def test_hierarchy_mounted_elsewhere(machine: MakeMachine) -> None:
    """The mount point comes from mountinfo, with its octal escapes."""
    mounts = "30 23 0:26 / /cg\\040root rw - cgroup2 none rw\n"
    facts = collect(machine(v2_machine({"/cg root/system.slice/job.scope/cpu.max": "100000 100000"}, mounts=mounts)))

    assert facts.cpu_quota == 1.0


def test_container_without_a_cgroup_namespace(machine: MakeMachine) -> None:
    """Docker on v1 shows the host's path and mounts the container's group: the path below the mount's root counts."""
    files: Files = {
        "/proc/self/cgroup": f"4:cpu:/docker/{HEX}\n5:memory:/docker/{HEX}\n",
        "/proc/self/mountinfo": v1("cpu", f"/docker/{HEX}") + v1("memory", f"/docker/{HEX}", 41),
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648",
    }
    facts = collect(machine(files))

    assert (facts.cpu_quota, facts.memory_limit_bytes) == (3.0, 2 << 30)


def test_only_proc_mounts_in_a_container(machine: MakeMachine) -> None:
    """Without mountinfo the root of the mount is not known: folders that are not there have no limit, the mount point has."""
    files: Files = {
        "/proc/self/cgroup": f"4:cpu:/docker/{HEX}\n",
        "/proc/mounts": "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert collect(machine(files)).cpu_quota == 3.0


def test_group_outside_of_our_namespace_is_unknown(machine: MakeMachine) -> None:
    """`/../other` lies above the root of our namespace: its limits cannot be seen, so nothing is claimed."""
    host = machine(v2_machine({"/sys/fs/cgroup/cpu.max": "100000 100000"}, group="/../other"))
    facts = collect(host)

    assert (facts.cpu_quota, facts.memory_limit_bytes, facts.pids_limit) == (None, None, None)
    assert any("not visible from here" in (source.error or "") for source in host.sources)


def test_mount_above_our_namespace(machine: MakeMachine) -> None:
    """A mount whose root is `/..` shows our siblings: both paths are relative to the namespace."""
    mounts = "30 23 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    facts = collect(machine(v2_machine({"/sys/fs/cgroup/other/cpu.max": "100000 100000"}, group="/../other", mounts=mounts)))

    assert facts.cpu_quota == 1.0


def test_namespace_root_has_limits_of_its_own(machine: MakeMachine) -> None:
    """In a container with a cgroup namespace the group is `/` and the limits are at the mount point."""
    files: Files = {"/sys/fs/cgroup/cpu.max": "400000 100000", "/sys/fs/cgroup/memory.max": "8589934592", "/sys/fs/cgroup/pids.max": "512"}
    facts = collect(machine(v2_machine({**files, "/sys/fs/cgroup/pids.current": "500"}, group="/")))

    assert (facts.cpu_quota, facts.memory_limit_bytes, facts.pids_limit, facts.pids_current) == (4.0, 8 << 30, 512, 500)


def test_hierarchy_not_mounted_is_unknown(machine: MakeMachine) -> None:
    """A group without a mounted hierarchy may have any limit."""
    facts = collect(machine({"/proc/self/cgroup": "0::/x\n", "/proc/self/mountinfo": "1 1 0:1 / / rw - ext4 /dev/sda rw\n"}))

    assert (facts.version, facts.cpu_quota) == (None, None)


def test_kernel_without_cgroups_limits_nothing(machine: MakeMachine) -> None:
    """/proc/self is there and has no cgroup file: no control groups, so no quota, which is not the same as unknown."""
    facts = collect(machine({"/proc/self/status": "Uid:\t0\t0\t0\t0\n"}))

    assert (facts.cpu_quota, facts.memory_limit_bytes, facts.pids_limit) == (0.0, 0, 0)


def test_capture_without_cgroup_files_is_unknown(machine: MakeMachine) -> None:
    """Nothing at all was read: nothing is known."""
    assert collect(machine({})).cpu_quota is None


def test_removed_group_is_read_from_above(machine: MakeMachine) -> None:
    """The kernel marks a group that was removed under a process with ` (deleted)`."""
    host = machine(v2_machine({"/sys/fs/cgroup/system.slice/cpu.max": "100000 100000"}, group="/system.slice/gone (deleted)"))

    assert collect(host).cpu_quota == 1.0


# ---------------------------------------------------------------------- memory and processes


def test_v2_memory_of_the_group_that_binds(machine: MakeMachine) -> None:
    """Usage and events come from the level whose limit is smallest; easily dropped file cache does not count."""
    up = "/sys/fs/cgroup/system.slice"
    files: Files = {
        f"{GROUP}/memory.max": "max",
        f"{GROUP}/memory.high": "900",
        f"{up}/memory.max": "1000",
        f"{up}/memory.high": "max",
        f"{up}/memory.current": "950",
        f"{up}/memory.stat": "anon 700\ninactive_file 150\n",
        f"{up}/memory.events": "low 0\nhigh 3\nmax 4\noom 1\noom_kill 2\n",
    }
    facts = collect(machine(v2_machine(files)))

    assert (facts.memory_limit_bytes, facts.memory_high_bytes, facts.memory_used_bytes) == (1000, 900, 800)
    assert (facts.memory_oom_kills, facts.memory_high_events, facts.memory_max_events) == (2, 3, 4)


def test_v1_memory(machine: MakeMachine) -> None:
    """v1's largest number of pages is no limit; failcnt counts how often one was reached."""
    base = "/sys/fs/cgroup/memory"
    files: Files = {
        "/proc/self/cgroup": "5:memory:/a\n",
        "/proc/self/mountinfo": v1("memory"),
        f"{base}/memory.limit_in_bytes": "9223372036854771712",
        f"{base}/a/memory.limit_in_bytes": "4096000",
        f"{base}/a/memory.usage_in_bytes": "4000000",
        f"{base}/a/memory.stat": "cache 1\ninactive_file 7\ntotal_inactive_file 1000000\n",
        f"{base}/a/memory.failcnt": "12",
        f"{base}/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    }
    facts = collect(machine(files))

    assert (facts.memory_limit_bytes, facts.memory_used_bytes) == (4_096_000, 3_000_000)
    assert (facts.memory_max_events, facts.memory_oom_kills, facts.memory_high_bytes) == (12, 1, 0)


def test_pressure_of_the_group(machine: MakeMachine) -> None:
    """Per cent become shares; CPU is counted when some wait, memory when all do."""
    line = "some avg10=0.00 avg60=12.50 avg300=0.74 total=7879859\nfull avg10=0.00 avg60=2.00 avg300=0.00 total=0\n"
    facts = collect(machine(v2_machine({f"{GROUP}/cpu.pressure": line, f"{GROUP}/memory.pressure": line})))

    assert (facts.cpu_pressure, facts.memory_pressure) == (0.125, 0.02)


def test_own_cpuset_is_that_of_the_area_cpu(machine: MakeMachine) -> None:
    """The cpuset is read by one function for both areas."""
    files: Files = {"/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", f"{GROUP}/cpuset.cpus.effective": "2-3"}

    assert collect(machine(v2_machine(files))).cpuset == CpuSet.parse("2-3")


# ---------------------------------------------------------------------- any process


def test_read_group_of_another_process(machine: MakeMachine) -> None:
    """A process is judged by its own group, not by ours."""
    host = machine(v2_machine({"/proc/77/cgroup": "0::/other\n", "/sys/fs/cgroup/other/cpu.max": "700000 100000"}))
    facts = read_group(host, 77)

    assert facts is not None
    assert (facts.path, facts.cpu_quota) == ("/other", 7.0)
    assert read_group(host, 78) is None


def test_a_group_is_read_once_for_all_its_processes(machine: MakeMachine) -> None:
    """Two processes of one group cost one more file, their /proc/PID/cgroup."""
    group: Files = {f"/proc/{pid}/cgroup": "0::/other\n" for pid in (7, 8)}
    host = machine(v2_machine({**group, "/sys/fs/cgroup/other/cpu.max": "700000 100000"}))
    groups = Groups(host)
    first = groups.of(7)
    before = len(host.sources)

    assert groups.of(8) is first
    assert [source.path for source in host.sources[before:]] == ["/proc/8/cgroup"]


# ---------------------------------------------------------------------- hostile input

TEXT = st.text(alphabet="0123456789 :/.max\n-\\abcpumemory,", max_size=80)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(group=TEXT, mountinfo=TEXT, setting=st.binary(max_size=60))
def test_never_raises_and_encodes(machine: MakeMachine, group: str, mountinfo: str, setting: bytes) -> None:
    """Whatever the files say, the answer is a record that survives the way through JSON."""
    names = ("cpu.max", "cpu.stat", "memory.max", "memory.current", "memory.stat", "memory.events", "pids.max", "cpu.pressure")
    files: Files = {f"/sys/fs/cgroup/{name}": setting for name in names}
    facts = collect(machine({**files, "/proc/self/cgroup": f"0::/\n{group}", "/proc/self/mountinfo": V2 + mountinfo}))

    assert from_json(to_json(facts), Cgroup) == facts


def test_a_very_deep_group_is_read_in_bounded_time(machine: MakeMachine) -> None:
    """A path of thousands of levels is cut: the kernel allows them, reading them all would take for ever."""
    host = machine(v2_machine({}, group="/a" * 5_000))
    collect(host)

    assert len(host.sources) < 2_000


# ---------------------------------------------------------------------- captured and live machines


def test_captured_machines_claim_nothing_they_do_not_show() -> None:
    """Captures for hwloc hold no cpu.max of our group: the quota is unknown, never none."""
    for name in ("20em64t-hybrid-1p6c2t+2ca4co1t", "32amd64-4s2n4c-cgroup2", "8em64t-4c2t"):
        assert collect(captured("hwloc", name)).cpu_quota is None, name


def test_captured_v1_machine_without_the_cpu_controller() -> None:
    """This POWER9's capture has only a cpuset hierarchy: its CPU time cannot be limited by one that is absent from /proc/self/cgroup."""
    host = captured("hwloc", "nvidiagpunumanodes")
    text = host.text("/proc/self/cgroup") or ""
    controllers = {name for line in text.splitlines() for name in line.split(":")[1].split(",")}

    facts = collect(host)
    assert (facts.cpu_quota is None) == bool(controllers & {"cpu", ""})


def test_this_machine() -> None:
    """Wherever the tests run, a quota is known, and what we say of the memory agrees with itself."""
    host = Host("/")
    if not host.exists("/proc/self/cgroup"):
        pytest.skip("no control groups on this machine")
    facts = collect(host)

    if facts.cpu_quota is None:  # allowed only with a reason
        assert any(source.error for source in host.sources)
    if facts.memory_limit_bytes and facts.memory_used_bytes is not None:
        assert facts.memory_used_bytes <= facts.memory_limit_bytes


# ---------------------------------------------------------------------- a real quota


def _cpu_hierarchy() -> tuple[Path, int] | None:
    """(folder to make a group in, version)."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, system = line.partition(" - ")
        fstype, _, options = system.split(" ", 2)
        point = Path(fields.split(" ")[4])
        if fstype == "cgroup" and "cpu" in options.split(","):
            return point, 1
        if fstype == "cgroup2" and "cpu" in (point / "cgroup.subtree_control").read_text(encoding="utf-8").split():
            return point, 2
    return None


@contextlib.contextmanager
def _group_with_quota(quota_us: int, period_us: int) -> Iterator[Path]:
    """A real group below the root of the CPU hierarchy, removed at the end whatever happens."""
    place = _cpu_hierarchy()
    if place is None:
        pytest.skip("no cgroup hierarchy with the cpu controller is mounted")
    folder = place[0] / f"sysperf-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"{AS_ROOT}: a control group can not be made here: {error.strerror}")
    try:
        try:
            if place[1] == 1:
                (folder / "cpu.cfs_period_us").write_text(str(period_us), encoding="ascii")
                (folder / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")
            else:
                (folder / "cpu.max").write_text(f"{quota_us} {period_us}", encoding="ascii")
        except OSError as error:
            pytest.skip(f"cannot set a CPU quota here: {error.strerror}")
        yield folder
    finally:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:  # the last process is still on its way out
                time.sleep(0.02)


def test_a_real_quota_is_seen_for_a_running_process() -> None:
    """A child in a group with a fiftieth of a CPU: we read 0.02 for its pid, see it throttled, and nothing changes for us."""
    before = collect(Host("/")).cpu_quota
    with (
        _group_with_quota(2_000, 100_000) as folder,
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child,
    ):
        try:
            try:
                (folder / "cgroup.procs").write_text(str(child.pid), encoding="ascii")
            except OSError as error:
                pytest.skip(f"cannot move a process into a group: {error.strerror}")
            end = time.monotonic() + 60  # beside other work it may take a while to be given even that
            facts = read_group(Host("/"), child.pid)
            while facts is not None and (facts.throttled_us or 0) <= 10_000 and time.monotonic() < end:
                time.sleep(0.1)
                facts = read_group(Host("/"), child.pid)
        finally:
            child.kill()
            child.wait()

    assert facts is not None
    assert facts.cpu_quota == 0.02
    assert facts.path is not None
    assert facts.path.endswith(folder.name)
    assert facts.nr_periods is not None
    assert facts.nr_throttled is not None
    assert 0 < facts.nr_throttled <= facts.nr_periods
    assert (facts.throttled_us or 0) > 10_000
    assert collect(Host("/")).cpu_quota == before
    assert not folder.exists()

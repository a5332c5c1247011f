"""Only what is compiled in can be written, whatever is asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.engine.change import setting
from sysperf.fix import plan, targets, transaction
from sysperf.host import Host
from sysperf.host.settings import CAPTURED
from sysperf.model.change import Change, Plan, Setting
from sysperf.model.errors import UsageError
from sysperf.model.knob import KNOBS, PERSISTED, SYSCTLS, SYSFS, is_writable
from tests.conftest import make_machine
from tests.fix.kernel import FILES, SWAPPINESS, Machine, asked, memory

SETTINGS = (*SYSCTLS.values(), *SYSFS.values())
HOSTILE = (
    "..", "../..", ".", "", "/", "nvme0n1/..", "nvme0n1/../../../etc", "a/b", "a\0b", "a\nb", "nvme0n1\n", "nvme0n1\0", "*", "?", "[a]", "١", "１", "½",
    "-1", "+1", "0x10", "1_0", "1e3", "1.0", " 1", "1 ", "010", "-0", "9" * 19, "9" * 20, "9" * 5_000, "10\n20", "always\n", "Always", "x" * 300, "{item}",
    "1;reboot", "$(reboot)", "0000:65:00.0", "0000:65:00.8", "٠000:65:00.0", "1,0", "0-3 5", "0-", "3-0", "65535", "65536", "",
)  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str)


@pytest.mark.parametrize("knob", [*KNOBS.values(), *PERSISTED.values()], ids=lambda knob: knob.name)
def test_every_setting_says_what_it_takes_and_who_says_so(knob: object) -> None:
    """A range that can be read, a source that can be looked up, and a path that is absolute where it is a file."""
    from sysperf.model.knob import Knob

    assert isinstance(knob, Knob)
    assert knob.source.startswith("https://")
    if knob.kind == "file":
        return
    assert knob.range().strip(" …"), "it takes anything"
    assert knob.kind not in ("sysctl", "sysfs", "latency", "mount") or knob.path.startswith(("/proc/sys/", "/sys/", "/dev/"))
    assert ("{item}" in knob.path) == (knob.item == "block device")


@given(st.sampled_from([*KNOBS]), texts, texts)
@settings(max_examples=200)
def test_no_value_and_no_item_writes_anything_else(name: str, value: str, item: str) -> None:
    """By plan and apply: after any wish only files of the allow-list differ, and what is written is one word in range."""
    knob = KNOBS[name]
    if knob.kind in ("process", "mount", "nvml"):
        return
    with memory() as folder:
        machine = Machine.make(folder / "m")
        before = machine.kernel.state()
        planned = machine.plan(force=True) if "=" in name else plan.plan(machine.host, [Setting(name, value, item)], force=True)
        if planned.changes:
            assert knob.accepts(value)
            assert knob.takes_item(item)
            transaction.apply(machine.host, machine.journal, planned, asked())
        for path, written in machine.kernel.writes:
            assert is_writable(path)
            assert path in FILES
            assert knob.covers(path)
            assert written.isascii()
            assert written.split() == [written]
        changed = {path for path, text in machine.kernel.state().items() if before.get(path) != text}
        assert all(knob.covers(path) for path in changed)


@given(st.sampled_from([*KNOBS]), texts)
@settings(max_examples=500)
def test_what_is_accepted_has_one_spelling(name: str, value: str) -> None:
    """In range, in ASCII, and the same for the kernel: no octal, no sign, no blank."""
    knob = KNOBS[name]
    if not knob.accepts(value):
        return
    written = knob.canonical(value)
    assert knob.accepts(written)
    assert knob.canonical(written) == written
    assert written.isascii()
    if not knob.choices and not knob.listed:
        assert str(int(written)) == written
        assert knob.low is None or int(written) >= knob.low
        assert knob.high is None or int(written) <= knob.high


@given(texts)
@settings(max_examples=500)
def test_items_are_one_name(item: str) -> None:
    """A block device, a process number, a PCI address or a transaction, in ASCII, without a slash or a line end."""
    for knob in (*KNOBS.values(), *PERSISTED.values()):
        if knob.takes_item(item):
            assert item.isascii()
            assert not set(item) & set("/\n\0 ")
            assert ".." not in item


@given(st.sampled_from([path for knob in SETTINGS for path in [knob.path]] + [knob.path for knob in PERSISTED.values()]), texts, texts)
@settings(max_examples=200)
def test_only_exact_paths_are_writable(path: str, item: str, other: str) -> None:
    """With anything put in for the item, before or behind it: writable is only what a knob covers."""
    for tried in (path.replace("{item}", item).replace("*", other), path + item, item + path, path.replace("/", item, 1), f"{path}/{item}"):
        if is_writable(tried):
            assert tried.isascii()
            assert os.path.normpath(tried) == tried
            assert any(knob.covers(tried) for knob in (*SETTINGS, *PERSISTED.values()))
            assert "\n" not in tried


@pytest.mark.parametrize(
    "path",
    [
        *(path for path in FILES if "available" not in path and "dirty_bytes" not in path),
        "/etc/sysctl.d/90-sysperf-000001.conf",
        "/dev/cpu_dma_latency",
    ],
)
def test_paths_that_are_writable(path: str) -> None:
    """The files of the settings."""
    assert is_writable(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/etc/passwd", "/etc/sysctl.conf", "/etc/sysctl.d/99-x.conf", "/etc/sysctl.d/90-sysperf-x.conf", "/etc/sysctl.d/90-sysperf-0000001.conf",
        "/etc/tmpfiles.d/sysperf-.conf", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness/", "/proc/sys/vm/../kernel/core_pattern", "//proc/sys/vm/swappiness",
        "/proc/sys/vm/swappiness\n", "/sys/block//queue/scheduler", "/sys/block/./queue/scheduler", "/sys/block/../queue/scheduler", "/sys/block/a\0b/queue/scheduler",
        "/sys/devices/system/cpu/cpufreq/policy/scaling_governor", "/sys/devices/system/cpu/cpufreq/policyx/scaling_governor",
        "/sys/devices/system/cpu/cpufreq/policy1/../x/scaling_governor", "/sys/devices/system/cpu/cpufreq/boost2", "/dev/mem", "/dev/cpu_dma_latency2",
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors", "/proc/sys/vm/dirty_bytes", "/dev/shm",
    ],
)  # fmt: skip
def test_paths_that_are_not(path: str) -> None:
    """And no door of the host takes them."""
    assert not is_writable(path)
    host = Host()
    for door in (
        lambda: host.settings.write(path, "0"),
        lambda: host.settings.create(path, "0"),
        lambda: host.settings.remove(path),
        lambda: host.settings.hold(path, os.O_RDONLY),
    ):
        with pytest.raises(PermissionError):
            door()


def test_a_captured_machine_is_never_written() -> None:
    """Its plan says so, and the doors are shut."""
    host = make_machine({SWAPPINESS: "60"})
    assert plan.plan(host, [Setting("vm.swappiness", "10")]).skipped[0].reason == CAPTURED
    doors: tuple[Callable[[], None], ...] = (
        lambda: host.settings.write(SWAPPINESS, "10"),
        lambda: host.settings.create("/etc/sysctl.d/90-sysperf-000001.conf", "x"),
        lambda: host.settings.nvml_set("DeviceSetPersistenceMode", 0, 1),
    )
    for door in doors:
        with pytest.raises(OSError, match=CAPTURED):
            door()


def test_nvml_sets_persistence_only() -> None:
    """Whatever is asked for."""
    from sysperf.host.nvml import Nvml

    with pytest.raises(OSError, match="does not call"):
        Nvml(1.0).set("DeviceSetPowerManagementLimit", (0, 1))


@given(st.text(max_size=30), texts, texts)
@settings(max_examples=150)
def test_a_command_line_names_settings_only(name: str, item: str, value: str) -> None:
    """`--set` with anything: a setting that may be changed, or an error that says why not."""
    for text in (
        f"{name}={value}",
        f"vm.swappiness@{item}={value}",
        f"block.scheduler@{item}={value}",
        name,
        f"process.nice@{item}={value}",
    ):
        with contextlib.suppress(UsageError):
            setting_named = setting(text)
            assert KNOBS[setting_named.knob].accepts(setting_named.value)
            assert KNOBS[setting_named.knob].takes_item(setting_named.item)


@pytest.mark.parametrize(
    "change",
    [
        Change("vm.swappiness", "", "/etc/passwd", "60", "10"),
        Change("kernel.core_pattern", "", "/proc/sys/kernel/core_pattern", "core", "|/bin/sh"),
        Change("block.scheduler", "../../../etc", "/etc/passwd", "none", "kyber"),
        Change("persist.sysctl", "000001", "/etc/sysctl.d/90-sysperf-000001.conf", "", "kernel.core_pattern = |/bin/sh\n"),
        Change("persist.sysctl", "000001", "/etc/sysctl.d/90-sysperf-000001.conf", "", "vm.swappiness = 10\n-kernel.core_pattern = x\n"),
        Change("persist.tmpfiles", "000001", "/etc/tmpfiles.d/sysperf-000001.conf", "", "w /etc/passwd - - - - x\n"),
        Change("persist.tmpfiles", "000001", "/etc/tmpfiles.d/sysperf-000001.conf", "", f"w {SWAPPINESS} - - - - 10\nf+ /etc/passwd - - - - x\n"),
        Change("persist.tmpfiles", "000001", "/etc/tmpfiles.d/sysperf-000001.conf", "", "w /sys/block/nvme0n1/queue/scheduler - - - - x\n"),
    ],
)  # fmt: skip
def test_a_plan_that_somebody_made_writes_nothing_else(sandbox: Machine, change: Change) -> None:
    """Refused at the door, if it gets there."""
    before = sandbox.kernel.state()
    done = transaction.apply(sandbox.host, sandbox.journal, Plan((change,)), asked())
    assert done.state == "rolled-back"
    assert sandbox.kernel.state() == before


def test_a_link_among_the_names_is_no_way_out(sandbox: Machine, tmp_path: Path) -> None:
    """A folder beside the policies that is none of them is not written to."""
    assert targets.find(sandbox.host, KNOBS["cpu.governor"], "")
    (sandbox.folder / "root/sys/devices/system/cpu/cpufreq/policyevil").symlink_to(tmp_path)
    (tmp_path / "scaling_governor").write_text("powersave")
    planned = sandbox.plan("cpu.governor=performance")
    done = transaction.apply(sandbox.host, sandbox.journal, planned, asked())
    assert (tmp_path / "scaling_governor").read_text() == "powersave"
    assert done.state == "applied"
    assert len(done.steps) == 3

"""The kernel, the kind of machine, its clock and its start parameters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.kernel import Kernel, collect
from sysperf.host import Host
from sysperf.model.record import from_json, to_json
from tests.collect.machines import every_machine
from tests.conftest import Dict, Files, MakeMachine, captured

DMI = "/sys/class/dmi/id"
RELEASE = "/proc/sys/kernel/osrelease"
CLOCKS = "/sys/devices/system/clocksource/clocksource0"
METAL = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse2 avx2\n"
GUEST = METAL.replace("avx2", "avx2 hypervisor")
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
HYPERVISORS = {"fakeheteromemtiers": "qemu", "vbox-win": "virtualbox"}


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_captured_machines(kind: str, name: str) -> None:
    """Two captured machines are virtual; of the others none is taken for one, whatever their captures leave out."""
    facts = collect(captured(kind, name))
    assert (facts.hypervisor or "") == HYPERVISORS.get(name, "")
    assert bool(facts.virtual) is (name in HYPERVISORS)
    assert from_json(to_json(facts), Kernel) == facts


def test_release_and_architecture(machine: MakeMachine) -> None:
    """The release from /proc, the architecture from uname."""
    facts = collect(machine({RELEASE: "6.8.0-45-generic\n"}, calls={"uname": ["6.8.0-45-generic", "x86_64"]}))
    assert (facts.release, facts.arch, facts.wsl) == ("6.8.0-45-generic", "x86_64", False)


def test_release_of_a_capture(machine: MakeMachine) -> None:
    """Captures of other projects hold /proc/version only."""
    assert collect(machine({"/proc/version": "Linux version 6.1.0-13-amd64 (debian) (gcc) #1 SMP\n"})).release == "6.1.0-13-amd64"


@pytest.mark.parametrize("release", ["5.15.153.1-microsoft-standard-WSL2", "4.4.0-19041-Microsoft"])
def test_wsl(machine: MakeMachine, release: str) -> None:
    """Both generations of WSL name Microsoft in the release, and both are guests of Hyper-V to us."""
    facts = collect(machine({RELEASE: release}))
    assert (facts.wsl, facts.virtual, facts.hypervisor, facts.laptop) == (True, True, "hyperv", False)


def test_azure_is_no_wsl(machine: MakeMachine) -> None:
    """Ubuntu's kernel for Azure is no WSL."""
    assert collect(machine({RELEASE: "6.8.0-1015-azure"})).wsl is False


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"/proc/cpuinfo": GUEST}, "other"),
        ({"/proc/cpuinfo": GUEST, f"{CLOCKS}/available_clocksource": "tsc kvm-clock acpi_pm"}, "kvm"),
        ({"/proc/cpuinfo": GUEST, f"{DMI}/product_name": "KVM"}, "kvm"),
        ({"/proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "QEMU"}, "qemu"),
        ({"/proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "QEMU", f"{CLOCKS}/available_clocksource": "kvm-clock"}, "kvm"),
        ({"/proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "VMware, Inc."}, "vmware"),
        ({"/proc/cpuinfo": GUEST, "/sys/hypervisor/type": "xen"}, "xen"),
        ({"/proc/cpuinfo": METAL, f"{DMI}/sys_vendor": "Dell Inc.", f"{DMI}/product_name": "PowerEdge XE9680"}, ""),
        ({"/proc/cpuinfo": METAL, f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "p4d.metal"}, ""),
        ({"/proc/cpuinfo": METAL, f"{DMI}/sys_vendor": "Microsoft Corporation", f"{DMI}/product_name": "Surface Book 3"}, ""),
        ({"/proc/cpuinfo": METAL, f"{DMI}/sys_vendor": "Microsoft Corporation", f"{DMI}/product_name": "Virtual Machine"}, "hyperv"),
        ({"/proc/cpuinfo": METAL, "/proc/bus/pci/devices": "0010\t80eebeef\t12\n"}, "virtualbox"),
        ({"/proc/cpuinfo": ARM, f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "g5g.2xlarge"}, "kvm"),
        ({"/proc/cpuinfo": ARM, f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "g5g.metal"}, ""),
        ({"/proc/cpuinfo": ARM, f"{DMI}/sys_vendor": "NVIDIA", f"{DMI}/product_name": "NVIDIA_DGX_Spark"}, ""),
        ({"/proc/cpuinfo": ARM, "/proc/device-tree/compatible": "linux,dummy-virt\0"}, "qemu"),
        ({"/proc/cpuinfo": ARM, "/proc/device-tree/compatible": "nvidia,p3701\0nvidia,tegra234\0"}, ""),
        ({"/proc/cpuinfo": ARM, "/proc/device-tree/hypervisor/compatible": "xen,xen-4.17\0xen,xen\0"}, "xen"),
        ({"/proc/cpuinfo": "vendor_id : IBM/S390\nfeatures : vx\n", "/proc/sysinfo": "VM00 Control Program: z/VM    7.3.0\n"}, "zvm"),
        ({"/proc/cpuinfo": "vendor_id : IBM/S390\nfeatures : vx\n", "/proc/sysinfo": "VM00 Control Program: KVM/Linux\n"}, "kvm"),
    ],
)
def test_whose_virtual_machine(machine: MakeMachine, files: Files, name: str) -> None:
    """Firmware, flag, clocks and devices name the hypervisor; clouds sell bare metal under the same firmware name."""
    facts = collect(machine(files))
    assert (facts.hypervisor, facts.virtual) == (name, name != "")


def test_a_guest_that_hides_is_not_called_bare_metal(machine: MakeMachine) -> None:
    """Without the flag and without the firmware's tables, devices of Intel are no proof: QEMU shows such a chipset, too."""
    facts = collect(machine({"/proc/cpuinfo": METAL, "/proc/bus/pci/devices": "0010\t80861237\t1d\n"}))
    assert (facts.hypervisor, facts.virtual) == (None, None)


def test_nothing_says_whether_virtual(machine: MakeMachine) -> None:
    """Without cpuinfo, firmware and device tree nobody knows; that is not bare metal."""
    facts = collect(machine({}))
    assert (facts.hypervisor, facts.virtual) == (None, None)


@pytest.mark.parametrize(("chassis", "laptop"), [("10", True), ("9", True), ("31", True), ("3", False), ("23", False), ("17", False)])
def test_laptop_by_chassis(machine: MakeMachine, chassis: str, laptop: bool) -> None:
    """SMBIOS numbers the kinds of chassis."""
    assert collect(machine({"/proc/cpuinfo": METAL, f"{DMI}/chassis_type": chassis})).laptop is laptop


def test_guest_on_a_laptop_is_none(machine: MakeMachine) -> None:
    """A virtual machine may show its host's chassis and is no laptop."""
    assert collect(machine({"/proc/cpuinfo": GUEST, f"{DMI}/chassis_type": "10"})).laptop is False


def test_laptop_without_firmware_tables(machine: MakeMachine) -> None:
    """Where there is no SMBIOS the device tree says, else a battery."""
    assert collect(machine({"/proc/cpuinfo": ARM, "/proc/device-tree/chassis-type": "laptop\0"})).laptop is True
    assert collect(machine({"/proc/cpuinfo": ARM, "/sys/class/power_supply/BAT0/type": "Battery"})).laptop is True
    assert collect(machine({"/proc/cpuinfo": ARM})).laptop is False


def test_start_parameters(machine: MakeMachine) -> None:
    """Only parameters that decide speed are kept, one without a value reads `on`."""
    line = "BOOT_IMAGE=/vmlinuz root=UUID=1 ro nosmt isolcpus=domain,managed_irq,2-7,10 nohz_full=2-7 mitigations=off luks.key=abc -- init=1 nosmt=force\n"
    facts = collect(machine({"/proc/cmdline": line}))
    assert facts.cmdline == {"nosmt": "on", "isolcpus": "domain,managed_irq,2-7,10", "nohz_full": "2-7", "mitigations": "off"}
    assert (str(facts.isolcpus), str(facts.nohz_full)) == ("2-7,10", "2-7")


def test_no_isolated_cpus_is_known(machine: MakeMachine) -> None:
    """A command line without isolcpus isolates nothing; one that cannot be read says nothing."""
    facts = collect(machine({"/proc/cmdline": "quiet\n"}))
    assert facts.isolcpus is not None
    assert not facts.isolcpus
    assert collect(machine({})).isolcpus is None


def test_garbled_isolcpus_is_unknown(machine: MakeMachine) -> None:
    """A list that is none is unknown, and the source says so."""
    host = machine({"/proc/cmdline": "isolcpus=7-2\n"})
    assert collect(host).isolcpus is None
    assert any("isolcpus" in (source.error or "") for source in host.sources)


def test_clocks(machine: MakeMachine) -> None:
    """The clock in use and those the kernel trusts."""
    facts = collect(machine({f"{CLOCKS}/current_clocksource": "hpet\n", f"{CLOCKS}/available_clocksource": "hpet acpi_pm \n"}))
    assert (facts.clocksource, facts.clocksources) == ("hpet", ("hpet", "acpi_pm"))


def test_debugging_permissions(machine: MakeMachine) -> None:
    """Without Yama a user may look into all own programs; negative levels of perf are levels."""
    facts = collect(machine({"/proc/sys/kernel/perf_event_paranoid": "-1"}))
    assert (facts.perf_event_paranoid, facts.ptrace_scope) == (-1, 0)
    assert collect(machine({"/proc/sys/kernel/yama/ptrace_scope": "1"})).ptrace_scope == 1


def test_uptime(machine: MakeMachine) -> None:
    """The first of two numbers."""
    assert collect(machine({"/proc/uptime": "350735.47 234388.90\n"})).uptime_s == 350735.47
    assert collect(machine({"/proc/uptime": "soon"})).uptime_s is None


def test_tuned_and_services(machine: MakeMachine) -> None:
    """systemd's own links tell which services are active; no process is asked."""
    links = {f"/run/systemd/units/invocation:{name}.service": "0123" for name in ("irqbalance", "tuned", "ssh")}
    facts = collect(machine({"/etc/tuned/active_profile": "throughput-performance\n"}, links))
    assert (facts.tuned_profile, facts.services) == ("throughput-performance", ("irqbalance", "tuned"))


def test_no_tuned_is_known_no_systemd_is_not(machine: MakeMachine) -> None:
    """No profile file: tuned has no profile. No systemd: services are unknown."""
    facts = collect(machine({}))
    assert (facts.tuned_profile, facts.services) == ("", None)


PATHS = (
    RELEASE, "/proc/version", "/proc/cmdline", "/proc/cpuinfo", "/proc/uptime", f"{DMI}/chassis_type", f"{DMI}/product_name", "/proc/sysinfo",
    "/proc/bus/pci/devices", f"{CLOCKS}/current_clocksource", f"{CLOCKS}/available_clocksource", "/proc/device-tree/compatible",
    "/proc/sys/kernel/perf_event_paranoid", "/etc/tuned/active_profile", "/sys/hypervisor/type",
)  # fmt: skip


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(PATHS), st.one_of(st.binary(max_size=60), st.sampled_from([b"isolcpus=1-", b"Linux version", ARM.encode()]))
    )
)
def test_any_content_is_survived(files: dict[str, bytes]) -> None:
    """Whatever the files hold, facts come out that are JSON and hold no control characters."""
    facts = collect(Host("/test-machine", tree=Dict(dict(files))))
    assert "\x1b" not in to_json(facts).decode()
    assert (facts.virtual is None) is (facts.hypervisor is None)


def test_a_synchronized_clock_is_known_and_others_are_asked_under_deep(machine: MakeMachine) -> None:
    """systemd-timesyncd leaves a file; for chrony the kernel is asked, and without --deep nobody."""
    calls: dict[str, object] = {"clock:unsynchronized": True}

    assert collect(machine({"/run/systemd/timesync/synchronized": ""})).clock_synchronized is True
    assert collect(machine({RELEASE: "6.8.0"}, calls=calls, deep=True)).clock_synchronized is False
    assert collect(machine({RELEASE: "6.8.0"}, calls=calls)).clock_synchronized is None


def test_this_kernel_says_whether_its_clock_is_right() -> None:
    """The call works here, without a right to set the clock."""
    assert collect(Host(deep=True)).clock_synchronized in (True, False)


def test_hung_tasks_are_counted_where_the_kernel_counts(machine: MakeMachine) -> None:
    """Absent on older kernels: unknown, not none."""
    assert collect(machine({"/proc/sys/kernel/hung_task_detect_count": "3\n"})).hung_tasks == 3
    assert collect(machine({RELEASE: "5.15.0"})).hung_tasks is None


@pytest.mark.parametrize(
    ("files", "mode"),
    [
        ({"/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, "integrity"),
        ({"/sys/kernel/security/lockdown": "[none] integrity confidentiality\n"}, "none"),
        ({"/sys/kernel/security/lockdown": "\n"}, None),
        ({}, None),
    ],
)
def test_whether_the_kernel_keeps_unsigned_modules_out(machine: MakeMachine, files: Files, mode: str | None) -> None:
    """The kernel puts its choice into brackets; one without the file may keep them out by other means."""
    assert collect(machine(files)).lockdown == mode


LOG = """\
2026-11-20T12:00:00,1+00:00 watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4711]
2026-11-20T12:00:20,1+00:00 watchdog: BUG: soft lockup - CPU#13 stuck for 49s! [python3:4711]
2026-11-20T12:00:30,1+00:00 mce: [Hardware Error]: CPU 24: Machine Check: 0 Bank 13: dc2040000000011b
2026-11-20T12:00:31,1+00:00 [Hardware Error]: Corrected error, no action required.
2026-11-20T12:00:32,1+00:00 {1}[Hardware Error]: event severity: corrected
"""


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ("", ["stuck"]),
        ("mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 5: be00000000800400", ["stuck", "hardware"]),
        ("{1}[Hardware Error]: event severity: fatal", ["stuck", "hardware"]),
        ("[Hardware Error]: Uncorrected, software restartable error.", ["stuck", "hardware"]),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", ["stuck"]),
    ],
)
def test_stuck_cpus_and_errors_that_nobody_corrected_are_read_from_the_log(machine: MakeMachine, more: str, kinds: list[str]) -> None:
    log = f"{LOG}2026-11-20T12:00:40,1+00:00 {more}\n"
    found = collect(machine({}, {}, {"run:dmesg": log}, deep=True)).alarms or ()

    assert [alarm.kind for alarm in found] == kinds
    assert (found[0].text, found[0].count) == ("soft lockup - CPU#12 stuck for 26s", 3 if "stall" in more else 2)

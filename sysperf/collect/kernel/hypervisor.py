"""Whether this is a virtual machine, and whose: by the firmware's tables, the CPU's flag and the devices, as lscpu and systemd do.

Reads   /sys/class/dmi/id/{product_name,sys_vendor,product_version,bios_vendor,board_vendor}  /sys/hypervisor/type
        /sys/devices/system/clocksource/clocksource0/available_clocksource  /proc/bus/pci/devices
        /proc/device-tree/{compatible,hypervisor/compatible}  /proc/sysinfo
Kernel  https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-hypervisor-xen
        https://docs.kernel.org/arch/x86/cpuinfo.html
"""

from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs.cpuinfo import CPUINFO, Cpuinfo

DMI = "/sys/class/dmi/id"
TYPE = "/sys/hypervisor/type"
PCI_DEVICES = "/proc/bus/pci/devices"
DEVICE_TREE = "/proc/device-tree"
SYSINFO = "/proc/sysinfo"
AVAILABLE = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
HYPERVISOR = (f"{DMI}/*", CPUINFO, TYPE, PCI_DEVICES, f"{DEVICE_TREE}/*", SYSINFO)
"""What decides, as `fact` wants it."""

_DMI_FILES = ("product_name", "sys_vendor", "product_version", "bios_vendor", "board_vendor")
_DMI_NAMES = (
    # the start of a text of the firmware: the hypervisor that writes it
    ("KVM", "kvm"), ("OpenStack", "kvm"), ("KubeVirt", "kvm"), ("RHEV", "kvm"), ("AHV", "kvm"), ("QEMU", "qemu"), ("Bochs", "qemu"),
    ("VMware", "vmware"), ("VMW", "vmware"), ("innotek GmbH", "virtualbox"), ("VirtualBox", "virtualbox"), ("Xen", "xen"),
    ("HVM domU", "xen"), ("Parallels", "parallels"), ("BHYVE", "bhyve"), ("Hyper-V", "hyperv"), ("Virtual Machine", "hyperv"),
    ("Apple Virtualization", "apple"), ("vServer", "kvm"), ("Droplet", "kvm"),
)  # fmt: skip
_CLOUDS = ("Amazon EC2", "Google", "Alibaba Cloud")
"""They write the same name into virtual machines and bare-metal servers."""

_CLOCKS = {"kvm-clock": "kvm", "xen": "xen", "hyperv_clocksource_tsc_page": "hyperv", "hyperv_clocksource": "hyperv"}
_PCI_VENDORS = {"80ee": "virtualbox", "15ad": "vmware", "5853": "xen", "1414": "hyperv", "1af4": "qemu"}
OTHER = "other"


def hypervisor(host: Host, info: Cpuinfo) -> str | None:
    """The hypervisor's name; ``other`` when it hides its name, empty on bare metal, None when nothing says."""
    texts = {name: host.word(f"{DMI}/{name}") for name in _DMI_FILES}
    named = _by_firmware(texts)
    if named and named != "qemu":
        return named
    flags = info.flags() or frozenset()
    if named or "hypervisor" in flags:
        return _by_clock(host) or named or _known_type(host) or OTHER
    if "fpu" in flags:  # x86, where the flag is missing on bare metal and under hypervisors that hide
        return "" if any(texts.values()) else _known_type(host) or _by_pci(host)
    return _elsewhere(host, info, texts)


def _by_firmware(texts: dict[str, str | None]) -> str:
    for text in texts.values():
        for start, name in _DMI_NAMES:
            if (text or "").startswith(start):
                return name
    return ""


def _by_clock(host: Host) -> str:
    words = (host.word(AVAILABLE) or "").split()
    return next((_CLOCKS[word] for word in words if word in _CLOCKS), "")


def _known_type(host: Host) -> str:
    return neutral(host.word(TYPE) or "", 40)


def _by_pci(host: Host) -> str | None:
    """Devices that only a hypervisor makes; None when there is none: some guests have the host's own.

    A line is ``bus-and-function  vendor-and-device  ...`` in hexadecimal.
    """
    lines = (host.text(PCI_DEVICES) or "").splitlines()
    vendors = {line.split("\t")[1][:4] for line in lines if "\t" in line}
    return next((name for vendor, name in _PCI_VENDORS.items() if vendor in vendors), None)


def _elsewhere(host: Host, info: Cpuinfo, texts: dict[str, str | None]) -> str | None:
    """Look beyond x86: the firmware's tables, the device tree, or what the machine says of itself."""
    if any((text or "").startswith(_CLOUDS) for text in texts.values()):
        return "" if "metal" in (texts["product_name"] or "") else "kvm"
    if any(texts.values()):
        return ""
    tree = [(host.text(f"{DEVICE_TREE}/{name}") or "").replace("\0", " ") for name in ("hypervisor/compatible", "compatible")]
    named = next((name for name in ("xen", "kvm", "vmware") if name in tree[0]), "")
    if named or "dummy-virt" in tree[1] or "emulated by qemu" in (info.get("machine") or ""):
        return named or "qemu"
    control = (host.pairs(SYSINFO) or {}).get("VM00 Control Program", "")
    if control:
        return "kvm" if "KVM" in control else "zvm"
    return _known_type(host) or ("" if tree[1] else None)

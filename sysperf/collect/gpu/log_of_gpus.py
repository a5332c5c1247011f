"""The kernel log of this machine's GPUs: which of its lines count, and of which GPUs.

Reads   the kernel log under --deep  /sys/bus/pci/devices  /sys/class/drm  /opt/rocm
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from sysperf.collect.gpu import drm
from sysperf.collect.gpu.kernel_log import Log, read_log
from sysperf.collect.gpu.log_faults import GOES_ON, OTHER_DRIVERS, UNKNOWN, Fault
from sysperf.collect.gpu.places import PCI
from sysperf.collect.gpu.records import Device
from sysperf.collect.readers.compute_libraries import LEVEL_ZERO_GPU, installed
from sysperf.host import Host
from sysperf.procfs.pci import addresses_in

ROCM = "/opt/rocm"
OF_GRAPHICS = ("hung", "program", UNKNOWN)
"""Kinds of lines that matter of AMD's graphics, too, where a PyTorch for ROCm computes on them."""


def log_of(host: Host, devices: Sequence[Device], functions: Sequence[str], *, any_gpu: bool, nvidia: bool) -> Log:
    """The drivers' errors. Reading the kernel log takes --deep and often root.

    Where there is no GPU for computing one may have failed at its start; what is reset there, or beside NVIDIA's, draws a screen,
    unless ROCm, or Intel's driver for computing, is installed for it. A PyTorch for ROCm brings its own, so that what befalls
    AMD's graphics is kept, and marked.
    """
    any_gpu = any_gpu or host.exists(ROCM) is True or _intel_computes(host)
    log = host.run("dmesg") if host.deep else None
    if log is None:
        return Log(xids=None if nvidia else (), sxids=None if nvidia else (), faults=None if any_gpu else ())
    errors = host.run("dmesg-errors")
    places = {*(device.bus_id or "" for device in devices), *functions} - {""}
    graphics = {card.bus_id for card in drm.cards(host) or () if card.vendor == "amd"} - places
    if host.exists(ROCM):
        places |= graphics
    ports = {port for place in places for port in addresses_in(host.link(f"{PCI}/{place}") or "")}
    alone = nvidia and all(device.vendor == "nvidia" for device in devices)

    def counts(fault: Fault) -> bool:
        draws = alone and fault.text.startswith(OTHER_DRIVERS) and fault.bus_id not in places
        return fault.kind not in GOES_ON or (any_gpu and not draws) or fault.text.startswith("gim ")

    def of_graphics(fault: Fault) -> bool:
        unnamed = fault.bus_id is None and not fault.text.startswith(OTHER_DRIVERS[1:])
        return fault.kind in OF_GRAPHICS and (unnamed or fault.bus_id in graphics) and not counts(fault)

    read = read_log(log, places | ports, counts, errors)
    drawn = read_log(log, (), of_graphics, errors).faults if graphics else ()
    return structs.replace(read, faults=(*(read.faults or ()), *(structs.replace(fault, draws=True) for fault in drawn or ())))


def _intel_computes(host: Host) -> bool:
    """Whether the graphics of Intel's processor may be used for computing."""
    return any(card.vendor == "intel" for card in drm.cards(host) or ()) and installed(host, LEVEL_ZERO_GPU) is True

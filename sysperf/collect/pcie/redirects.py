"""Switch ports that send traffic between peers up to the CPU (Access Control Services)."""

from __future__ import annotations

from sysperf.collect.pcie.records import PCI, Device
from sysperf.host import Host
from sysperf.procfs.pci import EXTENDED, redirects_peers


def acs_redirects(host: Host, devices: list[Device]) -> tuple[str, ...] | None:
    """The switch ports that redirect traffic between a GPU and another device below the same switch.

    Only such pairs lose by it: traffic between root ports passes the CPU anyway.
    """
    ports = _switch_ports(devices)
    if ports is None:
        return None
    redirecting = [(port, _redirects(host, f"{PCI}/{port}/config")) for port in ports]
    if any(answer is None for _, answer in redirecting):
        return None
    return tuple(port for port, answer in redirecting if answer)


def _switch_ports(devices: list[Device]) -> list[str] | None:
    below: dict[str, list[Device]] = {}
    for device in devices:
        if device.path is None:
            return None
        if len(device.path) > 2:
            below.setdefault(device.path[1], []).append(device)
    ports: dict[str, None] = {}
    for peers in below.values():
        if len({peer.address.rpartition(".")[0] for peer in peers}) > 1 and any(peer.kind in ("gpu", "accelerator") for peer in peers):
            ports.update((port, None) for peer in peers for port in (peer.path or ())[2:])
    return list(ports)


def _redirects(host: Host, path: str) -> bool | None:
    """Whether a port's Access Control Services redirect traffic between peers; None when that may not be read."""
    config = host.data(path)
    if config is None:
        return None
    if len(config) <= EXTENDED:
        host.refuse(path, "Permission denied: only root may read beyond the first 64 bytes")
        return None
    return redirects_peers(config)

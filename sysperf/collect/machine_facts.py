"""The facts of a machine, area by area, as the records that the collectors made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:  # records of areas that nobody read are not imported
    from collections.abc import Callable, Mapping

    from sysperf.collect.allocator import Allocator
    from sysperf.collect.cgroup import Cgroup
    from sysperf.collect.container import Container
    from sysperf.collect.cpu import Cpu
    from sysperf.collect.driver import Driver
    from sysperf.collect.gpu import Gpu
    from sysperf.collect.gpu.records import Device
    from sysperf.collect.kernel import Kernel
    from sysperf.collect.limits import Limits
    from sysperf.collect.memory import Memory
    from sysperf.collect.network import Network
    from sysperf.collect.nic import Nic
    from sysperf.collect.numa import Numa
    from sysperf.collect.openmp import OpenMP
    from sysperf.collect.pcie.records import Pcie
    from sysperf.collect.power import Power
    from sysperf.collect.process.records import Process, Processes
    from sysperf.collect.python import Python
    from sysperf.collect.storage import Storage
    from sysperf.collect.torch import Torch
    from sysperf.model.snapshot import Area

T = TypeVar("T")


class _Area(Generic[T]):
    """The facts of the area that the attribute is named after."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, areas: AreaFacts, _: type) -> T | None:
        return cast("T | None", areas.of(self._name))  # its collector returns nothing else


class AreaFacts:
    """The facts of each area; None where an area is unknown, or was not read."""

    def __init__(self, of: Callable[[str], object]) -> None:
        self.of = of

    kernel: _Area[Kernel] = _Area()
    cpu: _Area[Cpu] = _Area()
    numa: _Area[Numa] = _Area()
    memory: _Area[Memory] = _Area()
    cgroup: _Area[Cgroup] = _Area()
    limits: _Area[Limits] = _Area()
    power: _Area[Power] = _Area()
    container: _Area[Container] = _Area()
    pcie: _Area[Pcie] = _Area()
    gpu: _Area[Gpu] = _Area()
    driver: _Area[Driver] = _Area()
    storage: _Area[Storage] = _Area()
    network: _Area[Network] = _Area()
    nic: _Area[Nic] = _Area()
    python: _Area[Python] = _Area()
    torch: _Area[Torch] = _Area()
    allocator: _Area[Allocator] = _Area()
    openmp: _Area[OpenMP] = _Area()
    process: _Area[Processes] = _Area()

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs; none where nobody knows them."""
        return (self.gpu.devices or ()) if self.gpu else ()

    @property
    def programs(self) -> tuple[Process, ...]:
        """The PyTorch programs; none where nobody knows them."""
        return self.process.processes if self.process else ()


class MachineFacts(AreaFacts):
    """The facts of areas that were read. What was saved or comes from an agent is decoded to these records where it arrives."""

    def __init__(self, areas: Mapping[str, Area]) -> None:
        self._areas = areas
        super().__init__(lambda name: self._areas[name].facts if name in self._areas else None)

    def problem(self, area: str) -> str | None:
        """Why the facts of an area are not known; None where nothing says so."""
        return self._areas[area].problem if area in self._areas else None

"""The facts of a snapshot, area by area, as the records that the collectors made."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's: records of areas that nobody read are not imported
if TYPE_CHECKING:
    from sysperf.collect.cgroup import Cgroup
    from sysperf.collect.container import Container
    from sysperf.collect.cpu import Cpu
    from sysperf.collect.driver import Driver
    from sysperf.collect.gpu import Gpu
    from sysperf.collect.kernel import Kernel
    from sysperf.collect.memory import Memory
    from sysperf.collect.network import Network
    from sysperf.collect.numa import Numa
    from sysperf.collect.pcie import Pcie
    from sysperf.collect.process.records import Processes
    from sysperf.collect.storage import Storage
    from sysperf.collect.torch import Torch
    from sysperf.model.snapshot import Facts, Snapshot


class MachineFacts:
    """The facts of each area; None where an area is unknown, or was not read.

    Collectors make these records. What was saved or comes from an agent is decoded to them where it arrives.
    """

    def __init__(self, snapshot: Snapshot | None) -> None:
        self._areas = {} if snapshot is None else snapshot.areas
        self.kernel: Kernel | None = self._of("kernel")
        self.cpu: Cpu | None = self._of("cpu")
        self.numa: Numa | None = self._of("numa")
        self.memory: Memory | None = self._of("memory")
        self.cgroup: Cgroup | None = self._of("cgroup")
        self.container: Container | None = self._of("container")
        self.pcie: Pcie | None = self._of("pcie")
        self.driver: Driver | None = self._of("driver")
        self.gpu: Gpu | None = self._of("gpu")
        self.storage: Storage | None = self._of("storage")
        self.network: Network | None = self._of("network")
        self.torch: Torch | None = self._of("torch")
        self.process: Processes | None = self._of("process")

    def problem(self, area: str) -> str | None:
        """Why the facts of an area are not known; None where nothing says so."""
        return self._areas[area].problem if area in self._areas else None

    def _of(self, area: str) -> Facts:
        return self._areas[area].facts if area in self._areas else None

"""The machine as far as it decides what is measured: CPUs and nodes that may be used, GPUs that are visible, an interpreter with torch."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import reading
from sysperf.engine.verify import workload
from sysperf.engine.wrap.facts import gather
from sysperf.host import Host
from sysperf.launch import environment
from sysperf.launch.machine import Machine as Placement
from sysperf.launch.machine import MemoryNode
from sysperf.launch.request import LaunchRequest
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import UsageError

if TYPE_CHECKING:
    from sysperf.collect.gpu.records import Device

AREAS = ("kernel", "cpu", "gpu", "cgroup")


class Machine:
    """What is measured of, and with what."""

    def __init__(self, python: str = "", ranks: int | None = None) -> None:
        self.notes: list[str] = []
        self.python = self._interpreter(python)
        """The interpreter with torch; empty where there is none."""
        shallow, deep = reading.snapshot(Host(), AREAS), reading.snapshot(Host(deep=True), ("memory",))  # only --deep reads the slots
        self.facts = MachineFacts({**shallow.areas, **deep.areas})
        argv = (self.python or sys.executable, "-c", "pass")
        known = gather(Host(), LaunchRequest(argv=argv), environment.inherited(), os.getcwd(), None)
        self.placement: Placement = known.machine
        self.allowed: CpuSet = known.machine.allowed or CpuSet(os.sched_getaffinity(0))
        self.gpus = self._visible([gpu.bus_id for gpu in known.gpus.visible or ()])
        self.ranks = self._ranks(ranks)
        if self.placement.quota:
            self.notes.append(f"this group of processes may use {self.placement.quota:g} CPUs' worth of time: its ceilings are lower")

    @property
    def nodes(self) -> tuple[MemoryNode, ...]:
        """Memory nodes of the machine, without those of GPUs; one for all where the kernel shows none."""
        may = self.placement.allowed_nodes
        nodes = [node for node in self.placement.nodes if node.has_memory and not node.gpu_memory and (may is None or node.id in may)]
        return tuple(nodes) or (MemoryNode(0, self.allowed),)

    def _interpreter(self, python: str) -> str:
        try:
            return workload.interpreter(python)
        except UsageError as error:
            if python:
                raise
            self.notes.append(f"{error}: triad, products and copies to a GPU are not measured; {error.hint}")
            return ""

    def _visible(self, addresses: list[str]) -> list[Device | None]:
        """What is known of each GPU, in CUDA's order."""
        known = {device.bus_id: device for device in self.facts.gpus}
        return [known.get(address) for address in addresses]

    def _ranks(self, asked: int | None) -> int:
        """Return as many as GPUs or, without them, memory nodes with CPUs."""
        if asked is not None:
            return asked
        return len(self.gpus) or sum(bool(node.cpus & self.allowed) for node in self.nodes)

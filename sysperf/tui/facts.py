"""The facts that the dashboard draws, as the records of their areas."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from sysperf.collect.cpu import Cpu
from sysperf.collect.driver import Driver
from sysperf.collect.gpu import Gpu
from sysperf.collect.memory import Memory
from sysperf.collect.network import Network
from sysperf.collect.numa import Numa
from sysperf.collect.pcie import Pcie
from sysperf.collect.process.records import Processes
from sysperf.collect.storage import Storage
from sysperf.collect.torch import Torch
from sysperf.model.snapshot import Snapshot

T = TypeVar("T")


class MachineFacts(NamedTuple):
    """The facts of each area; None where an area is unknown."""

    cpu: Cpu | None = None
    numa: Numa | None = None
    memory: Memory | None = None
    pcie: Pcie | None = None
    driver: Driver | None = None
    gpu: Gpu | None = None
    storage: Storage | None = None
    network: Network | None = None
    torch: Torch | None = None
    process: Processes | None = None


def of_snapshot(snapshot: Snapshot) -> MachineFacts:
    """The facts of a machine at one moment."""
    return MachineFacts(
        cpu=_facts(snapshot, "cpu", Cpu),
        numa=_facts(snapshot, "numa", Numa),
        memory=_facts(snapshot, "memory", Memory),
        pcie=_facts(snapshot, "pcie", Pcie),
        driver=_facts(snapshot, "driver", Driver),
        gpu=_facts(snapshot, "gpu", Gpu),
        storage=_facts(snapshot, "storage", Storage),
        network=_facts(snapshot, "network", Network),
        torch=_facts(snapshot, "torch", Torch),
        process=_facts(snapshot, "process", Processes),
    )


def _facts(snapshot: Snapshot, area: str, record: type[T]) -> T | None:
    facts = snapshot.areas[area].facts if area in snapshot.areas else None
    return facts if isinstance(facts, record) else None

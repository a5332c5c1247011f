"""Facts about a machine, one file an area. A collector that fails makes its area unknown, never stops an audit."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence

from sysperf.collect.machine_facts import MachineFacts
from sysperf.host import Host, failures
from sysperf.model.errors import Missing
from sysperf.model.snapshot import Area

AREAS = (
    "kernel", "cpu", "numa", "memory", "cgroup", "limits", "power", "container", "pcie", "driver", "gpu", "storage",
    "network", "nic", "python", "torch", "allocator", "openmp", "process",
)  # fmt: skip
"""In the order in which they are shown."""


def record_types(areas: Sequence[str] = AREAS) -> dict[str, type]:
    """The record of each area's facts: what its `collect` returns."""
    return {area: record_type(area) for area in areas}


def record_type(area: str) -> type:
    """The record of an area's facts."""
    module = importlib.import_module(f"sysperf.collect.{area}")
    record: type | str = module.collect.__annotations__["return"]
    known: type = vars(module)[record] if isinstance(record, str) else record  # a name where the module postpones annotations
    return known


def collect(host: Host, areas: Sequence[str] = AREAS) -> dict[str, Area]:
    """Read these areas. None of them can stop the others."""
    read = {area: collect_area(host, area) for area in areas}
    add_running_torch(host, read)
    return read


def add_running_torch(host: Host, areas: dict[str, Area]) -> None:
    """Complete `torch` by `process`: what runs may be installed where nobody looks."""
    torch, programs = areas.get("torch"), MachineFacts(areas).programs
    if torch is None or torch.facts is None or not programs:
        return
    before = len(host.sources)
    try:
        facts = importlib.import_module("sysperf.collect.torch").with_running(host, torch.facts, programs)
    except Exception as error:  # noqa: BLE001 - a bug in one collector must not hide what the others found
        facts = torch.facts
        host.refuse("running PyTorch", f"{type(error).__name__}: {str(error)[:200]}")
    areas["torch"] = Area(facts, None, torch.failures + failures(host.sources[before:]), torch.took_ms)


def collect_area(host: Host, area: str) -> Area:
    """Read one area; a collector that cannot, or that breaks, leaves it unknown with the reason."""
    start, before = time.perf_counter(), len(host.sources)
    facts: object = None
    problem: str | None = None
    try:
        facts = importlib.import_module(f"sysperf.collect.{area}").collect(host)
    except Missing as missing:
        problem = str(missing)
    except Exception as error:  # noqa: BLE001 - as above
        problem = f"the collector broke: {type(error).__name__}: {str(error)[:200]}"
    took_ms = (time.perf_counter() - start) * 1e3
    return Area(facts, problem, failures(host.sources[before:]), round(took_ms, 2))

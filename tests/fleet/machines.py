"""Records of nodes that differ in what a test says, and in nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sysperf.model.node import NodeRecord
from sysperf.model.record import convert

GPU = "NVIDIA H100 80GB HBM3"
H100 = {"gpu": f"8 × {GPU}", "cpu": "2 × INTEL(R) XEON(R) PLATINUM 8480C", "rdma": "8 × 400 Gb/s", "memory": "2 TiB"}
LOGIN = {"gpu": "none", "cpu": "1 × AMD EPYC 7543", "rdma": "none", "memory": "256 GiB"}
FACTS = {
    "driver.nvidia_version": "590.2",
    "driver.open_module": "yes",
    "torch.installs.count": "1",
    "torch.installs[1].version": "2.13.0+cu130",
    "torch.installs[1].pin_mismatches.{}": "",
    "kernel.release": "6.8.0-90-generic",
    "memory.total_bytes": "2 TiB",
    "power.boost": "?",
    "gpu.devices.count": "8",
    **{f"gpu.devices[{index}].name": GPU for index in range(8)},
    **{f"gpu.devices[{index}].power.limit_watts": "700.0" for index in range(8)},
    **{f"gpu.devices[{index}].pcie.width_lanes": "16" for index in range(8)},
    **{f"gpu.devices[{index}].numa_node": str(index // 4) for index in range(8)},
}


def node(name: str, facts: Mapping[str, str | None] | None = None, hardware: Mapping[str, str] = H100, **fields: Any) -> dict[str, Any]:
    """What a node of this name prints; a fact of None is not there."""
    comparables = {fact: value for fact, value in {**FACTS, **(facts or {})}.items() if value is not None}
    plain = {"schema": 1, "node": name, "taken_at": "2026-11-23T12:00:00Z", "sysperf": "0.1.0", "hardware": dict(hardware)}
    return {**plain, "comparables": comparables, **fields}


def record(name: str, facts: Mapping[str, str | None] | None = None, hardware: Mapping[str, str] = H100, **fields: Any) -> NodeRecord:
    """The same as a record."""
    as_record: NodeRecord = convert(node(name, facts, hardware, **fields), NodeRecord)
    return as_record


def write(folder: Path, nodes: Iterable[Mapping[str, Any]]) -> Path:
    """A folder of what nodes print."""
    folder.mkdir(exist_ok=True)
    for each in nodes:
        (folder / f"{each['node']}.json").write_text(json.dumps(each) + "\n")
    return folder


def lost_gpu() -> dict[str, str | None]:
    """The facts of a node that has 7 of its 8 GPUs: those behind the lost one have moved up."""
    gone: dict[str, str | None] = {fact: None for fact in FACTS if fact.startswith("gpu.devices[7]")}
    return {**gone, "gpu.devices.count": "7", "gpu.devices[3].numa_node": "1"}


def planted(count: int) -> list[dict[str, Any]]:
    """A fleet of two classes: what is wrong is planted on n1 to n20, and the upper half has the new PyTorch of a roll-out."""
    fleet = {f"n{number}": node(f"n{number}") for number in range(1, count * 3 // 4 + 1)}
    fleet |= {f"login{number}": node(f"login{number}", hardware=LOGIN) for number in range(1, count - len(fleet) + 1)}
    n = [name for name in fleet if name.startswith("n")]
    for name in n[len(n) // 2 :]:
        fleet[name]["comparables"]["torch.installs[1].version"] = "2.14.0+cu130"
    seven = {**H100, "gpu": f"7 × {GPU}"}
    first = "2.13.0+cu130"
    assert fleet["n1"]["comparables"]["torch.installs[1].version"] == first
    fleet["n1"] = node("n1", lost_gpu(), seven)
    for name in ("n2", "n3", "n4", "n5"):
        fleet[name]["comparables"]["driver.nvidia_version"] = "580.1"
    for index in range(8):
        fleet["n6"]["comparables"][f"gpu.devices[{index}].power.limit_watts"] = "500.0"
    fleet["n7"]["unknown"] = [{"area": "nic", "why": "/sys/class/infiniband does not answer"}]
    fleet["n8"]["comparables"]["driver.nvidia_version"] = "?"
    fleet["n9"]["findings"] = [
        {"rule": "gpu.ecc-uncorrectable", "severity": "error", "subject": "GPU 3", "message": "GPU 3 had 2 uncorrected errors."}
    ]
    fleet["n10"]["comparables"]["torch.installs[1].pin_mismatches.nccl"] = "2.20"
    return list(fleet.values())


def silent(fleet: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """(state, reason) of each node that is not known, in the JSON of an answer."""
    return {node: (each["state"], each["reason"]) for each in fleet["silent"] for node in each["nodes"]}


def script(folder: Path, name: str, line: str) -> Path:
    """What is started as sysperf on a node."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path

"""Which machine it is, in five lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sysperf.report.machine import described, identity
from tests.report import reports


def line(label: str, **areas: Any) -> str:
    """One line of the machine with these areas changed."""
    return dict(identity(reports.snapshot(**areas)))[label]


def test_cpus_say_how_many_are_allowed() -> None:
    """A restriction is worth a word; one socket and one memory node are not."""
    cpu = {"model_name": "Xeon", "packages": 1, "cores": 4, "online": "0-7", "allowed": "0-3"}

    assert line("CPU", cpu=cpu, numa={}) == "Xeon, 4 cores, 8 CPUs, 4 allowed here"


NVIDIA = {"kind": "gpu", "vendor_id": "10de", "driver": "nvidia"}


@pytest.mark.parametrize(
    ("gpu", "pcie", "expected"),
    [
        ({"devices": []}, {"nvidia_gpus": 0}, "none"),
        ("no driver", {"nvidia_gpus": 0}, "none"),
        ("no driver", {"devices": [NVIDIA, NVIDIA]}, "2 × NVIDIA GPU on the bus: no driver answers"),
        ({"devices": []}, {"devices": [{**NVIDIA, "vendor_id": None}] * 6}, "6 × GPU of an unknown maker on the bus: no driver answers"),
        (
            {"devices": []},
            {"devices": [{**NVIDIA, "vendor_id": "1002", "driver": ""}]},
            "1 × AMD GPU on the bus: no driver is bound to them",
        ),
        ({"devices": []}, {"devices": [{**NVIDIA, "vendor_id": "1a03"}]}, "none"),
        ("no driver", "no /sys/bus/pci", "unknown: no driver"),
        ({"devices": [], "others": ["8 Gaudi of Intel's"]}, {"nvidia_gpus": 0}, "none, but 8 Gaudi of Intel's"),
        ({"devices": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}, {}, "2 \u00d7 A and B, driver 580.65.06, CUDA 13.0"),
    ],
)
def test_gpus_are_counted_or_said_to_be_unknown(gpu: Any, pcie: Any, expected: str) -> None:
    """None is only said when the bus was seen to have none."""
    assert line("GPU", gpu=gpu, pcie=pcie) == expected


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ({"installs": []}, "no installation found"),
        ("no Python", "unknown: no Python"),
        ({"installs": [{"version": "2.13.0", "prefix": "/v", "cuda": "", "hip": "6.4"}]}, "2.13.0 (ROCm 6.4) in /v"),
        ({"installs": [{"version": None, "prefix": "/v", "cuda": None}]}, "unknown version in /v"),
        (
            {"installs": [{"version": str(i), "prefix": "/v", "cuda": ""} for i in range(5)]},
            "0 (CPU only) in /v, 1 (CPU only) in /v, 2 (CPU only) in /v and 2 more",
        ),
    ],
)
def test_installations_say_what_they_were_built_for(torch: Any, expected: str) -> None:
    """CUDA, ROCm or CPU only; many are cut."""
    assert line("PyTorch", torch=torch) == expected


def test_a_container_hides_the_installations_of_its_machine() -> None:
    """To have seen none from inside is not to know that there is none."""
    container = {"inside": True, "kind": "podman"}

    assert line("PyTorch", torch={"installs": []}, container=container) == (
        "no installation found in this container; what is outside of it was not seen"
    )


@pytest.mark.parametrize(
    ("unreadable", "expected"),
    [
        (0, None),
        (1, "1 of other users could not be examined; root can"),
        (3, "3 of other users could not be examined; root can"),
    ],
)
def test_programs_that_nobody_could_look_at_are_told(unreadable: int, expected: str | None) -> None:
    """Without root, nothing found in others' programs is not the same as nothing there."""
    assert dict(described(reports.snapshot(process={"processes": [], "unreadable": unreadable}))).get("programs") == expected


def test_whose_programs_a_capture_could_not_look_at_is_not_known() -> None:
    """Root here can do nothing about it; whoever captures it again can."""
    snapshot = msgspec.structs.replace(reports.snapshot(process={"processes": [], "unreadable": 1}), root="box.tar.zst")

    assert dict(described(snapshot))["programs"] == "1 could not be examined when this was captured; root can capture them"


def test_limits_smaller_than_the_machine_are_shown() -> None:
    """A container's memory limit and CPU quota are what the program really has."""
    cgroup = {"cpu_quota": 2.5, "memory_limit_bytes": 8 << 30}

    assert line("memory", cgroup=cgroup).endswith("limit of 8 GiB")
    assert line("CPU", cgroup=cgroup).endswith("quota of 2.5 CPUs")
    assert "limit" not in line("memory", cgroup={"memory_limit_bytes": 1 << 62})

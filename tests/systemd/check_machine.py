"""Facts about the booted copy itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.systemd.inside import SYSPERF, fact, run, unit


@fact
def process_1() -> str:
    return Path("/proc/1/comm").read_text().strip()


@fact
def failed_units() -> str:
    return str(run("systemctl", "list-units", "--state=failed", "--plain", "--no-legend")["out"])


@fact
def sysperf_version() -> dict[str, Any]:
    return run(SYSPERF, "--version")


@fact
def interpreter() -> list[str]:
    return [sys.executable, sys.prefix, os.path.realpath(sys.executable)]


@fact
def raises() -> None:
    raise ValueError("as it should")


@fact
def quota() -> str:
    """The quota of a unit's control group: in version 1, else in version 2."""
    name = "system.slice/quota.service"
    script = f"cat /sys/fs/cgroup/cpu/{name}/cpu.cfs_quota_us || cat /sys/fs/cgroup/{name}/cpu.max"
    unit("quota.service", f"[Service]\nType=oneshot\nCPUQuota=50%\nExecStart=sh -c '{script}'\nStandardOutput=file:/quota\n")
    run("systemctl", "start", "quota.service")
    return Path("/quota").read_text()

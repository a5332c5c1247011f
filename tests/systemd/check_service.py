"""Facts about `sysperf service` where systemd runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.systemd.inside import PYTHON, SYSPERF, as_user, fact, run, show

AGENT = Path("/etc/systemd/system/sysperf-agent.service")
UNITS = ("sysperf-agent.service", "sysperf-agent.socket", "sysperf-audit.timer", "sysperf-helper.socket", "sysperf-restore.service")


def files() -> list[str]:
    """All files that an installation could have left."""
    return sorted(
        os.path.join(folder, name)
        for top in ("/etc", "/run/sysperf", "/usr/lib/systemd", "/usr/local")
        for folder, _, names in os.walk(top)
        for name in names
        if not name.startswith(("group", "gshadow", ".pwd.lock")) and not folder.startswith("/usr/local/lib/python")
    )


BEFORE = files()


@fact
def install_by_a_user() -> dict[str, Any]:
    return as_user(65534, SYSPERF, "service", "install", "--now", "--no-helper")


@fact
def print_only() -> list[Any]:
    return [run(SYSPERF, "service", "install", "--print"), files() == BEFORE]


@fact
def install() -> dict[str, Any]:
    return run(SYSPERF, "service", "install")


@fact
def installed_files() -> list[str]:
    return sorted(set(files()) - set(BEFORE))


@fact
def group() -> dict[str, Any]:
    return run("getent", "group", "sysperf")


@fact
def loaded() -> dict[str, dict[str, str]]:
    return {name: show(name, "LoadState", "UnitFileState", "ExecStart") for name in UNITS}


@fact
def again() -> dict[str, Any]:
    return run(SYSPERF, "service", "install")


@fact
def changed_by_an_administrator() -> list[Any]:
    AGENT.write_text(AGENT.read_text().replace("CPUQuota=20%", "CPUQuota=7%"))
    kept = run(SYSPERF, "service", "install")
    return [kept, "CPUQuota=7%" in AGENT.read_text(), run(SYSPERF, "service", "status")["out"]]


@fact
def forced() -> list[Any]:
    return [run(SYSPERF, "service", "install", "--force"), "CPUQuota=20%" in AGENT.read_text()]


@fact
def masked_stays_masked() -> list[Any]:
    timer = Path("/etc/systemd/system/sysperf-audit.timer")
    timer.unlink()
    run("systemctl", "mask", "sysperf-audit.timer", check=True)
    kept = run(SYSPERF, "service", "install")
    linked = os.readlink(timer)
    run("systemctl", "unmask", "sysperf-audit.timer", check=True)
    run(SYSPERF, "service", "install")
    return [kept, linked]


@fact
def started() -> list[Any]:
    done = run(SYSPERF, "service", "install", "--now", "--with", "see-all-users")
    return [done, {name: show(name, "ActiveState", "UnitFileState", "DropInPaths") for name in UNITS}]


@fact
def sockets() -> dict[str, str]:
    return {name: run("stat", "-c", "%A %U %G", f"/run/sysperf/{name}.sock")["out"].strip() for name in ("agent", "helper")}


@fact
def status() -> dict[str, Any]:
    return run(SYSPERF, "service", "status")


@fact
def audit_runs_in_its_sandbox() -> list[Any]:
    run("systemctl", "start", "sysperf-audit.service")
    return [
        show("sysperf-audit.service", "Result", "ExecMainStatus"),
        run("journalctl", "-u", "sysperf-audit", "-o", "cat", "--no-pager")["out"],
    ]


@fact
def uninstall() -> list[Any]:
    return [run(SYSPERF, "service", "uninstall"), sorted(set(files()) - set(BEFORE)), sorted(set(BEFORE) - set(files()))]


@fact
def units_afterwards() -> str:
    return str(run("systemctl", "list-units", "--all", "--plain", "--no-legend", "sysperf-*")["out"])


@fact
def uninstall_again() -> dict[str, Any]:
    return run(SYSPERF, "service", "uninstall")


@fact
def program_that_others_can_write() -> dict[str, Any]:
    os.chown("/opt/sysperf/lib", 65534, 65534)
    done = run(PYTHON, "-I", "-m", "sysperf", "service", "install")
    os.chown("/opt/sysperf/lib", 0, 0)
    return done

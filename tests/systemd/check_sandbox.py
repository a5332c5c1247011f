"""What the units' sandboxes let through, tried by a probe that runs in each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sysperf.model.knob import SYSCTLS, SYSFS
from tests.systemd.inside import PYTHON, SYSPERF, fact, run, unit

PROBE = "/opt/sysperf-checks/tests/systemd/probe.py"
FOLDER = Path("/etc/systemd/system")
NOT_OURS = ("Type", "ExecStart", "ExecReload", "WatchdogSec", "Restart", "RestartSec", "Requires", "After", "OnFailure", "CPUQuota")


def knobs() -> list[str]:
    """The files of the settings that this machine has."""
    paths = [knob.path.replace("{item}", "vda").replace("policy*", "policy0") for knob in (*SYSCTLS.values(), *SYSFS.values())]
    return [path for path in paths if os.path.exists(path)]


def prepared() -> None:
    """Make what the sandboxes have to close: writable settings, another user's process and files, and the helper's socket."""
    run("mount", "-o", "remount,bind,rw", "/proc/sys")
    for path in ("/sys/block", "/sys/class", "/sys/devices", "/sys/kernel", "/sys/fs/cgroup"):
        run("mount", "-o", "remount,rw", path)
    os.makedirs("/data")
    run("mount", "-t", "tmpfs", "none", "/data", check=True)
    for name in ("/home/keep", "/var/lib/sysperf-other", "/var/lib/sysperf"):
        os.makedirs(name, exist_ok=True)
    for name in ("/home/keep/secret", "/etc/sysperf-secret", "/var/lib/sysperf/journal"):
        Path(name).write_text("secret")
        os.chmod(name, 0o600)
    os.chown("/home/keep/secret", 4321, 4321)
    run(SYSPERF, "service", "install", check=True)
    run("systemctl", "start", "sysperf-helper.socket", check=True)


prepared()
OTHER = subprocess.Popen(["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", "sleep", "600"])


def probed(source: str, more: str = "") -> dict[str, str]:
    """The probe's answers in the sandbox of a unit."""
    name = "probe.service"
    lines = [line for line in (FOLDER / source).read_text().splitlines() if line.partition("=")[0] not in NOT_OURS]
    text = "\n".join(lines).partition("[Install]")[0].replace("StateDirectory=sysperf", "StateDirectory=probe")
    words = " ".join([PYTHON, "-B", PROBE, str(OTHER.pid), *knobs()])
    Path("/probe.json").unlink(missing_ok=True)
    unit(name, f"{text}\n[Service]\nType=oneshot\nExecStart={words}\nStandardOutput=file:/probe.json\n{more}")
    run("systemctl", "start", name, check=True)
    answers: dict[str, str] = json.loads(Path("/probe.json").read_text())
    return answers


@fact
def unconfined() -> dict[str, str]:
    """The same as root without a sandbox: shows that each door is there to be closed."""
    os.environ["STATE_DIRECTORY"] = "/var/lib/sysperf"
    done = subprocess.run([sys.executable, "-B", PROBE, str(OTHER.pid), *knobs()], capture_output=True, text=True, check=True)
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


@fact
def settings() -> list[str]:
    return knobs()


@fact
def agent() -> dict[str, str]:
    return probed("sysperf-agent.service")


@fact
def agent_that_sees_all() -> dict[str, str]:
    example = Path(next(Path("/opt/sysperf/lib").glob("python*/site-packages/sysperf/systemd/sysperf-agent.service.d/see-all*")))
    return probed("sysperf-agent.service", example.read_text())


@fact
def agent_that_applies() -> dict[str, str]:
    example = Path(next(Path("/opt/sysperf/lib").glob("python*/site-packages/sysperf/systemd/sysperf-agent.service.d/apply*")))
    return probed("sysperf-agent.service", example.read_text())


@fact
def audit() -> dict[str, str]:
    return probed("sysperf-audit.service")


@fact
def helper() -> dict[str, str]:
    return probed("sysperf-helper.service")


@fact
def restore() -> dict[str, str]:
    return probed("sysperf-restore.service")

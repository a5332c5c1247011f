"""A throw-away machine with a real systemd: an overlay over this machine's own files, booted by systemd-nspawn.

Nothing of it stays: the overlay and its mounts live in a mount namespace that ends with the boot, the processes in one of
their own. A boot takes about a second. Inside, /sys and /proc/sys are read-only, the network is a loopback device, and
control groups are as this machine has them: where its cpu hierarchy is version 1, CPUQuota= works there.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli
from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
BASE = Path(sys.base_prefix)
PYTHON_INSIDE = BASE if BASE.parts[1:] == ("usr",) else Path("/opt/python")
"""Where the interpreter lies inside: one in a home would be hidden from sandboxed services."""
PACKAGES = "apt-get install systemd systemd-sysv systemd-container dbus curl"

CHECKS = """\
[Unit]
Description=Checks by sysperf's tests
After=basic.target

[Service]
Type=oneshot
EnvironmentFile=/opt/sysperf-checks/script
Environment=PYTHONPATH=/opt/sysperf-checks PYTHONDONTWRITEBYTECODE=1
ExecStart=/opt/sysperf/bin/python -m tests.systemd.inside ${CHECKS}
ExecStopPost=systemctl poweroff --no-block
TimeoutStartSec=infinity
"""

TARGET = """\
[Unit]
Requires=basic.target sysperf-checks.service
Wants=dbus.socket
After=basic.target
AllowIsolate=yes
"""

INIT = """\
#!/bin/sh
# What units limit is part of what is tested: make version 1 of these hierarchies, in which we have a group of our own, writable.
for folder in cpu cpuacct cpu,cpuacct memory pids devices; do
  folder=/sys/fs/cgroup/$folder
  [ ! -d $folder ] || [ -L $folder ] || mount -o remount,bind,rw $folder
done
# systemd-nspawn hides the kernel's boot id behind one of its own, which a sandbox of a unit uncovers again: leases would look foreign.
while umount /proc/sys/kernel/random/boot_id 2>/dev/null; do :; done
exec /lib/systemd/systemd "$@"
"""


@functools.cache
def why_not() -> str:
    """Why no machine can be booted here; "" where one can."""
    if os.geteuid() != 0:
        return "only root can boot a container"
    missing = [tool for tool in ("systemd-nspawn", "systemctl", "dbus-daemon", "unshare", "setpriv", "curl") if not shutil.which(tool)]
    if not os.path.exists("/lib/systemd/systemd"):
        missing.append("/lib/systemd/systemd")
    if missing:
        return f"no {', '.join(missing)}: {PACKAGES}"
    mount = "mount -t tmpfs none /mnt && mkdir /mnt/{u,w,m} && mount -t overlay none -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    done = subprocess.run(["unshare", "--mount", "bash", "-c", mount], capture_output=True, text=True, check=False)
    return f"no overlay can be mounted here: {done.stderr.strip()}" if done.returncode else ""


class Booted:
    """What the facts of one check script are, and what the journal says."""

    def __init__(self, facts: dict[str, Any], journal: str, console: str) -> None:
        self.facts = facts
        self.journal = journal
        self.console = console

    def __getitem__(self, name: str) -> Any:
        """A fact's value. Fails with the traceback where it raised, and with the journal where it was not reached."""
        if name not in self.facts:
            raise AssertionError(f"`{name}` was not reached\n{self.console[-2000:]}\n{self.journal[-6000:]}")
        if "raised" in self.facts[name]:
            raise AssertionError(f"{self.facts[name]['raised']}\n{self.journal[-4000:]}")
        return self.facts[name]["is"]


class SystemdMachine:
    """Lay files over a copy of this machine, then boot it.

        machine = SystemdMachine(tmp_path)
        machine.add_sysperf()
        machine.add("/etc/systemd/system/x.service", "[Service]\\nExecStart=true\\n")
        booted = machine.boot("tests.systemd.check_x")
        assert booted["name_of_a_fact"] == "active"

    Several scripts are several boots, the files kept from one to the next: `boots`. A script that calls `crash` ends its boot
    as a power failure does. `wants` names units that the boot starts, as `systemctl enable` would have.
    """

    def __init__(self, folder: Path, wants: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.name = f"sysperf-{uuid.uuid4().hex[:12]}"
        self.lay = folder / "lay"
        (folder / "out").mkdir(parents=True)
        self.add("/etc/systemd/system/sysperf-checks.service", CHECKS)
        self.add("/etc/systemd/system/sysperf-checks.target", TARGET + "".join(f"Wants={unit}\n" for unit in wants))
        self.add("/opt/sysperf-checks/init", INIT, 0o755)
        self.add("/opt/sysperf-checks/tests/__init__.py", "")
        for source in HERE.glob("*.py"):
            self.add(f"/opt/sysperf-checks/tests/systemd/{source.name}", source.read_bytes())
        self.binds = [] if PYTHON_INSIDE == BASE else [f"--bind-ro={BASE}:{PYTHON_INSIDE}"]

    def add(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Lay one file."""
        target = self.lay / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def add_sysperf(self) -> None:
        """Install this checkout's sysperf and what it needs into /opt/sysperf, laid out as its wheel would be."""
        packages = self.lay / f"opt/sysperf/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        shutil.copytree(CHECKOUT / "sysperf", packages / "sysperf")
        project = tomli.loads((CHECKOUT / "pyproject.toml").read_text())
        for source, target in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items():
            shutil.copytree(CHECKOUT / source, packages / target, dirs_exist_ok=True)
        for name in project["project"]["dependencies"]:
            _copy_distributions(Requirement(name), packages)
        (self.lay / "opt/sysperf/bin").mkdir()
        interpreter = PYTHON_INSIDE / Path(sys.executable).resolve().relative_to(BASE.resolve())
        (self.lay / "opt/sysperf/bin/python").symlink_to(interpreter)
        self.add("/opt/sysperf/pyvenv.cfg", f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
        self.add("/opt/sysperf/bin/sysperf", "#!/opt/sysperf/bin/python -I\nfrom sysperf.cli import entry\nentry()\n", 0o755)

    def boot(self, *scripts: str, seconds: int = 60) -> Booted:
        """Boot once for each check script, the files kept from boot to boot; the last boot's facts and journal."""
        return self.boots(*scripts, seconds=seconds)[-1]

    def boots(self, *scripts: str, seconds: int = 60) -> list[Booted]:
        """As `boot`, with every boot's facts."""
        command = ["unshare", "--mount", "--propagation=private", "bash", str(HERE / "boot.sh")]
        with (self.folder / "out" / "boot.log").open("wb") as log:
            arguments = [*command, str(self.folder), self.name, str(seconds), *self.binds, "--", *scripts]
            done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise AssertionError((self.folder / "out" / "boot.log").read_text())
        return [self._booted(number) for number in range(1, len(scripts) + 1)]

    def _booted(self, number: int) -> Booted:
        out = self.folder / "out" / str(number)
        facts = json.loads(_text(out.with_suffix(".json")) or "{}")
        return Booted(facts, _text(out.with_suffix(".journal")), _text(out.with_suffix(".console")))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _copy_distributions(requirement: Requirement, packages: Path) -> None:
    """Copy an installed distribution and, below it, all that it requires."""
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        return
    distribution = importlib.metadata.distribution(requirement.name)
    files = list(_inside(distribution))
    if files and (packages / files[-1]).exists():
        return
    for name in files:
        target = packages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(distribution.locate_file(name)), target)
    for name in distribution.requires or ():
        _copy_distributions(Requirement(name), packages)


def _inside(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """The files of a distribution that lie in site-packages and are there."""
    for path in distribution.files or ():
        if path.parts[0] != ".." and os.path.isfile(distribution.locate_file(path)):  # type: ignore[arg-type]  # a path, in fact
            yield str(path)

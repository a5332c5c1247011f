"""torch: the PyTorch installations of this machine, read from their files. Nothing is imported; `--deep` asks the interpreter.

Reads   */site-packages/torch/{version.py,lib}  */site-packages/*.dist-info/{METADATA,INSTALLER}  */conda-meta
Format  https://packaging.python.org/en/latest/specifications/recording-installed-packages/
PyTorch https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from sysperf.collect.python import active_prefix, discover, environment_at, shell_of
from sysperf.collect.torch.install import read_install
from sysperf.collect.torch.place import Place, copies_in
from sysperf.collect.torch.records import VERSION, Install
from sysperf.host import Host
from sysperf.model.record import Record, fact

if TYPE_CHECKING:  # programs are read elsewhere
    from sysperf.collect.process.records import Process

MAX_PROBED = 3
MAX_RUNNING = 16


class Torch(Record):
    """PyTorch installations, the shell's own first."""

    installs: Annotated[tuple[Install, ...], fact("installations found", VERSION)]
    environments_without: Annotated[int, fact("Python environments without torch", VERSION)] = 0


def collect(host: Host) -> Torch:
    """Find the installations. Raises Missing in a capture that holds no Python environment."""
    shell, environments, _ = discover(host)
    installs: dict[str, Install] = {}
    without = 0
    for environment in environments:
        copies = copies_in(host, environment)
        without += not copies
        for site in copies:
            if site not in installs:
                deep = host.deep and len(installs) < MAX_PROBED
                installs[site] = read_install(host, shell, Place(environment, site, copies, shell), deep=deep)
    known = _known_installs(host)
    known.clear()
    known.update(installs)
    return Torch(tuple(installs.values()), without)


def _known_installs(host: Host) -> dict[str, Install]:
    """The installations that were read, by their folders."""
    return host.once("installations of PyTorch", dict[str, Install])


def with_running(host: Host, torch: Torch, programs: Iterable[Process]) -> Torch:
    """The same with the installations that programs run from and that lie where nobody looks.

    A program in a container names a folder that may be another one here: its version tells. Each folder is read with the
    rights of the user whose program names it.
    """
    known = {"", *(install.prefix for install in torch.installs)}
    missing = {
        (program.torch.prefix, program.torch.version, program.user): program.pid
        for program in programs
        if program.torch.prefix not in known
    }
    read: list[tuple[Install | None, str | None]] = []
    for (prefix, version, _), pid in list(missing.items())[:MAX_RUNNING]:
        with host.as_owner_of(pid):
            read.append((install_at(host, prefix), version))
    more = {install.site_packages: install for install, version in read if install is not None and install.version == version}
    there = {install.site_packages for install in torch.installs}
    return Torch((*torch.installs, *(more[site] for site in more if site not in there)), torch.environments_without)


def install_at(host: Host, where: str) -> Install | None:
    """The installation at a prefix, or around a path in its site-packages; None when there is none.

    For the libraries that running processes map: what `collect` has read already is not read again.
    """
    known = _known_installs(host)
    known_install = next((install for site, install in known.items() if where.startswith(f"{site}/")), None)
    if known_install is None and (known_install := _read_at(host, where)) is not None:
        known[known_install.site_packages] = known_install
    return known_install


def _read_at(host: Host, where: str) -> Install | None:
    shell = shell_of(host)
    environment = environment_at(host, where, shell, active_prefix(host, shell))
    if environment is None:
        return None
    copies = copies_in(host, environment)
    site = next((folder for folder in environment.site_packages if f"{where}/".startswith(f"{folder}/")), copies[0] if copies else "")
    return read_install(host, shell, Place(environment, site, copies, shell)) if site in copies else None

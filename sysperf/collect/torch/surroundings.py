"""What lies around an installation: its file system, other copies, and the project with its lock file.

Reads   */site-packages/torch/version.py  requirements.txt and lock files of the project around it
"""

import re
from collections.abc import Iterator

from sysperf.collect.python import Shell
from sysperf.collect.readers.mounts import mount_of
from sysperf.collect.torch.build import version_file
from sysperf.collect.torch.place import Place
from sysperf.collect.torch.records import LOCKS, Copy, Install
from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.startup import lazy

VENV_NAMES = ("/.venv", "/venv", "/env", "/.env")
PROJECT_FILES = ("pyproject.toml", "requirements.txt", "pixi.toml")
_PINNED_TORCH = lazy(r"^torch[ \t]*(?:\[[^\]\n]{0,40}\])?[ \t]*===?[ \t]*[0-9]", re.MULTILINE)


def surroundings(host: Host, shell: Shell, place: Place) -> Install:
    """Prefix, file system, other copies and project of an installation."""
    mount = mount_of(host, place.site)
    project = _project(host, place.prefix)
    return Install(
        prefix=place.prefix,
        site_packages=place.site,
        manager="user" if place.is_users else place.environment.manager,
        duplicates=_duplicates(host, place),
        prefix_fstype=None if mount is None else neutral(mount.fstype, 40),
        jit_extensions=host.exists(f"{shell.home}/.cache/torch_extensions") if shell.home else None,
        project=project,
        lock_file=_lock_file(host, project),
        requirements_pinned=_requirements_pinned(host, project),
    )


def _duplicates(host: Host, place: Place) -> tuple[Copy, ...]:
    """The other copies, said once an interpreter: by the copy that is its own."""
    own = next((site for site in place.copies if not place.users or not site.startswith(f"{place.users}/")), None)
    others = [site for site in place.copies if site != place.site] if place.site == own else []
    return tuple(Copy(site, version_file(host, f"{site}/torch").get("__version__", "")) for site in others)


def _project(host: Host, prefix: str) -> str:
    """The folder that a venv or a pixi environment lies in, when it holds a project."""
    folder, pixi, _ = prefix.partition("/.pixi/envs/")
    if not pixi:
        folder = prefix.rpartition("/")[0] if prefix.endswith(VENV_NAMES) else ""
    return folder if folder and any(host.exists(f"{folder}/{name}") for name in PROJECT_FILES) else ""


def _lock_file(host: Host, project: str) -> str | None:
    if not project:
        return None
    candidates: Iterator[tuple[str, bool | None]] = ((f"{project}/{name}", host.exists(f"{project}/{name}")) for name in LOCKS)
    sure = True
    for path, there in candidates:
        if there:
            return path
        sure = sure and there is False
    return "" if sure else None


def _requirements_pinned(host: Host, project: str) -> bool | None:
    path = f"{project}/requirements.txt"
    if not project:
        return None
    if not (there := host.exists(path)):
        return there
    text = host.text(path)
    return None if text is None else _PINNED_TORCH.search(text) is not None

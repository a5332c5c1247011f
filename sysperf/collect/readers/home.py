"""The home folder of the user who asks, behind sudo too."""

import os

from sysperf.host import Host
from sysperf.procfs.numbers import whole


def home_of(host: Host) -> str:
    """The home folder of the user who asks, behind sudo too; empty when not known."""
    home = host.call("home", _home, str)
    return home if isinstance(home, str) and home.startswith("/") else ""


def owner_of_home(host: Host) -> int | None:
    """The number of the user who asks, behind sudo too."""
    return whole(host.call("home-user", _owner, str) or "")


def _owner() -> str:
    return os.environ.get("SUDO_UID", "0") if os.geteuid() == 0 else str(os.geteuid())


def _home() -> str:
    user = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    return os.path.expanduser(f"~{user}")

"""The home folder of the user who asks, behind sudo too."""

import os

from sysperf.host import Host


def home_of(host: Host) -> str:
    """The home folder of the user who asks, behind sudo too; empty when not known."""
    home = host.call("home", _home, str)
    return home if isinstance(home, str) and home.startswith("/") else ""


def _home() -> str:
    user = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    return os.path.expanduser(f"~{user}")

"""Where the agent listens, for those who start it and those who ask it."""

from __future__ import annotations

import os
from collections.abc import Mapping

SYSTEM_SOCKET = "/run/sysperf/agent.sock"


def default_socket(environ: Mapping[str, str] = os.environ) -> str:
    """Where the agent listens when nobody said otherwise: systemd's folder, the system's, or the user's."""
    runtime = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if runtime:
        return f"{runtime}/agent.sock"
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    return f"{environ.get('XDG_RUNTIME_DIR') or f'/run/user/{os.getuid()}'}/sysperf/agent.sock"


def find_socket(given: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """The socket to ask: the given one, else our own agent's, else the system's."""
    mine = given or default_socket(environ)
    return mine if given or os.path.exists(mine) or not os.path.exists(SYSTEM_SOCKET) else SYSTEM_SOCKET

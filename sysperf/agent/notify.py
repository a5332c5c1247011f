"""Telling systemd how the agent is doing.

Protocol  https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

USEC = 1_000_000


class Notifier:
    """Sends state to the service manager; does nothing where there is none, and never raises."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog(environ)
        """How often at least the manager wants to hear from us; 0 when it does not."""

    def send(self, *states: str) -> bool:
        """Send lines such as ``READY=1``; whether somebody took them."""
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
                sender.sendto("\n".join(states).encode(), self._address)
        except OSError:
            return False
        return True

    def ready(self, status: str) -> None:
        self.send("READY=1", f"MAINPID={os.getpid()}", f"STATUS={status}")

    def reloading(self) -> None:
        """Follow it by `ready`. Type=notify-reload needs the time with it."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def status(self, text: str) -> None:
        self.send(f"STATUS={text}")

    def watchdog(self) -> None:
        self.send("WATCHDOG=1")

    def stopping(self) -> None:
        self.send("STOPPING=1")


def _address(name: str) -> str | bytes:
    """A path, or an abstract name, which is written with a leading @."""
    if name.startswith("@"):
        return b"\0" + os.fsencode(name[1:])
    return name if name.startswith("/") else ""


def _watchdog(environ: Mapping[str, str]) -> float:
    """Half of what systemd allows, as it recommends; it may be meant for another process than us."""
    limit, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not limit.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(limit) / USEC / 2

"""The performance variables of the shell that started sysperf. They act on what is started from it next.

Reads   /proc/self/environ
"""

import os

from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs import environ
from sysperf.procfs.numbers import whole

ENVIRON = "/proc/self/environ"


def shell_variables(host: Host, prefixes: tuple[str, ...]) -> dict[str, str] | None:
    """The variables whose names begin so; None when they cannot be read, and behind sudo, which drops them."""
    text = host.text(ENVIRON, environ.MAX_BYTES)
    if text is None:
        return None
    if host.call("sudo", lambda: "SUDO_UID" in os.environ):
        host.refuse(ENVIRON, "sudo dropped the variables of the shell: run sysperf without it to see them")
        return None
    return {name: neutral(value, 2000) for name, value in environ.variables(text).items() if name.startswith(prefixes)}


def number_in(variables: dict[str, str] | None, name: str) -> int | None:
    """The number in a variable: 0 when it is not set, None when it is unknown or no plain number."""
    if variables is None:
        return None
    text = variables.get(name, "").strip()
    return whole(text) if text else 0

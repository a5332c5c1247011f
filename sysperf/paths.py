"""The folders, files and sockets of sysperf itself: the system's, a service's, a user's.

XDG      https://specifications.freedesktop.org/basedir-spec/latest/
systemd  https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#RuntimeDirectory=
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from sysperf.ownership import stranger

SYSTEM_CONFIG = "/etc/sysperf"
PROJECT = ".sysperf.toml"
"""The configuration of the current folder."""
SYSTEM_STATE = "/var/lib/sysperf"
"""Root's journal of changes."""
SYSTEM_RUNTIME = "/run/sysperf"
AGENT_SOCKET = f"{SYSTEM_RUNTIME}/agent.sock"
HELPER_SOCKET = f"{SYSTEM_RUNTIME}/helper.sock"

_SUDO_FINDS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where sudo looks for programs, whatever the user's PATH is."""
_Environment = Mapping[str, str]


def shipped(folder: str) -> str:
    """Return where a folder lies that comes with sysperf (``rules``, ``docs``): in a wheel inside the package, in a checkout beside it."""
    package = os.path.dirname(os.path.abspath(__file__))
    inside = f"{package}/{folder}"
    return inside if os.path.isdir(inside) else f"{os.path.dirname(package)}/{folder}"


def pasteable(text: str, called: str = "", found: Iterable[str] = _SUDO_FINDS) -> str:
    """The text with each ``sudo sysperf`` by its path where sudo would not find it, as in a user's environment.

    Root, who has no sudo in many a container, has its commands without.
    """
    if "sudo " in text and os.geteuid() == 0 and not any(os.access(f"{path}/sudo", os.X_OK) for path in os.get_exec_path()):
        import re  # noqa: PLC0415 - seldom needed

        return re.sub(r"(^|  |[`|;&:] ?)sudo (?=\S)", r"\1", text, flags=re.MULTILINE)
    called = called or sys.argv[0]
    if (
        "sudo sysperf" not in text
        or os.path.basename(called) != "sysperf"
        or any(os.access(f"{folder}/sysperf", os.X_OK) for folder in found)
    ):
        return text
    import shlex  # noqa: PLC0415 - seldom needed

    return text.replace("sudo sysperf", f"sudo {shlex.quote(os.path.abspath(called))}")


def config_folder(environ: _Environment = os.environ) -> str:
    """Return where this user's configuration lies."""
    return f"{_xdg(environ, 'XDG_CONFIG_HOME', '.config')}/sysperf"


def config_files(environ: _Environment = os.environ) -> tuple[str, ...]:
    """The configuration files in the order in which they are read."""
    return f"{SYSTEM_CONFIG}/config.toml", f"{config_folder(environ)}/config.toml", PROJECT


def rule_folders(environ: _Environment = os.environ) -> tuple[str, ...]:
    """Return where rules of this machine and this user lie."""
    return f"{SYSTEM_CONFIG}/rules.d", f"{config_folder(environ)}/rules.d"


def cache_folder(environ: _Environment = os.environ) -> str:
    """Return where files lie that can be made again: a service's own folder, else the user's."""
    service = _of_service(environ, "CACHE_DIRECTORY")
    return f"{service or _xdg(environ, 'XDG_CACHE_HOME', '.cache')}/sysperf"


def user_state_folder(environ: _Environment = os.environ) -> str:
    """Return where this user's journal of changes and history lie."""
    return f"{_xdg(environ, 'XDG_STATE_HOME', '.local/state')}/sysperf"


def service_state_folder(environ: _Environment = os.environ) -> str:
    """The state folder that systemd made for this service; "" when it made none."""
    return _of_service(environ, "STATE_DIRECTORY")


def state_folder(environ: _Environment = os.environ) -> str:
    """Return where the journal of changes lies: in the service's folder, root's, or the user's own."""
    return service_state_folder(environ) or (SYSTEM_STATE if os.geteuid() == 0 else user_state_folder(environ))


def data_home(environ: _Environment = os.environ) -> str:
    """The folder for data of all of a user's programs."""
    return _xdg(environ, "XDG_DATA_HOME", ".local/share")


def runtime_home(environ: _Environment = os.environ) -> str:
    """The folder for sockets of all of a user's programs; "" when the user has none, or only another user's."""
    folder = environ.get("XDG_RUNTIME_DIR", "")
    return folder if folder.startswith("/") and stranger(folder) is None else ""


def temporary_home(environ: _Environment = os.environ) -> str:
    """The folder for temporary files: TMPDIR, unless another user could exchange what lies in it."""
    folder = environ.get("TMPDIR", "")
    return folder if folder.startswith("/") and stranger(folder) is None else "/tmp"  # noqa: S108 - sticky, and the names are made by mkdtemp


def default_socket(environ: _Environment = os.environ) -> str:
    """Return where the agent listens unless told otherwise: in the service's folder, the system's, or the user's."""
    if service := _of_service(environ, "RUNTIME_DIRECTORY"):
        return f"{service}/agent.sock"
    if os.geteuid() == 0:
        return AGENT_SOCKET
    return f"{runtime_home(environ) or f'/run/user/{os.getuid()}'}/sysperf/agent.sock"


def find_socket(given: str = "", environ: _Environment = os.environ) -> str:
    """The agent's socket to ask: the given one, else this user's, else the system's."""
    own = given or default_socket(environ)
    return own if given or os.path.exists(own) or not os.path.exists(AGENT_SOCKET) else AGENT_SOCKET


def _xdg(environ: _Environment, variable: str, below_home: str) -> str:
    """An XDG base folder; the specification has relative paths ignored.

    What `sudo` has kept of another user's is ignored, too: he may put a link in its place, along which root would write.
    """
    folder = environ.get(variable, "")
    if folder.startswith("/") and stranger(folder) is None:
        return folder
    home = environ.get("HOME", "")
    own = home.startswith("/") and stranger(f"{home}/{below_home}") is None
    return f"{home if own else _account_home()}/{below_home}"


def _account_home() -> str:
    """Return this user's home by its account."""
    import pwd  # noqa: PLC0415 - most users have the variable HOME

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def _of_service(environ: _Environment, variable: str) -> str:
    return environ.get(variable, "").partition(":")[0]

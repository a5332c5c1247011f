"""The interpreter behind a pyenv shim: a script that stands for the version which the shell, the folder or the user chose.

pyenv  https://github.com/pyenv/pyenv#understanding-python-version-selection
"""

import os
from collections.abc import Iterator, Mapping

from sysperf.host import Host
from sysperf.startup import lazy

SHIMS = "/shims"
SYSTEM = "system"
MAX_PARENTS = 64
MAX_PATH_FOLDERS = 64
MAX_VERSION_BYTES = 4096
_IN_VERSION = lazy(r"\w[\w.+-]{0,80}/envs/\w[\w.+-]{0,80}")
"""An environment of pyenv-virtualenv: 3.12.1/envs/NAME."""


def resolve(host: Host, interpreter: str, env: Mapping[str, str], cwd: str) -> str:
    """The file that runs in the end; `interpreter` itself when it is no shim, or what it stands for is not there."""
    folder, name = os.path.split(interpreter)
    if not folder.endswith(SHIMS):
        return interpreter
    root = env.get("PYENV_ROOT") or folder.removesuffix(SHIMS)
    for version in versions(host, root, env, cwd):
        path = f"{root}/versions/{version}/bin/{name}"
        if version == SYSTEM:
            path = _behind(host, folder, name, env)
        if path and host.exists(path):
            return path
    return interpreter


def versions(host: Host, root: str, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    """The chosen versions, in the order in which pyenv looks: the first place that names any decides, and where none does, `system`."""
    if env.get("PYENV_VERSION"):
        text: str | None = env["PYENV_VERSION"].replace(":", " ")
    else:
        files = (*(f"{folder}/.python-version" for folder in upwards(env.get("PYENV_DIR") or cwd)), f"{root}/version")
        text = next((text for file in files if (text := _without_comments(host.text(file, MAX_VERSION_BYTES)))), None)
    for word in (text or SYSTEM).split():
        if "/" not in word or _IN_VERSION.fullmatch(word):
            yield word
            yield from _newest(host, root, word.removeprefix("python-"))


def _without_comments(text: str | None) -> str:
    return "\n".join(line.partition("#")[0] for line in (text or "").split("\n")).strip()


def _behind(host: Host, shims: str, name: str, env: Mapping[str, str]) -> str:
    """The next file of that name on PATH: what `system` stands for."""
    folders = [
        folder for folder in env.get("PATH", "").split(":")[:MAX_PATH_FOLDERS] if folder.startswith("/") and folder.rstrip("/") != shims
    ]
    return next((f"{folder.rstrip('/')}/{name}" for folder in folders if host.exists(f"{folder.rstrip('/')}/{name}")), "")


def _newest(host: Host, root: str, prefix: str) -> Iterator[str]:
    """``3.12`` and ``python-3.12`` stand for the newest 3.12.x."""
    if host.exists(f"{root}/versions/{prefix}"):
        yield prefix
    fitting = [name for name in host.names(f"{root}/versions") or () if name.startswith(f"{prefix}.")]
    yield from sorted(fitting, key=lambda name: [int(part) if part.isdecimal() else -1 for part in name.split(".")], reverse=True)


def upwards(folder: str) -> Iterator[str]:
    """A folder and those above it, the nearest first."""
    for _ in range(MAX_PARENTS):
        yield folder.rstrip("/")
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)

"""The interpreter behind a pyenv shim: a script that stands for the version which the shell, the folder or the user chose.

pyenv  https://github.com/pyenv/pyenv#understanding-python-version-selection
"""

import os
from collections.abc import Iterator, Mapping

from sysperf.host import Host

SHIMS = "/shims"
SYSTEM = "system"
MAX_PARENTS = 64
MAX_VERSION_BYTES = 4096


def resolve(host: Host, interpreter: str, env: Mapping[str, str], cwd: str) -> str:
    """The file that runs in the end; `interpreter` itself when it is no shim, or what it stands for is not there."""
    folder, name = os.path.split(interpreter)
    if not folder.endswith(SHIMS):
        return interpreter
    root = env.get("PYENV_ROOT") or folder.removesuffix(SHIMS)
    for version in _versions(host, root, env, cwd):
        path = f"{root}/versions/{version}/bin/{name}"
        if host.exists(path):
            return path
    return interpreter


def _versions(host: Host, root: str, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    """The chosen versions, in the order in which pyenv looks: the first place that names any decides."""
    if env.get("PYENV_VERSION"):
        text: str | None = env["PYENV_VERSION"].replace(":", " ")
    else:
        files = (*(f"{folder}/.python-version" for folder in _upwards(cwd)), f"{root}/version")
        text = next((text for file in files if (text := host.text(file, MAX_VERSION_BYTES))), None)
    for word in (text or "").split():
        if "/" not in word and word != SYSTEM:
            yield word
            yield from _newest(host, root, word)


def _newest(host: Host, root: str, prefix: str) -> Iterator[str]:
    """``3.12`` stands for the newest 3.12.x."""
    fitting = [name for name in host.names(f"{root}/versions") or () if name.startswith(f"{prefix}.")]
    yield from sorted(fitting, key=lambda name: [int(part) if part.isdecimal() else -1 for part in name.split(".")], reverse=True)


def _upwards(folder: str) -> Iterator[str]:
    for _ in range(MAX_PARENTS):
        yield folder.rstrip("/")
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)

"""A Jupyter kernel whose command begins with `sysperf wrap`.

Format  https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs
Paths   https://docs.jupyter.org/en/latest/use/jupyter-directories.html
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from sysperf import paths
from sysperf.host import files
from sysperf.host.commands import sysperf_command
from sysperf.host.plain_files import read_orders
from sysperf.model.errors import UsageError
from sysperf.model.record import Json, JsonObject
from sysperf.startup import lazy

NAME = lazy(r"[A-Za-z0-9._-]{1,60}")
SYSTEM = ("/usr/local/share/jupyter", "/usr/share/jupyter")
MARK = "sysperf"
MAX_BYTES = 1 << 20


def user_folder(env: Mapping[str, str]) -> str:
    """Return where a user's kernels lie."""
    return f"{env.get('JUPYTER_DATA_DIR') or f'{paths.data_home(env)}/jupyter'}/kernels"


def folders(env: Mapping[str, str]) -> list[str]:
    """Return where kernels are looked for, in Jupyter's order."""
    extra = [path for path in env.get("JUPYTER_PATH", "").split(":") if path]
    prefixes = [f"{prefix}/share/jupyter" for prefix in (env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"), sys.prefix) if prefix]
    return list(
        dict.fromkeys([*(f"{path}/kernels" for path in extra), user_folder(env), *(f"{path}/kernels" for path in (*prefixes, *SYSTEM))])
    )


def find(name: str, env: Mapping[str, str]) -> JsonObject:
    """An installed kernel by its name. Raises UsageError."""
    for folder in folders(env):
        path = f"{folder}/{name}/kernel.json"
        if os.path.exists(path):
            return _read(path)
    raise UsageError(f"no Jupyter kernel `{name}`", "`jupyter kernelspec list` shows those that are installed")


def _read(path: str) -> JsonObject:
    try:
        spec = json.loads(read_orders(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {why}", "install that kernel again, or name another with --from") from None
    argv = spec.get("argv") if isinstance(spec, dict) else None
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise UsageError(
            f"{path}: no kernel specification: its argv is no list of words", "install that kernel again, or name another with --from"
        )
    return dict(spec)


def of_python(python: str, name: str) -> JsonObject:
    """The specification that ipykernel would install for an interpreter."""
    return {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"{name} (sysperf wrap)",
        "language": "python",
        "metadata": {"debugger": True},
    }


def wrapped(spec: Mapping[str, Json], options: Sequence[str]) -> JsonObject:
    """The same kernel, started through `sysperf wrap`; wrapped once, however often this is asked."""
    argv = list(spec["argv"])
    if spec.get("metadata", {}).get(MARK) and "--" in argv:
        argv = argv[argv.index("--") + 1 :]
    metadata = {**spec.get("metadata", {}), MARK: True}
    return {**spec, "argv": [*command(), "wrap", *options, "--", *argv], "metadata": metadata}


def command() -> list[str]:
    """How to start this sysperf from anywhere."""
    script = os.path.join(os.path.dirname(sys.executable), "sysperf")
    installed = script if os.path.exists(script) else shutil.which("sysperf")
    return [installed] if installed else [*sysperf_command()]


def install(name: str, spec: Mapping[str, Json], folder: str) -> str:
    """Write it; the file's path. A kernel of that name that is not ours is left alone: UsageError."""
    if not NAME.fullmatch(name) or name.strip(".") == "":
        raise UsageError(f"`{name[:60]}` is no name of a kernel", "letters, digits, dots, dashes and underscores")
    path = f"{folder}/{name}/kernel.json"
    if os.path.exists(path) and not _read(path).get("metadata", {}).get(MARK):
        raise UsageError(f"{path} is another kernel", "choose another name")
    try:
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        files.replace(path, f"{json.dumps(spec, indent=1)}\n".encode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name a folder that can be written with --prefix") from None
    return path


def remove(name: str, folder: str) -> str:
    """Remove a kernel that we installed. Raises UsageError."""
    path = f"{folder}/{name}/kernel.json"
    if not NAME.fullmatch(name) or not os.path.exists(path):
        raise UsageError(f"{path}: no such kernel", "`jupyter kernelspec list` shows those that are installed")
    if not _read(path).get("metadata", {}).get(MARK):
        raise UsageError(f"{path} is not one of ours", f"jupyter kernelspec remove {name}")
    os.remove(path)
    if not os.listdir(f"{folder}/{name}"):
        os.rmdir(f"{folder}/{name}")
    return path

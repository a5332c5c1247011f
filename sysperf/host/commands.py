"""The commands that sysperf may run: fixed arguments, fixed folders, a time limit, no shell."""

from __future__ import annotations

import os
import subprocess
import sys

FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
SECONDS = 10.0
MAX_OUTPUT_BYTES = 8 << 20

ALLOWED: dict[str, tuple[str, ...]] = {
    "cpuinfo": (sys.executable, "-m", "cpuinfo", "--json"),
    "dmesg": ("dmesg", "--kernel", "--nopager", "--time-format", "iso", "--level", "emerg,alert,crit,err,warn,notice,info"),
    "dmidecode-memory": ("dmidecode", "-t", "17"),
}


def run(name: str) -> bytes:
    """The standard output of an allowed command. Raises OSError when it is absent, fails or takes too long."""
    argv = ALLOWED[name]
    program = argv[0] if argv[0].startswith("/") else _find(argv[0])
    try:
        done = subprocess.run(
            (program, *argv[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            env={"PATH": ":".join(FOLDERS), "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"`{argv[0]}` took longer than {SECONDS:.0f} s") from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(f"`{argv[0]}` failed: {reason[-1][:200] if reason else f'exit {done.returncode}'}")
    if len(done.stdout) > MAX_OUTPUT_BYTES:
        raise OSError(f"`{argv[0]}` printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
    return done.stdout


def _find(program: str) -> str:
    for folder in FOLDERS:
        path = f"{folder}/{program}"
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"`{program}` is not installed")


PROBE_SECONDS = 60.0


def probe(python: str, script: str) -> bytes:
    """The standard output of `script` in the user's own interpreter, isolated from the current folder.

    When root asks, the interpreter runs as the user who owns it: root executes nobody else's files.
    """
    owner = os.stat(python)
    as_owner = {}
    if os.geteuid() == 0 and owner.st_uid != 0:
        as_owner = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    try:
        done = subprocess.run(
            (python, "-I", "-c", script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PROBE_SECONDS,
            env={"PATH": ":".join(FOLDERS), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
            cwd="/",
            check=False,
            **as_owner,  # type: ignore[call-overload]  # the overloads of run() do not take a dict
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"the probe took longer than {PROBE_SECONDS:.0f} s") from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(f"the probe failed: {reason[-1][:200] if reason else f'exit {done.returncode}'}")
    return done.stdout[:MAX_OUTPUT_BYTES]

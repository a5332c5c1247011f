"""Files that sysperf writes for a user: reports, waivers, kernels. Settings of the machine are written by `fix` alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat


def replace(path: str, content: bytes) -> None:
    """Write a file in one step, so that nobody sees half of it. What is no plain file (/dev/null, a pipe) is written to as it is.

    A file of ours keeps its mode. Raises OSError and leaves nothing behind.
    """
    target = _led_to(path)
    before = os.lstat(target) if os.path.lexists(target) else None
    plain = before is None or stat.S_ISREG(before.st_mode)
    written = f"{os.path.dirname(target)}/.sysperf-{os.urandom(8).hex()}" if plain else target
    flags = os.O_CREAT | (os.O_EXCL if plain else os.O_NOFOLLOW)  # O_CREAT has the kernel refuse another user's pipe in /tmp
    mode = stat.S_IMODE(before.st_mode) if plain and before and before.st_uid == os.geteuid() else 0o666
    try:
        with open(os.open(written, os.O_WRONLY | os.O_CLOEXEC | flags, mode), "wb") as file:
            file.write(content)
        if plain:
            os.replace(written, target)
    except OSError:
        if plain:
            with contextlib.suppress(OSError):
                os.unlink(written)
        raise


def _led_to(path: str) -> str:
    """What a link leads to: it stays a link. Another user's is not followed, or `sudo` would write where he likes."""
    folder, name = os.path.split(os.path.abspath(path))
    place = f"{os.path.realpath(folder)}/{name}"
    if not os.path.islink(place):
        return place
    if os.lstat(place).st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EACCES, "a link that another user made is not followed")
    return os.path.realpath(place)

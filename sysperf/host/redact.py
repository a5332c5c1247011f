"""What other processes say is kept only as far as it explains performance. Secrets are removed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sysperf.host.extracts import extract_for
from sysperf.host.secret_words import names_secret, without_keys, without_literals, without_logins
from sysperf.host.variables import environment, keeps
from sysperf.host.variables import shown as variable
from sysperf.model.text import HIDDEN
from sysperf.startup import lazy

__all__ = ("HIDDEN", "arguments", "clean", "command", "environment", "keeps", "mounts", "own_command", "source_line", "text", "variable")

_MOUNT_OPTION = lazy(r"(?<![\w.-])([\w.-]+)=(?:[^\s,]|,,)+")
_OF_KERNEL = ("/sys/", "/proc/sys/")
MAX_KERNEL_LINE_BYTES = 32_768
MAX_SOURCE_CHARS = 2_000
"""So much of a line of source is looked at, and shown."""


def clean(path: str, raw: bytes) -> bytes:
    """What may be kept of a file."""
    if path == "/proc/cmdline":
        return without_keys(raw[:MAX_KERNEL_LINE_BYTES].decode("utf-8", "replace")).encode()  # root wrote it
    name = path[path.rfind("/") + 1 :]
    if cleaner := _CLEANERS.get(name):
        return cleaner(raw)
    extract = extract_for(name) if not path.startswith(_OF_KERNEL) else None
    return extract(raw.decode("utf-8", "replace")).encode() if extract else raw


def arguments(raw: bytes) -> bytes:
    """A NUL-separated command line, of which only what is known to be harmless is left."""
    from sysperf.host import command_lines  # noqa: PLC0415 - most starts of a program read none

    return command_lines.arguments(raw)


def own_command(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that the user gave, as results keep them: without what is named as a secret, and what has the shape of one.

    Unlike `command`, which hides of others' programs all that is not known to be harmless.
    """
    shown, follows = [], False
    for word in argv:
        shown.append(HIDDEN if follows else without_keys(word))
        follows = word.startswith("-") and "=" not in word and names_secret(word.lstrip("-"))
    return tuple(shown)


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command, as reports may show them."""
    from sysperf.host import command_lines  # noqa: PLC0415 - as above

    return tuple(command_lines.shown_words([*argv]))


def mounts(raw: bytes) -> bytes:
    """A mount table without logins and without options that are secrets; its long paths stay."""
    text = without_logins(raw.decode("utf-8", "replace"))
    return _MOUNT_OPTION.sub(lambda option: f"{option[1]}={HIDDEN}" if names_secret(option[1]) else option[0], text).encode()


def text(value: str) -> str:
    """Any text without logins in URLs, values that are named as secrets, and words shaped like keys."""
    return without_keys(value)


def source_line(line: str) -> str:
    """A line of somebody's program as reports show it: its literals may be passwords."""
    return without_literals(line[:MAX_SOURCE_CHARS].strip())


_CLEANERS: dict[str, Callable[[bytes], bytes]] = {
    "environ": environment,
    "cmdline": arguments,
    "mounts": mounts,
    "mountinfo": mounts,
    "mountstats": mounts,
    "fstab": mounts,
    "mtab": mounts,
}

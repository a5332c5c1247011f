"""Making text of foreign origin harmless, and numbers readable."""

from __future__ import annotations

import contextlib

from sysperf.startup import lazy

HIDDEN = "<hidden>"
"""What stands where a secret may have been. In a shell it would read one file and overwrite another."""
_PLAIN = lazy(r"[ -~]*")
_ACTIVE = lazy(r"[\x01-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
_SIZE = lazy(r"\s*([0-9]{1,18})\s*([kKmMgGtTpP]?)i?[bB]?\s*")
_NEXT_UNIT = 1023.95  # from here on, one decimal prints 1024.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_NUMBER = lazy(r"([0-9]{1,18})")


def neutral(text: str, limit: int = 400) -> str:
    """One line of at most `limit` characters, none of which a terminal, a log or a web page acts on.

    Escapes, newlines, bidirectional overrides and lone surrogates become ``\\x1b``-like text.
    Markup languages are escaped by the face that uses them.
    """
    line = text[: limit + 1]
    if not _PLAIN.fullmatch(line):
        line = "".join(_visible(char) for char in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def escaped(text: str) -> str:
    """`text` with control and direction characters spelled out, except newline, tab and NUL, which separate fields."""
    return text if text.isascii() and text.isprintable() else _ACTIVE.sub(lambda match: _spelled(match[0]), text)


def quoted(word: str) -> str:
    """A word as a shell reads it, in quotes where it needs them."""
    import shlex  # noqa: PLC0415 - 0.7 ms, which a launch without findings need not pay

    return shlex.quote(word)


def without_hidden(command: str) -> str:
    """A command line for a shell: as it is, or up to the first word of which something is hidden, and ``…`` for all that follows."""
    if HIDDEN not in command:
        return command
    import shlex  # noqa: PLC0415 - 2 ms; few commands have hidden words

    try:
        words = shlex.split(command)
    except ValueError:
        return "…"
    known = words[: next((place for place, word in enumerate(words) if HIDDEN in word), len(words))]
    return " ".join((shlex.join(known), "…")).lstrip()


def for_shell(command: str) -> str:
    """A program's command line as it can be pasted: up to the first word that is hidden, cut off or not quoted, and ``…`` for what follows.

    A program may have written any text over its command line, ``; rm -rf /`` too.
    """
    import shlex  # noqa: PLC0415 - as above

    visible = without_hidden(command)
    whole = visible.removesuffix("…")
    for quote in ("", "'"):
        with contextlib.suppress(ValueError):
            words = shlex.split(whole + quote)
            break
    else:
        return "…"
    complete, cut = whole == visible and not quote, not whole.endswith(" ")
    plain = next((place for place, word in enumerate(words) if not whole.startswith(shlex.join(words[: place + 1]))), len(words))
    known = words[: min(plain, len(words) - (cut and not complete))]
    return shlex.join(known) if complete and len(known) == len(words) else f"{shlex.join(known)} …".lstrip()


def _visible(char: str) -> str:
    import unicodedata  # noqa: PLC0415 - 0.3 ms; most text is ASCII

    return _spelled(char) if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" else char


def _spelled(char: str) -> str:
    return f"\\x{ord(char):02x}" if char < "\u0100" else char.encode("unicode_escape").decode()


def size(count: float) -> str:
    """A number of bytes for people: ``64 MiB``, ``381.5 MiB``, ``1.5 TiB``."""
    unit = 0
    while abs(count) >= _NEXT_UNIT and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{f'{count:.1f}'.removesuffix('.0')} {_UNITS[unit]}"


def parse_size(text: str) -> int:
    """Bytes in a kernel text such as ``32768K``, ``131072 kB`` or ``64M``; units are powers of 1024.

    Raises ValueError when it is no size.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(f"not a size: {text[:40]!r}")
    return int(match[1]) << 10 * " KMGTP".index(match[2].upper() or " ")


def natural(name: str) -> list[str | int]:
    """A sort key under which ``node10`` comes after ``node9``."""
    parts: list[str | int] = list(_NUMBER.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts

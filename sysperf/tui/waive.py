"""Accepting a finding from the dashboard: an entry in `.sysperf.toml`, added behind what is there."""

from __future__ import annotations

import json
from pathlib import Path

from sysperf.host import files
from sysperf.model.errors import ConfigError
from sysperf.model.outcome import Outcome

FILE = Path(".sysperf.toml")


def entry(outcome: Outcome, reason: str) -> str:
    """The waiver as TOML. A subject with a process number would never match again: then all subjects are meant."""
    lines = ["[[waive]]", f"rule = {_quoted(outcome.rule)}", f"reason = {_quoted(reason)}"]
    if outcome.subject and outcome.scope != "process":
        lines.append(f"subject = {_quoted(_literal(outcome.subject))}")
    return "\n".join(lines) + "\n"


def write(outcome: Outcome, reason: str, path: Path = FILE) -> str:
    """Add the waiver; returns the file. Raises ConfigError, with the file as it was."""
    import tomli  # noqa: PLC0415 - only who waives

    try:
        before = path.read_text() if path.exists() else ""
        after = before + ("" if before.endswith("\n") or not before else "\n") + ("\n" if before else "") + entry(outcome, reason)
        tomli.loads(after)
        files.replace(str(path), after.encode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", "write the waiver by hand: docs/configuration.md") from None
    except (tomli.TOMLDecodeError, UnicodeError) as error:
        raise ConfigError(f"{path}: {error}", "write the waiver by hand: docs/configuration.md") from None
    return str(path)


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are JSON's; DEL is one of its own."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")


def _literal(subject: str) -> str:
    """A pattern that matches this subject only."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in subject)

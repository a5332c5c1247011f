"""What is kept of files that users and packages wrote: names and versions. Nothing else of them is kept.

Such files hold more than what is asked of them: index passwords in requirements.txt, tokens in conda's history, and
whatever else a user has put where a file of that name belongs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable

from sysperf.host.secret_words import names_secret, without_keys
from sysperf.startup import lazy

MAX_KEPT_LINES = 20_000
_VERSION = lazy(r"\s*([vV]?[0-9]{1,9}(?:[._+!-]?[0-9A-Za-z]{1,40}){0,16})\s*")
_ASSIGNMENT = lazy(
    r"^(__version__|cuda|hip|xpu|debug|git_version)\b[^=\n]{0,60}=[ \t]*"
    r"(None|True|False|(['\"])(?:[vV]?[0-9]{1,9}(?:[._+!-]?[0-9A-Za-z]{1,40}){0,16}|[0-9a-f]{7,64}|[Uu]nknown)?\3)",
    re.MULTILINE,
)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_CLAUSE = r"(?:===?|~=|!=|<=?|>=?)[ \t]*[0-9A-Za-z.+!_*-]{1,60}"
_SPECIFIED = rf"{_NAME}[ \t]*(?:\[[A-Za-z0-9._, -]{{0,200}}\])?[ \t]*\(?[ \t]*(?:{_CLAUSE}(?:[ \t]*,[ \t]*{_CLAUSE}){{0,16}})?[ \t]*\)?"
_REQUIREMENT = lazy(rf"^[ \t]*({_SPECIFIED})[ \t]*(?=$|[;#\\\r]|[ \t]--hash)", re.MULTILINE)
_MARKER = r"(?:[ \t]*;[ \t]*[a-z_ ()<>=!~]{0,80}(?:(?:\"[A-Za-z0-9._+* -]{0,60}\"|'[A-Za-z0-9._+* -]{0,60}')[a-z_ ()<>=!~]{0,80}){0,16})?"
_HEADER = lazy(
    rf"^((?:Name|Version|Metadata-Version):[ \t]*[A-Za-z0-9._+!-]{{1,100}}|Requires-Dist:[ \t]*{_SPECIFIED}{_MARKER})[ \t\r]*$",
    re.MULTILINE,
)
_FROM_CHANNEL = lazy(r"^\+(?:\S{0,300}/)?([A-Za-z0-9_.-]{1,80})/([a-z0-9-]{1,30}::[A-Za-z0-9_.!+-]{1,200})$", re.MULTILINE)
_TOKEN_CHANNEL = lazy(r"^\+(?:\S{0,300}/)?t/[^/\s]{1,200}/(?=[a-z0-9-]{1,30}::)", re.MULTILINE)
_VENV = lazy(
    r"^[ \t]*((?:home|include-system-site-packages|version|version_info|implementation|uv|base-(?:prefix|exec-prefix|executable))"
    r"[ \t]*=[^\n]{0,1000})$",
    re.IGNORECASE | re.MULTILINE,
)
_INSTALLER = lazy(r"\s*([A-Za-z0-9_.-]{1,40})\s*")
_SOURCE = lazy(r"['\"]torch['\"]: ?['\"]/[^'\"\n]{1,1000}['\"]")
_FOLDER = lazy(r"/[^\0\n]{0,1000}")
_ENVIRONMENT_FOLDER = lazy(r"^/[^\0\n]{0,1000}$", re.MULTILINE)
_NCCL_SETTING = lazy(r"^[ \t]*(NCCL_[A-Z0-9_]{1,80})[ \t]*=[ \t]*([^\n]{0,1000})$", re.MULTILINE)

Extract = Callable[[str], str]


def extract_for(name: str) -> Extract | None:
    """How a file of this name is reduced to what rules need of it; None for a file that is kept as it is."""
    return _EXTRACTS.get(name) or (_editable if name.startswith("__editable__") or name.endswith(".egg-link") else None)


def version(text: str) -> str:
    """A version and nothing else; "" when the text is none."""
    match = _VERSION.fullmatch(text)
    return match[1] if match else ""


def _assignments(text: str) -> str:
    return "".join(f"{match[1]} = {match[2]}\n" for match in _ASSIGNMENT.finditer(text))


def _requirements(text: str) -> str:
    return _lines(match[1].rstrip() for match in _REQUIREMENT.finditer(text))


def _metadata(text: str) -> str:
    return _lines(match[1] for match in _HEADER.finditer(text.partition("\n\n")[0]))


def _history(text: str) -> str:
    """conda-meta/history: installed packages and the last word of their channels. Before it may stand a token (``/t/TOKEN/``)."""
    text = _TOKEN_CHANNEL.sub("", text)
    return _lines(f"+{match[1]}/{match[2]}" for match in _FROM_CHANNEL.finditer(text))


def _venv(text: str) -> str:
    return _lines(match[1] for match in _VENV.finditer(text))


def _installer(text: str) -> str:
    match = _INSTALLER.fullmatch(text)
    return match[1] if match else ""


def _editable(text: str) -> str:
    """Return where the sources of an editable torch lie: the first line of a path file, or the entry of a finder."""
    first = text.partition("\n")[0].strip()
    return first if _FOLDER.fullmatch(first) else _lines(match[0] for match in _SOURCE.finditer(text))


def _environments(text: str) -> str:
    """~/.conda/environments.txt: one folder a line."""
    return _lines(folder[0].rstrip() for folder in _ENVIRONMENT_FOLDER.finditer(text))


def _nccl_settings(text: str) -> str:
    """nccl.conf: NCCL's own variables. Comments and other lines are anybody's."""
    settings = (setting.groups() for setting in _NCCL_SETTING.finditer(text))
    return _lines(f"{name}={without_keys(value.strip())}" for name, value in settings if not names_secret(name))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in itertools.islice(lines, MAX_KEPT_LINES))


_EXTRACTS: dict[str, Extract] = {
    "version.py": _assignments,
    "build-version": version,
    "requirements.txt": _requirements,
    "METADATA": _metadata,
    "INSTALLER": _installer,
    "history": _history,
    "pyvenv.cfg": _venv,
    "environments.txt": _environments,
    "nccl.conf": _nccl_settings,
    ".nccl.conf": _nccl_settings,
}

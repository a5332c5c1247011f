"""torch/version.py, which every build of PyTorch carries. Read by pattern and never executed: the file is another user's.

Source  https://github.com/pytorch/pytorch/blob/main/tools/generate_torch_version.py
"""

from __future__ import annotations

import re

from sysperf.startup import lazy

MAX_BYTES = 64 << 10
_ASSIGNED = lazy(
    r"^(__version__|cuda|hip|xpu|debug|git_version)\b[^=\n]{0,60}="
    r"[ \t]*(?:(None|True|False)|'([^'\n]{0,200})'|\"([^\"\n]{0,200})\")",
    re.MULTILINE,
)
_VERSION = lazy(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}[0-9A-Za-z.+_-]{0,60}")


def assignments(text: str) -> dict[str, str]:
    """What it says of the build, by name: None is empty, truth values are ``True`` and ``False``."""
    return {name: "" if word == "None" else word or single or double for name, word, single, double in _ASSIGNED.findall(text)}


def version(text: str) -> str | None:
    """The version in it, such as ``2.13.0+cpu``; None when there is none, or what stands there is no version."""
    return checked(assignments(text).get("__version__", ""))


def checked(text: str) -> str | None:
    """A text when it is a version, else None: whoever may choose the file must not choose what we show of it."""
    return text if _VERSION.fullmatch(text) else None

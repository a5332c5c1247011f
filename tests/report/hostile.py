"""Texts as an attacker, a broken driver or a foreign script would choose them."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

from tests.report.reports import HOSTILE

_PIECES = (
    *HOSTILE.split(),
    "<script>alert(1)</script>",
    "</details></section>",
    "]]>",
    "-->",
    "::error::x",
    "##[error]x",
    "%0A",
    "\n",
    "\r\n",
    "\n\n",
    "```",
    "~~~",
    "|",
    "\\",
    '"',
    "'",
    "{0}",
    "[a](b)",
    "]( ",
    "<https://example.invalid>",
    "www.example.invalid",
    "- a",
    "1. a",
    "    code",
    "\ud800",
    "\udfff",
    "\u202e",
    "漢字",
    "e\u0301",
    "# h",
    "=",
    "$x$",
    ":tada:",
)

texts = st.lists(st.sampled_from(_PIECES) | st.text(st.characters(exclude_categories=()), max_size=20), min_size=1, max_size=8).map("".join)
"""Any characters, lone surrogates too, mixed with what has a meaning in one of our formats."""


def harmless(text: str) -> bool:
    """Whether a terminal only prints it: lines without control, direction, format or surrogate characters."""
    return not any(unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" for char in text.replace("\n", ""))

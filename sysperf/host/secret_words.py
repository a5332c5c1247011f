"""What gives a secret away: its name (``API_KEY``), its place (a login in a URL, after ``Bearer``), its shape (``hf_…``, a JWT).

Where text is free (variables, mount tables, the kernel's command line) these signs hide words; in doubt we hide.
"""

from __future__ import annotations

import re

from sysperf.model.text import HIDDEN
from sysperf.startup import lazy

# What a secret is called
_SECRET_ANYWHERE = lazy(r"(?i)secret|passw|passphrase|credential|cookie|bearer|(?:api|access|private)[-_.]?key|(?:auth|access)[-_.]?token")
_SECRET_LAST = frozenset(
    ("token", "key", "pass", "pwd", "pw", "auth", "authorization", "sig", "signature", "sas", "jwt", "pat", "pin", "otp", "cred", "creds")
)
_NOT_SECRET = frozenset((
    "max", "min", "num", "per", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "special", "image",
    "sort", "rng", "text", "caption", "img", "label", "input", "output", "data", "column", "query", "primary", "foreign", "public",
))  # fmt: skip
_WORDS = lazy(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

# Where a secret stands: behind the name that group 1 of the first pattern holds
_VALUE = r"""(?:(["'])(?:(?!\1)[^\\\0]|\\.)*\1|[^\s\0]+)"""
_NAMED = tuple(
    (lazy(name), lazy(value, re.DOTALL))
    for name, value in (
        (r"(?<![\w.-])([\w.-]+)[\"')\]]{0,3}(?: = |=)", _VALUE),  # API_KEY=X, --token=X, ?sig=X, os.environ["TOKEN"] = "X"
        (
            r"(?<![^\s\0\"'{,\[(])([\w.-]+)[\"']?: {0,3}",
            r"""(?:(["'])(?:(?!\1)[^\\\0]|\\.)*\1|[^"'\n\0]+)""",
        ),  # Authorization: X, {"api_key": "X"}
        (r"(?<![^\s\0\"'(])(--?[A-Za-z][\w.-]*)[ \t]+(?!-)", _VALUE),  # --token X
    )
)
_LITERAL = r"""[rRbBfFuU]{0,2}(?:"{3}.*?(?:"{3}|$)|'{3}.*?(?:'{3}|$)|'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$))"""
_NAMED_IN_CODE = lazy(  # API_KEY = "X", token: str = "X", token == "X", {"token": "X"}, setdefault("API_KEY", "X"), set_password("X")
    r"(?<!\w)([A-Za-z_]\w{0,99})[\"')\]]{0,3}(?: ?: ?[A-Za-z_][\w.\[\]| ]{0,60}=| {0,3}(?:[!=]=|[=:,(])) {0,3}[(\[]? ?"
)
_LITERALS = lazy(rf"{_LITERAL}(?:, ?{_LITERAL}){{0,9}}")
_LOGIN = lazy(r"([A-Za-z][\w+.-]{1,20}://|\biscsi:)(?:[^/\s\0\"]{0,400}|[^/\s\0:@]{0,100}:(?!\d{1,5}/)[^\s\0@]{0,400})@")
_SCHEME = lazy(r"(?i)\b((?:bearer|basic|digest)[ \0]+)[^\s\0\"']+")
# What a secret looks like
_SHAPE = lazy(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:hf|gh[pousr]|npm|r8|gsk|lip)_(?:[A-Za-z0-9]{16,}|(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,})|github_pat_\w{10,}|[sprw]k_(?:live|test)_\w{10,}"
    r"|sk-(?=[\w-]{0,99}\d)[\w-]{6,}|gl[a-z]{2,5}-[\w-]{6,}|(?:nvapi|xox[abeoprs]|tskey|pypi-Ag|xapp)-?[\w-]{10,}"
    r"|(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{10,}|hv[bs]\.[\w-]{20,}|SG\.[\w-]{10,}\.[\w-]{10,}"
    # prefixes of services, before what chance wrote
    r"|(?:GOCSPX|HRKU|PMAK|NRAK|pplx|xai|pul|key|ak|AGE-SECRET-KEY)-(?=[\w-]{0,99}\d)[\w-]{20,}"
    r"|(?:dop_v1|dckr_pat|shp(?:at|ss|ca)|sntry[su]|gl(?:sa|c)|figd|nfp|fo1|fw|pcsk|lsv2|lin_api|ntn|rpa|hcai?k|rubygems|wandb_v1|api_org|secret|ops)"
    r"_(?=[\w+/-]{0,99}\d)[\w+/-]{20,}"
    r"|(?:ATATT|ATBB|AKCp|LTAI|AKID|dapi|EAA[A-Z])(?=[A-Za-z]{0,99}\d)[\w-]{16,}|sq0[a-z]{3}-[\w-]{16,}|dp\.[a-z]{2}\.\w{20,}"
    r"|pat\w{14}\.\w{20,}|\w{14}\.atlasv1\.[\w-]{20,}|\w{3}8Q~[\w~.-]{20,}|u\+[\w-]{18}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}[\w.-]*)"
    r"|-----BEGIN [A-Z ]{3,40}-----(?:(?!-----END).){1,20000}(?:-----END [A-Z ]{3,40}-----)?",
    re.DOTALL,
)
_SHORT = lazy(r"[A-Za-z0-9.,/-]{0,14}")  # no room for a key, no sign of a name
_URL = lazy(r"[A-Za-z][\w+.-]{1,20}://[^\s\0\"']+")
_LONG = lazy(r"(?<![\w+/.~-])(?<!sha256:)[A-Za-z0-9+_-][\w+/-]{19,}={0,2}")
_COMPONENT = lazy(r"[\w+-]{20,}={0,2}")
_UUID = lazy(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_COMMIT = lazy(r"(?:git|[-+]g|sha256)[0-9a-f]{7,64}")
_PIECE = lazy(r"[A-Za-z0-9]+")
_READABLE_PART = lazy(r"(?:^|/)[A-Z]?[a-z]{3,}(?:[/_-]|$)")
_SPELLED = lazy(r"[A-Z]?[a-z]{3,}|[A-Z][a-z]{2}")
_TURN = lazy(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[0-9]|(?<=[0-9])[A-Za-z]")

MIN_SECRET_LETTERS, MIN_UNBROKEN_LETTERS = 20, 36


def names_secret(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret."""
    if _SECRET_ANYWHERE.search(name):
        return True
    words = [word.lower() for word in _WORDS.findall(name)]
    return bool(words) and words[-1] in _SECRET_LAST and _NOT_SECRET.isdisjoint(words)


def without_keys(value: str) -> str:
    """Any text without logins in URLs, values that are named as secrets, and words shaped like keys."""
    if _SHORT.fullmatch(value):
        return value
    value = _SHAPE.sub(HIDDEN, _SCHEME.sub(rf"\1{HIDDEN}", without_logins(value)))
    for names, values in _NAMED:
        value = _without_values(value, names, values)
    if "://" in value:
        value = _URL.sub(lambda url: _COMPONENT.sub(_unless_random, url[0]), value)
    return _LONG.sub(_unless_random, value)


def without_literals(line: str) -> str:
    """A line of a program's source without logins, words shaped like keys, and string literals behind a name of a secret.

    Names, calls and attributes stay: what is written as code is no secret.
    """
    redacted = _SHAPE.sub(HIDDEN, _SCHEME.sub(rf"\1{HIDDEN}", without_logins(line)))
    redacted = _without_values(redacted, _NAMED_IN_CODE, _LITERALS)
    if "://" in redacted:
        redacted = _URL.sub(lambda url: _COMPONENT.sub(_unless_random, url[0]), redacted)
    return _LONG.sub(_unless_random, redacted)


def without_logins(line: str) -> str:
    """`line` without the logins in its URLs."""
    return _LOGIN.sub(rf"\1{HIDDEN}@", line) if "@" in line else line


def _without_values(line: str, names: re.Pattern[str], values: re.Pattern[str]) -> str:
    parts: list[str] = []
    at = 0
    for name in names.finditer(line):
        if name.start() >= at and names_secret(name[1]) and (value := values.match(line, name.end())):
            quote = value[1] if value.re.groups and value[1] else ""
            parts += line[at : name.end()], quote, HIDDEN, quote
            at = value.end()
    return "".join((*parts, line[at:]))


def _unless_random(word: re.Match[str]) -> str:
    return HIDDEN if is_random(word[0]) else word[0]


def is_random(word: str) -> bool:
    """Whether a long word is made by a machine to be unguessable: mixed, hardly readable, or without any break.

    Of 34,639 long words in PyTorch's sources, 0.3 % pass for random; of random base62 words of 32 letters, 99 % do.
    """
    if "/" in word and _READABLE_PART.search(word):
        return False  # a path, not base64
    word = _COMMIT.sub("", _UUID.sub("", word)).replace("/", "").replace("+", "")
    pieces = _PIECE.findall(word)
    count = sum(map(len, pieces))
    longest = max((len(piece) for piece in pieces if not piece.isalpha() and not piece.isdigit()), default=0)
    if count < MIN_SECRET_LETTERS or longest < MIN_SECRET_LETTERS / 2:
        return False
    readable = sum(map(len, _SPELLED.findall(word)))
    return longest >= MIN_UNBROKEN_LETTERS or readable < 0.6 * count or len(_TURN.findall(word)) >= 0.3 * count


def looks_like_key(word: str) -> bool:
    """Whether it has the shape that a service gives its keys."""
    return bool(_SHAPE.search(word))

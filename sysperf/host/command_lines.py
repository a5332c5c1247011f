"""What is shown of a command line: what is known to be no secret. The rest is ``--flag <hidden>``.

Secrets have too many forms to be recognised. So values are shown that are numbers, words of a short list, paths and model
names, and only behind options that training and serving tools are known to have; of all other arguments the name of the
option is left. A command in a command (``bash -c``), JSON and URLs are taken apart and treated alike.
"""

from __future__ import annotations

import re

from sysperf.host.secret_words import is_random, looks_like_key, names_secret
from sysperf.host.vocabulary import FLAG_WORDS, HASH_FLAGS, NAME_WORDS, PROGRAMS, SHORT_NUMERIC, VALUE_WORDS
from sysperf.model.text import HIDDEN
from sysperf.startup import lazy

MAX_BYTES = 32_768
"""A longer command line is cut: the rest explains nothing, and hostile ones would cost time."""
MAX_DEPTH = 4
MAX_WORDS = 4_000
MAX_TEXT = 200

_FLAG = lazy(r"--?[A-Za-z][\w.-]{0,80}|--")
_ASSIGNMENT = lazy(r"((?:--?|\+{1,2}|~)?[A-Za-z_][\w.@/-]{0,120})=(.*)", re.DOTALL)
_ATTACHED = lazy(r"-([A-Za-z])([0-9]{1,5})")
_WORD = lazy(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_NUMBER = lazy(
    r"[-+]?(?:[0-9]{1,15}|[0-9]{0,9}\.[0-9]{0,12}|[0-9]{1,3}(?:_[0-9]{3}){1,5})(?:[eE][-+]?[0-9]{1,4})?(?:[kKmMgGtT]i?[bB]?|%|ms|s|h|d)?"
)
_SMALL_NUMBER = lazy(r"[-+]?(?:[0-9]{1,5}|[0-9]{1,4}\.[0-9]{1,8}|\.[0-9]{1,8})(?:[eE][-+]?[0-9]{1,3})?(?:[kKmMgG]i?[bB]?|%|ms|s|h)?")
_LIST = lazy(r"[\[({]?[0-9][0-9.,;:x\- e\[\](){}]{0,200}")
_HEX = lazy(r"[0-9a-f]{7,64}")
_NAME = lazy(r"[A-Za-z][A-Za-z0-9_.+-]{0,80}")
_SEPARATOR = lazy(r"[-_.+]")
_COUNTED = lazy(
    r"git[0-9a-f]{7,40}|[0-9]{1,3}(?:a|b|rc|dev)[0-9]{1,5}|(?:lr|[a-zA-Z])?[0-9]{1,5}(?:[a-zA-Z]|gf|mf|in1k|x[0-9]{1,4}[a-z]?)?"
)  # v2, r64, 70b, 16gf, 32x4d, lr3e-5
_LEADING_ZEROS = lazy(r"0[0-9]{3,}")  # of a PIN or a password, not of a count
_MODEL = lazy(r"[A-Za-z][A-Za-z0-9_.-]{1,60}/[A-Za-z][A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){0,6}(?::[A-Za-z0-9_.-]{1,20})?")
_PATH = lazy(r"(?:\.{0,2}|~)/?(?:[\w.+,@%-]{1,120}/){0,40}[\w.+,@%{}*-]{0,120}")
_FILE = lazy(
    r"[\w.+-]{1,120}\.(?:py|pyc|pyz|json|jsonl|ya?ml|toml|ini|cfg|conf|pt|pth|bin|ckpt|onnx|safetensors|gguf|parquet|csv|tsv|txt"
    r"|sh|so|tar|zip|arrow|h5|npz|npy|log)"
)
_MODULE = lazy(r"[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){0,12}")
_URL = lazy(r"([A-Za-z][\w+.-]{0,20})://([^/?#\s]{0,300})([^\s]*)", re.DOTALL)
_HOST = lazy(r"(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63}){0,8}|\[[0-9a-fA-F:]{2,45}\])?(?::[0-9]{1,5})?")
_ENDPOINT = lazy(r"[A-Za-z][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){0,8}:[0-9]{1,5}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?")
_DATA_SCHEMES = frozenset(("s3", "gs", "gcs", "hf", "hdfs", "file", "env", "tcp"))
_TITLE = lazy(r"[A-Za-z][\w.+-]{0,60}(?:::?[\w.+-]{0,60}){0,3}:?")
_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
_SHELL_STRING = lazy(r"-[a-z]{0,4}c[a-z]{0,4}")
_PYTHON = lazy(r"(?:python|pypy)[0-9.]{0,6}t?")
_OWN_CODE = lazy(
    # what multiprocessing, joblib and PyTorch start their helpers with
    r"from (?:multiprocessing|joblib\.externals\.loky\.backend|billiard)\.[a-z_.]{1,60} import [a-z_]{1,40}; ?"
    r"[a-z_]{1,40}\((?:[a-z_]{1,20}=|\*\*|[0-9, \[\]'.:TrueFalsNo{}]|[a-z_]{1,20}){0,60}\)"
)
_OPERATORS = frozenset((";", "&", "&&", "|", "||", "(", ")", ";;", "|&", "\n", "<", ">", ">>", ">&", "<<", "<<<", "&>", "{", "}", "!"))
_VARIABLE = lazy(r"([A-Za-z_][A-Za-z0-9_]{0,80})=(.*)", re.DOTALL)


def arguments(raw: bytes) -> bytes:
    """A NUL-separated command line, or a title that a program gave itself, of which only what is known to be harmless is left."""
    if len(raw) > MAX_BYTES:
        raw = raw[: raw.rfind(b"\0" if b"\0" in raw[:MAX_BYTES] else b" ", 0, MAX_BYTES) + 1]
    line = raw.decode("utf-8", "replace")
    end = "\0" if line.endswith("\0") else ""
    words = line.removesuffix("\0").split("\0")
    if len(words) == 1 and " " in words[0].strip():
        return (_title(words[0]) + end).encode()
    return ("\0".join(shown_words(words)) + end).encode()


def shown_words(words: list[str], depth: int = 0) -> list[str]:
    """The words of one command, those hidden that may hold a secret."""
    return _Command(depth).shown(words[:MAX_WORDS]) if words else []


class _Command:
    """One command while its words are looked at in order."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._flag = ""
        self._is_python = self._is_shell = self._script_seen = False
        self._trusted = True
        """Whether all words so far are those of known programs: short options mean something else to each."""

    def shown(self, words: list[str]) -> list[str]:
        return [self._first(words[0]), *map(self._next, words[1:])]

    def _first(self, word: str) -> str:
        if variable := _VARIABLE.fullmatch(word):  # env(1) leaves none, a shell's command has them
            return f"{variable[1]}={_of_variable(*variable.groups())}"
        self._enter(word)
        known = _is_program_word(word) or _is_script(word) or (_is_path(word) and "/" in word)
        self._trusted = known
        return word if known or (not self._depth and _is_title(word)) else HIDDEN

    def _enter(self, program: str) -> None:
        name, self._trusted = program[program.rfind("/") + 1 :], True
        self._is_shell, self._is_python = name.lstrip("-") in _SHELLS, bool(_PYTHON.fullmatch(name))

    def _next(self, word: str) -> str:
        flag, self._flag = self._flag, ""
        if not word:
            return word
        if word == HIDDEN:
            self._hidden(flag)
            return word
        if flag and not self._is_option(word):
            return self._value(flag, word)
        if self._is_option(word):
            return self._option(word)
        return self._positional(word)

    def _hidden(self, flag: str) -> None:
        """A word that was hidden before stands where it stood: what follows it is seen as it was then."""
        if not flag:
            self._trusted = False
        elif self._is_shell and _SHELL_STRING.fullmatch(flag):
            self._is_shell = False
        elif self._is_python and flag in ("-c", "-m"):
            self._script_seen = True

    @staticmethod
    def _is_option(word: str) -> bool:
        return word.startswith("-") and not _SMALL_NUMBER.fullmatch(word)

    def _option(self, word: str) -> str:
        if assigned := _ASSIGNMENT.fullmatch(word):
            return f"{_flag_name(assigned[1])}={value(assigned[1], assigned[2], self._depth)}"
        if word == "--":
            return word
        if len(word) == 2 or word.startswith("--") or _is_known(word) or (self._is_shell and _SHELL_STRING.fullmatch(word)):
            self._flag = word if _FLAG.fullmatch(word) else "--?"
            return _flag_name(word)
        attached = _ATTACHED.fullmatch(word)
        if attached and f"-{attached[1]}" in SHORT_NUMERIC:
            return word
        self._flag = word  # `-token V` of one tool, `-psecret` of another
        return f"{word[:2]}{HIDDEN}"

    def _value(self, flag: str, word: str) -> str:
        if self._is_shell and _SHELL_STRING.fullmatch(flag):
            self._is_shell = False
            return _script(word, self._depth)
        if self._is_python and not self._script_seen and flag in ("-c", "-m"):
            self._script_seen = True
            return (word if _OWN_CODE.fullmatch(word) else HIDDEN) if flag == "-c" else (word if _is_module(word) else HIDDEN)
        if flag == "-m" and _is_module(word) and not _PYTHON.fullmatch(word):
            return word
        is_password = flag == "-p" and not self._trusted  # `sshpass -p taskset`
        if not (_is_known(flag) or names_secret(flag) or is_password) and (_is_program_word(word) or _is_script(word)):
            return self._positional(word)  # `--standalone python`, `time -p python`
        if len(flag) == 2:
            numeric = self._trusted and flag in SHORT_NUMERIC and (_SMALL_NUMBER.fullmatch(word) or _LIST.fullmatch(word))
            harmless = not is_password and (word.lower() in VALUE_WORDS or _is_path(word))
            return word if numeric or harmless else HIDDEN
        return value(flag, word, self._depth)

    def _positional(self, word: str) -> str:
        if assigned := _ASSIGNMENT.fullmatch(word):
            of_shell = _VARIABLE.fullmatch(word) and assigned[1].isupper()
            safe = _of_variable(assigned[1], assigned[2]) if of_shell else value(assigned[1], assigned[2], self._depth)
            return f"{_flag_name(assigned[1])}={safe}"
        if _is_program_word(word):
            self._enter(word)
        elif _is_script(word):
            self._script_seen = True
        elif "://" in word:
            return _url("data", word)
        elif not (word.lower() in VALUE_WORDS or _SMALL_NUMBER.fullmatch(word) or _is_path(word) or _is_model(word)):
            self._trusted = False
            return HIDDEN
        return word


def value(flag: str, word: str, depth: int = 0) -> str:
    """The value of an option as far as it is known to be harmless."""
    if names_secret(flag) or looks_like_key(word):
        return HIDDEN
    if len(word) > 1 and word[0] in "\"'" and word[-1] == word[0]:
        return f"{word[0]}{value(flag, word[1:-1], depth)}{word[0]}"
    if word[:1] in "{[" and (safe := _json(flag, word, depth)):
        return safe
    return _url(flag, word) if "://" in word else word if _is_harmless(flag, word) else HIDDEN


def _is_harmless(flag: str, word: str) -> bool:
    """Whether the value of an option is a number, a word of the list or a path, and of a known option a name of any kind."""
    if not word or word == HIDDEN or _SMALL_NUMBER.fullmatch(word) or word.lower() in VALUE_WORDS or _is_path(word):
        return True
    if not _is_known(flag) or len(word) > MAX_TEXT or _LEADING_ZEROS.fullmatch(word):
        return False
    return bool(_NUMBER.fullmatch(word)) or _is_name(flag, word)


def _is_name(flag: str, word: str) -> bool:
    """Whether this is a list of numbers, an endpoint, a commit, or names of models, runs or types."""
    if _HEX.fullmatch(word) and not word.isalpha():
        return _words(flag)[-1:] != [] and _words(flag)[-1] in HASH_FLAGS
    if _LIST.fullmatch(word) or _ENDPOINT.fullmatch(word):
        return True
    return all(
        _is_model(part) or (_NAME.fullmatch(part) and not _is_odd(part) and _is_made_of_known_words(part)) for part in word.split(",")
    )


def _is_made_of_known_words(name: str) -> bool:
    """Whether a name is no more than words of this vocabulary and counts: ``llama3_70b_lora_r64``, ``vit_b_16``, not ``hunter2``."""
    words = [word for piece in _SEPARATOR.split(name) if not _COUNTED.fullmatch(piece) for word in _WORD.findall(piece)]
    letters = [word for word in words if len(word) == 1 and word.isalpha()]
    return all(_is_known_word(word) for word in words if word not in letters) and (not letters or any(len(word) > 2 for word in words))


def _is_known_word(word: str) -> bool:
    lower = word.lower()
    return word.isdigit() or not word or (len(word) > 1 and (lower in FLAG_WORDS or lower in NAME_WORDS or lower in VALUE_WORDS))


def _is_odd(name: str) -> bool:
    """Whether a name may be a password: it has letters and digits mixed as names of models, runs and types have not."""
    return looks_like_key(name) or is_random(name)


def _is_known(flag: str) -> bool:
    """Whether all words of an option's name are those of training and serving tools."""
    words = _words(flag)
    if flag in SHORT_NUMERIC and len(flag) > 2:
        return True
    if not any(len(word) > 1 and word.isalpha() for word in words):
        return False  # `-p123456`
    return all(word in FLAG_WORDS or word.isdigit() for word in words) and not names_secret(flag)


def _words(flag: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(flag)]


def _flag_name(flag: str) -> str:
    return flag if not looks_like_key(flag) and not is_random(flag) else f"{flag[:2]}{HIDDEN}"


def _is_title(word: str) -> bool:
    """Whether it is the name of a program, as that may write it over its command line: ``ray::IDLE``, ``VLLM::Worker_TP0``."""
    return bool(_NAME.fullmatch(word) or _TITLE.fullmatch(word)) and len(word) <= MAX_TEXT and not _is_odd(word)


def _is_program_word(word: str) -> bool:
    name = word[word.rfind("/") + 1 :]
    return (name in PROGRAMS or bool(_PYTHON.fullmatch(name))) and (name == word or _is_path(word))


def _is_script(word: str) -> bool:
    return bool(_FILE.fullmatch(word[word.rfind("/") + 1 :])) and (_is_path(word) or "/" not in word) and not looks_like_key(word)


def _is_module(word: str) -> bool:
    return bool(_MODULE.fullmatch(word)) and not _is_odd(word)


def _is_path(word: str) -> bool:
    """Whether it is written as a path: it begins as one, or is a file of a known kind, and no part of it is unguessable."""
    rooted = word.startswith(("/", "./", "../", "~/")) or word in (".", "..")
    if len(word) > MAX_BYTES // 8 or not (rooted or _FILE.fullmatch(word[word.rfind("/") + 1 :])) or not _PATH.fullmatch(word):
        return False
    return not looks_like_key(word) and _is_readable(word)


def _is_model(word: str) -> bool:
    return bool(_MODEL.fullmatch(word)) and not looks_like_key(word) and _is_readable(word)


def _is_readable(path: str) -> bool:
    """Whether no part of a path is unguessable, but for the commits of downloaded models."""
    if is_random(path):
        return False
    parts = path.split("/")
    return not any(
        is_random(part) and not (before == "snapshots" and _HEX.fullmatch(part)) for before, part in zip(["", *parts], parts, strict=False)
    )


def _of_variable(name: str, word: str) -> str:
    from sysperf.host.redact import keeps, text  # noqa: PLC0415 - they are made of the same parts

    return text(word) if keeps(name) else value(name, word)


def _url(flag: str, word: str) -> str:
    """The scheme and the host; the path only where data lie (``s3://``)."""
    url = _URL.fullmatch(word)
    if url is None or looks_like_key(word):
        return HIDDEN
    scheme, host, rest = url.groups()
    if not _HOST.fullmatch(host) or is_random(host):
        return f"{scheme}://{HIDDEN}"
    if rest in ("", "/"):
        return word
    known = scheme in _DATA_SCHEMES and (_is_known(flag) or scheme != "tcp") and _is_path(rest) and "?" not in rest
    return word if known else f"{scheme}://{host}/{HIDDEN}"


def _json(flag: str, word: str, depth: int) -> str:
    """JSON with its names, and its values as far as they are harmless; "" when it is none."""
    import json  # noqa: PLC0415 - 2 ms; few command lines hold any

    try:
        data = json.loads(word)
    except (ValueError, RecursionError):
        return ""
    return json.dumps(_plain(flag, data, depth), ensure_ascii=False)


def _plain(flag: str, data: object, depth: int) -> object:
    if depth >= MAX_DEPTH:
        return HIDDEN
    if isinstance(data, dict):
        return {_json_name(key): _plain(f"--{key}", item, depth + 1) for key, item in data.items()}
    if isinstance(data, list):
        return [_plain(flag, item, depth + 1) for item in data]
    if isinstance(data, str):
        return value(flag, data, depth)
    return data if isinstance(data, bool | None) or value(flag, str(data)) != HIDDEN else HIDDEN


def _json_name(key: str) -> str:
    return key if _is_known(f"--{key}") or (names_secret(key) and _FLAG.fullmatch(f"--{key}")) else HIDDEN


_HIDDEN_WORD = "\ue000"
"""What was hidden before, as one word: its angle brackets are no redirections."""


def _script(text: str, depth: int) -> str:
    """The commands of a shell script, each as a command line of its own; hidden where it cannot be taken apart."""
    import shlex  # noqa: PLC0415 - 2 ms; few programs are started by `bash -c`

    if depth >= MAX_DEPTH:
        return HIDDEN
    try:
        lexer = shlex.shlex(text.replace("\n", " ; ").replace(HIDDEN, _HIDDEN_WORD), posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split, lexer.commenters = True, ""
        tokens = [token.replace(_HIDDEN_WORD, HIDDEN) for token in lexer]
    except ValueError:
        return HIDDEN
    words: list[str] = []
    command: list[str] = []
    for token in (*tokens[:MAX_WORDS], ";"):
        if token not in _OPERATORS:
            command.append(token)
            continue
        words += _in_shell(command, depth)
        words.append(token)
        command = []
    return " ".join(words[:-1])


def _in_shell(words: list[str], depth: int) -> list[str]:
    safe: list[str] = []
    while words and (variable := _VARIABLE.fullmatch(words[0])):
        safe.append(_quoted(f"{variable[1]}={_of_variable(variable[1], variable[2])}"))
        words = words[1:]
    return safe + [_quoted(word) for word in shown_words(words, depth + 1)]


def _quoted(word: str) -> str:
    import shlex  # noqa: PLC0415 - as above

    return word if HIDDEN in word and " " not in word else shlex.quote(word)


def _title(line: str) -> str:
    """A title that a program gave itself, or a command line written as one text: its words one by one."""
    words = line.split(" ")
    return " ".join(shown_words(words))

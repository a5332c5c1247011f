"""What is shown of a command line: programs, scripts, names of options, and values that are no secret. The rest is ``--flag <hidden>``.

Secrets have too many forms to be recognised, so what is shown has to be known. Anywhere: small numbers, words of the field, paths.
Behind an option of a known program whose last word says what its value is (``--lr-scheduler``, ``model.optimizer.name``): any number
and any name that has not the shape of a key. A command in a command (``bash -c``), ``NAME=value``, JSON and URLs are taken apart
and treated alike.
"""

from __future__ import annotations

import re

from sysperf.host.harmless import (
    ENDPOINT,
    LIST,
    SMALL_NUMBER,
    are_paths,
    is_harmless,
    is_known,
    is_model,
    is_module,
    is_name,
    is_of_the_field,
    is_path,
    is_place,
    is_program,
    is_python,
    is_script,
)
from sysperf.host.secret_words import is_random, looks_like_key, names_secret
from sysperf.host.variables import keeps
from sysperf.host.variables import shown as shown_variable
from sysperf.host.words import APPLICATIONS, SHORT_NUMERIC
from sysperf.model.text import HIDDEN
from sysperf.startup import lazy

MAX_BYTES = 32_768
"""A longer command line is cut: the rest explains nothing, and hostile ones would cost time."""
MAX_DEPTH = 4
MAX_WORDS = 4_000

_FLAG_NAME = r"(?:--?|\+{1,2}|~)?[^\W\d](?:[\w./@+]|-(?!-)){0,120}"
_FLAG = lazy(rf"{_FLAG_NAME}|--")
_ASSIGNMENT = lazy(rf"({_FLAG_NAME})[=\uff1d](.*)", re.DOTALL)
_VARIABLE = lazy(r"([A-Za-z_][A-Za-z0-9_]{0,80})=(.*)", re.DOTALL)
_PAIRS = lazy(r"[A-Za-z_][\w.-]{0,80}=[^,=]*(?:,[A-Za-z_][\w.-]{0,80}=[^,=]*)*")
_CONFIG_KEY = lazy(r"[A-Z]+(?:\.[A-Z0-9_]+)+")  # SOLVER.BASE_LR 0.02
_ATTACHED = lazy(r"-([A-Za-z])([0-9]{1,5})")
_TAKES_LIST = lazy(r"s(?:[-_.]|$)|name$")  # --target-modules, --lora_modules_to_save, --served-model-name
_SPECIAL_TOKEN = lazy(r"</?[A-Za-z_]{1,20}>|<\|[A-Za-z_]{1,20}\|>|\[[A-Z]{1,8}\]")
_TITLE = lazy(r"[A-Za-z][\w.+-]{0,60}(?:::?[\w.+-]{0,60}){0,3}:?")
_URL = lazy(r"([A-Za-z][\w+.-]{0,20})://([^/?#\s]{0,300})([^\s]*)", re.DOTALL)
_HOST = lazy(r"(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63}){0,8}|\[[0-9a-fA-F:]{2,45}\])?(?::[0-9]{1,5})?")
_DATA_SCHEMES = frozenset(("s3", "gs", "gcs", "hf", "hdfs", "file", "env", "tcp", "detectron2", "torchvision"))
_OF_PYTHON = lazy(
    r"(?:default|error|always|all|module|once|ignore)(?:::(?:(?:[a-z_]{1,20}\.){0,4}(?:[A-Z][A-Za-z]{0,40})?Warning)?(?::[a-z_.]{1,40})?)?"
    r"|dev|faulthandler|importtime|no_debug_ranges|perf(?:_jit)?|(?:utf8|tracemalloc|int_max_str_digits|gil|cpu_count)(?:=[0-9]{1,5})?"
    r"|frozen_modules(?:=o(?:n|ff))?"
)
"""Values of the interpreter's own ``-W`` and ``-X``; a warning's message is free text.

https://docs.python.org/3/using/cmdline.html
"""
_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
_SHELL_STRING = lazy(r"-[a-z]{0,4}c[a-z]{0,4}")
_OWN_CODE = lazy(
    # what multiprocessing, joblib and PyTorch start their helpers with
    r"from (?:multiprocessing|joblib\.externals\.loky\.backend|billiard)\.[a-z_.]{1,60} import [a-z_]{1,40}; ?"
    r"[a-z_]{1,40}\((?:[a-z_]{1,20}=|\*\*|[0-9, \[\]'.:TrueFalsNo{}]|[a-z_]{1,20}){0,60}\)"
)
_OPERATORS = frozenset((";", "&", "&&", "|", "||", "(", ")", ";;", "|&", "\n", "<", ">", ">>", ">&", "<<", "<<<", "&>", "{", "}", "!"))


def arguments(raw: bytes) -> bytes:
    """A NUL-separated command line, or a title that a program gave itself, of which only what is known to be harmless is left."""
    if len(raw) > MAX_BYTES:
        raw = raw[: raw.rfind(b"\0" if b"\0" in raw[:MAX_BYTES] else b" ", 0, MAX_BYTES) + 1]
    line = raw.decode("utf-8", "replace")
    end = "\0" if line.endswith("\0") else ""
    words = line.removesuffix("\0").split("\0")
    if len(words) == 1 and " " in words[0].strip():
        return (" ".join(shown_words(words[0].split(" "))) + end).encode()
    return ("\0".join(shown_words(words)) + end).encode()


def shown_words(words: list[str], depth: int = 0) -> list[str]:
    """The words of one command, those hidden that may hold a secret."""
    return _Command(depth).shown(words[:MAX_WORDS]) if words else []


class _Command:
    """One command while its words are looked at in order."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._flag = ""
        self._listing = ""
        """The option whose values go on: ``--target-modules q_proj k_proj``."""
        self._is_python = self._is_shell = self._script_seen = False
        self._trusted = True
        """Whether all words so far are those of known programs: short options mean something else to each."""
        self._program_known = True
        """Whether the options are those of a known program, or of a script."""

    def shown(self, words: list[str]) -> list[str]:
        return [self._first(words[0]), *map(self._next, words[1:])]

    def _first(self, word: str) -> str:
        if variable := _VARIABLE.fullmatch(word):  # env(1) leaves none, a shell's command has them
            return f"{variable[1]}={_of_variable(*variable.groups())}"
        self._enter(word)
        self._trusted = is_program(word) or is_script(word) or is_place(word) or (is_path(word) and "/" in word)
        self._program_known = self._trusted
        return word if self._trusted or (not self._depth and _is_title(word)) else HIDDEN

    def _enter(self, program: str) -> None:
        name = program[program.rfind("/") + 1 :]
        self._trusted = self._program_known = True
        self._is_shell, self._is_python = name.lstrip("-") in _SHELLS, is_python(name)
        self._script_seen |= name in APPLICATIONS

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
            return HIDDEN if flag and len(word) > 2 and names_secret(flag) and not is_known(word) else self._option(word)
        return self._positional(word)

    def _hidden(self, flag: str) -> None:
        """A word that was hidden before stands where it stood: what follows it is seen as it was then."""
        if not flag:
            self._distrust()
        elif self._is_shell and _SHELL_STRING.fullmatch(flag):
            self._is_shell = False
        elif self._is_python and flag in ("-c", "-m"):
            self._script_seen = True

    def _distrust(self) -> None:
        self._trusted, self._listing = False, ""
        self._program_known &= self._script_seen

    @staticmethod
    def _is_option(word: str) -> bool:
        return word.startswith("-") and not SMALL_NUMBER.fullmatch(word)

    def _option(self, word: str) -> str:
        self._listing = ""
        if assigned := _ASSIGNMENT.fullmatch(word):
            return f"{_flag_name(assigned[1])}={self._shown_value(assigned[1], assigned[2])}"
        if word in ("-", "--"):
            return word
        if self._is_of_python(word[:2], word[2:]):
            return word
        of_shell = self._is_shell and _SHELL_STRING.fullmatch(word)
        if len(word) == 2 or word.startswith("--") or word in SHORT_NUMERIC or is_known(word) or of_shell:
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
            return (word if _OWN_CODE.fullmatch(word) else HIDDEN) if flag == "-c" else (word if is_module(word) else HIDDEN)
        if flag == "-m" and is_module(word) and not is_python(word):
            self._script_seen |= self._program_known
            return word
        is_password = flag == "-p" and not self._trusted  # `sshpass -p taskset`
        takes_none = not (is_known(flag) or names_secret(flag) or is_password)
        if takes_none and (is_program(word) or is_script(word) or (len(flag) > 2 and _ASSIGNMENT.fullmatch(word))):
            return self._positional(word)  # `--standalone python`, `time -p python`, `--multirun model=gpt2`
        if len(flag) == 2:
            return HIDDEN if is_password else self._short(flag, word)
        shown = self._shown_value(flag, word)
        self._listing = flag if shown == word and _TAKES_LIST.search(flag) and not SMALL_NUMBER.fullmatch(word) else ""
        return shown

    def _short(self, flag: str, word: str) -> str:
        """The value of an option of one letter: it means something else to each program."""
        if (variable := _VARIABLE.fullmatch(word)) and variable[1].isupper():  # docker -e, mpirun -x
            return f"{variable[1]}={_of_variable(*variable.groups())}"
        numeric = self._trusted and (flag in SHORT_NUMERIC and (SMALL_NUMBER.fullmatch(word) or LIST.fullmatch(word)))
        hosts = self._trusted and all(map(ENDPOINT.fullmatch, word.split(",")))
        named = self._is_of_python(flag, word) or (is_harmless(word) and not SMALL_NUMBER.fullmatch(word))
        return word if numeric or hosts or named or (self._trusted and keeps(word)) else HIDDEN

    def _is_of_python(self, flag: str, word: str) -> bool:
        return self._is_python and not self._script_seen and flag in ("-W", "-X") and _OF_PYTHON.fullmatch(word) is not None

    def _positional(self, word: str) -> str:
        if assigned := _ASSIGNMENT.fullmatch(word):
            if is_path(word):
                return word
            of_shell = _VARIABLE.fullmatch(word) and assigned[1].isupper()
            safe = _of_variable(assigned[1], assigned[2]) if of_shell else self._shown_value(assigned[1], assigned[2])
            return f"{_flag_name(assigned[1])}={safe}"
        if is_program(word):
            self._enter(word)
        elif is_script(word):
            self._script_seen = True
        elif "://" in word:
            return _url("data", word)
        elif self._program_known and _CONFIG_KEY.fullmatch(word):
            self._flag = word
        elif not (is_harmless(word) or is_model(word) or self._is_expected(word)):
            self._distrust()
            return HIDDEN
        return word

    def _is_expected(self, word: str) -> bool:
        if self._listing:
            return self._shown_value(self._listing, word) == word
        return self._program_known and (is_of_the_field(word) or (word[0] == "~" and is_known(word)))

    def _shown_value(self, flag: str, word: str) -> str:
        return value(flag, word, self._depth, known=self._program_known)


def value(flag: str, word: str, depth: int = 0, *, known: bool = True) -> str:
    """The value of an option as far as it is known to be harmless; `known` says whether the option is of a known program."""
    if names_secret(flag) or looks_like_key(word):
        return HIDDEN
    if len(word) > 1 and word[0] in "\"'" and word[-1] == word[0]:
        return f"{word[0]}{value(flag, word[1:-1], depth, known=known)}{word[0]}"
    if word[:1] in "{[" and (safe := _json(flag, word, depth, known=known)):
        return safe
    if "://" in word:
        return _url(flag, word)
    return _plain_value(flag, word, depth, known=known and is_known(flag))


def _plain_value(flag: str, word: str, depth: int, *, known: bool) -> str:
    """A value that is neither JSON nor a URL."""
    if word == HIDDEN or is_harmless(word) or (known and (_SPECIAL_TOKEN.fullmatch(word) or (is_name(flag, word) and "=" not in word))):
        return word
    if depth < MAX_DEPTH and _PAIRS.fullmatch(word):
        return ",".join(f"{_flag_name(pair[1])}={value(pair[1], pair[2], depth + 1, known=known)}" for pair in _pairs(word))
    return HIDDEN


def _pairs(word: str) -> list[re.Match[str]]:
    """``name=value`` of a list of them."""
    return [pair for part in word.split(",") if (pair := _ASSIGNMENT.fullmatch(part))]


def _flag_name(flag: str) -> str:
    """The name of an option, as far as it is one: behind another sign, a value has begun."""
    if looks_like_key(flag) or is_random(flag):
        return f"{flag[:2]}{HIDDEN}"
    name = _FLAG.match(flag)
    return flag if name and name[0] == flag else f"{name[0] if name else flag[:2]}{HIDDEN}"


def _is_title(word: str) -> bool:
    """Whether it is the name of a program, as that may write it over its command line: ``ray::IDLE``, ``VLLM::Worker_TP0``."""
    return bool(_TITLE.fullmatch(word)) and not looks_like_key(word) and not is_random(word)


def _of_variable(name: str, word: str) -> str:
    return shown_variable(name, word) if keeps(name) else value(name, word, known=False)


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
    known = scheme in _DATA_SCHEMES and (is_known(flag) or scheme != "tcp") and are_paths(rest) and "?" not in rest
    return word if known else f"{scheme}://{host}/{HIDDEN}"


def _json(flag: str, word: str, depth: int, *, known: bool) -> str:
    """JSON with its names, and its values as far as they are harmless; "" when it is none."""
    import json  # noqa: PLC0415 - 2 ms; few command lines hold any

    try:
        data = json.loads(word)
    except (ValueError, RecursionError):
        return ""
    return json.dumps(_plain(flag, data, depth, known=known and is_known(flag)), ensure_ascii=False)


def _plain(flag: str, data: object, depth: int, *, known: bool) -> object:
    if depth >= MAX_DEPTH:
        return HIDDEN
    if isinstance(data, dict):
        return {_json_name(key, known=known): _plain(f"--{key}", item, depth + 1, known=known) for key, item in data.items()}
    if isinstance(data, list):
        return [_plain(flag, item, depth + 1, known=known) for item in data]
    if isinstance(data, str):
        return value(flag, data, depth, known=known)
    return data if isinstance(data, bool | None) or value(flag, str(data), known=known) != HIDDEN else HIDDEN


def _json_name(key: str, *, known: bool) -> str:
    named = is_known(f"--{key}") or (names_secret(key) and _FLAG.fullmatch(f"--{key}"))
    return key if named or (known and _SNAKE.fullmatch(key)) else HIDDEN


_SNAKE = lazy(r"[a-z]{2,20}(?:_[a-z]{2,20}){1,6}")
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

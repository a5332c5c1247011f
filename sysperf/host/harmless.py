"""Words that give nothing away, as numbers, paths, modules and names of models are; where they stand decides whether they are shown."""

from __future__ import annotations

import re

from sysperf.host.secret_words import is_random, looks_like_key, names_secret, without_keys
from sysperf.host.words import HASHES, NOUNS, PROGRAMS, VALUES
from sysperf.startup import lazy

MAX_NAME = 200
MAX_PATH = 4_096

_WORD = lazy(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
SMALL_NUMBER = lazy(r"[-+]?(?:[0-9]{1,5}|[0-9]{1,4}\.[0-9]{1,8}|\.[0-9]{1,8})(?:[eE][-+]?[0-9]{1,3})?(?:[kKmMgG]i?[bB]?|%|ms|s|h)?")
_NUMBER = lazy(
    r"[-+]?(?:[0-9]{1,15}|[0-9]{0,9}\.[0-9]{0,12}|[0-9]{1,3}(?:_[0-9]{3}){1,5})(?:[eE][-+]?[0-9]{1,4})?(?:[kKmMgGtT]i?[bB]?|%|ms|s|h|d)?"
)
LIST = lazy(r"[\[({]?[0-9][0-9.,;:x\- e\[\](){}]{0,200}")
_RANGE = r"[0-9]{1,3}(?:-[0-9]{1,3})?(?::[0-9]{1,3})?"
_RANGES = lazy(rf"{_RANGE}(?:,{_RANGE}){{0,20}}")  # 0-27,28-55, 0-31:2, 1:4: three groups in a row are of telephones
_LEADING_ZEROS = lazy(r"0[0-9]{3,}")  # of a PIN or a password, not of a count
_HEX = lazy(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{16,64}")
_PIECES = lazy(r"[^A-Za-z0-9]+")
_DIGITS_FOR_LETTERS = lazy(r"[A-Za-z]+[0-9][A-Za-z]{1,4}[0-9][A-Za-z]")
_UUID = lazy(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAME = lazy(r"[\w.,:/+=^*\[\]()'\"<>|{}%$~ -]+", re.ASCII)
_COUNTED = lazy(r"v?[0-9]{1,4}[a-z]?")
_OF_JOB = frozenset(("rdzv", "run", "job"))
"""What an identifier is of that launchers make up: it joins the ranks of a job, and lets nobody in."""
ENDPOINT = lazy(r"[A-Za-z][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){0,8}:[0-9]{1,5}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?")

_PATH = lazy(r"(?:\.{0,2}|~)/?(?:[\w.+,@%=-]{1,120}/){0,40}[\w.+,@%{}*=-]{0,120}")
_SET_IN_PATH = lazy(r"([\w.-]*)=(-?[0-9]?)")  # epoch=3-step=100.ckpt
_FOLDER_HASH = lazy(r"(?:[\w.+-]{1,80}-)?(?:[0-9a-f]{16,64}|[0-9a-z]{32})(?:-[\w.+-]{1,80})?")  # of a commit, Bazel, Spack, the Nix store
_FOLDER_BY_CHANCE = lazy(r"[\w-]{21}")  # of uv's archive
_FILE = lazy(
    r"[\w.+=-]{1,120}\.(?:py|pyc|pyz|json|jsonl|ya?ml|toml|ini|cfg|conf|pt|pth|bin|ckpt|onnx|safetensors|gguf|parquet|csv|tsv|txt"
    r"|pkl|sh|so|tar|zip|arrow|h5|npz|npy|log|out)"
)
_MODULE = lazy(r"[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){0,12}")
_MODEL = lazy(r"[A-Za-z][A-Za-z0-9_.-]{1,60}/[A-Za-z][A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){0,6}(?::[A-Za-z0-9_.-]{1,20})?")
_PYTHON = lazy(r"(?:python|pypy)[0-9.]{0,6}t?")


def words_of(flag: str) -> list[str]:
    """``--lrScheduler``, ``lr_scheduler``: the words of an option's name in lower case."""
    return [word.lower() for word in _WORD.findall(flag)]


def is_known(flag: str) -> bool:
    """Whether the last word of an option's name says that its value is none to hide: ``--lr-scheduler``, not ``--note``."""
    words = [word for word in words_of(flag) if not word.isdigit()]
    if not words or names_secret(flag) or (words[-1] == "id" and len(words) < 2):
        return False
    return words[-1] in NOUNS or words[-1].removesuffix("s") in NOUNS or (words[-1] in ("id", "ids") and bool({*words[:-1]} & _NAMED))


_NAMED = NOUNS | {"gpu", "rdzv", "wandb", "hub"}


def is_harmless(word: str) -> bool:
    """Whether a word is harmless wherever it stands: a small number, ranges of such, a word of the field, a path."""
    return not word or bool(SMALL_NUMBER.fullmatch(word) or _RANGES.fullmatch(word)) or word.lower() in VALUES or are_paths(word)


def is_name(flag: str, word: str) -> bool:
    """Whether this may be shown behind an option that is known: any number, list or name that has not the shape of a secret."""
    if len(word) > MAX_NAME or _LEADING_ZEROS.fullmatch(word):
        return False
    if _NUMBER.fullmatch(word) or LIST.fullmatch(word) or ENDPOINT.fullmatch(word):
        return True
    words = words_of(flag)
    if words[-1] in ("tokens", "keys"):
        return False
    if _UUID.fullmatch(word):
        return words[-1] == "id" and words[-2] in _OF_JOB
    if words[-1] in HASHES and _HEX.fullmatch(word):
        return True
    return is_model(word) or (bool(_NAME.fullmatch(word)) and not _is_odd(word))


def _is_odd(name: str) -> bool:
    """Whether a name has the shape of a key, or digits for letters: ``s3cr3t``."""
    if looks_like_key(name) or not is_readable(name) or _UUID.search(name) or without_keys(name) != name:
        return True
    return any(_HEX.fullmatch(piece) or _DIGITS_FOR_LETTERS.match(piece) for piece in _PIECES.split(name))


def is_of_the_field(word: str) -> bool:
    """Whether a word that no option announces is made of the field's words: ``lora_finetune_distributed``."""
    parts = re.split(r"[-_]", word.lower())
    named = [part for part in parts if part in VALUES or part in NOUNS]
    return bool(named) and all(part in named or _COUNTED.fullmatch(part) for part in parts)  # numbers alone may be a card's or an account's


def is_program(word: str) -> bool:
    """Whether it is a program that trains, serves, launches or wraps, by its name or by its path."""
    name = word[word.rfind("/") + 1 :]
    return (name in PROGRAMS or is_python(name)) and (name == word or is_place(word) or is_path(word) or is_path(f"./{word}"))


def is_python(name: str) -> bool:
    """Whether a program's name is that of an interpreter."""
    return bool(_PYTHON.fullmatch(name))


def is_place(word: str) -> bool:
    """Whether it is written as the whole path of a program; folders of environments may have names that chance wrote."""
    if not word.startswith("/") or len(word) > MAX_PATH or not _PATH.fullmatch(word) or looks_like_key(word) or is_random(word):
        return False
    by_chance = (part for part in word.split("/") if is_random(part))
    return all(_FOLDER_HASH.fullmatch(part) or _FOLDER_BY_CHANCE.fullmatch(part) for part in by_chance)


def is_script(word: str) -> bool:
    """Whether it is a file of a known kind."""
    if not _FILE.fullmatch(word[word.rfind("/") + 1 :]):
        return False
    return is_path(word) or is_place(word) or ("/" not in word and not looks_like_key(word))


def is_module(word: str) -> bool:
    """Whether it may be what ``python -m`` runs."""
    return bool(_MODULE.fullmatch(word)) and not looks_like_key(word) and not is_random(word)


def are_paths(word: str) -> bool:
    """Whether it is a path, or several: ``/data:/data:ro``."""
    if word.startswith("/") and ":" in word:
        return all(is_path(part) or part in ("ro", "rw") for part in re.split("[:,]", word))
    return is_path(word)


def is_path(word: str) -> bool:
    """Whether it is written as a path: it begins as one, or is a file of a known kind, and no part of it is unguessable."""
    rooted = word.startswith(("/", "./", "../", "~/")) or word in (".", "..")
    if len(word) > MAX_PATH or not (rooted or _FILE.fullmatch(word[word.rfind("/") + 1 :])) or not _PATH.fullmatch(word):
        return False
    return not looks_like_key(word) and _sets_numbers(word) and is_readable(word)


def _sets_numbers(path: str) -> bool:
    """Whether what a path says of a checkpoint (``epoch=3``) are numbers."""
    return all(value and not names_secret(name) for name, value in _SET_IN_PATH.findall(path))


def is_model(word: str) -> bool:
    """Whether it is written as the name of a model or data set of a hub."""
    return bool(_MODEL.fullmatch(word)) and not looks_like_key(word) and is_readable(word)


def is_readable(path: str) -> bool:
    """Whether no part of a path is unguessable, but for hashes in lower case: commits, and folders that tools name."""
    if is_random(path):
        return False
    parts = path.split("/")
    return not any(
        is_random(part) and not ((path[:1] == "/" or before == "snapshots") and _FOLDER_HASH.fullmatch(part))
        for before, part in zip(["", *parts], parts, strict=False)
    )

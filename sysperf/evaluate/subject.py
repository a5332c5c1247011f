"""What a rule is judged about, and a name of a finding that stays the same from run to run."""

from __future__ import annotations

import os.path
from typing import NamedTuple

import msgspec

from sysperf.evaluate.scope import Value
from sysperf.model.finding import MACHINE, Finding, Subject
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_PROGRAM = 200
_PYTHON = lazy(r"(python|pypy)[0-9.]*t?")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of the interpreter whose value is a word of its own."""


class Item(NamedTuple):
    """What a rule is judged on: the machine, or one item of a list, by the name that conditions have for it and its place in the list."""

    bound: str = ""
    value: Value = None
    place: int = 0

    def subject(self) -> Subject:
        """What a finding says of it."""
        if not self.bound:
            return MACHINE
        if self.bound == "gpu":
            return Subject("gpu", self._text("name"), self._fact("index", self.place), self._text("bus_id"))
        return process_subject(self.value) if self.bound == "proc" else Subject("item", self._name())

    def _fact(self, name: str, otherwise: Value = None) -> Value:
        return getattr(self.value, name, otherwise)

    def _text(self, name: str) -> str:
        return str(self._fact(name) or "")

    def _name(self) -> str:
        for key in ("prefix", "name", "path", "address", "target", "id"):
            value = self._fact(key)
            if value is not None:
                return neutral(str(value), 120)
        return f"#{self.place}"


def with_subject(finding: Finding, subject: Subject) -> Finding:
    """The finding about this subject, with the names that follow from it."""
    name = fingerprint(finding.rule, subject.lasting_name)
    return msgspec.structs.replace(finding, subject=subject, key=f"{finding.rule}@{subject.identity}", fingerprint=name)


def process_subject(process: Value) -> Subject:
    """A process, by its number and start, its name, program and owner."""
    return Subject(
        "process",
        process.name or "",
        pid=process.pid,
        start_time=process.start_time,
        program=program_of(process.command or ""),
        user=process.user,
    )


def program_of(command: str) -> str:
    """The program in a command line, without its options: ``python train.py``, ``python -m mypkg.train``, ``/opt/serve``."""
    import shlex  # noqa: PLC0415 - 0.7 ms, which a launch need not pay

    try:
        words = shlex.split(command)
    except ValueError:  # the command line was cut inside a quotation
        words = command.split()
    if not words:
        return ""
    program = os.path.basename(words[0])
    if _PYTHON.fullmatch(program):
        return neutral(" ".join(("python", *_script(words[1:]))), MAX_PROGRAM)
    return neutral(words[0], MAX_PROGRAM)


def _script(words: list[str]) -> list[str]:
    """The script, or ``-m`` and the module, among the arguments of an interpreter; ``-c`` where the program is in the command line."""
    position = 0
    while position < len(words):
        word = words[position]
        if word == "-m":
            return words[position : position + 2]
        if word.startswith("-m") or word == "-c":
            return [word]
        if not word.startswith("-") or word == "-":
            return [word]
        position += 2 if word in _WITH_VALUE else 1
    return []


def fingerprint(rule_id: str, stable_name: str) -> str:
    """A name of a finding that stays the same from run to run: the rule and what does not change of its subject.

    64-bit FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/): importing hashlib, and OpenSSL with it, would cost 3 ms.
    """
    number = 0xCBF29CE484222325
    for byte in f"{rule_id}\0{stable_name}".encode("utf-8", "replace"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{number:016x}"

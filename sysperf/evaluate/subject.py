"""What a rule is judged about: its name for people, its identity now, and its identity from run to run."""

from __future__ import annotations

import os.path

from sysperf.evaluate.scope import Value
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_PROGRAM = 200
_PYTHON = lazy(r"(python|pypy)[0-9.]*t?")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of the interpreter whose value is a word of its own."""


class Subject(Record):
    """The machine, or one item of a list; `bound` is the name that conditions have for the item, `place` where it stands in its list."""

    bound: str = ""
    item: Value = None
    place: int = 0

    @property
    def name(self) -> str:
        """What a person calls it: ``GPU 3 (NVIDIA H100)``, ``python (pid 4242)``, ``/opt/venv``; empty for the machine."""
        return subject_name(self.bound, self.item, self.place) if self.bound else ""

    @property
    def program(self) -> str:
        """What a process runs; empty for everything else."""
        return program_of(getattr(self.item, "command", None) or "") if self.bound == "proc" else ""

    @property
    def user(self) -> int | None:
        """The owner of a process."""
        return getattr(self.item, "user", None) if self.bound == "proc" else None

    def key(self, rule_id: str) -> str:
        """Return this rule about this very subject: a process by its number and its start, so that no later process is taken for it."""
        return f"{rule_id}@{self._identity()}"

    def fingerprint(self, rule_id: str) -> str:
        """Return this kind of finding over time: a process by its name, program and owner, everything else by its name."""
        if self.bound != "proc":
            return fingerprint(rule_id, self.name)
        return fingerprint(rule_id, f"{getattr(self.item, 'name', None) or 'process'}\0{self.program}\0{self.user}")

    def _identity(self) -> str:
        if self.bound == "proc":
            return process_identity(self.item)
        if self.bound == "gpu":
            return f"gpu:{getattr(self.item, 'bus_id', None) or getattr(self.item, 'index', self.place)}"
        return self.name


def process_identity(process: Value) -> str:
    """``process:PID:START``: the number of a process and when it started, so that no later process is taken for it."""
    started = getattr(process, "start_time", None)
    return f"process:{getattr(process, 'pid', '?')}:{'?' if started is None else started}"


def subject_name(bound: str, item: Value, index: int) -> str:
    """What a finding is about: ``GPU 3 (NVIDIA H100)``, ``python (pid 4242)``, ``/opt/venv``."""
    if bound == "gpu":
        return neutral(f"GPU {getattr(item, 'index', index)} ({getattr(item, 'name', None) or 'unknown model'})", 80)
    if bound == "proc":
        return neutral(f"{getattr(item, 'name', None) or 'process'} (pid {getattr(item, 'pid', '?')})", 80)
    for key in ("prefix", "name", "path", "address", "target", "id"):
        value = getattr(item, key, None)
        if value is not None:
            return neutral(str(value), 120)
    return f"#{index}"


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

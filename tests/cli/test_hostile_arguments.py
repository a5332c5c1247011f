"""Whatever a command is given, it answers: one of our exit codes, in bounded time and memory, and never an internal error.

Which options there are, the parsers say: a new command or option is tried without a word here. Everyday tests try a sample of the
values for every third of them, slow tests for the others, `make fuzz` all values.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf.cli import _options, commands
from tests.bombs import repeated
from tests.fuzzing import EXAMPLES

ROOT = Path(__file__).resolve().parent.parent.parent
TRACES = ROOT / "tests/traces"
EVERYDAY_VALUES = 1
EVERYDAY_PLACES = 3
CODES = (0, 1, 2, 3, 4)
NOT_STARTED = (126, 127)
"""As a shell says it of the program that `wrap` starts."""

TEXTS = (
    "", " ", "-", "--", "=", "a=", "=b", ":", ",", "[", "(", "*", "{", "%s%n", "\n", "\x1b[2J\x07", "\u202e\u2066", "\udcff", "true \udcff",
    "0", "-1", "1e999", "nan", "-inf", "9" * 30, "9" * 5_000, "x" * 100_000, "../" * 2_000, "'", '"', "\\", "$(true)", "ssh://", "ssh://[", "ssh://[::1",
    "ssh://-oProxyCommand=true", "ssh://a:b@c:99999", "ssh://\udcff", "http://127.0.0.1:1", "1,2,3,4,x", "1-999999999999", "9999999999999999999d", "2026-13-45",
)  # fmt: skip
BASE: dict[str, tuple[str, ...]] = {
    "agent": ("status", "--socket", "nobody.sock"),
    "analyze": (str(TRACES / "hta_cpu_only.json.gz"),),
    "apply": (),
    "capture": ("out.tar", "--root", "machine"),
    "check": ("--as", "nagios", "--no-agent", "--budget", "300ms"),
    "completion": ("bash",),
    "diff": ("good.json", "good.json"),
    "explain": ("numa.balancing-on",),
    "fleet audit": ("records",),
    "fleet bench": ("records",),
    "fleet diff": ("records",),
    "fleet golden": ("records",),
    "fleet job": ("4242", "records"),
    "fleet mark": ("n1", "--why", "x"),
    "fleet marks": (),
    "fleet unmark": ("n1",),
    "helper": ("--socket", "helper.sock", "--state", "helper", "--idle", "0.1"),
    "kernel": ("install", "x", "--python", sys.executable),
    "lint": ("script.py",),
    "node bench": ("--root", "machine", "--runs", "1", "--only", "memory"),
    "node ranks": ("--job", "4242"),
    "node record": ("--root", "machine"),
    "service": ("status",),
    "stacks": ("999999999",),
    "top": ("--once", "--root", "machine"),
    "trace": ("999999999", "--limit", "1"),
    "tune": ("--minutes", "0.01", "--max-runs", "2"),
    "verify": ("--minutes", "0.01", "--max-pairs", "2", "--a", "true", "--b", "true"),
    "wrap": ("--print", "shell"),
}  # fmt: skip
MACHINE = {"audit", "baseline", "facts", "ps"}
"""What reads a machine is given a captured one, which is smaller."""
BEHIND: dict[str, tuple[str, ...]] = {"tune": ("--", "true"), "wrap": ("--", "true")}
SERVERS = {("agent", option) for option in ("--config", "--rules", "--history", "--interval")} | {("helper", "--idle")}
LEFT_OUT = {
    ("tui", None): "needs a terminal; `top` has the same options, tests/tui/test_serve.py those of --serve",
    ("bench", None): "measures the machine for a minute",
    ("mcp", None): "answers questions until its input ends; tests/mcp asks it",
    ("plugins", None): "takes no value",
}


def cases() -> Iterator[tuple[str, str]]:
    """(command, option or argument) of everything that takes a value which is no choice of ours."""
    for command in commands():
        if (command, None) in LEFT_OUT:
            continue
        for action in _options.parser(command)[0]._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((f"{command} {name}", place) for name, parser in action.choices.items() for place in places(parser))
            elif place := place_of(action):
                yield command, place


def places(parser: argparse.ArgumentParser) -> list[str]:
    return [place for action in parser._actions if (place := place_of(action))]


def place_of(action: argparse.Action) -> str:
    takes_none = action.nargs == 0 or action.choices is not None or isinstance(action, argparse._SubParsersAction)
    return "" if takes_none else action.option_strings[-1] if action.option_strings else f"<{action.dest}>"


def arguments(command: str, place: str, value: str) -> list[str]:
    """The command line on which this place has this value."""
    first, *rest = command.split()
    base = list(BASE.get(command, BASE.get(first, ("--root", "machine") if first in MACHINE else ())))
    if place.startswith("<"):
        kept = [] if first not in ("check", "kernel", "trace", "stacks") else base[:1] if first == "kernel" else base[1:]
        return [first, *rest, *kept, "--", value]
    if (first, place) in SERVERS:
        base = ["--socket", "agent.sock", "--history", "none"] if first == "agent" else base
    behind = BEHIND.get(first, ())
    return [first, *rest, *base, f"{place}={value}", *behind]


NODE = {"taken_at": "2026-11-23T12:00:00Z", "sysperf": "0.1.0", "hardware": {"cpu": "1 × x"}, "comparables": {"kernel.release": "6.1"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files of every kind that nobody should be given."""
    folder = tmp_path_factory.mktemp("hostile")
    machine = folder / "machine"
    (machine / "proc").mkdir(parents=True)
    (machine / "proc/meminfo").write_text("MemTotal: 1024 kB\nMemAvailable: 512 kB\n")
    (folder / "script.py").write_text("import torch\nfor x in loader:\n    loss.item()\n")
    (folder / "records").mkdir()
    for name in ("n1", "n2", "n3", "n4"):
        (folder / f"records/{name}.json").write_text(json.dumps({**NODE, "node": name}))
    (folder / "good.json").write_text(json.dumps({"taken_at": "2026-11-23T00:00:00Z", "areas": {}}))
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(folder) if sys.version_info >= (3, 11) else contextlib.nullcontext():
        make_files(folder / "files", listener)
        yield folder


def make_files(folder: Path, listener: socket.socket) -> None:
    """Each is the content of a form that we read, damaged in a way of its own, or no file at all."""
    folder.mkdir()
    deep = 200_000
    contents = {
        "empty": b"", "byte": b"\xff", "nul": b"\0" * 1_000, "json": b'{"a": "\xff"}', "half.json": b'{"\\ud800": "\\ud800"}', "deep.json": b"[" * deep,
        "deep2.json": b'{"snapshot":' * deep, "number.json": b"9" * 10_000, "list.json": b"[1, null, {}]", "huge.json": b'{"schema": 1' + b"0" * 4_000 + b"}",
        "snapshot.json": b'{"snapshot": {"taken_at": "x", "areas": {"memory": {"facts": {"total_bytes": 1e308}}, "cpu": null}}}',
        "trace.json": b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "\xff", "ts": 1e308, "dur": -1e308, "pid": {}, "tid": []}, {',
        "deep.toml": b"a=" + b"[" * deep, "byte.toml": b'a = "\xff"', "number.toml": b"schema = 1" + b"0" * 5_000, "rule.toml": b'[[rule]]\nid = "\x1b[2J"\n',
        "rule2.toml": b'[[rule]]\nid = "a.b"\ntitle = "x"\nscope = "host"\nseverity = "info"\nconfidence = "low"\nwhen = "' + b"(" * 50_000 + b'"\nmessage = "x"\nexplain = "x"\n',
        "deep.py": b"x = " + b"(" * 100_000, "deep2.py": b"-" * 100_000 + b"1", "byte.py": b"# \xff\nimport torch\n", "coding.py": b"# coding: x\xff\n", "nul.py": b"a\0b",
        "cells.ipynb": b'{"cells": [null, 1, {"cell_type": "code", "source": [1]}]}', "nsys.sqlite": b"SQLite format 3\0" + b"\xff" * 5_000,
        "short.gz": b"\x1f\x8b\x08", "bad.gz": gzip.compress(b'{"traceEvents": [{')[:-6], "bad.tar.zst": b"\x28\xb5\x2f\xfd" + b"\xff" * 500, "bad.tar.xz": b"\xfd7zXZ\0" + b"\0" * 500,
        "ustar.tar": (b"a" * 257 + b"ustar\0").ljust(512, b"9") * 3, "report.nsys-rep": b"\xff" * 100,
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "bomb.gz").write_bytes(repeated(b" " * (1 << 20), 1_024))
    shutil.copyfile(TRACES / "nsysai_mock.sqlite", folder / "numbers.sqlite")
    with sqlite3.connect(folder / "numbers.sqlite") as export:
        export.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = -1, correlationId = 1 << 60, start = -(1 << 61)")
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 42)
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.toml")
    listener.bind(os.path.relpath(folder / "socket"))
    (folder / "nowhere").symlink_to("missing")
    (folder / "itself").symlink_to("itself")
    (folder / "zeros").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "folder/rule.toml")
    (folder / "folder/script.py").symlink_to("/dev/zero")


@pytest.fixture(scope="module")
def values(folder: Path) -> tuple[str, ...]:
    return (
        *TEXTS,
        "missing",
        "/dev/zero",
        "/dev/full",
        "/proc/self/mem",
        *sorted(f"files/{name}" for name in os.listdir(folder / "files")),
    )


class Runner:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, argv: list[str], *, is_server: bool = False) -> tuple[int, str, bool]:
        """(exit code, stderr, whether it had to be killed)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": argv, "is_server": is_server}) + "\n")
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())
        return ended["code"], ended["errors"], ended["hung"]


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[Runner]:
    """Where commands are started, as a user who has nothing yet."""
    home = folder / "home"
    own = {"HOME": home, "XDG_RUNTIME_DIR": home, "STATE_DIRECTORY": home / "state", "CACHE_DIRECTORY": home / "cache", "TMPDIR": home}
    for path in own.values():
        path.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **{name: str(path) for name, path in own.items()}, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forking", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as process:  # fmt: skip
        yield Runner(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("command", "place"),
    [
        pytest.param(*case, marks=pytest.mark.slow if number % EVERYDAY_PLACES else (), id="-".join(case))
        for number, case in enumerate(cases())
    ],
)
def test_every_value_gets_an_answer(command: str, place: str, runner: Runner, values: tuple[str, ...]) -> None:
    """One of our exit codes, in time, within the memory that there is, and no internal error."""
    step = 1 if EXAMPLES else max(1, len(values) // EVERYDAY_VALUES)
    first = 0 if EXAMPLES else zlib.crc32(f"{command}{place}".encode()) % step
    wrong = []
    for value in itertools.islice(values, first, None, step):
        argv = arguments(command, place, value)
        code, errors, hung = runner.run(argv, is_server=(command, place) in SERVERS)
        allowed = (*CODES, *NOT_STARTED) if command == "wrap" else CODES
        if hung or code not in allowed or "internal error" in errors or "Traceback" in errors:
            wrong.append((argv[:12], code, "hung" if hung else errors[-300:]))
    assert not wrong

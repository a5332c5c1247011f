"""Patterns that compile when they are first used behave as compiled ones."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sysperf
from sysperf.startup import LazyPattern, lazy


def test_a_lazy_pattern_is_a_pattern() -> None:
    """Every method gives what the compiled pattern gives; text and bytes, with and without flags."""
    late, now = lazy(r"(\d+)-(?P<word>[a-z]+)", re.IGNORECASE), re.compile(r"(\d+)-(?P<word>[a-z]+)", re.IGNORECASE)
    text = "7-Up and 12-monkeys"

    assert late.findall(text) == now.findall(text)
    assert late.sub("x", text) == now.sub("x", text)
    assert (late.match(text) or [""])[0] == "7-Up"
    assert late.fullmatch(text) is None
    assert [match["word"] for match in late.finditer(text)] == ["Up", "monkeys"]
    assert (late.pattern, late.groups) == (now.pattern, now.groups)
    assert lazy(rb"\d").split(b"a1b") == [b"a", b"b"]


def test_a_wrong_pattern_shows_when_it_is_used() -> None:
    """Nothing is compiled before."""
    wrong = lazy("(")

    with pytest.raises(re.error):
        wrong.search("")


def test_every_pattern_of_sysperf_compiles() -> None:
    """What is compiled late is still checked here."""
    modules = [
        importlib.import_module(module_found.name)
        for module_found in pkgutil.walk_packages(sysperf.__path__, "sysperf.")
        if "__main__" not in module_found.name
    ]
    patterns = [value for module in modules for value in vars(module).values() if isinstance(value, LazyPattern)]

    assert len(patterns) > 100
    assert all(isinstance(pattern.groups, int) for pattern in patterns)


@pytest.mark.parametrize(
    "use",
    [
        "msgspec.json.schema(Record)['$defs']['Record']['properties']['a']['type'] == 'integer'",
        "msgspec.json.schema_components([Record])[0][0]['$ref'] == '#/$defs/Record'",
        "type(msgspec.inspect.type_info(int)).__name__ == 'IntType'",
        "msgspec.msgpack.decode(msgspec.msgpack.encode({'a': 1})) == {'a': 1}",
    ],
)
def test_what_msgspec_is_imported_without_is_there_when_it_is_asked_for(use: str) -> None:
    """The first use imports schemas and other formats, and all are the real ones from then on."""
    script = f"""
from sysperf import startup
startup.import_msgspec()
import msgspec, sys
class Record(msgspec.Struct):
    a: int
    day: "datetime.date | None" = None
later = ("datetime", "uuid", "decimal", "platform", "textwrap", "msgspec.inspect", "msgspec.msgpack", "msgspec.toml", "msgspec.yaml")
assert not set(later) & set(sys.modules)
import datetime
assert {use}
assert {use}
import decimal, uuid, msgspec.inspect
assert msgspec.inspect.type_info and uuid.uuid4() and decimal.Decimal("0.5")
day = msgspec.json.decode('{{"a": 1, "day": "2026-11-22"}}', type=Record).day
assert day == datetime.date(2026, 11, 22) and type(day) is datetime.date
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""


def test_a_start_imports_nothing_by_itself() -> None:
    """`--version` pays for no pattern and no type."""
    script = "import os\nbefore = set(__import__('sys').modules)\nimport sysperf.startup, sys\nprint(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"], capture_output=True, text=True, check=True
    )

    assert done.stdout == "['__future__', 'gc', 'sysperf', 'sysperf.startup']\n"


NEVER_FOR_A_LAUNCH = {
    "argparse", "ast", "bisect", "ctypes.util", "datetime", "decimal", "importlib.metadata", "inspect", "json", "logging", "pathlib",
    "signal", "struct", "subprocess", "tempfile", "textwrap", "tomli", "typing_extensions", "unicodedata", "uuid", "weakref",
    "sysperf.cli._options", "sysperf.collect.openmp", "sysperf.collect.process", "sysperf.evaluate.fix_check",
    "sysperf.host.command_lines", "sysperf.host.files", "sysperf.launch.preload", "sysperf.model.change", "sysperf.report",
}  # fmt: skip


def test_a_launch_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """`wrap` of a program that is no Python, with its rules in the cache; what findings, errors and options need comes with them."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from sysperf.cli import main
main(["wrap", "-q", "--", "/nonexistent"])
print(*sys.modules)
"""
    command, env = [sys.executable, "-I", "-S", "-c", script], {"HOME": str(tmp_path)}
    subprocess.run(command, capture_output=True, check=True, env=env, timeout=300)  # fills the cache
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=300)

    imported = set(done.stdout.split())
    assert "sysperf.launch.start" in imported
    assert not imported & NEVER_FOR_A_LAUNCH


def test_an_agent_imports_nothing_that_reads_source_or_starts_programs() -> None:
    """Of its modules; what asyncio asks of them later is answered by the real ones."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from sysperf import startup
startup.import_msgspec()
startup.import_argparse()
from sysperf.cli import agent
agent._imported()
print(*sys.modules)
import asyncio
async def three():
    process = await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    assert await process.wait() == 0
    return 3
assert asyncio.run(three()) == 3
assert asyncio.iscoroutinefunction(three) and not asyncio.iscoroutinefunction(agent._imported)
assert asyncio.coroutines.inspect.getsource is __import__("inspect").getsource
import linecache, subprocess, traceback
assert traceback.linecache.getline is linecache.getline or traceback.linecache.getline.__self__ is linecache
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    assert not {"ast", "dis", "inspect", "linecache", "locale", "ssl", "subprocess", "tokenize"} & set(done.stdout.split())


def test_a_dashboard_imports_no_web_pages_and_no_cryptography() -> None:
    """OpenSSL alone is 3.6 of the 45 MB that it may take."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from sysperf import startup
startup.import_msgspec()
startup.import_argparse()
from sysperf.cli import tui
tui._prepare()
with startup.without_ssl():
    tui._imported()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    assert "sysperf.tui.app" in done.stdout
    assert not {"hashlib", "html.entities", "ssl", "sysperf.report.frame"} & set(done.stdout.split())


def test_help_and_mistakes_read_the_same_without_gettext() -> None:
    """argparse finds all that it asks for; gettext itself is not imported, and can be afterwards."""
    script = """
from sysperf import startup
import sys
startup.import_argparse()
import argparse
assert "gettext" not in sys.modules
parser = argparse.ArgumentParser(prog="p", exit_on_error=False)
parser.add_argument("--number", type=int)
assert "show this help message" in parser.format_help()
import gettext
assert gettext.gettext("a") == "a"
parser.parse_args(["--number", "x", "y"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)

    assert "argument --number: invalid int value: 'x'" in done.stderr, done.stderr


NEVER_FOR_A_DASHBOARD = {
    "asyncio.sslproto", "calendar", "http.client", "json", "platformdirs", "ssl", "subprocess", "tempfile",
    "sysperf.diagnosis", "sysperf.engine.change", "sysperf.evaluate.judge", "sysperf.fix", "sysperf.report.reference.explain",
}  # fmt: skip


def test_a_dashboard_beside_an_agent_imports_nothing_that_only_acts() -> None:
    """What judges, changes and explains comes with the key that asks for it; what Textual was imported without is there when asked for."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from sysperf import startup
startup.import_msgspec()
startup.import_argparse()
from sysperf.cli import _options, tui
args = _options.parser("tui")[0].parse_args(["--connect", "/nobody"])
with startup.without_ssl(), startup.with_late_parts():
    app = tui._imported()
    with tui.source(args) as origin:
        app(tui.actions(args, origin))
print(*sys.modules)
import asyncio, os
from textual.app import user_downloads_path
async def three():
    process = await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    return 3 + await process.wait()
assert asyncio.run(three()) == 3
assert os.path.isabs(user_downloads_path())
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False, timeout=300)

    assert done.stderr == ""
    assert "sysperf.tui.sources.agent" in done.stdout.split()
    assert not set(done.stdout.split()) & NEVER_FOR_A_DASHBOARD

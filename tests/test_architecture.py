"""The five trips of docs/architecture.md: the files that a datum enters are those that the page names."""

from __future__ import annotations

import ast
import graphlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import grimp
import pytest
import tomli

import sysperf
from sysperf import cli
from sysperf.agent.client import Client
from sysperf.cli import apply, top
from sysperf.engine.change import Changer
from sysperf.model.errors import SysperfError
from sysperf.tui.sources.agent import Agent
from sysperf.tui.widgets import system
from tests.agent.machines import until
from tests.fix.kernel import Machine

ROOT = Path(__file__).parent.parent
SOURCES = [path for folder in ("sysperf", "plugins") for path in (ROOT / folder).rglob("*.py")]
PAGE = (ROOT / "docs/architecture.md").read_text().partition("## Five trips")[2]
TRIPS = re.findall(r"\*\*(.+?)\*\* \((.+?)\)\n(.+?)(?=\n\n|\Z)", PAGE, re.DOTALL)
ALWAYS = """
[[rule]]
id = "memory.there"
title = "There is memory"
scope = "host"
severity = "info"
when = "memory.total_bytes > 0"
message = "{memory.total_bytes | bytes} of memory"
explain = "Every machine has some."
fix = [{ kind = "advice", by = "command", safety = "manual", title = "look at it", command = "free" }]
"""
COMMAND = """
import os, sys, threading
import sysperf.cli
from tests.test_architecture import Entered
entered = Entered()
tell = lambda: open(sys.argv[1], "w").write(" ".join(entered.files))
sys.addaudithook(lambda event, _: tell() if event == "os.exec" else None)
with entered:
    code = sysperf.cli.main(sys.argv[2:])
tell()
os._exit(code)
"""


class Entered:
    """The files of sysperf whose functions are called, in all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> None:
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(_FOLDER):
            self.files.add(code.co_filename[len(_FOLDER) : -len(".py")].removesuffix("/__init__"))


_FOLDER = f"{os.path.dirname(sysperf.__file__)}/"


def named(title: str) -> list[str]:
    """The files that the page names for a trip."""
    (text,) = (text for name, _, text in TRIPS if name == title)
    return list(dict.fromkeys(re.findall(r"`(\w+(?:/\w+)+)`", text)))


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """A command of sysperf that writes down which files it entered."""
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", COMMAND, str(folder / "entered"), *words], env=env, stdout=subprocess.DEVNULL)


def entered_by(folder: Path, *words: str) -> set[str]:
    process = command(folder, *words)
    assert process.wait(60) == 0
    return set((folder / "entered").read_text().split())


def test_there_are_five_trips_and_each_has_as_many_files_as_it_says() -> None:
    """Also, each file exists."""
    assert len(TRIPS) == 5
    for title, about, _ in TRIPS:
        files = named(title)
        assert about.endswith(f"{len(files)} files"), (title, len(files))
        assert all((ROOT / f"sysperf/{file}.py").exists() or (ROOT / f"sysperf/{file}/__init__.py").exists() for file in files), title


def test_the_trips_of_an_audit(tmp_path: Path) -> None:
    """With a cache that is empty, so that rules are read, and with a finding whatever the machine."""
    (tmp_path / "site.toml").write_text(ALWAYS)
    entered = entered_by(tmp_path, "audit", "--fail-on", "never", "--rules", str(tmp_path / "site.toml"))

    for title in ("A file of /proc to a line on the screen", "A rule to the judge"):
        assert set(named(title)) <= entered, title


def test_a_launch_to_exec(tmp_path: Path) -> None:
    """Up to the call that replaces the process."""
    assert set(named("A launch to exec")) <= entered_by(tmp_path, "wrap", "-q", "--", "true")


def test_a_fix_to_the_journal_and_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine made of files."""
    machine = Machine.make(tmp_path / "machine")
    monkeypatch.setattr(apply, "Changer", lambda: Changer(machine.host, str(tmp_path / "state")))
    entered = Entered()
    with entered:
        assert cli.main(["apply", "--set", "vm.swappiness=10", "--yes"]) == 0

    assert set(named("A fix to the journal and the kernel")) <= entered.files


def has_snapshot(socket: str) -> bool:
    """Whether the agent's first audit pass is over."""
    try:
        Client(socket).get("/v1/snapshot")
    except SysperfError:
        return False
    return True


def test_a_sample_to_a_meter(tmp_path: Path) -> None:
    """In the agent up to its socket, and from there in the dashboard."""
    socket = tmp_path / "agent.sock"
    agent = command(tmp_path, "agent", "--socket", str(socket), "--history", "none", "--mode", "observe")
    try:
        until(socket.exists)
        until(lambda: has_snapshot(str(socket)))
        source, entered = Agent(str(socket)), Entered()
        with entered:
            now = top.gathered(source)
            assert any("cpu" in "".join(span.text for span in line.spans) for line in system.draw(now, 100))
        source.close()
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(30) == 0

    files = entered.files | set((tmp_path / "entered").read_text().split())
    assert set(named("A sample to a meter")) <= files


CONTRACTS = {
    contract["name"]: contract for contract in tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
ROOMS = {
    path.stem
    for path in (ROOT / "sysperf").iterdir()
    if path.name != "__init__.py" and (path.suffix == ".py" or (path / "__init__.py").exists())
}
PLUGINS = {path.name for path in (ROOT / "plugins").iterdir() if path.name.startswith("sysperf_")}


def test_the_import_contracts_name_every_room() -> None:
    """A new room has a floor, is closed to plugins unless the interface says otherwise, and does not draw."""
    layers = {room.strip() for floor in CONTRACTS["Imports run downwards"]["layers"] for room in floor.split("|")}
    closed = {
        name.removeprefix("sysperf.") for name in CONTRACTS["Plugins see the machine, the records and their interface"]["forbidden_modules"]
    }
    silent = {name.removeprefix("sysperf.") for name in CONTRACTS["Only the dashboard draws with Textual"]["source_modules"]}

    assert layers == ROOMS - {"__main__"}
    assert closed == layers - {"host", "model", "paths", "plugin", "procfs", "trace"}
    assert silent - PLUGINS == layers - {"tui"}
    assert silent >= PLUGINS


def test_no_modules_need_each_other() -> None:
    """In a circle nothing can be read, moved or tested alone. What only types need does not count."""
    graph = grimp.build_graph("sysperf", exclude_type_checking_imports=True)
    graphlib.TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


def test_records_are_changed_by_names_that_exist() -> None:
    """A constructor's keywords are checked by mypy; those of `msgspec.structs.replace` are not."""
    sources = [source for path in SOURCES if re.search(r"Record\)|Struct|Record,|structs\.replace", source := path.read_text())]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    fields = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"]
    changed = [call for call in calls if call.keywords and ast.unparse(call.func) == "msgspec.structs.replace"]

    assert len(changed) > 100
    assert {keyword.arg for call in changed for keyword in call.keywords if keyword.arg} <= fields


def test_any_stands_beside_its_reason() -> None:
    """What hides a type says why: mypy finds no mistake behind it."""
    named = [
        (path, node.lineno)
        for path in SOURCES
        if "Any" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    lines = {(path.name, line): path.read_text().splitlines()[line - 1] for path, line in named}

    assert len(lines) > 10
    assert {place for place, text in lines.items() if not re.search(r"# any: |# noqa: ANN401 - ", text)} == set()


def test_what_a_window_covers_is_computed_in_one_place() -> None:
    """`Window.covered` does; `HostTime` and `DeviceTime` keep what several figures ask for."""
    found = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "sysperf/trace").rglob("*.py")) if "union(clip(" in path.read_text()]

    assert found == ["sysperf/trace/accounting/window.py"]

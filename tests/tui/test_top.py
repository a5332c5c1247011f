"""`sysperf top --once`: what the dashboard shows, for scripts; and what `sysperf` and `sysperf tui` do without a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf.cli import top
from sysperf.model.errors import UsageError
from sysperf.tui.source import Facts, Meters
from tests.agent.states import serving
from tests.invoking import sysperf
from tests.tui.machines import Still, laptop, news

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with nothing to read and no terminal."""
    return sysperf(*arguments, cwd=ROOT)


def test_once_prints_meters_and_findings() -> None:
    """This machine as text: rates are there, since two samples are taken, and nothing is coloured in a pipe."""
    done = run("top", "--once", "--no-agent")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "memory   " in done.stdout
    assert "cpu      " in done.stdout
    assert "not measured" not in done.stdout.split("network")[0].split("cpu      ")[1].split("\n")[0]


def test_once_as_json_asks_the_agent(tmp_path: Path) -> None:
    """Meters, programs and findings of the agent's, as one JSON object."""
    with serving(tmp_path) as running:
        done = run("top", "--once", "--json", "--connect", running.path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    assert data["meters"]["cpu.busy"] == 0.25
    assert [finding["rule"] for finding in data["findings"]] == ["numa.balancing-on"]


def test_no_agent_is_said_with_what_to_do(tmp_path: Path) -> None:
    """Once is once: nobody tries again."""
    done = run("top", "--once", "--connect", str(tmp_path / "none"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "no agent answers" in done.stderr
    assert "trying again" not in done.stderr
    assert "`sysperf agent` starts one" in done.stderr


ODD_ANSWERS = ["{}", "null", '{"processes": 3, "meters": []}', "{"]


@contextlib.contextmanager
def odd_agent(folder: Path, body: str) -> Iterator[str]:
    """A socket that gives the same body to every question."""
    path = str(folder / "odd.sock")
    answer = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(answer)

    with socketserver.ThreadingUnixStreamServer(path, Answer) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield path
        server.shutdown()


@pytest.mark.parametrize("body", ODD_ANSWERS)
@pytest.mark.parametrize("command", [["top", "--once", "--connect"], ["agent", "status", "--socket"], ["agent", "events", "--socket"]])
def test_an_agent_that_answers_something_else_is_one_line_and_a_next_step(tmp_path: Path, command: list[str], body: str) -> None:
    """No report, no traceback, and no advice to run the command that has just failed."""
    with odd_agent(tmp_path, body) as path:
        done = run(*command, path)

    assert (done.returncode, done.stdout) == (2, "")
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("sysperf: ")
    assert hint.startswith("  hint: ")
    assert "sysperf agent status" not in done.stderr


def test_a_source_that_says_nothing_is_an_error() -> None:
    """Not an empty report, and not a wait without end."""
    with pytest.raises(UsageError, match="nothing came"):
        top.gathered(Still([]), wait_s=0.05)


def test_once_waits_until_the_kernel_has_counted_a_tick() -> None:
    """Two samples of one tick have no CPU load; a machine that never tells it is printed all the same."""
    report = laptop()
    empty = Meters(1.0, {"memory.available_bytes": 1.0})
    counted = Meters(2.0, {"cpu.busy": 0.5})
    assert top.gathered(Still([Facts(report), empty, empty, counted]), wait_s=1).meters["cpu.busy"] == 0.5
    assert "cpu.busy" not in top.gathered(Still([Facts(report), *[empty] * 20]), wait_s=1).meters


def test_a_captured_machine_needs_one_sample() -> None:
    """A machine that stands still has no rates to wait for."""
    source = Still(news(laptop()))
    source.live = False
    assert top.gathered(source, wait_s=1).report is not None


def test_once_prints_where_the_language_has_no_utf8() -> None:
    """As every report: UTF-8, whatever LANG says."""
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "sysperf", "top", "--once", "--no-agent"],
        cwd=ROOT, capture_output=True, check=False, timeout=300, stdin=subprocess.DEVNULL, env={**os.environ, **poor},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert "✗ " in done.stdout.decode()


def test_without_a_terminal_there_is_no_dashboard() -> None:
    """`sysperf tui` says what to use instead; bare `sysperf` prints the help; --json alone is a mistake."""
    done = run("tui")
    assert (done.returncode, "needs a terminal" in done.stderr) == (2, True)
    assert "usage: sysperf" in run().stdout
    assert run("top", "--json").returncode == 2
    assert run("tui", "--connect", "ssh://-oX", "--root", "x").returncode == 2


def test_only_the_dashboard_pays_for_textual() -> None:
    """`top --once` draws the same lines without importing Textual or rich."""
    code = "import sys; from sysperf.cli import main; main(['top', '--once', '--no-agent']); print([m for m in sys.modules if m.split('.')[0] in ('textual', 'rich')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "[]"

"""The real thing in a real terminal: tmux draws it, keys reach it, and it leaves the terminal as it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import fixture_folder

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux")


class Terminal:
    """A tmux server of its own, with one window that runs a shell."""

    def __init__(self, folder: Path) -> None:
        self._name = f"sysperf-test-{uuid.uuid4().hex[:12]}"
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder),
            "TERM": "xterm-256color",
        }
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env PS1='$ ' sh -i")
        self.tmux("set", "-g", "escape-time", "10")

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *arguments], env=self._environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
        )
        return done.stdout

    def type(self, text: str, *keys: str) -> None:
        self.tmux("send-keys", text, *keys)

    def shown(self) -> str:
        return self.tmux("capture-pane", "-p")

    def waits_for(self, text: str, within_s: float = 60) -> str:
        """The screen, once it holds this."""
        end = time.monotonic() + within_s
        while text not in (screen := self.shown()):
            assert time.monotonic() < end, f"{text!r} is not in\n{screen}"
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], capture_output=True, check=False, timeout=300)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    emulator = Terminal(tmp_path)
    yield emulator
    emulator.close()


def start(terminal: Terminal, options: str, wanted: str) -> int:
    """Start the dashboard in the background of no shell, and tell its process number."""
    terminal.type(f"echo pid $$; exec 3>&1; {sys.executable} -m sysperf tui --no-agent {options}; echo ended $?", "Enter")
    terminal.waits_for(wanted)
    shell = terminal.tmux("display-message", "-p", "#{pane_pid}").strip()
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return int(children[-1])


def is_clean(terminal: Terminal, ended: str) -> None:
    """The shell's line is back, mouse reports and the alternate screen are off, and the cursor is shown."""
    terminal.waits_for(ended)
    state = terminal.tmux("display-message", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}").split()
    assert state == ["0", "0", "1"]
    terminal.type("echo still $((40 + 2))", "Enter")
    terminal.waits_for("still 42")


def test_this_machine_in_a_terminal(terminal: Terminal) -> None:
    """It starts without agent, GPU or root, shows every screen, follows a new size, and ends with q."""
    start(terminal, "", "memory ")
    terminal.waits_for("memory ")
    for key, wanted in (
        ("2", "by cost"),
        ("3", "PyTorch program"),
        ("4", "threads of a core"),
        ("5", "There is no history here"),
        ("6", " 6 Changes "),  # root's own changes lie where everybody sees them
        ("7", "measured"),
    ):
        terminal.type(key)
        terminal.waits_for(wanted)
    terminal.tmux("resize-window", "-x", "80", "-y", "24")
    terminal.type("1")
    assert max(map(len, terminal.waits_for("✗ ").splitlines())) <= 80
    terminal.type("q")
    is_clean(terminal, "ended 0")


def test_the_language_of_the_files_is_not_the_terminals(terminal: Terminal) -> None:
    """Where LANG says ASCII, bars are bars: no terminal of today reads anything but UTF-8."""
    terminal.type("export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", "Enter")
    start(terminal, "", "memory ")
    assert "\\u" not in terminal.waits_for("pressure ")
    terminal.type("q")
    is_clean(terminal, "ended 0")


def test_it_is_stopped_and_goes_on(terminal: Terminal) -> None:
    """Ctrl+Z gives the shell a clean terminal; fg brings the dashboard back."""
    terminal.type(f"{sys.executable} -m sysperf tui --no-agent", "Enter")
    terminal.waits_for("memory ")
    terminal.type("C-z")
    is_clean(terminal, "Stopped")
    terminal.type("fg", "Enter")
    terminal.waits_for("memory ")
    terminal.type("q")
    is_clean(terminal, "$ ")


@pytest.mark.parametrize("how", ["2>/dev/null", "</dev/null", "| cat", ""], ids=["stderr", "stdin", "stdout", "dumb"])
def test_what_is_no_terminal_is_refused(terminal: Terminal, how: str) -> None:
    """Textual draws on stderr: without it there would be a blank screen, and on a dumb terminal a litter of codes."""
    before = "" if how else "TERM=dumb "
    terminal.type(f"{before}{sys.executable} -m sysperf tui --no-agent {how}; echo so $((40 + 2))", "Enter")
    screen = terminal.waits_for("so 42")
    assert "Overview" not in screen
    assert how == "2>/dev/null" or "the dashboard needs a terminal" in screen


def test_a_captured_machine_ended_by_a_signal(terminal: Terminal) -> None:
    """SIGTERM leaves the terminal clean, too; the exit code says which signal it was."""
    folder = fixture_folder("hwloc")
    number = start(terminal, f"--root {folder}/nvidiagpunumanodes.tar.bz2", "memory ")
    os.kill(number, signal.SIGTERM)
    is_clean(terminal, f"ended {128 + signal.SIGTERM}")


def test_a_crash_leaves_the_terminal_clean(terminal: Terminal, tmp_path: Path) -> None:
    """An internal error is one line on a clean screen, without our variables."""
    code = "import sysperf.tui.app as a; a.Dashboard.action_help = lambda self: 1 / 0; from sysperf.cli import entry; entry()"
    script = tmp_path / "crash.py"
    script.write_text(code)
    terminal.type(f"{sys.executable} {script} tui --no-agent; echo ended $?", "Enter")
    terminal.waits_for("memory ")
    terminal.type("?")
    is_clean(terminal, "ended 2")
    screen = terminal.tmux("capture-pane", "-p", "-S", "-200")
    assert "sysperf: internal error: ZeroDivisionError: division by zero" in screen
    assert "Traceback" not in screen

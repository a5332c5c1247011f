"""Signals that end a command do so through its clean-up, on real processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

COMMAND = """
import signal, sys, time
from sysperf.cli import _signals
if sys.argv[2:]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
getattr(_signals, sys.argv[1])()
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("interrupted")
finally:
    print("cleaned up", flush=True)
"""


def ended_by(number: signal.Signals, how: str, *options: str) -> tuple[int, list[str]]:
    """(exit code, what it printed) of a command that gets a signal."""
    argv = (sys.executable, "-c", COMMAND, how, *options)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as command:
        assert command.stdout
        assert command.stdout.readline() == "ready\n"
        command.send_signal(number)
        if options:
            command.send_signal(signal.SIGTERM)
        output = command.stdout.read().splitlines()
    return command.returncode, output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ending_signal_goes_through_the_clean_up(number: signal.Signals) -> None:
    """With the shell's code for it, or as Ctrl-C does it."""
    assert ended_by(number, "exit_through_cleanup") == (128 + number, ["cleaned up"])
    assert ended_by(number, "act_as_interrupt") == (0, ["interrupted", "cleaned up"])


@pytest.mark.parametrize("how", ["exit_through_cleanup", "act_as_interrupt"])
def test_what_is_started_under_nohup_outlives_its_terminal(how: str) -> None:
    """SIGHUP stays ignored: it is SIGTERM, sent after it, that ends the command."""
    code, output = ended_by(signal.SIGHUP, how, "nohup")

    assert (code, output) == ((143, ["cleaned up"]) if how == "exit_through_cleanup" else (0, ["interrupted", "cleaned up"]))

"""`sysperf verify` as a user runs it: verdicts and exit codes, errors, what is kept, Ctrl-C and --resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SPEED = ("--metric", "speed: ([0-9.]+)", "--higher-is-better", "--max-pairs", "6", "--seed", "1", "--keep-disturbed")


def says(speed: float) -> str:
    """A command that prints this speed."""
    return f"sh -c 'echo speed: {speed}'"


def verify(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `sysperf verify` with a state folder of its own."""
    return subprocess.run(
        (sys.executable, "-m", "sysperf", "verify", *argv),
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def environment(home: Path) -> dict[str, str]:
    """Variables with which nothing of the user's or the system's state is touched."""
    return {**os.environ, "STATE_DIRECTORY": str(home), "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.mark.parametrize(
    ("a", "b", "options", "sentence", "code"),
    [
        (10.0, 12.0, (), "B is 20.0 % faster than A", 0),
        (10.0, 9.0, (), "B is 10.0 % slower than A", 1),
        (10.0, 10.05, (), "B and A are equally fast, within 1 %", 0),
        (10.0, 9.9, ("--fail-if-slower", "2"), "A are equally fast", 0),
        (10.0, 9.5, ("--fail-if-slower", "2"), "slower", 1),
    ],
)
def test_the_verdict_is_a_sentence_and_an_exit_code(
    tmp_path: Path, a: float, b: float, options: tuple[str, ...], sentence: str, code: int
) -> None:
    """Of two programs that print their speed."""
    done = verify(tmp_path, *SPEED, *options, "--margin", "1.1" if code == 0 and b == 9.9 else "1", "--a", says(a), "--b", says(b))

    assert sentence in done.stdout, done.stdout + done.stderr
    assert done.returncode == code


def test_formats_say_the_same(tmp_path: Path) -> None:
    """JSON for machines, Markdown for a pull request, a page on its own; hostile names do nothing."""
    both = ("--a", "sh -c 'echo speed: 10 # <b>|`'", "--b", says(12.0))
    found = json.loads(verify(tmp_path, *SPEED, "--json", *both).stdout)["comparison"]
    markdown = verify(tmp_path, *SPEED, "--format", "markdown", *both).stdout
    page = verify(tmp_path, *SPEED, "--format", "html", *both).stdout

    assert (found["verdict"], found["pairs"], round(found["ratio"], 3)) == ("faster", 6, 1.2)
    assert {run["arm"] for run in found["runs"]} == {"a", "b"}
    assert markdown.startswith("**B is 20.0 % faster than A**")
    assert "\\|'" in markdown
    assert "<b>" not in page
    assert page.count("<circle") == len(found["runs"]) - 2


def test_a_result_is_kept_for_the_dashboard(tmp_path: Path) -> None:
    """One line of trials.jsonl, of this user alone."""
    verify(tmp_path, *SPEED, "--a", says(10), "--b", says(12))
    (line,) = (tmp_path / "trials.jsonl").read_text().splitlines()

    kept = json.loads(line)
    assert (kept["experiment"], kept["verdict"], kept["baseline"]) == ("verify", "faster", 10.0)
    assert (tmp_path / "trials.jsonl").stat().st_mode & 0o077 == 0


def test_plain_and_wrapped_is_what_is_compared_without_options(tmp_path: Path) -> None:
    """The wrapped runs go through `sysperf wrap`."""
    done = verify(tmp_path, "--max-pairs", "2", "--json", "--", "true")

    found = json.loads(done.stdout)["comparison"]
    assert (found["a"]["name"], found["a"]["argv"]) == ("plain", ["true"])
    assert found["b"]["argv"][1:4] == ["-m", "sysperf", "wrap"]


def test_two_interpreters(tmp_path: Path) -> None:
    """`--env` twice replaces the command's python."""
    done = verify(tmp_path, *SPEED, "--json", "--env", sys.executable, "--env", sys.prefix, "--", "python", "-c", "print('speed: 5')")

    assert json.loads(done.stdout)["comparison"]["verdict"] == "same", done.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no command to run"),
        (("--a", "true"), "--a and --b go together"),
        (("--metric", "(", "--", "true"), "--metric"),
        (("--max-pairs", "1", "--", "true"), "two pairs"),
        (("--steps", "optimizer", "--", sys.executable, "-c", "pass"), "made no optimizer steps"),
        (("--metric", "x([0-9])", "--", "echo", "y"), "matches"),
        (("--a", "/nothing/of/this/name", "--b", "/nothing/of/this/name"), "No such file"),
        (("--", "sh", "-c", "echo why; exit 7"), "exit code 7"),
        (("--", "sh", "-c", "sleep 300 & exit 0"), "left something running"),
        (("--limit", "0.5", "--", "sleep", "300"), "ended after 0.5 s"),
    ],
)
def test_what_cannot_be_compared_is_an_error_with_the_next_step(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """Exit code 2, a line of what and a line of what to do."""
    done = verify(tmp_path, *argv)

    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_keeps_what_is_there_and_resume_goes_on(tmp_path: Path) -> None:
    """After some runs: a verdict of those, and later the same study with more."""
    command = (*SPEED, "--a", "sh -c 'echo speed: 10; sleep 0.2'", "--b", "sh -c 'echo speed: 12; sleep 0.2'")
    with subprocess.Popen(
        (sys.executable, "-m", "sysperf", "verify", *command),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as sysperf:
        assert sysperf.stderr
        assert sysperf.stdout
        for line in sysperf.stderr:
            if "3 pairs" in line:
                break
        time.sleep(0.1)
        sysperf.send_signal(signal.SIGINT)
        printed = sysperf.stdout.read()
    resumed = json.loads(verify(tmp_path, *command, "--resume", "--json").stdout)["comparison"]

    assert "interrupted" in printed
    assert sysperf.returncode in {0, 3}
    assert resumed["verdict"] == "faster"
    assert resumed["pairs"] == 6
    assert resumed["seed"] == 1


def nice_of(pid: int) -> int:
    """The nice value of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


def test_a_setting_is_there_in_one_variant_only_and_taken_back(tmp_path: Path) -> None:
    """`--set` on a real process: the program sees the value in B's runs alone, and afterwards all is as it was."""
    with subprocess.Popen(("sleep", "300")) as other:
        program = f"read -r line < /proc/{other.pid}/stat; set -- $line; echo level: $((10 + ${{19}}))"
        done = verify(
            tmp_path, "--metric", "level: ([0-9]+)", "--higher-is-better", "--max-pairs", "3", "--keep-disturbed", "--json",
            "--yes", "--set", f"process.nice@{other.pid}=5", "--", "sh", "-c", program,
        )  # fmt: skip
        after = nice_of(other.pid)
        other.kill()
    found = json.loads(done.stdout)["comparison"]

    assert {run["arm"]: run["value"] for run in found["runs"]} == {"a": 10.0, "b": 15.0}
    assert after == 0
    assert found["b"]["name"] == f"process.nice@{other.pid}=5"
    assert json.loads((tmp_path / "trials.jsonl").read_text())["fingerprint"]


def test_the_machine_is_not_changed_without_a_yes(tmp_path: Path) -> None:
    """The plan is shown, and nothing runs and nothing is changed where nobody can be asked."""
    with subprocess.Popen(("sleep", "300")) as other:
        done = verify(tmp_path, "--set", f"process.nice@{other.pid}=5", "--", "touch", str(tmp_path / "ran"))
        after = nice_of(other.pid)
        other.kill()

    assert done.returncode == 2
    assert "+ 5" in done.stderr
    assert "add --yes" in done.stderr
    assert after == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--fix", "no.such-rule", "--", "true"), "no rule `no.such-rule`"),
        (("--fix", "drift.from-reference", "--", "true"), "finds nothing on this machine"),
        (("--set", "vm.swappiness", "--", "true"), "vm.swappiness takes"),
        (("--set", "vm.swappiness=10", "--a", "true", "--b", "true"), "give one of them"),
    ],
)
def test_what_cannot_be_tried_is_an_error(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """Unknown rules, rules without a finding, settings without a value, two things at once."""
    done = verify(tmp_path, *argv)

    assert done.returncode == 2
    assert message in done.stderr

"""plan, apply, undo and changes as a person meets them: real processes, a terminal, signals. Only a child of the test is changed."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysperf.cli.apply import left, span
from sysperf.engine.change import Manual
from sysperf.fix.journal import Journal
from sysperf.model.knob import KNOBS
from tests.fix import journals
from tests.invoking import sysperf
from tests.report import reports
from tests.report.hostile import harmless

ROOT = Path(__file__).resolve().parents[2]
SYSPERF = [sys.executable, "-m", "sysperf"]
RULE = """
[[rule]]
id = "test.always"
title = "True on any machine"
scope = "host"
severity = "hint"
when = "kernel.release != ''"
message = "A rule of the tests."
explain = "It is there so that there is something to fix."
refs = ["https://docs.kernel.org/admin-guide/sysctl/vm.html#swappiness"]
fix = [{{ {fix}, safety = "{safety}" }}]
"""


class Desk:
    """A folder of one's own to run commands in, and a child whose settings may be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.child = subprocess.Popen(["sleep", "600"])
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "SYSPERF_DEBUG")},
            "STATE_DIRECTORY": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONPATH": str(ROOT),
        }

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`sysperf WORDS` without a terminal."""
        return sysperf(*words, cwd=self.folder, env={**self.env, **env})

    @property
    def journal(self) -> Journal:
        return Journal(str(self.folder / "state"))

    @property
    def wish(self) -> tuple[str, str]:
        return "--set", f"process.io_class@{self.child.pid}=idle"

    @property
    def io_class(self) -> str:
        return (
            subprocess.run(["ionice", "-p", str(self.child.pid)], capture_output=True, text=True, check=True).stdout.split(":")[0].strip()
        )

    def rule(self, safety: str = "safe", fix: str = "") -> str:
        path = self.folder / "rule.toml"
        idle = f'kind = "setting", knob = "process.io_class", value = "idle", item = "{self.child.pid}"'
        path.write_text(RULE.format(fix=fix or idle, safety=safety))
        return str(path)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """The desk of one test; nothing of it stays."""
    if not shutil.which("ionice"):
        pytest.skip("no ionice: install util-linux")
    made_desk = Desk(tmp_path)
    yield made_desk
    made_desk.run("undo", "--all", "--force")
    made_desk.child.kill()
    made_desk.child.wait()


# ---------------------------------------------------------------------- the whole way


def test_what_was_done_goes_to_a_file(desk: Desk) -> None:
    """Of `apply` and `undo`, as of other commands; the plan of a question stays before the eyes, and a file that cannot be is said first."""
    asked = desk.run("apply", *desk.wish, "--output", "done.json", "--json")
    refused = desk.run("apply", "--yes", *desk.wish, "--output", "nowhere/done.json")
    assert (asked.returncode, refused.returncode, desk.io_class) == (2, 2, "none")
    assert '"plan"' in asked.stdout
    assert not (desk.folder / "done.json").exists()

    for words, key in ((("apply", "--yes", *desk.wish), "transaction"), (("undo",), "undone")):
        done = desk.run(*words, "--json", "--output", "done.json")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert key in json.loads((desk.folder / "done.json").read_text())


def test_plan_apply_changes_undo(desk: Desk) -> None:
    """Each step says what it did; a second undo has nothing to do."""
    planned = desk.run("plan", *desk.wish)
    assert planned.returncode == 0
    assert "- none\n  + idle" in planned.stdout
    assert "Nothing was changed" in planned.stdout
    assert not (desk.folder / "state").exists(), "a plan writes nothing"

    applied = desk.run("apply", "--yes", *desk.wish)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert "1 setting changed and read back" in applied.stdout
    assert desk.io_class == "idle"

    listed = desk.run("changes")
    assert "holds" in listed.stdout
    assert "in force" in listed.stdout
    again = desk.run("apply", "--yes", *desk.wish)
    assert again.returncode == 0
    assert "already" in again.stdout

    undone = desk.run("undo")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert "back to none" in undone.stdout
    assert desk.io_class == "none"
    assert desk.run("undo").stdout == "Nothing to take back.\n"
    assert desk.run("undo", "1").returncode == 0
    assert "undone" in desk.run("changes").stdout


def test_a_finding_becomes_a_change(desk: Desk) -> None:
    """A rule that fires, by its safe fix; named in the plan, in the list and in the journal."""
    rule = desk.rule()
    planned = desk.run("plan", "--rules", rule, "test.always")
    assert "for test.always" in planned.stdout
    applied = desk.run("apply", "--yes", "--rules", rule, "test.always")
    assert applied.returncode == 0, applied.stderr
    assert desk.io_class == "idle"
    assert "for test.always" in desk.run("changes").stdout
    assert desk.run("undo").returncode == 0
    assert desk.io_class == "none"


def test_a_cautious_fix_is_left_to_a_person_until_it_is_named(desk: Desk) -> None:
    """Without its name or --caution it is listed, with what includes it."""
    rule = desk.rule("caution")
    left = desk.run("plan", "--rules", rule, "--select", "test.always")
    assert "Left to you" in left.stdout
    assert "--caution" in left.stdout
    for words in (("test.always",), ("--select", "test.always", "--caution")):
        assert "+ idle" in desk.run("plan", "--rules", rule, *words).stdout


def test_what_keeps_users_apart_is_changed_by_name_only(desk: Desk) -> None:
    """--caution is for speed; who opens a machine's counters to everybody says so."""
    now = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    fix = f'kind = "sysctl", key = "kernel.perf_event_paranoid", value = {2 if now != 2 else 1}'
    rule = desk.rule("caution", fix)
    left = desk.run("plan", "--rules", rule, "--select", "test.always", "--caution").stdout
    assert "keeps users from each other: `sysperf apply test.always` includes it" in left
    named = desk.run("plan", "--rules", rule, "test.always").stdout
    assert "keeps users from each other" not in named
    assert "/proc/sys/kernel/perf_event_paranoid" in named or "kernel.perf_event_paranoid: only root may write it" in named


def test_what_was_interrupted_is_taken_back_first(desk: Desk) -> None:
    """Killed in the middle: the next apply says so, and plans with what was there before."""
    assert desk.run("apply", "--yes", *desk.wish).returncode == 0
    journals.edit(desk.journal, lambda line: line if line["line"] != "end" else None)
    done = desk.run("apply", "--yes", *desk.wish)
    assert "interrupted" in done.stderr
    assert "Transaction 2" in done.stdout
    assert desk.run("undo", "--all").returncode == 0
    assert desk.io_class == "none"


def test_a_lease_ends(desk: Desk) -> None:
    """By itself, after the command has ended."""
    started = time.monotonic()
    assert desk.run("apply", "--yes", "--lease", "2s", *desk.wish).returncode == 0
    assert desk.io_class == "idle"
    assert re.search(r"\d s left", desk.run("changes").stdout)
    while desk.io_class == "idle" and time.monotonic() - started < 20:
        time.sleep(0.1)
    assert desk.io_class == "none"
    assert time.monotonic() - started >= 2


def test_expired_takes_back_only_what_is_over(desk: Desk) -> None:
    """A lease that still runs stays."""
    desk.run("apply", "--yes", "--lease", "1h", *desk.wish)
    assert "Nothing to take back" in desk.run("undo", "--expired").stdout
    assert desk.io_class == "idle"
    journals.edit(desk.journal, lambda line: {**line, "lease": {**line["lease"], "boot": "another"}} if "lease" in line else line)
    done = desk.run("undo", "--expired")
    assert done.returncode == 0
    assert desk.io_class == "none"


def test_a_lease_that_nobody_ended_is_not_called_in_force(desk: Desk) -> None:
    """Without systemd, its keeper killed: `changes` and `plan` say so and what ends it, and the next `apply` does."""
    desk.run("apply", "--yes", "--lease", "1h", *desk.wish)
    keeper = desk.journal.read(1).keeper
    assert keeper
    os.kill(keeper.pid, signal.SIGKILL)
    journals.edit(desk.journal, lambda line: {**line, "lease": {**line["lease"], "until_s": 1.0}} if "lease" in line else line)

    listed = desk.run("changes").stdout
    assert "in force" not in listed
    assert "0 s left" not in listed
    assert "lease ended" in listed
    assert "`sysperf undo --expired`" in listed
    planned = desk.run("plan", *desk.wish)
    assert "transaction 1: its lease has ended" in planned.stderr
    assert "`sysperf undo --expired`" in planned.stderr
    assert desk.io_class == "idle"
    assert "lease has ended" in desk.run("apply", "--yes", "--lease", "1h", *desk.wish).stderr
    assert desk.run("undo", "2", "--yes").returncode == 0
    assert desk.io_class == "none"


@pytest.mark.root(users=True)
def test_a_journal_of_root_does_not_hide_ones_own(desk: Desk) -> None:
    """What this user may not read is named with a hint, exit 3; the user's own changes are listed."""
    desk.run("apply", "--yes", *desk.wish)
    state = desk.folder / "state"
    nobody = pwd.getpwnam("nobody").pw_uid
    script = (
        "import os, sys, ctypes, resource, argparse, msgspec, locale, gettext, encodings.idna, shutil\nfrom sysperf import paths\n"
        "import sysperf.cli.changes, sysperf.fix.plan, sysperf.host.syscalls, sysperf.report.changes\n"
        "paths.SYSTEM_STATE = sys.argv.pop(1)\n"
        f"os.setgid({nobody}); os.setuid({nobody})\n"
        "sys.exit(sysperf.cli.main(sys.argv[1:]))"
    )
    machine = desk.folder / "machine"
    (machine / "changes").mkdir(parents=True)
    machine.chmod(0o700)
    for path in (desk.folder, *desk.folder.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)

    done = subprocess.run(
        [sys.executable, "-c", script, str(machine), "changes"],
        env={**desk.env, "STATE_DIRECTORY": str(state)}, cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 3, done.stderr
    assert f"{machine}/changes: Permission denied" in done.stderr
    assert "as root" in done.stderr
    assert "in force" in done.stdout


def test_what_somebody_changed_since_is_kept(desk: Desk) -> None:
    """Exit code 3, and who has a say; --force takes it back."""
    desk.run("apply", "--yes", *desk.wish)
    subprocess.run(["ionice", "-c", "2", "-n", "7", "-p", str(desk.child.pid)], check=True)
    kept = desk.run("undo")
    assert kept.returncode == 3
    assert "left as it is: somebody has set it to best-effort:7 since" in " ".join(kept.stdout.split())
    assert desk.run("undo", "--force").returncode == 0
    assert desk.io_class == "none"


def test_what_was_kept_is_not_in_the_way_of_earlier_ones(desk: Desk) -> None:
    """`undo` without a number goes on with the latest that is in force."""
    nice = f"process.cpus@{desk.child.pid}={min(os.sched_getaffinity(0))}"
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU only")
    desk.run("apply", "--yes", "--set", nice)
    desk.run("apply", "--yes", *desk.wish)
    subprocess.run(["ionice", "-c", "2", "-n", "7", "-p", str(desk.child.pid)], check=True)
    assert desk.run("undo").returncode == 3
    assert desk.run("undo").returncode == 0
    assert os.sched_getaffinity(desk.child.pid) == os.sched_getaffinity(0)
    assert desk.run("undo").returncode == 3, "nothing else is left: the kept one is reported again"


def test_cpus_that_are_not_there_are_refused_before_anything_is_done(desk: Desk) -> None:
    """Not by the kernel: the plan says so, and makes no change of it."""
    done = desk.run("plan", "--set", f"process.cpus@{desk.child.pid}=60000")
    assert "CPU 60000 is not online here" in done.stdout
    assert "Nothing to change" in done.stdout
    assert done.returncode == 3, "as of `apply`: what was named is left alone"


@pytest.mark.root(mounts=True)
def test_a_refused_step_exits_with_four(desk: Desk) -> None:
    """CPUs that the machine only says it has: rolled back, with the reason."""
    (desk.folder / "online").write_text("0-60000\n")
    lie = f'mount --bind {desk.folder}/online /sys/devices/system/cpu/online && exec "$@"'
    words = ("apply", "--yes", *desk.wish, "--set", f"process.cpus@{desk.child.pid}=60000")
    argv = ["unshare", "--mount", "sh", "-c", lie, "sh", sys.executable, "-m", "sysperf", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=desk.env)
    assert done.returncode == 4, done.stderr
    assert "refused: Invalid argument" in done.stdout
    assert "every value is as it was" in done.stdout
    assert desk.io_class == "none"
    assert "rolled back" in desk.run("changes").stdout


# ---------------------------------------------------------------------- asking


def on_terminal(desk: Desk, *words: str, answer: str) -> tuple[int, str]:
    """(exit code, what was shown) on a terminal where `answer` is typed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([*SYSPERF, *words], env=desk.env, cwd=desk.folder, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    output = b""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                part = os.read(leader, 4096)
            except OSError:
                break
            if not part:
                break
            output += part
            if b"[y/N]" in part:
                os.write(leader, answer.encode())
        elif process.poll() is not None:
            break
    os.close(leader)
    return process.wait(timeout=10), output.decode()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 2), ("\n", 2), ("Yess\n", 2), ("\x04", 2)])
def test_a_question_is_asked_on_a_terminal(desk: Desk, answer: str, code: int) -> None:
    """The plan first, then one line; only a yes changes something."""
    exit_code, output = on_terminal(desk, "apply", *desk.wish, answer=answer)
    assert exit_code == code, output
    assert output.index("+ idle") < output.index("Change 1 setting? [y/N]")
    assert desk.io_class == ("idle" if code == 0 else "none")
    assert ("nothing was changed" in output) == (code == 2)


def test_without_a_terminal_nothing_is_changed(desk: Desk) -> None:
    """The plan is shown, and what to add."""
    for words in ((), ("--format", "json")):
        done = desk.run("apply", *desk.wish, *words)
        assert done.returncode == 2
        assert "idle" in done.stdout
        assert "--yes" in done.stderr
        assert desk.io_class == "none"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle(desk: Desk, ending: signal.Signals) -> None:
    """While another sysperf has the lock, or while it works: it ends, and everything is as it was."""
    os.makedirs(desk.folder / "state/changes")
    lock = desk.folder / "state/changes/lock"
    import fcntl

    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [*SYSPERF, "apply", "--yes", *desk.wish], env=desk.env, cwd=desk.folder, stderr=subprocess.PIPE, text=True
        )
        while str(lock) not in _opened(process.pid):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(ending)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert desk.io_class == "none"


def _opened(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # one was closed meanwhile
        return {os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
    return set()


# ---------------------------------------------------------------------- what is said


def test_json_is_json(desk: Desk) -> None:
    """On each way, with one schema number."""
    plan = json.loads(desk.run("plan", *desk.wish, "--format", "json").stdout)
    assert plan["schema"] == 2
    assert plan["plan"]["changes"][0]["after"] == "idle"
    applied = json.loads(desk.run("apply", "--yes", *desk.wish, "--format", "json").stdout)
    assert applied["transaction"]["state"] == "applied"
    listed = json.loads(desk.run("changes", "--format", "json").stdout)
    mine = [journal for journal in listed["journals"] if journal["folder"].startswith(str(desk.folder))]
    assert mine[0]["transactions"][0]["standing"][0]["verdict"] == "holds"
    undone = json.loads(desk.run("undo", "--format", "json").stdout)
    assert undone["undone"][0]["step"]["state"] == "undone"
    assert undone["problems"] == []
    assert {journal["name"] for journal in json.loads(desk.run("plan", "--list", "--format", "json").stdout)} == set(KNOBS)


def test_the_list_has_every_setting(desk: Desk) -> None:
    """With its range and where it is documented."""
    output = desk.run("plan", "--list", COLUMNS="160").stdout
    for knob in KNOBS.values():
        assert knob.name in output
    assert "vm.swappiness" in output
    assert "0…200" in output
    assert desk.run("apply", "--list").returncode == 0


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_lines_fit(desk: Desk, columns: int) -> None:
    """Sentences follow the width; a path that must stay whole may be longer."""
    desk.run("apply", "--yes", *desk.wish)
    outputs = [
        desk.run(*words, COLUMNS=str(columns)).stdout
        for words in (("changes",), ("undo",), ("plan", *desk.wish), ("apply", "--yes", *desk.wish))
    ]  # fmt: skip
    for line in "".join(outputs).splitlines():
        assert len(line) <= columns or "ioprio_set of process" in line or line.startswith("/"), line


def test_what_is_left_names_the_programs() -> None:
    """The same advice for two programs is one line with both."""
    advice = "set OMP_NUM_THREADS"
    manual = [Manual(reports.brief("openmp.x", "warning", "m", f"python (pid {pid})"), advice) for pid in (7, 8)]
    assert left([*manual, Manual(reports.balancing(), "by hand")]) == [
        "  openmp.x of python (pid 7) and python (pid 8): set OMP_NUM_THREADS",
        "  numa.balancing-on: by hand",
    ]


def test_color_only_where_it_is_wanted(desk: Desk) -> None:
    """Not in a pipe, not with NO_COLOR, always when asked for."""
    assert "\x1b" not in desk.run("plan", *desk.wish).stdout
    assert "\x1b" in desk.run("plan", *desk.wish, "--color", "always").stdout
    assert "\x1b[" in on_terminal(desk, "plan", *desk.wish, answer="")[1]
    desk.env["NO_COLOR"] = "1"
    assert "\x1b[" not in on_terminal(desk, "plan", *desk.wish, answer="")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "--set", "vm.swapiness=10"), "no setting that sysperf may change (did you mean `vm.swappiness`?)"),
        (("plan", "--set", "vm.swappiness=201"), "takes 0…200"),
        (("plan", "--set", "vm.swappiness"), "vm.swappiness"),
        (("plan", "--set", "block.scheduler=none"), "block device"),
        (("plan", "--set", "block.scheduler@../x=none"), "block device"),
        (("plan", "--set", "kernel.core_pattern=|/bin/sh"), "no setting that sysperf may change"),
        (("plan", "numa.balancing-of"), "no rule `numa.balancing-of` (did you mean `numa.balancing-on`?)"),
        (("apply", "numa"), "no rule `numa`"),
        (("plan", "--set", "vm.swappiness=10", "numa.balancing-on"), "give one of them"),
        (("apply", "--yes", "--set", "process.nice@1=5", "--lease", "5"), "no time span"),
        (("undo", "7"), "there is no transaction 7"),
        (("undo", "7", "--all"), "give one of them"),
        (("undo", "99999999999999999999999"), "there is no transaction"),
        (("undo", "x"), "invalid int"),
    ],
)
def test_mistakes_are_told(desk: Desk, words: tuple[str, ...], message: str) -> None:
    """Exit code 2, what is wrong, no traceback."""
    done = desk.run(*words)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_a_lease_and_files_at_every_start_exclude_each_other(desk: Desk) -> None:
    """Both would say for how long."""
    done = desk.run("apply", "--yes", *desk.wish, "--lease", "1m", "--persist")
    assert done.returncode == 2
    assert "--persist" in done.stderr


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("10min", 600), ("8h", 28_800), ("2d", 172_800)])
def test_time_spans(text: str, seconds: int) -> None:
    """As people write them."""
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1s", "1", "1.5h", "1w", "٣s", " 1s", "1s\n", "99999999d"])
def test_no_time_spans(text: str) -> None:
    """Everything else."""
    import argparse

    with pytest.raises(argparse.ArgumentTypeError):
        span(text)


def test_a_hostile_journal_is_shown_harmlessly(desk: Desk) -> None:
    """Whatever somebody wrote into it: no escape sequence, no traceback; undoing changes nothing."""
    desk.run("apply", "--yes", *desk.wish)
    evil = "\x1b[2J\x1b]0;x\x07\u202e[bold]"
    lines = journals.lines(desk.journal)
    lines[0].update(by=evil, why=evil, taken_at=evil)
    lines[1]["change"].update(knob=evil, item=evil, target=evil, before=evil, after=evil, rule=evil, shown_before=evil)
    lines[2].update(reason=evil, read=evil)
    journals.write(desk.journal, lines)
    for words in (("changes",), ("undo",), ("undo", "--all"), ("changes",)):
        done = desk.run(*words)
        assert harmless(done.stdout), done.stdout
        assert harmless(done.stderr)
        assert "internal error" not in done.stderr
    assert desk.run("undo").returncode == 3


def test_a_damaged_journal_is_listed_and_named(desk: Desk) -> None:
    """What can be undone is; the damaged one is told."""
    desk.run("apply", "--yes", *desk.wish)
    (desk.folder / "state/changes/000007.jsonl").write_text("garbage\n")
    assert "cannot be read" in desk.run("changes").stdout
    done = desk.run("undo", "--all")
    assert done.returncode == 2
    assert "transaction 7" in done.stderr
    assert "back to none" in done.stdout
    assert desk.io_class == "none"
    whole = json.loads(desk.run("undo", "--all", "--format", "json").stdout)
    assert "transaction 7" in whole["problems"][0]["problem"]


@pytest.mark.root(users=True)
def test_a_user_who_is_not_root(desk: Desk) -> None:
    """Settings of the machine need root, and there is no helper: the plan says so; an unwritable journal is one clear line."""
    if os.path.exists("/run/sysperf/helper.sock"):
        pytest.skip("a helper runs here")
    nobody = pwd.getpwnam("nobody").pw_uid
    script = (
        "import sys, os, runpy\nimport sysperf.cli, sysperf.cli.apply, sysperf.cli.undo, sysperf.cli.changes, sysperf.cli.plan, ctypes, resource, argparse\n"
        "import sysperf.fix.plan, sysperf.host.syscalls, sysperf.report.changes, msgspec, locale, gettext, encodings.idna, difflib, shutil\n"
        f"os.setgid({nobody}); os.setuid({nobody})\n"
        "sys.exit(sysperf.cli.main(sys.argv[1:]))"
    )

    def run(*words: str, state: str) -> Any:
        return subprocess.run(
            [sys.executable, "-c", script, *words],
            env={**desk.env, "STATE_DIRECTORY": state},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    now = int(Path("/proc/sys/vm/swappiness").read_text())
    done = run("apply", "--yes", "--set", f"vm.swappiness={now ^ 1}", state="/tmp")
    assert done.returncode == 3, done.stderr
    assert any(reason in done.stdout for reason in ("only root may write it", "read-only here", "stays")), done.stdout
    locked = desk.folder / "state"
    locked.mkdir(exist_ok=True)
    done = run("undo", "--expired", state=str(locked))
    assert done.returncode == 2
    assert "Permission denied; nothing was changed" in done.stderr

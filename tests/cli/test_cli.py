"""The command line as a person meets it: real processes, real exit codes, nothing on stdout that is not the report."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf import __version__
from sysperf.cli import commands, described, tui
from sysperf.host import files
from sysperf.model.knob import KNOBS
from sysperf.report.formats import FORMATS
from tests import invoking

HEAVY = ("torch", "textual", "scipy", "pandas", "numpy", "psutil", "rich", "pynvml", "sqlite3", "cpuinfo", "sysperf.collect.gpu.windows")


def sysperf(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run sysperf as a user would."""
    return invoking.sysperf(*arguments, cwd=cwd, env={**os.environ, **environment})


def test_version() -> None:
    """One line, and nothing but it."""
    done = sysperf("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"sysperf {__version__}\n", "")


@pytest.mark.parametrize("command", ["audit --fail-on never", "facts", "ps", "plan", "rules list", "audit --json --fail-on never"])
def test_few_descriptors_are_enough(command: str) -> None:
    """With room for 20 open files every answer is whole, or says what could not be read; no error of ours."""
    script = f"ulimit -n 20; exec {sys.executable} -m sysperf {command}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_help_names_every_command() -> None:
    """`--help` and no argument at all both teach."""
    text = sysperf("--help").stdout
    assert sysperf().stdout == text
    for command in commands():
        assert f"  {command} " in text


def test_a_summary_in_the_help_is_one_short_line() -> None:
    """The list of commands fits a terminal of 80 columns with room to spare."""
    assert {name: text for name, text in described().items() if not 10 < len(text) <= 70} == {}


HELP_OF_EACH = """
import os, sys
from sysperf import cli
for name in sys.argv[1:]:
    if not (child := os.fork()):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), 1)
        sys.argv = ["sysperf", name, "--help"]
        cli.entry()
    print(name, os.waitpid(child, 0)[1], flush=True)
"""


def test_each_command_explains_itself(tmp_path: Path) -> None:
    """Every command has help with an example, and imports all that this needs: each process has what any start imports."""
    argv = [sys.executable, "-c", HELP_OF_EACH, *commands()]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)

    assert (done.stdout.splitlines(), done.stderr) == ([f"{name} 0" for name in commands()], "")
    printed = {name: (tmp_path / name).read_text().replace("usage: sysperf", "", 1) for name in commands()}
    assert [name for name, text in printed.items() if f"sysperf {name}" not in text] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["adit"], "did you mean `sysperf audit`?"),
        (["nothing-like-it"], "`sysperf --help` lists the commands"),
        (["facts", "gpuu"], "no area `gpuu`"),
        (["explain", "numa.balancing-onn"], "did you mean `numa.balancing-on`?"),
        (["explain", "Numa.Balancing-On"], "did you mean `numa.balancing-on`?"),
        (["explain", "loader-starved"], "`sysperf rules list --select '*loader*'`"),
        (["explain", "xyzzy"], "`sysperf rules list` shows all"),
        (["audit", "--root", "/nonexistent"], "no such capture"),
        (["audit", "--from", "/nonexistent"], "No such file"),
        (["audit", "--rules", "/nonexistent.toml"], "No such file"),
        (["audit", "--select", "nothing.such"], "no rule matches"),
        (["rules", "list", "--seed", "S0.7c"], "unrecognized arguments: --seed"),
        (["audit", "--config", "/nonexistent.toml"], "No such file"),
        (["audit", "--baseline", "/nonexistent.json"], "sysperf baseline"),
        (["audit", "--from", "x", "--root", "/tmp"], "both name a machine"),
        (["audit", "--output", "/nonexistent/x"], "--output"),
        (["diff", "."], "two machines"),
        (["rules", "check", "/nonexistent.toml"], "no such file"),
        (["audit", "--format", "xml"], "invalid choice"),
        (["audit", "--jsn"], "did you mean `--json`?"),
        (["audit", "--fial-on", "error"], "did you mean `--fail-on`?"),
        (["explain"], "hint: `sysperf explain --help` lists its options"),
        (["explain", "numa"], "hint: `sysperf rules list --select numa`"),
        (["explain", "memory"], "hint: `sysperf rules list --select memory`"),
        (["facts", "cpu.online"], "did you mean `cpu`?"),
        (["facts", "nope"], "no area `nope`\n"),
        (["audit", "--bogus"], "unrecognized arguments: --bogus\n"),
        (["audit", "--python", "/nonexistent/python"], "name an interpreter"),
        (["plan", "--set", "vm.swappiness"], "vm.swappiness takes 0…200"),
        (["plan", "--set", "vm.swappiness@sda=1"], "vm.swappiness=1"),
        (["rules", "lst"], "hint: `sysperf rules --help`"),
        (["undo", "latest"], "hint: `sysperf undo --help`"),
        (["fleet", "audit", "--bogus"], "hint: `sysperf fleet audit --help` lists its options"),
        (["fleet", "audit", "--hostz", "n1"], "did you mean `--hosts`?"),
        (["rules"], "required: action (list, show, check, test)\n"),
        (["help", "nothing-like-it", "host"], "no command `nothing-like-it`"),
    ],
)
def test_what_goes_wrong_is_said_with_the_next_step(arguments: list[str], says: str) -> None:
    """Exit 2, one clear message on stderr, nothing on stdout, no traceback."""
    done = sysperf(*arguments)

    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("topic", "usage"),
    [("bench host", "sysperf bench host "), ("bench nope", "sysperf bench "), ("wrap env", "sysperf wrap "), ("rules", "sysperf rules ")],
)
def test_help_explains_an_action(topic: str, usage: str) -> None:
    """A word that is none of the command's actions is no program to start."""
    done = sysperf("help", *topic.split())

    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {usage}[")


@pytest.mark.parametrize("words", ["help docs/wrap.md", "verify --help", "wrap --help", "audit --help", "--help"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_is_printed_in_every_locale(words: str, encoding: str) -> None:
    """As UTF-8, which reports are everywhere."""
    argv = [sys.executable, "-m", "sysperf", *words.split()]
    done = subprocess.run(argv, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=False, timeout=300)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('fail_on = "loud"', "fail_on is error, warning, info, hint or never"),
        ('failon = "error"', "it may have waive, override, rules"),
        ('[[waive]]\nrule = "mem.*"', "a waiver has rule, reason"),
        ('[[override]]\nrule = "memory.psi"\nsevere = true', "an override has rule"),
        ('[agent]\ninterval_s = "1s"', "[agent] may have mode"),
        ("fail_on = \n", "line 1"),
    ],
)
def test_a_wrong_configuration_is_told_what_belongs_there(tmp_path: Path, content: str, says: str) -> None:
    """The hint is about the table that is wrong."""
    (tmp_path / "config.toml").write_text(content)

    done = sysperf("audit", "--config", str(tmp_path / "config.toml"))

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    """A folder of anything, a script, a saved report: none is audited, and no reason is Python's."""
    for name, content, says in (("notes.txt", "n" * 700, "no tar"), ("report.json", '{"a": ' + "1" * 700, "sysperf audit --from")):
        (tmp_path / name).write_text(content)
        done = sysperf("audit", "--root", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
        assert "literal" not in done.stderr

    done = sysperf("audit", "--root", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "neither proc nor sys" in done.stderr


def test_an_area_selects_its_rules() -> None:
    """The name of the facts' area, and the first word of the ids, where the two differ."""
    listed = sysperf("rules", "list", "--select", "memory").stdout

    assert "memory.oom-kill" in listed
    assert "memory.shm-too-small" in listed
    assert "numa." not in listed
    assert "memory.oom-kill" in sysperf("rules", "list", "--select", "memory").stdout


def test_the_list_of_settings_names_where_they_are_documented_whole() -> None:
    """An address that is cut off leads nowhere."""
    listed = sysperf("plan", "--list", COLUMNS="60").stdout

    assert all(f"    {knob.source}\n" in listed for knob in KNOBS.values())


def test_the_audit_imports_nothing_heavy() -> None:
    """Neither torch nor textual nor NVML's binding is on the audit's path on a machine without a driver."""
    code = (
        "import sys; from sysperf.cli import main; main(['audit', '--fail-on', 'never', '--output', '/dev/null']);"
        "sys.stderr.write(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())

    assert "sysperf.engine.audit" in loaded
    heavy = HEAVY if not Path("/proc/driver/nvidia").exists() else tuple(set(HEAVY) - {"pynvml"})
    assert loaded.isdisjoint(heavy)


def test_version_and_help_import_almost_nothing() -> None:
    """They must not pay for argparse, msgspec or a single collector."""
    for option in ("--version", "--help"):
        code = f"import sys; from sysperf.cli import main; main(['{option}']); sys.stderr.write(' '.join(sys.modules))"
        loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split())
        assert loaded.isdisjoint({"argparse", "msgspec", "sysperf.engine.audit", "sysperf.host"})


def test_audit_of_this_machine_ends_with_an_answer() -> None:
    """It says something about this machine, in one run, without a traceback."""
    done = sysperf("audit")

    assert done.returncode in (0, 1)
    assert done.stdout
    assert done.stderr == ""


def test_exit_codes_follow_fail_on(tmp_path: Path) -> None:
    """A finding fails from its severity on; `never` never fails."""
    rule = tmp_path / "site.toml"
    rule.write_text(
        '[[rule]]\nid = "site.always"\ntitle = "Always"\nscope = "host"\nseverity = "info"\n'
        'when = "cpu.cores > 0"\nmessage = "{cpu.cores} cores"\nexplain = "For the test."\n'
    )
    only = ("audit", "--rules", str(rule), "--select", "site")

    assert sysperf(*only).returncode == 0
    assert sysperf(*only, "--fail-on", "info").returncode == 1
    assert sysperf(*only, "--fail-on", "never").returncode == 0
    assert "site.always" in sysperf(*only).stdout


def test_strict_fails_on_the_unknown(tmp_path: Path) -> None:
    """With --strict an unread fact is exit code 3, without it is 0; both say what could not be read."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\n")

    done = sysperf("audit", "--root", str(tmp_path), "--select", "numa", "--strict")

    assert done.returncode == 3
    assert "could not be read" in done.stdout.lower()
    assert sysperf("audit", "--root", str(tmp_path), "--select", "numa").returncode == 0


def test_a_saved_report_is_judged_again(tmp_path: Path) -> None:
    """`--from` gives the same findings, and other rules can be asked of the same machine."""
    saved = tmp_path / "report.json"
    assert sysperf("audit", "--format", "json", "--output", str(saved), "--fail-on", "never").returncode == 0
    first = json.loads(saved.read_text())

    again = json.loads(sysperf("audit", "--from", str(saved), "--format", "json", "--fail-on", "never").stdout)

    def outcomes_of(report: dict[str, object]) -> list[tuple[object, ...]]:
        return [(outcome["rule"], outcome["state"], outcome["subject"], outcome["message"]) for outcome in report["outcomes"]]  # type: ignore[attr-defined]

    assert outcomes_of(again) == outcomes_of(first)
    assert again["tally"] == first["tally"]


@pytest.mark.parametrize(
    "words",
    ["lint .", "verify --max-pairs 3 -- true", "tune --minutes 1 -- true", "node record --output x.json", "capture x.tar.zst"],
)
def test_a_working_folder_that_is_gone_is_no_bug_of_ours(words: str, tmp_path: Path) -> None:
    """As after `rm -rf` of a checkout in which a terminal still stands."""
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m sysperf {words}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)

    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert "hint: " in done.stderr


def test_output_to_a_dash_is_stdout(tmp_path: Path) -> None:
    """As with every tool that takes an output; beside a file, it is the other report."""
    done = sysperf("facts", "cpu", "--json", "--output", "-", cwd=tmp_path)
    assert json.loads(done.stdout)
    both = sysperf("audit", "--json", "--output", "a.json", "--format", "text", "--output", "-", cwd=tmp_path)
    assert both.stdout.startswith("sysperf ")
    assert os.listdir(tmp_path) == ["a.json"]
    assert "two reports go to stdout" in sysperf("audit", "--json", "--output", "-", "--format", "text", cwd=tmp_path).stderr


def test_output_never_replaces_what_is_no_plain_file(tmp_path: Path) -> None:
    """A pipe (or /dev/null) is written to and stays what it is; a link stays a link; a file is replaced in one step."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    target.write_text("old")
    link.symlink_to(target)

    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        assert sysperf("facts", "cpu", "--output", str(pipe)).returncode == 0
        assert "cpu.online" in str(reader.communicate(timeout=300)[0])
    assert sysperf("facts", "cpu", "--output", str(link)).returncode == 0

    assert pipe.is_fifo()
    assert link.is_symlink()
    assert "cpu.online" in target.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


@pytest.mark.root(users=True)
def test_output_follows_no_link_of_another_user(tmp_path: Path) -> None:
    """In /tmp somebody may have put a link where root will write; root's file stays as it is."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("precious")
    link.symlink_to(target)
    os.chown(link, 65_533, 65_533, follow_symlinks=False)

    done = sysperf("facts", "cpu", "--output", str(link))
    assert (done.returncode, target.read_text()) == (2, "precious")
    assert "another user" in done.stderr


@pytest.mark.root(users=True)
@pytest.mark.parametrize(("owner", "mode"), [(65_533, 0o644), (0, 0o666)])
def test_root_obeys_a_projects_file_after_the_commands_that_the_hint_names(tmp_path: Path, owner: int, mode: int) -> None:
    """Of another user, or one that others can write: either needs its own command."""
    project = tmp_path / "it's mine"
    project.mkdir()
    file = project / ".sysperf.toml"
    file.write_text('fail_on = "never"\n')
    file.chmod(mode)
    os.chown(file, owner, -1)
    refused = sysperf("config", "show", cwd=project)

    assert refused.returncode == 2
    assert "where another folder is the current one, it is not read" in refused.stderr
    subprocess.run(("sh", "-c", refused.stderr.split("`")[1]), check=True)
    assert "never" in sysperf("config", "show", cwd=project).stdout


def test_a_served_dashboard_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """Which may be another user's, where root has gone to look."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('taken')")
    command = [sys.executable, "-c", tui._program(), "facts", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "cpu.online" in done.stdout


def test_output_keeps_what_is_private_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes to a name that nobody can know before: a link in its place would be followed."""
    written: list[str] = []
    replace = os.replace

    def noted(source: str, target: str, **folders: int) -> None:
        written.append(source)
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", noted)
    for _ in range(2):
        (tmp_path / "file").touch(mode=0o600)
        files.replace(str(tmp_path / "file"), b"new")

    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert len(set(written)) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"{", b"\xff\xff", b'{"snapshot": 5}', b"null", b"[" * 100_000])
def test_a_broken_report_is_a_message(tmp_path: Path, content: bytes) -> None:
    """Nothing in a saved report makes a traceback."""
    broken = tmp_path / "report.json"
    broken.write_bytes(content)

    done = sysperf("audit", "--from", str(broken))

    assert done.returncode == 2
    assert "report.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_baseline_accepts_then_only_shrinks(tmp_path: Path) -> None:
    """The first run takes all; the next audit is quiet; a new finding is refused by the baseline."""
    rules = tmp_path / "site.toml"
    text = (
        '[[rule]]\nid = "site.{n}"\ntitle = "T"\nscope = "host"\nseverity = "error"\nwhen = "cpu.cores > 0"\nmessage = "m"\nexplain = "e"\n'
    )
    rules.write_text(text.replace("{n}", "one"))
    options = ("--rules", str(rules), "--select", "site")

    assert sysperf("audit", *options, cwd=tmp_path).returncode == 1
    assert sysperf("baseline", *options, cwd=tmp_path).returncode == 0
    assert sysperf("audit", *options, cwd=tmp_path).returncode == 0

    rules.write_text(text.replace("{n}", "one") + text.replace("{n}", "two"))
    done = sysperf("baseline", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert "not added: site.two" in done.stdout
    assert sysperf("audit", *options, cwd=tmp_path).returncode == 1


def test_waivers_come_from_the_configuration(tmp_path: Path) -> None:
    """A waiver without a reason is refused; with one it suppresses."""
    rules, config = tmp_path / "site.toml", tmp_path / "config.toml"
    rules.write_text(
        '[[rule]]\nid = "site.one"\ntitle = "T"\nscope = "host"\nseverity = "error"\nwhen = "cpu.cores > 0"\nmessage = "m"\nexplain = "e"\n'
    )
    options = ("audit", "--rules", str(rules), "--select", "site", "--config", str(config))

    config.write_text('[[waive]]\nrule = "site.one"\n')
    assert "reason" in sysperf(*options).stderr
    config.write_text('[[waive]]\nrule = "site.one"\nreason = "agreed"\nexpires = 2999-01-01\n')
    assert sysperf(*options).returncode == 0
    config.write_text('[[waive]]\nrule = "site.one"\nreason = "agreed"\nexpires = 2020-01-01\n')
    assert sysperf(*options).returncode == 1


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets plain text unless FORCE_COLOR is set; a terminal gets colours unless NO_COLOR says no."""
    assert "\x1b[" not in sysperf("audit", "--fail-on", "never").stdout
    assert "\x1b[" in on_terminal("audit", "--fail-on", "never")
    assert "\x1b[" not in on_terminal("audit", "--fail-on", "never", NO_COLOR="1")
    assert "\x1b[" in sysperf("audit", "--fail-on", "never", "--color", "always").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in sysperf("audit", "--fail-on", "never").stdout


def on_terminal(*arguments: str, **environment: str) -> str:
    """What sysperf shows on a real terminal."""
    leader, follower = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", **environment}
    if "NO_COLOR" not in environment:
        environ.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-m", "sysperf", *arguments], stdout=follower, stderr=follower, env=environ):
        os.close(follower)
        output = b""
        while True:
            try:
                part = os.read(leader, 65_536)
            except OSError:
                break
            if not part:
                break
            output += part
    os.close(leader)
    return output.decode()


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`sysperf facts --describe | head -1` ends quietly."""
    pipeline = f"{sys.executable} -m sysperf facts --describe | head -1"
    done = subprocess.run(["sh", "-c", pipeline], capture_output=True, text=True, check=True)

    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["", "tui", "facts cpu", "audit --fail-on never", "apply", "--help", "nosuch"])
def test_a_closed_stream_is_no_fault_of_ours(words: str, closed: str) -> None:
    """What is said there goes nowhere; the rest is as ever."""
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m sysperf {words} {closed}"], capture_output=True, text=True, check=False)

    assert "internal error" not in done.stderr
    codes = {"tui": {2}, "nosuch": {2}, "apply": {0, 2, 3}}  # what there is to apply is this machine's own
    assert done.returncode in codes.get(words, {0})


def test_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C ends a capture with 130 and without a half-written file."""
    code = (
        "import signal, sys, time, sysperf.engine.reading as reading; from sysperf.cli import main;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's background jobs are started with it ignored
        "reading.snapshot = lambda *a: (print('reading', flush=True), time.sleep(30)); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "capture", str(tmp_path / "x.tar.zst")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"reading\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)

    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_internal_errors_are_one_line_unless_debugged() -> None:
    """A bug in sysperf shows a line and a hint; --debug shows the traceback."""
    code = "import sys, sysperf.engine.reading as e; e.now = None; from sysperf.cli import main; sys.exit(main(sys.argv[1:]))"

    plain = subprocess.run([sys.executable, "-c", code, "facts", "cpu"], capture_output=True, text=True, check=False)
    debug = subprocess.run([sys.executable, "-c", code, "facts", "cpu", "--debug"], capture_output=True, text=True, check=False)

    assert plain.returncode == 2
    assert "internal error" in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts_name_the_commands(shell: str) -> None:
    """Each shell's script knows the commands; bash accepts its own."""
    script = sysperf("completion", shell).stdout

    assert "baseline" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("sysperf au", "audit"),
        ("sysperf audit --fail", "--fail-on"),
        ("sysperf audit --root mach", "machine.tar.zst"),
        ("sysperf diff mach", "machine.tar.zst"),
        ("sysperf explain numa.bal", "numa.balancing-on"),
        ("sysperf audit --select numa.bal", "numa.balancing-on"),
        ("sysperf facts nu", "numa"),
        ("sysperf plan --set vm.swap", "vm.swappiness="),
        ("sysperf analyze mach", "machine.tar.zst"),
        ("sysperf stacks 1 --with pys", "pyspy"),
        ("sysperf tune --only loader-w", "loader-workers"),
        ("sysperf verify --workload small", "small_mlp"),
    ],
)
def test_bash_completes(tmp_path: Path, line: str, offers: str) -> None:
    """What a person gets who presses Tab: commands, options, files, rules, areas, settings, plugins, factors, programs."""
    (tmp_path / "machine.tar.zst").touch()
    (tmp_path / "completion").write_text(sysperf("completion", "bash").stdout)
    words = " ".join(line.split())
    last = len(line.split()) - 1
    press = f"source ./completion; COMP_WORDS=({words}); COMP_CWORD={last}; _shtab_sysperf; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", press], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout.split() == [offers]


@pytest.mark.skipif(not shutil.which("fish"), reason="needs the shell fish")
@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("sysperf au", "audit"),
        ("sysperf explain numa.bal", "numa.balancing-on"),
        ("sysperf audit --select numa.bal", "numa.balancing-on"),
        ("sysperf facts nu", "numa"),
        ("sysperf plan --set vm.swap", "vm.swappiness="),
        ("sysperf diff mach", "machine.tar.zst"),
    ],
)
def test_fish_completes(tmp_path: Path, line: str, offers: str) -> None:
    """The same as in bash."""
    (tmp_path / "machine.tar.zst").touch()
    (tmp_path / "completion").write_text(sysperf("completion", "fish").stdout)
    argv = ["fish", "--no-config", "-c", f"source ./completion; complete -C {line!r}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})

    assert [one.partition("\t")[0] for one in done.stdout.splitlines()] == [offers]


@pytest.mark.parametrize(
    "words",
    [
        "audit",
        "facts cpu",
        "ps",
        "plan",
        "apply --list",
        "changes",
        "undo --all",
        "rules list",
        "rules check",
        "rules test openmp.toml",
        "diff . .",
        "config show",
        "explain memory.psi",
        "plugins",
        "baseline",
    ],
)
def test_json_has_one_name_everywhere(words: str, tmp_path: Path) -> None:
    """Some commands have formats and some have JSON alone; `--json` asks all of them."""
    shutil.copy("rules/openmp.toml", tmp_path)
    done = sysperf(*words.split(), "--json", cwd=tmp_path, STATE_DIRECTORY=str(tmp_path), PYTHONPATH=os.getcwd())

    assert json.loads(done.stdout) is not None, done.stderr


def test_facts_for_machines() -> None:
    """The JSON that programs rely on: CPU sets as kernel lists, nodes with their memory."""
    areas = json.loads(sysperf("facts", "--format", "json", "cpu", "numa").stdout)["areas"]

    cpu = areas["cpu"]["facts"]
    assert cpu["online"] == Path("/sys/devices/system/cpu/online").read_text().strip()
    assert cpu["cores"] >= 1
    assert cpu["packages"] >= 1
    assert cpu["threads_per_core"] >= 1
    assert isinstance(cpu["allowed"], str)
    if areas["numa"]["facts"] is not None:
        assert {"id", "cpus", "mem_total_bytes"} <= set(areas["numa"]["facts"]["nodes"][0])


def test_describe_is_generated_from_the_records() -> None:
    """Every fact that a rule may name is described, with where it is read."""
    described = json.loads(sysperf("facts", "--describe", "numa", "--format", "json").stdout)

    names = {fact["fact"]: fact for fact in described}
    assert names["numa.balancing"]["reads"] == ["/proc/sys/kernel/numa_balancing"]
    assert "numa.nodes[].mem_total_bytes" in names
    assert all(fact["doc"] for fact in described)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        *(["audit", "--select", "memory", "--fail-on", "never", "--format", name] for name in FORMATS if name != "concise"),  # may be empty
        ["--help"], ["--version"], ["audit", "--help"], ["audit", "--schema"], ["changes", "--json"], ["completion", "bash"], ["explain", "memory.psi"],
        ["facts", "kernel"], ["facts", "--describe"], ["plan"], ["plugins"], ["ps"], ["rules", "list"], ["rules", "list", "--help"],
        ["rules", "check"], ["rules", "show", "memory.psi"], ["top", "--once"], ["undo", "--all"], ["wrap", "--print", "--", "/bin/true"],
    ],
)  # fmt: skip
def test_a_full_disk_behind_stdout_is_no_bug_of_ours(words: list[str]) -> None:
    """One line says that the output could not be written, and what to do."""
    with open("/dev/full", "w") as full:
        done = invoking.sysperf(*words, stdout=full.fileno())

    assert done.returncode == 2
    assert done.stderr.startswith("sysperf: the output could not be written: No space left on device\n  hint: ")


def test_rules_check_without_a_file_checks_the_site_rules(tmp_path: Path) -> None:
    """Ours and the site's; a site's rule with the id of ours is said, in the list and once in an audit."""
    folder = tmp_path / "sysperf/rules.d"
    folder.mkdir(parents=True)
    rule = 'title="t"\nscope="host"\nseverity="info"\nmessage="m"\nwhen="1 > 2"\nexplain="e"\n'
    (folder / "site.toml").write_text(f'[[rule]]\nid="site.own"\n{rule}\n[[rule]]\nid="memory.psi"\n{rule}')
    command = [sys.executable, "-m", "sysperf"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False, env=env)

    check, listed, audited = run("rules", "check"), run("rules", "list"), run("audit", "--fail-on", "never", "--select", "memory,site")

    assert check.returncode == 0
    assert "checked: no mistake found" in check.stdout
    assert "`memory.psi` of site.toml replaces that of memory.toml" in listed.stdout
    assert audited.stderr.count("`memory.psi` of site.toml replaces that of memory.toml") == 1


@pytest.mark.parametrize("places", ["<(cat {0}) {0}", "{0} <(cat {0})", "/dev/stdin {0} < {0}", "<(cat {0}) <(cat {0})"])
def test_machines_are_compared_out_of_pipes(tmp_path: Path, places: str) -> None:
    """What a shell gives as a pipe is read whole, on either side."""
    report = tmp_path / "a.json"
    sysperf("audit", "--select", "kernel", "--fail-on", "never", "--format", "json", "--output", str(report))
    command = f"{sys.executable} -m sysperf diff {places.format(report)}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No difference between ")


@pytest.mark.parametrize("name", ["waiver.stale", "baseline.stale"])
def test_findings_about_our_own_lists_are_explained(name: str) -> None:
    """A report says `Next: sysperf explain ID` of these, too."""
    assert name in sysperf("explain", name).stdout

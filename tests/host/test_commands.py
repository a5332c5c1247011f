"""Commands end in bounded time and output, and run nobody else's code."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from sysperf.host import Host, commands
from sysperf.host.commands import output, probe
from tests.privileges import real_root

PYTHON = sys.executable


def test_output_and_failure() -> None:
    """Standard output alone is the answer; the last line of the complaint is the reason."""
    assert output((PYTHON, "-c", "import sys; print('yes'); print('no', file=sys.stderr)"), "it", 20) == b"yes\n"
    with pytest.raises(OSError, match="it failed: why"):
        output((PYTHON, "-c", "import sys; sys.exit('first\\nwhy')"), "it", 20)
    with pytest.raises(OSError, match="it failed: exit 3"):
        output((PYTHON, "-c", "import sys; sys.exit(3)"), "it", 20)
    with pytest.raises(OSError, match="No such file"):
        output(("/nonexistent",), "it", 20)


@pytest.mark.parametrize(
    "script",
    [
        "import time; time.sleep(60)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
        "import os, time; os.fork() and os._exit(0); time.sleep(60)",
    ],
)
def test_a_command_that_hangs_is_ended(script: str) -> None:
    """It, its children, and one that closed its output."""
    start = time.perf_counter()
    with pytest.raises(OSError, match="it took too long"):
        output((PYTHON, "-S", "-c", script), "it", 0.5)

    assert time.perf_counter() - start < 5


def test_a_command_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, on both streams."""
    monkeypatch.setattr(commands, "MAX_OUTPUT_BYTES", 1 << 20)
    for stream in ("stdout", "stderr"):
        with pytest.raises(OSError, match="it printed more than 1 MiB"):
            output((PYTHON, "-S", "-c", f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"), "it", 20)


def test_nothing_outlives_the_call(tmp_path: Path) -> None:
    """A child left behind by the command dies with its session."""
    script = f"import os, time\nif os.fork() == 0:\n os.close(1); os.close(2); open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)\ntime.sleep(0.5)"
    output((PYTHON, "-S", "-c", script), "it", 20)
    child = (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and "Z" not in state(child):
        time.sleep(0.05)

    assert state(child) == "" or "Z" in state(child)


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_command_sees_a_fixed_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the caller, and the current folder is /: a json.py that lies about is not imported."""
    (tmp_path / "json.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent.so")

    printed = probe(PYTHON, "import json, os; print(json.dumps([os.getcwd(), sorted(os.environ)]))")
    assert b"taken" not in printed
    assert b'["/", ["HOME", "LC_ALL"' in printed
    assert b"LD_PRELOAD" not in printed
    assert b"PYTHONPATH" not in printed


def test_the_allow_list_is_fixed() -> None:
    """Programs come from the system's folders, not from PATH, and only those on the list run."""
    for program, *_ in commands.ALLOWED.values():
        assert program == sys.executable or "/" not in program
    with pytest.raises(KeyError):
        commands.run("rm")
    with pytest.raises(FileNotFoundError, match="is not installed"):
        commands._found("made-up")


def test_the_owners_of_an_environment(tmp_path: Path) -> None:
    """Not the target of a link alone: also the link, its folder, the environment and its packages."""
    (tmp_path / "bin").mkdir()
    packages = tmp_path / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    python = tmp_path / "bin/python"
    python.symlink_to(PYTHON)
    expected = {file.lstat().st_uid for file in (python, Path(PYTHON).resolve(), python.parent, tmp_path, packages)}
    assert commands._owners(str(python)) == expected
    if os.geteuid() == 0:
        for uid, file in enumerate((python, python.parent, tmp_path, packages), 65_530):
            os.chown(file, uid, uid, follow_symlinks=False)
        assert commands._owners(str(python)) - expected == {65_530, 65_531, 65_532, 65_533}


@pytest.mark.parametrize(
    ("me", "owners", "trusted", "runs_as"),
    [
        (0, {0}, False, 0), (0, {0, 1000}, False, 1000), (0, {1000}, True, 1000), (0, {1000, 1001}, True, None),
        (1000, {0}, False, 1000), (1000, {0, 1000}, False, 1000), (1000, {0, 1001}, False, None), (1000, {0, 1001}, True, 1000),
        (1000, {1001, 1002}, True, None),
    ],
)  # fmt: skip
def test_who_runs_whose_environment(monkeypatch: pytest.MonkeyPatch, me: int, owners: set[int], trusted: bool, runs_as: int | None) -> None:
    """Root as its owner, others their own and root's, and what they named; nobody what belongs to two others."""
    monkeypatch.setattr(commands, "_owners", lambda _: owners)
    monkeypatch.setattr(commands, "_shared", lambda _: None)
    monkeypatch.setattr(commands, "output", lambda *given: str(given[-1]).encode())
    monkeypatch.setattr(os, "geteuid", lambda: me)
    if runs_as is None:
        with pytest.raises(PermissionError, match="another user"):
            probe(PYTHON, "", trusted=trusted)
    else:
        assert probe(PYTHON, "", trusted=trusted) == str(runs_as).encode()


@real_root("what lies above a folder is another user's in a user namespace")
@pytest.mark.parametrize("shared", ["bin/python", "lib/python3.11/site-packages", ".", "..", "its group's"])
def test_root_runs_nothing_that_others_can_write(tmp_path: Path, shared: str) -> None:
    """The folder around an environment counts, too: who can write it puts another one in its place. Named, it is trusted."""
    tmp_path.chmod(0o755)
    place = tmp_path / "env"
    (place / "bin").mkdir(parents=True)
    (place / "lib/python3.11/site-packages").mkdir(parents=True)
    python = place / "bin/python"
    python.write_text("#!/bin/sh\necho ran")
    python.chmod(0o755)
    assert probe(str(python), "") == b"ran\n"
    if shared == "its group's":
        os.chown(place, 0, 65_533)
        place.chmod(0o775)
    elif shared == "..":
        os.chown(tmp_path, 65_533, 65_533)
    else:
        (place / shared).chmod(0o777)

    with pytest.raises(PermissionError, match="users other than root"):
        probe(str(python), "")
    assert probe(str(python), "", trusted=True) == b"ran\n"


@pytest.mark.root(users=True)
def test_root_becomes_another_user() -> None:
    """Neither its groups nor its home are left."""
    printed = output(("/usr/bin/env", "sh", "-c", "id -u; id -G; echo $HOME"), "it", 20, 65_534)

    assert printed.split()[0] == b"65534"
    assert b"\n0" not in printed
    assert b"/root" not in printed


def test_a_probe_answers_with_its_last_line() -> None:
    """What packages print on import comes before; no JSON is an unknown."""
    host = Host(pythons=(str(Path(PYTHON).parent.parent),))

    assert host.probe(PYTHON, "x", "print('hello'); print('{\"a\": [1, null]}')") == {"a": [1, None]}
    assert host.probe(PYTHON, "y", "print('hello')") is None
    assert host.sources[-1].error == "the probe's answer is no JSON"
    assert host.probe(PYTHON, "z", "") == {}
    assert host.probe("/nonexistent/python", "x", "") is None


def test_a_thread_that_was_stopped_starts_no_command(tmp_path: Path) -> None:
    """Be it about to: on a busy machine it comes to that long after whoever stopped it has gone."""
    said, go = list[str](), threading.Event()

    def late() -> None:
        go.wait(60)
        try:
            commands.output(("touch", str(tmp_path / "started")), "touch", 60)
        except OSError as error:
            said.append(str(error))

    thread = threading.Thread(target=late)
    thread.start()
    commands.stop([thread])
    go.set()
    thread.join(60)

    assert said == ["touch was stopped"]
    assert not (tmp_path / "started").exists()


def test_the_commands_of_some_threads_are_stopped_and_others_go_on() -> None:
    """They would keep who waits for these threads until they end by themselves."""
    problems: list[str] = []

    def wait(seconds: str) -> None:
        try:
            output(("/bin/sleep", seconds), "sleep", 600)
        except OSError as error:
            problems.append(str(error))

    stopped, other = (threading.Thread(target=wait, args=(seconds,)) for seconds in ("600", "1"))
    stopped.start()
    other.start()
    while len(commands._running) < 2:
        time.sleep(0.01)
    commands.stop([stopped])
    stopped.join(60)
    other.join(60)

    assert problems == ["sleep was killed: it took too long, or memory is short"]
    assert not commands._running

"""`sysperf service` where no systemd runs, and the files that it writes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

import pytest

from sysperf.cli import service as service_command
from sysperf.engine.service import systemd
from sysperf.engine.service import units as _units
from tests.invoking import sysperf
from tests.privileges import real_root

RUNS = Path("/run/systemd/system").is_dir()


def service(*arguments: str) -> subprocess.CompletedProcess[str]:
    return sysperf("service", *arguments)


def install(root: Path, program: str = "/usr/bin/sysperf") -> None:
    for file in _units.wanted(program, drop_ins=_units.DROP_INS, root=str(root)):
        _units.write(file.path, file.content)


def states(root: Path, program: str = "/usr/bin/sysperf") -> set[str]:
    return {file.state for file in _units.wanted(program, drop_ins=_units.DROP_INS, root=str(root))}


def test_status_says_the_same_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit that failed, one of another version, and one that is not there."""
    shown = {
        "sysperf-agent.service": {"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed", "UnitFileState": "enabled"},
        "sysperf-audit.timer": {"LoadState": "loaded", "ActiveState": "active", "SubState": "waiting", "StatusText": "\x1b[31mred"},
    }
    monkeypatch.setattr(service_command, "_needs_systemd", lambda: None)
    monkeypatch.setattr(systemd, "drift", list)
    monkeypatch.setattr(systemd, "exposure", lambda _: "1.4 OK")
    monkeypatch.setattr(systemd, "shown", lambda name: shown.get(name, {"LoadState": "not-found"}))
    codes = []
    for words in (["status"], ["status", "--json"]):
        parser = argparse.ArgumentParser()
        service_command.add_arguments(parser)
        codes.append(service_command.run(parser.parse_args(words)))
    text, _, document = capsys.readouterr().out.partition("{")
    units = {unit["name"]: unit for unit in json.loads("{" + document)["units"]}

    assert codes == [1, 1]
    assert "sysperf-agent.service    failed (failed), enabled, exposure 1.4 OK\n" in text
    assert units["sysperf-agent.service"]["problem"]
    assert units["sysperf-audit.timer"] == {"name": "sysperf-audit.timer", "active": "active (waiting)", "says": "\\x1b[31mred"}
    assert [name for name, unit in units.items() if not unit.get("installed", True)]


@pytest.mark.skipif(RUNS, reason="systemd runs here")
@pytest.mark.parametrize("action", ["install", "status"])
def test_without_systemd_it_says_what_else(action: str) -> None:
    """No systemd, no services: the error names what to do instead."""
    done = service(action)

    assert done.returncode == 2
    assert "systemd does not run here" in done.stderr
    assert "--prefix" in done.stderr


def test_print_works_anywhere() -> None:
    """What would be written can be read without systemd, root, or an installation."""
    done = service("install", "--print", "--with", "see-all-users")

    assert done.returncode == 0
    assert "+++ /etc/systemd/system/sysperf-agent.service.d/sysperf-see-all-users.conf" in done.stdout
    assert "@SYSPERF@" not in done.stdout


def test_packages_get_all_units(tmp_path: Path) -> None:
    """--prefix writes below usr/lib, for the program of the package, with the drop-ins as examples."""
    done = service("install", "--prefix", str(tmp_path), "--program", "/usr/bin/sysperf")

    assert done.returncode == 0
    assert (
        "ExecStart=/usr/bin/sysperf agent --socket /run/sysperf/agent.sock\n"
        in (tmp_path / "usr/lib/systemd/system/sysperf-agent.service").read_text()
    )
    assert len(list((tmp_path / "usr/lib/systemd/system").iterdir())) == 9
    assert (tmp_path / "usr/lib/sysusers.d/sysperf.conf").exists()
    assert len(list((tmp_path / "usr/share/doc/sysperf").rglob("*.example"))) == sum(map(len, _units.DROP_INS.values()))


def test_the_helper_can_be_left_out(tmp_path: Path) -> None:
    """Who only wants to watch gets nothing that runs as root."""
    files = _units.wanted("/usr/bin/sysperf", helper=False, root=str(tmp_path))

    assert not {os.path.basename(file.path) for file in files} & set(_units.HELPER)
    assert not [file.path for file in files if "User=root" in file.content]


def test_states_of_a_file(tmp_path: Path) -> None:
    """Missing, ours, older (another program), changed, and never ours are told apart."""
    agent = tmp_path / "etc/systemd/system/sysperf-agent.service"
    assert states(tmp_path) == {"missing"}
    install(tmp_path)
    assert states(tmp_path) == {"ours"}
    assert "older" in states(tmp_path, "/opt/other/sysperf")

    agent.write_text(agent.read_text() + "# by hand\n")
    assert {"changed", "ours"} == states(tmp_path)
    agent.write_text("[Service]\nExecStart=/bin/true\n")
    assert {"foreign", "ours"} == states(tmp_path)


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    """Uninstalling needs no list: the files say that they are ours, and who did not write them."""
    install(tmp_path)
    foreign = tmp_path / "etc/systemd/system/sysperf-mine.service"
    foreign.write_text("[Service]\nExecStart=/bin/true\n")

    paths = [file.path for file in _units.written(str(tmp_path))]
    assert str(foreign) not in paths
    assert len(paths) == 14

    for path in paths:
        _units.remove(path)
    assert [path.name for path in (tmp_path / "etc/systemd/system").iterdir()] == [foreign.name]


def test_a_drop_in_of_somebody_stays(tmp_path: Path) -> None:
    """The folder of drop-ins is removed only when it is empty."""
    install(tmp_path)
    mine = tmp_path / "etc/systemd/system/sysperf-agent.service.d/mine.conf"
    mine.write_text("[Service]\nNice=5\n")
    for file in _units.written(str(tmp_path)):
        _units.remove(file.path)

    assert mine.exists()
    assert not mine.parent.with_name("sysperf-helper.service.d").exists()


def test_files_are_readable_whatever_the_umask(tmp_path: Path) -> None:
    """Mode 0644, and nothing half written beside it."""
    before = os.umask(0o077)
    try:
        _units.write(str(tmp_path / "a.service"), "[Service]\n")
    finally:
        os.umask(before)

    assert (tmp_path / "a.service").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["a.service"]


@pytest.mark.parametrize("path", ["/root/venv/bin/python", "/home/a/venv/bin/python", "/tmp/v/bin/python"])
def test_hidden_folders_are_refused(path: str) -> None:
    """The units' sandboxes hide homes and /tmp: what lies there could not be started."""
    assert "do not see this folder" in _units.unfit(path)


def test_odd_paths_are_refused() -> None:
    """What systemd would read as a specifier, a variable or two words."""
    assert all(_units.unfit(path) for path in ("/opt/my venv/python", "/opt/%h/python", "/opt/$x", 'a"b', "/opt/\n"))


@real_root("what lies above a folder is another user's in a user namespace")
def test_what_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A helper that runs as root runs nothing that another user could change, nor from a folder that one could."""
    monkeypatch.setattr(_units, "_HIDDEN", ("/nowhere/",))
    folder = tmp_path / "a"
    folder.mkdir(mode=0o755)
    program = folder / "python"
    program.write_text("")
    program.chmod(0o755)
    assert _units.unfit(str(program)) == ""

    folder.chmod(0o777)
    assert "can be written by users other than root" in _units.unfit(str(program))
    folder.chmod(0o755)
    os.chown(program, 65534, 65534)
    assert "belongs to user 65534" in _units.unfit(str(program))


def test_a_masked_unit_is_not_ours(tmp_path: Path) -> None:
    """A link to /dev/null is an administrator's decision."""
    unit = tmp_path / "etc/systemd/system/sysperf-audit.timer"
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/dev/null")

    (timer,) = (file for file in _units.wanted("/usr/bin/sysperf", root=str(tmp_path)) if file.path == str(unit))
    assert timer.state == "foreign"

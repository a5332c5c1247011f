"""Nodes by ssh: real sshds on addresses of this machine's loopback, of which some are broken."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sysperf.fleet.engines import programs, ssh
from sysperf.model.errors import UsageError
from sysperf.model.node import Asked, Node
from tests import openssh
from tests.agent.states import eventually
from tests.fleet.machines import script
from tests.invoking import sysperf, with_variable

ROOT = Path(__file__).resolve().parent.parent.parent
COUNT = int(os.environ.get("SYSPERF_SSH_HOSTS", "10"))
"""Hosts, of which the last three are broken: stopped, of another key, loud."""
ASKED = f"h[1-{COUNT}]" if "SYSPERF_SSH_HOSTS" in os.environ else f"h[1-3,{COUNT - 2}-{COUNT}]"
LIVING = COUNT - 3 if "SYSPERF_SSH_HOSTS" in os.environ else 3
MAX_ADDRESSES = 12
"""One sshd listens on 16 at most."""

pytestmark = openssh.needed

MANY = "MaxStartups 500\n"
BANNER = """\
Match LocalAddress 127.9.1.1
  ForceCommand printf 'Welcome!\\n{{"not": "a record"\\n'; eval "$SSH_ORIGINAL_COMMAND"
Match LocalAddress 127.9.1.{loud}
  ForceCommand head -c 1000000 /dev/zero | tr '\\0' x; echo; eval "$SSH_ORIGINAL_COMMAND"
"""


class Hosts(NamedTuple):
    """Hosts h1 to hN."""

    folder: Path
    environment: dict[str, str]

    def fleet(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command about them."""
        given = ("--hosts", ASKED, "--sysperf", str(self.folder / "sysperf"), "--node-limit", "60")
        return sysperf("fleet", "audit", "--json", "--fail-on", "never", *given, *words, env=self.environment)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("user_key", "host_key", "other_key"):
        openssh.key(folder / key)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    port = openssh.free_port()
    public = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"[127.9.1.{number}]:{port} {public}\n" for number in range(1, COUNT + 1)))
    names = "".join(f"Host h{number}\n  HostName 127.9.1.{number}\n" for number in range(1, COUNT + 1))
    of_all = openssh.CLIENT.format(folder=folder, key="user_key")
    openssh.client(folder, f"{names}{of_all}  Port {port}\n  User {getpass.getuser()}\n")
    (folder / "sysperf").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m sysperf "$@"\n')
    (folder / "sysperf").chmod(0o755)
    good = [number for number in range(1, COUNT + 1) if number not in (COUNT - 2, COUNT - 1)]
    parts = [good[first : first + MAX_ADDRESSES] for first in range(0, len(good), MAX_ADDRESSES)]
    daemons = [_sshd(folder, "host_key", port, part, BANNER.format(loud=COUNT)) for part in parts]
    daemons.append(_sshd(folder, "other_key", port, [COUNT - 1], ""))
    try:
        yield Hosts(folder, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait()


def _sshd(folder: Path, key: str, port: int, numbers: list[int], matches: str) -> subprocess.Popen[bytes]:
    listens = "".join(f"ListenAddress 127.9.1.{number}\n" for number in numbers)
    configuration = listens + openssh.SERVER.format(port=port, folder=folder, key=key) + MANY + matches
    return openssh.started(folder, f"sshd_{numbers[0]}", configuration, f"127.9.1.{numbers[0]}", port)


def test_the_living_answer_and_the_broken_say_why(hosts: Hosts) -> None:
    """One is stopped, one has another host key, one prints a megabyte before its answer; a banner disturbs nobody."""
    done = hosts.fleet()
    fleet = json.loads(done.stdout)
    silent = {node: (each["state"], each["reason"]) for each in fleet["silent"] for node in each["nodes"]}

    assert done.returncode == 0, done.stderr
    assert fleet["answered"] == LIVING
    assert {node: state for node, (state, _) in silent.items()} == {
        f"h{COUNT - 2}": "unreachable",
        f"h{COUNT - 1}": "refused",
        f"h{COUNT}": "refused",
    }
    assert "refused" in silent[f"h{COUNT - 2}"][1]
    assert "verification failed" in silent[f"h{COUNT - 1}"][1]
    assert "printed more than" in silent[f"h{COUNT}"][1]
    assert len(fleet["slowest"]) == min(5, LIVING)


def test_a_program_that_is_not_there_is_told(hosts: Hosts) -> None:
    """With where it was looked for."""
    done = hosts.fleet("--hosts", "h2", "--sysperf", "/nowhere/sysperf", "--strict")

    assert done.returncode == 3
    assert "/nowhere/sysperf" in json.loads(done.stdout)["silent"][0]["reason"]


def test_the_time_of_a_node_is_limited(hosts: Hosts) -> None:
    """A node that hangs is late, and what was started for it there ends by itself."""
    slow = hosts.folder / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    done = hosts.fleet("--hosts", "h2", "--sysperf", str(slow), "--node-limit", "3")
    (silent,) = json.loads(done.stdout)["silent"]

    assert (silent["state"], silent["reason"]) == ("late", "no answer within 3 s")


def test_a_killed_collector_leaves_no_program(hosts: Hosts) -> None:
    """kill -9 while nodes are asked: our ssh ends with us."""
    slow = hosts.folder / "slower"
    slow.write_text("#!/bin/sh\nsleep 7\n")
    slow.chmod(0o755)
    words = ("fleet", "audit", "--hosts", "h[2-4]", "--sysperf", str(slow))
    collector = subprocess.Popen([sys.executable, "-m", "sysperf", *words], env=hosts.environment, stdout=subprocess.DEVNULL, cwd=ROOT)
    for _ in range(300):
        if len(_clients(hosts.folder)) == 3:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("no ssh was started")
    collector.send_signal(signal.SIGKILL)
    collector.wait()
    for _ in range(100):
        if not _clients(hosts.folder):
            return
        time.sleep(0.1)
    raise AssertionError(_clients(hosts.folder))


def test_a_killed_collector_leaves_nothing_on_the_nodes(hosts: Hosts) -> None:
    """kill -9 while they measure, for minutes if nobody ended it: neither sysperf nor its workers stay."""
    long = script(hosts.folder, "long", f'MEASURED_FOR={hosts.folder} exec {hosts.folder}/sysperf "$@" --runs 1000')
    words = ("fleet", "bench", "--hosts", "h[2-3]", "--only", "start", "--sysperf", str(long))
    collector = subprocess.Popen([sys.executable, "-m", "sysperf", *words], env=hosts.environment, stdout=subprocess.DEVNULL, cwd=ROOT)
    mark = f"MEASURED_FOR={hosts.folder}"
    assert eventually(lambda: sum(b"ceilings.py" in line for line in with_variable(mark)) == 2)
    collector.send_signal(signal.SIGKILL)
    collector.wait()

    assert eventually(lambda: not with_variable(mark), 30), with_variable(mark)


@pytest.mark.slow
def test_a_slow_node_is_measured_again_and_named(hosts: Hosts) -> None:
    """On h3 a program takes a tenth of a second longer to start: fresh runs beside three other hosts say so."""
    slower = hosts.folder / "path"
    slower.mkdir()
    script(hosts.folder, "path/true", "exec sleep 0.1")
    line = f'case "$*" in *h3*) PATH={slower}:$PATH;; esac; exec {hosts.folder}/sysperf "$@"'
    given = ("--hosts", "h[1-7]", "--at-once", "3", "--only", "start", "--sysperf", str(script(hosts.folder, "other", line)))
    bench = json.loads(sysperf("fleet", "bench", "--json", *given, env=hosts.environment, timeout=580).stdout)
    slow = [each for each in bench["suspects"] if each["metric"] == "start.program" and each["verdict"] == "slow"]
    much = [each for each in slow if each["high_pct"] < -75]  # all hosts have the same CPUs: what else runs there may make another slower

    assert (bench["engine"], bench["answered"], bench["figures"]) == ("ssh", 7, 14), bench
    assert [(each["node"], len(each["beside"])) for each in much] == [("h3", 3)], bench["suspects"]


def _clients(folder: Path) -> list[str]:
    """The ssh clients that run with our configuration."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if f"{folder}/ssh_config".encode() in line:
            found.append(path.parent.name)
    return found


def test_ctrl_c_shows_what_is_there(hosts: Hosts) -> None:
    """Who answered is reported, who did not is late."""
    mixed = hosts.folder / "mixed"
    mixed.write_text(f'#!/bin/sh\ncase "$*" in *h3*) sleep 60;; esac\n{hosts.folder}/sysperf "$@"\ntouch {hosts.folder}/answered\n')
    mixed.chmod(0o755)
    words = ("fleet", "audit", "--json", "--hosts", "h[2-3]", "--sysperf", str(mixed), "--node-limit", "60")
    collector = subprocess.Popen(
        [sys.executable, "-m", "sysperf", *words], env=hosts.environment, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    for _ in range(600):
        if (hosts.folder / "answered").exists() and len(_clients(hosts.folder)) == 1:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    collector.send_signal(signal.SIGINT)
    fleet = json.loads(collector.communicate(timeout=60)[0])

    assert fleet["interrupted"]
    assert (fleet["asked"], fleet["answered"]) == (2, 1)
    assert fleet["silent"][0]["state"] == "late"


def test_two_fleets_at_once(hosts: Hosts) -> None:
    """Two collectors ask the same nodes at the same time."""
    words = (
        "fleet",
        "audit",
        "--json",
        "--fail-on",
        "never",
        "--hosts",
        "h[2-3]",
        "--sysperf",
        str(hosts.folder / "sysperf"),
        "--node-limit",
        "60",
    )
    both = [
        subprocess.Popen([sys.executable, "-m", "sysperf", *words], env=hosts.environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(2)
    ]

    assert [json.loads(collector.communicate(timeout=120)[0])["answered"] for collector in both] == [2, 2]


@pytest.mark.parametrize("path", ["-oProxyCommand=x", "a b", "x;y", "$(x)", ""])
def test_only_our_verbs_run_there(path: str) -> None:
    """What is started on a node is sysperf and one of its verbs."""
    assert sysperf("fleet", "audit", "--hosts", "h1", f"--sysperf={path}").returncode == 2
    measured = ("--runs", "5", "--only", "memory,matmul,gpu")
    assert ssh.command("h1", "bench", Asked()) == ("sysperf", "node", "bench", *measured, "--limit", "20", "--node", "h1")
    assert ssh.command("h1", "record", Asked()) == ("sysperf", "node", "record", "--limit", "20", "--node", "h1")
    assert ssh.nodes(Asked(hosts=("a", "b"))) == (Node("a"), Node("b"))


def test_a_program_that_is_missing_is_an_error() -> None:
    """An engine without its tool names it."""
    with pytest.raises(UsageError, match="no-such-ssh"):
        programs.run(("no-such-ssh",), 1.0)

"""What tests need of OpenSSH: a real sshd without an account's files, a new key, and an ssh that reads our configuration."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.agent.states import eventually
from tests.invoking import program

SSHD = program("sshd")
needed = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="no sshd and ssh: apt-get install openssh-server openssh-client"
)
SERVER = """\
Port {port}
HostKey {folder}/{key}
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
CLIENT = """\
Host *
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""


def key(path: Path) -> str:
    """A new key pair; the public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=300)
    return path.with_suffix(".pub").read_text()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def client(folder: Path, configuration: str) -> None:
    """A program `ssh` in the folder that reads this configuration instead of the user's."""
    (folder / "ssh_config").write_text(configuration)
    script = folder / "ssh"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh", path=os.defpath + ":/usr/bin")} -F {folder}/ssh_config "$@"\n')
    script.chmod(0o755)


def started(folder: Path, name: str, configuration: str, address: str, port: int, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """An sshd that answers; `before` it may stand how it is started."""
    assert SSHD is not None
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where sshd of root locks its unprivileged half in
    (folder / name).write_text(configuration)
    with (folder / f"{name}.log").open("wb") as log:
        daemon = subprocess.Popen([*before, SSHD, "-D", "-e", "-f", str(folder / name)], stderr=log)
    assert eventually(lambda: answers(address, port)), (folder / f"{name}.log").read_text()
    return daemon


def answers(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0

"""Four nodes with networks of their own on this machine, the last but one on a slow link: run as a program, it prints what fleet says.

unshare --mount --net --pid --fork --mount-proc python -m tests.fleet.network_inside FOLDER WORDS…
"""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

from tests import openssh
from tests.invoking import SBIN

NODES, SLOW = 4, 3
PORT = 2_222
ROOT = Path(__file__).resolve().parent.parent.parent
USUAL, LIMITED = "2gbit", "600mbit"
SYSPERF = """\
#!/bin/sh
export VIRTUAL_ENV={environment} PATH={environment}/bin:$PATH PYTHONPATH={root}
exec {python} -m sysperf "$@"
"""


def run(*argv: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(argv, check=True, timeout=60)


def connected() -> None:
    """Namespaces n1 to n4 with the addresses 10.9.0.1 to 4, on one bridge."""
    run("mount", "-t", "tmpfs", "none", "/run/netns")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "link", "set", "br0", "up")
    run("ip", "address", "add", "10.9.0.254/24", "dev", "br0")
    for number in range(1, NODES + 1):
        node, rate = f"n{number}", LIMITED if number == SLOW else USUAL
        run("ip", "netns", "add", node)
        run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", node)
        run("ip", "link", "set", f"v{number}", "master", "br0", "up")
        run("ip", "-n", node, "address", "add", f"10.9.0.{number}/24", "dev", "eth0")
        for name in ("eth0", "lo"):
            run("ip", "-n", node, "link", "set", name, "up")
        run(
            "ip", "netns", "exec", node, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms"
        )


def main() -> None:
    """Start an sshd in each, and ask them."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}:{SBIN}"
    os.makedirs("/run/netns", exist_ok=True)
    connected()
    host_key = " ".join(openssh.key(folder / "host_key").split()[:2])
    (folder / "authorized_keys").write_text(openssh.key(folder / "user_key"))
    hosts = [f"10.9.0.{number}" for number in range(1, NODES + 1)]
    (folder / "known_hosts").write_text("".join(f"[{host}]:{PORT} {host_key}\n" for host in hosts))
    openssh.client(folder, f"{openssh.CLIENT.format(folder=folder, key='user_key')}  Port {PORT}\n  User {getpass.getuser()}\n")
    environment = Path(os.environ["SYSPERF_TORCH_PYTHON"]).parent.parent
    (folder / "sysperf").write_text(SYSPERF.format(environment=environment, root=ROOT, python=sys.executable))
    (folder / "sysperf").chmod(0o755)
    configuration = openssh.SERVER.format(port=PORT, folder=folder, key="host_key")
    for number, host in enumerate(hosts, 1):
        openssh.started(folder, f"sshd_{number}", configuration, host, PORT, before=("ip", "netns", "exec", f"n{number}"))
    asked = ("--hosts", "10.9.0.[1-4]", "--sysperf", str(folder / "sysperf"))
    done = subprocess.run([sys.executable, "-m", "sysperf", "fleet", *words, *asked], cwd=ROOT, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

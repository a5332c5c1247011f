"""Run the privileged helper of the service. It applies and takes back settings for root and for members of group sysperf.

systemd starts it when somebody connects to /run/sysperf/helper.sock (`sysperf service install`), and it leaves after
30 s without work. Nobody needs to run it by hand.

examples:
  systemctl start sysperf-helper.socket          how it is meant
  sudo sysperf helper --socket /tmp/helper.sock  by hand, to look at it
"""

from __future__ import annotations

import argparse

from sysperf import paths
from sysperf.model.errors import Exit, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", metavar="PATH", help="listen here instead of on the socket that systemd passes")
    parser.add_argument("--state", default=paths.SYSTEM_STATE, metavar="FOLDER", help="folder of the journal (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS", help="leave after so long without work (default: 30)")


def run(args: argparse.Namespace) -> int:
    from sysperf.agent import helper_server  # noqa: PLC0415 - threads and sockets are for those who serve

    listener = helper_server.listen(args.socket) if args.socket else helper_server.inherited()
    if listener is None:
        raise UsageError(
            "systemd starts this through its socket", "`sysperf service install` sets that up; --socket PATH listens by itself"
        )
    helper_server.HelperServer(listener, args.state, idle_s=args.idle).serve()
    return Exit.CLEAN

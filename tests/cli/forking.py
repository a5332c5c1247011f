"""Runs commands, each in a process forked from one that has imported them: a line of JSON in (the arguments), one out (how it ended).

python -m tests.cli.forking FOLDER      # which becomes its current folder
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any

from sysperf import cli
from tests import forked

LIMIT_S = 60.0
MEMORY_BYTES = 3 << 30
"""Of addresses, more than any command needs; a command that reads without end ends here."""
SERVERS_S = 2.0
"""After this time, what serves is asked to end."""


def main() -> None:
    forked.prepare()
    os.chdir(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_run(asked["argv"], is_server=asked["is_server"])), flush=True)


def _run(argv: list[str], *, is_server: bool) -> dict[str, Any]:
    errors = os.open(".", os.O_TMPFILE | os.O_RDWR)
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((null, null, errors)):
            os.dup2(file, number)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
        os._exit(cli.main(argv))
    status, hung = _waited(child, SERVERS_S if is_server else LIMIT_S, is_server=is_server)
    said = os.pread(errors, 1 << 20, 0).decode("utf-8", "replace")
    os.close(errors)
    return {"code": os.waitstatus_to_exitcode(status), "errors": said, "hung": hung}


def _waited(child: int, limit_s: float, *, is_server: bool) -> tuple[int, bool]:
    """(how it ended, whether it had to be killed)."""
    end, asked = time.monotonic() + limit_s, not is_server
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status, False
        if time.monotonic() > end and not asked:
            os.kill(child, signal.SIGTERM)
            asked, end = True, end + LIMIT_S
        elif time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True
        time.sleep(0.002)


if __name__ == "__main__":
    main()

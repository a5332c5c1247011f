"""Facts after the next boot: what was left behind is taken back, before anybody asked."""

from __future__ import annotations

import time
from typing import Any

from tests.systemd.inside import SYSPERF, fact, journal, run, show, wait

RESTORE = "sysperf-restore.service"


@fact
def restored() -> dict[str, str]:
    time.sleep(2)  # the kernel is the same, and the lease ends by time, not by a new boot id
    run("systemctl", "start", "multi-user.target")
    wait(lambda: show(RESTORE, "ExecMainExitTimestampMonotonic")["ExecMainExitTimestampMonotonic"] != "0", 20)
    return show(RESTORE, "Result", "ExecMainStatus", "ActiveState")


@fact
def said() -> str:
    return journal(RESTORE)


@fact
def changes() -> dict[str, Any]:
    return run(SYSPERF, "changes")


@fact
def helper_was_not_needed() -> str:
    return show("sysperf-helper.service", "ActiveState")["ActiveState"]

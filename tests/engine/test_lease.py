"""Facts about settings during one run: whatever comes, and whenever, they are taken back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.io_classes import io_class

_SIGNALLED = '''
import contextlib, json, signal, sys
from sysperf.engine import change
from sysperf.engine.verify import lease
from sysperf.fix import transaction
from sysperf.host import Host
from sysperf.model.change import Setting
from tests.io_classes import io_class

pid, folder = int(sys.argv[1]), sys.argv[2]
setting = Setting("process.io_class", "idle", str(pid))
codes = {lease.applied.__wrapped__.__code__, transaction.undisturbed.__wrapped__.__code__}
left, point, reached = [], 0, True

def is_around(frame):
    """Whether it is one of the two context managers, or contextlib where it enters or leaves one of them."""
    held = getattr(frame.f_locals.get("self"), "gen", None) if frame.f_code.co_filename == contextlib.__file__ else None
    return frame.f_code in codes or getattr(held, "gi_code", None) in codes

def run(point):
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if not is_around(frame):
            return None
        if event == "line":
            seen += 1
            if seen == point + 1:
                signal.raise_signal(signal.SIGINT)
        return trace

    changer = change.Changer(Host(), folder)
    sys.settrace(trace)
    try:
        with lease.applied((setting,), changer) as during:
            during.check()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen > point

while reached:
    reached = run(point)
    if io_class(pid) != "none":
        left.append(point)
        break
    point += 1
print(json.dumps({"points": point, "left": left}))
'''


def test_a_signal_at_any_line_around_a_run_leaves_no_setting(tmp_path: Path) -> None:
    with subprocess.Popen(("sleep", "300")) as other:
        done = subprocess.run(
            (sys.executable, "-c", _SIGNALLED, str(other.pid), str(tmp_path)), check=False, capture_output=True, text=True, timeout=120
        )
        after = io_class(other.pid)
        other.kill()
    told = json.loads(done.stdout or "{}")

    assert told.get("left") == [], done.stderr
    assert told["points"] > 20
    assert after == "none"

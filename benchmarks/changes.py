"""What changing and undoing settings costs: ten knobs with a journal that is on the disk before each, beside plain `sysctl -w`.

  sudo python benchmarks/changes.py [--rounds 9]

Each round adds one to ten harmless settings of this machine and takes that back; what there was is there again at the
end, and is compared. The promise is 0.5 s for `apply` and `undo` together. `fdatasync` of one line is printed beside it:
the journal waits for the disk twice a setting.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

SYSPERF = os.path.join(os.path.dirname(sys.executable), "sysperf")
SYSCTLS = (
    "vm.swappiness",
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.max_map_count",
    "kernel.perf_event_paranoid",
)
BLOCK = "/sys/block/{}/queue/read_ahead_kb"


def seconds(command: Sequence[str], env: dict[str, str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return time.perf_counter() - start


def knobs() -> dict[str, tuple[Path, str, str]]:
    """Ten settings: (file, value now, value for the test)."""
    settings = {}
    for key in SYSCTLS:
        path = Path("/proc/sys", *key.split("."))
        now = path.read_text().strip()
        settings[key] = (path, now, str(int(now) + (-1 if key == "kernel.perf_event_paranoid" and int(now) > 0 else 1)))
    for name in sorted(os.listdir("/sys/block"))[: 10 - len(SYSCTLS)]:
        path = Path(BLOCK.format(name))
        settings[f"block.read_ahead_kb@{name}"] = (path, path.read_text().strip(), str(int(path.read_text()) // 2 or 64))
    return settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    settings = knobs()
    apply = (SYSPERF, "apply", "--yes", *(part for name, (_, _, then) in settings.items() for part in ("--set", f"{name}={then}")))
    times: dict[str, list[float]] = {"apply": [], "undo": [], "sysctl -w, there and back": [], "one fdatasync": []}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        env = {**os.environ, "STATE_DIRECTORY": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(rounds):
            times["apply"].append(seconds(apply, env))
            times["undo"].append(seconds((SYSPERF, "undo"), env))
            there = sum(seconds(("sysctl", "-qw", f"{key}={settings[key][2]}"), env) for key in SYSCTLS)
            back = sum(seconds(("sysctl", "-qw", f"{key}={settings[key][1]}"), env) for key in SYSCTLS)
            times["sysctl -w, there and back"].append(there + back)
            times["one fdatasync"].append(synced(folder))
    left = [name for name, (path, before, _) in settings.items() if path.read_text().strip() != before]
    print(f"{len(settings)} settings, {rounds} rounds; not as before at the end: {', '.join(left) or 'none'}\n")
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:28} {middle * 1e3:8.1f} ms [{low * 1e3:.1f}–{high * 1e3:.1f}]")
    both = statistics.median(a + b for a, b in zip(times["apply"], times["undo"], strict=True))
    print(f"{'apply + undo':28} {both * 1e3:8.1f} ms (promise: 500 ms)")


def synced(folder: str) -> float:
    with open(os.path.join(folder, "line"), "ab") as file:
        start = time.perf_counter()
        file.write(b"x" * 200)
        file.flush()
        os.fdatasync(file.fileno())
        return time.perf_counter() - start


if __name__ == "__main__":
    main()

"""Runs `make test` or another tier; up to three tests that failed are run once more, alone, and named: `python3 .ci/tests.py test …`.

CI's machine is shared: another guest may take the CPUs of one test of nine thousand for seconds. So what fails beside others is asked
again without them, as CPython's regrtest does (`--rerun`). It is printed as unsteady then, to be mended. Four that fail, or a run that did
not come to its end, fail at once. Needs nothing but Python; words after the tier are make's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

MAX_AGAIN = 3
CACHE = Path(".pytest_cache/v/cache/lastfailed")
_END = re.compile(r"^=+ (?=.*\b(?:failed|error))(.*\bpassed\b.*) in [0-9.]+s.*=+$", re.MULTILINE)
_FAILED = re.compile(r"\b([0-9]+) (?:failed|errors?)\b")


def main(tier: str, *words: str) -> int:
    """Return make's exit code, or 0 where all that failed passed alone."""
    CACHE.unlink(missing_ok=True)
    code, printed = run(tier, *words)
    if code == 0:
        return 0
    failed = few_failed(printed, CACHE.read_text() if CACHE.exists() else "{}")
    if not failed:
        return code
    print(f"\n== {len(failed)} failed beside others: once more, alone", flush=True)
    tests = next((word.removeprefix("TESTS=") for word in words if word.startswith("TESTS=")), "")
    kept = [word for word in words if not word.startswith("TESTS=")]
    code, _ = run(tier, *kept, f"TESTS={tests} --last-failed --last-failed-no-failures none -n 0")
    print(*(f"== unsteady: {test}" for test in failed if not code), sep="\n", flush=True)
    return code


def few_failed(printed: str, kept: str) -> list[str]:
    """Return the tests that failed in a run that came to its end; none where they are too many to be chance."""
    end = _END.search(printed)
    number = sum(map(int, _FAILED.findall(end[1]))) if end else 0
    failed = sorted(json.loads(kept))
    return failed if number == len(failed) <= MAX_AGAIN else []


def run(*words: str) -> tuple[int, str]:
    """Return the exit code of `make`, and what it printed, which is shown meanwhile."""
    lines = []
    with subprocess.Popen(("make", *words), stdout=subprocess.PIPE, text=True, errors="replace") as make:  # noqa: S607 - the user's make
        for line in make.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    return make.returncode, "".join(lines)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

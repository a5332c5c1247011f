"""One sick program, whoever looks: source, outside, stacks and a trace name the same cause by the same id, and their gains agree."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from sysperf.model.record import JsonObject
from tests.pasting import PYTHON, ROOT
from tests.plugins.programs import TRAINING, command, sockets, started

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch"),
]
SYSPERF = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sysperf.cli import main; sys.exit(main(sys.argv[1:]))"
SLEEPS, SPINS = "time.sleep(0.025);", "next(time for _ in iter(int, 1) if time.perf_counter() > end);"
OLD_S = 20
"""From outside, a program's first 15 s are no evidence: it imports."""
FINDINGS = {"lint": "hypotheses", "audit": "outcomes", "diagnose": "causes", "analyze": "findings"}


@pytest.mark.parametrize(
    ("workers", "cause", "witnesses"),
    [("0", "dataloader.inline", ("lint", "diagnose", "analyze")), ("1", "dataloader.program-waits", ("audit", "diagnose", "analyze"))],
)
def test_who_looks_names_the_cause(workers: str, cause: str, witnesses: tuple[str, ...], tmp_path: Path) -> None:
    """Stacks, which see what the CPUs leave, promise no gain that the replay of the trace rules out."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING.replace("int(sys.argv[1])", workers).replace(SLEEPS, f"end = time.perf_counter() + 0.025; {SPINS}"))
    wrapped = ("wrap", "--traceable", "--", PYTHON, str(script))
    with sockets() as folder, started(sys.executable, SYSPERF, *wrapped, env={"XDG_RUNTIME_DIR": folder}) as program:
        pid, began = str(program.pid), time.monotonic()
        answers = {
            "diagnose": command("diagnose", pid, "--json", "--no-trace"),
            "lint": command("lint", str(script), "--confidence", "low", "--json"),  # a CPU may not be left for workers
            "analyze": command("trace", pid, "--analyze", "--json", "--output", "trace.json", cwd=tmp_path),
        }
        time.sleep(max(0.0, began + OLD_S - time.monotonic()))
        answers["audit"] = command("audit", "--json", "--fail-on", "never")
    found = {name: _of(json.loads(done.stdout)[FINDINGS[name]], cause) for name, done in answers.items()}

    assert {name for name, finding in found.items() if finding} == set(witnesses), {name: done.stdout for name, done in answers.items()}
    seen, replayed = found["diagnose"]["gain"], found["analyze"]["gain"]
    assert seen["low"] is None or replayed["low"] - 1 <= seen["high"]
    assert seen["high"] is None or seen["low"] <= replayed["high"] + 1


def _of(findings: list[JsonObject], cause: str) -> JsonObject:
    """The finding about this cause; empty where there is none."""
    return next((each for each in findings if each["rule"] == cause and each.get("state") not in ("pass", "unknown")), {})

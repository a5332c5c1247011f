"""The labelled traces: those in the tree, and those in a folder `traces` where SYSPERF_FIXTURES says."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from sysperf.engine.analyze import Result, analyze
from sysperf.engine.judging import load_rules
from sysperf.evaluate.ruleset import Ruleset

HERE = Path(__file__).parent.parent / "traces"
COUNTS_AS = {"N3": "T4", "N4": "T5", "N10": "T17"}


def traces() -> list[Path]:
    """All labelled traces, each once."""
    beside = (os.environ.get("SYSPERF_FIXTURES") or str(HERE.parent.parent.parent / "shared/fixtures"), "traces")
    by_name = {path.name: path for folder in (HERE, Path(*beside)) for path in sorted(folder.glob("*.truth.json"))}
    return [path.parent / path.name.removesuffix(".truth.json") for _, path in sorted(by_name.items())]


def truth(path: Path) -> dict[str, Any]:
    """What is known of a trace."""
    known: dict[str, Any] = json.loads(path.with_name(f"{path.name}.truth.json").read_text())
    return known


@cache
def rules() -> Ruleset:
    return load_rules()


@cache
def result(path: Path) -> Result:
    """The analysis of a labelled trace, made once."""
    return analyze([str(path)], rules())


def detecting(detection: str) -> set[str]:
    """The rules that find it."""
    return {rule.id for rule in rules().rules if detection in rule.detects}


def detected(result: Result) -> set[str]:
    """The detections of all findings; those of Nsight Systems count as their like, too."""
    named = {detection for finding in result.analysis.findings for detection in rules().compiled(finding.rule).rule.detects}
    return named | {COUNTS_AS[detection] for detection in named if detection in COUNTS_AS}

"""The rules for many nodes, as Prometheus takes them: medians by class, the slow node by name, and silence where nothing is wrong."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fleet.machines import node, planted, write
from tests.invoking import program, sysperf

RULES = Path(__file__).resolve().parent.parent.parent / "docs/prometheus/fleet.yml"
TOOL = program("promtool")
needs_promtool = pytest.mark.skipif(TOOL is None, reason="no promtool: apt-get install prometheus")


def checked(*words: str) -> str:
    assert TOOL is not None
    done = subprocess.run([TOOL, *words], capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


@needs_promtool
def test_the_rules_are_sound() -> None:
    """Syntax, expressions and templates."""
    assert "SUCCESS" in checked("check", "rules", str(RULES))


@needs_promtool
def test_alerts_name_the_node(tmp_path: Path) -> None:
    """The slow one of five, not the slow one of three; who differs, is sick or silent."""
    text = Path(__file__).with_name("alerts.yml").read_text().replace("RULES", str(RULES))
    (tmp_path / "alerts.yml").write_text(text)

    assert "SUCCESS" in checked("test", "rules", str(tmp_path / "alerts.yml"))
    assert set(re.findall(r"alert: (\w+)", RULES.read_text())) <= set(re.findall(r"Sysperf\w+", text))


def test_the_rules_name_metrics_that_are_there(tmp_path: Path) -> None:
    """A typo would be an alert that never fires."""
    records = [*planted(60), {**node("n99"), "unknown": [{"area": "nic", "why": "x"}]}]
    folder = write(tmp_path / "records", records)
    (folder / "n98.json").write_text("x")
    fleet = sysperf("fleet", "audit", str(folder), "--format", "prometheus").stdout
    own = sysperf("node", "bench", "--only", "memory", "--runs", "1", "--node", "n1", "--format", "prometheus").stdout
    exposed = {family.name for text in (fleet, own) for family in text_string_to_metric_families(text)}
    named = set(re.findall(r"\bsysperf_\w+", "\n".join(re.findall(r"expr: (.*(?:\n {10}.*)*)", RULES.read_text()))))

    assert named
    assert named <= exposed
    assert not [line for line in (fleet + own).splitlines() if re.search(r'\bjob="', line)]

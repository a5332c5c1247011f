"""A real Prometheus: it accepts our metrics, rules and dashboard, and scrapes a real server through systemd's proxy."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysperf.agent import metrics
from sysperf.agent.api import Api
from sysperf.agent.events import Events
from sysperf.agent.server import Server
from sysperf.agent.sockets import Listener, bind
from tests.agent.states import Running, Table, eventually, serving
from tests.prometheus import FOLDER, checked, expressions, free_port, is_laid_out, page, parse, process, program, value

ROOT = Path(__file__).parents[2]
PROXY = Path("/lib/systemd/systemd-socket-proxyd")


@pytest.fixture(scope="module")
def promtool() -> str:
    return program("promtool", "prometheus")


def exposed() -> set[str]:
    """The names of all metrics of a board that has everything."""
    return set(re.findall(r"^# TYPE (\S+)", metrics.render(Table()), re.MULTILINE))


def test_the_metrics_are_well_named(promtool: str) -> None:
    """promtool's lint has nothing to say."""
    assert checked(promtool, "check", "metrics", given=metrics.render(Table()).encode()) == ""


def test_the_configuration_and_its_rules_are_sound(promtool: str) -> None:
    """Syntax, expressions and templates."""
    assert "SUCCESS" in checked(promtool, "check", "config", str(FOLDER / "prometheus.yml"))
    assert "SUCCESS" in checked(promtool, "check", "rules", str(FOLDER / "rules.yml"))


def test_alerts_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    """Each alert fires on what it is about, and a healthy machine is silent."""
    text = Path(__file__).with_name("alerts.yml").read_text().replace("RULES", str(FOLDER / "rules.yml"))
    (tmp_path / "alerts.yml").write_text(text)

    assert "SUCCESS" in checked(promtool, "test", "rules", str(tmp_path / "alerts.yml"))
    assert set(re.findall(r"alert: (\w+)", (FOLDER / "rules.yml").read_text())) <= set(re.findall(r"Sysperf\w+", text))


def test_alerts_say_what_to_do() -> None:
    """Each has a severity, a summary, what it means, and the next step."""
    text = (FOLDER / "rules.yml").read_text()
    count = text.count("- alert:")

    assert count > 8
    assert [text.count(part) for part in ("severity:", "summary:", "description:", "runbook:")] == [count + 1, count, count, count]


def test_alerts_name_only_metrics_that_are_there() -> None:
    """A typo would be an alert that never fires."""
    named = set(re.findall(r"\bsysperf_\w+", "\n".join(re.findall(r"expr: (.*(?:\n {10}.*)*)", (FOLDER / "rules.yml").read_text()))))

    assert named
    assert named <= exposed()


# ---------------------------------------------------------------------- the dashboard


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return page("dashboard.json")


def queries(dashboard: Any) -> list[str]:
    """Every query of all machines."""
    return expressions(dashboard, instance=".*")


def test_the_dashboard_is_one(dashboard: Any) -> None:
    """Panels do not overlap, and variables exist."""
    is_laid_out(dashboard)
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "instance"}
    assert [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"] == [
        "Findings",
        "GPU",
        "PyTorch processes",
        "Machine",
        "What sysperf costs",
    ]


def test_the_dashboard_names_only_metrics_that_are_there(dashboard: Any) -> None:
    """And queries them in words that Prometheus understands."""
    named = set(re.findall(r"\bsysperf_\w+", " ".join(queries(dashboard))))

    assert len(named) > 40
    assert named <= exposed()


def test_the_dashboard_shows_every_gpu_and_process_meter(dashboard: Any) -> None:
    """What the agent measures is to be seen: all but the bits of NVML, which two other meters spell out."""
    asked = " ".join(queries(dashboard))
    hidden = {name for name in exposed() if name.startswith(("sysperf_gpu_", "sysperf_process_")) and f"{name}{{" not in asked}

    assert hidden == {"sysperf_gpu_clock_events", "sysperf_gpu_info", "sysperf_process_info"}


def test_the_queries_of_the_dashboard_parse(dashboard: Any, tmp_path: Path) -> None:
    """Each as a recording rule."""
    parse(queries(dashboard), tmp_path)


# ---------------------------------------------------------------------- the units


def test_the_proxy_needs_next_to_nothing() -> None:
    """systemd's own score of its sandbox."""
    analyze = program("systemd-analyze", "systemd")
    score = checked(analyze, "security", "--offline=true", "--threshold=12", str(ROOT / "systemd/sysperf-metrics.service"))

    assert "exposure level" in score


# ---------------------------------------------------------------------- a real scrape


@contextlib.contextmanager
def metrics_socket(running: Running, folder: Path) -> Iterator[str]:
    """The second socket, which shows figures only."""
    path = str(folder / "metrics.sock")
    server = Server(Api(running.table, Events()).metrics_only())
    asyncio.run_coroutine_threadsafe(server.start(Listener(bind(path), path)), running.loop).result(10)
    yield path
    asyncio.run_coroutine_threadsafe(server.close(), running.loop).result(10)


def test_only_figures_are_behind_the_port(tmp_path: Path) -> None:
    """What others may reach shows no command lines, no facts, no history."""
    with serving(tmp_path) as running, metrics_socket(running, tmp_path) as path:
        proxied = running._replace(path=path)
        assert proxied.get("/metrics").status == 200
        assert {proxied.get(target).status for target in ("/", "/v1/snapshot", "/v1/processes", "/v1/history", "/v1/events")} == {404}


def test_prometheus_scrapes_through_the_proxy(tmp_path: Path) -> None:
    """The configuration that we ship, on other ports: unix socket, systemd's proxy, Prometheus, and the figures come back."""
    server, activate = program("prometheus", "prometheus"), program("systemd-socket-activate", "systemd")
    if not PROXY.exists():
        pytest.skip(f"no {PROXY}: install the Debian package systemd")
    scrape, ui = free_port(), free_port()
    text = (FOLDER / "prometheus.yml").read_text().replace("9109", str(scrape)).replace("scrape_interval: 15s", "scrape_interval: 1s")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    options = (f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{ui}")

    with (
        serving(tmp_path) as running,
        metrics_socket(running, tmp_path) as path,
        process(activate, "-l", f"127.0.0.1:{scrape}", str(PROXY), path),
        process(server, *options),
    ):
        assert eventually(lambda: value(ui, 'up{job="sysperf"}') == "1", 60)
        assert eventually(lambda: value(ui, 'sysperf_gpu_memory_total_bytes{gpu="0"}') == str(80 << 30))
        assert value(ui, "count(sysperf_finding)") == "1"
        assert value(ui, "scrape_samples_scraped") == value(ui, "scrape_samples_post_metric_relabeling")

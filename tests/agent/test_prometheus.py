"""A real Prometheus: it accepts our metrics, rules and dashboard, and scrapes a real server through systemd's proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
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

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/prometheus"
PROXY = Path("/lib/systemd/systemd-socket-proxyd")


@pytest.fixture(scope="module")
def promtool() -> str:
    return _program("promtool", "prometheus")


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}: install the Debian package {package}")
    return path


def checked(*command: str, given: bytes = b"") -> str:
    """What a tool says of something good; a tool that complains fails the test."""
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


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
    return json.loads((FOLDER / "dashboard.json").read_text())


def expressions(dashboard: Any) -> list[str]:
    """Every query, with Grafana's variables filled in."""
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [expression.replace("$instance", ".*").replace("$__rate_interval", "5m") for expression in queries]


def test_the_dashboard_is_one(dashboard: Any) -> None:
    """Panels with unique numbers that do not overlap, each with its data source, and variables that exist."""
    panels = dashboard["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in panels for target in panel.get("targets", []))
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "instance"}
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Findings",
        "GPU",
        "PyTorch processes",
        "Machine",
        "What sysperf costs",
    ]


def test_the_dashboard_names_only_metrics_that_are_there(dashboard: Any) -> None:
    """And queries them in words that Prometheus understands."""
    named = set(re.findall(r"\bsysperf_\w+", " ".join(expressions(dashboard))))

    assert len(named) > 40
    assert named <= exposed()


def test_the_dashboard_shows_every_gpu_and_process_meter(dashboard: Any) -> None:
    """What the agent measures is to be seen: all but the bits of NVML, which two other meters spell out."""
    queries = " ".join(expressions(dashboard))
    hidden = {name for name in exposed() if name.startswith(("sysperf_gpu_", "sysperf_process_")) and f"{name}{{" not in queries}

    assert hidden == {"sysperf_gpu_clock_events", "sysperf_gpu_info", "sysperf_process_info"}


def test_the_queries_of_the_dashboard_parse(promtool: str, dashboard: Any, tmp_path: Path) -> None:
    """Each as a recording rule."""
    rules = [{"record": f"panel:query:{number}", "expr": expression} for number, expression in enumerate(expressions(dashboard))]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    assert f"{len(rules)} rules found" in checked(promtool, "check", "rules", str(tmp_path / "queries.yml"))


# ---------------------------------------------------------------------- the units


def test_the_proxy_needs_next_to_nothing() -> None:
    """systemd's own score of its sandbox."""
    analyze = _program("systemd-analyze", "systemd")
    score = checked(analyze, "security", "--offline=true", "--threshold=12", str(ROOT / "systemd/sysperf-metrics.service"))

    assert "exposure level" in score


# ---------------------------------------------------------------------- a real scrape


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def metrics_socket(running: Running, folder: Path) -> Iterator[str]:
    """The second socket, which shows figures only."""
    path = str(folder / "metrics.sock")
    server = Server(Api(running.table, Events()).metrics_only())
    asyncio.run_coroutine_threadsafe(server.start(Listener(bind(path), path)), running.loop).result(10)
    yield path
    asyncio.run_coroutine_threadsafe(server.close(), running.loop).result(10)


@contextlib.contextmanager
def process(*command: str) -> Iterator[None]:
    """A program that runs as long as the test."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            yield
        finally:
            started.terminate()


def asked(url: str) -> str:
    """What is there; empty while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - http, written above
            return str(reply.read().decode())
    except OSError:
        return ""


def test_only_figures_are_behind_the_port(tmp_path: Path) -> None:
    """What others may reach shows no command lines, no facts, no history."""
    with serving(tmp_path) as running, metrics_socket(running, tmp_path) as path:
        proxied = running._replace(path=path)
        assert proxied.get("/metrics").status == 200
        assert {proxied.get(target).status for target in ("/", "/v1/snapshot", "/v1/processes", "/v1/history", "/v1/events")} == {404}


def test_prometheus_scrapes_through_the_proxy(tmp_path: Path) -> None:
    """The configuration that we ship, on other ports: unix socket, systemd's proxy, Prometheus, and the figures come back."""
    server, activate = _program("prometheus", "prometheus"), _program("systemd-socket-activate", "systemd")
    if not PROXY.exists():
        pytest.skip(f"no {PROXY}: install the Debian package systemd")
    scrape, ui = free_port(), free_port()
    text = (FOLDER / "prometheus.yml").read_text().replace("9109", str(scrape)).replace("scrape_interval: 15s", "scrape_interval: 1s")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    options = (f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{ui}")

    def value(query: str) -> str:
        answer = asked(f"http://127.0.0.1:{ui}/api/v1/query?query={urllib.parse.quote(query)}")
        series = json.loads(answer)["data"]["result"] if answer else []
        return str(series[0]["value"][1]) if series else ""

    with (
        serving(tmp_path) as running,
        metrics_socket(running, tmp_path) as path,
        process(activate, "-l", f"127.0.0.1:{scrape}", str(PROXY), path),
        process(server, *options),
    ):
        assert eventually(lambda: value('up{job="sysperf"}') == "1", 60)
        assert eventually(lambda: value('sysperf_gpu_memory_total_bytes{gpu="0"}') == str(80 << 30))
        assert value("count(sysperf_finding)") == "1"
        assert value("scrape_samples_scraped") == value("scrape_samples_post_metric_relabeling")

"""The fleet's page of Grafana over a real Prometheus: what a collector and two nodes write, our rules, every query of the page."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.states import eventually
from tests.fleet.machines import node, planted, write
from tests.fleet.test_fleet_alerts import RULES
from tests.invoking import sysperf
from tests.prometheus import expressions, free_port, is_laid_out, page, parse, process, program, series, value

METRIC = "memory.triad"
NODES = {"n1": 100.0, "n2": 101.0, "n3": 99.0, "n4": 100.5, "n20": 60.0}
"""What each node measured; the last is far below its class."""
EXPORTERS = '# the node exporter\'s\nnode_textfile_mtime_seconds{file="/textfile/sysperf-fleet.prom"} 1000\n'


@pytest.fixture(scope="module")
def shown() -> Any:
    return page("fleet.json")


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Prometheus that has scraped a collector and five nodes."""
    server, folder = program("prometheus", "prometheus"), tmp_path_factory.mktemp("page")
    targets = [f"{name}.prom" for name in ("collector", *NODES)]
    _written(folder)
    handler = functools.partial(_Quiet, directory=str(folder))
    ui = free_port()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        jobs = "".join(
            f"  - {{job_name: {name}, metrics_path: /{name}, static_configs: [{{targets: ['127.0.0.1:{files.server_port}'],"
            f" labels: {{instance: {name.removesuffix('.prom')}}}}}]}}\n"
            for name in targets
        )
        text = f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\nscrape_configs:\n{jobs}"
        (folder / "prometheus.yml").write_text(text)
        options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{ui}")
        with process(server, *options):
            assert eventually(lambda: value(ui, 'count(ALERTS{alertname="SysperfNodeSuspect"})') == "1", 60)
            yield ui
        files.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Files as a scrape wants them."""

    extensions_map = {".prom": "text/plain"}

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _written(folder: Path) -> None:
    """What the commands write for the node exporter."""
    records = [*planted(60), {**node("n99"), "unknown": [{"area": "nic", "why": "x"}]}]
    write(folder / "records", records)
    (folder / "records/n98.json").write_text("x")
    audit = sysperf("fleet", "audit", str(folder / "records"), "--format", "prometheus").stdout
    (folder / "collector.prom").write_text(audit + EXPORTERS)
    for name, figure in NODES.items():
        own = next(line for line in audit.splitlines() if re.match(rf'sysperf_node_info{{.*node="{name}"', line))
        ceiling = f'sysperf_node_ceiling{{node="{name}",metric="{METRIC}",unit="GB/s"}} {figure}'
        (folder / f"{name}.prom").write_text(f"{own}\n{ceiling}\n")


def test_the_page_is_one(shown: Any) -> None:
    """Panels do not overlap, and variables exist."""
    is_laid_out(shown)
    assert [panel["title"] for panel in shown["panels"] if panel["type"] == "row"] == ["Nodes", "Speed", "Over time"]


def test_the_queries_parse(shown: Any, tmp_path: Path) -> None:
    """Each as a recording rule."""
    parse(expressions(shown, fleet="c", **{"class": ".*"}, metric=".*"), tmp_path)


def test_every_query_has_an_answer(shown: Any, answering: int) -> None:
    """A panel without one would look as if nothing were wrong."""
    queries = expressions(shown, fleet="collector", **{"class": ".*"}, metric=".*")

    assert len(queries) > 20
    assert [query for query in queries if not eventually(lambda query=query: bool(series(answering, query)), 10)] == []


@pytest.mark.parametrize(
    ("title", "figure"),
    [("answered", "61"), ("silent", "1"), ("with errors", "1"), ("with warnings", "0"), ("not fully read", "3"), ("suspects", "1")],
)
def test_the_counts_are_those_of_the_audit(shown: Any, answering: int, title: str, figure: str) -> None:
    """Nobody with a warning is 0, and not an empty panel."""
    (panel,) = (panel for panel in shown["panels"] if panel["title"] == title)
    (query,) = expressions({"panels": [panel]}, fleet="collector")

    assert value(answering, query) == figure


def test_nothing_is_zero_where_no_audit_was_made(shown: Any, answering: int) -> None:
    """Absent is never fine."""
    queries = [query for query in expressions(shown, fleet="elsewhere", **{"class": ".*"}, metric=".*") if "elsewhere" in query]

    assert len(queries) > 10
    assert [query for query in queries if series(answering, query)] == []


def test_the_slowest_is_named(shown: Any, answering: int) -> None:
    """By how much it lies below its class."""
    (panel,) = (panel for panel in shown["panels"] if panel["title"] == "furthest below their class")
    (query,) = expressions({"panels": [panel]}, **{"class": ".*"}, metric=METRIC)
    first = series(answering, query)[0]

    assert (first["metric"]["node"], round(float(first["value"][1]), 2)) == ("n20", -0.4)

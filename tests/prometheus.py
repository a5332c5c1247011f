"""Prometheus' own programs, and the pages that Grafana shows of it."""

from __future__ import annotations

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

FOLDER = Path(__file__).resolve().parent.parent / "docs/prometheus"


def program(name: str, package: str) -> str:
    """Where it lies; without it the test is skipped."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}: install the Debian package {package}")
    return path


def checked(*command: str, given: bytes = b"") -> str:
    """What a tool says of something good; a tool that complains fails the test."""
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - http, of this machine
            return str(reply.read().decode())
    except OSError:
        return ""


def series(port: int, query: str) -> list[Any]:
    """What a Prometheus on this machine says to a query; nothing while it does not answer."""
    answer = asked(f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}")
    found: list[Any] = json.loads(answer)["data"]["result"] if answer else []
    return found


def value(port: int, query: str) -> str:
    """The first of them; empty where there is none."""
    found = series(port, query)
    return str(found[0]["value"][1]) if found else ""


# ---------------------------------------------------------------------- pages of Grafana


def page(name: str) -> Any:
    """A page that we ship."""
    return json.loads((FOLDER / name).read_text())


def expressions(shown: Any, **variables: str) -> list[str]:
    """Every query of a page, with Grafana's variables filled in."""
    queries = [target["expr"] for panel in shown["panels"] for target in panel.get("targets", [])]
    filled = {"__rate_interval": "5m", **variables}
    return [re.sub(r"\$(\w+)", lambda match: filled[match[1]], query) for query in queries]


def is_laid_out(shown: Any) -> None:
    """Panels with unique numbers do not overlap, each has its data source, and all variables exist."""
    panels = shown["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    known = {variable["name"] for variable in shown["templating"]["list"]} | {"__rate_interval"}

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in panels for target in panel.get("targets", []))
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(shown))) <= known
    assert [link["tags"] for link in shown["links"]] == [["sysperf"]]
    assert "sysperf" in shown["tags"]


def parse(queries: list[str], folder: Path) -> None:
    """Prometheus takes each as a recording rule."""
    rules = [{"record": f"panel:query:{number}", "expr": expression} for number, expression in enumerate(queries)]
    (folder / "queries.yml").write_text(json.dumps({"groups": [{"name": "page", "rules": rules}]}))

    assert f"{len(rules)} rules found" in checked(program("promtool", "prometheus"), "check", "rules", str(folder / "queries.yml"))

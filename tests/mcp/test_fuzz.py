"""Fuzzers of what a client of the Model Context Protocol sends: an answer or an error in words, and the server goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.mcp import pages, tools
from sysperf.mcp.pages import Answer
from sysperf.mcp.tools import Allowed
from tests.fuzzing import fuzz
from tests.mcp import NEEDS_SDK
from tests.mutation import VALUES, damaged_bytes

pytestmark = NEEDS_SDK

ROOT = Path(__file__).resolve().parent.parent.parent
WORDS = ("area", "cursor", "folder", "limit", "min_severity", "name", "node", "of_class", "path", "pid", "rule", "rules", "seconds", "top")
HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
ASK = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "facts", "arguments": {"area": "none"}}}


@fuzz
@given(st.sampled_from([tool.name for tool in tools.tools(Allowed())]), st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=4))
def test_arguments_of_any_kind(name: str, given_: dict[str, Any]) -> None:
    """What passes is of the kind and size that the tool's schema names; everything else is one error."""
    from sysperf.mcp import server

    reached: list[dict[str, Any]] = []

    def run(**words: Any) -> Answer:
        reached.append(words)
        return Answer([{"row": number} for number in range(60)])

    tool = next(tool for tool in tools.tools(Allowed()) if tool.name == name)._replace(run=run)
    answer, failed = server._called({name: tool}, pages.Pages(), name, given_)
    assert "internal error" not in json.dumps(answer)
    assert len(json.dumps(answer)) <= pages.MAX_ANSWER_BYTES
    assert failed != bool(reached)
    for words in reached:
        assert set(words) <= set(tool.parameters)
        assert all(not isinstance(value, str) or len(value) <= 1_000 for value in words.values())


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "sysperf", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as process:
        told(process, json.dumps(HELLO).encode(), "hello")
        yield process
        assert process.stdin is not None
        process.stdin.close()


def told(process: subprocess.Popen[bytes], line: bytes, awaited: str) -> None:
    """Send a line, and read until the answer to a question with this id."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    while (answer := process.stdout.readline()) and json.loads(answer).get("id") != awaited:
        pass
    assert answer, "the server ended"


@fuzz
@given(damaged_bytes(json.dumps(ASK).encode()) | st.binary(max_size=60))
def test_any_line(server: subprocess.Popen[bytes], line: bytes) -> None:
    """Whatever a line holds, the next question has its answer."""
    told(server, line.replace(b"\n", b" ") + b'\n{"jsonrpc": "2.0", "id": "ping", "method": "ping"}', "ping")

"""The dashboard in a real browser: headless Chromium draws it, a key reaches it, and nothing can be changed from there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual_serve", reason="needs textual-serve: pip install 'sysperf[web]'")
aiohttp = pytest.importorskip("aiohttp")

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = shutil.which("chromium")
WITHIN_S = 60.0
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync", "--window-size=1200,800",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-port=0",
)  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a served dashboard."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "sysperf", "tui", "--serve", "--port", str(port), "--no-agent"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as server:
        try:
            address = f"http://127.0.0.1:{port}/"
            wait_for(address)
            yield address
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


def wait_for(address: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not answers(address):
        assert time.monotonic() < end
        time.sleep(0.1)


def answers(address: str) -> bool:
    port = int(address.rstrip("/").rpartition(":")[2])
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Browser:
    """One page of Chromium, through its DevTools: what its web sockets hear, and keys."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._number = 0
        self.heard = b""

    async def ask(self, method: str, **parameters: Any) -> Any:
        """One command and its answer; events meanwhile are kept."""
        self._number += 1
        await self._channel.send_json({"id": self._number, "method": method, "params": parameters})
        async for message in self._channel:
            data = message.json()
            self._take(data)
            if data.get("id") == self._number:
                return data.get("result")
        return None

    def _take(self, data: Any) -> None:
        if data.get("method") == "Network.webSocketFrameReceived":
            frame = data["params"]["response"]
            self.heard += base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else frame["payloadData"].encode()

    async def hears(self, text: str) -> None:
        """Until the terminal in the page was told this."""
        end = time.monotonic() + WITHIN_S
        while text.encode() not in self.heard:
            assert time.monotonic() < end, f"{text!r} is not in {self.heard[-2000:]!r}"
            await self.ask("Runtime.evaluate", expression="1")
            await asyncio.sleep(0.1)

    async def press(self, key: str) -> None:
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)


@pytest.mark.skipif(CHROMIUM is None, reason="needs the package chromium")
def test_a_browser_shows_the_dashboard_and_can_change_nothing(served: str, tmp_path: Path) -> None:
    """The overview comes, the key 2 shows the findings, and applying is refused there: HTTP does not authenticate users."""
    asyncio.run(visit(served, tmp_path))


async def visit(address: str, folder: Path) -> None:
    chromium = await asyncio.create_subprocess_exec(
        str(CHROMIUM), *QUIET, f"--user-data-dir={folder}/profile", "about:blank", stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )  # fmt: skip
    try:
        assert chromium.stderr is not None
        async with asyncio.timeout(WITHIN_S) if sys.version_info >= (3, 11) else contextlib.nullcontext():
            while b"DevTools listening on ws://" not in (line := await chromium.stderr.readline()):
                assert line, "Chromium ended"
        port = line.split(b"ws://127.0.0.1:")[1].split(b"/")[0].decode()
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (page,) = [target for target in await answer.json() if target["type"] == "page"]
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as channel:
                await look(Browser(channel), address)
    finally:
        chromium.terminate()
        await chromium.wait()


async def look(browser: Browser, address: str) -> None:
    await browser.ask("Network.enable")
    await browser.ask("Page.navigate", url=address)
    await browser.hears("Overview")
    await browser.hears("memory")
    picture = await browser.ask("Page.captureScreenshot", format="png")
    png = base64.b64decode(picture["data"])
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000
    if keep := os.environ.get("SYSPERF_TEST_PICTURE"):
        Path(keep).write_bytes(png)  # noqa: ASYNC240 - a test may wait
    await browser.ask("Runtime.evaluate", expression="document.querySelector('textarea') && document.querySelector('textarea').focus()")
    await browser.press("2")
    await browser.hears("by cost")
    browser.heard = b""
    await browser.press("w")
    await browser.hears("read-only")

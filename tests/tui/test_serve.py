"""The dashboard in a real browser: headless Chromium draws it and a key reaches it; nobody without its token, and no other page, sees it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("textual_serve", reason="needs textual-serve: pip install '.[web]'")
aiohttp = pytest.importorskip("aiohttp")

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = shutil.which("chromium")
WITHIN_S = 60.0
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync", "--window-size=1200,800",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--remote-debugging-port=0",
)  # fmt: skip
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs the package chromium")


class Served(NamedTuple):
    """A server of dashboards, and the address that it printed."""

    server: subprocess.Popen[str]
    address: str

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.address).netloc

    @property
    def origin(self) -> str:
        return f"http://{self.host}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of dashboards that tests share."""
    with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Served]:
    """A server of dashboards that no other test has asked."""
    with serving(tmp_path) as served:
        yield served


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """A server of dashboards, whose errors are in the file `errors` of its folder."""
    command = [sys.executable, "-m", "sysperf", "tui", "--serve", "--port", "0", "--no-agent"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(folder)}
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as server,
    ):
        try:
            assert server.stdout is not None
            yield Served(server, server.stdout.readline().strip())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


def ask(host: str, path: str, headers: dict[str, str] | None = None) -> Answer:
    """One request with just these headers, and what came back."""
    connection = http.client.HTTPConnection(host, timeout=WITHIN_S)
    try:
        connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": host} | (headers or {})).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = b"" if answer.status == 101 else answer.read()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body.decode())
    finally:
        connection.close()


def entered(served: Served) -> tuple[str, dict[str, str]]:
    """(the folder behind the token, the header with the cookie): the token is handed in."""
    inside = ask(served.host, served.address.removeprefix(served.origin))
    assert inside.status == 303
    return inside.headers["location"], {"Cookie": inside.headers["set-cookie"].partition(";")[0]}


def test_the_token_is_handed_in_for_a_cookie_that_no_script_and_no_other_port_sees(served: Served) -> None:
    """The folder's name is random and the cookie belongs to it: a server on another port of this host is not sent it."""
    folder, cookie = entered(served)
    attributes = ask(served.host, served.address.removeprefix(served.origin)).headers["set-cookie"]

    page = ask(served.host, folder, cookie)

    assert "HttpOnly" in attributes
    assert f"Path={folder}" in attributes
    assert len(folder) > 30
    assert page.status == 200
    assert "<title>sysperf: " in page.body
    assert "http" not in page.body, "the page names another server"
    assert page.headers["content-security-policy"].startswith("default-src 'none';")
    assert page.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=x", "/?token=%ff%00", "/ws", "/static/js/textual.js", "/download/x"])
def test_without_the_token_nothing_is_shown(served: Served, path: str) -> None:
    """The token is asked for at every door, with a sentence that says so."""
    answer = ask(served.host, path)

    assert answer.status in (403, 404)
    assert "token" in answer.body or answer.status == 404


@pytest.mark.parametrize("inside", ["", "static/js/textual.js", "page/page.js", "download/x"])
def test_who_learnt_the_folder_still_needs_the_cookie(served: Served, inside: str) -> None:
    """An address over somebody's shoulder is not enough."""
    folder, cookie = entered(served)

    assert ask(served.host, folder + inside).status == 403
    assert ask(served.host, folder + inside, {"Cookie": "sysperf=x"}).status == 403
    assert ask(served.host, folder + inside, cookie).status in (200, 404)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[::1]", "", "0", "127.0.0.1@evil.example"]
)
def test_another_name_for_this_host_is_refused(served: Served, host: str) -> None:
    """A name of somebody else's that was made to mean 127.0.0.1 is theirs (DNS rebinding)."""
    folder, cookie = entered(served)

    assert ask(served.host, folder, {**cookie, "Host": host}).status in (400, 403)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://{host}", "http://localhost", "", None])
def test_a_web_socket_of_another_page_is_refused(served: Served, origin: str | None) -> None:
    """Even with the cookie, only a page of ours may open one; a web socket without Origin is no browser's."""
    folder, cookie = entered(served)
    said = {} if origin is None else {"Origin": origin.format(host=served.host)}

    assert ask(served.host, f"{folder}ws", {**UPGRADE, **cookie, **said}).status == 403


def test_a_web_socket_of_our_page_is_opened(alone: Served) -> None:
    """With the cookie and our origin, as a browser asks."""
    folder, cookie = entered(alone)

    assert ask(alone.host, f"{folder}ws", {**UPGRADE, **cookie, "Origin": alone.origin}).status == 101


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_request_of_another_page_is_refused(served: Served, origin: str) -> None:
    """Also where nothing is a web socket."""
    folder, cookie = entered(served)

    assert ask(served.host, folder, {**cookie, "Origin": origin}).status == 403


def test_a_forwarded_port_works_under_both_names(alone: Served) -> None:
    """`ssh -L 9000:127.0.0.1:8000` makes a browser ask for another port, and some write localhost."""
    folder, cookie = entered(alone)

    for host in ("localhost:9000", "127.0.0.1:9000", "localhost"):
        assert ask(alone.host, folder, {**cookie, "Host": host}).status == 200
        assert ask(alone.host, f"{folder}ws", {**UPGRADE, **cookie, "Host": host, "Origin": f"http://{host}"}).status == 101


def test_windows_are_limited_and_a_closed_one_makes_room(alone: Served) -> None:
    """A fifth window is refused while four are open; no dashboard is started for it."""
    asyncio.run(open_many(alone))


async def open_many(served: Served) -> None:
    folder, cookie = entered(served)
    headers = {**cookie, "Origin": served.origin}
    async with aiohttp.ClientSession() as session:
        windows = [await session.ws_connect(f"{served.origin}{folder}ws", headers=headers, max_msg_size=0) for _ in range(4)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await session.ws_connect(f"{served.origin}{folder}ws", headers=headers)
        assert refusal.value.status == 503
        await until(lambda: has_dashboards(served, 4))  # a window is there before its dashboard has started
        await windows[0].close()
        await until(lambda: accepts(session, f"{served.origin}{folder}ws", headers))
        for window in windows[1:]:
            await window.close()


async def has_dashboards(served: Served, count: int) -> bool:
    return len(dashboards(served)) == count


async def accepts(session: Any, address: str, headers: dict[str, str]) -> bool:
    try:
        window = await session.ws_connect(address, headers=headers, max_msg_size=0)
    except aiohttp.WSServerHandshakeError:
        return False
    await window.close()
    return True


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + WITHIN_S
    while not await holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.2)


def dashboards(served: Served) -> list[int]:
    """The server's children that have not ended."""
    children = Path(f"/proc/{served.server.pid}/task/{served.server.pid}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes()]


def test_the_server_ends_with_its_dashboards(alone: Served) -> None:
    """SIGTERM ends it while a window is open, within the time that it gives its dashboards, and leaves none behind."""
    asyncio.run(open_and_end(alone))

    assert alone.server.wait(WITHIN_S) == 0


async def open_and_end(served: Served) -> None:
    folder, cookie = entered(served)
    async with aiohttp.ClientSession() as session:
        window = await session.ws_connect(f"{served.origin}{folder}ws", headers={**cookie, "Origin": served.origin}, max_msg_size=0)
        await window.receive(WITHIN_S)
        children = dashboards(served)
        served.server.terminate()
        async for _ in window:
            pass
    assert children
    await until(lambda: ended(children))


async def ended(children: list[int]) -> bool:
    return not any(os.path.exists(f"/proc/{child}") for child in children)  # noqa: ASYNC240 - /proc answers at once


@pytest.mark.parametrize("sent", ["{", "[]", '"x"', '["stdin"]', '["resize", {}]', '["stdin", 5]'])
def test_what_a_window_should_not_send_ends_it_without_a_traceback(alone: Served, tmp_path: Path, sent: str) -> None:
    """The window is closed, its dashboard ends, and stderr has at most one line."""
    asyncio.run(send(alone, sent))

    errors = (tmp_path / "errors").read_text()
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 1


async def send(served: Served, text: str) -> None:
    folder, cookie = entered(served)
    async with aiohttp.ClientSession() as session:
        window = await session.ws_connect(f"{served.origin}{folder}ws", headers={**cookie, "Origin": served.origin}, max_msg_size=0)
        await window.send_str(text)
        async for _ in window:
            pass


@pytest.mark.parametrize("port", [-1, 65536, 10**30])
def test_a_port_that_is_none_is_an_error(port: int, tmp_path: Path) -> None:
    assert "--port" in refused(port, tmp_path)


def test_a_port_that_somebody_else_has_is_an_error(tmp_path: Path) -> None:
    """The next step is named."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(taken.getsockname()[1], tmp_path)

    assert "Address already in use" in said
    assert "hint: choose another" in said


def refused(port: int, folder: Path) -> str:
    command = [sys.executable, "-m", "sysperf", "tui", "--serve", f"--port={port}"]
    ended = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    return ended.stderr


class Page:
    """One page of Chromium, through its DevTools: what it asks for, what its web sockets hear, and keys."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._number = 0
        self.heard = b""
        self.asked: list[str] = []
        self.opened: list[str] = []

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
        elif data.get("method") == "Network.requestWillBeSent":
            self.asked.append(data["params"]["request"]["url"])
        elif data.get("method") == "Network.webSocketCreated":
            self.asked.append(data["params"]["url"])
        elif data.get("method") == "Page.windowOpen":  # of a download it closes again at once
            self.opened.append(data["params"]["url"])

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        return (await self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True))["result"].get("value")

    async def hears(self, text: str) -> None:
        """Wait until the terminal in the page was told this."""
        await self._until(lambda: text.encode() in self.heard, lambda: f"{text!r} is not in {self.heard[-2000:]!r}")

    async def opens(self, start: str) -> None:
        """Wait until the page has opened a window whose address begins so."""
        await self._until(lambda: any(url.startswith(start) for url in self.opened), lambda: f"no {start} is in {self.opened}")

    async def _until(self, holds: Callable[[], bool], missed: Callable[[], str]) -> None:
        end = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < end, missed()
            await self.ask("Runtime.evaluate", expression="1")
            await asyncio.sleep(0.1)

    async def press(self, key: str) -> None:
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)


async def browse(folder: Path, look: Callable[[Page], Awaitable[None]]) -> None:
    """Look with a Chromium of our own."""
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
                (target,) = [target for target in await answer.json() if target["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as channel:
                page = Page(channel)
                await page.ask("Network.enable")
                await page.ask("Page.enable")
                await look(page)
    finally:
        chromium.terminate()
        await chromium.wait()


@needs_chromium
def test_a_browser_shows_the_dashboard_and_can_change_nothing(alone: Served, tmp_path: Path) -> None:
    """The overview comes, the key 2 shows the findings without a click before it, and applying is refused there."""

    async def look(page: Page) -> None:
        await page.ask("Page.navigate", url=alone.address)
        await page.hears("Overview")
        await page.hears("memory")
        picture = await page.ask("Page.captureScreenshot", format="png")
        png = base64.b64decode(picture["data"])
        assert png.startswith(b"\x89PNG")
        assert len(png) > 10_000
        if keep := os.environ.get("SYSPERF_TEST_PICTURE"):
            Path(keep).write_bytes(png)  # noqa: ASYNC240 - a test may wait
        await page.press("2")
        await page.hears("by cost")
        page.heard = b""
        await page.press("w")
        await page.hears("read-only")

    asyncio.run(browse(tmp_path, look))


@needs_chromium
def test_a_browser_asks_nobody_else_for_anything(alone: Served, tmp_path: Path) -> None:
    """Scripts, styles and the font come from the server itself, the token leaves the address, and the page has a name."""

    async def look(page: Page) -> None:
        await page.ask("Page.navigate", url=alone.address)
        await page.hears("Overview")
        assert {urllib.parse.urlsplit(url).netloc for url in page.asked if not url.startswith("data:")} == {alone.host}
        assert any(url.endswith(".ttf") for url in page.asked)
        assert await page.value("document.fonts.check('16px \"Roboto Mono\"')")
        assert "token" not in await page.value("location.href")
        assert (await page.value("document.title")).startswith("sysperf")
        assert await page.value("document.activeElement.tagName") == "TEXTAREA"

    asyncio.run(browse(tmp_path, look))


@pytest.mark.slow
@needs_chromium
def test_a_picture_opens_in_a_window_beside_the_one_that_asked_for_it(alone: Served, tmp_path: Path) -> None:
    """The key s: Textual's script opens pictures at the server's top, where the cookie is not sent; our page sends them to its folder."""
    folder, cookie = entered(alone)

    async def look(page: Page) -> None:
        await page.ask("Page.navigate", url=alone.address)
        await page.hears("memory")
        await page.press("s")
        await page.opens(f"{alone.origin}{folder}download/")

    asyncio.run(browse(tmp_path, look))
    assert "<svg" in asyncio.run(downloaded(alone, folder, cookie))


async def downloaded(served: Served, folder: str, cookie: dict[str, str]) -> str:
    """The picture of a window that pressed s."""
    async with aiohttp.ClientSession(headers=cookie) as session:
        window = await session.ws_connect(f"{served.origin}{folder}ws", headers={"Origin": served.origin}, max_msg_size=0)
        shown, key = b"", ""
        while not key:
            message = await window.receive(WITHIN_S)
            if message.type is aiohttp.WSMsgType.TEXT:
                key = message.json()[1]
            elif b"memory" not in shown and b"memory" in (shown := shown + message.data):
                await window.send_json(["stdin", "s"])
        async with session.get(f"{served.origin}{folder}download/{key}") as answer:
            return str(await answer.text())


ATTACK = """<!doctype html><title>trying</title><script>
const target = "%s", seen = [];
const socket = () => new Promise(done => {
  const channel = new WebSocket(target.replace("http:", "ws:") + "ws?width=80&height=24");
  channel.onmessage = message => { seen.push(message.data); done(); };
  channel.onclose = done;
});
const read = () => fetch(target, {credentials: "include"}).then(answer => answer.text()).then(text => seen.push(text)).catch(() => {});
Promise.all([socket(), read()]).then(() => { document.title = "seen " + seen.length; });
</script>"""


@needs_chromium
def test_a_page_of_another_server_sees_nothing_in_the_browser_that_has_the_cookie(alone: Served, tmp_path: Path) -> None:
    """Neither by a web socket nor by a request, under another name or another port of this host; nor is the cookie sent to it."""
    folder, _ = entered(alone)
    cookies: list[str | None] = []

    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers["Cookie"])
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((ATTACK % f"{alone.origin}{folder}").encode())

        def log_message(self, *_: object) -> None: ...

    async def look(page: Page) -> None:
        await page.ask("Page.navigate", url=alone.address)
        await page.hears("Overview")
        for name in ("127.0.0.1", "localhost"):
            await page.ask("Page.navigate", url=f"http://{name}:{foreign.server_port}/")
            await until(lambda: tried(page))
            assert await page.value("document.title") == "seen 0"
        assert cookies
        assert set(cookies) == {None}

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as foreign:
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        try:
            asyncio.run(browse(tmp_path, look))
        finally:
            foreign.shutdown()


async def tried(page: Page) -> bool:
    return str(await page.value("document.title")).startswith("seen")

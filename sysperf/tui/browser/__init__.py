"""The dashboard in a browser: a process for each window, read-only, for whoever has the address with its token.

Every program and every user of a machine reaches its loopback address, and so does each page of the web that a browser on it shows.
What they lack:

    token   in the address that is printed; it is handed in once, for a cookie
    cookie  sent by that browser only, and only to our folder, whose name is random: other ports of this host do not see it
    Host    ours, so no name of somebody else's that was made to mean 127.0.0.1 (DNS rebinding)
    Origin  ours, so no script of another page; a web socket without one is no browser's

Everything that the page needs comes from here; its policy lets it ask nobody else.
"""

from __future__ import annotations

import asyncio
import html
import logging
import secrets
import socket
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from sysperf.model.text import neutral

WINDOWS = 4
"""Dashboards at a time, of 60 MB each."""
END_WITHIN_S = 10.0
NAMES = ("127.0.0.1", "localhost")
PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
        "connect-src 'self' ws://127.0.0.1:* ws://localhost:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""`unsafe-inline` for styles: the terminal in the page writes its own."""


class Browser(Server):
    """A server of dashboards: who may look at them, and at how many."""

    def __init__(self, command: str, listener: socket.socket, title: str) -> None:
        host, port = listener.getsockname()
        super().__init__(command, host=host, port=port, title=title)
        self._listener = listener
        self._token, self._cookie, self._folder = (secrets.token_urlsafe(24) for _ in range(3))
        self._windows: set[asyncio.Task[object]] = set()

    @property
    def address(self) -> str:
        """What a browser is given. It is the key: not for logs, nor for a command line."""
        return f"{self.public_url}/?token={self._token}"

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        _log_in_lines()
        web.run_app(self.application(), sock=self._listener, print=None, access_log=None)

    def application(self) -> web.Application:
        """Return where the token is handed in, and the folder behind it."""
        inside = web.Application(middlewares=[self._known])
        inside.add_routes([
            web.get("/", self._index),
            web.get("/ws", self.handle_websocket),
            web.get("/download/{key}", self.handle_download),
            web.static("/page", PAGE),
            web.static("/static", self.statics_path),
        ])  # fmt: skip
        whole = web.Application(middlewares=[_from_here])
        whole.router.add_get("/", self._enter)
        whole.add_subapp(f"/{self._folder}", inside)
        whole.on_response_prepare.append(_protect)
        whole.on_shutdown.append(self._end)
        return whole

    async def _enter(self, request: web.Request) -> web.Response:
        if not _same(request.query.get("token", ""), self._token):
            raise web.HTTPForbidden(text="This needs the whole address that `sysperf tui --serve` printed, with its token.\n")
        inside = web.Response(status=303, headers={"Location": f"/{self._folder}/"})
        # Lax, not Strict: the address may come by a link in a mail. A page of another site is refused by its Origin.
        inside.set_cookie("sysperf", self._cookie, path=f"/{self._folder}/", httponly=True, samesite="Lax")
        return inside

    @web.middleware
    async def _known(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _same(request.cookies.get("sysperf", ""), self._cookie):
            raise web.HTTPForbidden(text="This browser has not handed in the token: open the address that `sysperf tui --serve` printed.\n")
        return await handler(request)

    async def _index(self, _: web.Request) -> web.Response:
        page = (PAGE / "index.html").read_text(encoding="utf-8")
        return web.Response(text=page.replace("TITLE", html.escape(neutral(self.title))), content_type="text/html")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Show one window its dashboard."""
        if len(self._windows) >= WINDOWS:
            raise web.HTTPServiceUnavailable(text=f"{WINDOWS} windows are open, which is the limit.\n")
        window = asyncio.current_task()
        assert window is not None  # noqa: S101 - a handler runs in a task
        self._windows.add(window)
        try:
            return await super().handle_websocket(request)
        finally:
            self._windows.discard(window)

    async def _end(self, _: web.Application) -> None:
        """End all dashboards: aiohttp would wait a minute for their windows to close."""
        for window in (windows := tuple(self._windows)):
            window.cancel()
        await asyncio.wait(windows, timeout=END_WITHIN_S) if windows else None


@web.middleware
async def _from_here(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer only who asks for us, and no page but our own."""
    if request.headers.get("Host", "").partition(":")[0] not in NAMES:
        raise web.HTTPForbidden(text="This server is 127.0.0.1 or localhost.\n")
    origin = request.headers.get("Origin")
    if origin != f"http://{request.headers['Host']}" and (origin is not None or "Upgrade" in request.headers):
        raise web.HTTPForbidden(text="Another page's script has no business here.\n")
    return await handler(request)


async def _protect(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _log_in_lines() -> None:
    """What goes wrong with a window is a line on stderr: what a browser sends makes no traceback."""
    lines = logging.StreamHandler()
    lines.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The message alone, escaped."""
        return f"sysperf: {neutral(record.getMessage(), 500)}"

"""The server on a real socket, with the clients nobody wants."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.agent.api import Api
from sysperf.agent.client import Client
from sysperf.agent.events import Events
from sysperf.agent.pace import Pace
from sysperf.agent.server import Answer, Limits, Request, Server
from sysperf.agent.sockets import Listener, bind, listener, passed_sockets
from sysperf.model.errors import SysperfError, UsageError
from tests.agent.states import Table, connect, eventually, get, parsed, read_until, rest, send, serving
from tests.fuzzing import fuzz

BIG = b"x" * (8 << 20)
QUICK = Limits(clients=8, header_s=0.5, idle_s=0.5, write_s=0.5)


def big(_: Request) -> Answer:
    return 200, "text/plain", BIG


def broken(_: Request) -> Answer:
    raise RuntimeError("secret detail")


async def slow(_: Request) -> tuple[int, str, bytes]:
    await asyncio.sleep(60)
    return 200, "text/plain", b""


async def flood() -> AsyncIterator[bytes]:
    while True:
        yield b"data: " + b"x" * 10_000 + b"\n\n"


MORE = {"/big": big, "/broken": broken, "/slow": slow, "/flood": lambda _: flood()}
ASK = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A server with ordinary limits, for tests that leave it as it is."""
    with serving(tmp_path_factory.mktemp("server"), more=MORE) as running:
        yield running.path


def alive(path: str) -> bool:
    """Whether another client is answered."""
    return get(path, "/v1/status").status == 200


def test_curl_reads_it(path: str) -> None:
    """An ordinary client over the socket; two requests share one connection."""
    output = subprocess.run(
        ["curl", "-sv", "--unix-socket", path, "http://localhost/v1/status", "http://localhost/"],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert '"mode":"observe"' in output.stdout
    assert "Re-using existing connection" in output.stderr or "Reusing existing" in output.stderr


def test_requests_sent_at_once_are_answered_in_order(path: str) -> None:
    """Pipelining."""
    raw = send(path, ASK + ASK.replace(b"/v1/status", b"/nope") + ASK)

    assert [part.split(b" ", 1)[0] for part in raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_a_request_in_pieces_is_a_request(path: str) -> None:
    """One byte at a time."""
    with connect(path) as client:
        for byte in ASK:
            client.sendall(bytes([byte]))
        assert b" 200 " in read_until(client, b"\r\n")


def test_a_client_that_closed_its_half_is_answered(path: str) -> None:
    """It only said that it asks no more."""
    assert parsed(send(path, ASK, close=True)).status == 200


def test_old_clients_are_answered(path: str) -> None:
    """HTTP/1.0, which knows no chunks and closes."""
    reply = parsed(send(path, b"GET /v1/status HTTP/1.0\r\n\r\n", close=False))

    assert (reply.status, reply.headers["connection"]) == (200, "close")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "BREW"])
def test_only_get_is_understood(path: str, method: str) -> None:
    """Others are told so."""
    raw = send(path, f"{method} /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())

    assert parsed(raw).status == 405
    assert parsed(raw).headers["allow"] == "get"


@pytest.mark.parametrize("framing", ["Content-Length: 1000000000000", "Transfer-Encoding: chunked", "Content-Length: 5"])
def test_a_body_is_not_read(path: str, framing: str) -> None:
    """However it is announced."""
    with connect(path) as client:
        client.sendall(f"POST / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
        assert parsed(rest(client)).status == 405
    with connect(path) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
        assert parsed(rest(client)).status == 413


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked"])  # fmt: skip
def test_no_second_request_is_hidden_in_a_body_in_pieces(path: str, framing: str) -> None:
    """By its length the last request would be the first one's body, by its pieces the body is empty: one answer, and the end."""
    with connect(path) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n0\r\n\r\n".encode() + ASK)
        raw = rest(client)

    assert raw.count(b"HTTP/1.1 ") == 1
    assert (parsed(raw).status, parsed(raw).headers["connection"]) == (413, "close")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\r\n\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client's hello", 400),
        (b"GET / HTTP/1.1\r\nHost: x", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000, 431),
        (b"GET /?" + b"a=1&" * 40 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /%ff%fe/../..%2f%00 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET http://x/v1/status?a HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    ],
)
def test_malformed_requests_are_told_so(path: str, raw: bytes, status: int) -> None:
    """A status, one line of why, and no traceback."""
    reply = parsed(send(path, raw))

    assert reply.status == status
    assert b"Traceback" not in reply.body
    assert alive(path)


@fuzz
@given(
    st.binary(max_size=400)
    | st.lists(st.sampled_from([b"GET ", b"/ ", b"HTTP/1.1", b"\r\n", b"Host: x", b": ", b"\n", b"\0", ASK]), max_size=20).map(b"".join)
)
def test_garbage_ends_with_an_answer_or_a_close(path: str, raw: bytes) -> None:
    """Any bytes: an HTTP answer or none, the connection ends, the server goes on."""
    answer = send(path, raw)

    assert not answer or answer.startswith(b"HTTP/1.1 ")
    assert b"Traceback" not in answer
    assert b" 500 " not in answer


def test_the_server_survived_the_garbage(path: str) -> None:
    """After all of the above."""
    assert alive(path)


def test_a_handler_that_fails_is_one_failed_request(path: str) -> None:
    """The client learns that, and nothing of the inside."""
    reply = get(path, "/broken")

    assert reply.status == 500
    assert b"secret" not in reply.body
    assert alive(path)


def test_a_large_answer_arrives_whole(path: str) -> None:
    """In pieces, as the client takes them."""
    assert get(path, "/big").body == BIG


# ---------------------------------------------------------------------- time and number


def test_a_request_that_never_ends_is_cut(tmp_path: Path) -> None:
    """A byte now and then does not hold a connection."""
    with serving(tmp_path, limits=QUICK) as running, connect(running.path) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in b"GET / HTTP/1.1\r\nHost: " + b"x" * 200:
                client.sendall(bytes([byte]))
                time.sleep(0.02)
        assert parsed(rest(client)).status == 408
        assert eventually(lambda: running.server.clients == 0)


def test_silent_clients_are_closed(tmp_path: Path) -> None:
    """One that says nothing, and one that says nothing more."""
    with serving(tmp_path, limits=QUICK) as running, connect(running.path) as first, connect(running.path) as second:
        second.sendall(ASK)
        assert rest(first) == b""
        assert rest(second).startswith(b"HTTP/1.1 200")
        assert eventually(lambda: running.server.clients == 0)


@pytest.mark.parametrize("target", ["/big", "/flood"])
def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, target: str) -> None:
    """Others are answered meanwhile, and memory does not grow by what waits."""
    with serving(tmp_path, limits=QUICK, more=MORE) as running, connect(running.path) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert alive(running.path)
        assert eventually(lambda: running.server.clients == 0)
        assert alive(running.path)


def test_a_slow_handler_does_not_hold_up_others(tmp_path: Path) -> None:
    """And is given up."""
    with serving(tmp_path, limits=Limits(handler_s=0.5), more=MORE) as running, connect(running.path) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert alive(running.path)
        assert b" 500 " in read_until(client, b"\r\n")


def test_one_too_many_is_turned_away(tmp_path: Path) -> None:
    """With 503; when another leaves, there is room again."""
    with serving(tmp_path, limits=Limits(clients=3)) as running:
        connections = [connect(running.path) for _ in range(3)]
        assert eventually(lambda: running.server.clients == 3)
        refused = parsed(send(running.path, b""))
        connections.pop().close()
        assert eventually(lambda: running.server.clients == 2)

        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        assert alive(running.path)
        for connection in connections:
            connection.close()


def test_a_user_who_asks_without_end_waits_for_a_turn(tmp_path: Path) -> None:
    """Over all of that user's connections; what was promised first comes at once, and everything is answered."""
    with serving(tmp_path, limits=Limits(requests_per_s=40, requests_at_once=4)) as running:
        began = time.monotonic()
        with connect(running.path) as first, connect(running.path) as second:
            for client in (first, second):
                client.sendall(ASK * 12)
                client.shutdown(socket.SHUT_WR)
            answers = rest(first) + rest(second)
        assert answers.count(b"HTTP/1.1 200") == 24
        assert time.monotonic() - began >= (24 - 4 - 1) / 40


def test_users_do_not_wait_for_each_other() -> None:
    """And whoever was silent for a while has a turn at once."""
    pace = Pace(per_s=10, at_once=2)
    assert [pace.wait_s(7, 100.0) for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    assert pace.wait_s(8, 100.0) == 0
    assert pace.wait_s(7, 101.0) == 0


def test_two_hundred_clients_do_no_harm_to_another(tmp_path: Path) -> None:
    """190 that ask and do not read, half a request, nothing, or a stream: the next one is answered."""
    with serving(tmp_path, more=MORE) as running:
        requests = (
            b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HT",
            b"",
            b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n",
        )
        clients = []
        for number in range(190):
            client = connect(running.path)
            client.sendall(requests[number % len(requests)])
            clients.append(client)
        assert eventually(lambda: running.server.clients == 190)

        answers = [alive(running.path) for _ in range(20)]

        for client in clients:
            client.close()
        assert all(answers)
        assert eventually(lambda: running.server.clients == 0)
        assert eventually(lambda: running.events.listeners == 0)


def test_clients_that_vanish_leave_nothing(tmp_path: Path) -> None:
    """Closed in the middle of everything."""
    with serving(tmp_path, more=MORE) as running:
        for raw in (
            b"",
            b"GET",
            ASK,
            b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n",
        ) * 5:
            with connect(running.path) as client:
                client.sendall(raw)
        assert eventually(lambda: running.events.listeners == 0)
        assert eventually(lambda: running.server.clients <= 5)  # /slow is found out when it answers
        assert alive(running.path)


def test_closing_ends_all_conversations(tmp_path: Path) -> None:
    """A stream does not hold up the end of the agent, and the socket's file is removed."""
    with serving(tmp_path) as running:
        client = connect(running.path)
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(client, b"retry")

    assert rest(client) is not None
    assert not os.path.exists(running.path)
    client.close()


@pytest.mark.parametrize("turns", range(7))
def test_closing_ends_a_connection_that_was_just_made(tmp_path: Path, turns: int) -> None:
    """Accepted so many turns of the loop ago: nobody waits for an answer that never comes."""

    async def closed() -> bytes:
        path = str(tmp_path / "agent.sock")
        server = Server(Api(Table(), Events()).routes())
        await server.start(Listener(bind(path), path))
        with connect(path, timeout=5) as client:
            client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            return await asyncio.to_thread(rest, client)

    heard = asyncio.run(closed())
    assert not heard or heard.startswith(b"HTTP/1.1 200")


def test_a_stream_that_never_begins_is_given_up_as_any_answer(tmp_path: Path) -> None:
    """An agent that hangs accepts, and says nothing: the patience for a quiet stream begins with its first line."""
    path = str(tmp_path / "agent.sock")
    failed: list[SysperfError] = []

    def listen() -> None:
        try:
            list(Client(path, timeout_s=0.2).events())
        except SysperfError as error:
            failed.append(error)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hanging:
        hanging.bind(path)
        hanging.listen()
        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        assert eventually(lambda: failed)
    assert "timed out" in str(failed[0])


# ---------------------------------------------------------------------- streams


def test_a_stream_ends_with_its_client(tmp_path: Path) -> None:
    """The listener is taken off the list at once."""
    with serving(tmp_path) as running:
        with connect(running.path) as client:
            client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            read_until(client, b"retry")
            assert running.events.listeners == 1
        assert eventually(lambda: running.events.listeners == 0)


def test_a_listener_that_closed_its_half_still_listens(tmp_path: Path) -> None:
    """It asks no more, and hears."""
    with serving(tmp_path) as running, connect(running.path) as client:
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        seen = read_until(client, b"\n:\n\n")
        running.call(running.events.publish, "sample", {"a": 1})
        assert b'event: sample\ndata: {"a":1}\n\n' in read_until(client, b'{"a":1}\n\n', seen)


def test_a_listener_that_talks_is_dropped(tmp_path: Path) -> None:
    """What it sends is not kept."""
    with serving(tmp_path) as running, connect(running.path) as client:
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100):
                client.sendall(b"x" * 65_536)
        assert eventually(lambda: running.events.listeners == 0)


def test_streams_reach_old_clients_too(tmp_path: Path) -> None:
    """HTTP/1.0 gets the events without chunks."""
    with serving(tmp_path) as running, connect(running.path) as client:
        client.sendall(b"GET /v1/events HTTP/1.0\r\n\r\n")
        seen = read_until(client, b"retry: 3000\n\n")
        running.call(running.events.publish, "sample", {"a": 1})
        assert read_until(client, b"}\n\n", seen).endswith(b'event: sample\ndata: {"a":1}\n\n')


# ---------------------------------------------------------------------- sockets


def test_the_socket_is_for_owner_and_group(tmp_path: Path) -> None:
    """And nothing else is left in the folder."""
    path = str(tmp_path / "deep/agent.sock")
    bound = Listener(bind(path), path)

    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    assert os.listdir(tmp_path / "deep") == ["agent.sock"]
    bound.close()
    assert os.listdir(tmp_path / "deep") == []


def test_the_group_may_connect(tmp_path: Path) -> None:
    """Where there is a group `sysperf`, it owns the socket."""
    import grp

    try:
        number = grp.getgrnam("sysperf").gr_gid
    except KeyError:
        number = os.getegid()
    path = str(tmp_path / "agent.sock")
    with bind(path):
        assert os.stat(path).st_gid == number


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """Left by an agent that was killed."""
    path = str(tmp_path / "agent.sock")
    bind(path).close()
    with bind(path), connect(path):
        pass


def test_a_socket_that_answers_is_left_alone(tmp_path: Path) -> None:
    """Two agents do not fight over it."""
    path = str(tmp_path / "agent.sock")
    with bind(path):
        with pytest.raises(UsageError, match="another agent answers"):
            bind(path)
        connect(path).close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    """A file in its place is somebody's."""
    (tmp_path / "agent.sock").write_text("mine")
    with pytest.raises(UsageError, match="no socket"):
        bind(str(tmp_path / "agent.sock"))
    assert (tmp_path / "agent.sock").read_text() == "mine"


@pytest.mark.parametrize("path", ["/proc/agent.sock", "/dev/null/agent.sock", "/tmp/" + "x" * 120])
def test_a_place_that_cannot_be_is_an_error(path: str) -> None:
    """One sentence, and what to do."""
    with pytest.raises(UsageError) as error:
        bind(path)
    assert "--socket" in error.value.hint


def test_a_replaced_socket_is_not_removed(tmp_path: Path) -> None:
    """Only our own file is ours to remove."""
    path = str(tmp_path / "agent.sock")
    bound = Listener(bind(path), path)
    os.unlink(path)
    with bind(path):
        bound.close()
        assert os.path.exists(path)


def test_many_at_once_leave_one(tmp_path: Path) -> None:
    """Agents that start in the same moment: one listens, the others are told."""
    path = str(tmp_path / "agent.sock")
    bound: list[socket.socket] = []
    refused: list[UsageError] = []

    def start() -> None:
        try:
            bound.append(bind(path))
        except UsageError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(bound), len(refused)) == (1, 7)
    connect(path).close()
    bound[0].close()


@pytest.mark.root(users=True)
def test_no_socket_in_a_folder_of_another_user(tmp_path: Path) -> None:
    """He could put a link in the socket's place, and root would open what it leads to for the group: there is nothing made at all."""
    folder, secret = tmp_path / "his", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("root's")
    secret.chmod(0o600)
    os.symlink(secret, folder / "agent.sock.new")
    os.chown(folder, 65_534, 65_534)

    with pytest.raises(UsageError, match="belongs to another user"):
        bind(str(folder / "agent.sock"))
    assert secret.stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == ["agent.sock.new"]


def test_a_folder_in_which_everybody_may_rename_is_refused(tmp_path: Path) -> None:
    """As /tmp is allowed: there the sticky bit keeps our files ours."""
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="everybody may replace"):
        bind(str(tmp_path / "agent.sock"))
    tmp_path.chmod(0o1777)
    bind(str(tmp_path / "agent.sock")).close()


def test_a_folder_that_somebody_locked_is_no_obstacle(tmp_path: Path) -> None:
    """Everybody may open and lock the folder of the socket; the lock that counts is a file that only its owner can open."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with bind(str(tmp_path / "agent.sock")) as sock:
            assert (tmp_path / "agent.sock").stat().st_mode & 0o777 == 0o660
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert os.listdir(tmp_path) == ["agent.sock"]
    finally:
        os.close(descriptor)


def test_sockets_that_systemd_passes_are_used(tmp_path: Path) -> None:
    """By their path; the file is systemd's and stays. What is left over is for the metrics."""
    paths = [str(tmp_path / name) for name in ("agent.sock", "metrics.sock")]
    code = (
        "import os, sys; from sysperf.agent.sockets import listener, passed_sockets\n"
        "passed = passed_sockets(); one = listener(sys.argv[1], 'agent', passed); one.close()\n"
        "print(one.path == '', one.sock.family.name, [s.getsockname() for s in passed.values()], 'LISTEN_FDS' in os.environ)"
    )
    if not os.path.exists("/usr/bin/systemd-socket-activate"):
        pytest.skip("no systemd-socket-activate: install systemd")
    listen = [part for path in paths for part in ("-l", path)]
    environment = [f"-E{name}={value}" for name, value in {"PYTHONPATH": str(Path(__file__).parents[2])}.items()]
    with subprocess.Popen(
        ["systemd-socket-activate", *listen, *environment, sys.executable, "-c", code, paths[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert eventually(lambda: all(map(os.path.exists, paths)))
        client = connect(paths[0])
        out, error = started.communicate(timeout=300)
        client.close()

    assert out.strip() == f"True AF_UNIX ['{paths[1]}'] False", error
    assert os.path.exists(paths[0])


def test_variables_meant_for_another_process_are_not_ours() -> None:
    """A parent that was activated may forget to take them away."""
    environ = {"LISTEN_FDS": "3", "LISTEN_PID": "1", "LISTEN_FDNAMES": "a:b:c"}

    assert passed_sockets(environ) == {}
    assert environ == {}


def test_a_socket_is_found_by_its_name(tmp_path: Path) -> None:
    """Or a new one is made."""
    with bind(str(tmp_path / "other.sock")) as sock:
        passed = {"agent": sock}
        assert listener("/nowhere/agent.sock", "agent", passed).sock is sock
        assert passed == {}
    bound = listener(str(tmp_path / "agent.sock"), "agent", {})
    assert bound.path
    bound.close()

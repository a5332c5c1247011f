"""The privileged helper: the only process of the service that may change a setting.

systemd starts it when somebody connects to its socket, and it leaves when nobody has for 30 s and no lease is left. It
knows six verbs (`sysperf.fix.helper_protocol`) over the knobs of the allow-list: no path, no command, no text of a client is ever
written or run. It answers root and members of group `sysperf`, as the kernel names them (SO_PEERCRED, SO_PEERGROUPS).
"""

from __future__ import annotations

import array
import contextlib
import grp
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from sysperf import paths
from sysperf.agent import sockets
from sysperf.agent.client_policy import Refused, allowed_by_rule, check_apply, client_of, leave_to_root
from sysperf.engine.change import Changer, check, request, user
from sysperf.fix import helper_protocol, journal, lease, lease_timer, process, recovery, standing, transaction
from sysperf.fix.helper_protocol import Answer, Holding
from sysperf.host import Host
from sysperf.model.change import Keeper, Transaction
from sysperf.model.errors import SysperfError
from sysperf.model.record import from_json, to_json

GROUP = "sysperf"
IDLE_S = 30.0
MAX_CLIENTS = 16
MAX_REQUEST_BYTES = 64 << 10
REQUEST_S = 5.0
STOP_S = 15.0
"""How long a request at work may take after SIGTERM: a transaction is done as a whole or not at all."""
RETRY_S = 10.0
"""What could not be undone is tried again so often."""
_LOOK_S = 1.0
_READ_S = 60.0
"""The journal is read so often even when its files look as before."""
_SO_PEERGROUPS = 59
_MAX_GROUPS = 256
"""As many as Python's getsockopt takes; who is in more than that is known by the first group only."""


class Peer:
    """The other side of a connection, as the kernel says."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid, self.uid, self.gid = sockets.peer(connection)
        self.groups = {self.gid, *_groups(connection)}

    def may_ask(self) -> bool:
        """Root, and members of the group."""
        if self.uid == 0:
            return True
        try:
            return grp.getgrnam(GROUP).gr_gid in self.groups
        except KeyError:
            return False


def _groups(connection: socket.socket) -> array.array[int]:
    groups = array.array("I")
    with contextlib.suppress(OSError):
        groups.frombytes(connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MAX_GROUPS))
    return groups


class Leases:
    """The end of the next lease. The journal is read when it has changed or one ends: hundreds of transactions take 50 ms."""

    def __init__(self, kept: journal.Journal) -> None:
        self._journal = kept
        self._stamp: tuple[int, int] | None = None
        self._ends: list[float] = []
        self._again_s = 0.0

    def any_running(self) -> bool:
        """Whether there is a lease that somebody must end. Raises JournalError."""
        return bool(self._known())

    def over(self) -> bool:
        """Whether a lease has ended, or something was interrupted. Raises JournalError."""
        return min(self._known(), default=math.inf) <= lease.boot_s()

    def _known(self) -> list[float]:
        now_s, stamp = lease.boot_s(), self._journal.stamp()
        if stamp != self._stamp or now_s >= self._again_s:
            self._ends = [end for transaction in self._journal.transactions() if (end := _ends_at(transaction)) is not None]
            self._stamp, self._again_s = stamp, min((now_s + _READ_S, *self._ends))
        return self._ends


def _ends_at(transaction: Transaction) -> float | None:
    """Return when it is to be taken back, in seconds since the machine started; None when nobody wants that."""
    if recovery.is_over(transaction):
        return 0.0
    return transaction.lease.until_s if transaction.live and transaction.lease else None


class HelperServer:
    """Serves one listening socket until it has been idle for `idle_s`."""

    def __init__(self, listener: socket.socket, folder: str = paths.SYSTEM_STATE, *, idle_s: float = IDLE_S) -> None:
        self._listener = listener
        self._folder = folder
        self._idle_s = idle_s
        self._clients = threading.BoundedSemaphore(MAX_CLIENTS)
        self._busy = 0
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._leases = Leases(journal.Journal(folder))
        self._problem = ""
        self._retry_at_s = 0.0
        self._stopped = False
        self._answers: dict[type, Callable[[Any, Peer], Answer]] = {  # any: each takes the request that its key is
            helper_protocol.AskPlan: self._plan,
            helper_protocol.AskApply: self._apply,
            helper_protocol.AskRenew: self._renew,
            helper_protocol.AskUndo: self._undo,
            helper_protocol.AskList: self._list,
            helper_protocol.AskVerify: self._verify,
        }

    def _changer(self) -> Changer:
        """A `Host` for one request: it keeps all that was read through it."""
        return Changer(folder=self._folder)

    def serve(self) -> None:
        """Answer, end leases when they are over, leave when there is nothing left to do, or when told to: after what is at work."""
        asked, signals = self._listener.fileno(), self._listen_to_signals()
        self._recover()
        while not (self._stopped or self._idle()):
            ready, _, _ = select.select([asked, signals], [], [], _LOOK_S)
            if asked in ready:
                self._accept()
            self._recover()
        end = time.monotonic() + STOP_S
        while self._busy and time.monotonic() < end:
            time.sleep(0.02)

    def _listen_to_signals(self) -> int:
        """A descriptor that can be read when one came, so that none is slept through."""
        reader, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(tell)
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, self._stop)
        return reader

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _idle(self) -> bool:
        with self._lock:
            idle = not self._busy and time.monotonic() - self._last >= self._idle_s
        with contextlib.suppress(SysperfError):  # who cannot read the journal can end no lease
            idle = idle and not self._leases.any_running()
        return idle

    def _recover(self) -> None:
        """End what is over. What cannot be undone now, in a journal that is locked or broken, is tried again later."""
        if time.monotonic() < self._retry_at_s:
            return
        try:
            if self._leases.over():
                for undone in self._changer().recover():
                    _log(5, f"{undone.step.change.target}: {undone.step.state}: lease of transaction {undone.number} ended")
                self._retry_at_s = time.monotonic() + (RETRY_S if self._leases.over() else 0.0)
            self._problem = ""
        except SysperfError as error:
            if str(error) != self._problem:
                _log(4, str(error))
            self._problem = str(error)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if not self._clients.acquire(blocking=False):
            connection.close()
            return
        with self._lock:
            self._busy += 1
        threading.Thread(target=self._client, args=(connection,), daemon=True).start()

    def _client(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                helper_protocol.send(connection, to_json(self._answer(connection)))
        finally:
            self._clients.release()
            with self._lock:
                self._busy -= 1
                self._last = time.monotonic()

    def _answer(self, connection: socket.socket) -> Answer:
        """What to say; every failure is an answer."""
        try:
            content = helper_protocol.receive(connection, MAX_REQUEST_BYTES, REQUEST_S)  # first: else a refusal is lost
            connection.settimeout(REQUEST_S)
            peer = Peer(connection)
            if not peer.may_ask():
                _log(4, f"refused: user {peer.uid} is no member of group {GROUP}")
                return Answer(
                    problem=f"only root and members of group {GROUP} may ask", hint=f"sudo usermod -aG {GROUP} YOU, then log in again"
                )
            question = from_json(content, helper_protocol.Ask)
            return self._answers[type(question)](question, peer)
        except SysperfError as error:
            return Answer(problem=str(error), hint=error.hint)
        except (OSError, ValueError) as error:
            return Answer(problem=f"not understood: {error}"[:500])

    # ------------------------------------------------------------------ the verbs

    def _plan(self, ask: helper_protocol.AskPlan, _peer: Peer) -> Answer:
        return Answer(plan=self._changer().plan(ask.settings, force=ask.force))

    def _apply(self, ask: helper_protocol.AskApply, peer: Peer) -> Answer:
        client = client_of(peer.uid, peer.pid)
        check_apply(client, ask, allowed_by_rule() if client.is_agent else {})
        changer = self._changer()
        planned = changer.plan(ask.settings, force=ask.force)
        if not client.is_root:
            planned = leave_to_root(planned, changer.journal.transactions())
        if ask.automatic:
            planned = standing.without_foreign(changer.journal, planned)
        if not planned.changes:
            return Answer(plan=planned)
        asked = request(ask.why, lease_s=ask.lease_s, persist=ask.persist)._replace(
            by=client.name, keep=_we_keep if ask.lease_s else None, guard=_guard(changer.journal, ask.lease_s)
        )
        check(planned.changes, asked)
        done = transaction.apply(changer.host, changer.journal, planned, asked)
        _log(5, f"transaction {done.number} for {asked.by}: {done.state}: {', '.join(step.change.label() for step in done.steps)}")
        return Answer(plan=planned, transaction=done)

    def _renew(self, ask: helper_protocol.AskRenew, peer: Peer) -> Answer:
        client_of(peer.uid, peer.pid).check_owns(self._changer().journal.read(ask.number))
        return Answer(transaction=recovery.renew(self._changer().journal, ask.number, ask.lease_s))

    def _undo(self, ask: helper_protocol.AskUndo, peer: Peer) -> Answer:
        client = client_of(peer.uid, peer.pid)
        if ask.force and not client.is_root:
            raise Refused("only root may override what somebody else has set since", "run it with sudo")
        changer = self._changer()
        client.check_owns(changer.journal.read(ask.number))
        undone = recovery.undo(changer.host, changer.journal, ask.number, force=ask.force)
        _log(5, f"transaction {ask.number} taken back for {user(peer.uid)}")
        return Answer(undone=tuple(undone))

    def _list(self, _ask: helper_protocol.AskList, _peer: Peer) -> Answer:
        return Answer(transactions=tuple(self._changer().journal.transactions()))

    def _verify(self, _ask: helper_protocol.AskVerify, peer: Peer) -> Answer:
        holdings, changer, client = [], self._changer(), client_of(peer.uid, peer.pid)
        for entry, standings in changer.transactions():
            for index, current in enumerate(standings):
                if current.verdict == "changed" and client.owns(entry):
                    reason = standing.release_ownership(changer.host, changer.journal, entry.number, index)
                    _log(4, f"{current.step.change.target}: {reason}; sysperf leaves it alone now")
                holdings.append(Holding(entry.number, index, current.now, current.verdict))
        return Answer(holdings=tuple(holdings))


def _guard(kept: journal.Journal, lease_s: float | None) -> Callable[[int], None]:
    """Has systemd end a lease too, should this process be killed or stopped."""

    def guard(number: int) -> None:
        if lease_s is not None and (problem := lease_timer.start(kept, number, lease_s)):
            _log(4, f"only the helper ends the lease of transaction {number}: {problem}")

    return guard


def _we_keep(_number: int) -> Keeper:
    """The helper itself ends the lease."""
    return Keeper(os.getpid(), process.start_time(Host(), os.getpid()), is_helper=True)


def inherited() -> socket.socket | None:
    """The socket that systemd listens on for us (sd_listen_fds), or none."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=3)


def listen(path: str) -> socket.socket:
    """A socket of our own; group `sysperf` may connect. Raises UsageError, also in a folder where others could replace it."""
    listener = sockets.bind(path)
    listener.setblocking(True)
    return listener


def _log(priority: int, text: str) -> None:
    """A line for the journal, with its priority as sd-daemon(3) writes it."""
    sys.stderr.write(f"<{priority}>{text}\n")
    sys.stderr.flush()

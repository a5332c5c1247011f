"""Root for the tests that need it: a plugin of pytest.

    @pytest.mark.root                  # runs as user 0
    @pytest.mark.root(mounts=True)     # and mounts file systems
    @pytest.mark.root(users=True)      # and becomes other users, or gives files to them

Root runs such a test as it is. For everybody else it runs in a process forked for it, in a user namespace where that user is
root, and with mounts of its own: nothing of it is seen outside. What the kernel gives to nobody but the machine's own root,
such as its settings and devices, stays with `real_root("what for")`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import signal
import subprocess
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
from _pytest.runner import runtestprotocol

AS_ROOT = "run as root"
"""How the reasons begin for which a test is skipped that nobody but root can run."""
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
OWN = ("/root", "/run/sysperf", "/var/lib/sysperf")
"""What belongs to the machine's root: a namespace has it empty."""
UNSHARE = ("unshare", "--user", "--map-root-user")
MARGIN_S = 5.0
"""How long before the time limit of a test its process stops it."""

Reports = list[pytest.TestReport]


A_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""What follows has no more rights than any user, whoever runs these tests."""


def as_a_user() -> tuple[str, ...]:
    """What a command begins with so that root's rights do not help it: nothing for a user."""
    return A_USER if os.geteuid() == 0 else ()


def real_root(why: str) -> pytest.MarkDecorator:
    """Skip a test for everybody but the machine's root; `why` says what is root's alone."""
    return pytest.mark.skipif(os.geteuid() != 0, reason=f"{AS_ROOT}: {why}")


def why_not(item: pytest.Item) -> str:
    """Why a test can not have the rights of root that it needs; "" where it can, or needs none."""
    marker = item.get_closest_marker("root")
    return _why_no_root(**marker.kwargs) if marker else ""


@functools.cache
def _why_no_root(*, mounts: bool = False, users: bool = False) -> str:
    if os.geteuid() == 0:
        may_mount = not mounts or _runs("unshare", "--mount", "true")
        return "" if may_mount else f"{AS_ROOT} that may mount (CAP_SYS_ADMIN; in a container: --privileged)"
    if not _runs(*UNSHARE, "--mount", "true"):
        return f"{AS_ROOT}, or allow user namespaces (sysctl user.max_user_namespaces, unshare of util-linux)"
    if users and not _has_many_users():
        return f"{AS_ROOT}, or install newuidmap (uidmap) and give this user numbers in /etc/subuid and /etc/subgid"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what has no way to be root."""
    if reason := why_not(item):
        pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test that needs root in a process of its own where the user is not root."""
    if os.geteuid() == 0 or not item.get_closest_marker("root") or why_not(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_apart(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    item.session._setupstate.teardown_exact(nextitem)
    return True


def _runs(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@functools.cache
def _has_many_users() -> bool:
    return _runs(*UNSHARE, "--map-auto", "true")


@functools.cache
def _namespace() -> int:
    """A user namespace for the tests of this process; it ends with that."""
    words = (*UNSHARE, *(("--map-auto",) if _has_many_users() else ()), "sh", "-c", "echo ready; exec cat")
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # its input ends with us
    assert holder.stdout
    assert holder.stdout.readline() == b"ready\n"
    return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _run_apart(item: pytest.Item) -> Reports:
    """Run a test in a forked process that is root in a namespace; its reports."""
    namespace = _namespace()
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    with tempfile.TemporaryFile() as reports:
        if not (child := os.fork()):
            _be_the_test(item, namespace, left_s, reports)
        _, status = os.waitpid(child, 0)
        reports.seek(0)
        written = [] if status else pickle.load(reports)  # noqa: S301 - our own child's
    told: Reports = [item.config.hook.pytest_report_from_serializable(config=item.config, data=data) for data in written]
    if status:
        told.append(_crashed(item, f"the process of this test ended with {os.waitstatus_to_exitcode(status)}"))
    return told


def _be_the_test(item: pytest.Item, namespace: int, left_s: float, reports: IO[bytes]) -> None:
    """Become root, run the test, write its reports and end. What was set up for other tests too stays theirs."""
    told: Reports = []
    base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    before = set(os.listdir(base))
    try:
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - MARGIN_S, 1.0))
        _enter(namespace)
        told = runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]  # only its ancestors are asked for
        _take_back(base, before)
    except BaseException:  # noqa: BLE001 - nothing may run on in the copy of a worker
        told.append(_crashed(item, traceback.format_exc()))
    pickle.dump([item.config.hook.pytest_report_to_serializable(config=item.config, report=report) for report in told], reports)
    reports.flush()
    os._exit(0)


def _enter(namespace: int) -> None:
    """Become root of a user namespace, with mounts of our own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWUSER) or libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no namespace for this test")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    if _has_many_users():
        os.setgroups([])
    for folder in OWN:
        if os.path.isdir(folder) and libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"mode=755"):
            raise OSError(ctypes.get_errno(), "nothing can be mounted here", folder)


def _take_back(base: Path, before: set[str]) -> None:
    """Take over what a test made below a folder and gave to others, so that the user can remove it."""
    for name in set(os.listdir(base)) - before:
        for folder, folders, files in os.walk(base / name):
            for path in (f"{folder}/{name}" for name in (".", *folders, *files)):
                with suppress(OSError):
                    if os.lstat(path).st_uid:
                        os.lchown(path, 0, 0)


def _crashed(item: pytest.Item, why: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", why, "call")

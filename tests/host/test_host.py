"""The door: what it answers, what it notes, and that nothing raises."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.host import MAX_BYTES, NOT_CAPTURED, Answers, Host, failures
from sysperf.host.tree import TOO_LARGE
from sysperf.model.cpuset import CpuSet
from sysperf.model.snapshot import Source
from tests.conftest import Dict, MakeMachine, captured, make_machine


def why(host: Host) -> str | None:
    """The reason of the last unknown."""
    return host.sources[-1].error


# ---------------------------------------------------------------------- reading


def test_each_reader_gives_its_type(machine: MakeMachine) -> None:
    """Text, words, numbers, CPU sets, pairs and names of the same small machine."""
    host = machine(
        {"/proc/a": " 42 \n", "/sys/list": "0-3,8\n", "/sys/mask": "ff,00000001\0\n", "/proc/pairs": "A: 1 kB\nB:\t2\nno pair\nA B: 3:4\n"}
    )

    assert host.text("/proc/a") == " 42 \n"
    assert host.word("/proc/a") == "42"
    assert host.number("/proc/a") == 42
    assert host.cpus("/sys/list") == CpuSet.parse("0-3,8")
    assert host.mask("/sys/mask") == CpuSet([0, *range(32, 40)])
    assert host.pairs("/proc/pairs") == {"A": "1 kB", "B": "2", "A B": "3:4"}
    assert host.names("/") == ("proc", "sys")
    assert [source.error for source in host.sources] == [None] * 7


@pytest.mark.parametrize("content", ["", "max\n", "12x", "1_0", "\0\0", "９９", "1 2", "0x10", b"\xff\xfe"])
def test_what_is_no_number_is_unknown_with_a_reason(machine: MakeMachine, content: str | bytes) -> None:
    """Never 0, never an exception."""
    host = machine({"/proc/a": content})

    assert host.number("/proc/a") is None
    assert why(host)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory"),
        ProcessLookupError(3, "No such process"),
        PermissionError(13, "Permission denied"),
        OSError(5, "Input/output error"),
        BlockingIOError(11, "Resource temporarily unavailable"),
    ],
)
def test_a_file_that_fails_is_unknown_with_the_reason(machine: MakeMachine, error: OSError) -> None:
    """Absent, vanished with its process, forbidden, broken: each keeps its words."""
    host = machine({"/proc/1/statm": error})

    assert host.text("/proc/1/statm") is None
    assert host.sources == [Source("/proc/1/statm", error=error.strerror)]


def test_a_process_that_ends_is_no_error() -> None:
    """A folder in /proc vanishes between two reads."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = Host()
    assert host.names(f"/proc/{child.pid}")
    child.communicate(b"\n")

    assert host.text(f"/proc/{child.pid}/statm") is None
    assert host.names(f"/proc/{child.pid}") is None
    assert host.link(f"/proc/{child.pid}/exe") is None
    assert host.exists(f"/proc/{child.pid}") is False
    assert {source.error for source in host.sources[1:]} <= {None, "No such file or directory", "No such process"}


def test_too_large_is_unknown(machine: MakeMachine) -> None:
    """A part of a file is never taken for the whole."""
    host = machine({"/proc/a": "1" * 5000, "/proc/b": b"x" * (MAX_BYTES + 1)})

    assert host.word("/proc/a") is None
    assert why(host) == TOO_LARGE
    assert host.text("/proc/b") is None
    assert why(host) == TOO_LARGE
    assert host.data("/proc/a", 4999) is None
    assert host.data("/proc/a", 5000) == b"1" * 5000


@pytest.mark.parametrize(
    "path", ["/proc/a\0b", "/proc/\udcff", "", "proc", "/" + "a" * 5000, "/" + "a/" * 5000, "/proc/..", "//", "/proc/a/b/../.."]
)
def test_no_path_raises(path: str) -> None:
    """Paths are built from foreign text."""
    for host in (Host(), make_machine({"/proc/a": "1"})):
        answers = (
            host.text(path),
            host.number(path),
            host.names(path),
            host.link(path),
            host.exists(path),
            host.glob(path + "/*"),
            host.space(path),
            host.owner(path),
        )
        assert len(host.sources) >= len(answers) - 1


@settings(max_examples=50)
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_content_is_survived(content: bytes, name: bytes) -> None:
    """Whatever a file holds: unknown or known, never an exception; text is harmless."""
    host = make_machine({"/proc/a": content}, {"/proc/link": name.decode("utf-8", "surrogateescape").replace("\0", "")})
    for ask in (host.number, host.cpus, host.mask, host.pairs, host.word, host.names, host.link, host.text):
        ask("/proc/a")
        ask("/proc/link")
    for text in (host.text("/proc/a"), host.link("/proc/link")):
        if text is not None:
            text.encode()
            assert all(char.isprintable() or char in "\n\t\0" or ord(char) > 0x2FFF or not char.isascii() for char in text)
            assert not set(text) & set("\x1b\r\x07\x7f\x85\u202e\u2066\u2028\ufeff")


def test_text_is_escaped_at_the_door(machine: MakeMachine) -> None:
    """No terminal escape, no direction override, no line that another process made up, from any door."""
    evil = "a\x1b[31m\r\u202eb\u2028c\u061c"
    spelled = "a\\x1b[31m\\x0d\\u202eb\\u2028c\\u061c"
    host = machine(
        {"/proc/a": evil, f"/sys/{evil}/x": "1"},
        {"/proc/l": evil},
        {"nvml:DeviceGetName(0)": evil, "run:dmesg": evil, "space:/": {evil: 1}},
    )

    assert host.text("/proc/a") == spelled
    assert host.names("/sys") == (spelled,)
    assert host.link("/proc/l") == spelled
    assert host.nvml("DeviceGetName", 0) == spelled
    assert host.run("dmesg") == spelled
    assert host.space("/") == {spelled: 1}


# ---------------------------------------------------------------------- folders


def test_glob_with_wildcards_anywhere(machine: MakeMachine) -> None:
    """In the middle, at the end, in both; in natural order; only what is there."""
    files = {f"/sys/class/net/{name}/device/vendor": "1" for name in ("eth0", "eth10", "eth9")}
    host = machine({**files, "/sys/class/net/lo/mtu": "1", "/sys/class/net/eth0/queues/rx-0/rps": "1"})

    assert host.glob("/sys/class/net/*/device/vendor") == [f"/sys/class/net/{name}/device/vendor" for name in ("eth0", "eth9", "eth10")]
    assert host.glob("/sys/class/net/eth?") == ["/sys/class/net/eth0", "/sys/class/net/eth9"]
    assert host.glob("/sys/class/net/eth[0-9]*/queues/rx-*/rps") == ["/sys/class/net/eth0/queues/rx-0/rps"]
    assert host.glob("/sys/class/net/lo/mtu") == ["/sys/class/net/lo/mtu"]
    assert host.glob("/sys/absent/*") == []
    assert host.glob("/*") == ["/sys"]


def test_glob_is_bounded(machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wildcards multiply; the cut is noted."""
    monkeypatch.setattr("sysperf.host.MAX_ENTRIES", 10)
    host = machine({f"/sys/{first}/{second}": "" for first in range(5) for second in range(5)})

    assert len(host.glob("/sys/*/*")) == 10
    assert "more than 10" in (why(host) or "")


def test_exists_has_three_answers() -> None:
    """A live machine knows; a capture of others knows only what is in it."""
    assert (Host().exists("/proc/self"), Host().exists("/nonexistent")) == (True, False)
    host = captured("lscpu", "sparc64")
    assert (host.exists("/proc/cpuinfo"), host.exists("/proc/driver")) == (True, None)
    assert why(host) == NOT_CAPTURED
    assert host.text("/proc/driver/nvidia/version") is None
    assert why(host) == NOT_CAPTURED


def test_failures_are_distinct_and_bounded() -> None:
    """An area lists each file once."""
    sources = [Source("/a", error="x"), Source("/a", error="y"), Source("/b"), *(Source(f"/{number}", error="z") for number in range(300))]

    distinct = failures(sources)
    assert len(distinct) == 200
    assert (distinct[0], distinct[1].path) == (Source("/a", error="x"), "/0")


# ---------------------------------------------------------------------- calls


def test_calls_of_a_live_machine() -> None:
    """uname, space and owner say what the system says."""
    host = Host()
    space, owner = host.space("/"), host.owner("/proc")

    assert host.uname() == (os.uname().release, os.uname().machine)
    assert space is not None
    assert space["total_bytes"] >= space["free_bytes"]
    assert (owner or {}).get("uid") == 0
    assert host.space("/nonexistent") is None
    assert why(host) == "No such file or directory"


@pytest.mark.parametrize("answer", [None, 5, "text", [], ["6.1"], ["6.1", 5], {"release": "6.1"}, [["6.1", "x"], "y"]])
def test_a_capture_with_wrong_types_is_unknown(answer: object) -> None:
    """Hand-made answers of another type than the call gives never reach a collector."""
    host = Host(
        "/x",
        tree=Dict({}),
        answers=Answers({"uname": answer, "space:/": answer, "names:/sys": answer, "link:/a": answer, "exists:/a": answer}),
    )

    assert host.uname() is None
    assert why(host)
    assert host.space("/") is None or answer == []
    assert host.names("/sys") is None or all(isinstance(name, str) for name in host.names("/sys") or ())
    assert host.link("/a") in (None, "text")
    assert host.exists("/a") is None


def test_a_captured_machine_is_not_asked(machine: MakeMachine) -> None:
    """What a capture does not say is unknown; nothing is run on this machine instead."""
    host = machine({})
    asked: list[int] = []

    assert host.call("made-up", lambda: asked.append(1)) is None
    assert asked == []
    assert why(host) == NOT_CAPTURED
    assert host.nvml("DeviceGetCount") is None
    assert host.run("dmesg") is None
    assert host.probe(sys.executable, "x", "print(1)") is None


def test_a_call_that_fails_keeps_its_reason(machine: MakeMachine) -> None:
    """NVML's words reach the report."""
    host = machine(calls={"nvml:DeviceGetName(0)": OSError("GPU is lost")})

    assert host.nvml("DeviceGetName", 0) is None
    assert host.sources == [Source("nvml:DeviceGetName(0)", error="GPU is lost")]


# ---------------------------------------------------------------------- cost


def best_us(ask: object, path: str, count: int = 300) -> float:
    assert callable(ask)
    times = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(count):
            ask(path)
        times.append((time.process_time() - start) / count * 1e6)
    return min(times)


def test_small_files_cost_little() -> None:
    """A sysfs text under 25 µs here (7 on an idle machine), 2,000 statm reads about 20 ms; the limit leaves room for a busy one."""
    host = Host()

    assert best_us(host.text, "/proc/self/statm") < 60
    assert best_us(host.number, "/proc/sys/vm/swappiness") < 60


def test_nothing_that_was_read_is_kept() -> None:
    """Without recording, a host keeps paths, not contents: 200 MB read, a few kept."""
    script = (
        "import resource, sys; from sysperf.host import Host; host = Host()\n"
        "open(sys.argv[1], 'wb').write(b'x' * 1_000_000)\n"
        "start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for _ in range(200): host.text(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)"
    )
    path = f"/tmp/sysperf-test-{os.getpid()}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
        )
    finally:
        Path(path).unlink(missing_ok=True)

    assert int(done.stdout) < 8_000, "KiB"
    assert resource.getpagesize() > 0


def test_a_live_host_imports_little() -> None:
    """Archives, commands, NVML and JSON are loaded by those who need them."""
    script = "import sys; from sysperf.host import Host; Host().text('/proc/self/statm'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])

    heavy = {
        "tarfile",
        "gzip",
        "lzma",
        "bz2",
        "subprocess",
        "json",
        "pynvml",
        "ctypes",
        "tempfile",
        "sysperf.host.archive",
        "sysperf.host.capture",
    }
    # Python 3.10's own `platform`, which msgspec imports, brings subprocess along.
    bare = subprocess.run([sys.executable, "-c", "import sys, msgspec; print(*sys.modules)"], capture_output=True, text=True, check=True)
    assert (heavy - set(bare.stdout.split())).isdisjoint(done.stdout.split())


def test_errno_of_absence_on_a_complete_machine(machine: MakeMachine) -> None:
    """A complete machine says that a file is not there; a capture, that it does not know."""
    host = machine({"/proc/a": "1"})

    assert host.text("/proc/b") is None
    assert why(host) == os.strerror(errno.ENOENT)

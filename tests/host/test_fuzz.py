"""Hostile input of the room `host`: captures, manifests, files of every kind. Unknown or an error with a hint, never a traceback."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.host import Host, redact
from sysperf.host.recording import MANIFEST
from sysperf.model.errors import CaptureError
from tests.conftest import make_machine
from tests.fuzzing import fuzz

NAMES = (
    "cmdline",
    "environ",
    "mounts",
    "fstab",
    "requirements.txt",
    "history",
    "version.py",
    "METADATA",
    "pyvenv.cfg",
    "INSTALLER",
    "stat",
    "x.egg-link",
)
SHELLISH = st.text(st.sampled_from("ab0 -=.:/@\"'{}[]\\;&|$()<>\0\n,%+~"), max_size=200)
SOME_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=12,
)


def _tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("proc/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../etc/passwd"
        tar.addfile(link)
    return packed.getvalue()


GOOD = _tar({"proc/version": b"1", "sys/" + "long/" * 30 + "x": b"2", "proc/é": b"3", "etc/passwd": b"4"})


def _ask_all(host: Host) -> None:
    for path in ("/proc/version", "/proc/link", "/proc", "/sys/kernel", "/x"):
        host.text(path)
        host.names(path)
        host.link(path)
        host.exists(path)
        host.glob(f"{path}/*/x")
    host.uname()
    host.owner("/proc")
    host.nvml("DeviceGetName", 0)


def _opened(path: Path) -> None:
    try:
        host = Host(path)
    except CaptureError as error:
        assert error.hint  # noqa: PT017 - most drawn files are no capture, some are
    else:
        _ask_all(host)


@fuzz
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=12), st.integers(0, len(GOOD)), st.booleans())
def test_a_damaged_tar(changes: list[tuple[int, int]], length: int, packed: bool) -> None:
    """Flipped bytes anywhere, cut anywhere, packed or not."""
    raw = bytearray(GOOD)
    for place, byte in changes:
        raw[place] = byte
    content = bytes(raw[: length or None])
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(gzip.compress(content, 1) if packed else content)
        file.flush()
        _opened(Path(file.name))


@fuzz
@given(
    SOME_JSON,
    SOME_JSON,
    st.dictionaries(st.sampled_from(["names:/proc", "link:/x", "exists:/x", "uname", "owner:/proc"]), SOME_JSON, max_size=4),
)
def test_a_manifest_of_anything(whole: Any, moved: Any, answers: dict[str, Any]) -> None:
    """Any JSON where a manifest belongs, and any answer in one."""
    for content in (whole, {"schema": 1, "moved": moved, "answers": answers}, {"answers": answers}):
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            file.write(_tar({MANIFEST[1:]: json.dumps(content).encode("utf-8", "replace"), "proc/version": b"1"}))
            file.flush()
            _opened(Path(file.name))


@fuzz
@given(st.sampled_from(NAMES), st.binary(max_size=400) | SHELLISH.map(lambda text: text.encode("utf-8", "replace")))
def test_any_file(name: str, raw: bytes) -> None:
    """Whatever a file holds, every reader answers or says unknown, and what was redacted stays as it is."""
    path = f"/proc/7/{name}"
    host = make_machine({path: raw})
    for read in (host.data, host.text, host.word, host.number, host.cpus, host.mask, host.pairs):
        assert read(path) is not NotImplemented
    once = redact.clean(path, raw)
    assert redact.clean(path, once) == once


@fuzz
@given(
    st.lists(
        st.sampled_from(["bash", "-c", "python", "-m", "--a", "-p", "a=b", '{"a": "b"}', "x://y@z", "'", "\\", ";", "(", "env", "A=1"])
        | SHELLISH,
        max_size=8,
    )
)
def test_any_command_line(words: list[str]) -> None:
    """Words of every kind in every order: redacted once is redacted for good, and no word is added."""
    raw = "\0".join(words).encode("utf-8", "replace")
    once = redact.arguments(raw)

    assert redact.arguments(once) == once


@pytest.mark.parametrize(
    "line", ["python -c bash -c bash", "python -c x -m bash", "bash -c <hidden> -c x", "python secret -n 3", "bash -", "cat - --lr 3"]
)
def test_what_was_hidden_stands_for_what_it_hid(line: str) -> None:
    """The words behind it are seen as they were when it was hidden: a second redaction changes nothing."""
    once = redact.arguments(line.replace(" ", "\0").encode())

    assert redact.arguments(once) == once


def test_what_was_hidden_in_a_script_stays_one_word() -> None:
    """A capture is redacted again when it is read: `<` and `>` of what is hidden are no redirections."""
    once = redact.arguments(b"bash\0-c\0a=b")

    assert once == b"bash\0-c\0a=<hidden>"
    assert redact.arguments(once) == once


@pytest.mark.parametrize("text", ["bash\0-c\0a 'b", "bash\0-c\0", "\0", "python\0-c", "x\0--a=", 'x\0{"a":', "-"])
def test_command_lines_that_end_early(text: str) -> None:
    """An unclosed quote, an option without its value, nothing at all."""
    assert isinstance(redact.arguments(text.encode()), bytes)

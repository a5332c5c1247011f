"""No file ends a lint: what cannot be read is a line of the report, bounded in size, time and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine import lint as engine
from sysperf.engine.lint import fix
from sysperf.engine.lint.workers import examine_all
from sysperf.script import source as reading
from sysperf.script.examine import examine
from sysperf.script.file import File
from sysperf.script.hypothesis import Examined
from sysperf.script.notebook import Notebook
from sysperf.script.source import Source, Unreadable
from tests.fuzzing import fuzz
from tests.script.scripts import TRAINING, shipped
from tests.script.test_codemods import CURABLE

UNREADABLE = {
    "a mistake in the syntax": (b"import torch\nfor x in:\n", 2, "not Python"),
    "an encoding that nothing names": ("import torch\n# café\n".encode("latin-1"), 2, "not utf-8"),
    "an encoding that does not exist": (b"# coding: klingon\nimport torch\n", 1, "unknown encoding"),
    "an encoding that two bytes can say differently": (b"# coding: utf-7\nimport torch # +AGE-\n", 0, "cannot be written back"),
    "a NUL byte": (b"import torch\nx = 1\0\n", 2, "NUL"),
    "deep nesting": (b"import torch\nx = " + b"(" * 5_000 + b")" * 5_000, 2, "nested"),
    "a long chain": (b"import torch\nx = " + b"-" * 200_000 + b"1\n", 0, "nested"),
    "too large": (b"#" * (reading.MAX_BYTES + 1), 0, "larger than"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_examined_is_named_with_its_reason(case: str, tmp_path: Path) -> None:
    """One line with the place where reading stopped; the file beside it is judged as ever."""
    content, line, reason = UNREADABLE[case]
    (tmp_path / "bad.py").write_bytes(content)
    (tmp_path / "good.py").write_text(TRAINING)
    report = engine.lint([str(tmp_path / "bad.py"), str(tmp_path)], shipped())

    (unread,) = report.unread
    assert unread.file.endswith("bad.py")
    assert reason in unread.reason
    assert not line or unread.line == line
    assert {place.file for hypothesis in report.hypotheses for place in hypothesis.places} == {str(tmp_path / "good.py")}


def test_places_that_are_no_files_do_not_block(tmp_path: Path) -> None:
    """A FIFO that nobody writes, a dangling link, a folder named like a script, a file that may not be read."""
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "train.py").write_text(TRAINING)
    report = engine.lint([str(tmp_path), str(tmp_path / "pipe.py")], shipped())

    assert {os.path.basename(result.file): result.reason for result in report.unread} == {
        "pipe.py": "no plain file",
        "gone.py": "No such file or directory",
    }
    assert {os.path.basename(place.file) for hypothesis in report.hypotheses for place in hypothesis.places} == {"train.py"}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_positions_count_characters(mark: str) -> None:
    """Behind a byte order mark and beside characters of several bytes, the column is what an editor shows."""
    text = TRAINING.replace("total += loss.item()", "größe = 'äöü'; total += loss.item()")
    file = File(Source("train.py", (mark + text).encode()))
    (sync,) = [hypothesis for hypothesis in engine.judged(file, shipped()).hypotheses if hypothesis.rule == "sync.per-step"]

    (place,) = sync.places
    assert (place.line, place.column) == (15, 9 + len("größe = 'äöü'; total += "))


def test_a_large_generated_file_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand lines of the same loop: each is found, up to the limit of hypotheses of one file, which is lower here."""
    monkeypatch.setattr(engine, "MAX_HYPOTHESES", 200)
    step = "for x in loader:\n    loss = model(x).mean()\n    loss.backward()\n    torch.cuda.empty_cache()\n"
    file = File(Source("generated.py", ("import torch\n" + step * 260).encode()))
    report = engine.judged(file, shipped())

    assert len(report.hypotheses) == engine.MAX_HYPOTHESES
    assert report.lines == 1_041


def answer(number: int) -> Examined:
    """What a process makes of a target in the tests below; some end it."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        time.sleep(60)
    if number == 3:
        raise MemoryError
    return Examined(file=str(number))


def test_a_process_that_ends_costs_its_own_file() -> None:
    """Killed, too slow, out of memory: each is told, and all others are answered, in their order."""
    me = psutil.Process()
    before = set(me.children())
    examined = examine_all(range(8), answer, lambda number, why: engine.unread(str(number), why), file_s=1.0)

    assert [result.file for result in examined] == [str(number) for number in range(8)]
    reasons = [result.unread.reason if result.unread else "" for result in examined]
    assert [bool(reason) for reason in reasons] == [False, True, True, True, False, False, False, False]
    assert "ended" in reasons[1]
    assert "longer than 1 s" in reasons[2]
    assert set(me.children()) <= before


LINES = (TRAINING + CURABLE).splitlines()
PIECES = st.sampled_from(
    [*LINES, "\t", "(", ")", '"""', "x = (", "\\", "\f", "lambda: (yield)", "match x:", "async def f(): await g()", "\r", "é"]
)


@fuzz
@given(st.lists(PIECES, max_size=40))
def test_no_mixture_of_lines_breaks_it(lines: list[str]) -> None:
    """Facts, rules and changes of any text: an answer or a reason; what is changed still parses, and needs no second change."""
    try:
        file = File(Source("x.py", "\n".join(["import torch", *lines]).encode()))
    except Unreadable:
        return
    hypotheses = engine.judged(file, shipped()).hypotheses
    fixed = fix.fixed(file, hypotheses)
    again = File(Source("x.py", fixed.after))
    assert fix.fixed(again, engine.judged(again, shipped()).hypotheses).after == fixed.after


@fuzz
@given(st.binary(max_size=400))
def test_no_bytes_break_it(raw: bytes) -> None:
    """As a script and as a notebook."""
    for kind in (Source, Notebook):
        with contextlib.suppress(Unreadable):
            assert examine(kind("x", raw)).file == "x"

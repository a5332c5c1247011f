"""Facts about a search on the disk: what was committed is there again, and a file that is none is an error to tell."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sysperf.model.errors import SysperfError
from sysperf.model.tuning import LeftOut, TuneRun
from sysperf.verify.search.store import Store, opened


def test_runs_and_records_are_there_again(tmp_path: Path) -> None:
    """Without a close in between, as after kill -9; opened anew, the file is empty."""
    path = str(tmp_path / "state" / "search.sqlite")
    first = Store(path, anew=False)
    run = TuneRun(0, "design", (0, 1), 2.5, 1.0)
    first.add(run)
    first.keep("left", LeftOut("binding", "one node"))
    again = Store(path, anew=False)
    kept = again.runs(), again.kept("left", LeftOut), again.kept("other", LeftOut)
    again.close()
    first.close()
    anew = Store(path, anew=True)

    assert kept == ([run], LeftOut("binding", "one node"), None)
    assert anew.runs() == []
    anew.close()


def test_a_file_that_is_no_study_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    """Garbage, and a file of a later version."""
    (tmp_path / "garbage.sqlite").write_bytes(b"no database at all" * 100)
    later = sqlite3.connect(tmp_path / "later.sqlite")
    later.execute("PRAGMA user_version=99")
    later.close()

    for name in ("garbage", "later"):
        with pytest.raises(SysperfError, match=name) as error, opened(str(tmp_path / f"{name}.sqlite"), resume=True):
            pass
        assert "--resume" in error.value.hint

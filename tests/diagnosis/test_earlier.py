"""Two answers within minutes about an unchanged program agree, or the second one says what has changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sysperf.diagnosis.facts import Diagnosis, Machine, Program, Threads
from sysperf.diagnosis.verdict import Verdict
from sysperf.engine.diagnose import earlier
from sysperf.model.finding import Finding
from sysperf.report import diagnosis

COMPETES = Finding("threads.programs-compete", "confirmed", "warning", "diagnosis", "Other PyTorch programs compute on the same CPUs")


def said(cause: Finding | None, others: float, pid: int = 7) -> Verdict:
    facts = Diagnosis(programs=(Program(pid=pid, threads=Threads(used_cpus=1.0)),), machine=Machine(torch_cpus=others, others_cpus=0.0))
    if cause is None:
        return Verdict(sysperf="1", pid=pid, verdict="healthy", sentence="Healthy: bound by computation.", facts=facts)
    return Verdict(sysperf="1", pid=pid, verdict="slowed", sentence=f"Confirmed: {cause.title}.", causes=(cause,), facts=facts)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sysperf.paths.state_folder", lambda: str(tmp_path / "state"))
    return tmp_path / "state"


def test_another_answer_says_what_changed(state: Path) -> None:
    """The neighbours have gone; the same answer again has nothing to say."""
    assert earlier.changed(said(COMPETES, 1.9), 100) == ""
    assert earlier.changed(said(COMPETES, 1.8), 100) == ""
    text = earlier.changed(said(None, 0.1), 100)

    assert "the answer was: Confirmed: Other PyTorch programs" in text
    assert "CPUs of other PyTorch programs 1.80 → 0.10" in text
    assert "its CPUs" not in text
    assert (state / earlier.FILE).stat().st_mode & 0o777 == 0o600


def test_an_answer_that_nothing_explains_says_so(state: Path) -> None:
    """Two causes of the same size may take turns."""
    earlier.changed(said(COMPETES, 1.0), 100)

    assert "near each other" in earlier.changed(said(msgspec.structs.replace(COMPETES, rule="threads.over-cpus"), 1.05), 100)


def test_another_illness_of_the_program_itself_is_another_answer(state: Path) -> None:
    """Neighbours come first on a crowded machine, each time."""
    inline = Finding("dataloader.inline", "likely", "warning", "diagnosis", "The main thread makes the batches itself")
    first, same, other = (
        msgspec.structs.replace(said(COMPETES, 1.0), causes=causes)
        for causes in ((COMPETES, inline), (COMPETES, inline), (COMPETES, msgspec.structs.replace(inline, rule="program.sleeps")))
    )

    assert [bool(earlier.changed(verdict, 100)) for verdict in (first, same, other)] == [False, False, True]


def test_another_process_of_the_same_number_has_no_earlier_answer(state: Path) -> None:
    """Nor has one that was asked about ten minutes before, nor is a file believed that is none of ours."""
    earlier.changed(said(COMPETES, 1.0), 100)
    assert earlier.changed(said(None, 1.0), 101) == ""

    old = msgspec.structs.replace(earlier.answer_of(said(COMPETES, 1.0), 100, 0.0))
    (state / earlier.FILE).write_bytes(msgspec.json.encode({"answers": [old]}))
    assert earlier.changed(said(None, 1.0), 100) == ""
    (state / earlier.FILE).write_text("{")
    assert earlier.changed(said(COMPETES, 1.0), 100) == ""


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The diagnosis goes on."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("sysperf.paths.state_folder", lambda: str(tmp_path / "file" / "state"))

    assert earlier.changed(said(COMPETES, 1.0), 100) == ""


def test_every_form_says_what_changed() -> None:
    """In text, in Markdown, in JSON and on the page."""
    verdict = msgspec.structs.replace(said(None, 0.1), changed="60 s ago the answer was another one")

    for form in ("text", "markdown", "json", "html"):
        assert "60 s ago the answer was" in diagnosis.render(verdict, form)

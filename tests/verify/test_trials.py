"""Facts about results of measurements: which lines are results, and what a broken file does."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf import paths
from sysperf.model.record import plain, to_json
from sysperf.model.trial import Trial
from sysperf.verify import lock, trials

EXAMPLE = Path(__file__).parent.parent / "tui/data/trials.jsonl"


def trial(**changes: Any) -> Trial:
    """A result."""
    parts: dict[str, Any] = {
        "experiment": "verify", "what": "vm.swappiness = 10", "metric": "steps per second", "unit": "steps/s", "baseline": 8.0, "ratio": 1.05,
        "low": 1.02, "high": 1.08, "confidence": 0.95, "pairs": 10, "verdict": "faster", "at": 1_800_000_000.0, "rule": "memory.swappiness-high",
    }  # fmt: skip
    return Trial(**{**parts, **changes})


def test_root_leaves_the_machines_folder_open_to_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes it first: in it lies the journal that everybody may read. What else it holds stays its owner's."""
    for name, make in (("a", lambda folder: trials.append(f"{folder}/{trials.FILE}", trial())), ("b", _measure)):
        folder = tmp_path / name
        monkeypatch.setattr(paths, "SYSTEM_STATE", str(folder))
        make(str(folder))
        assert folder.stat().st_mode & 0o777 == 0o755
        assert [path.stat().st_mode & 0o077 for path in folder.iterdir()] == [0]
    trials.append(f"{tmp_path}/users/{trials.FILE}", trial())
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o700


def _measure(folder: str) -> None:
    with lock.held(folder, print):
        pass


def test_results_are_read_oldest_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    """Of both files; a torn line and lines of other things are skipped."""
    mine, machines = tmp_path / "mine", tmp_path / "machines"
    mine.write_bytes(to_json(trial(at=3e8)) + b"\n" + to_json(trial(at=1e8)) + b'\n{"experiment": "ver')
    machines.write_bytes(b"[1]\n\n" + to_json(trial(at=2e8)) + b"\n")

    measured = trials.read([str(mine), str(tmp_path / "absent"), str(machines)])

    assert [trial_read.at for trial_read in measured.results] == [1e8, 2e8, 3e8]
    assert (measured.skipped, measured.problem) == (2, "")


def test_the_example_has_one_torn_line() -> None:
    """A field of a later version is left out, and its line is a result."""
    measured = trials.read([str(EXAMPLE)])
    assert (len(measured.results), measured.skipped) == (9, 1)


@pytest.mark.parametrize(
    "changes",
    [{"low": 1.06}, {"high": 1.0}, {"low": 0.0}, {"high": 1e9}, {"confidence": 1.0}, {"pairs": 0}, {"at": 1e13}, {"baseline": 1e30}, {"rung": -1}],
)  # fmt: skip
def test_figures_that_cannot_be_are_no_result(changes: dict[str, Any]) -> None:
    """An interval without its ratio, no pairs, a time far from now."""
    assert trials.parse(to_json(trial(**changes))) == ([], 1)
    assert trials.parse(to_json(trial()))[1] == 0


def test_what_is_no_plain_file_is_a_problem_to_tell(tmp_path: Path) -> None:
    """A pipe would wait for ever, a link may lead anywhere, a folder is none."""
    pipe, link, folder = tmp_path / "pipe", tmp_path / "link", tmp_path / "folder"
    os.mkfifo(pipe)
    link.symlink_to(EXAMPLE)
    folder.mkdir()

    measured = trials.read([str(pipe), str(link), str(folder)])

    assert not measured.results
    assert measured.problem.count(";") == 2


def test_of_a_huge_file_the_end_is_read(tmp_path: Path) -> None:
    """The newest results, no more bytes than allowed, and no half line."""
    line = to_json(trial()) + b"\n"
    path = tmp_path / "huge"
    path.write_bytes(line * (trials.MAX_BYTES // len(line) + 500) + to_json(trial(at=1_800_000_001.0)) + b"\n")

    measured = trials.read([str(path)])

    assert len(measured.results) == trials.MAX_TRIALS
    assert measured.results[-1].at == 1_800_000_001.0
    assert measured.skipped == 0


def test_gains_are_told_with_their_interval() -> None:
    """In words that tell faster, slower, no difference and not yet known apart."""
    assert trial().gain().text == "5.0 % faster here (+2.0 to +8.0 % at 95 %; steps per second, 10 pairs)"
    assert trial(ratio=0.9, low=0.88, high=0.92, verdict="slower").sentence() == "10.0 % slower here"
    assert "no difference" in trial(verdict="same").gain().text
    assert trial().gain().basis == "measured"


def test_a_gain_is_in_percent_of_the_step_whatever_it_was_measured_in() -> None:
    """A speed of 1.25 times saves a fifth of the time."""
    gain = trial(ratio=1.25, low=1.0, high=2.0).gain()

    assert (gain.low, gain.middle, gain.high, gain.interval) == (0.0, 20.0, 50.0, "0 to 50 %")


@settings(max_examples=50)
@given(st.one_of(st.binary(max_size=400), st.recursive(st.none() | st.floats() | st.text(max_size=9), lambda some: st.dictionaries(
    st.sampled_from([*Trial.__struct_fields__, "x"]), some, max_size=15), max_leaves=20).map(lambda trial_read: repr(trial_read).encode("utf-8", "replace"))))  # fmt: skip
def test_any_bytes_are_read_without_an_error(raw: bytes) -> None:
    """Every line is a result or counted."""
    measured, skipped = trials.parse(raw)
    assert len(measured) + skipped == min(trials.MAX_TRIALS, len([line for line in raw.split(b"\n") if line.strip()]))


@settings(max_examples=50)
@given(
    st.fixed_dictionaries(
        {}, optional={name: st.one_of(st.floats(), st.integers(), st.text(max_size=5)) for name in Trial.__struct_fields__}
    )
)
def test_any_values_are_results_or_not(changes: dict[str, Any]) -> None:
    """What is taken as a result can be drawn: its figures are finite and in order."""
    measured, _ = trials.parse(json.dumps({**plain(trial()), **changes}).encode())
    assert all(trial_read.is_sound() and trial_read.gain().text for trial_read in measured)


def test_a_line_that_a_full_disk_tore_costs_no_other_result(tmp_path: Path) -> None:
    """The write that did not fit is an error to tell; the next result stands on a line of its own."""
    path = str(tmp_path / "trials.jsonl")
    trials.append(path, trial(at=1e8))
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 50, resource.RLIM_INFINITY))
        try:
            trials.append(path, trial(at=2e8))
        except OSError:
            os._exit(7)
        os._exit(0)
    exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    trials.append(path, trial(at=3e8))

    assert exit_code == 7
    assert [measured.at for measured in trials.read([path]).results] == [1e8, 3e8]

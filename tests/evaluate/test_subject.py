"""Who a finding is about: this very subject for acts, this kind of subject over time for lists."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.evaluate.subject import Item, program_of
from sysperf.model.finding import Subject
from sysperf.model.record import Record


class Program(Record):
    """The fields of a process that name it."""

    pid: int
    name: str = "python"
    command: str | None = "python train.py"
    user: int | None = 1000
    start_time: int | None = 77


def subject(**fields: object) -> Subject:
    return Item("proc", msgspec.structs.replace(Program(4242), **fields)).subject()


def test_two_programs_of_one_name_have_two_keys() -> None:
    """An act on one of them cannot go to the other."""
    assert subject(pid=10).identity != subject(pid=11).identity


def test_a_later_process_with_the_same_number_has_another_key() -> None:
    """Numbers of processes are used again; the start time tells them apart."""
    assert subject(start_time=77).identity == "process:4242:77"
    assert subject(start_time=78).identity != subject(start_time=77).identity
    assert subject(start_time=None).identity == "process:4242:?"


def test_a_fingerprint_outlives_the_process() -> None:
    """The same program started again, with other options, is the same kind of finding."""
    again = subject(pid=99, start_time=5_000, command="python train.py --epochs 3")

    assert again.lasting_name == subject().lasting_name


@pytest.mark.parametrize("other", [{"command": "python serve.py"}, {"user": 1001}, {"name": "serve"}, {"command": None}])
def test_another_program_or_owner_is_another_finding(other: dict[str, object]) -> None:
    """What was accepted of one team's program says nothing about another's."""
    assert subject(**other).lasting_name != subject().lasting_name


def test_gpus_are_told_apart_by_their_bus() -> None:
    """Two GPUs of one model have two keys, also where their numbers change."""

    class Gpu(Record):
        index: int
        bus_id: str | None = None
        name: str = "H100"

    assert Item("gpu", Gpu(0, "0000:65:00.0")).subject().identity == "gpu:0000:65:00.0"
    assert Item("gpu", Gpu(3)).subject().identity == "gpu:3"
    assert Item().subject().identity == ""


def test_a_subject_has_a_name_for_people() -> None:
    """With what tells it from its like: numbers of processes and GPUs; nothing of the machine itself."""
    assert subject().text == "python (pid 4242)"
    assert subject(name="").text == "process (pid 4242)"
    assert Item("gpu", None, 3).subject().text == "GPU 3 (unknown model)"
    assert Item("disk", Program(1), 3).subject().text == "python"
    assert Item("row", None, 3).subject().text == "#3"
    assert Item().subject().text == ""


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --lr 1", "python train.py"),
        ("/opt/venv/bin/python3.11 -u -X dev /srv/train.py", "python /srv/train.py"),
        ("python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("python -mpkg.serve", "python -mpkg.serve"),
        ("python -c 'import torch'", "python -c"),
        ("python -W ignore -", "python -"),
        ("python3", "python"),
        ("/opt/serve --model x", "/opt/serve"),
        ("'ray::Worker.step idle'", "ray::Worker.step idle"),
        ("python 'cut off", "python 'cut"),
        ("", ""),
    ],
)
def test_the_program_is_its_script_without_options(command: str, program: str) -> None:
    assert program_of(command) == program


@given(st.text(max_size=300))
def test_any_command_line_has_a_bounded_program(command: str) -> None:
    """A foreign command line is neither an error nor a long text."""
    assert len(program_of(command)) <= 200

"""Functions that a program runs, told from those that merely stand in its files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.script.reached import MAX_CHARS, SeenFile, reached

DISPATCHED = """
def loader():
    return DataLoader(data)

def train():
    for batch in loader():
        step(batch)

def evaluate():
    print(model(x).item())

class Net(Module):
    def forward(self, x):
        return helper(x)

def helper(x):
    return x

RUNS = {"train": train, "evaluate": evaluate}
RUNS[sys.argv[1]]()
"""


def names(text: str, *functions: str, module: bool = False) -> set[str]:
    (reached_names,) = reached([SeenFile(text, frozenset(functions), module)])
    assert reached_names is not None
    return {*reached_names} - {"<module>"}


def test_what_a_running_function_names_runs_too() -> None:
    """A loader that was made before anybody looked is not on a stack any more; the other run of the file is not this one's."""
    assert names(DISPATCHED, "train") == {"train", "loader"}


def test_a_method_brings_its_class() -> None:
    """And what the class names."""
    assert names(DISPATCHED, "forward") == {"Net", "helper"}


def test_of_a_script_without_functions_its_top_level_runs() -> None:
    """With all that it names, here a table of everything."""
    assert names(DISPATCHED, module=True) == {"train", "evaluate", "loader"}
    assert names(DISPATCHED) == {"train", "evaluate", "loader"}


def test_files_call_each_other() -> None:
    """A loader of another file is reached by its name."""
    main = SeenFile("import data\ndef main():\n    data.loader()\n", frozenset({"main"}))
    data = SeenFile("def loader():\n    return make()\ndef make(): ...\ndef other(): ...\n", frozenset({"nothing_here"}))

    assert reached([main, data])[1] == frozenset({"loader", "make", "<module>"})


def test_what_is_not_understood_is_left_open() -> None:
    """A mistake in its syntax, or a file that is too long."""
    assert reached([SeenFile("def (", frozenset()), SeenFile("#" * (MAX_CHARS + 1), frozenset())]) == [None, None]


@pytest.mark.parametrize("text", ["", "\0", "x = " + "(" * 5_000, "def f():\n\tpass\n  x"])
def test_odd_files_are_no_error(text: str) -> None:
    """Empty, with a null byte, nested deeply, indented badly."""
    reached([SeenFile(text, frozenset({"f"}))])


@given(st.text(max_size=200), st.sets(st.text(max_size=8), max_size=3))
def test_any_text_has_an_answer(text: str, functions: set[str]) -> None:
    """Whatever a file holds."""
    assert len(reached([SeenFile(text, frozenset(functions))])) == 1

"""What is pasted into the dashboard presses no keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.drivers import linux_driver

from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.now import Now
from sysperf.tui.pasted import Parser
from sysperf.tui.widgets import programs
from tests.report import reports
from tests.tui.machines import Still, news, process, rule, server, snapshot

START, END = "\x1b[200~", "\x1b[201~"


def heard(text: str, sizes: list[int]) -> list[events.Key | events.Paste]:
    """What a parser makes of a text that comes in pieces of these sizes."""
    parser, messages, at = Parser(), [], 0
    for size in [*sizes, len(text)]:
        messages += [*parser.feed(text[at : at + size])] if text[at : at + size] else []
        at += size
    return [message for message in messages if isinstance(message, events.Key | events.Paste)]


@given(
    st.text(st.sampled_from("\x1b[2014~mq4 é\n")).filter(lambda text: END not in text and END not in f"{text}{END}"[:-1]),
    st.lists(st.integers(1, 7), max_size=30),
)
def test_pasted_text_is_one_paste_and_no_key(text: str, sizes: list[int]) -> None:
    """Wherever a read ends, and whatever escapes are in it; the key that is pressed next is one."""
    first, *keys = heard(f"{START}{text}{END}j", sizes)

    assert isinstance(first, events.Paste)
    assert first.text == text.replace("\x1b", "")
    assert [key.key for key in keys if isinstance(key, events.Key)] == ["j"]


@pytest.mark.parametrize("key", ["\x1b[A", "\x1bOP", "\x1b[20~", "4"])
def test_keys_are_keys(key: str) -> None:
    """An arrow, F1, F9 and a number, as before."""
    assert [type(message) for message in heard(key, [])] == [events.Key]


def test_the_dashboard_reads_its_terminal_so() -> None:
    """The driver that it chooses makes this parser."""
    Dashboard(Actions(Still(news(server())), rule))

    assert vars(linux_driver)["XTermParser"] is Parser


@pytest.mark.parametrize(("owners", "shown"), [((0, 4999), True), ((4999, 4999), False)])
def test_users_are_told_apart_where_there_are_several(owners: tuple[int, int], *, shown: bool) -> None:
    """A column of names; one user's own machine has none."""
    now = Now()
    now.here = False
    now.take_report(reports.report(machine=snapshot(process={"processes": [process(7, user=owners[0]), process(8, user=owners[1])]})))
    head = programs.head(now, 200).text

    assert ("user" in head) == shown
    assert ("root" in "".join(line.text for line in programs.draw(now, now.processes(), 200))) == shown

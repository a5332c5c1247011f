"""Small windows over a screen: something to read, a question, a line to write."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from sysperf.model.change import Transaction
from sysperf.model.errors import UsageError
from sysperf.tui import acting, waive
from sysperf.tui.cure import Cure
from sysperf.tui.widgets import ansi
from sysperf.tui.widgets.bar import spark
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, paragraph, span
from sysperf.tui.widgets.pane import Draw, Pane

MIN_REASON = 3
T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A frame over a screen: a title, what is in it, and below it what the keys do."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical {
        width: 90%; max-width: 124; height: auto; max-height: 90%; border: round $frame; background: $surface; padding: 0 1;
    }
    Dialog Pane { height: auto; max-height: 100%; background: $surface; }
    """

    def __init__(self, title: str, keys: str) -> None:
        super().__init__()
        self._title, self._keys = title, keys

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title, frame.border_subtitle = _plain(self._title), self._keys
            yield from self.inside()

    def inside(self) -> Iterable[Widget]:
        """What is in the frame."""
        raise NotImplementedError


class Reading(Dialog[None]):
    """Text to read, with a title."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "Close"),
        Binding("y", "copy", "Copy", show=False),
    ]

    def __init__(self, title: str, draw: Draw, copy: str = "") -> None:
        super().__init__(title, "esc closes" + (", y copies" if copy else ""))
        self._draw, self._copy = draw, copy

    def inside(self) -> Iterable[Widget]:
        yield Pane(self._draw)

    def action_copy(self) -> None:
        if self._copy:
            self.app.copy_to_clipboard(self._copy)
            self.notify("copied", timeout=2, markup=False)


class Cured(Dialog[bool]):
    """What a change did: the settings, and the meters of its subject as they move since. True: take it back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "answer(False)", "Close"),
        Binding("u", "answer(True)", "Undo"),
    ]

    def __init__(self, transaction: Transaction, cure: Cure) -> None:
        holds = transaction.state == "applied"
        super().__init__(f"Transaction {transaction.number}", "esc closes" + ("    u takes it back" if holds else ""))
        self._transaction, self._cure = transaction, cure

    def inside(self) -> Iterable[Widget]:
        yield Pane(self._lines)

    def on_mount(self) -> None:
        self.set_interval(1.0, self.query_one(Pane).redraw)

    def _lines(self, width: int, _: int) -> Lines:
        out = ansi.folded_lines(acting.outcome_text(self._transaction, width), width)
        if self._transaction.state != "applied" or not self._cure.moved:
            return out
        out += [
            line(span("")),
            line(span(f"since {self._cure.age_s:.0f} s", "strong"), Span("  what else changes meanwhile counts, too", "dim")),
        ]
        wide = max(8, min(40, width - 44))
        for moved in self._cure.moved:
            top = max(moved.before, *moved.since, 1e-9) if moved.since else moved.before
            curve = spark([moved.before, *moved.since], wide, top).ljust(wide)
            text = (Span(padded(moved.label, 23), "dim"), Span(padded(moved.text(moved.before), 7, right=True) + " "))
            out.append(fitted(line(*text, Span(curve, "calm"), Span(f" {moved.text(moved.now)}", "strong")), width))
        return out

    def action_answer(self, undo: bool) -> None:
        self.dismiss(undo and self._transaction.state == "applied")


class Question(Dialog[bool]):
    """Something that is done only after a yes. Enter alone is a no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q,enter", "answer(False)", "No"),
    ]

    def __init__(self, title: str, draw: Draw) -> None:
        super().__init__(title, "y: yes    n: no")
        self._draw = draw

    def inside(self) -> Iterable[Widget]:
        yield Pane(self._draw)
        yield Pane(lambda width, _: [fitted(_answers(), width)], id="answers", classes="fixed")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def on_pane_picked(self, event: Pane.Picked) -> None:
        self.dismiss(event.key == "yes")

    def on_click(self, event: events.Click) -> None:
        pane = self.query_one("#answers", Pane)
        if event.widget is pane:
            self.dismiss(event.x < 12)


def _answers() -> Line:
    return line(Span(" [ y yes ] ", "good"), Span("  "), Span(" [ n no ] ", "strong"))


class Writing(Dialog[str | None]):
    """One line to write; None when it was given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Cancel")]

    def __init__(self, title: str, about: str, least: int = 3) -> None:
        super().__init__(title, "enter: done    esc: cancel")
        self._about, self._least = about, least

    def inside(self) -> Iterable[Widget]:
        yield Pane(lambda width, _: paragraph(self._about, width), classes="fixed")
        yield Input()

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def action_give_up(self) -> None:
        self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if len(text) >= self._least:
            self.dismiss(text)
        else:
            self.notify("say why, in a few words", severity="warning", timeout=3, markup=False)


class Waiving(Dialog[tuple[str, datetime.date | None] | None]):
    """Why and until when a finding is accepted, beside what the waiver reaches; None when it was given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Cancel")]

    def __init__(self, about: str, reach: str) -> None:
        super().__init__("Waive: why is this accepted, and until when?", "enter: next, done    tab: other field    esc: cancel")
        self._about, self._reach = about, reach

    def inside(self) -> Iterable[Widget]:
        yield Pane(self._question, classes="fixed")
        yield Input(placeholder="why, in a few words", id="reason")
        yield Input(waive.DEFAULT_EXPIRY, placeholder="until when: 30d, 2027-03-31, never", id="expires")

    def _question(self, width: int, _: int) -> Lines:
        return [*paragraph(self._about, width), *paragraph(f"Accepts {self._reach}.", width, "warning")]

    def on_mount(self) -> None:
        self.query_one("#reason", Input).focus()

    def action_give_up(self) -> None:
        self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        reason = self.query_one("#reason", Input).value.strip()
        if len(reason) < MIN_REASON:
            self._say("say why, in a few words")
        elif event.input.id == "reason":
            self.query_one("#expires", Input).focus()
        else:
            self._finish(reason, event.value)

    def _finish(self, reason: str, until: str) -> None:
        try:
            expires = waive.expiry(until, datetime.datetime.now(tz=datetime.timezone.utc).date())
        except UsageError as error:
            self._say(f"{error}: {error.hint}")
        else:
            self.dismiss((reason, expires))

    def _say(self, text: str) -> None:
        self.notify(text, severity="warning", timeout=3, markup=False)


def note(text: str, width: int) -> Lines:
    """A text of several lines for a dialog."""
    out: Lines = []
    for row in text.split("\n"):
        out += paragraph(row, width) or [line(span(""))]
    return out


def _plain(title: str) -> str:
    """A title that is no markup."""
    return title.replace("[", "\\[")

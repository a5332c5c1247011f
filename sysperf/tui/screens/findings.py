"""The findings: a list with filter and order, the selected one in full, and what can be done about it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from sysperf.model.change import Transaction, Undone
from sysperf.model.finding import Finding
from sysperf.model.text import neutral
from sysperf.report import changes
from sysperf.tui import acting
from sysperf.tui import waive as waiving
from sysperf.tui.actions import Actions
from sysperf.tui.cure import Cure
from sysperf.tui.now import Now
from sysperf.tui.screens.dialogs import Cured, Question, Reading, Waiving, Writing, note
from sysperf.tui.screens.filtered import FilterBar, Filtered
from sysperf.tui.screens.view import counted
from sysperf.tui.source import Facts, Problem
from sysperf.tui.waive import Written
from sysperf.tui.widgets import ansi, findings, transactions, trials
from sysperf.tui.widgets.causes import Cause
from sysperf.tui.widgets.line import Lines, fitted, line, span
from sysperf.tui.widgets.pane import Pane
from sysperf.verify.trials import Trials

BY_HAND = "its fixes are by hand, see below"


class Folding(Pane):
    """A list in which the space unfolds instead of paging."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "screen.fold", "Unfold", show=False)]


class Findings(Filtered):
    """What is wrong here, why, and what to do."""

    NAME = "findings"
    HELP_TEXT = (
        "Everything that slows PyTorch down here, a row a rule, most costly first; ▸ stands for several programs or GPUs. "
        "Below it what was seen, the fixes with their commands, why it matters. "
        "Nothing is changed before you have seen the plan and said yes; every old value is written down first."
    )
    concerns = (Facts, Problem)
    DEFAULT_CSS = """
    Findings #body { layout: vertical; height: 1fr; }
    Findings.-wide #body { layout: horizontal; }
    Findings #list { height: auto; max-height: 45%; }
    Findings.-wide #list { height: 100%; max-height: 100%; width: 50%; }
    Findings #detail { height: 1fr; border-top: solid $frame; padding: 0 1; }
    Findings.-wide #detail { height: 100%; width: 1fr; border-top: none; border-left: solid $frame; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "explain", "Explain", tooltip="the rule behind it: what it looks at, and who says so"),
        Binding("p", "preview", "Preview", tooltip="what applying would change, as a diff; nothing is changed"),
        Binding("a", "apply", "Apply", tooltip="make the change, after a question; all or nothing, and read back"),
        Binding("A", "apply_for", "Apply for", show=False, tooltip="the same for a time: it is taken back by itself then"),
        Binding("u", "undo", "Undo", tooltip="take back what was applied for this finding"),
        Binding("y", "copy", "Copy", tooltip="copy the command of its fix (OSC 52)"),
        Binding("w", "waive", "Waive", tooltip="accept it with a reason and an end, in .sysperf.toml; the question says what that reaches"),
        Binding("W", "unwaive", "Unwaive", show=False, tooltip="remove the latest waiver that was written from here"),
        Binding("space", "fold", "Unfold", tooltip="show or hide the programs or GPUs of a row"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="only findings with these words"),
        Binding("o", "order", "Sort", show=False, tooltip="sort by cost, area or subject"),
        Binding("x", "unknowns", "Unknown", show=False, tooltip="also what could not be checked, and why"),
        Binding("escape", "clear", "Clear", show=False),
        Binding("r", "app.look_again", "Audit again", show=False),
    ]

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self._order, self._unknown = "cost", False
        self._unfolded: set[str] = set()
        self._copied = ("", 0)
        """The finding whose fix was copied last, and which one of its fixes."""
        self._wanted = ""
        self._trials: Trials | None = None
        self._written: list[Written] = []
        """The waivers that were written from here, the latest last."""

    def body(self) -> Iterable[Widget]:
        yield Pane(self._head, classes="fixed", id="head")
        yield Container(Folding(self._listed, id="list"), Pane(self._detail, id="detail"), id="body")
        yield FilterBar("words, all of which a finding must have")

    def on_mount(self) -> None:
        self.query_one("#head", Pane).can_focus = False
        self.query_one("#list", Pane).focus()
        self.query_one("#list", Pane).select(self._wanted)

    def on_screen_resume(self) -> None:
        if self.actions.trials is not None:
            self.in_thread(self.actions.trials, self._have_trials)

    def _have_trials(self, trials: Trials) -> None:
        """What was measured stands as the gain of its finding."""
        if trials != self._trials:
            self._trials = trials
            self.query_one("#detail", Pane).redraw()

    # ------------------------------------------------------------------ drawing

    def _listed(self, width: int, _: int) -> Lines:
        return findings.draw(self.now, self._chosen(), width, self._unfolded)

    def _chosen(self) -> list[Cause]:
        return findings.chosen(self.now, self.words, self._order, unknown=self._unknown)

    def _head(self, width: int, _: int) -> Lines:
        number = sum(len(cause.findings) for cause in self._chosen() if cause.first.state != "unknown")
        everything = len(self.now.findings()) if self.now.report else None
        counts = counted(number if self.words else None, everything, "finding")
        parts = [span(counts, "strong"), span(f"  by {self._order}", "dim")]
        parts += [span(f"  with “{self.words}”", "info")] if self.words else []
        parts += [span(f"  ! {notice}", "warning")] if (notice := self.now.notice()) else []
        return [fitted(line(*parts), width)]

    def _detail(self, width: int, _: int) -> Lines:
        outcome, cause = self.chosen, self._folded()
        also = cause.findings[1:] if cause is not None else ()
        return findings.detail(self.now, outcome, width, trials.of_rule(self._trials, outcome.rule) if outcome else None, also)

    @property
    def chosen(self) -> Finding | None:
        """The selected finding; of a row for several, the first."""
        key, cause = self.query_one("#list", Pane).key, self._folded()
        return cause.first if cause is not None else self.now.finding(key) if isinstance(key, str) else None

    def _folded(self) -> Cause | None:
        """The selected row, where it stands for several findings."""
        key = self.query_one("#list", Pane).key
        return next((cause for cause in self._chosen() if isinstance(key, tuple) and cause.name == key[1]), None)

    def _one(self) -> Finding | None:
        """The finding to act on; a row for several is unfolded first, to choose one."""
        if (cause := self._folded()) is None:
            return self.chosen
        self._unfolded.add(cause.name)
        self.redraw()
        self.say(f"Choose one of the {len(cause.findings)} below.")
        return None

    def select(self, key: str) -> None:
        """Select a finding; a filter that hides it is cleared, and a row that holds it with others is unfolded."""
        if all(finding.key != key for cause in self._chosen() for finding in cause.findings):
            self.words = ""
        for cause in self._chosen():
            if cause.many and any(finding.key == key for finding in cause.findings):
                self._unfolded.add(cause.name)
        if self.query("#list"):
            self.redraw()
            self.query_one("#list", Pane).select(key)
        else:
            self._wanted = key  # a screen that was never shown has no list yet

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane.id == "list":
            pane = self.query_one("#detail", Pane)
            pane.redraw()
            pane.scroll_home(animate=False, immediate=True)

    def on_pane_picked(self, event: Pane.Picked) -> None:
        if event.pane.id == "list":
            self.query_one("#detail", Pane).focus()

    # ------------------------------------------------------------------ the list

    def action_order(self) -> None:
        orders = [*findings.ORDERS]
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self.redraw()

    def action_fold(self) -> None:
        finding = self.chosen
        cause = next((cause for cause in self._chosen() if finding in cause.findings), None)
        if cause is not None and cause.many:
            self._unfolded ^= {cause.name}
            self.redraw()
            self.query_one("#list", Pane).select(("rule", cause.name))

    def action_unknowns(self) -> None:
        self._unknown = not self._unknown
        self.redraw()
        if self._unknown and not self.now.counted:
            self.say("This older agent does not send unknown checks; `sysperf audit` lists them.")

    # ------------------------------------------------------------------ acting

    def action_copy(self) -> None:
        """The first fix; pressed again, the next one; of a folded row the commands of all."""
        if (cause := self._folded()) is not None:
            self._copy(
                "\n".join(dict.fromkeys(findings.command_of(finding) for finding in cause.findings)), f"{len(cause.findings)} commands"
            )
        elif (outcome := self.chosen) is not None:
            commands = findings.commands_of(outcome)
            number = (self._copied[1] + 1) % len(commands) if self._copied[0] == outcome.key else 0
            self._copied = (outcome.key, number)
            self._copy(commands[number], f"{number + 1} of {len(commands)}" if len(commands) > 1 else "")

    def _copy(self, command: str, which: str) -> None:
        self.app.copy_to_clipboard(command)
        self.say(f"copied{f' {which}' if which else ''}: {command}")

    def action_explain(self) -> None:
        if (outcome := self.chosen) is not None:
            self.in_thread(lambda: self._explained(outcome.rule), lambda text: self._read(f"Explain {outcome.rule}", text))

    def action_preview(self) -> None:
        if (outcome := self._one()) is not None:
            command = findings.command_of(outcome)
            self.in_thread(lambda: acting.propose(self.actions, outcome), lambda proposal: self._read(
                f"Preview {_named(outcome)}: nothing is changed", proposal.text, command))  # fmt: skip

    def action_apply(self) -> None:
        if self.actions.refuses():
            self.say(self.actions.refuses(), "warning")
        elif (outcome := self._one()) is not None:
            self.in_thread(lambda: acting.propose(self.actions, outcome), lambda proposal: self._ask(outcome, proposal))

    def action_apply_for(self) -> None:
        """The same until a lease ends."""
        if self.actions.refuses():
            self.say(self.actions.refuses(), "warning")
        elif (outcome := self._one()) is not None and not self._has_setting(outcome):
            self.say(f"sysperf cannot make this change: {BY_HAND}.", "warning")
        elif outcome is not None:
            about = f"{outcome.rule}: for how long? 90s, 10m, 8h, 2d. It is taken back by itself then, also when this dashboard has ended."
            self.app.push_screen(Writing("Apply for a time", about, least=2), lambda text: self._for_a_time(outcome, text))

    def _for_a_time(self, outcome: Finding, text: str | None) -> None:
        if text is not None:
            self.in_thread(lambda: acting.propose(self.actions, outcome, text), lambda plan: self._ask(outcome, plan))

    def _ask(self, outcome: Finding, proposal: acting.Proposal) -> None:
        if not proposal.plan.changes:
            self._read(f"Nothing to apply for {_named(outcome)}", proposal.text, findings.command_of(outcome))
            return
        title = f"Apply this for {_named(outcome)}?"
        self.app.push_screen(
            Question(title, lambda width, _: ansi.folded_lines(proposal.text(width), width)),
            lambda yes: self._apply(outcome, proposal) if yes else None,
        )

    def _apply(self, outcome: Finding, proposal: acting.Proposal) -> None:
        def done(transaction: Transaction) -> None:
            if transaction.state == "applied":
                self.now.fixed[outcome.key] = transaction.number
            self.actions.source.look_again()
            self.redraw()
            cure = Cure(transaction.number, outcome, self.now.meters)
            if transaction.state == "applied":
                self.now.cures.append(cure)
            self.app.push_screen(Cured(transaction, cure), lambda undo: self.action_undo() if undo else None)

        self.in_thread(lambda: acting.apply(self.actions, outcome, proposal.plan, proposal.lease_s), done)

    def action_undo(self) -> None:
        if (outcome := self._one()) is None:
            return

        def ask(applied: tuple[str, Transaction] | None) -> None:
            if applied is None:
                self.say(f"Nothing in force was applied for {_named(outcome)}. Key 6 shows all changes.")
                return
            folder, transaction = applied
            self.app.push_screen(
                Question(f"Undo what was applied for {_named(outcome)}?", lambda width, _: transactions.taken_back(transaction, width)),
                lambda yes: self._undo(outcome, transaction.number, folder) if yes else None,
            )

        self.in_thread(lambda: acting.in_force(self.actions, outcome), ask)

    def _undo(self, outcome: Finding, number: int, folder: str) -> None:
        def done(taken: list[Undone]) -> None:
            self.now.fixed.pop(outcome.key, None)
            self.actions.source.look_again()
            self.redraw()
            self._read(f"Transaction {number}", lambda width: changes.undone(taken, color=True, width=width))

        self.in_thread(lambda: acting.undo(self.actions, number, folder), done)

    def action_waive(self) -> None:
        outcome, waive = self.chosen, self.actions.waive
        if waive is None or self.actions.refusal:
            why = self.actions.refuses().partition(":")[0]
            self.say(f"{why}: a waiver is written in the configuration (docs/configuration.md).", "warning")
            return
        if outcome is None:
            return

        def answered(answer: tuple[str, datetime.date | None] | None) -> None:
            if answer is not None:
                self.in_thread(lambda: waive(outcome, *answer), lambda written: self._waived(written, answer[0]))

        self.app.push_screen(Waiving(f"{_named(outcome)}: {outcome.message or outcome.title}", waiving.reach(outcome)), answered)

    def _waived(self, written: Written, reason: str) -> None:
        self._written.append(written)
        self.now.waived |= {finding.key: reason for finding in self.now.findings() if written.covers(finding)}
        self.actions.source.look_again()
        self.redraw()
        self.say(f"Written to {written.path}; W takes it back. An agent reads its own configuration: put it there, too, where one runs.")

    def action_unwaive(self) -> None:
        """Take the latest waiver from here back, after a question."""
        if not self._written:
            self.say("No waiver was written from here. Those of a configuration file are removed there.")
            return
        written = self._written[-1]
        waiver = "\n".join(map(neutral, written.text.splitlines()))

        def answered(yes: bool | None) -> None:
            if yes:
                self.in_thread(lambda: waiving.take_back(written), lambda _: self._unwaived(written))

        self.app.push_screen(Question(f"Remove this waiver from {written.path}?", lambda width, _: note(waiver, width)), answered)

    def _unwaived(self, written: Written) -> None:
        self._written.remove(written)
        covered = {finding.key for finding in self.now.report.findings() if written.covers(finding)} if self.now.report else set()
        self.now.waived = {key: reason for key, reason in self.now.waived.items() if key not in covered}
        self.actions.source.look_again()
        self.redraw()
        self.say(f"Removed from {written.path}.")

    def not_now(self, action: str) -> str:
        """Why this key does nothing here."""
        outcome = self.chosen
        if action in ("apply", "undo") and self.actions.refuses():
            return "read-only" if self.actions.refusal else "elsewhere"
        if action == "apply" and outcome is not None and not self._has_setting(outcome):
            return "by hand"
        return "one" if action == "fold" and self._folded() is None else ""

    @staticmethod
    def _has_setting(outcome: Finding) -> bool:
        return any(fix.setting is not None for fix in outcome.fixes)

    # ------------------------------------------------------------------ inside

    def _explained(self, name: str) -> Callable[[int], str]:
        from sysperf.report.reference import explain  # noqa: PLC0415 - when a rule is explained

        rule = self.actions.rule(name)
        return lambda width: explain.render(rule, color=True, width=width)

    def _read(self, title: str, render: Callable[[int], str], copy: str = "") -> None:
        self.app.push_screen(Reading(title, lambda width, _: ansi.folded_lines(render(width), width), copy))


def _named(outcome: Finding) -> str:
    """A finding for a title: the rule, and which program, GPU or folder."""
    return f"{outcome.rule} of {neutral(outcome.about, 80)}" if outcome.about else outcome.rule

"""What a configuration and the command line ask of the agent, checked before it starts and before it reloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sysperf.agent.apply_policy import ChangeService, SettingsOf, checked
from sysperf.engine.judging import Terms
from sysperf.model.agent_settings import Settings
from sysperf.model.change import Transaction
from sysperf.model.errors import UsageError


class Setup(NamedTuple):
    """What a configuration asks for."""

    settings: Settings
    terms: Terms

    @property
    def allowed(self) -> tuple[object, ...]:
        """What may be changed, and for how long."""
        return self.settings.mode == "apply", self.settings.apply, self.settings.lease_s


class Options(NamedTuple):
    """What the command line asks for, and who makes changes."""

    socket: str
    history: str | None = None
    change_service: Callable[[], ChangeService | None] = lambda: None
    """Who makes changes in mode `apply`; None where nobody can."""
    settings_of: SettingsOf = lambda _: ()
    transactions: Callable[[], tuple[Transaction, ...]] = tuple
    """What was changed on this machine, newest first. Asked with each sample, in a thread: it is cheap while nothing changes."""


def checked_setup(load: Callable[[], Setup], options: Options) -> Setup:
    """What is to be in force. Raises SysperfError."""
    setup = load()
    _require_change_service(setup, options)
    return setup


def _require_change_service(setup: Setup, options: Options) -> None:
    """Mode `apply` without somebody who can make changes refuses to start. Raises UsageError."""
    if setup.settings.mode != "apply":
        return
    checked(setup.settings.apply, {rule.id for rule in setup.terms.ruleset.rules})
    if options.change_service() is None:
        raise UsageError(
            "mode `apply` needs the helper, which makes the changes, and there is none here",
            "install it with `sysperf service install`, or use `--mode advise`, which only says what to do",
        )

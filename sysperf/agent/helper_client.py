"""Changes that the agent asks the privileged helper for: each with a lease that ends when the agent is not there to renew it."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf import paths
from sysperf.fix import helper_protocol
from sysperf.fix.helper_protocol import Answer, AskApply, AskRenew, AskUndo, AskVerify, Unreachable
from sysperf.model.change import Setting
from sysperf.model.errors import SysperfError


class HelperClient:
    """Asks the helper at a socket; a `ChangeService`. What somebody else has set since sysperf did is left to them."""

    def __init__(self, path: str = paths.HELPER_SOCKET) -> None:
        self._path = path

    def apply(self, settings: Sequence[Setting], rule: str, lease_s: float) -> str:
        """Make these changes; returns the number of the transaction. Raises SysperfError when one is refused."""
        answer = self._ask(AskApply(settings=tuple(settings), why=f"agent: {rule}", lease_s=lease_s, automatic=True))
        done = answer.transaction
        if done is None:
            raise SysperfError(
                "; ".join(skipped.reason for skipped in answer.plan.skipped) if answer.plan else "there is nothing to change"
            )
        if done.state != "applied":
            raise SysperfError(next((step.reason for step in done.steps if step.state == "refused"), done.state))
        return str(done.number)

    def renew(self, transaction: str, lease_s: float) -> None:
        """Let it hold so long from now. Raises SysperfError when it is over, or when somebody else has set the same since."""
        number = int(transaction)
        for holding in self._ask(AskVerify()).holdings:
            if holding.number == number and holding.verdict == "changed":
                raise SysperfError(f"somebody else has set it to {holding.now}")
        self._ask(AskRenew(number=number, lease_s=lease_s))

    def undo(self, transaction: str) -> None:
        """Take it back now."""
        self._ask(AskUndo(number=int(transaction)))

    def _ask(self, question: helper_protocol.Ask) -> Answer:
        """Raises OSError when the helper is not there: then the lease may still be renewed later."""
        try:
            return helper_protocol.ask(question, self._path)
        except Unreachable as error:
            raise ConnectionError(str(error)) from None

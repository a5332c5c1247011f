"""How long a request waits for its turn, so that no user's requests take more than a share of the agent's time."""

from __future__ import annotations

MAX_USERS = 1_000


class Pace:
    """Spread each user's requests: `at_once` of them without a wait, then `per_s` in a second."""

    def __init__(self, per_s: float, at_once: int) -> None:
        self._interval_s = 1 / per_s
        self._ahead_s = at_once * self._interval_s
        self._due: dict[int, float] = {}

    def wait_s(self, user: int, now: float) -> float:
        """Count a request that came `now` (s, monotonic) and return how long it waits."""
        if len(self._due) >= MAX_USERS:
            self._due = {other: due for other, due in self._due.items() if due > now - self._ahead_s}
        due = self._due[user] = max(self._due.get(user, 0.0), now - self._ahead_s) + self._interval_s
        return max(0.0, due - now)

"""One thing on this machine that has one value which can be read and set."""

from __future__ import annotations


class Target:
    """One thing that has one value. Values are text as the kernel writes it; all methods but `offers` may raise OSError."""

    path: str
    """What is written, for people."""
    exact = True
    """Whether writing a value and reading it back must give the same, and undoing gives what was there."""
    start_time = 0
    """Start time of the process that it belongs to; 0 when it belongs to none."""

    def read(self) -> str:
        """The value in force."""
        raise NotImplementedError

    def write(self, value: str) -> None:
        """Set it."""
        raise NotImplementedError

    def same(self, value: str, other: str) -> bool:
        """Whether two values are one to the kernel."""
        return value == other

    def fulfils(self, now: str, value: str) -> bool:
        """Whether nothing would be left to do to set this value."""
        return self.same(now, value)

    def took(self, read: str, value: str) -> bool:
        """Whether what was read back says that this value was set."""
        return self.same(read, value)

    def offers(self) -> tuple[str, ...] | None:
        """The words that this machine takes; None when nobody lists them."""
        return None

    def refuses(self, value: str) -> str:  # noqa: ARG002 - most take every value that the allow-list has
        """Why this machine cannot have this value, as far as that is known without trying."""
        return ""

    def problem(self) -> str:
        """Why it cannot be set here, as far as that is known without trying."""
        return ""

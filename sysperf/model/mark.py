"""What a scheduler is told of a node: a comment, or a drain with its reason."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact

PREFIX = "sysperf: "
"""How each mark of ours begins, and nobody else's."""
MAX_MARK = 160

How = Literal["mark", "drain"]
"""mark: a comment that people and tools read; drain: no further job starts there."""


def is_ours(text: str) -> bool:
    """Whether sysperf set this comment or reason, here or on another machine."""
    return text.startswith(PREFIX)


class NodeMark(Record, kw_only=True):
    """A node as its scheduler sees it."""

    node: str
    partitions: tuple[str, ...] = ()
    state: Annotated[str, fact("in the scheduler's words")] = ""
    usable: Annotated[bool, fact("whether jobs may start there")] = False
    comment: str = ""
    reason: Annotated[str, fact("why it is drained or down; of whoever said so")] = ""
    by: Annotated[str, fact("who gave the reason, and when")] = ""

    def text(self, how: How) -> str:
        """The words that such a mark would replace."""
        return self.comment if how == "mark" else self.reason

    @property
    def ours(self) -> str:
        """What sysperf says of it: the reason, else the comment, else nothing."""
        return next((text for text in (self.reason, self.comment) if is_ours(text)), "")


class Marked(Record, kw_only=True):
    """A node with a mark of ours, or with one that somebody has changed since."""

    node: str
    how: How
    text: Annotated[str, fact("what sysperf said")]
    state: Annotated[str, fact("of the node, in the scheduler's words")] = ""
    transaction: Annotated[int | None, fact("of this machine's journal; unknown: another machine's sysperf set it")] = None
    taken_at: str = ""
    verdict: Annotated[
        Literal["holds", "changed", "lifted", "interrupted", "gone", "unknown"],
        fact("changed: somebody else has changed it since, so it is theirs; lifted: what was there before is there again"),
    ] = "holds"
    now: Annotated[str, fact("the words that are there now, or why they are not known")] = ""

"""Answers of a bounded size: rows by pages with a cursor, and text of others in fields that say so."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence

from sysperf.model.errors import UsageError
from sysperf.model.record import Json, JsonObject, to_json
from sysperf.model.text import neutral

MAX_ANSWER_BYTES = 16_000
MAX_TEXT, MAX_UNKNOWN = 200, 10
ROWS, MAX_ROWS = 20, 50
KEPT_S, MAX_KEPT = 600.0, 32
UNTRUSTED = "untrusted_"


def untrusted(**texts: object) -> dict[str, str]:
    """Text that others wrote (names of processes, files, kernels, nodes), under names that say so: bounded, without anything active."""
    return {UNTRUSTED + name: neutral(str(text), MAX_TEXT) for name, text in texts.items() if text not in (None, "", [], ())}


class Answer:
    """Rows, and what is to be said once of all of them."""

    def __init__(self, rows: Sequence[JsonObject], unknown: Sequence[JsonObject] = (), **about: Json) -> None:
        self.rows, self.unknown, self.about = [*rows], [*unknown], about


class Pages:
    """Answers that were not shown whole: a cursor leads on in the very same rows, whatever the machine does meanwhile."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Answer]] = OrderedDict()

    def first(self, answer: Answer, limit: int = ROWS) -> JsonObject:
        """The first page."""
        return self._page(secrets.token_hex(4), answer, 0, limit)

    def next(self, cursor: str, limit: int = ROWS) -> JsonObject:
        """The page that a cursor leads to. Raises UsageError where it leads nowhere any more."""
        key, _, place = cursor.partition(".")
        kept = self._kept.get(key)
        if kept is None or not place.isascii() or not place.isdigit() or time.monotonic() - kept[0] > KEPT_S:
            raise UsageError("the cursor is too old or no cursor", "ask again without it")
        return self._page(key, kept[1], min(int(place[:9]), len(kept[1].rows)), limit)

    def _page(self, key: str, answer: Answer, start: int, limit: int) -> JsonObject:
        end = min(len(answer.rows), start + max(1, min(limit, MAX_ROWS)))
        page = self._between(key, answer, start, end)
        while len(to_json(page)) > MAX_ANSWER_BYTES and end > start + 1:
            end -= max(1, (end - start) // 4)
            page = self._between(key, answer, start, end)
        if len(to_json(page)) > MAX_ANSWER_BYTES:
            page = {**page, "rows": [{"left_out": "this row is too large to be shown"}], "unknown": page["unknown"][:3]}
        if end < len(answer.rows):
            self._kept[key] = (time.monotonic(), answer)
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return page

    def _between(self, key: str, answer: Answer, start: int, end: int) -> JsonObject:
        more = {"unknown_total": len(answer.unknown)} if len(answer.unknown) > MAX_UNKNOWN else {}
        return {
            **answer.about,
            "total": len(answer.rows),
            "shown": end - start,
            "next_cursor": f"{key}.{end}" if end < len(answer.rows) else None,
            "unknown": answer.unknown[:MAX_UNKNOWN] if start == 0 else [],
            **more,
            "rows": answer.rows[start:end],
        }


def cut(text: str, limit: int = MAX_ANSWER_BYTES - 1_000) -> str:
    """A page of ours that fits into an answer."""
    data = text.encode()
    return text if len(data) <= limit else data[:limit].decode("utf-8", "ignore") + "\n… (cut)"

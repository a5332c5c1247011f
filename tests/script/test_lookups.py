"""Lines that look for something in a list."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import random, torch
from collections import deque
words = ["<pad>"] + [f"w{{n}}" for n in range(9999)]
few = ["a", "b", "c"]
letters, parts, pair = list("abc"), "a b c".split(), list((1, 2))
numbers = [n for n in range(3)]
small, three, ends = deque(maxlen=8), sorted({{1, 2, 3}}), list(range(3))
boards = [torch.zeros(9) for _ in range(999)]
cells = [[n] for n in range(999)]
places = {{word: place for place, word in enumerate(words)}}
stops = set(words[:99])
codes, table = [f"w{{n}}" for n in range(20000)], list(range(99))
big, first = deque(maxlen=100000), ["<pad>"]
seen = []
def remember(word): seen.append(word); first.append(word)
class Memory:
    def __init__(self, size, labels):
        self.rows, self.kept, self.labels = deque(maxlen=size), [], labels
        self.table = torch.zeros(9)
    def push(self, row): self.kept.append(row)
    def take(self, word, place, text):
        {line}
memory = Memory(9, sorted(places))
"""


def searches(line: str) -> bool:
    text = TEXT.format(line=line)
    lines = text.splitlines()
    return any(cures.searches_list(text, 1 + lines.index(f"        {one.strip()}")) for one in line.splitlines() if "return 1" not in one)


@pytest.mark.parametrize(
    "line",
    [
        "return words.index(word)",
        "return [words.index(one) for one in text.split()]",
        "if word in words:\n            return 1",
        "return [one for one in text if one not in seen]",
        "return word in first",
        "return codes.index(word)",
        "return word in table",
        "marks = [str(one) for one in place]\n        return [one in marks for one in text]",
        "return random.sample(big, 2)",
        "return random.sample(self.rows, 9)",
        "return [self.rows[n] for n in place]",
        "self.kept.remove(word)",
        "return word in self.labels",
        "lines = text.splitlines()\n        return [one in lines for one in place]",
    ],
)
def test_what_goes_through_a_list(line: str) -> None:
    assert searches(line)


@pytest.mark.parametrize(
    "line",
    [
        "return places[word]",
        "return word in places",
        "return word in stops",
        "return word in few",
        "return word in ('a', 'b')",
        "return word in letters",
        "return word in parts",
        "return word in pair",
        "return word in numbers",
        "return word in three",
        "return word in ends",
        "return word in boards",
        "return word in cells",
        "return small[place]",
        "return random.sample(small, 2)",
        "return map(lambda words: word in words, text)",
        "return word in text",
        "return text.index(word)",
        "return word in unknown",
        "return word in text.split()",
        "lines = text.splitlines()\n        return word in lines",
        "return [word in one.split() for one in text]",
        "return self.rows[-1]",
        "return self.kept[place]",
        "return random.sample(self.kept, 9)",
        "return self.table.index(word)",
        "for one in words: print(one)",
    ],
)
def test_what_finds_it_at_once_or_may(line: str) -> None:
    """A set, a dictionary, a string, a few words, an element of a list by its place; what nobody knows."""
    assert not searches(line)

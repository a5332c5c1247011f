"""What a data set makes of a sample, the same in each pass or not."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import json, random, re, time, numpy as np, torch, elsewhere
from datetime import datetime
from torch.utils.data import Dataset
table = {{"a": 1}}
WORD = re.compile(r"[a-z]+")
class Rows(Dataset):
    def __init__(self, texts, transform=None):
        self.texts, self.transform, self.epoch, self.seen = texts, transform, 0, []
        self.rng = np.random.default_rng(0)
    def __len__(self): return 9
    def set_epoch(self, epoch): self.epoch = epoch
    def parse(self, text, part):
        return [float(one) for one in text.split()] + [datetime.strptime(part, "%Y").year]
    def marks(self, text):
        found = []
        for part in text.split():
            found.append(part.isdigit())
        return torch.tensor(found)
    def count(self, text):
        self.seen.append(text)
        return [len(one) for one in self.seen]
    def crop(self, row):
        at = random.randint(0, 9)
        return row[at:]
    def __getitem__(self, i):
        text = self.texts[i]
        where = random.random()
        {line}
        return row
"""


def cure(line: str) -> str:
    text = TEXT.format(line=line)
    return cures.of_sample(text, 1 + text.splitlines().index(f"        {line}"))


@pytest.mark.parametrize(
    "line",
    [
        "row = torch.tensor(self.parse(text, text[:4]))",
        "row = np.sort(np.array([ord(one) for one in text]))",
        "row = json.dumps({'text': text.lower()})",
        "row = [table[word] for word in text.split()]",
        "row = datetime.fromisoformat(text).timestamp()",
        "row = [len(one) for one in WORD.findall(text)]",
        "row = self.marks(text)",
    ],
)
def test_what_is_made_of_what_is_stored(line: str) -> None:
    assert cure(line) == "rows"


@pytest.mark.parametrize(
    "line",
    [
        "row = torch.tensor(self.parse(text, str(where)))",
        "row = self.crop(torch.tensor(self.parse(text, text)))",
        "row = self.transform(text)",
        "row = elsewhere.noisy(text)",
        "row = np.sort(text) + self.rng.normal()",
        "row = np.load(text)",
        "row = open(text).read()",
        "row = datetime.now().timestamp()",
        "row = np.sort(text) * self.epoch",
        "row = time.time()",
        "row = text",
        "row = self.count(text)",
        "row = torch.from_numpy(self.texts[i]).float().div(255)",
    ],
)
def test_what_chance_an_epoch_or_a_file_has_a_part_in(line: str) -> None:
    assert cure(line) == ""

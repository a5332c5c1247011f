"""What a data set makes of a sample, the same in each pass or not."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import json, math, os, random, re, time, numpy as np, torch, elsewhere
from datetime import datetime
from math import sqrt
from scipy import ndimage
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch.utils.data import Dataset
table = {{"a": 1}}
history = []
WORD = re.compile(r"[a-z]+")
def clock(): return time.monotonic()
def coin(): return hash(object()) % 2
def counted(text, memo=[0]):
    memo[0] += 1
    return [one for one in text[memo[0]:]]
def later(): return datetime.now()
class Rows(Dataset):
    def __init__(self, texts, transform=None):
        self.texts, self.transform, self.epoch, self.seen = texts, transform, 0, []
        self.rng = np.random.default_rng(0)
        self.pipeline = transform
        self.scaler = StandardScaler().fit(texts)
        self.noise = FunctionTransformer(elsewhere.noise()).fit(texts)
    def __len__(self): return 9
    def set_epoch(self, epoch): self.epoch = epoch
    def parse(self, text, part):
        return [float(one) for one in text.split()] + [datetime.strptime(part, "%Y").year]
    def marks(self, text):
        found = []
        for part in text.split():
            found.append(part.isdigit())
        return torch.tensor(found)
    def remember(self, text): history.append(text)
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
        "row = [sqrt(one) * 2 for one in text]",
        "row = ndimage.zoom(text, (0.5, 0.5), order=3)",
        "row = self.scaler.transform(text)",
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
        "row = self.pipeline.transform(text)",
        "row = self.noise.transform(text)",
        "row = ndimage.zoom(text, where)",
        "row = elsewhere.noisy(text)",
        "row = np.sort(text) + self.rng.normal()",
        "row = np.load(text)",
        "row = open(text).read()",
        "row = datetime.now().timestamp()",
        "row = np.sort(text) * self.epoch",
        "row = time.time()",
        "row = text",
        "row = self.count(text)",
        "row = [len(one) for one in self.seen]",
        "row = [len(one) for one in history]",
        "row = [unknown(one) for one in text]",
        "row = torch.tensor(text)",
        "row = np.sort(text)",
        "row = torch.from_numpy(self.texts[i]).float().div(255)",
        "row = [one * clock() for one in text]",
        "row = [one for one in text if coin()]",
        "row = counted(text)",
        "row = [later() for one in text]",
        "row = [id(self) for one in text]",
        "row = [one + torch.utils.data.get_worker_info().id for one in text]",
        "row = [one + torch.initial_seed() for one in text]",
        "row = [one for one in self.texts[self.order[i]]]",
        "row = [random.getrandbits(1) for one in text]",
        "row = [one for one in text if self.rng.integers(2)]",
        "row = [getattr(random, 'random')() for one in text]",
        "row = [one * np.random.rand() for one in text]",
    ],
)
def test_what_chance_an_epoch_or_a_file_has_a_part_in(line: str) -> None:
    assert cure(line) == ""


@pytest.mark.parametrize(
    "line",
    [
        "row = torch.zeros(1000, 1000) + torch.tensor([float(one) for one in text])",
        "row = [[a * b for a in text] for b in text]",
        "row = torch.eye(50000)[[int(one) for one in text]]",
        "row = [a + b for a in text for b in text]",
        "row = np.array([[one] * 4096 for one in text])",
        "row = torch.nn.functional.pad(torch.tensor([one for one in text]), (0, 99999))",
        "row = [one for one in text] * 1000",
        "row = [math.sin(one * t) for one in text for t in range(4096)]",
        "row = [np.zeros(4096) for _ in text]",
        "row = [np.outer(one, one) for one in text]",
    ],
)
def test_what_is_far_more_than_what_is_stored(line: str) -> None:
    """All samples of it may be more than memory holds."""
    assert cure(line) == ""


@pytest.mark.parametrize(
    ("given", "right"), [("text, 2", "rows"), ("text, random.random()", ""), ("text, at=random.random()", ""), ("", "")]
)
def test_a_line_of_a_helper_depends_on_what_its_calls_hand_over(given: str, right: str) -> None:
    """Nobody knows what a helper is given that this file never calls."""
    call = f"row = self.scaled({given})" if given else "row = 1"
    text = TEXT.format(line=call).replace(
        "    def __len__", "    def scaled(self, text, at):\n        return [one * at for one in text]\n    def __len__"
    )

    assert cures.of_sample(text, 1 + text.splitlines().index("        return [one * at for one in text]")) == right

"""Objects that a data set makes anew for each sample, and could make once."""

from __future__ import annotations

import pytest

from sysperf.script import cures

TEXT = """\
import random, torch
import torchaudio.transforms as T
from torchvision.transforms import Compose, Resize
from transformers import AutoTokenizer
from elsewhere import Tool
RATE = 16000
class Mel(torch.nn.Module):
    def __init__(self, rate):
        self.bank = torch.linspace(0, rate, 9)
    def forward(self, wave):
        return wave * self.bank + torch.rand(9)
class Drawn:
    def __init__(self):
        self.angle = random.random()
    def __call__(self, x): return x * self.angle
class Counter:
    def __init__(self): self.seen = 0
    def __call__(self, x):
        self.seen = self.seen + 1
        return x
class Waves(torch.utils.data.Dataset):
    def __init__(self, waves, size):
        self.waves, self.size, self.level = waves, size, 0
    def set_level(self, level): self.level = level
    def __getitem__(self, i):
        wave = self.waves[i]
        {line}
        return {use}
"""


def cure(line: str, use: str = "made(wave)") -> str:
    text = TEXT.format(line=line, use=use)
    return cures.of_sample(text, 1 + text.splitlines().index(f"        {line}"))


@pytest.mark.parametrize(
    "line",
    [
        "made = Mel(16000)",
        "made = Mel(rate=RATE)",
        "made = T.MelSpectrogram(sample_rate=RATE, n_mels=64)",
        "made = Compose([Resize(self.size)])",
        "made = AutoTokenizer.from_pretrained('bert-base-uncased')",
    ],
)
def test_what_is_made_of_constants_alone_is_made_once(line: str) -> None:
    """Chance in its calls does no harm."""
    assert cure(line) == "fixed"


@pytest.mark.parametrize(
    ("line", "use"),
    [
        ("made = Mel(len(wave))", "made(wave)"),
        ("made = Mel(self.level)", "made(wave)"),  # another method changes it
        ("made = Drawn()", "made(wave)"),
        ("made = Counter()", "made(wave)"),
        ("made = Tool(3)", "made(wave)"),  # nobody sees what it keeps
        ("made = Mel(16000)", "made"),
        ("made = torch.Generator()", "made(wave)"),
        ("made = Compose([Resize(i)])", "made(wave)"),
    ],
)
def test_what_may_be_another_one_each_time_is_not(line: str, use: str) -> None:
    """It depends on the sample, draws when it is made, keeps a state, or is handed on."""
    assert cure(line, use) != "fixed"

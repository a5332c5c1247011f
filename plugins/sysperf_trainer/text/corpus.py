"""The sources of the Python that runs this, as one long row of tokens in a file.

They are tokenised once: by byte-pair encoding, trained on them by the `tokenizers` library, or, without it, by bytes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sysperf_trainer import cache

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BYTES = 256
END_OF_FILE = "<|endoftext|>"
ID_TYPE = np.uint16
"""The largest vocabulary has 50,257 tokens."""
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


class Sequences(Dataset):
    """Sequences of fixed length, packed: (tokens, the same shifted by one). The file is memory-mapped, not read.

    Numbers of samples go on beyond one epoch.
    """

    def __init__(self, path: str, tokens: int) -> None:
        self.path, self.tokens = path, tokens
        self.length = (os.path.getsize(path) // np.dtype(ID_TYPE).itemsize - 1) // tokens
        self._file: np.memmap | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        if self._file is None:  # each worker maps it by itself
            self._file = np.memmap(self.path, ID_TYPE, "r")
        start = number % self.length * self.tokens
        ids = torch.from_numpy(self._file[start : start + self.tokens + 1].astype(np.int64))
        return ids[:-1], ids[1:]


def made(folder: str, vocabulary: int, max_bytes: int) -> str:
    """Return the path of the tokens, made on the first call. Raises TrainerError."""
    by = "bpe" if importlib.util.find_spec("tokenizers") else "bytes"
    name = f"{folder}/text-{sys.version_info.major}.{sys.version_info.minor}-{by}-{vocabulary}-{max_bytes}"
    return cache.made(name, lambda unfinished: _make(unfinished, by, vocabulary, max_bytes)) + "/tokens.bin"


def _make(folder: str, by: str, vocabulary: int, max_bytes: int) -> None:
    texts = list(sources(max_bytes))
    rows = _encoded(texts, vocabulary, f"{folder}/tokenizer.json") if by == "bpe" else _as_bytes(texts)
    with open(f"{folder}/tokens.bin", "wb") as file:
        file.writelines(np.asarray(row, ID_TYPE).tobytes() for row in rows)


def sources(max_bytes: int) -> Iterator[str]:
    """Yield the files of the standard library in order of their names, up to a size."""
    left = max_bytes
    for folder, folders, files in os.walk(sysconfig.get_paths()["stdlib"]):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for name in sorted(files):
            if left <= 0:
                return
            if name.endswith(".py"):
                text = _text(f"{folder}/{name}")[:left]
                left -= len(text)
                yield text


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _as_bytes(texts: list[str]) -> Iterator[list[int]]:
    """One token a byte, and one more where a file ends."""
    return ([*text.encode(), BYTES] for text in texts)


def _encoded(texts: list[str], vocabulary: int, path: str) -> Iterator[list[int]]:
    tokenizer = _trained(texts, vocabulary)
    tokenizer.save(path)
    end = tokenizer.token_to_id(END_OF_FILE)
    return ([*encoding.ids, end] for encoding in tokenizer.encode_batch(texts))


def _trained(texts: list[str], vocabulary: int) -> Tokenizer:
    """A byte-pair encoding as GPT-2's, learnt from these texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 - optional, and needed once

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END_OF_FILE], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer

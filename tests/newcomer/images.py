"""Classifies images: each is decoded whole in the main thread, and then made small."""

import io

import numpy
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64


def photograph(seed):
    random = numpy.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 255, (90, 120, 3), dtype=numpy.uint8))
    kept = io.BytesIO()
    small.resize((1920, 1440), Image.Resampling.BICUBIC).save(kept, "JPEG")
    return kept.getvalue()


class Images(Dataset):
    def __init__(self):
        self.files = [photograph(seed) for seed in range(4)]

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % len(self.files)]))
        pixels = numpy.asarray(image.convert("RGB").resize((SIZE, SIZE)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float(), index % 10


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
model(torch.zeros(1, 3, SIZE, SIZE))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for images, labels in DataLoader(Images(), batch_size=8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()

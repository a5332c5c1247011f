"""JPEG files with a real cost of decoding: of varied sizes and content, written by Pillow, read and decoded by Pillow."""

from __future__ import annotations

import functools
import os
import sys

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sysperf_trainer import cache
from sysperf_trainer.errors import TrainerError

try:
    from PIL import Image
except ImportError:
    raise TrainerError(f"images need Pillow: {sys.executable} -m pip install pillow") from None

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DAMAGED = -100
"""The label of an image that cannot be decoded: cross-entropy leaves it out."""
QUALITY = 87


class Images(Dataset):
    """Random crops of images, as bytes (3, size, size), and their classes.

    Numbers of samples go on beyond one epoch, and a crop follows from seed and number alone, whichever process makes it.
    """

    def __init__(self, folder: str, size: int, seed: int, *, reduced: bool = False) -> None:
        self.folder, self.size, self.seed, self.reduced = folder, size, seed, reduced
        self.names = sorted(name for name in os.listdir(folder) if name.endswith(".jpg"))
        if not self.names:
            raise TrainerError(f"{folder}: no images are left; remove the folder, and it is made again")

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        name = self.names[number % len(self.names)]
        try:
            with Image.open(f"{self.folder}/{name}") as image:
                pixels = np.asarray(self._cropped(image, number))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # what Pillow raises for files that are not whole
            return torch.zeros(3, self.size, self.size, dtype=torch.uint8), DAMAGED
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1), label(name)

    def _cropped(self, image: Image.Image, number: int) -> Image.Image:
        """A part of the image of 25 to 100 % of its area, in the size of the model, turned left to right every other time."""
        draw = np.random.default_rng((self.seed, number))
        width, height = image.size
        side = int(min(width, height) * draw.uniform(0.5, 1.0))
        left, top = int(draw.integers(0, width - side + 1)), int(draw.integers(0, height - side + 1))
        if self.reduced:  # the decoder leaves out frequencies that the crop, made as small as this, would not show
            image.draft("RGB", (width * self.size // side, height * self.size // side))
        across, down = image.width / width, image.height / height
        box = (left * across, top * down, (left + side) * across, (top + side) * down)
        crop = image.convert("RGB").resize((self.size, self.size), Image.Resampling.BILINEAR, box)
        return crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else crop


def normalised(images: Tensor) -> Tensor:
    """Return bytes (batch, 3, height, width) as numbers of mean 0 and deviation 1."""
    mean, deviation = _moments(images.device)
    return (images.float() - mean) / deviation


@functools.cache
def _moments(device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation of bytes, on the device once instead of with each batch."""
    mean, deviation = (torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, DEVIATION))
    return mean, deviation


def made(folder: str, count: int, classes: int) -> str:
    """Return the folder of so many images, made on the first call. Raises TrainerError."""
    return cache.made(f"{folder}/images-{count}-{classes}", lambda unfinished: _make(unfinished, count, classes))


def label(name: str) -> int:
    """Return the class of an image, which its name carries: ``000017-3.jpg``."""
    return int(name.partition("-")[2].partition(".")[0])


def _make(folder: str, count: int, classes: int) -> None:
    for index in range(count):
        picture(index, index % classes, classes).save(f"{folder}/{index:06}-{index % classes}.jpg", quality=QUALITY, subsampling=2)


def picture(index: int, kind: int, classes: int) -> Image.Image:
    """Return an image of 320 to 640 pixels a side: stripes whose direction and hue tell the class, blobs, and the grain of a camera."""
    draw = np.random.default_rng(index)
    width, height = (int(side) for side in draw.integers(320, 641, 2))
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    angle = np.pi * kind / classes
    stripes = np.sin((x * np.cos(angle) + y * np.sin(angle)) / draw.uniform(6, 14))
    pixels = np.stack([128 + 80 * stripes * np.cos(angle + shift) for shift in (0, 2, 4)], axis=-1)
    for _ in range(6):
        across, down, radius = draw.uniform(0, width), draw.uniform(0, height), draw.uniform(20, 90)
        blob = np.exp(-((x - across) ** 2 + (y - down) ** 2) / radius**2)[..., None]
        pixels = pixels * (1 - blob) + blob * draw.uniform(0, 255, 3)
    pixels += draw.normal(0, 12, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))

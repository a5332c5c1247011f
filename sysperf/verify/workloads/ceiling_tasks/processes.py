"""Pictures that processes decode, and how fast processes start."""

from __future__ import annotations

import io
import os
import random
import shutil
import struct
import time

from .timing import KEPT, Arguments, Rate, bind, of_list, rounds

PICTURE = (500, 375)


def pictures() -> list[bytes]:
    """Return photograph-like JPEG files of 500 x 375: smooth shapes, texture and noise, always the same."""
    from PIL import Image, ImageFilter

    if "pictures" not in KEPT:
        drawn = random.Random(0)  # noqa: S311 - content, no secret
        KEPT["pictures"] = []
        for _ in range(8):
            rough, fine = (Image.frombytes("RGB", size, drawn.randbytes(3 * size[0] * size[1])) for size in ((20, 15), (250, 188)))
            shapes = rough.resize(PICTURE, Image.Resampling.BICUBIC)
            texture = fine.resize(PICTURE, Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(0.6))
            file = io.BytesIO()
            Image.blend(shapes, texture, 0.35).save(file, "JPEG", quality=90)
            KEPT["pictures"].append(file.getvalue())
    return list(KEPT["pictures"])


def decode(asked: Arguments) -> Rate:
    """Return the pictures a second that so many processes decode, each its own, as loader workers do."""
    from PIL import Image

    files = pictures()
    bind(of_list(asked["cpus"]))
    reads = []
    for _ in range(asked["processes"]):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                count, start = 0, time.perf_counter()
                while (took := time.perf_counter() - start) < asked["seconds"] or not count:
                    Image.open(io.BytesIO(files[count % len(files)])).convert("RGB")
                    count += 1
                os.write(write, struct.pack("d", count / took))
            finally:
                os._exit(0)
        os.close(write)
        reads.append(read)
    rates = [os.read(read, 8) for read in reads]
    for read in reads:
        os.close(read)
        os.wait()
    if any(len(rate) < 8 for rate in rates):
        raise RuntimeError("a process that decoded did not end well")
    size = sum(map(len, files)) // len(files)
    return sum(struct.unpack("d", rate)[0] for rate in rates), f"JPEG files of {size >> 10} KiB, {PICTURE[0]} × {PICTURE[1]}"


def start(asked: Arguments) -> Rate:
    """Return how often a second a program starts and ends, one after the other."""
    path = shutil.which(asked["argv"][0]) or asked["argv"][0]

    def act() -> None:
        os.waitpid(os.posix_spawn(path, asked["argv"], os.environ), 0)

    return 1 / rounds(act, asked["seconds"]), ""

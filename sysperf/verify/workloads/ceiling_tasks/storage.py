"""Reading one large file, and many small ones."""

from __future__ import annotations

import os
import random
import threading
import time

from .timing import KEPT, Arguments, Rate

READ_BYTES = 1 << 20
SMALL_FILE_BYTES = 110 << 10
"""About the mean of ImageNet's files, as the pictures that are decoded."""
MAX_FILES_S = 1.0


def _removed_at_end(folder: str) -> str:
    KEPT.setdefault("folders", set()).add(folder)
    return folder


def _written(path: str, size: int) -> None:
    with open(path, "xb") as file:  # never what somebody else has put there
        file.writelines(os.urandom(READ_BYTES) for _ in range(size // READ_BYTES))
        file.write(os.urandom(size % READ_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _dropped(path: str) -> int:
    """Open a file whose pages are dropped."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return descriptor


def _is_cached(descriptor: int) -> bool | None:
    """Return whether the beginning of a file is in memory; None where the file system does not say."""
    try:
        return os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return None


def _are_cached(descriptors: list[int]) -> bool | None:
    """Return whether most of these files are in memory; None where nobody knows. Closes them."""
    known = [_is_cached(descriptor) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    return None if None in known else sum(map(bool, known)) > len(known) / 2


def _remark(cached: bool | None) -> str:
    return {True: "not cold: this file system keeps pages that it was asked to drop", None: "whether it was cold is not known"}.get(
        cached, ""
    )


def big_file(asked: Arguments) -> Rate:
    """Return the bytes a second of reading one large file from its beginning, its pages dropped before."""
    path = f"{_removed_at_end(asked['folder'])}/big"
    if not os.path.exists(path):
        _written(path, asked["bytes"])
    descriptor = _dropped(path)
    try:
        remark, total = _remark(_is_cached(descriptor)), 0
        start = time.perf_counter()
        while (part := len(os.read(descriptor, READ_BYTES))) and time.perf_counter() - start < MAX_FILES_S:
            total += part
        return total / (time.perf_counter() - start), remark
    finally:
        os.close(descriptor)


def many_files(asked: Arguments) -> Rate:
    """Return the files a second of reading small files in random order by several threads; pages dropped before, unless asked warm."""
    folder = _removed_at_end(asked["folder"])
    names = [f"{folder}/{number:05}" for number in range(asked["files"])]
    for name in names:
        if not os.path.exists(name):
            _written(name, SMALL_FILE_BYTES)
    remark = ""
    if asked["cold"]:
        remark = _remark(_are_cached([_dropped(name) for name in names]))
    else:
        for name in names:
            _read_whole(name)
    random.shuffle(names)
    todo, lock, done = iter(names), threading.Lock(), []
    end = time.perf_counter() + MAX_FILES_S

    def reader() -> None:
        while time.perf_counter() < end:
            with lock:
                name = next(todo, None)
            if name is None:
                return
            _read_whole(name)
            done.append(name)

    threads = [threading.Thread(target=reader, daemon=True) for _ in range(asked["readers"])]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done) / (time.perf_counter() - start), remark


def _read_whole(name: str) -> None:
    with open(name, "rb", buffering=0) as file:
        while file.read(READ_BYTES):
            pass

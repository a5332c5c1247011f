"""The text of a file in pieces, and how much of it there is.

Large files take two CPUs: a compressed one is unpacked ahead by a thread; of a plain one of which only a part is wanted,
a process of its own looks at the end meanwhile (`scan`) and tells what of it is too late to be of use.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Generator
from typing import IO, BinaryIO

from sysperf.trace.reading import scan
from sysperf.trace.reading.part import Cut

PIECE_BYTES = scan.BLOCK_BYTES
PACKED_BYTES = 1 << 14
"""Read at a time."""
AHEAD_BYTES = 2 << 20
"""Smaller compressed files are unpacked before a thread would have started."""
AHEAD_PIECES = 4
DECODING = 5
"""Text takes about so many times as long to decode as to look through for times."""
MAX_SCANNED = 0.9
"""The other process takes a while to start."""
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 47  # zlib.h: 15, and 32 for the header of gzip or zlib

Progress = Callable[[int], None]
"""Told how many bytes of the file were read."""


class Text:
    """The text of one file."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file, self._progress = file, progress
        self.is_packed = file.read(2) == _GZIP
        self.size = os.fstat(file.fileno()).st_size
        self.damage = ""
        """Why a compressed file ends early."""
        file.seek(0)

    @property
    def unpacked_bytes(self) -> int:
        """About how long the text is. A compressed file tells at its end; where it does not, what such text takes is a tenth."""
        if not self.is_packed:
            return self.size
        length = os.pread(self._file.fileno(), 4, max(0, self.size - 4))
        return max(int.from_bytes(length, "little"), 4 * self.size)

    def pieces(self, cut: Cut | None = None) -> Generator[bytes]:
        """All of it, less parts in which everything is later than a cut; each of these starts and ends between two events."""
        if not self.is_packed:
            return self._plain() if cut is None or _cpus() < 2 else self._by_two(cut)
        unpacked = self._unpacked()
        return self._told(_ahead(unpacked) if self.size >= AHEAD_BYTES else unpacked)

    def _plain(self) -> Generator[bytes]:
        while block := self._file.read(PIECE_BYTES):
            self._progress(self._file.tell())
            yield block

    def _by_two(self, cut: Cut) -> Generator[bytes]:
        """The beginning, what is wanted of the end by the index of another process, and what that did not come to.

        Whatever is decoded, this process decodes, and so looks through less than half of the rest: both are done at one time.
        """
        import subprocess  # noqa: PLC0415 - for large files only

        first = int(self.size * (1 - min(MAX_SCANNED, (1 + DECODING * cut.share) / 2)))
        place = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"  # its name may be another file's by now
        numbers = map(str, (first, cut.at // 1_000, cut.latest_us))
        command = [sys.executable or "python3", "-I", "-S", scan.__file__, place, *numbers]
        try:
            scanner = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:
            yield from self._plain()
            return
        try:
            while self._file.tell() + PIECE_BYTES <= first:
                yield self._file.read(PIECE_BYTES)
                self._progress(self._file.tell())
            if scanner.stdout is not None:
                yield from self._scanned(scanner.stdout)
        finally:
            scanner.kill()
            scanner.communicate()
        yield from self._plain()

    def _scanned(self, index: IO[bytes]) -> Generator[bytes]:
        while len(entry := index.read(scan.ENTRY.size)) == scan.ENTRY.size:
            start, end, is_later = scan.ENTRY.unpack(entry)
            if self._file.tell() < start:
                yield self._file.read(start - self._file.tell())
            if is_later:
                self._file.seek(end)
            else:
                yield self._file.read(end - start)
            self._progress(end)

    def _told(self, blocks: Generator[tuple[int, bytes]]) -> Generator[bytes]:
        for position, block in blocks:
            self._progress(position)
            yield block

    def _unpacked(self) -> Generator[tuple[int, bytes]]:
        """(place in the file, text). A file that breaks off gives all that came before."""
        file, unpacker, waiting, complete = self._file, zlib.decompressobj(_GZIP_BITS), b"", False
        while waiting or (waiting := file.read(PACKED_BYTES)):
            intact = unpacker.copy()
            try:
                block = unpacker.decompress(waiting, PIECE_BYTES)
            except zlib.error as error:
                self.damage = f"its compression is damaged: {error}"
                yield file.tell(), _until_damage(intact, waiting)
                return
            waiting, complete = unpacker.unconsumed_tail, unpacker.eof
            if unpacker.eof:  # another compressed file may follow: they are one text
                waiting = unpacker.unused_data
                unpacker = zlib.decompressobj(_GZIP_BITS)
            if block:
                yield file.tell(), block
        if not complete:
            self.damage = "its compression breaks off"


def _until_damage(unpacker: zlib._Decompress, packed: bytes) -> bytes:
    """The text before a damaged byte: zlib gives none of a part that has one."""
    text = bytearray()
    with contextlib.suppress(zlib.error):
        for place in range(len(packed)):
            text += unpacker.decompress(packed[place : place + 1])
    return bytes(text)


def _ahead(blocks: Generator[tuple[int, bytes]]) -> Generator[tuple[int, bytes]]:
    """The same blocks, made by a thread: unpacking leaves the interpreter to others."""
    import queue  # noqa: PLC0415 - for large compressed files only
    import threading  # noqa: PLC0415 - as above

    ready: queue.Queue[tuple[int, bytes] | Exception | None] = queue.Queue(AHEAD_PIECES)
    unwanted = threading.Event()

    def offer(block: tuple[int, bytes] | Exception | None) -> None:
        while not unwanted.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(block, timeout=1)
                break

    def unpack() -> None:
        try:
            for block in blocks:
                offer(block)
                if unwanted.is_set():
                    return
            offer(None)
        except Exception as error:  # noqa: BLE001 - whoever reads the blocks gets it
            offer(error)

    thread = threading.Thread(target=unpack, name="unpack", daemon=True)
    thread.start()
    try:
        while (block := ready.get()) is not None:
            if isinstance(block, Exception):
                raise block
            yield block
    finally:
        unwanted.set()
        thread.join()


def _cpus() -> int:
    return len(os.sched_getaffinity(0))

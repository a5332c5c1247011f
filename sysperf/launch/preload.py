"""Which allocator file to preload, and whether the program's loader will take it.

Loader  https://man7.org/linux/man-pages/man8/ld.so.8.html (LD_PRELOAD, secure-execution mode)
ELF     https://man7.org/linux/man-pages/man5/elf.5.html

Traps: a file that is not there is skipped with one line on stderr; a set-user-ID program ignores LD_PRELOAD; a static one
too; a library for another machine is refused; gperftools' full tcmalloc needs a libstdc++ that a conda environment may not have.
"""

import os
import stat
import struct
from collections.abc import Iterable, Mapping

from sysperf.host.plain_files import open_plain
from sysperf.startup import lazy

FILES = {
    "tcmalloc_minimal": ("libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so"),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "mimalloc": ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"),
}
_GLIBC = b"libc.so.6\0"
_GLIBC_NAME = lazy(r"ld(?:64|-linux[\w-]*)?\.so\.\d")
_MAX_LIBRARY_BYTES = 64 << 20
_CLASS_64 = 2
_INTERPRETER = 3
_MAX_HEADERS = 64
_MAX_OUTPUT_BYTES = 1 << 18
_GLIBC_LOADER = lazy(r"(?:/usr)?/lib(?:64|32|x32)?/(?:[\w-]+/)?ld(?:64|-linux[\w-]*)\.so\.\d")
"""Only the system's own lists what it would load; another, whatever its name, would be started with the program."""


def candidates(library: str, folders: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """Files that may be this allocator: the program's own environment first, then where the loader finds it."""
    near = [f"{folder}/{name}" for folder in folders if folder for name in FILES[library]]
    return [path for path in (*near, known.get(library, "")) if path and os.path.exists(path)]


def refusal(library: str, program: str) -> str:
    """Why this program would not take this library; "" when nothing speaks against it."""
    try:
        status = os.stat(program)
    except OSError:
        return ""  # what it is cannot be told: exec will
    if not stat.S_ISREG(status.st_mode):
        return ""  # exec will tell; to open a FIFO waits for somebody who writes
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID) or _has_capabilities(program):
        return f"{program} runs with rights of its own, and the loader then ignores LD_PRELOAD"
    return _mismatch(library, program)


def _mismatch(library: str, program: str) -> str:
    theirs, ours = _elf(program), _elf(library)
    if ours is None:
        return f"{library} is no shared library"
    if theirs is None:
        return ""  # a script: its interpreter loads the library
    if theirs[:2] != ours[:2]:
        return f"{library} is built for another machine than {program}"
    if not theirs[2]:
        return f"{program} is linked statically, and nothing can be preloaded into it"
    if _GLIBC_LOADER.fullmatch(theirs[2]):
        return _trial(library, program)
    other_libc = not _GLIBC_NAME.fullmatch(theirs[2].rpartition("/")[2]) and _needs_glibc(library)
    return f"{program} is started by {theirs[2]}, and {library} needs glibc" if other_libc else ""


def _needs_glibc(library: str) -> bool:
    """Whether a shared library names glibc among what it needs: musl's loader would end the program instead of skipping it."""
    try:
        with open(open_plain(library), "rb") as file:
            return _GLIBC in file.read(_MAX_LIBRARY_BYTES)
    except OSError:
        return False


def _trial(library: str, program: str) -> str:
    """Let glibc's loader resolve everything, as ldd does, without starting the program: what it says against the library."""
    source, target = os.pipe()
    env = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": library, "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *((os.POSIX_SPAWN_DUP2, target, end) for end in (1, 2))]
    try:
        pid = os.posix_spawn(program, [program], env, file_actions=actions)
    except OSError:
        return ""  # exec will tell
    finally:
        os.close(target)
    with open(source, "rb") as file:
        output = file.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
    os.waitpid(pid, 0)
    refused = next(
        (line.strip() for line in output.splitlines() if "cannot be preloaded" in line or (library in line and "not found" in line)), ""
    )
    return refused or ("" if library in output else f"the loader of {program} does not take {library}")


def _has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _elf(path: str) -> tuple[int, int, str] | None:
    """(class, machine, its loader; "" for libraries and static programs) of an ELF file; None for other files."""
    try:
        with open(open_plain(path), "rb") as file:
            head = file.read(4096)
    except OSError:
        return None
    if not head.startswith(b"\x7fELF") or len(head) < 64:
        return None
    order = "<" if head[5] == 1 else ">"
    (machine,) = struct.unpack_from(f"{order}H", head, 18)
    return head[4], machine, _loader(head, order) if head[4] == _CLASS_64 else "?"


def _loader(head: bytes, order: str) -> str:
    """What PT_INTERP names, among the program headers of a 64-bit file."""
    (offset,) = struct.unpack_from(f"{order}Q", head, 32)
    size, count = struct.unpack_from(f"{order}HH", head, 54)
    for at in range(offset, offset + size * min(count, _MAX_HEADERS), size or 1):
        if at + 56 > len(head):
            break
        kind, _, start, _, _, length = struct.unpack_from(f"{order}IIQQQQ", head, at)
        if kind == _INTERPRETER:
            return head[start : start + min(length, 256)].rstrip(b"\0").decode("utf-8", "replace") or "?"
    return ""

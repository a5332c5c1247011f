"""A launch profile: decisions kept in a TOML file.

threads   = 8
allocator = "tcmalloc_minimal"
skip      = ["launch.spinning-on-shared-cpus"]

[set]
OMP_WAIT_POLICY = "passive"

[params."launch.page-faults-likely"]
keep_free = 0.5
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import ConfigError
from sysperf.model.record import Record, convert
from sysperf.startup import lazy

MAX_BYTES = 1 << 20
MAX_THREADS = 65_536
ALLOCATORS = ("glibc", "tcmalloc_minimal", "jemalloc", "mimalloc", "none")
NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*")
HINT = "docs/wrap.md describes profiles"


class Profile(Record):
    """What a profile may say."""

    schema: int = 1
    threads: int | None = None
    cpus: str | None = None
    node: int | None = None
    allocator: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    set: dict[str, str] = {}
    params: dict[str, dict[str, Any]] = {}
    note: str = ""


def read(path: str) -> Profile:
    """Read a profile strictly. Raises ConfigError."""
    import tomli  # noqa: PLC0415 - only with --profile

    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_BYTES >> 20} MiB", HINT)
        found: Profile = convert(tomli.loads(raw.decode()), Profile)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", HINT) from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}", HINT) from None
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"{path}: {error}", HINT) from None
    problem = next(_problems(found), "")
    if problem:
        raise ConfigError(f"{path}: {problem}", HINT)
    return found


def _problems(found: Profile) -> Iterator[str]:
    """What is well-formed and cannot be meant."""
    if found.schema != 1:
        yield f"schema {found.schema} is not known"
    if found.threads is not None and not 1 <= found.threads <= MAX_THREADS:
        yield f"threads: {found.threads} is not between 1 and {MAX_THREADS}"
    if found.allocator not in ("", *ALLOCATORS):
        yield f"allocator: `{found.allocator}` is none of {', '.join(ALLOCATORS)}"
    for name, value in found.set.items():
        if not NAME.fullmatch(name):
            yield f"`{name}` is no name of a variable"
        if "\0" in value:
            yield f"set: {name} has a NUL character, which no variable can have"
    try:
        CpuSet.parse(found.cpus or "")
    except ValueError as error:
        yield f"cpus: {error}"

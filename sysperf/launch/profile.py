"""A launch profile: decisions kept in a TOML file.

threads   = 8
allocator = "tcmalloc_minimal"
skip      = ["launch.spinning-on-shared-cpus"]

[set]
OMP_WAIT_POLICY = "passive"

[params."launch.page-faults-likely"]
keep_free = 0.5
"""

from typing import Any

import msgspec

from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import ConfigError
from sysperf.model.pattern import lazy
from sysperf.model.record import Record, convert

MAX_BYTES = 1 << 20
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
    _check_cpus(found, path)
    wrong = [name for name in found.set if not NAME.fullmatch(name)]
    if wrong or found.schema != 1:
        raise ConfigError(
            f"{path}: " + (f"`{wrong[0]}` is no name of a variable" if wrong else f"schema {found.schema} is not known"), HINT
        )
    return found


def _check_cpus(found: Profile, path: str) -> None:
    try:
        CpuSet.parse(found.cpus or "")
    except ValueError as error:
        raise ConfigError(f"{path}: cpus: {error}", HINT) from None

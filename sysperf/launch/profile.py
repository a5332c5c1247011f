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

import msgspec

from sysperf.host.plain_files import Foreign, read_orders
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import ConfigError
from sysperf.model.record import JsonObject, Record, convert
from sysperf.startup import lazy

MAX_BYTES = 1 << 20
MAX_THREADS = 65_536
MAX_NUMBER = 1_024
"""Of instances, inter-op threads, loader workers, and batches ahead."""
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
    memory_policy: str = ""
    """interleave: memory from all nodes that may be used, in turn."""
    instances: int | None = None
    interop_threads: int | None = None
    loader_workers: int | None = None
    """For DataLoaders that have workers."""
    loader_prefetch: int | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    set: dict[str, str] = {}
    params: dict[str, JsonObject] = {}
    note: str = ""


def read(path: str) -> Profile:
    """Read a profile strictly. Raises ConfigError."""
    import tomli  # noqa: PLC0415 - only with --profile

    try:
        profile: Profile = convert(tomli.loads(read_orders(path, MAX_BYTES).decode()), Profile)
    except Foreign as error:
        raise ConfigError(f"{path}: {error.strerror}", f"{error.cure()}, or start the program as yourself") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", HINT) from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}", HINT) from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}", HINT) from None
    problem = next(_problems(profile), "")
    if problem:
        raise ConfigError(f"{path}: {problem}", HINT)
    return profile


def text(profile: Profile) -> str:
    """Return the profile as TOML: what differs from an empty one, its note as a comment too."""
    fields = {name: value for name, value in msgspec.structs.asdict(profile).items() if value != getattr(Profile(), name)}
    note = "".join(f"# {line}\n" for line in str(fields.pop("note", "")).splitlines())
    plain = "".join(f"{name} = {_toml(value)}\n" for name, value in fields.items() if name not in ("set", "params"))
    variables = "".join(f"{name} = {_toml(value)}\n" for name, value in profile.set.items())
    params = "".join(
        f"\n[params.{_toml(rule)}]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in values.items())
        for rule, values in profile.params.items()
    )
    return f"{note}schema = 1\n{plain}" + (f"\n[set]\n{variables}" if variables else "") + params


def _toml(value: object) -> str:
    """A string, number, truth value or list of them; strings of JSON are strings of TOML, but for DEL."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _problems(profile: Profile) -> Iterator[str]:
    """What is well-formed and cannot be meant."""
    if profile.schema != 1:
        yield f"schema {profile.schema} is not known"
    yield from _wrong_numbers(profile)
    if profile.memory_policy not in ("", "interleave"):
        yield f"memory_policy: `{profile.memory_policy}` is not interleave"
    if profile.allocator not in ("", *ALLOCATORS):
        yield f"allocator: `{profile.allocator}` is none of {', '.join(ALLOCATORS)}"
    for name, value in profile.set.items():
        if not NAME.fullmatch(name):
            yield f"`{name}` is no name of a variable"
        if "\0" in value:
            yield f"set: {name} has a NUL character, which no variable can have"
    try:
        CpuSet.parse(profile.cpus or "")
    except ValueError as error:
        yield f"cpus: {error}"


def _wrong_numbers(profile: Profile) -> Iterator[str]:
    limits = dict.fromkeys(("instances", "interop_threads", "loader_workers", "loader_prefetch"), MAX_NUMBER)
    for name, most in {"threads": MAX_THREADS, **limits}.items():
        number = getattr(profile, name)
        if number is not None and not 1 <= number <= most:
            yield f"{name}: {number} is not between 1 and {most}"

"""A small made-up machine to judge."""

from typing import Annotated, Any

from sysperf.evaluate.expression import compile_expression
from sysperf.evaluate.schema import Schema
from sysperf.evaluate.scope import Scope
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact


class Disk(Record):
    """A disk."""

    name: str | None = None
    rotational: Annotated[bool | None, fact("spins", "/sys/block/*/queue/rotational")] = None
    queue: Annotated[int | None, fact("depth", "/sys/block/*/queue/nr_requests")] = None


class Box(Record):
    """A machine."""

    swappiness: Annotated[int | None, fact("how eagerly it swaps", "/proc/sys/vm/swappiness")] = None
    share: float | None = None
    mode: Annotated[str | None, fact("mode", "/sys/mode")] = None
    busy: bool | None = None
    allowed: CpuSet | None = None
    disks: tuple[Disk, ...] | None = None
    env: dict[str, str] | None = None


SCHEMA = Schema({"box": Box, "other": Box})


def evaluate(text: str, tables: dict[str, Any] | None = None, params: dict[str, Any] | None = None, /, **names: Any) -> Any:
    """The value of an expression on a machine."""
    return compile_expression(text, SCHEMA, params)(Scope(dict(names), tables))

"""What py-cpuinfo and psutil say of the processor, asked under ``--deep`` only: the first takes more than a second.

Reads   the command ``python -m cpuinfo --json`` of sysperf's own interpreter; ``psutil.cpu_count``
Source  https://github.com/workhorsy/py-cpuinfo  https://psutil.readthedocs.io/
"""

from __future__ import annotations

from typing import Annotated

from sysperf.host import Host
from sysperf.model.record import JsonObject, Record, fact, from_json
from sysperf.model.text import neutral

COMMAND = "run:cpuinfo"
COUNTS = "psutil:cpu_count"
MAX_FLAGS = 1_000


class SecondOpinion(Record):
    """The processor according to py-cpuinfo, which also executes CPUID where the kernel may hide something, and to psutil."""

    brand: Annotated[str | None, fact("model, for people", COMMAND)] = None
    vendor: Annotated[str | None, fact("maker, as the CPU says it", COMMAND)] = None
    advertised_mhz: Annotated[float | None, fact("speed in the model's name", COMMAND)] = None
    actual_mhz: Annotated[float | None, fact("speed at the moment of reading", COMMAND)] = None
    flags: Annotated[tuple[str, ...] | None, fact("features that the processor reports", COMMAND)] = None
    cpus: Annotated[int | None, fact("logical CPUs", COUNTS)] = None
    cores: Annotated[int | None, fact("physical cores", COUNTS)] = None


def second_opinion(host: Host) -> SecondOpinion | None:
    """Ask both; None without ``--deep`` or when neither answers."""
    if not host.deep:
        return None
    cpuinfo, counts = _cpuinfo(host), host.call(COUNTS, _counts, tuple[int | None, int | None])
    if not cpuinfo and counts is None:
        return None
    cpus, cores = counts or (None, None)
    flags = cpuinfo.get("flags")
    return SecondOpinion(
        brand=_text(cpuinfo.get("brand_raw")),
        vendor=_text(cpuinfo.get("vendor_id_raw")),
        advertised_mhz=_mhz(cpuinfo.get("hz_advertised")),
        actual_mhz=_mhz(cpuinfo.get("hz_actual")),
        flags=tuple(neutral(str(flag), 40) for flag in flags[:MAX_FLAGS]) if isinstance(flags, list) else None,
        cpus=cpus,
        cores=cores,
    )


def _cpuinfo(host: Host) -> JsonObject:
    output = host.run("cpuinfo")
    if output is None:
        return {}
    try:
        fields = from_json(output, JsonObject)
    except ValueError as error:
        host.refuse(COMMAND, f"no JSON: {error}")
        return {}
    return fields


def _counts() -> tuple[int | None, int | None]:
    import psutil  # noqa: PLC0415 - 30 ms, under --deep only

    return psutil.cpu_count(), psutil.cpu_count(logical=False)


def _text(value: object) -> str | None:
    return neutral(value, 120) if isinstance(value, str) else None


def _mhz(value: object) -> float | None:
    """py-cpuinfo writes a speed as [hertz, power of ten of the rest]."""
    hertz = value[0] if isinstance(value, list) and value else None
    return hertz / 1e6 if isinstance(hertz, int) and hertz > 0 else None

"""What py-cpuinfo says of the processor, asked under ``--deep`` only: it takes more than a second.

Reads   the command ``python -m cpuinfo --json`` of sysperf's own interpreter
Source  https://github.com/workhorsy/py-cpuinfo
"""

from typing import Annotated, Any

from sysperf.host import Host
from sysperf.model.record import Record, fact, from_json
from sysperf.model.text import neutral

COMMAND = "run:cpuinfo"
MOST_FLAGS = 1_000


class SecondOpinion(Record):
    """The processor according to py-cpuinfo, which also executes CPUID where the kernel may hide something."""

    brand: Annotated[str | None, fact("model, for people", COMMAND)] = None
    vendor: Annotated[str | None, fact("maker, as the CPU says it", COMMAND)] = None
    advertised_mhz: Annotated[float | None, fact("speed in the model's name", COMMAND)] = None
    actual_mhz: Annotated[float | None, fact("speed at the moment of reading", COMMAND)] = None
    flags: Annotated[tuple[str, ...] | None, fact("features that the processor reports", COMMAND)] = None


def second_opinion(host: Host) -> SecondOpinion | None:
    """Ask py-cpuinfo; None without ``--deep`` or when it does not answer."""
    output = host.run("cpuinfo") if host.deep else None
    if output is None:
        return None
    try:
        said = from_json(output, dict[str, Any])
    except ValueError as error:
        host.refuse(COMMAND, f"no JSON: {error}")
        return None
    flags = said.get("flags")
    return SecondOpinion(
        brand=_text(said.get("brand_raw")),
        vendor=_text(said.get("vendor_id_raw")),
        advertised_mhz=_mhz(said.get("hz_advertised")),
        actual_mhz=_mhz(said.get("hz_actual")),
        flags=tuple(neutral(str(flag), 40) for flag in flags[:MOST_FLAGS]) if isinstance(flags, list) else None,
    )


def _text(value: Any) -> str | None:
    return neutral(value, 120) if isinstance(value, str) else None


def _mhz(value: Any) -> float | None:
    """py-cpuinfo writes a speed as [hertz, power of ten of the rest]."""
    hertz = value[0] if isinstance(value, list) and value else None
    return hertz / 1e6 if isinstance(hertz, int) and hertz > 0 else None

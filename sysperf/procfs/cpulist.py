"""CPU and node lists inside larger texts (``Cpus_allowed_list: 0-3,8``). Files that hold nothing else are read by `Host.cpus`."""

from sysperf.model.cpuset import CpuSet


def parse(text: str | None) -> CpuSet | None:
    """The set; None when the text is absent, empty or no list."""
    try:
        return CpuSet.parse(text) or None if text else None
    except ValueError:
        return None

"""Errors of a GPU's memory, and what was done about them.

Reads   NVML (libnvidia-ml.so.1)
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from sysperf.collect.gpu.answers import Answers, key, truth
from sysperf.collect.gpu.state import Ecc

RETIRE_PAGES = ("kepler", "maxwell", "pascal", "volta", "turing")


def memory_errors(gpu: Answers, architecture: str | None) -> Ecc:
    """Whether error correction is on, what it counted, and what was replaced."""
    mode = gpu.ask("DeviceGetEccMode", absent=[])
    known = isinstance(mode, list | tuple)
    supported, enabled = (bool(mode), bool(mode and mode[0])) if known else (None, None)
    pending = bool(mode and mode[-1]) if known else None
    corrected, uncorrected, volatile, aggregate = 0, 1, 0, 1
    sram = gpu.ask("DeviceGetSramEccErrorStatus", absent={"bThresholdExceeded": 0}) if enabled else None
    rows, waits, failed = _repairs(gpu, supported, architecture)
    banks = gpu.ask("DeviceGetRowRemapperHistogram") if rows else None
    channel, tpc = gpu.numbers("DeviceGetRepairStatus", absent=[0, 0]) if enabled and architecture not in RETIRE_PAGES else (0, 0)
    return Ecc(
        supported=supported,
        enabled=enabled,
        pending=pending,
        corrected=gpu.number("DeviceGetTotalEccErrors", corrected, volatile) if enabled else None,
        uncorrected=gpu.number("DeviceGetTotalEccErrors", uncorrected, volatile) if enabled else None,
        uncorrected_ever=gpu.number("DeviceGetTotalEccErrors", uncorrected, aggregate) if enabled else None,
        sram_threshold_exceeded=truth(key(sram, "bThresholdExceeded")),
        remapped_rows=rows,
        remap_pending=waits,
        remap_failed=failed,
        retired_pages=_retired(gpu) if supported and architecture in RETIRE_PAGES else 0 if known and architecture else None,
        banks_without_spares=key(banks, "none"),
        banks_low_on_spares=key(banks, "low"),
        channel_repair_pending=truth(channel),
        tpc_repair_pending=truth(tpc),
    )


def _retired(gpu: Answers) -> int | None:
    """Pages that older GPUs took out of use, after two corrected errors each or one that could not be corrected."""
    lists = [gpu.ask("DeviceGetRetiredPages", cause, absent=[]) for cause in (0, 1)]
    return sum(len(pages) for pages in lists) if all(isinstance(pages, list | tuple) for pages in lists) else None


def _repairs(gpu: Answers, supported: bool | None, architecture: str | None) -> tuple[int | None, bool | None, bool | None]:
    """(memory rows replaced, a replacement waits for a reset, one failed).

    GPUs before Ampere retire pages instead of rows. A partitioned GPU and a virtual one do not tell: unknown, not none.
    """
    if supported is False:
        return 0, False, False
    if architecture in RETIRE_PAGES:
        return 0, gpu.truth("DeviceGetRetiredPagesPendingStatus"), False
    corrected, uncorrected, pending, failed = gpu.numbers("DeviceGetRemappedRows", count=4)
    replaced = None if corrected is None or uncorrected is None else corrected + uncorrected
    return replaced, truth(pending), truth(failed)

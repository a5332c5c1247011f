"""What a GPU does now: its clocks, power and temperatures; and the errors of its memory.

Reads   NVML (libnvidia-ml.so.1)  /sys/class/drm/card*/device
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.driver import NVML
from sysperf.collect.gpu.places import CARD, FREQ, OLDER_FREQ, RAS, SENSORS, STATUS
from sysperf.model.record import Record, fact

CLOCK_EVENTS = {
    # nvmlClocksEventReason* of nvml.h
    0x1: "idle",
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display",
}


class Clocks(Record):
    """Clocks of a GPU."""

    sm_mhz: Annotated[
        int | None,
        fact(
            "clock of the streaming multiprocessors now",
            "nvml:DeviceGetClockInfo",
            f"{SENSORS}/*/freq1_input",
            f"{FREQ}/act_freq",
            f"{OLDER_FREQ}/rps_act_freq_mhz",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    sm_max_mhz: Annotated[
        int | None,
        fact(
            "highest clock of the streaming multiprocessors",
            "nvml:DeviceGetMaxClockInfo",
            f"{CARD}/pp_dpm_sclk",
            f"{FREQ}/rp0_freq",
            f"{OLDER_FREQ}/rps_RP0_freq_mhz",
            STATUS,
            NVML,
        ),
    ] = None
    memory_mhz: Annotated[
        int | None, fact("clock of the memory now", "nvml:DeviceGetClockInfo", f"{SENSORS}/*/freq2_input", SENSORS, STATUS, NVML)
    ] = None
    memory_max_mhz: Annotated[
        int | None, fact("highest clock of the memory", "nvml:DeviceGetMaxClockInfo", f"{CARD}/pp_dpm_mclk", STATUS, NVML)
    ] = None
    app_mhz: Annotated[int | None, fact("application clock that somebody set", "nvml:DeviceGetApplicationsClock", NVML)] = None
    app_default_mhz: Annotated[int | None, fact("application clock of the factory", "nvml:DeviceGetDefaultApplicationsClock", NVML)] = None
    events: Annotated[
        tuple[str, ...] | None,
        fact(
            f"why the clocks are not at their highest: {', '.join(CLOCK_EVENTS.values())}",
            "nvml:DeviceGetCurrentClocksEventReasons",
            "nvml:DeviceGetCurrentClocksThrottleReasons",
            f"{CARD}/gpu_metrics",
            f"{FREQ}/throttle/*",
            f"{OLDER_FREQ}/throttle_reason_*",
            STATUS,
            NVML,
        ),
    ] = None
    allowed_max_mhz: Annotated[
        int | None, fact("highest clock that somebody allows (Intel)", f"{FREQ}/max_freq", f"{OLDER_FREQ}/rps_max_freq_mhz", STATUS)
    ] = None
    allowed_min_mhz: Annotated[
        int | None, fact("lowest clock that somebody allows (Intel)", f"{FREQ}/min_freq", f"{OLDER_FREQ}/rps_min_freq_mhz", STATUS)
    ] = None
    power_capped_s: Annotated[
        float | None, fact("seconds at its power limit since the driver was loaded", "nvml:DeviceGetFieldValues", NVML)
    ] = None
    sync_boost_s: Annotated[float | None, fact("the same, held by a sync-boost group", "nvml:DeviceGetFieldValues", NVML)] = None
    sw_thermal_s: Annotated[float | None, fact("the same, slowed by the driver because of heat", "nvml:DeviceGetFieldValues", NVML)] = None
    hw_thermal_s: Annotated[float | None, fact("the same, slowed by hardware because of heat", "nvml:DeviceGetFieldValues", NVML)] = None
    power_brake_s: Annotated[
        float | None, fact("the same, slowed by a brake of power supply or chassis", "nvml:DeviceGetFieldValues", NVML)
    ] = None


class Power(Record):
    """Power of a GPU."""

    usage_watts: Annotated[
        float | None,
        fact("drawn now", "nvml:DeviceGetPowerUsage", f"{SENSORS}/*/power1_average", f"{SENSORS}/*/power1_input", SENSORS, STATUS, NVML),
    ] = None
    limit_watts: Annotated[
        float | None,
        fact(
            "limit that is set",
            "nvml:DeviceGetPowerManagementLimit",
            f"{SENSORS}/*/power1_cap",
            f"{SENSORS}/*/power1_max",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    default_limit_watts: Annotated[
        float | None,
        fact(
            "limit of the factory",
            "nvml:DeviceGetPowerManagementDefaultLimit",
            f"{SENSORS}/*/power1_cap_default",
            f"{SENSORS}/*/power1_rated_max",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    enforced_limit_watts: Annotated[
        float | None,
        fact(
            "lowest of all limits that hold",
            "nvml:DeviceGetEnforcedPowerLimit",
            f"{SENSORS}/*/power1_cap",
            f"{SENSORS}/*/power1_max",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None


class Thermal(Record):
    """Temperatures of a GPU."""

    celsius: Annotated[
        int | None, fact("temperature of the GPU", "nvml:DeviceGetTemperature", f"{SENSORS}/*/temp*_input", SENSORS, STATUS, NVML)
    ] = None
    slowdown_celsius: Annotated[
        int | None,
        fact(
            "temperature at which hardware slows it down",
            "nvml:DeviceGetTemperatureThreshold",
            f"{SENSORS}/*/temp*_crit",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    margin_celsius: Annotated[
        int | None,
        fact("degrees left until it slows down", "nvml:DeviceGetMarginTemperature", f"{SENSORS}/*/temp*_crit", SENSORS, STATUS, NVML),
    ] = None
    memory_celsius: Annotated[
        int | None, fact("temperature of the memory", "nvml:DeviceGetFieldValues", f"{SENSORS}/*/temp*_input", SENSORS, STATUS, NVML)
    ] = None
    fan_percent: Annotated[int | None, fact("speed of the fan; unknown without one", "nvml:DeviceGetFanSpeed", NVML)] = None


class Ecc(Record):
    """Errors of a GPU's memory, and what was done about them."""

    enabled: Annotated[
        bool | None,
        fact("whether error correction is on; false on a GPU without it", "nvml:DeviceGetEccMode", f"{RAS}/*", RAS, STATUS, NVML),
    ] = None
    pending: Annotated[bool | None, fact("whether it will be on after the next reset", "nvml:DeviceGetEccMode", NVML)] = None
    supported: Annotated[bool | None, fact("whether the GPU has error correction", "nvml:DeviceGetEccMode", NVML)] = None
    corrected: Annotated[
        int | None,
        fact(
            "corrected errors since the driver was loaded",
            "nvml:DeviceGetTotalEccErrors",
            f"{RAS}/*",
            "run:xpu-smi-dump",
            RAS,
            STATUS,
            NVML,
        ),
    ] = None
    uncorrected: Annotated[
        int | None,
        fact(
            "uncorrected errors since the driver was loaded",
            "nvml:DeviceGetTotalEccErrors",
            f"{RAS}/*",
            "run:xpu-smi-dump",
            RAS,
            STATUS,
            NVML,
        ),
    ] = None
    uncorrected_ever: Annotated[int | None, fact("uncorrected errors in the GPU's life", "nvml:DeviceGetTotalEccErrors", NVML)] = None
    sram_threshold_exceeded: Annotated[
        bool | None, fact("whether SRAM errors passed the vendor's limit for replacement", "nvml:DeviceGetSramEccErrorStatus", NVML)
    ] = None
    remapped_rows: Annotated[
        int | None, fact("memory rows replaced by spare ones", "nvml:DeviceGetRemappedRows", f"{RAS}/*", RAS, STATUS, NVML)
    ] = None
    remap_pending: Annotated[
        bool | None,
        fact(
            "whether rows or pages wait for a reset to be replaced",
            "nvml:DeviceGetRemappedRows",
            "nvml:DeviceGetRetiredPagesPendingStatus",
            f"{RAS}/*",
            RAS,
            STATUS,
            NVML,
        ),
    ] = None
    remap_failed: Annotated[
        bool | None, fact("whether a row could not be replaced", "nvml:DeviceGetRemappedRows", f"{RAS}/*", RAS, STATUS, NVML)
    ] = None
    retired_pages: Annotated[
        int | None, fact("memory pages taken out of use, on GPUs before Ampere", "nvml:DeviceGetRetiredPages", NVML)
    ] = None
    banks_without_spares: Annotated[
        int | None, fact("memory banks that have no spare row left", "nvml:DeviceGetRowRemapperHistogram", NVML)
    ] = None
    banks_low_on_spares: Annotated[
        int | None, fact("memory banks that have few spare rows left", "nvml:DeviceGetRowRemapperHistogram", NVML)
    ] = None
    channel_repair_pending: Annotated[
        bool | None, fact("whether a memory channel waits for a reset to be repaired", "nvml:DeviceGetRepairStatus", NVML)
    ] = None
    tpc_repair_pending: Annotated[
        bool | None, fact("whether a group of multiprocessors waits for a reset to be repaired", "nvml:DeviceGetRepairStatus", NVML)
    ] = None

"""What a GPU does now: its clocks, power and temperatures; and the errors of its memory.

Reads   NVML (libnvidia-ml.so.1)  /sys/class/drm/card*/device
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.gpu.places import CARD, FREQ, OLDER_FREQ, RAS, SENSORS, STATUS, of_drivers, of_nvml
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
        of_drivers(
            "clock of the streaming multiprocessors now",
            "DeviceGetClockInfo",
            f"{SENSORS}/*/freq1_input",
            f"{FREQ}/act_freq",
            f"{OLDER_FREQ}/rps_act_freq_mhz",
            SENSORS,
        ),
    ] = None
    sm_max_mhz: Annotated[
        int | None,
        of_drivers(
            "highest clock of the streaming multiprocessors",
            "DeviceGetMaxClockInfo",
            f"{CARD}/pp_dpm_sclk",
            f"{FREQ}/rp0_freq",
            f"{OLDER_FREQ}/rps_RP0_freq_mhz",
        ),
    ] = None
    memory_mhz: Annotated[int | None, of_drivers("clock of the memory now", "DeviceGetClockInfo", f"{SENSORS}/*/freq2_input", SENSORS)] = (
        None
    )
    memory_max_mhz: Annotated[int | None, of_drivers("highest clock of the memory", "DeviceGetMaxClockInfo", f"{CARD}/pp_dpm_mclk")] = None
    app_mhz: Annotated[int | None, of_nvml("application clock that somebody set", "DeviceGetApplicationsClock")] = None
    app_default_mhz: Annotated[int | None, of_nvml("application clock of the factory", "DeviceGetDefaultApplicationsClock")] = None
    events: Annotated[
        tuple[str, ...] | None,
        of_drivers(
            f"why the clocks are not at their highest: {', '.join((*CLOCK_EVENTS.values(), 'other'))}",
            "DeviceGetCurrentClocksEventReasons DeviceGetCurrentClocksThrottleReasons",
            f"{CARD}/gpu_metrics",
            f"{FREQ}/throttle/*",
            f"{OLDER_FREQ}/throttle_reason_*",
        ),
    ] = None
    allowed_max_mhz: Annotated[
        int | None,
        fact(
            "highest clock that somebody allows (Intel, Jetson)",
            f"{FREQ}/max_freq",
            f"{OLDER_FREQ}/rps_max_freq_mhz",
            STATUS,
            "/sys/class/devfreq",
        ),
    ] = None
    allowed_min_mhz: Annotated[
        int | None, fact("lowest clock that somebody allows (Intel)", f"{FREQ}/min_freq", f"{OLDER_FREQ}/rps_min_freq_mhz", STATUS)
    ] = None
    power_capped_s: Annotated[float | None, of_nvml("seconds at its power limit since the driver was loaded", "DeviceGetFieldValues")] = (
        None
    )
    sync_boost_s: Annotated[float | None, of_nvml("the same, held by a sync-boost group", "DeviceGetFieldValues")] = None
    sw_thermal_s: Annotated[float | None, of_nvml("the same, slowed by the driver because of heat", "DeviceGetFieldValues")] = None
    hw_thermal_s: Annotated[float | None, of_nvml("the same, slowed by hardware because of heat", "DeviceGetFieldValues")] = None
    power_brake_s: Annotated[float | None, of_nvml("the same, slowed by a brake of power supply or chassis", "DeviceGetFieldValues")] = None


class Power(Record):
    """Power of a GPU."""

    usage_watts: Annotated[
        float | None, of_drivers("drawn now", "DeviceGetPowerUsage", f"{SENSORS}/*/power1_average", f"{SENSORS}/*/power1_input", SENSORS)
    ] = None
    limit_watts: Annotated[
        float | None,
        of_drivers("limit that is set", "DeviceGetPowerManagementLimit", f"{SENSORS}/*/power1_cap", f"{SENSORS}/*/power1_max", SENSORS),
    ] = None
    default_limit_watts: Annotated[
        float | None,
        of_drivers(
            "limit of the factory",
            "DeviceGetPowerManagementDefaultLimit",
            f"{SENSORS}/*/power1_cap_default",
            f"{SENSORS}/*/power1_rated_max",
            SENSORS,
        ),
    ] = None
    enforced_limit_watts: Annotated[
        float | None,
        of_drivers(
            "lowest of all limits that hold", "DeviceGetEnforcedPowerLimit", f"{SENSORS}/*/power1_cap", f"{SENSORS}/*/power1_max", SENSORS
        ),
    ] = None


class Thermal(Record):
    """Temperatures of a GPU."""

    celsius: Annotated[int | None, of_drivers("temperature of the GPU", "DeviceGetTemperature", f"{SENSORS}/*/temp*_input", SENSORS)] = None
    slowdown_celsius: Annotated[
        int | None,
        of_drivers("temperature at which hardware slows it down", "DeviceGetTemperatureThreshold", f"{SENSORS}/*/temp*_crit", SENSORS),
    ] = None
    margin_celsius: Annotated[
        int | None, of_drivers("degrees left until it slows down", "DeviceGetMarginTemperature", f"{SENSORS}/*/temp*_crit", SENSORS)
    ] = None
    memory_celsius: Annotated[
        int | None, of_drivers("temperature of the memory", "DeviceGetFieldValues", f"{SENSORS}/*/temp*_input", SENSORS)
    ] = None
    memory_max_celsius: Annotated[
        int | None,
        of_drivers(
            "temperature of the memory at which the GPU is slowed down", "DeviceGetTemperatureThreshold", f"{SENSORS}/*/temp*_crit", SENSORS
        ),
    ] = None
    fan_percent: Annotated[int | None, of_nvml("speed of the fan; unknown without one", "DeviceGetFanSpeed")] = None


class Ecc(Record):
    """Errors of a GPU's memory, and what was done about them."""

    enabled: Annotated[
        bool | None, of_drivers("whether error correction is on; false on a GPU without it", "DeviceGetEccMode", f"{RAS}/*", RAS)
    ] = None
    pending: Annotated[bool | None, of_nvml("whether it will be on after the next reset", "DeviceGetEccMode")] = None
    supported: Annotated[bool | None, of_nvml("whether the GPU has error correction", "DeviceGetEccMode")] = None
    corrected: Annotated[
        int | None,
        of_drivers("corrected errors since the driver was loaded", "DeviceGetTotalEccErrors", f"{RAS}/*", "run:xpu-smi-dump", RAS),
    ] = None
    uncorrected: Annotated[
        int | None,
        of_drivers("uncorrected errors since the driver was loaded", "DeviceGetTotalEccErrors", f"{RAS}/*", "run:xpu-smi-dump", RAS),
    ] = None
    uncorrected_ever: Annotated[int | None, of_nvml("uncorrected errors in the GPU's life", "DeviceGetTotalEccErrors")] = None
    sram_threshold_exceeded: Annotated[
        bool | None, of_nvml("whether SRAM errors passed the vendor's limit for replacement", "DeviceGetSramEccErrorStatus")
    ] = None
    remapped_rows: Annotated[int | None, of_drivers("memory rows replaced by spare ones", "DeviceGetRemappedRows", f"{RAS}/*", RAS)] = None
    remap_pending: Annotated[
        bool | None,
        of_drivers(
            "whether rows or pages wait for a reset to be replaced",
            "DeviceGetRemappedRows DeviceGetRetiredPagesPendingStatus",
            f"{RAS}/*",
            RAS,
        ),
    ] = None
    remap_failed: Annotated[bool | None, of_drivers("whether a row could not be replaced", "DeviceGetRemappedRows", f"{RAS}/*", RAS)] = None
    retired_pages: Annotated[int | None, of_nvml("memory pages taken out of use, on GPUs before Ampere", "DeviceGetRetiredPages")] = None
    banks_without_spares: Annotated[int | None, of_nvml("memory banks that have no spare row left", "DeviceGetRowRemapperHistogram")] = None
    banks_low_on_spares: Annotated[int | None, of_nvml("memory banks that have few spare rows left", "DeviceGetRowRemapperHistogram")] = (
        None
    )
    channel_repair_pending: Annotated[
        bool | None, of_nvml("whether a memory channel waits for a reset to be repaired", "DeviceGetRepairStatus")
    ] = None
    tpc_repair_pending: Annotated[
        bool | None, of_nvml("whether a group of multiprocessors waits for a reset to be repaired", "DeviceGetRepairStatus")
    ] = None

"""What an Nsight Systems export says beside events: devices, scheduling, overhead, counters, and why something may be missing."""

from __future__ import annotations

from sysperf.startup import lazy
from sysperf.trace.reading.nsys_export import DIAGNOSTICS, Export
from sysperf.trace.timeline import Device, Timeline

MAX_REASONS, MAX_REASON = 5, 200
_LOSS = lazy(r"(?i)cuda|cupti|gpu|not supported|unsupported|missing|lost|dropped|fail|denied|permission|error")
"""DIAGNOSTIC_EVENT has also what went well; this is why something may not be in the file."""
_RUNNABLE = ("Running", "Runnable", "Ready")
"""ENUM_SAMPLING_THREAD_STATE: a thread in such a state that leaves its CPU was made to. 0 is Unknown there."""


def read(export: Export, timeline: Timeline) -> None:
    """Add everything that is no event to the timeline."""
    _devices(export, timeline)
    _scheduling(export, timeline)
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        timeline.overhead += [
            (start, end) for start, end in export.rows(table, ("start", "end")) if isinstance(start, int) and isinstance(end, int)
        ]
    said = (text for (text,) in export.rows(DIAGNOSTICS, ("text",)) if isinstance(text, str))
    timeline.damage.reasons = list(dict.fromkeys(" ".join(text.split())[:MAX_REASON] for text in said if _LOSS.search(text)))[:MAX_REASONS]
    faults = [table for table in export.columns if table.startswith("CUDA_UM_") and table.endswith("PAGE_FAULT_EVENTS")]
    if faults:
        timeline.page_faults = sum(export.count(table) for table in faults)
    if "GPU_METRICS" in export.columns and "TARGET_INFO_GPU_METRICS" in export.columns:
        means = export.connection.execute(
            "SELECT i.metricName, avg(m.value) FROM GPU_METRICS m JOIN TARGET_INFO_GPU_METRICS i USING (typeId, metricId) GROUP BY 1"
        )
        timeline.metrics = {str(name): float(value) for name, value in means if value is not None}


def thread_of(timeline: Timeline, number: int) -> int:
    """The timeline's number of a thread, of a globalTid."""
    return timeline.thread(process_of(number), number & 0xFFFFFF)


def process_of(number: int) -> int:
    """The process of a globalTid or globalPid."""
    return (number >> 24) & 0xFFFFFF


def _devices(export: Export, timeline: Timeline) -> None:
    columns = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount")
    cuda = {gpu: device for gpu, device in export.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId")) if isinstance(device, int)}
    for number, name, memory, major, minor, processors in export.rows("TARGET_INFO_GPU", columns):
        if isinstance(number, int):
            capability = major + (minor if isinstance(minor, int) else 0) / 10 if isinstance(major, int) and major > 0 else None
            timeline.devices[cuda.get(number, number)] = Device(
                name[:80] if isinstance(name, str) else None,
                memory if isinstance(memory, int) else None,
                capability,
                processors if isinstance(processors, int) else None,
            )


def _scheduling(export: Export, timeline: Timeline) -> None:
    """Time between a thread's getting off a CPU while it could run and its getting on one again. The file says what a state means."""
    states = export.rows("ENUM_SAMPLING_THREAD_STATE", ("id", "name"))
    runnable = {number for number, name in states if isinstance(name, str) and name in _RUNNABLE}
    columns = ("start", "isSchedIn", "globalTid", "threadState")
    if not runnable or not export.has("SCHED_EVENTS", *columns):
        return
    off: dict[int, int] = {}
    for start, on, number, state in export.rows("SCHED_EVENTS", columns, "ORDER BY start"):
        if not isinstance(start, int) or not isinstance(number, int):
            continue
        if on and number in off:
            timeline.scheduling.setdefault(thread_of(timeline, number), []).append((off.pop(number), start))
        elif not on and state in runnable:  # it was running and could have gone on
            off[number] = start
            timeline.scheduling.setdefault(thread_of(timeline, number), [])

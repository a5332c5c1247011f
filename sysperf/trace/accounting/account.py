"""The stages of the analysis of one trace, in order: from a timeline to facts."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Collection
from heapq import nlargest

import msgspec

from sysperf.trace import kernels as by_name
from sysperf.trace.accounting import busy, causes, coverage, cpu, host_work, iterations, modules, polling, sites, verdict, work
from sysperf.trace.accounting.exposed import QUEUED, STARVED, DeviceTime, Gap, Launches, figures, in_turn_pct
from sysperf.trace.accounting.host_time import HostTime
from sysperf.trace.accounting.nesting import Threads
from sysperf.trace.accounting.pauses import MIN_ITERATIONS, scattered
from sysperf.trace.accounting.trust import examine
from sysperf.trace.accounting.verdict import MIN_DEVICE_STEPS
from sysperf.trace.accounting.window import Window, device_steps, is_first_step, loader_calls, on_device, primary, steps
from sysperf.trace.device_facts import DeviceFacts, Figures, GapFacts, Memory
from sysperf.trace.facts import Rank
from sysperf.trace.host_facts import HostWork, Site, Steps
from sysperf.trace.intervals import Interval, Intervals, clip, intersect, length, median, overlap, union
from sysperf.trace.replay.fixes import BY_NAME, Batches, Costs, Replayer, predict, predict_cpu, without
from sysperf.trace.timeline import KERNEL, KERNELS, Timeline

MAX_GAPS = 50
ROUNDING_PCT = 0.5
_WORKERS = {"_SingleProcessDataLoaderIter": "0", "_MultiProcessingDataLoaderIter": ">0"}


def account(timeline: Timeline) -> Rank:
    """All facts of one trace. The garbage collector pauses meanwhile: it would go through all that is made, and none of it is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return Accounting(timeline).facts()
    finally:
        if was_enabled:
            gc.enable()


def _mark_graphs(timeline: Timeline) -> None:
    """Mark the kernels of CUDA graphs by the calls that launched them: older files do not number the nodes of a graph."""
    calls, rows, texts = timeline.calls, timeline.operations, timeline.names.texts
    launching = {name for name in set(calls.name) if by_name.is_graph_launch(texts[name])}
    if not launching:
        return
    launched = {number for name, number in zip(calls.name, calls.correlation, strict=True) if name in launching and number >= 0}
    for index, (number, kind) in enumerate(zip(rows.correlation, rows.kind, strict=True)):
        if number in launched and kind == KERNEL:
            rows.graph[index] = 1


class Accounting:
    """The analysis of one trace; what faces draw (gaps, intervals) stays at hand beside the facts."""

    def __init__(self, timeline: Timeline, window: Window | None = None) -> None:
        polling.merge(timeline)
        _mark_graphs(timeline)
        self.timeline = timeline
        self.launches = Launches(timeline)
        marked = window or primary(timeline)
        self.host_window = marked
        """That of the host's own steps, which is another one where the devices do them later."""
        self.window = on_device(marked, timeline, self.launches.times) if marked and not window else marked
        self.threads = Threads(timeline)
        self.host = HostTime(timeline, self.window) if self.window else None
        self.loader = loader_calls(timeline)
        self.unrecorded = coverage.unrecorded(timeline, self.launches, self.window)
        devices = [] if KERNELS in self.unrecorded or timeline.mixed else sorted(set(timeline.operations.device))
        self._replayer: Replayer | None = None
        self._costs: Costs | None = None
        self.times = [DeviceTime(self.host, device, self.launches) for device in devices] if self.host else []

    def facts(self, *, with_gains: bool = True) -> Rank:
        """Everything that is known, and what follows from it. Gains on a device can be left to `with_gains_of`: each takes replays."""
        timeline = self.timeline
        marked = steps(timeline)
        rank = Rank(
            file=timeline.file,
            form=timeline.form,
            rank=timeline.rank,
            world_size=timeline.world_size,
            has_device=bool(self.times),
            gpu=self._gpu(),
            runtime=by_name.runtime({timeline.names.texts[name] for name in set(timeline.calls.name)}),
            capability=self._capability(),
            step_count=len(marked) or None,
            step_ms=tuple((end - start) / 1e6 for start, end in marked) or None,
            dataloader_workers=_WORKERS.get(self.loader.worker_class),
            dataloader_calls=len(self.loader.spans),
            trust=examine(timeline, self.launches, self.unrecorded),
            sm_active_pct=_metric(timeline, "SMs Active", "SM Active"),
            tensor_active_pct=_metric(timeline, "Tensor Active"),
            page_faults=timeline.page_faults,
            kept_until_us=timeline.cut / 1e3 if timeline.cut is not None else None,
            other_programs=timeline.other_programs,
            with_stacks=timeline.with_stacks,
            with_shapes=timeline.with_shapes,
        )
        if self.host is None:
            return msgspec.structs.replace(rank, why=verdict.without_window(rank, len(timeline.calls)))
        return self._with_verdict(self._within(rank, self.host, with_gains))

    def with_gains_of(self, rank: Rank, fixes: Collection[str]) -> Rank:
        """Return these facts, with the gains of these fixes, where time in which the device did nothing is known."""
        if self._costs is None or not coverage.has_idle(self.unrecorded):
            return rank
        found = predict(self.replayer(), self._costs, fixes)
        return msgspec.structs.replace(rank, replay=msgspec.structs.replace(found, held=rank.replay.held))

    def _within(self, rank: Rank, host: HostTime, with_gains: bool) -> Rank:
        """The facts about the window."""
        timeline, window, times = self.timeline, host.window, self.times
        on_cpu = None
        if times or timeline.accelerator or rank.trust.device_missing:
            hole, hole_sites = sites.holes(timeline, times, self.threads, len(self.iterations(host)[1]))
        else:
            on_cpu, hole, hole_sites = cpu.describe(host, self.threads)
        figured = self.figures()
        did = host_work.describe(host if self.host_window in (None, window) else HostTime(timeline, self.host_window), times)
        used = busy.uses(times[0], self.threads) if times else []
        worked = work.describe(times[0], used) if times else rank.work
        costs = Costs(figured, did, worked, hole)
        self._costs = None if on_cpu else costs
        lengths = sorted((end - start) / 1e6 for start, end in window.steps)
        facts = msgspec.structs.replace(
            rank,
            window_rule=window.rule,
            window_ms=window.duration / 1e6,
            window_start_us=window.start / 1e3,
            step_ms_median=median(lengths) if rank.step_count and lengths else None,
            figures=figured,
            devices=tuple(self._device(time) for time in times),
            in_turn_pct=in_turn_pct(times),
            steps=self._steps(host, did, figured),
            hole=hole,
            hole_sites=hole_sites,
            loader_recurring_pct=self._loader_recurring(host) if times or on_cpu else None,
            loader_sites=self._loader_sites(host),
            sync_sites=sites.of_waits(timeline, times, self.threads),
            work=worked,
            busy=busy.table(times[0], used, rank.gpu) if times else (),
            modules=modules.of_device(times[0]) if times else modules.of_cpu(host) if on_cpu else (),
            host=did,
            cpu=on_cpu,
            memory=self._memory(),
            collectives=work.collectives(times[0], self.threads) if times else rank.collectives,
            replay=predict_cpu(on_cpu, hole, self._batches(window))
            if on_cpu
            else predict(self.replayer(), costs, BY_NAME if with_gains else ()),
        )
        return _bounded(coverage.without_unknown(facts, self.unrecorded))

    def _loader_waits(self, host: HostTime) -> list[Intervals]:
        """Return when each device, or on a CPU the main thread, waits for a batch."""
        return [time.loader_exposed for time in self.times] or [host.loader]

    def _loader_recurring(self, host: HostTime) -> float | None:
        """The mean share of waiting for a batch, as far as it comes back; None where nobody knows.

        A loader starts its workers for the first batch, and the first step of a program is slow. Of few iterations what each has counts,
        and of the program's first step alone nothing. On a CPU, batches of the main thread take longer now and then where others have it.
        """
        if not self.loader.spans:
            return None
        waits, window = self._loader_waits(host), host.window
        asked = [start for start, _ in self.loader.spans]
        found = list(window.steps) if window.rule == "loader" else self.iterations(host)[1]
        iterations = [span for span in found or window.steps or itertools.pairwise(asked) if span[1] > span[0]]
        if len(iterations) >= MIN_ITERATIONS:
            is_made_here = _WORKERS.get(self.loader.worker_class) == "0" and not self.times
            aside = scattered([end - start for start, end in clip(self.loader.spans, window.span)]) if is_made_here else 0
            whole = window.duration * len(waits) - aside
            return 100 * (sum(map(length, waits)) - aside) / whole if whole > 0 else None
        shares = [100 * sum(overlap(part, span) for part in waits) / ((span[1] - span[0]) * len(waits)) for span in iterations]
        is_known = len(shares) > 1 or (len(shares) == 1 and not window.is_of_device and not is_first_step(self.timeline))
        return min(shares) if is_known else None

    def _loader_sites(self, host: HostTime) -> tuple[Site, ...]:
        """Return where the program is while devices, or on a CPU its main thread, wait for a batch."""
        waits = self._loader_waits(host)
        return sites.of_loader(self.timeline, waits, self.threads, host.window.duration * len(waits))

    @property
    def loads_ahead(self) -> bool:
        """Whether workers make batches ahead, beside the steps."""
        return _WORKERS.get(self.loader.worker_class) == ">0"

    def _batches(self, window: Window) -> Batches:
        """How the program gets its data on the CPU."""
        calls = sum(window.start <= start < window.end for start, _ in self.loader.spans)
        return Batches(_WORKERS.get(self.loader.worker_class), window.duration / 1e6 / calls if calls else 0.0)

    def replayer(self) -> Replayer:
        """Replays of the window; the graph is built once."""
        if self._replayer is None:
            self._replayer = Replayer(self.timeline, self.host_window, self.times, self.launches)
        return self._replayer

    def _with_verdict(self, rank: Rank) -> Rank:
        if rank.replay.usable and (words := causes.contested(rank)):
            replay = msgspec.structs.replace(rank.replay, held=without(self.replayer(), words))
            rank = msgspec.structs.replace(rank, replay=replay)
        word, why = verdict.of_rank(rank)
        return msgspec.structs.replace(rank, verdict=word, why=why)

    def figures(self) -> Figures:
        """The figures of docs/analyze.md: means over the devices, each known where all devices know it."""
        if self.host is None:
            return Figures()
        if self.times:
            each = [figures(time) for time in self.times]
            return Figures(**{name: _mean([getattr(of_device, name) for of_device in each]) for name in Figures.__struct_fields__})
        used = self.host.window.covered(self.timeline.accelerator.spans())
        return Figures(
            dataloader_pct=self.host.share(self.host.loader) if self.host.loader else None,
            mtia_busy_pct=self.host.share(used) if used else None,
        )

    def _device(self, time: DeviceTime) -> DeviceFacts:
        device = self.timeline.devices.get(time.device)
        return DeviceFacts(
            id=time.device,
            name=device.name if device else None,
            capability=device.capability if device else None,
            busy_pct=time.share(time.busy),
            kernel_busy_pct=time.share(time.kernels),
            idle_ms=length(time.idle) / 1e6,
            gaps=len(time.gaps),
            starved_gaps=sum(gap.kind == STARVED for gap in time.gaps),
            queued_gaps=sum(gap.kind == QUEUED for gap in time.gaps),
            longest_gaps=tuple(_described(gap, time) for gap in nlargest(MAX_GAPS, time.gaps, lambda gap: gap.end - gap.start)),
        )

    def _steps(self, host: HostTime, did: HostWork, figured: Figures) -> Steps:
        by, spans = self.iterations(host)
        described = iterations.describe(by, spans)
        if (did.capture_pct or 0.0) >= causes.MIN_EXPOSED_PCT:
            return msgspec.structs.replace(described, steady=False)
        if self.times and (did.first_compile_pct or 0.0) >= max(causes.MIN_EXPOSED_PCT, host.share(host.compiling_again)):
            return msgspec.structs.replace(described, steady=False)
        if not described.by and verdict.is_one_pass(did, figured):
            return msgspec.structs.replace(described, steady=True)
        if host.window.is_of_device and len(spans) < MIN_DEVICE_STEPS:
            return msgspec.structs.replace(described, steady=False)
        if described.outlier:
            longest = max(spans, key=lambda span: span[1] - span[0])
            return msgspec.structs.replace(described, outlier_cause=self._outlier_cause(host, spans, longest))
        return described

    def iterations(self, host: HostTime) -> tuple[str, list[Interval]]:
        """(what was used to find them, the iterations, as the devices do them where the host is far ahead)."""
        if host.window.is_of_device:
            return "ProfilerStep" if steps(self.timeline) else "loader", list(host.window.steps)
        by, spans = host.iterations
        return by, device_steps(spans, self.timeline, self.launches.times) or spans

    def _outlier_cause(self, host: HostTime, steps_in_order: Intervals, longest: Interval) -> str:
        """What the longest step has more of than the others have on average."""
        parts = _parts_on_device(self.times[0]) if self.times else cpu.parts(host)
        others = union(step for step in steps_in_order if step != longest)
        excess = {
            name: length(clip(part, longest)) - length(intersect(union(part), others)) / (len(steps_in_order) - 1)
            for name, part in parts.items()
        }
        return max(excess, key=excess.__getitem__)

    def _gpu(self) -> str | None:
        named = [used.name for time in self.times if (used := self.timeline.devices.get(time.device)) and used.name]
        return (
            named[0]
            if named
            else next((device.name for device in self.timeline.devices.values() if device.name and self.timeline.accelerator), None)
        )

    def _capability(self) -> float | None:
        known = [device.capability for time in self.times if (device := self.timeline.devices.get(time.device))]
        return min((capability for capability in known if capability is not None), default=None)

    def _memory(self) -> Memory:
        total = [device.memory_bytes for time in self.times if (device := self.timeline.devices.get(time.device)) and device.memory_bytes]
        changes = self.timeline.memory
        return Memory(
            peak_bytes=max((change.allocated for change in changes), default=None),
            reserved_bytes=max((change.reserved for change in changes if change.reserved >= 0), default=None),
            total_bytes=min(total, default=None),
        )


def _bounded(rank: Rank) -> Rank:
    """The facts without shares of a whole that are none: what is below 0 or above 100 % was counted wrongly, and is unknown."""
    parts = {"figures": rank.figures, "host": rank.host, "work": rank.work, "collectives": rank.collectives, "hole": rank.hole}
    for name, part in parts.items():
        shares = ((field, getattr(part, field)) for field in part.__struct_fields__ if field.endswith(("_pct", "pct", "_share")))
        wrong = [field for field, value in shares if value is not None and not -ROUNDING_PCT <= value <= 100 + ROUNDING_PCT]
        parts[name] = msgspec.structs.replace(part, **dict.fromkeys(wrong)) if wrong else part
    return msgspec.structs.replace(rank, **parts)


def _parts_on_device(time: DeviceTime) -> dict[str, Intervals]:
    return {
        "device busy": time.busy,
        "loader": time.loader_exposed,
        "synchronisation": time.sync_exposed,
        "copy calls": time.copy_call_exposed,
        "host": time.host_exposed,
        "allocator": time.calls.alloc,
    }


def _described(gap: Gap, time: DeviceTime) -> GapFacts:
    """A gap, and what most of it was."""
    span = gap.start, gap.end
    parts = {
        "loader": time.loader_exposed,
        "synchronisation": time.sync_exposed,
        "copy calls": time.copy_call_exposed,
        "allocator": intersect(time.calls.alloc, time.host_exposed),
        "idle although queued" if gap.kind == QUEUED else "host": time.host_exposed,
    }
    costs = {cause: overlap(part, span) for cause, part in parts.items()}
    return GapFacts(start_us=gap.start / 1e3, ms=(gap.end - gap.start) / 1e6, kind=gap.kind, cause=max(costs, key=costs.__getitem__))


def _metric(timeline: Timeline, *starts: str) -> float | None:
    return next((value for name, value in timeline.metrics.items() if name.startswith(starts)), None)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

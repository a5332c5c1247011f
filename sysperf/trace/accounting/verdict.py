"""What bounds a program: one word and the figure that it rests on, or that the file cannot tell."""

from __future__ import annotations

from sysperf.trace.accounting import causes as causes_of
from sysperf.trace.accounting.answers import Verdict, cannot, counted, of_stage
from sysperf.trace.accounting.causes import MIN_BUSY_PCT, MIN_EXPOSED_PCT
from sysperf.trace.accounting.cpu_verdict import of_cpu
from sysperf.trace.accounting.window import DEVICE_STEPS, GPU_EXTENT
from sysperf.trace.declared import LAUNCHES
from sysperf.trace.device_facts import Figures
from sysperf.trace.facts import Rank, Trust
from sysperf.trace.host_facts import HostWork
from sysperf.trace.timeline import KERNELS, SECOND

HEALTHY_BUSY_PCT, HEALTHY_KERNELS_PCT, HEALTHY_EXPOSED_PCT = 95.0, 90.0, 2.0
MIN_KERNELS = 30
MIN_BUSY_MS = 10.0
"""A device that is busy for so long without a pause is so by few kernels, too."""
MIN_DEVICE_STEPS = 2
"""Of a single one, nobody sees what the host does beside it for the next one."""
MIN_WINDOW_MS = 1.0
MIN_UNLAUNCHED_PCT = 50.0
MIN_OWN_PCT = 50.0
"""Of the launching thread's time, in one operator that the CPU computes."""
MIN_STEADY_STEPS = 2
MIN_MARKED_STEPS = 5
MIN_LONG_KERNELS_PCT = 10.0
MAX_START_UP_PCT = 1.0
QUICK_LAUNCH_US = 20.0
"""Real launches take 3 to 10 µs."""
_OF_HOST = ("host-bound", "input-bound", "sync-bound")
_UNMARKED = ("kernels", "operations", "pauses")
"""Iterations that nobody marked: the calls of a start-up come back, too."""


def of_rank(rank: Rank) -> Verdict:
    """(verdict, why)."""
    if (rank.host.capture_pct or 0.0) >= MIN_EXPOSED_PCT:
        return cannot(f"a graph is captured {rank.host.capture_pct:.0f} % of the time, and what is launched into a capture does not run")
    if rank.has_device:
        return _of_device(rank)
    if rank.figures.mtia_busy_pct is not None:
        return cannot(f"the device is busy {rank.figures.mtia_busy_pct:.0f} % of the time, and what its operations do is not in the file")
    if rank.trust.mixed_programs:
        return cannot("the programs in the file number their calls alike, and whose operations the device did is unknown")
    if rank.trust.device_missing:
        return _without_device(rank)
    return cannot(short) if (short := _too_short(rank)) else of_cpu(rank)


def _too_short(rank: Rank) -> str:
    """Why a single step does not tell what bounds the program; empty where it does, or there are more."""
    of_host = rank.dataloader_calls if rank.step_count is None else rank.step_count
    if rank.window_rule == DEVICE_STEPS and rank.steps.count < MIN_DEVICE_STEPS > of_host:
        return "the device does most of the only step after the host is done with it: what it does beside the next one is not in the file"
    loading = rank.figures.dataloader_exposed_pct if rank.has_device else rank.cpu.loader_pct if rank.cpu else None
    if rank.steps.count <= 1 and rank.loader_recurring_pct is None and (loading or 0.0) >= MIN_EXPOSED_PCT:
        return "of a first step, or of one batch, alone nobody knows whether the loader is as slow in the next ones"
    return ""


def _without_device(rank: Rank) -> Verdict:
    """The verdict where nothing is known of a device: the host's own work can decide it all the same."""
    if rank.trust.calls_recorded and (rank.host.operator_pct or 0.0) >= MIN_OWN_PCT:
        return "host-bound", f"{_computes(rank)}; what the device does is not in the file"
    missing = _missing(rank.trust)
    if (rank.host.system_call_pct or 0.0) >= MIN_EXPOSED_PCT:
        missing += f"; the main thread is in `{rank.host.system_call}` {rank.host.system_call_pct:.0f} % of the time"
    return cannot(missing)


def without_window(rank: Rank, calls: int) -> str:
    """Why a file without anything that lasts tells nothing."""
    if rank.trust.device_missing:
        return _missing(rank.trust)
    if calls:
        return f"the host made {counted(calls, 'call')} and launched nothing: no step ran while this was recorded"
    if rank.trust.damaged_events or rank.trust.bad_durations or rank.trust.truncated:
        return "the file is damaged, and nothing with a duration could be read from it"
    return "no operator, call or device's work of a kind that sysperf knows is in it"


def _computes(rank: Rank) -> str:
    return f"the CPU computes `{rank.host.operator}` {rank.host.operator_pct or 0.0:.0f} % of the time"


def _missing(trust: Trust) -> str:
    """Why nothing is known of a device."""
    if trust.device_use and trust.truncated:
        return f"`{trust.device_use}` works on a device, and what that did is not in the file, which is not whole: {trust.truncated}"
    if trust.device_use and trust.calls_recorded:
        return f"`{trust.device_use}` was recorded, and nothing that the device did: the profiler could not observe it"
    if trust.device_use:
        return f"`{trust.device_use}` works on a device, and the file has no kernels of it: profile with its activity, too"
    if KERNELS not in trust.unrecorded:
        return f"the file names a device, and what that did is not in it: {trust.truncated}"
    return "the file has no table of kernels, so whether a device worked is unknown: record it, too (nsys profile --trace cuda,nvtx)"


def _of_device(rank: Rank) -> Verdict:
    figures = rank.figures
    causes = causes_of.of_device(rank)
    most = max(causes, key=causes.__getitem__)
    rival, busy = causes_of.rival_of(rank, most), causes_of.least_busy(figures)
    verdict = rival or most
    share = causes[verdict]
    if unknown := _unknown(rank, verdict, share, busy):
        return cannot(unknown)
    if rival:
        return _rivals(rank, most, rival, share)
    if idle := causes_of.holds_nothing_up(rank, verdict, busy):
        return "compute-bound", idle
    if balanced := causes_of.is_balanced(rank, verdict):
        return cannot(balanced)
    if share >= MIN_EXPOSED_PCT:
        return _cause(rank, verdict, share)
    return _busy_or_idle(rank, busy)


def _rivals(rank: Rank, most: str, rival: str, share: float) -> Verdict:
    """The verdict of what costs less time than what runs alone, and gains more by replays."""
    gains, (word, why) = causes_of.held(rank), _cause(rank, rival, share)
    by_replay = f"without that a replay gains up to {gains[rival]:.0f} %, without {causes_of.ALONE[most]} up to {gains[most]:.0f} %"
    return word, why if word == "cannot-tell" else f"{why}; {by_replay}"


def _busy_or_idle(rank: Rank, busy: float) -> Verdict:
    """The verdict where no cause has enough of the time."""
    figures = rank.figures
    between = figures.idle_between_pct or 0.0
    if busy + between >= MIN_BUSY_PCT:
        least = "at least " if figures.gpu_busy_pct_mean is None else ""
        beside = f", and {between:.0f} % it goes on from one short operation to the next" if busy < MIN_BUSY_PCT else ""
        return ("healthy" if is_healthy(rank) else "compute-bound"), f"the device is busy {least}{busy:.0f} % of the time{beside}"
    if (rank.in_turn_pct or 0.0) >= MIN_BUSY_PCT:
        in_turn = f"only one of {len(rank.devices)} devices works {rank.in_turn_pct:.0f} % of the time"
        return "pipeline-bound", f"{in_turn}, while the others wait for it"
    idle = f"the device is idle {100 - busy:.0f} % of the time"
    if (rank.host.start_up_pct or 0.0) >= MIN_EXPOSED_PCT and not rank.steps.steady:
        return cannot(_waits_for_start_up(rank))
    if rank.trust.uncorrelated_pct >= MIN_UNLAUNCHED_PCT:
        return cannot(f"{idle}, and the file does not say what launched its operations")
    return cannot(f"{idle}, and no single cause has {MIN_EXPOSED_PCT:.0f} %")


def _unknown(rank: Rank, verdict: str, share: float, busy: float) -> str:
    """Why the file does not tell what bounds the program; empty where it does."""
    figures, unexplained = rank.figures, unexplained_pct(rank.figures)
    is_lone = rank.window_rule == DEVICE_STEPS and rank.steps.count < MIN_DEVICE_STEPS < (rank.step_count or 0)
    if rank.trust.truncated not in ("", SECOND) and (is_lone or (rank.window_rule == GPU_EXTENT and not rank.steps.by)):
        return f"the file is not whole, and no two iterations in it are: {rank.trust.truncated}"
    if (share < MIN_EXPOSED_PCT or verdict in _OF_HOST) and (short := _too_short(rank)):
        return short
    if unexplained > max(share, MIN_EXPOSED_PCT) and busy < MIN_BUSY_PCT:
        return f"what the device waited for in {unexplained:.0f} % of the time is unknown: {_not_there(rank)}"
    if share < MIN_EXPOSED_PCT and busy >= MIN_BUSY_PCT and not rank.steps.steady and _is_short(rank, busy):
        return f"{_kernels(figures.kernels)} and no steps: too little to conclude from"
    return ""


def _is_short(rank: Rank, busy: float) -> bool:
    """Whether a device did too little in a window without steps: few kernels, unless these took long, or any number in no time."""
    window_ms = rank.window_ms or 0.0
    return window_ms < MIN_WINDOW_MS or ((rank.figures.kernels or 0) < MIN_KERNELS and busy / 100 * window_ms < MIN_BUSY_MS)


def unexplained_pct(figures: Figures) -> float:
    """The share of the time of which the file does not tell what it went to."""
    if figures.gpu_busy_pct_mean is None:
        return 100 - (figures.kernel_busy_pct or 0.0)
    if figures.host_exposed_pct is None:
        return 100 - figures.gpu_busy_pct_mean - (figures.dataloader_exposed_pct or 0.0)
    if figures.host_starved_pct is None:
        return figures.host_exposed_pct
    return (figures.copy_exposed_pct or 0.0) if figures.h2d_exposed_pct is None else 0.0


def _not_there(rank: Rank) -> str:
    lacking = [kind for kind in rank.trust.unrecorded if kind != LAUNCHES]
    unlaunched = "the file does not say what launched its operations" if LAUNCHES in rank.trust.unrecorded else ""
    return " and ".join(filter(None, (unlaunched, f"the file has no {', '.join(lacking)}" if lacking else "")))


def _cause(rank: Rank, verdict: str, share: float) -> Verdict:
    if verdict in _OF_HOST and (doubt := _doubt(rank, verdict, share)):
        return cannot(doubt)
    if verdict == "comm-bound":
        return _communicating(rank, share)
    if verdict == "host-bound" and rank.hole.feeds_device and (rank.hole.pct or 0.0) > share / 2:
        return "input-bound", f"the device waits {rank.hole.pct:.0f} % of the time for data that the program prepares outside a DataLoader"
    words = {
        "input-bound": "the device waits for the loader",
        "host-bound": "the device waits for the host to launch work",
        "sync-bound": "the device is idle while the host waits for it",
        "copy-bound": "copies between host and device run without computation beside them",
    }
    if verdict == "host-bound" and (rank.host.operator_pct or 0.0) >= MIN_OWN_PCT:
        return verdict, f"{words[verdict]} {share:.0f} % of the time; {_computes(rank)}"
    if verdict == "host-bound" and not rank.steps.by:
        return verdict, f"{words[verdict]} {share:.0f} % of the time, in one pass without a start-up"
    return verdict, f"{words[verdict]} {share:.0f} % of the time"


def _communicating(rank: Rank, share: float) -> Verdict:
    """The verdict where what ranks exchange runs alone."""
    own = rank.collectives.own_pct
    if 2 * (rank.collectives.sent_pct or 0.0) > share:
        return of_stage(share, own)
    if own is not None and own < share / 2:
        return (
            "comm-bound",
            f"collectives run without computation {share:.0f} % of the time, and {own:.0f} % without waiting for other ranks",
        )
    return "comm-bound", f"collectives run without computation beside them {share:.0f} % of the time"


def _doubt(rank: Rank, verdict: str, share: float) -> str:
    """Why the host need not be what the device waits for in general; empty where it is."""
    figures, queued = rank.figures, (rank.figures.idle_queued_pct or 0.0) - (rank.figures.host_late_pct or 0.0)
    if verdict == "sync-bound" and queued > share / 2:
        return f"the device is idle {queued:.0f} % of the time although work is queued: what holds it back is not in the file"
    if short := _start_up(rank, share):
        return short
    if verdict == "host-bound" and 2 * rank.hole.unseen_pct > share:
        return (
            f"the device waits {rank.hole.unseen_pct:.0f} % of the time while the file shows nothing that the host does: "
            "a loader that leaves no ranges, or the program's own Python"
        )
    return f"{_kernels(figures.kernels)} in the window: too little to conclude from" if _has_few_kernels(rank) else ""


def is_one_pass(did: HostWork, figures: Figures) -> bool:
    """Whether a window without known iterations is no start-up: many quick launches, next to none of a start-up's calls, and short gaps."""
    starved, short = figures.host_starved_pct, figures.dispatch_idle_pct
    return (
        (figures.kernels or 0.0) >= MIN_KERNELS
        and did.launch_us is not None
        and did.launch_us < QUICK_LAUNCH_US
        and did.start_up_pct is not None
        and did.start_up_pct < MAX_START_UP_PCT
        and not did.recompiles
        and starved is not None
        and short is not None
        and 2 * short >= starved
    )


def _start_up(rank: Rank, share: float) -> str:
    """Why waiting for the host may be that of a start-up; empty where it is none."""
    if (first := rank.host.first_compile_pct or 0.0) >= max(MAX_START_UP_PCT, share / 2):
        return f"torch.compile compiles {first:.0f} % of the time before the second step: the file has a start-up"
    is_short = rank.steps.by in _UNMARKED or (rank.steps.by != "" and rank.steps.count < MIN_STEADY_STEPS)
    if (not rank.steps.steady or is_short) and (rank.host.start_up_pct or 0.0) >= max(MAX_START_UP_PCT, share / 2 if is_short else 0.0):
        return _waits_for_start_up(rank)
    return "" if rank.steps.steady else "no steps, loader calls or repeating kernels: start-up and the steady state cannot be distinguished"


def _waits_for_start_up(rank: Rank) -> str:
    return f"the device waits for `{rank.host.start_up}` and its like {rank.host.start_up_pct:.0f} % of the time: the file has a start-up"


def _has_few_kernels(rank: Rank) -> bool:
    """Whether kernels are too few for a conclusion: of long ones that come back in each step, few are enough, and in some marked steps."""
    figures, steps = rank.figures, rank.steps
    are_long = steps.count >= MIN_STEADY_STEPS and (figures.kernel_busy_pct or 0.0) >= MIN_LONG_KERNELS_PCT
    are_marked = steps.count >= MIN_MARKED_STEPS and steps.by not in _UNMARKED
    return figures.kernels is not None and figures.kernels < MIN_KERNELS and not are_long and not are_marked


def _kernels(number: float | None) -> str:
    return "an unknown number of kernels" if number is None else counted(number, "kernel")


def is_healthy(rank: Rank) -> bool:
    """Whether there is nothing to win outside the kernels themselves, as far as all of that is known."""
    figures = rank.figures
    exposed = (figures.host_starved_pct, figures.nccl_exposed_pct, figures.h2d_exposed_pct, figures.d2h_exposed_pct)
    return (
        (figures.gpu_busy_pct_mean or 0.0) >= HEALTHY_BUSY_PCT
        and (figures.kernel_busy_pct or 0.0) >= HEALTHY_KERNELS_PCT
        and (figures.dataloader_exposed_pct or 0.0) < HEALTHY_EXPOSED_PCT
        and all(share is not None and share < HEALTHY_EXPOSED_PCT for share in exposed)
    )

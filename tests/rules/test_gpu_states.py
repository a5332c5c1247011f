"""Whole machines of eight GPUs of which one answers something else: each value that NVML knows leads to its finding, to unknown, or to nothing.

NVML   https://docs.nvidia.com/deploy/nvml-api/ (nvml.h): its enumerations, and the words of its errors
"""

from __future__ import annotations

from typing import Any

import pytest

from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.ruleset import load
from sysperf.model.finding import Report
from sysperf.report.words import verdict
from tests.conftest import make_machine
from tests.gpus import A100_PCIE, FIELDS, H100, HEALTH, NOT_SUPPORTED, RTX, Answers, bus_id, calls, files
from tests.rules.test_gpu_rules import AREAS, BASE, IDLE, RULES

TERMS = judging.Terms(load(RULES, judging.schema()))
LINKS, STATE = f"DeviceGetFieldValues,{FIELDS}", f"DeviceGetFieldValues,{HEALTH}"
FABRIC, EVENTS, ROWS = "DeviceGetGpuFabricInfoV", "DeviceGetCurrentClocksEventReasons", "DeviceGetRemappedRows"
THIRD = 3
ILL = ("GPU is lost", "GPU requires restart", "Insufficient External Power", "Interrupt Request Issue", "Corrupted infoROM")
WORDS = (
    *ILL, "Uninitialized", "Invalid Argument", "Insufficient Permissions", "Not Found", "Insufficient Size", "Driver Not Loaded", "Timeout",
    "Function Not Found", "The operating system has blocked the request.", "Driver/library version mismatch", "Insufficient Memory",
    "In use by another client", "System is not in ready state", "Unknown Error",
)  # fmt: skip
EVERYDAY = (ILL[0], ILL[-1], "Not Found", "Timeout", "Unknown Error")
"""One of each way to judge them; the others take a minute."""
ENUMERATIONS: dict[str, dict[Any, str]] = {
    # a call, its values that are not those of a sound GPU, and the rule that each leads to; "" for none, "?" for unknown
    "DeviceGetPersistenceMode": {0: "gpu.persistence-off"},
    "DeviceGetComputeMode": {1: "gpu.compute-mode", 2: "gpu.compute-prohibited", 3: "gpu.compute-mode", 4: "?"},
    "DeviceGetVirtualizationMode": {1: "", 2: "?", 3: "", 4: "", 5: "?"},
    "DeviceGetAddressingMode": {1: "", 2: "", 3: ""},
    "DeviceGetMigMode": {(0, 1): "gpu.setting-pending", (1, 0): "gpu.setting-pending", (1, 1): "?"},
    "DeviceGetEccMode": {(0, 0): "gpu.ecc-off", (0, 1): "gpu.setting-pending", (1, 0): "gpu.setting-pending"},
    "DeviceGetRepairStatus": {(1, 0): "gpu.repair-pending", (0, 1): "gpu.repair-pending", (1, 1): "gpu.repair-pending"},
    ROWS: {(0, 0, 1, 0): "gpu.remap-pending", (0, 0, 0, 1): "gpu.remap-failed", (0, 3, 1, 1): "gpu.remap-failed", (3, 0, 0, 0): "?"},
    EVENTS: {
        0x1: "", 0x2: "", 0x4: "", 0x8: "", 0x10: "gpu.sync-boost", 0x20: "gpu.throttle-thermal-sw", 0x40: "gpu.throttle-hw",
        0x80: "gpu.throttle-hw", 0x100: "", 0x200: "", 0x48: "gpu.throttle-hw", 0x88: "gpu.throttle-hw",
    },
    "DeviceGetTotalEccErrors,1,0": {1: "gpu.ecc-uncorrectable"},
    "DeviceGetCurrPcieLinkWidth": {8: "gpu.pcie-width-degraded", 1: "gpu.pcie-width-degraded", 0: "?"},
    "DeviceGetCurrPcieLinkGeneration": {4: "gpu.pcie-gen-degraded", 1: "gpu.pcie-gen-degraded", 0: "?"},
    "DeviceGetPcieReplayCounter": {50: "", 100_000: "gpu.pcie-errors"},
    "DeviceGetPowerManagementLimit": {350_000: "gpu.power-limit-lowered"},
    "DeviceGetEnforcedPowerLimit": {350_000: "gpu.power-limit-lowered"},
    "DeviceGetMarginTemperature": {3: "gpu.throttle-thermal-sw", 0: "", -3: "gpu.throttle-thermal-sw"},
    "DeviceGetTemperature,0": {90: "gpu.throttle-thermal-sw"},
    "DeviceGetApplicationsClock,0": {1000: "gpu.clocks-locked", 0: ""},
    "DeviceGetNvLinkState,0": {0: "gpu.nvlink-down"},
}  # fmt: skip
PARTS: list[tuple[str, dict[str, Any], str]] = [
    # a call, what is another in its answer, and the rule
    *((STATE, {"230": action}, "gpu.recovery-pending") for action in range(1, 8)),
    (STATE, {"230": 8}, "?"),
    (STATE, {"270": 10**13}, "gpu.throttled-before"),
    (STATE, {"271": 10**13}, "gpu.throttled-before"),
    *((FABRIC, {"state": state}, "gpu.fabric-not-ready") for state in range(3)),
    (FABRIC, {"state": 4}, "?"),
    (FABRIC, {"status": 999}, "gpu.fabric-unhealthy"),
    *((FABRIC, {"healthMask": 1 << shift}, "gpu.fabric-unhealthy") for shift in (0, 2, 4, 6)),
    *((FABRIC, {"healthMask": wrong << 8}, "gpu.fabric-unhealthy") for wrong in range(2, 9)),
    *((FABRIC, {"healthMask": 2 << shift}, "gpu.fabric-unhealthy") for shift in (12, 14)),
    (FABRIC, {"healthMask": 0b01_01_0001_10_10_10_10}, ""),
    (LINKS, {"91": 17}, "gpu.nvlink-down"),
    (LINKS, {"45": 10**6}, "gpu.nvlink-errors"),
    (LINKS, {"52": 10**6}, "gpu.nvlink-errors"),
    (LINKS, {"59": 3}, "gpu.nvlink-errors"),
    ("DeviceGetSramEccErrorStatus", {"bThresholdExceeded": 1}, "gpu.ecc-uncorrectable"),
    ("DeviceGetBAR1MemoryInfo", {"bar1Total": 256 << 20}, "gpu.bar1-small"),
    ("DeviceGetBAR1MemoryInfo", {"bar1Total": 0}, "?"),
]


def judged(*gpus: Answers, made: Answers | None = None) -> Report:
    gpu_files, links = files(len(gpus), "nvidia")
    host = make_machine({**BASE, **gpu_files}, links, {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **calls(*gpus), **(made or {})})
    return audit(host, TERMS, areas=AREAS)


def eight(change: Answers, like: Answers = H100) -> Report:
    """Eight GPUs of which the fourth answers something else."""
    return judged(*({**like, **(change if index == THIRD else {})} for index in range(8)))


def named(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings()}


def of_others(report: Report) -> list[str]:
    return [finding.about for finding in report.findings() if not finding.about.startswith(f"GPU {THIRD} ")]


@pytest.fixture(scope="module")
def unknown_at_first() -> int:
    return judged(*[H100] * 8).tally.unknown


@pytest.mark.parametrize(("call", "value"), [(call, value) for call, values in ENUMERATIONS.items() for value in values])
def test_each_value_of_a_call_leads_to_its_finding(call: str, value: Any, unknown_at_first: int) -> None:
    expect(eight({call: list(value) if isinstance(value, tuple) else value}), ENUMERATIONS[call][value], unknown_at_first)


@pytest.mark.parametrize(("call", "change", "rule"), PARTS)
def test_each_part_of_an_answer_leads_to_its_finding(call: str, change: dict[str, Any], rule: str, unknown_at_first: int) -> None:
    expect(eight({call: {**H100[call], **change}}), rule, unknown_at_first)


def expect(report: Report, rule: str, unknown_at_first: int) -> None:
    """The rule is named of this GPU alone; what is not known is unknown, and not fine."""
    assert named(report) - {"gpu.ecc-off"} == ({rule} if rule not in ("", "?") else set()) - {"gpu.ecc-off"} or rule == "gpu.remap-failed"
    assert rule in ("", "?") or rule in named(report)
    assert of_others(report) == []
    assert report.tally.unknown > unknown_at_first if rule == "?" else report.tally.unknown >= unknown_at_first - 1


@pytest.mark.parametrize("word", [word if word in EVERYDAY else pytest.param(word, marks=pytest.mark.slow) for word in WORDS])
def test_a_call_that_fails_is_unknown_or_tells_of_an_ill_gpu(word: str) -> None:
    """Whatever call it is: no other finding follows from an answer that is not there, and none of another GPU."""
    for call in H100:
        if call.startswith("DeviceGetNvLinkState,") and not call.endswith(",0"):
            continue
        report = eight({call: OSError(word)})
        right = {"gpu.fell-off-bus"} if word == ILL[0] else {"gpu.answers-broken"} if word in (*ILL, "Unknown Error", "Timeout") else set()
        assert named(report) <= right, (call, word)
        assert of_others(report) == [], (call, word)
        assert "No errors and no warnings" not in verdict(report), (call, word)


@pytest.mark.parametrize("call", ["DeviceGetUtilizationRates", "DeviceGetMemoryInfo,33554472", "DeviceGetTotalEccErrors,1,0", ROWS])
def test_an_unknown_error_in_place_of_a_value_is_a_finding(call: str) -> None:
    """nvidia-smi prints it as ERR! or [Unknown Error]."""
    both = {call, call.partition(",")[0]} if "Memory" in call else {call}
    assert named(eight(dict.fromkeys(both, OSError("Unknown Error")))) == {"gpu.answers-broken"}


def test_a_list_of_processes_that_is_not_given_does_not_mean_that_there_are_none() -> None:
    report = eight({"DeviceGetComputeRunningProcesses_v3": OSError("Not Supported")})

    assert named(report) == set()
    assert any(outcome.rule == "gpu.orphan-memory" and outcome.state == "unknown" for outcome in report.outcomes)


@pytest.mark.parametrize(("reset", "drain", "rule"), [(1, 0, {"gpu.recovery-pending"}), (0, 1, {"gpu.recovery-pending"}), (0, 0, set())])
def test_drivers_before_570_tell_whether_a_reset_is_needed(reset: int, drain: int, rule: set[str]) -> None:
    """They have no recovery action, and nvidia-smi -q prints `GPU Reset Status`."""
    report = eight({STATE: {**H100[STATE], "230": None}, "DeviceGetFieldValues,226,227": {"226": reset, "227": drain}})

    assert named(report) == rule


def test_several_illnesses_of_one_machine_are_each_said_once_of_their_gpu() -> None:
    """One GPU is gone, one waits for a reset, two are braked: four findings, in the order of their weight, and an honest headline."""
    lost = dict.fromkeys(IDLE, OSError("GPU is lost"))
    braked = {**IDLE, EVENTS: 0x80}
    report = judged(
        IDLE, braked, {**IDLE, ROWS: [0, 1, 1, 0], "DeviceGetRowRemapperHistogram": {"none": 0, "low": 0}}, lost, *[IDLE] * 3, braked
    )

    found = sorted((finding.rule, finding.about[:5]) for finding in report.findings())
    assert found == [
        ("gpu.fell-off-bus", "GPU 3"), ("gpu.remap-pending", "GPU 2"), ("gpu.throttle-hw", "GPU 1"), ("gpu.throttle-hw", "GPU 7"),
    ]  # fmt: skip
    assert "4 errors" in verdict(report)


KINDS = (A100_PCIE, RTX, RTX, A100_PCIE)
"""Two kinds in turn, so that neither an order of slots nor one of models is right by chance."""
CHANGES = [
    *((call, value, rule) for call, values in ENUMERATIONS.items() for value, rule in values.items() if rule not in ("", "?")),
    *((call, change, rule) for call, change, rule in PARTS if rule not in ("", "?")),
]


def another(answer: Any, value: Any) -> Any:
    """The answer of a sound GPU with this in it."""
    return {**answer, **value} if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("ill", range(len(KINDS)))
def test_of_two_kinds_of_gpu_the_ill_one_is_named_wherever_it_sits(ill: int) -> None:
    """For each value that leads to a finding, where GPUs of this kind have the call; and the sound one of its kind is never named."""
    sound = {(finding.rule, finding.about) for finding in judged(*KINDS).findings()}
    seen = set()
    for call, value, rule in CHANGES:
        if KINDS[ill].get(call, NOT_SUPPORTED) == NOT_SUPPORTED:
            continue
        report = judged(*({**gpu, **({call: another(gpu[call], value)} if index == ill else {})} for index, gpu in enumerate(KINDS)))
        new = {(finding.rule, finding.about) for finding in report.findings()} - sound
        wrong = {one for one in new if not one[1].startswith(f"GPU {ill} ")}
        assert wrong == set(), (call, value)
        seen |= {name for name, _ in new} & {rule}
    assert len(seen) >= 8, seen


SAID = {
    # a line of the log about a GPU, and the rule that it leads to
    "NVRM: Xid (PCI:{short}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": "gpu.xid-recent",
    "NVRM: Xid (PCI:{short}): 31, pid=812, name=python3, MMU Fault: ENGINE GRAPHICS GPC0": "gpu.xid-application",
    "NVRM: Xid (PCI:{short}): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)": "gpu.xid-nvlink",
    "NVRM: GPU {place}: RmInitAdapter failed! (0x22:0x56:894)": "gpu.driver-log-fault",
    "nvidia {place}: Unable to change power state from D3cold to D0, device inaccessible": "gpu.driver-log-fault",
    "AMD-Vi: Event logged [IO_PAGE_FAULT device={place} domain=0x0010 address=0xfc000000 flags=0x0030]": "gpu.iommu-fault",
    "nvidia {place}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)": "gpu.bus-error-in-log",
}


@pytest.mark.parametrize("line", SAID)
@pytest.mark.parametrize("gpus", [(H100,) * 8, KINDS], ids=["eight of a kind", "two kinds"])
def test_a_line_of_the_log_is_said_of_its_gpu_and_of_no_other(line: str, gpus: tuple[Answers, ...]) -> None:
    places = [bus_id(index) for index in range(len(gpus))]
    for index, place in enumerate(places):
        text = f"2026-11-20T12:00:00,000001+00:00 host kernel: {line.format(place=place, short=place[:-2])}\n"
        gpu_files, links = files(len(gpus), "nvidia")
        answers = {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **calls(*gpus), "run:dmesg": text}
        report = audit(make_machine({**BASE, **gpu_files}, links, answers, deep=True), TERMS, areas=AREAS)

        (finding,) = (one for one in report.findings() if one.rule == SAID[line])
        said = f"{finding.about} {finding.message}"
        assert place[:-2] in said
        assert not any(other[:-2] in said for other in places if other != place), index


MODE, PROFILES = "DeviceGetNvlinkBwMode", "DeviceWorkloadPowerProfileGetCurrentProfiles"
BLACKWELL = {**H100, "DeviceGetArchitecture": 10, MODE: {"bIsBest": 1, "bwMode": 0}, PROFILES: {"enforcedProfilesMask": {"mask": [0] * 8}}}


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, set()),
        ({MODE: {"bIsBest": 0, "bwMode": 3}}, {"gpu.nvlink-reduced"}),
        ({PROFILES: {"enforcedProfilesMask": {"mask": [1 << 1 | 1 << 7, *[0] * 7]}}}, {"gpu.power-profile"}),
        ({PROFILES: {"enforcedProfilesMask": {"mask": [1 << 7, *[0] * 7]}}}, set()),
        ({MODE: OSError("Function Not Found"), PROFILES: OSError("Not Supported")}, set()),
    ],
)
def test_power_that_is_saved_by_choice_is_told_of_that_gpu(change: Answers, rules: set[str]) -> None:
    report = eight(change, BLACKWELL)

    assert (named(report), of_others(report)) == (rules, [])


def test_links_of_all_hoppers_have_one_mode() -> None:
    report = judged(*[H100] * 8, made={"nvml:SystemGetNvlinkBwMode()": 3})

    assert named(report) == {"gpu.nvlink-reduced"}

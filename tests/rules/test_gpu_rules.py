"""The rules about GPUs and their driver, judged on whole machines: the healthy ones stay silent, the sick ones are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.ruleset import load
from sysperf.model.finding import Finding, Report
from sysperf.report.words import mood, verdict
from tests.collect.environments import cu130_in, python_at, site_of
from tests.conftest import Files, MakeMachine, make_machine
from tests.gpus import A100_PCIE, GIB, H100, LOST, NOT_SUPPORTED, RTX, VGPU, Answers, bus_id, calls, files

RULES = [path for path in judging.rule_files() if Path(path).stem in ("gpu", "driver", "releases", "xids")]
TERMS = judging.Terms(load(RULES, judging.schema()))
VENV = "/home/ada/p/.venv"
CUDA_13: Files = {"/proc/self/environ": f"VIRTUAL_ENV={VENV}\0", **python_at(VENV), **cu130_in(site_of(VENV))}
AREAS = ("kernel", "memory", "numa", "container", "pcie", "driver", "gpu", "torch", "process")
BASE: Files = {
    "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    "/sys/class/dmi/id/chassis_type": "23\n",
    "/proc/1/cgroup": "0::/init.scope\n",
    "/proc/self/cgroup": "0::/user.slice\n",
    "/proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    "/proc/self/stat": "1 (sysperf) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0\n",
}
IDLE: Answers = {
    **H100,
    "DeviceGetUtilizationRates": {"gpu": 0, "memory": 0},
    "DeviceGetCurrentClocksEventReasons": 0x1,
    "DeviceGetCurrPcieLinkGeneration": 1,
    "DeviceGetClockInfo,1": 345,
    "DeviceGetPerformanceState": 0,
    "DeviceGetComputeRunningProcesses_v3": [],
    "DeviceGetMemoryInfo,33554472": {"total": 80 * GIB, "reserved": GIB // 2, "free": 79 * GIB, "used": 1 << 20},
}
LAPTOP: Answers = {
    **RTX,
    "DeviceGetName": "NVIDIA GeForce RTX 4070 Laptop GPU",
    "DeviceGetCurrPcieLinkWidth": 8,
    "DeviceGetPowerManagementLimit": NOT_SUPPORTED,
    "DeviceGetPowerManagementDefaultLimit": NOT_SUPPORTED,
}
HOT: Answers = {**H100, "DeviceGetCurrentClocksEventReasons": 0x48, "DeviceGetClockInfo,1": 690, "DeviceGetTemperature,0": 91}

Judge = Callable[..., Report]


@pytest.fixture
def judge(machine: MakeMachine) -> Judge:
    """Our two rule files on a machine with these GPUs. `driver` holds them: "none" for nobody, "" for a machine without GPU."""

    def read(*gpus: Answers, extra: Files | None = None, made: Answers | None = None, deep: bool = False, driver: str = "nvidia") -> Report:
        gpu_files, links = files(max(len(gpus), 1) if gpus or driver else 0, driver if driver != "none" else "")
        answers = {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **calls(*gpus), **(made or {})}
        host = machine({**BASE, **gpu_files, **(extra or {})}, links, answers, deep=deep)
        return audit(host, TERMS, areas=AREAS)

    return read


def found(report: Report) -> dict[str, list[Finding]]:
    """The findings by rule."""
    by_rule: dict[str, list[Finding]] = {}
    for outcome in report.findings():
        by_rule.setdefault(outcome.rule, []).append(outcome)
    return by_rule


@pytest.mark.parametrize(
    "gpus",
    [[H100] * 8, [IDLE] * 8, [A100_PCIE] * 2, [RTX], [RTX, RTX], [VGPU], [{**H100, "DeviceGetMigMode": [1, 1]}]],
    ids=["server at work", "server at rest", "two boards", "workstation", "two gaming cards", "virtual", "partitioned"],
)
def test_healthy_machines_are_silent(judge: Judge, gpus: list[Answers]) -> None:
    """No finding on machines that are as they should be."""
    assert found(judge(*gpus)) == {}


def test_a_healthy_laptop_is_silent(judge: Judge) -> None:
    """Narrow links and low clocks are how laptops are built."""
    assert found(judge(LAPTOP, extra={"/sys/class/dmi/id/chassis_type": "10\n"})) == {}


def test_a_healthy_windows_machine_is_silent(judge: Judge) -> None:
    """Under WSL neither links nor persistence nor driver versions are judged."""
    extra = {"/proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n", "/dev/dxg": ""}

    assert found(judge({**RTX, "DeviceGetPersistenceMode": NOT_SUPPORTED}, extra=extra)) == {}


def test_a_machine_without_gpu_is_silent_and_certain(judge: Judge) -> None:
    """Nothing fires and nothing is unknown."""
    report = judge(driver="", extra={"/sys/bus/pci/devices/0000:00:00.0/class": "0x060000\n"})

    assert found(report) == {}
    assert report.tally.unknown == 0


def test_on_a_busy_server_all_but_the_kernel_log_is_known(judge: Judge) -> None:
    """The only unknowns are the rules that read the log, and they name --deep."""
    chips: Files = {f"{path.removesuffix('class')}device": "0x2330\n" for path in files(8)[0] if path.endswith("/class")}
    report = judge(*[H100] * 8, extra=chips)

    assert {outcome.rule for outcome in report.outcomes if outcome.state == "unknown"} == {
        "gpu.xid-recent", "gpu.xid-nvlink", "gpu.xid-application", "gpu.xid-unlisted", "gpu.driver-log-fault", "gpu.reset-in-log", "gpu.sxid", "gpu.sxid-nonfatal",
        "gpu.page-fault-in-log", "gpu.iommu-fault", "gpu.client-mismatch", "gpu.memory-full-in-log",
        "gpu.bus-error-in-log", "gpu.impaired-in-log", "gpu.peermem-failed", "gpu.driver-crashed", "gpu.library-crashed", "gpu.parameter-unknown",
        "gpu.unknown-error-in-log",
    }  # fmt: skip
    assert all(gap.reason == "only read with --deep" for outcome in report.outcomes for gap in outcome.unknown)


def test_a_degraded_link_names_its_gpu(judge: Judge) -> None:
    """One of two boards at half of its lanes."""
    findings = found(judge(A100_PCIE, {**A100_PCIE, "DeviceGetCurrPcieLinkWidth": 8}))

    assert set(findings) == {"gpu.pcie-width-degraded"}
    (finding,) = findings["gpu.pcie-width-degraded"]
    assert finding.about == "GPU 1 (NVIDIA A100-PCIE-40GB)"
    assert any(evidence.source == "nvml:DeviceGetCurrPcieLinkWidth(1)" and evidence.value == 8 for evidence in finding.evidence)


def test_a_hot_gpu_is_named_once(judge: Judge) -> None:
    """The hardware slowdown of one GPU of eight."""
    findings = found(judge(*[H100] * 7, HOT))

    assert set(findings) == {"gpu.throttle-hw"}
    assert "690 of 1980 MHz" in findings["gpu.throttle-hw"][0].message


def test_a_dying_server_names_every_sickness(judge: Judge) -> None:
    """Memory errors, pending repairs, a lost GPU and its Xid, each with its own finding."""
    dying = {**H100, "DeviceGetTotalEccErrors,1,0": 7, "DeviceGetRemappedRows": [3, 5, 1, 1]}
    gone = {**dict.fromkeys(H100, LOST), "DeviceGetUUID": LOST, "DeviceGetPciInfo": LOST}
    log = f"2026-11-20T12:00:00,000001+00:00 NVRM: Xid (PCI:{bus_id(1)[:-2]}): 79, pid=1, GPU has fallen off the bus.\n"

    findings = found(judge(dying, gone, made={"run:dmesg": log}, deep=True))

    assert set(findings) == {"gpu.ecc-uncorrectable", "gpu.remap-pending", "gpu.remap-failed", "gpu.fell-off-bus", "gpu.xid-recent"}
    assert findings["gpu.xid-recent"][0].about == f"Xid 79 on {bus_id(1)}"


@pytest.mark.parametrize("words", ["Unknown Error", "GPU requires restart", "Insufficient External Power", "Timeout", "GPU is lost"])
def test_a_gpu_without_handle_is_an_error_whatever_nvml_calls_it(judge: Judge, words: str) -> None:
    """Every call fails with the same words; the bus tells which GPU it is."""
    gone = dict.fromkeys((*H100, "DeviceGetUUID", "DeviceGetPciInfo", "DeviceGetMinorNumber"), OSError(words))

    findings = found(judge(H100, gone))

    assert set(findings) == {"gpu.fell-off-bus"}
    assert f"at {bus_id(1)} does not answer: {words}" in findings["gpu.fell-off-bus"][0].message


def test_a_gpu_whose_firmware_hangs_is_an_error(judge: Judge) -> None:
    """It still has its name; nothing that its firmware measures can be read."""
    vital = ("DeviceGetUtilizationRates", "DeviceGetTemperature,0", "DeviceGetClockInfo,1", "DeviceGetClockInfo,2", "DeviceGetPowerUsage")
    hangs = {**H100, **dict.fromkeys(vital, OSError("Unknown Error"))}

    assert set(found(judge(H100, hangs))) == {"gpu.fell-off-bus"}


@pytest.mark.parametrize(
    ("changed", "rule", "says"),
    [
        ({"DeviceGetPowerUsage": OSError("Unknown Error")}, "gpu.answers-broken", "PowerUsage: Unknown Error"),
        ({"DeviceGetPowerUsage": OSError("Insufficient External Power")}, "gpu.answers-broken", "Insufficient External Power"),
        ({"DeviceGetEccMode": OSError("Corrupted infoROM")}, "gpu.answers-broken", "EccMode: Corrupted infoROM"),
        ({"DeviceValidateInforom": OSError("Corrupted infoROM")}, "gpu.answers-broken", "its infoROM is corrupted"),
        ({"DeviceGetMigMode": [0, 1]}, "gpu.setting-pending", "MIG becomes on"),
        ({"DeviceGetEccMode": [1, 0]}, "gpu.setting-pending", "error correction becomes off"),
        ({"DeviceGetFanSpeed": 0, "DeviceGetTemperature,0": 84}, "gpu.fan-stopped", "84 degrees"),
        ({"DeviceGetEnforcedPowerLimit": 400_000}, "gpu.power-limit-lowered", "400 W of 700 W"),
    ],
)
def test_one_part_of_a_gpu_is_ill_or_waits(judge: Judge, changed: Answers, rule: str, says: str) -> None:
    findings = found(judge({**H100, **changed}, made={"run:dmesg": ""}, deep=True))

    assert set(findings) == {rule}
    assert says in findings[rule][0].message


def test_sensors_that_a_gpu_lacks_or_a_capture_has_not_are_no_illness(judge: Judge) -> None:
    lacking = dict.fromkeys(("DeviceGetPowerUsage", "DeviceGetFanSpeed"), NOT_SUPPORTED)
    sound = {"DeviceValidateInforom": True, "DeviceGetTemperature,0": 84, "DeviceGetFanSpeed": 40}

    assert found(judge({**H100, **lacking})) == {}
    assert found(judge({**H100, **sound}, made={"run:dmesg": ""}, deep=True)) == {}


def test_an_old_gpu_with_a_full_list_of_bad_pages_is_to_be_replaced(judge: Judge) -> None:
    volta = {**A100_PCIE, "DeviceGetArchitecture": 5, "DeviceGetRetiredPagesPendingStatus": 0, "DeviceGetRetiredPages,0": [4096] * 2}

    assert "gpu.retired-pages" not in found(judge({**volta, "DeviceGetRetiredPages,1": [8192] * 3}))
    findings = found(judge({**volta, "DeviceGetRetiredPages,1": [8192] * 60}))
    assert "62 pages" in findings["gpu.retired-pages"][0].message


def test_protected_gpus_that_take_no_work_are_an_error(judge: Judge) -> None:
    protected = {"nvml:SystemGetConfComputeState()": {"environment": 2, "ccFeature": 1, "devToolsMode": 0}}

    for ready, rules in ((0, {"gpu.cc-mode", "gpu.cc-not-ready"}), (1, {"gpu.cc-mode"})):
        assert set(found(judge(H100, made={**protected, "nvml:SystemGetConfComputeGpusReadyState()": ready}))) == rules


@pytest.mark.parametrize("words", ["Insufficient Permissions", "No Permission", "The operating system has blocked the request."])
def test_a_gpu_that_may_not_be_asked_is_unknown_and_never_fine(judge: Judge, words: str) -> None:
    """No finding, and a headline that says whom it does not know."""
    kept = dict.fromkeys((*H100, "DeviceGetUUID", "DeviceGetPciInfo", "DeviceGetMinorNumber"), OSError(words))

    report = judge(H100, kept)

    assert found(report) == {}
    assert verdict(report).startswith("Cannot tell: 1 GPU did not answer.")
    assert mood(report) == "unknown"


def test_a_gpu_that_no_driver_holds_beside_others_is_named(judge: Judge) -> None:
    """Its probe failed: the driver has the others only. A function that a virtual machine was given is no such thing."""
    gpu_files, links = files(2)
    taken = f"/sys/devices/pci0000:26/0000:26:01.0/{bus_id(1)}/driver"

    assert taken in links
    for holder, rules in (("", {"gpu.undercount"}), ("vfio-pci", set())):
        others = (
            {**links, taken: f"../../../../bus/pci/drivers/{holder}"}
            if holder
            else {path: to for path, to in links.items() if path != taken}
        )
        host = make_machine({**BASE, **gpu_files}, others, {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **calls(H100)})
        report = audit(host, TERMS, areas=AREAS)
        assert set(found(report)) == rules
        if rules:
            assert f"nobody holds {bus_id(1)}" in found(report)["gpu.undercount"][0].message


def test_gpus_that_nobody_asked_are_no_clean_bill(judge: Judge) -> None:
    """On the bus, without a driver and without PyTorch: no finding, and nothing is known of them."""
    report = judge(driver="none")

    assert found(report) == {}
    assert verdict(report).startswith("Cannot tell: 1 GPU did not answer (no NVIDIA driver is loaded).")


def test_a_gpu_that_a_virtual_machine_has_is_nobodys_to_ask(judge: Judge) -> None:
    assert "did not answer" not in verdict(judge(driver="vfio-pci"))


def test_the_brake_of_an_idle_server_is_named(judge: Judge) -> None:
    """Eight GPUs at 86 MHz without work: whatever starts there will crawl."""
    braked = {**IDLE, "DeviceGetCurrentClocksEventReasons": 0x88, "DeviceGetClockInfo,1": 86}

    findings = found(judge(*[braked] * 8))

    assert set(findings) == {"gpu.throttle-hw"}
    assert len(findings["gpu.throttle-hw"]) == 8


def test_a_fabric_that_is_complete_and_ill_is_named(judge: Judge) -> None:
    """The mask that comes with the state: degraded bandwidth (bits 0 and 1) and no partition (bits 12 and 13)."""
    fabric = {"state": 3, "status": 0, "cliqueId": 0, "healthMask": 0x2AAA & ~0x3 | 0x1}

    findings = found(judge(H100, {**H100, "DeviceGetGpuFabricInfoV": fabric}))

    assert "degraded bandwidth" in findings["gpu.fabric-unhealthy"][0].message


def test_a_healthy_mask_is_silent(judge: Judge) -> None:
    """Each field says false, or its configuration is right (1)."""
    fabric = {"state": 3, "status": 0, "cliqueId": 0, "healthMask": 0b01_01_0001_10_10_10_10}

    assert found(judge(H100, {**H100, "DeviceGetGpuFabricInfoV": fabric})) == {}


def test_what_a_lost_gpu_cannot_tell_is_unknown(judge: Judge) -> None:
    """A lost GPU passes nothing: each check on it is unknown with that reason."""
    gone = {**dict.fromkeys(H100, LOST), "DeviceGetUUID": LOST, "DeviceGetPciInfo": LOST}

    unknown = [outcome for outcome in judge(H100, gone).outcomes if outcome.state == "unknown" and outcome.rule == "gpu.ecc-uncorrectable"]

    assert unknown[0].unknown[0].reason.endswith("GPU is lost")


def test_an_update_without_reboot_is_one_finding(judge: Judge) -> None:
    """Libraries newer than the module: NVML is silent, and that reason stands behind everything unknown."""
    lib = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    report = judge(H100, extra={lib: ""}, made={"nvml:SystemGetDriverVersion()": OSError("Driver/library version mismatch")})

    assert set(found(report)) == {"gpu.driver-lib-mismatch"}
    reasons = {gap.reason for outcome in report.outcomes for gap in outcome.unknown if gap.fact.startswith("gpu.ecc")}
    assert reasons == {"SystemGetDriverVersion(): Driver/library version mismatch"}


def test_a_missing_gpu_is_counted(judge: Judge) -> None:
    """Two on the bus, one listed, and nobody forbade the other."""
    report = judge(
        H100, H100, extra={"/dev/nvidia1": ""}, made={"nvml:DeviceGetCount()": 1, "access:/dev/nvidia0": True, "access:/dev/nvidia1": True}
    )

    assert set(found(report)) == {"gpu.undercount"}


def test_an_old_driver_is_set_against_the_environment(judge: Judge) -> None:
    """CUDA 13 wheels need driver 580."""
    old, new = (judge(H100, extra={**CUDA_13, "/sys/module/nvidia/version": f"{version}\n"}) for version in ("535.183.01", "580.95.05"))

    (finding,) = found(old)["driver.too-old-for-cuda"]
    assert finding.about == VENV
    assert "580.65.06" in finding.message
    assert "driver.too-old-for-cuda" not in found(new)


def test_no_driver_is_not_blamed_on_its_version(judge: Judge) -> None:
    """Nouveau in its place, or nothing: each has a rule of its own."""
    nouveau = judge(extra={**CUDA_13, f"/sys/bus/pci/drivers/nouveau/{bus_id(0)}/x": ""}, driver="nouveau")
    nothing = judge(extra=CUDA_13, driver="none")

    assert set(found(nouveau)) == {"gpu.nouveau"}
    assert set(found(nothing)) == {"gpu.driver-missing"}


def test_cuda_wheels_on_a_machine_without_gpu_are_silent(judge: Judge) -> None:
    """PyPI's wheel is one for CUDA; on a machine without a GPU that is no fault."""
    assert found(judge(extra=CUDA_13, driver="")) == {}

"""What governs the CPU's speed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.power import Power, collect
from sysperf.host import Host
from sysperf.model.record import from_json, to_json
from tests.collect.machines import every_machine
from tests.conftest import Dict, Files, MakeMachine, captured

CPU = "/sys/devices/system/cpu"
POLICY = f"{CPU}/cpufreq/policy"
SUPPLY = "/sys/class/power_supply"


def policy(number: int, **files: str) -> Files:
    settings_ = {"scaling_driver": "intel_pstate", "scaling_governor": "powersave", **files}
    return {f"{POLICY}{number}/{name}": text + "\n" for name, text in settings_.items()}


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_captured_machines(kind: str, name: str) -> None:
    """Facts of every captured machine are consistent and survive JSON; what was not captured is unknown, not absent."""
    facts = collect(captured(kind, name))
    assert facts.driver != ""
    assert len(facts.governors or ()) <= (facts.policies or 0)
    assert facts.max_freq_share is None or 0 < facts.max_freq_share <= 1
    assert from_json(to_json(facts), Power) == facts


@pytest.mark.parametrize(
    ("part", "driver", "governors", "epp"),
    [("hybrid", "intel_pstate", ("powersave",), ("balance_performance",)), ("gb10", "cppc_cpufreq", ("performance",), None)],
)
def test_captured_settings(part: str, driver: str, governors: tuple[str, ...], epp: tuple[str, ...] | None) -> None:
    """The laptop and the DGX Spark, whose settings are in their captures."""
    names = [value.values for value in every_machine() if part in (value.id or "")]
    facts = collect(captured(*map(str, names[0])))
    assert (facts.driver, facts.governors, facts.epp, facts.max_freq_share) == (driver, governors, epp, 1.0)


def test_settings_are_summed_up(machine: MakeMachine) -> None:
    """Sixty-four policies make two values, the most used first."""
    files: Files = {}
    for number in range(64):
        files |= policy(number, scaling_governor="performance" if number < 60 else "powersave", energy_performance_preference="performance")
    facts = collect(machine(files))
    assert (facts.policies, facts.governors, facts.epp) == (64, ("performance", "powersave"), ("performance",))


def test_no_driver_is_known(machine: MakeMachine) -> None:
    """A virtual machine has no frequency driver: that is an answer."""
    facts = collect(machine({f"{CPU}/online": "0-1", f"{CPU}/cpu0/topology/core_id": "0"}))
    assert (facts.driver, facts.governors, facts.epp, facts.policies) == ("", (), (), 0)


def test_older_kernels_keep_policies_in_cpu_folders(machine: MakeMachine) -> None:
    """Before 4.3 each CPU has a cpufreq folder of its own; the common one holds other things."""
    files: Files = {f"{CPU}/online": "0-1", f"{CPU}/cpufreq/ondemand/up_threshold": "95"}
    for cpu in (0, 1):
        files |= {f"{CPU}/cpu{cpu}/cpufreq/scaling_driver": "acpi-cpufreq", f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "ondemand"}
    host = machine(files)
    host._tree.complete = False
    assert (collect(host).driver, collect(host).policies, collect(host).governors) == ("acpi-cpufreq", 2, ("ondemand",))


def test_no_preference_control_is_known(machine: MakeMachine) -> None:
    """acpi-cpufreq has no energy preference: known none. One that cannot be read: unknown."""
    assert collect(machine(policy(0))).epp == ()
    refused: Files = {**policy(0), f"{POLICY}0/energy_performance_preference": OSError(16, "Device or resource busy")}
    assert collect(machine(refused)).epp is None


def test_caps(machine: MakeMachine) -> None:
    """Each CPU is compared with its own limit: efficiency cores are no capped performance cores."""
    files = policy(0, scaling_max_freq="5000000", cpuinfo_max_freq="5000000") | policy(
        1, scaling_max_freq="2000000", cpuinfo_max_freq="4000000"
    )
    facts = collect(machine(files))
    assert (facts.max_freq_share, facts.capped_policies) == (0.5, 1)


@pytest.mark.parametrize("cap", ["<unsupported>", "0", "-5", ""])
def test_unreadable_caps_are_unknown(machine: MakeMachine, cap: str) -> None:
    """A cap that is no frequency says nothing."""
    assert collect(machine(policy(0, scaling_max_freq=cap, cpuinfo_max_freq="4000000"))).max_freq_share is None


@pytest.mark.parametrize(
    ("files", "boost", "control"),
    [
        ({f"{CPU}/cpufreq/boost": "1"}, True, True),
        ({f"{CPU}/cpufreq/boost": "0"}, False, True),
        ({f"{CPU}/intel_pstate/no_turbo": "1"}, False, True),
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, True, True),
        ({f"{CPU}/intel_pstate/no_turbo": "?"}, None, True),
        ({}, None, False),
    ],
)
def test_boost(machine: MakeMachine, files: Files, boost: bool | None, control: bool) -> None:
    """Intel's switch says the opposite of the others'."""
    facts = collect(machine(files))
    assert (facts.boost, facts.boost_control) == (boost, control)


def idle(*states: tuple[str, str, str]) -> Files:
    names = ("name", "latency", "disable")
    return {
        f"{CPU}/cpu0/cpuidle/state{index}/{name}": text
        for index, state in enumerate(states)
        for name, text in zip(names, state, strict=True)
    }


def test_deepest_sleep_state(machine: MakeMachine) -> None:
    """States that are switched off do not count."""
    files = idle(("POLL", "0", "0"), ("C1", "2", "0"), ("C6", "170", "1"))
    facts = collect(machine({**files, f"{CPU}/online": "0"}))
    assert (facts.cstate, facts.cstate_latency_us) == ("C1", 2)


def test_no_sleep_states(machine: MakeMachine) -> None:
    """A guest without cpuidle wakes at once."""
    assert collect(machine({f"{CPU}/online": "0"})).cstate_latency_us == 0


def test_heat(machine: MakeMachine) -> None:
    """The worst package counts."""
    files: Files = {f"{CPU}/online": "0-3"}
    for cpu, (mates, count) in enumerate((("0-1", "3"), ("0-1", "3"), ("2-3", "9"), ("2-3", "9"))):
        files[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = mates
        files[f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count"] = count
        files[f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_total_time_ms"] = count + "00"
    facts = collect(machine(files))
    assert (facts.throttle_count, facts.throttle_time_ms) == (9, 900)


def supplies(**kinds: dict[str, str]) -> Files:
    return {f"{SUPPLY}/{name}/{file}": text for name, files in kinds.items() for file, text in files.items()}


BATTERY = {"type": "Battery", "status": "Discharging"}


@pytest.mark.parametrize(
    ("files", "on"),
    [
        ({}, False),
        (supplies(AC={"type": "Mains", "online": "1"}), False),
        (supplies(AC={"type": "Mains", "online": "1"}, BAT0={"type": "Battery", "status": "Charging"}), False),
        (supplies(AC={"type": "Mains", "online": "0"}, BAT0=BATTERY), True),
        (supplies(BAT0=BATTERY), True),
        (supplies(ucsi={"type": "USB", "online": "1"}, AC={"type": "Mains", "online": "0"}, BAT0=BATTERY), False),
        (supplies(hid={**BATTERY, "scope": "Device"}), False),
    ],
    ids=["server", "desktop", "plugged in", "unplugged", "battery only", "charged over USB", "mouse"],
)
def test_battery(machine: MakeMachine, files: Files, on: bool) -> None:
    """Only the machine's own battery counts, and only while nothing feeds it."""
    assert collect(machine(files)).on_battery is on


def test_platform_profile(machine: MakeMachine) -> None:
    """The firmware's profile; none on most servers, which is known."""
    firmware = "/sys/firmware/acpi/platform_profile"
    facts = collect(machine({firmware: "low-power\n", f"{firmware}_choices": "low-power balanced performance\n"}))
    assert (facts.platform_profile, facts.platform_profiles) == ("low-power", ("low-power", "balanced", "performance"))
    assert collect(machine({})).platform_profile == ""


def test_a_partial_capture_proves_no_absence(machine: MakeMachine) -> None:
    """In a capture that does not hold these files, nothing is known to be absent."""
    host = machine({})
    host._tree.complete = False
    facts = collect(host)
    assert (facts.driver, facts.boost_control, facts.platform_profile, facts.on_battery, facts.cstate_latency_us) == (None,) * 5


PATHS = (
    f"{CPU}/online", f"{POLICY}0/scaling_driver", f"{POLICY}0/scaling_governor", f"{POLICY}1/scaling_max_freq", f"{POLICY}1/cpuinfo_max_freq",
    f"{POLICY}0/energy_performance_preference", f"{CPU}/cpufreq/boost", f"{CPU}/intel_pstate/no_turbo", f"{CPU}/cpu0/cpuidle/state1/disable",
    f"{CPU}/cpu0/cpuidle/state1/latency", f"{CPU}/cpu0/thermal_throttle/package_throttle_count", f"{SUPPLY}/BAT0/type", f"{SUPPLY}/BAT0/status",
    f"{CPU}/cpu0/cpufreq/scaling_driver", "/sys/firmware/acpi/platform_profile",
)  # fmt: skip


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(PATHS), st.one_of(st.binary(max_size=40), st.sampled_from([b"0", b"1", b"0-1", b"4000000", b"Battery"]))
    ),
    st.booleans(),
)
def test_any_content_is_survived(files: dict[str, bytes], complete: bool) -> None:
    """Whatever the files hold, facts come out that are JSON, on live machines and in captures."""
    host = Host("/test-machine", tree=Dict(dict(files)))
    host._tree.complete = complete
    facts = collect(host)
    assert to_json(facts)
    assert facts.max_freq_share is None or 0 < facts.max_freq_share <= 1

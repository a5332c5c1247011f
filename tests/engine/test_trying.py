"""Facts about what `verify --fix` and `--all` try: of a finding its setting, its variables, or the part of `wrap` that does it."""

from __future__ import annotations

import pytest

from sysperf.engine.verify import trying
from sysperf.engine.verify.trying import Try
from sysperf.model.change import Setting
from sysperf.model.errors import UsageError
from sysperf.model.finding import Finding, Remedy, Start

MACHINE = Remedy("sysctl", "less swapping", "safe", setting=Setting("vm.swappiness", "10"))
PROCESS = Remedy("renice", "first in line", "safe", setting=Setting("process.nice", "5", "4711"))
PRELOAD = Remedy("preload", "another allocator", "safe", start=Start({"LD_PRELOAD": "/lib/x.so"}, ("MALLOC_CONF",)))
ADVICE = Remedy("advice", "by hand", "manual")
SWAPPINESS, PRELOADED = "memory.swappiness-high", "allocator.preload-ineffective"


def found(monkeypatch: pytest.MonkeyPatch, rule: str, *fixes: Remedy) -> None:
    """An audit that finds this rule with these fixes, and nothing else."""
    outcome = Finding(rule, "finding", "warning", "host", "title", fixes=fixes)
    monkeypatch.setattr(trying, "_audited", lambda select: () if select and rule not in select else (outcome,))


def test_a_rule_of_wrap_is_tried_by_wrap() -> None:
    """Nothing of the machine is looked at for it."""
    tried = trying.one("launch.page-faults-likely")

    assert (tried.rule, tried.kind, tried.settings, tried.set) == ("launch.page-faults-likely", "launch", (), {})


def test_a_setting_of_the_machine_is_tried_and_that_of_a_running_program_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that is measured is another one; what sysperf does not set gets the reason."""
    found(monkeypatch, SWAPPINESS, MACHINE)
    tried = trying.one(SWAPPINESS)
    found(monkeypatch, SWAPPINESS, PROCESS)
    with pytest.raises(UsageError, match="changes a program that runs"):
        trying.one(SWAPPINESS)
    found(monkeypatch, SWAPPINESS, ADVICE)
    with pytest.raises(UsageError, match="does not set this by itself"):
        trying.one(SWAPPINESS)
    found(monkeypatch, "memory.swapping", MACHINE)
    with pytest.raises(UsageError, match="finds nothing on this machine"):
        trying.one(SWAPPINESS)

    assert (tried.kind, [setting.knob for setting in tried.settings]) == ("setting", ["vm.swappiness"])


def test_all_safe_fixes_are_those_of_the_machine_and_of_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of programs that run."""
    outcomes = tuple(Finding(name, "finding", "warning", "host", "title", fixes=(fix,)) for name, fix in (("a", MACHINE), ("b", PROCESS)))
    monkeypatch.setattr(trying, "_audited", lambda _: outcomes)
    monkeypatch.setattr(trying, "_of_wrap", lambda argv: iter((Try(rule=argv[0], kind="launch"),)))

    assert [(tried.rule, tried.kind) for tried in trying.all_safe(("train",))] == [("a", "setting"), ("train", "launch")]


def test_variables_are_those_with_which_the_finding_starts_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preloaded allocator too; a fix of another kind has none, and then those stand in that the rule itself has."""
    found(monkeypatch, PRELOADED, PRELOAD)
    tried = trying.one(PRELOADED)
    found(monkeypatch, PRELOADED, Remedy("env", "no env", "safe", command="export A=1"))
    written = trying.one(PRELOADED)

    assert (tried.kind, tried.set, tried.unset) == ("environment", {"LD_PRELOAD": "/lib/x.so"}, ("MALLOC_CONF",))
    assert list(written.set) == ["MALLOC_CONF"]


def test_a_variable_to_unset_is_one_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it there is nothing to try."""
    rule = "allocator.preload-missing-file"
    found(monkeypatch, rule)
    monkeypatch.setenv("LD_PRELOAD", "")
    assert trying.one(rule).unset == ("LD_PRELOAD",)
    monkeypatch.delenv("LD_PRELOAD")
    with pytest.raises(UsageError):
        trying.one(rule)


def test_values_with_blanks_are_filled_in_by_an_audit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule's own words are no value: `{quota}` threads cannot be tried."""
    found(monkeypatch, "cgroup.threads-exceed-quota")
    with pytest.raises(UsageError):
        trying.one("cgroup.threads-exceed-quota")


def test_plain_and_the_fixes_differ_in_what_is_tried_alone() -> None:
    """Variables go without `wrap`; its parts with the options that were given; the settings of the machine are in neither."""
    variables = Try(rule="a", kind="environment", set={"A": "1"}, unset=("B",))
    launch = Try(rule="b", kind="launch", launch_rules=("launch.x", "launch.y"))
    plain, alone = trying.variants((variables,), ("train",))
    _, both = trying.variants((variables, launch, Try(rule="c", kind="launch")), ("train",), "--allocator jemalloc")

    assert (plain.argv, plain.env, alone.argv, alone.env, alone.unset) == (("train",), {}, ("train",), {"A": "1"}, ("B",))
    assert both.argv[-6:] == ("--allocator", "jemalloc", "--only", "launch.x,launch.y,c", "--", "train")
    assert (both.name, both.env) == ("a, b, c", {"A": "1"})


def test_a_binding_is_tried_by_the_rules_of_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the finding advises for a program that runs is done for the measured one at its start."""
    found(monkeypatch, "numa.gpu-unbound")
    tried = trying.one("numa.gpu-unbound")

    assert (tried.kind, tried.launch_rules) == ("launch", ("launch.gpu-node-unbound",))

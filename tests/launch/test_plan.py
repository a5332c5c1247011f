"""What is changed, what stays, and the same in words and as a command to paste."""

from __future__ import annotations

import shlex

import msgspec

from sysperf.launch.command import Command, parse
from sysperf.launch.environment import MARKER
from sysperf.launch.placement import Placement
from sysperf.launch.plan import ASKED, LaunchPlan, ProposedChange, environment, merge, shown
from sysperf.launch.shown import command_line, line, script, unit
from sysperf.model.cpuset import CpuSet

HALF = Placement(allowed=CpuSet(range(8)), cpus=CpuSet(range(4)), memory_nodes=CpuSet([0]))
ARGV = ("python", "train.py")


def planned(*wanted: ProposedChange, env: dict[str, str] | None = None, argv: tuple[str, ...] = ARGV, **other: object) -> LaunchPlan:
    command = parse(argv)
    return merge(argv, wanted, {**(env or {}), **command.env}, command, HALF, **other)  # type: ignore[arg-type]  # as merge takes them


def want(kind: str, name: str, value: str, rule: str = "launch.x") -> ProposedChange:
    return ProposedChange(kind, name, value, rule)


THREADS = want("env", "OMP_NUM_THREADS", "4")


def test_the_users_variable_stays() -> None:
    """What is in the environment or in an `env` of the command is kept, and reported."""
    kept = planned(THREADS, env={"OMP_NUM_THREADS": "2"})
    in_command = planned(THREADS, argv=("env", "OMP_NUM_THREADS=2", *ARGV))

    assert kept.env == in_command.env == {}
    assert (kept.kept[0].value, kept.kept[0].because) == ("2", "in the environment")
    assert in_command.kept[0].because == "in the command"
    assert "kept OMP_NUM_THREADS=2" in line(kept)


def test_the_same_value_is_no_conflict() -> None:
    """Nothing to change and nothing to report."""
    assert planned(THREADS, env={"OMP_NUM_THREADS": "4"}).kept == ()


def test_an_option_wins_over_all() -> None:
    """--set is the user's latest word; the profile comes after the environment, and before the rules."""
    assert planned(want("env", "A", "1", ASKED), env={"A": "0"}).env == {"A": "1"}
    assert planned(want("env", "A", "1", ASKED), want("env", "A", "2", "profile"), want("env", "A", "3")).env == {"A": "1"}
    assert planned(want("env", "A", "2", "profile"), want("env", "A", "3")).env == {"A": "2"}
    assert planned(want("env", "A", "2", "profile"), env={"A": "0"}).env == {}


def test_what_env_in_the_command_does_comes_after_us() -> None:
    """A variable that it sets, removes or clears cannot be set around it: kept, and said, also when it was asked for."""
    for argv in (("env", "A=0", *ARGV), ("env", "-u", "A", *ARGV), ("env", "-i", *ARGV)):
        plan_of_launch = planned(want("env", "A", "1", ASKED), want("preload", "LD_PRELOAD", "/lib/libjemalloc.so.2"), argv=argv)
        assert ("A" in plan_of_launch.env, [(setting.name, setting.because) for setting in plan_of_launch.kept][:1]) == (
            False,
            [("A", "in the command")],
        ), argv
    assert "LD_PRELOAD" not in plan_of_launch.env


def test_what_a_launcher_injected_may_be_replaced() -> None:
    """OMP_NUM_THREADS=1 by torchrun is nobody's choice."""
    assert planned(THREADS, env={"OMP_NUM_THREADS": "1"}, free=("OMP_NUM_THREADS",)).env == {"OMP_NUM_THREADS": "4"}


def test_a_value_with_an_unknown_is_not_set() -> None:
    """A blank that could not be filled is a question mark, and that is no number of threads."""
    assert planned(want("env", "OMP_NUM_THREADS", "?")).env == {}


def test_a_preload_comes_first_and_is_added_once() -> None:
    """Other entries stay; an allocator that is preloaded already is left."""
    tc = want("preload", "LD_PRELOAD", "/lib/libtcmalloc_minimal.so.4")

    assert planned(tc, env={"LD_PRELOAD": "/a.so /b.so"}).env["LD_PRELOAD"] == "/lib/libtcmalloc_minimal.so.4:/a.so:/b.so"
    assert planned(tc, env={"LD_PRELOAD": "libjemalloc.so.2"}).env == {}
    assert planned(tc, env={"LD_PRELOAD": "libjemalloc.so.2"}).kept[0].because == "preloaded already"


def test_numactl_in_the_command_stays() -> None:
    """Neither CPUs nor memory are bound around it."""
    plan_of_launch = planned(want("cpus", "CPUs", "0-3"), want("memory", "preferred", "0"), argv=("numactl", "-C", "1", "-m", "1", *ARGV))

    assert (plan_of_launch.cpus, plan_of_launch.memory) == (None, "")
    assert [setting.because for setting in plan_of_launch.kept] == ["numactl in the command"] * 2


def test_a_memory_policy_that_is_set_already_stays() -> None:
    """An outer numactl has decided."""
    assert planned(want("memory", "preferred", "0"), keeps_policy=True).memory == ""


def test_unset() -> None:
    """A variable is removed when a rule wants it gone and nobody chose it."""
    assert planned(want("unset", "A", ""), env={"A": "1"}, free=("A",)).unset == ("A",)
    assert planned(want("unset", "A", ""), env={"A": "1"}).unset == ()
    assert planned(want("unset", "A", "")).unset == ()


def test_the_command_to_paste() -> None:
    """env for variables, numactl where memory is placed, taskset for CPUs alone; quoted for a shell."""
    both = LaunchPlan(("python", "a b.py"), env={"A": "x y"}, cpus=CpuSet(range(4)), memory="preferred", memory_nodes=CpuSet([1]))
    alone = LaunchPlan(ARGV, unset=("B",), cpus=CpuSet([2]))

    assert command_line(both) == "env 'A=x y' numactl --physcpubind=0-3 --preferred=1 python 'a b.py'"
    assert command_line(alone) == "env -u B taskset -c 2 python train.py"
    assert command_line(LaunchPlan(ARGV)) == "python train.py"
    assert "--membind=0-1" in command_line(LaunchPlan(ARGV, memory="strict", memory_nodes=CpuSet([0, 1])))
    assert "--preferred-many=0-1" in command_line(LaunchPlan(ARGV, memory="preferred", memory_nodes=CpuSet([0, 1])))


def test_a_program_whose_name_begins_with_a_dash() -> None:
    """The tool in front must not take it for an option of its own; taskset, behind its list, would execute the two dashes."""
    near = LaunchPlan(("-x", "y"), memory="preferred", memory_nodes=CpuSet([0]))

    assert shlex.split(command_line(near)) == ["numactl", "--preferred=0", "--", "-x", "y"]
    assert shlex.split(command_line(LaunchPlan(("-x", "y"), cpus=CpuSet([0])))) == ["taskset", "-c", "0", "-x", "y"]
    assert shlex.split(command_line(LaunchPlan(("-x", "y"), unset=("A",)))) == ["env", "-u", "A", "--", "-x", "y"]
    assert shlex.split(command_line(LaunchPlan(("-x", "y"), env={"A": "1"}))) == ["env", "A=1", "-x", "y"]


def test_a_program_whose_path_has_an_equals_sign() -> None:
    """`runs/lr=0.1/train.sh` behind env would be a variable."""
    script = "runs/lr=0.1/train.sh"

    assert shlex.split(command_line(LaunchPlan((script, "y"), env={"A": "1"}))) == [
        "env",
        "A=1",
        "sh",
        "-c",
        'exec "$@"',
        "sh",
        script,
        "y",
    ]
    assert shlex.split(command_line(LaunchPlan((script,), env={"A": "1"}, cpus=CpuSet([0])))) == [
        "env",
        "A=1",
        "taskset",
        "-c",
        "0",
        script,
    ]


def test_the_line() -> None:
    """One line, whatever is in it."""
    text = line(LaunchPlan(("x",), env={"A": "1\n2\x1b[31m"}, cpus=CpuSet(range(0, 200, 2)), warnings=(("launch.y", "look\nout"),)))

    assert "\n" not in text
    assert "\x1b" not in text
    assert "(100 CPUs)" in text
    assert "warning: look" in text
    assert line(LaunchPlan(("x",))) == "nothing to change"


def test_what_the_program_gets() -> None:
    """Our environment, changed, and the mark of an outer wrap: for ranks, with the variables that were set for them."""
    plan = planned(THREADS, env={"A": "1", "B": "2"})

    assert environment(plan, {"A": "1"}, Command(kind="python")) == {"A": "1", "OMP_NUM_THREADS": "4", MARKER: "program - OMP_NUM_THREADS"}
    assert environment(plan, {}, Command(kind="launcher"))[MARKER] == "launcher - OMP_NUM_THREADS"
    assert environment(plan, {}, Command(), "torchrun:1")[MARKER] == "program torchrun:1 OMP_NUM_THREADS"
    assert environment(LaunchPlan(ARGV, untouched=True), {MARKER: "x"}, Command())[MARKER] == "x"


def test_the_line_keeps_its_notes() -> None:
    """What was left alone, and why, also where a variable is set."""
    noted = msgspec.structs.replace(planned(THREADS), notes=("Slurm gave this rank CPUs 0-3: kept", "another"))

    assert line(noted) == "OMP_NUM_THREADS=4; Slurm gave this rank CPUs 0-3: kept; another"


def test_an_option_unsets_what_the_environment_has() -> None:
    """--unpin; a rule alone does not, and what `env` does in the command is done after us."""
    asked, by_rule = want("unset", "OMP_PROC_BIND", "", ASKED), want("unset", "OMP_PROC_BIND", "")
    env = {"OMP_PROC_BIND": "close"}

    assert planned(asked, env=env).unset == ("OMP_PROC_BIND",)
    assert planned(by_rule, env=env).unset == ()
    assert planned(asked, argv=("env", "OMP_PROC_BIND=close", *ARGV)).unset == ()


def test_without_numactl_the_line_binds_cpus() -> None:
    """taskset is everywhere."""
    both = planned(want("cpus", "CPUs", "0-3"), want("memory", "preferred", "0"))

    assert command_line(both, numactl=False) == "taskset -c 0-3 python train.py"


def test_a_script_and_a_unit() -> None:
    """Quoted as sh and systemd read it; `%` and `$` mean themselves in a unit."""
    plan = planned(
        want("env", "A", "x 'y' 50%"), want("unset", "B", "", ASKED), want("cpus", "CPUs", "0-3"), want("memory", "preferred", "0"),
        env={"B": "1"}, argv=("python", "a b.py", "$HOME"),
    )  # fmt: skip

    assert script([plan]).splitlines() == [
        "#!/bin/sh",
        "unset B",
        "export A='x '\"'\"'y'\"'\"' 50%'",
        "exec numactl --physcpubind=0-3 --preferred=0 python 'a b.py' '$HOME' \"$@\"",
    ]
    assert unit(plan).splitlines() == [
        "[Service]",
        "UnsetEnvironment=B",
        "Environment=\"A=x 'y' 50%%\"",
        "CPUAffinity=0-3",
        "NUMAPolicy=preferred",
        "NUMAMask=0",
        'ExecStart=python "a b.py" "$$HOME"',
    ]


def test_a_script_without_numactl_binds_cpus() -> None:
    """As the line does: a name that is not there would keep the program from starting."""
    both = planned(want("cpus", "CPUs", "0-3"), want("memory", "preferred", "0"))

    assert script([both], numactl=False).splitlines()[-1] == 'exec taskset -c 0-3 python train.py "$@"'


def test_a_unit_knows_the_program_the_folder_and_what_the_user_chose() -> None:
    """systemd has another PATH, starts in `/`, and passes nothing on from the shell in which the unit was printed."""
    plan = planned(want("env", "OMP_NUM_THREADS", "4"), want("env", "A", "1"), env={"OMP_NUM_THREADS": "2"})

    assert unit(plan, "/opt/my env/bin/python", "/srv/100%").splitlines() == [
        "[Service]",
        "WorkingDirectory=/srv/100%%",
        "Environment=OMP_NUM_THREADS=2",
        "Environment=A=1",
        'ExecStart="/opt/my env/bin/python" train.py',
    ]


def test_a_change_in_a_few_words() -> None:
    """As `audit` says how a running program would have been started."""
    changes = (
        THREADS,
        want("preload", "LD_PRELOAD", "/l.so"),
        want("memory", "preferred", "1"),
        want("cpus", "CPUs", "0-3"),
        want("unset", "A", ""),
    )

    assert [shown(change) for change in changes] == [
        "OMP_NUM_THREADS=4", "LD_PRELOAD=/l.so", "memory preferred on node 1", "CPUs 0-3", "without A",
    ]  # fmt: skip

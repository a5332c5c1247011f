"""What a command is: the tools in front, the program behind, and who has decided what already."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.host.commands import WITHOUT_FOLDER, sysperf_command
from sysperf.launch.command import parse
from sysperf.launch.environment import of_program
from sysperf.model.cpuset import CpuSet


@pytest.mark.parametrize(
    ("line", "kind", "program"),
    [
        ("python train.py", "python", "python"),
        ("/opt/venv/bin/python3.12 -u train.py", "python", "/opt/venv/bin/python3.12"),
        ("env A=1 B=2 nice -n 5 nohup python train.py", "python", "python"),
        ("timeout -k 5 10m python train.py", "python", "python"),
        ("stdbuf -oL python x.py", "python", "python"),
        ("bash run.sh", "shell", "bash"),
        ("torchrun --nproc-per-node 4 train.py", "launcher", "torchrun"),
        ("accelerate launch train.py", "launcher", "accelerate"),
        ("python -m accelerate.commands.launch train.py", "launcher", "python"),
        ("accelerate config", "program", "accelerate"),
        ("mpirun -np 4 python x.py", "launcher", "mpirun"),
        ("conda run -n fast python x.py", "environment", "python"),
        ("uv run train.py", "environment", "python"),
        ("uv run -m pkg.train", "environment", "python"),
        ("uv --directory x run train.py", "environment", "python"),
        ("hatch run gpu:torchrun x.py", "launcher", "torchrun"),
        ("uv sync", "program", "uv"),
        ("sysperf wrap --threads 2 -- python x.py", "python", "python"),
        ("python -m sysperf wrap -- env A=1 torchrun x.py", "launcher", "torchrun"),
        ("python3.11 -P -m sysperf wrap --quiet -- python x.py", "python", "python"),
        ("python -I -m sysperf wrap -- python x.py", "python", "python"),
        ("python -m sysperf audit -- torchrun x.py", "python", "python"),
        ("sysperf audit", "program", "sysperf"),
        ("vllm serve model", "program", "vllm"),
        ("-weird", "program", "-weird"),
    ],
)
def test_the_program_behind_the_tools(line: str, kind: str, program: str) -> None:
    """Tools that only change how a program is started are looked through."""
    command = parse(line.split())

    assert (command.kind, command.program) == (kind, program)


@pytest.mark.parametrize("start", [sysperf_command(), ("/usr/bin/python3.10", "-c", WITHOUT_FOLDER)])
def test_how_sysperf_starts_itself_is_a_wrap_too(start: tuple[str, ...]) -> None:
    """`verify` and `tune` start `wrap` so: the program behind it is what counts, whatever the version of Python."""
    command = parse([*start, "wrap", "--quiet", "--", "numactl", "-C", "0-3", "python", "x.py"])

    assert (command.kind, command.script, command.cpu_tool) == ("python", "x.py", "numactl")


def test_other_code_of_python_is_no_wrap() -> None:
    """`-c` with any other program is what it is, though `wrap` and `--` stand behind it."""
    command = parse(["python", "-c", "import train", "wrap", "--", "torchrun", "x.py"])

    assert (command.kind, command.program) == ("python", "python")


@pytest.mark.parametrize(
    ("line", "script", "module"),
    [
        ("python train.py -m x", "train.py", ""),
        ("python -m pkg.train --lr 1", "", "pkg.train"),
        ("python -mpkg.train", "", "pkg.train"),
        ("python -Im pkg.train", "", "pkg.train"),
        ("python -X importtime -W ignore train.py", "train.py", ""),
        ("python -Ximporttime train.py", "train.py", ""),
        ("python -c print() train.py", "", ""),
        ("python -", "-", ""),
        ("python", "", ""),
    ],
)
def test_what_python_runs(line: str, script: str, module: str) -> None:
    """Script, module or code, with options joined or not."""
    command = parse(line.split())

    assert (command.kind, command.script, command.module) == ("python", script, module)


@pytest.mark.parametrize(
    ("line", "ranks", "binding"),
    [
        ("torchrun --nproc-per-node=8 train.py", 8, ""),
        ("torchrun --nproc_per_node 2 --nnodes 2 train.py", 2, ""),
        ("torchrun --nproc-per-node gpu train.py", None, ""),
        ("torchrun --numa-binding=node --nproc-per-node 2 train.py", 2, "node"),
        ("python -m torch.distributed.run --nproc-per-node 4 train.py", 4, ""),
    ],
)
def test_the_ranks_of_torchrun(line: str, ranks: int | None, binding: str) -> None:
    """How many ranks start here, where that is said in numbers, and how they are bound."""
    command = parse(line.split())

    assert (command.launcher, command.launcher_ranks, command.binds_ranks) == ("torchrun", ranks, binding)


@pytest.mark.parametrize(
    ("line", "tool", "cpus"),
    [
        ("taskset -c 0-3,8 python x.py", "taskset", "0-3,8"),
        ("taskset -ac 0-3 python x.py", "taskset", "0-3"),
        ("taskset --cpu-list 2 python x.py", "taskset", "2"),
        ("taskset 0xf0 python x.py", "taskset", "4-7"),
        ("numactl -C 0-7 -m 0 python x.py", "numactl", "0-7"),
        ("numactl --physcpubind=0-7 python x.py", "numactl", "0-7"),
        ("numactl --physcpubind=+0-7 python x.py", "numactl", ""),
        ("hwloc-bind package:0 -- python x.py", "hwloc-bind", ""),
    ],
)
def test_cpus_that_the_command_chooses(line: str, tool: str, cpus: str) -> None:
    """taskset and numactl in the command decide; how many CPUs that leaves is known where they say it in numbers."""
    command = parse(line.split())

    assert (command.kind, command.cpu_tool, str(command.cpus or "")) == ("python", tool, cpus)


def test_memory_and_nodes_of_numactl() -> None:
    """A node's CPUs and a memory policy are told apart."""
    command = parse(["numactl", "-N", "1", "--membind=1", "python", "x.py"])

    assert (command.cpu_nodes, command.memory_tool) == (CpuSet([1]), "numactl")
    assert parse(["numactl", "-C", "0", "python", "x.py"]).memory_tool == ""


def test_env_in_the_command() -> None:
    """What `env` sets, removes or clears reaches the program, or does not."""
    command = parse(["env", "-u", "A", "B=1", "C=x=y", "python", "x.py"])

    assert (command.env, command.unset, command.clears) == ({"B": "1", "C": "x=y"}, ("A",), False)
    assert parse(["env", "-i", "python"]).clears


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from(["env", "nice", "-n", "taskset", "-c", "numactl", "python", "-m", "--", "", "A=1", "timeout", "\n", "run"]),
        max_size=12,
    )
)
def test_no_command_is_too_strange(words: list[str]) -> None:
    """Any words are some command; parsing never fails and invents no words."""
    command = parse(words)

    assert command.program in ("", *words)
    assert set(command.arguments) <= set(words)


def test_json_names_the_runner_as_it_always_did() -> None:
    """`wrap --json` prints the command: what a script reads from it stays."""
    assert parse(["conda", "run", "-n", "fast", "python", "x.py"]).environment == ("conda", "fast")
    assert parse(["hatch", "run", "gpu:python", "x.py"]).environment == ("hatch", "gpu")
    assert parse(["python", "x.py"]).environment == ("", "")


@pytest.mark.parametrize(
    ("line", "sees"),
    [
        ("env -u OMP_NUM_THREADS conda run -n fast python x.py", {"HOME": "/root"}),
        ("conda run -n fast env -u OMP_NUM_THREADS python x.py", {"HOME": "/root"}),
        ("env -u HOME uv run env -u OMP_NUM_THREADS A=1 python x.py", {"A": "1"}),
        ("env A=1 uv run env -i B=2 python x.py", {"B": "2"}),
        ("env A=1 uv run python x.py", {"A": "1", "HOME": "/root", "OMP_NUM_THREADS": "8"}),
    ],
)
def test_what_is_unset_before_and_behind_a_runner_reaches_no_program(line: str, sees: dict[str, str]) -> None:
    """`env` may stand on both sides of it."""
    assert of_program({"HOME": "/root", "OMP_NUM_THREADS": "8"}, parse(line.split())) == sees

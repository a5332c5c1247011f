"""The environment of a program: what reaches it, and what of it may be shown."""

from __future__ import annotations

import os
import subprocess
import sys

from sysperf.launch.command import parse
from sysperf.launch.environment import decided_before, deciding, mark, of_program, shown


def test_secrets_are_no_facts() -> None:
    """Only names that explain performance are shown, and never what is named as a secret."""
    env = {"OMP_NUM_THREADS": "4", "AWS_SECRET_ACCESS_KEY": "x", "HF_TOKEN": "y", "TORCH_API_KEY": "z", "LOCAL_RANK": "1", "PATH": "/bin"}

    assert shown(env) == {"OMP_NUM_THREADS": "4", "LOCAL_RANK": "1"}
    assert "HF_TOKEN" not in deciding(env)


def test_ten_thousand_variables() -> None:
    """Facts stay few; all variables reach the program."""
    env = {f"OMP_X{index}": "1" for index in range(10_000)}

    assert len(shown(env)) == 256
    assert of_program(env, parse(["python"])) == env


def test_env_in_the_command_changes_what_reaches_the_program() -> None:
    """`env -u`, `env -i` and assignments."""
    assert of_program({"A": "1", "B": "2"}, parse(["env", "-u", "A", "C=3", "python"])) == {"B": "2", "C": "3"}
    assert of_program({"A": "1"}, parse(["env", "-i", "C=3", "python"])) == {"C": "3"}


def test_what_an_outer_wrap_did() -> None:
    """Placed already, or only prepared for the ranks of a launcher."""
    assert decided_before({}, "") == (False, ())
    assert decided_before({"SYSPERF_WRAPPED": mark(launcher=False, rank="", names=())}, "") == (True, ())
    assert decided_before({"SYSPERF_WRAPPED": mark(launcher=True, rank="", names=("OMP_NUM_THREADS", "A"))}, "") == (
        False,
        ("OMP_NUM_THREADS", "A"),
    )


def test_a_rank_below_a_wrapped_shell_is_another_program() -> None:
    """`sysperf wrap -- bash train.sh` whose torchrun wraps its ranks: they are placed, and the shell's variables were nobody's choice."""
    shell = {"SYSPERF_WRAPPED": mark(launcher=False, rank="", names=("OMP_NUM_THREADS",))}
    rank = {"SYSPERF_WRAPPED": mark(launcher=False, rank="torchrun:1", names=())}

    assert decided_before(shell, "torchrun:1") == (False, ("OMP_NUM_THREADS",))
    assert decided_before(rank, "torchrun:1") == (True, ())


def test_what_python_put_into_its_own_environment_is_not_passed_on() -> None:
    """In the C locale Python sets LC_CTYPE for itself; the program must not see it. One that was given stays."""
    code = "from sysperf.launch.environment import inherited; print(inherited().get('LC_CTYPE'))"
    base = {name: value for name, value in os.environ.items() if not name.startswith("LC_") and name != "LANG"}

    def said(**env: str) -> str:
        return subprocess.run([sys.executable, "-c", code], env={**base, **env}, capture_output=True, text=True, check=True).stdout.strip()

    assert said() == "None"
    assert said(LC_CTYPE="C.UTF-8") == "C.UTF-8"

"""`sysperf verify` as a user runs it: verdicts and exit codes, errors, what is kept, Ctrl-C and --resume."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sysperf.cli import _measuring
from sysperf.cli.verify import all as verify_all
from sysperf.cli.verify.study import StudyFile
from sysperf.engine.verify import MAX_KEPT_STEPS, Plan, State
from sysperf.host.commands import sysperf_command
from sysperf.model.comparison import Comparison, Metric, Run, TriedFix, Variant
from sysperf.model.errors import Exit
from sysperf.report.experiments import comparison as report
from sysperf.report.experiments import comparison_page
from sysperf.verify.stats import Verdict
from tests.invoking import sysperf
from tests.io_classes import io_class
from tests.stand_ins import write_torch

SPEED = ("--metric", "speed: ([0-9.]+)", "--higher-is-better", "--max-pairs", "6", "--seed", "1", "--keep-disturbed")


def says(speed: float) -> str:
    """A command that prints this speed."""
    return f"sh -c 'echo speed: {speed}'"


def verify(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `sysperf verify` with a state folder of its own."""
    return sysperf("verify", *argv, env=environment(home), timeout=300)


def environment(home: Path) -> dict[str, str]:
    """Variables with which nothing of the user's or the system's state is touched."""
    return {**os.environ, "STATE_DIRECTORY": str(home), "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.mark.parametrize(
    ("a", "b", "options", "sentence", "code"),
    [
        (10.0, 12.0, (), "B is 20.0 % faster than A", 0),
        (10.0, 9.0, (), "B is 10.0 % slower than A", 1),
        (10.0, 10.05, (), "B and A are equally fast, within 1 %", 0),
        (10.0, 9.9, ("--fail-if-slower", "2"), "A are equally fast", 0),
        (10.0, 9.5, ("--fail-if-slower", "2%"), "slower", 1),
    ],
)
def test_the_verdict_is_a_sentence_and_an_exit_code(
    tmp_path: Path, a: float, b: float, options: tuple[str, ...], sentence: str, code: int
) -> None:
    """Of two programs that print their speed."""
    done = verify(tmp_path, *SPEED, *options, "--margin", "1.1" if code == 0 and b == 9.9 else "1", "--a", says(a), "--b", says(b))

    assert sentence in done.stdout, done.stdout + done.stderr
    assert done.returncode == code


def test_formats_say_the_same(tmp_path: Path) -> None:
    """JSON for machines, Markdown for a pull request, a page on its own; hostile names do nothing."""
    both = ("--a", "sh -c 'echo speed: 10 # <b>|`'", "--b", says(12.0))
    comparison = json.loads(verify(tmp_path, *SPEED, "--json", *both).stdout)["comparison"]
    markdown = verify(tmp_path, *SPEED, "--format", "markdown", *both).stdout
    page = verify(tmp_path, *SPEED, "--format", "html", *both).stdout

    assert (comparison["verdict"], comparison["pairs"], round(comparison["ratio"], 3)) == ("faster", 6, 1.2)
    assert {run["arm"] for run in comparison["runs"]} == {"a", "b"}
    assert markdown.startswith("**B is 20.0 % faster than A**")
    assert "\\|'" in markdown
    assert "# <b>" not in page
    assert page.count("<circle") == comparison["pairs"] + 1, "each pair that counts, and the middle"
    assert "Content-Security-Policy" in page


def test_a_result_is_kept_for_the_dashboard(tmp_path: Path) -> None:
    """One line of trials.jsonl, of this user alone."""
    verify(tmp_path, *SPEED, "--a", says(10), "--b", says(12))
    (line,) = (tmp_path / "trials.jsonl").read_text().splitlines()

    kept = json.loads(line)
    assert (kept["experiment"], kept["verdict"], kept["baseline"]) == ("verify", "faster", 10.0)
    assert (tmp_path / "trials.jsonl").stat().st_mode & 0o077 == 0


def test_plain_and_wrapped_is_what_is_compared_without_options(tmp_path: Path) -> None:
    """The wrapped runs go through `sysperf wrap`."""
    done = verify(tmp_path, "--max-pairs", "2", "--json", "--", "true")

    comparison = json.loads(done.stdout)["comparison"]
    assert (comparison["a"]["name"], comparison["a"]["argv"]) == ("plain", ["true"])
    assert comparison["b"]["argv"][: len(sysperf_command()) + 1] == [*sysperf_command(), "wrap"]


def test_modules_beside_the_program_are_none_of_ours(tmp_path: Path) -> None:
    """A user may have a file of the name of one of our libraries where the program is started."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('shadowed')")
    argv = (Path(sys.executable).with_name("sysperf"), "verify", "--max-pairs", "2", "--keep-disturbed", "--json", "--", "true")
    done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)

    assert json.loads(done.stdout)["comparison"]["pairs"] == 2, done.stderr


def test_two_interpreters(tmp_path: Path) -> None:
    """`--env` twice replaces the command's python."""
    done = verify(tmp_path, *SPEED, "--json", "--env", sys.executable, "--env", sys.prefix, "--", "python", "-c", "print('speed: 5')")

    assert json.loads(done.stdout)["comparison"]["verdict"] == "same", done.stderr


def test_a_report_holds_no_secret_of_the_command(tmp_path: Path) -> None:
    """Results are kept and sent: what follows a name of a secret is hidden in every format."""
    for form in ("text", "json", "html", "markdown"):
        done = verify(tmp_path, "--max-pairs", "2", "--format", form, "--a", "true --api-key hunter2 --optimizer adamw", "--b", "true")
        assert "--api-key" in done.stdout, done.stderr
        assert "hunter2" not in done.stdout


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no command to run"),
        (("--a", "true"), "--a and --b go together"),
        (("--a", "echo 'x", "--b", "true"), "--a: no closing quotation"),
        (("--a", "true", "--b", " "), "--b: no command"),
        (("--wrap-options", "--set 'A=1", "--", "true"), "--wrap-options: no closing quotation"),
        (("--", "sh", "-c", "read -r line"), "plain ended with exit code 1"),
        (("--metric", "(", "--", "true"), "--metric"),
        (("--fail-if-slower", "nan", "--", "true"), "not between 0 and 100"),
        (("--limit", "0", "--", "true"), "--limit 0: no finite number above 0"),
        (("--minutes", "-1", "--", "true"), "--minutes -1: no finite number above 0"),
        (("--all", "--fail-if-slower", "2", "--", "true"), "--all tries what an audit finds"),
        (("--max-pairs", "1", "--", "true"), "two pairs"),
        (("--steps", "optimizer", "--", sys.executable, "-c", "pass"), "made no optimizer steps"),
        (("--metric", "x([0-9])", "--", "echo", "y"), "nothing that plain printed matches"),
        (("--metric", "a{99999999999}", "--", "true"), "--metric: "),
        (("--metric", "(" * 5_000, "--", "true"), "--metric: "),
        (("--a", "/nothing/of/this/name", "--b", "/nothing/of/this/name"), "No such file"),
        (("--", "sh", "-c", "echo why; exit 7"), "exit code 7"),
        (("--", "sh", "-c", "sleep 300 & exit 0"), "left something running"),
        (("--limit", "0.5", "--", "sleep", "300"), "ended after 0.5 s"),
        (("--metric", "", "--", "true"), "no pattern"),
        (("--metric", "(", "--", "true"), "missing )"),
        (("--metric", "speed: [0-9]+", "--a", "echo speed: 1", "--b", "true"), "matched last is no number: 'speed: 1'"),
        (("--metric", "speed: ([0-9,]+)", "--a", "echo speed: 1,5", "--b", "true"), "matched last is no number: '1,5'"),
        (("--metric", "(a+)+$", "--a", f"echo {'a' * 60}!", "--b", "true"), "takes more than 2 s on what A printed: aaaa"),
    ],
)
def test_what_cannot_be_compared_is_an_error_with_the_next_step(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """Exit code 2, a line of what and a line of what to do."""
    done = verify(tmp_path, *argv)

    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_is_there_is_kept_and_resume_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    """After some runs. Ctrl-C: a verdict of those; kill -9: nothing is said. Later the same study with more."""
    command = (*SPEED, "--a", "sh -c 'echo speed: 10; sleep 0.2'", "--b", "sh -c 'echo speed: 12; sleep 0.2'")
    with subprocess.Popen(
        (sys.executable, "-m", "sysperf", "verify", *command),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as sysperf:
        assert sysperf.stderr
        assert sysperf.stdout
        for line in sysperf.stderr:
            if "3 pairs" in line:
                break
        time.sleep(0.1)
        sysperf.send_signal(number)
        printed = sysperf.stdout.read()
    resumed = json.loads(verify(tmp_path, *command, "--resume", "--json").stdout)["comparison"]

    assert ("interrupted" in printed) == (number == signal.SIGINT)
    assert sysperf.returncode in {0, 3, -signal.SIGKILL}
    assert resumed["verdict"] == "faster"
    assert resumed["pairs"] == 6
    assert resumed["seed"] == 1


def test_a_study_that_had_ended_is_shown_again_and_not_kept_anew(tmp_path: Path) -> None:
    """What was measured yesterday is no trial of today."""
    command = (*SPEED, "--max-pairs", "2", "--a", says(10), "--b", says(12))
    first = verify(tmp_path, *command)
    again = verify(tmp_path, *command, "--resume")

    assert again.stdout == first.stdout
    assert "this study had ended" in again.stderr
    assert "this study had ended" not in first.stderr
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [(b'"arm":"a"', b'"arm":"\x80"'), (b'"value":10.0', b'"value":0'), (b'"value":10.0', b'"value":-1e999'), (b'"name":"wall', b'"name":"\xff\\ud800'), (b"{", b"[" * 100_000), (b'"max_pairs":2', b'"max_pairs":1')],
)  # fmt: skip
def test_a_study_that_was_damaged_is_one_error(tmp_path: Path, before: bytes, after: bytes) -> None:
    """A byte that is no text, a value that no run has, a plan that is none: the next step is named."""
    command = (*SPEED, "--max-pairs", "2", "--a", says(10), "--b", says(12))
    verify(tmp_path, *command)
    (study,) = (tmp_path / "verify").glob("*.json")
    raw = study.read_bytes()
    study.write_bytes(raw.replace(before, after, 1) if before in raw else raw.replace(b'"', after, 1))
    again = verify(tmp_path, *command, "--resume")

    assert again.returncode == 2
    assert "without --resume" in again.stderr
    assert "internal error" not in again.stderr


def test_arguments_that_are_no_text_are_compared(tmp_path: Path) -> None:
    """Of bytes that are no UTF-8, in text and in JSON."""
    both = ("--max-pairs", "2", "--a", b"true \xff", "--b", "true")
    for form in ("text", "json"):
        done = subprocess.run(
            (sys.executable, "-m", "sysperf", "verify", *both, "--format", form),
            env=environment(tmp_path),
            capture_output=True,
            check=False,
        )
        assert done.returncode in (0, 1, 3), done.stderr
        assert b"\\udcff" in done.stdout


def test_one_look_is_asked_for_from_the_beginning(tmp_path: Path) -> None:
    """Looks that were made cannot become one. It uses all pairs, however clear they are."""
    command = (*SPEED, "--a", says(10), "--b", says(12), "--max-pairs", "7")
    done = json.loads(verify(tmp_path, *command, "--one-look", "--json").stdout)["comparison"]
    refused = verify(tmp_path, *command, "--resume")

    assert (done["pairs"], done["fresh_pairs"], done["confidence"], done["verdict"]) == (7, 0, 0.95, "faster")
    assert refused.returncode == 2
    assert "the study was begun with --one-look" in refused.stderr


def read_level(pid: int) -> str:
    """What a shell does to have 5 in $level where this process has the I/O class idle, and else 0."""
    return f'case "$(ionice -p {pid})" in idle*) level=5;; *) level=0;; esac'


def test_a_setting_is_there_in_one_variant_only_and_taken_back(tmp_path: Path) -> None:
    """`--set` on a real process: the program sees the value in B's runs alone, and afterwards all is as it was."""
    with subprocess.Popen(("sleep", "300")) as other:
        program = f"{read_level(other.pid)}; echo level: $((10 + level))"
        done = verify(
            tmp_path, "--metric", "level: ([0-9]+)", "--higher-is-better", "--max-pairs", "3", "--keep-disturbed", "--json",
            "--yes", "--set", f"process.io_class@{other.pid}=idle", "--", "sh", "-c", program,
        )  # fmt: skip
        after = io_class(other.pid)
        other.kill()
    comparison = json.loads(done.stdout)["comparison"]

    assert {run["arm"]: run["value"] for run in comparison["runs"]} == {"a": 10.0, "b": 15.0}
    assert after == "none"
    assert comparison["b"]["name"] == f"process.io_class@{other.pid}=idle"
    assert json.loads((tmp_path / "trials.jsonl").read_text())["fingerprint"]


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_setting_that_is_there_already_is_nothing_to_try(tmp_path: Path, yes: tuple[str, ...]) -> None:
    """Said before anybody is asked, and before a run; it was a question about 0 settings."""
    with subprocess.Popen(("sleep", "300")) as other:
        done = verify(tmp_path, "--set", f"process.io_class@{other.pid}=none", *yes, "--", "touch", str(tmp_path / "ran"))
        other.kill()

    assert done.returncode == 2
    assert "there is nothing to try: process.io_class: it is none already" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_machine_is_not_changed_without_a_yes(tmp_path: Path) -> None:
    """The plan is shown, and nothing runs and nothing is changed where nobody can be asked."""
    with subprocess.Popen(("sleep", "300")) as other:
        done = verify(tmp_path, "--set", f"process.io_class@{other.pid}=idle", "--", "touch", str(tmp_path / "ran"))
        after = io_class(other.pid)
        other.kill()

    assert done.returncode == 2
    assert "+ idle" in done.stderr
    assert "add --yes" in done.stderr
    assert after == "none"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--fix", "no.such-rule", "--", "true"), "no rule `no.such-rule`"),
        (("--fix", "drift.from-reference", "--", "true"), "finds nothing on this machine"),
        (("--set", "vm.swappiness", "--", "true"), "vm.swappiness takes"),
        (("--set", "vm.swappiness=10", "--a", "true", "--b", "true"), "give one of them"),
    ],
)
def test_what_cannot_be_tried_is_an_error(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """Unknown rules, rules without a finding, settings without a value, two things at once."""
    done = verify(tmp_path, *argv)

    assert done.returncode == 2
    assert message in done.stderr


def test_a_fix_of_variables_is_tried_without_them(tmp_path: Path) -> None:
    """A rule that looks at running programs: B is started without the variable, where it is set here."""
    environ = {**environment(tmp_path), "CUDA_LAUNCH_BLOCKING": "1"}
    command = (*SPEED, "--fix", "environment.launch-blocking", "--json", "--", "sh", "-c", "echo speed: ${CUDA_LAUNCH_BLOCKING:-2}")
    done = sysperf("verify", *command, env=environ)
    comparison = json.loads(done.stdout)["comparison"]

    assert (comparison["verdict"], round(comparison["ratio"])) == ("faster", 2)
    assert comparison["b"]["unset"] == ["CUDA_LAUNCH_BLOCKING"]


def test_ranks_are_compared_by_the_steps_of_each(tmp_path: Path) -> None:
    """A stand-in for torchrun: two ranks make steps at three quarters of the rate of one."""
    launcher = write_torch(tmp_path) / "distributed" / "run.py"
    launcher.parent.mkdir()
    (launcher.parent / "__init__.py").touch()
    launcher.write_text(
        "import os, runpy, sys\nranks = sys.argv[sys.argv.index('--nproc-per-node') + 1]\n"
        "os.environ['RANKS'] = ranks\nsys.argv = sys.argv[sys.argv.index('--nproc-per-node') + 2:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\nfrom torch.optim.optimizer import step\n"
        "for _ in range(10 if os.environ['RANKS'] == '1' else 12):\n"
        "    time.sleep(0.006 if os.environ['RANKS'] == '1' else 0.008)\n    step()\n"
    )
    environ = {**environment(tmp_path), "PYTHONPATH": str(tmp_path)}
    options = ("--ranks", "1,2", "--max-pairs", "6", "--keep-disturbed", "--seed", "1")
    done = sysperf("verify", *options, "--json", "--", sys.executable, str(script), env=environ)
    comparison = json.loads(done.stdout)["comparison"]

    assert comparison["ranks"] == [1, 2], done.stderr
    assert comparison["b"]["argv"][1:6] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert 0.5 < comparison["ratio"] < 1.0
    assert done.returncode in {0, 3}, "less efficient ranks are no finding"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("torchrun", "--nproc_per_node=8", "a.py"), ("torchrun", "--nproc-per-node", "2", "a.py")),
        (("torchrun", "--nnodes=1", "--nproc-per-node", "8", "a.py", "--nproc-per-node"), ("torchrun", "--nproc-per-node", "2", "--nnodes=1", "a.py", "--nproc-per-node")),
        (("python3", "-m", "torch.distributed.run", "a.py"), ("python3", "-m", "torch.distributed.run", "--nproc-per-node", "2", "a.py")),
        (("python", "-m", "pkg"), ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "pkg")),
    ],
)  # fmt: skip
def test_ranks_are_written_into_the_command(argv: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """A launcher's own number is replaced, the script's arguments stay."""
    from sysperf.engine.verify.variants import with_ranks

    assert with_ranks(argv, 2) == expected


@pytest.mark.slow
def test_losses_that_differ_make_a_gain_unclear(tmp_path: Path) -> None:
    """B is twice as fast and ends at another loss: that is not the same work."""
    (write_torch(tmp_path) / "_tensor.py").write_text(
        "class Tensor(float):\n    def numel(self): return 1\n    def detach(self): return self\n    def backward(self): pass\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\nfrom torch._tensor import Tensor\nfrom torch.optim.optimizer import step\n"
        "for number in range(20):\n    time.sleep(float(sys.argv[1]))\n    Tensor(sys.argv[2]).backward()\n    step()\n"
    )
    environ = {**environment(tmp_path), "PYTHONPATH": str(tmp_path)}
    options = ("--steps", "optimizer", "--max-pairs", "6", "--keep-disturbed", "--seed", "1", "--json")

    def found(loss: str) -> dict[str, object]:
        a, b = f"{sys.executable} {script} 0.008 2.0", f"{sys.executable} {script} 0.002 {loss}"
        done = subprocess.run(
            (sys.executable, "-m", "sysperf", "verify", *options, "--a", a, "--b", b),
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return dict(json.loads(done.stdout)["comparison"])

    same, other = found("2.01"), found("2.5")
    assert (same["verdict"], same["loss_a"], same["loss_b"]) == ("faster", pytest.approx(2.0), pytest.approx(2.01))
    assert other["verdict"] == "unclear"
    assert "losses differ" in str(other["reason"])


def test_every_safe_fix_is_tried_alone_and_together(tmp_path: Path) -> None:
    """A table with what each gave: by the launch rules for a program with torch, whose variables make it faster."""
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('speed:', 12 if 'MALLOC_TRIM_THRESHOLD_' in os.environ else 10)\n")
    kept = {name: value for name, value in environment(tmp_path).items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_PRELOAD"))}
    words = (*SPEED, "--all", "--yes", "--json", "--", sys.executable, str(script))
    done = sysperf("verify", *words, env={**kept, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    tried = {tuple(fix["rules"]): fix for fix in json.loads(done.stdout)["tried"]}
    allocator = tried["launch.page-faults-likely",]

    assert allocator["comparison"]["verdict"] == "faster"
    assert allocator["certain"] is True
    assert "speed" in allocator["promised"]
    assert [fix for rules, fix in tried.items() if len(rules) > 1 and fix["comparison"]["verdict"] != "faster"] == []


@pytest.mark.root(mounts=True)
def test_a_full_disk_takes_no_result_away(full: Path) -> None:
    """The verdict is printed, what could not be kept is said once, and nothing is left half-written."""
    done = verify(full, *SPEED, "--a", says(10), "--b", says(12))

    assert "B is 20.0 % faster than A" in done.stdout
    assert done.returncode == 0
    assert done.stderr.count("--resume will not find it") == 1
    assert "the result is not kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path in full.rglob("*") if path.is_file() and path.name != "fill" and path.stat().st_size] == []


def test_a_study_is_that_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python train.py` in two folders are two programs: neither goes on with the other's runs."""
    both = (*SPEED, "--a", says(10), "--b", says(12), "--resume")
    monkeypatch.chdir(tmp_path)
    verify(tmp_path, *both[:-1])
    here = verify(tmp_path, *both)
    monkeypatch.undo()
    elsewhere = verify(tmp_path, *both)

    assert here.returncode == 0
    assert elsewhere.returncode == 2
    assert "no interrupted study" in elsewhere.stderr


def test_what_varies_between_pairs_is_the_same_in_both_runs_of_one(tmp_path: Path) -> None:
    """The hash seed and the size of the environment; what the user set stays."""
    words = (*SPEED, "--json", "--a", "sh -c 'echo speed: $PYTHONHASHSEED'", "--b", "sh -c 'echo speed: $PYTHONHASHSEED'")
    runs = json.loads(verify(tmp_path, *words).stdout)["comparison"]["runs"]
    seeds = [{run["value"] for run in runs if run["pair"] == pair} for pair in range(7)]
    mine = subprocess.run(
        (sys.executable, "-m", "sysperf", "verify", *words),
        env={**environment(tmp_path), "PYTHONHASHSEED": "5"}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert [len(of_pair) for of_pair in seeds] == [1] * 7
    assert len(set.union(*seeds)) == 7
    assert {run["value"] for run in json.loads(mine.stdout)["comparison"]["runs"]} == {5.0}


def test_a_value_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    """A speed that became nan: what was printed is said."""
    done = verify(tmp_path, "--metric", "speed: (.*)", "--a", "echo speed: nan", "--b", "echo speed: 1")

    assert done.returncode == 2
    assert "A printed nan" in done.stderr


JUMPING = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
/* The clock of the day jumps by a day, forwards and backwards in turn, each time that somebody reads it. */
static int calls;
static long jump(void) { return 86400L * (++calls % 2 ? 1 : -1); }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += jump();
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed) now->tv_sec += jump();
    return failed;
}
time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library in front of libc, with which the clock of the day jumps."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: install gcc")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "jumping.c").write_text(JUMPING)
    subprocess.run((compiler, "-shared", "-fPIC", "-o", folder / "jumping.so", folder / "jumping.c"), check=True)
    return folder / "jumping.so"


def test_a_clock_that_jumps_changes_no_time(tmp_path: Path, jumping: Path) -> None:
    """Runs, limits, the budget, steps and leases use clocks that nobody sets; the program itself sees the jumps."""
    write_torch(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\nfrom torch.optim.optimizer import step\n"
        "assert abs(time.time() - time.time()) > 80_000\n"
        "for _ in range(12):\n    time.sleep(0.01)\n    step()\n"
    )
    with subprocess.Popen(("sleep", "300")) as other:
        done = subprocess.run(
            (
                sys.executable, "-m", "sysperf", "verify", "--steps", "optimizer", "--max-pairs", "2", "--keep-disturbed", "--minutes", "2",
                "--limit", "60", "--yes", "--json", "--set", f"process.io_class@{other.pid}=idle", "--", sys.executable, str(script),
            ),
            env={**environment(tmp_path), "PYTHONPATH": str(tmp_path), "LD_PRELOAD": str(jumping)},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        after = io_class(other.pid)
        other.kill()
    assert done.returncode in {0, 1, 3}, done.stderr
    comparison = json.loads(done.stdout)["comparison"]

    assert (comparison["pairs"], len(comparison["runs"])) == (2, 6)
    assert all(0.1 < run["wall_s"] < 60 for run in comparison["runs"])
    assert all(1 < run["value"] < 100 for run in comparison["runs"])
    assert after == "none"


def wait_for(pid: int, name: str, seconds: float = 60.0) -> bool:
    """Whether a process gets this I/O class in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if io_class(pid) == name:
            return True
        time.sleep(0.05)
    return False


def sleeps(marker: str) -> bool:
    """Whether the program that sleeps so long runs."""
    return bool(subprocess.run(("pgrep", "-f", f"^sleep {marker}$"), check=False, capture_output=True).stdout)


def where_set(pid: int, command: str) -> tuple[str, ...]:
    """What runs a command where this process has the I/O class idle, and else ends at once."""
    return ("sh", "-c", f"{read_level(pid)}; [ $level = 5 ] || exit 0; exec {command}")


def test_kill_9_during_a_run_with_a_setting_gives_it_back(tmp_path: Path) -> None:
    """The run ends at once with all its children, the setting soon after, however long a run may take: its lease is short."""
    marker = f"81{os.getpid()}"
    with subprocess.Popen(("sleep", "300")) as other:
        words = [
            "verify",
            "--limit",
            "3000",
            "--yes",
            "--set",
            f"process.io_class@{other.pid}=idle",
            "--",
            *where_set(other.pid, f"sleep {marker}"),
        ]
        script = (
            "import sys\nfrom sysperf.cli import main\nfrom sysperf.engine.verify import lease as verify_lease\n"
            f"verify_lease.LEASE_S, verify_lease.RENEW_S = 2.0, 0.5\nsys.exit(main({words!r}))\n"
        )
        with subprocess.Popen((sys.executable, "-c", script), env=environment(tmp_path), stderr=subprocess.DEVNULL) as killed:
            end = time.monotonic() + 30
            while not sleeps(marker) and time.monotonic() < end:
                time.sleep(0.05)
            applied = io_class(other.pid)
            killed.send_signal(signal.SIGKILL)
        back = wait_for(other.pid, "none")
        other.kill()

    assert applied == "idle"
    assert back
    assert not sleeps(marker)


def test_a_setting_stays_as_long_as_its_run(tmp_path: Path) -> None:
    """The run takes three times as long as the lease, which is renewed; afterwards the setting is taken back."""
    with subprocess.Popen(("sleep", "300")) as other:
        look = read_level(other.pid)
        program = f"{look}; [ $level = 0 ] || sleep 3; {look}; echo level: $((10 + level))"
        words = [
            "verify", "--metric", "level: ([0-9]+)", "--higher-is-better", "--minutes", "0.04", "--json", "--yes",
            "--set", f"process.io_class@{other.pid}=idle", "--", "sh", "-c", program,
        ]  # fmt: skip
        script = (
            "import sys\nfrom sysperf.cli import main\nfrom sysperf.engine.verify import lease as verify_lease\n"
            f"verify_lease.LEASE_S, verify_lease.RENEW_S = 1.0, 0.3\nsys.exit(main({words!r}))\n"
        )
        done = subprocess.run(
            (sys.executable, "-c", script), env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=300
        )
        after = io_class(other.pid)
        other.kill()
    comparison = json.loads(done.stdout)["comparison"]

    assert [(run["arm"], run["value"]) for run in comparison["runs"]] == [("a", 10.0), ("b", 15.0)]
    assert after == "none"


@pytest.mark.parametrize(("renew_s", "run_s"), [(0.3, 50), (20.0, 3)])
def test_a_run_without_its_setting_ends_the_study(tmp_path: Path, renew_s: float, run_s: int) -> None:
    """Somebody took the setting back during the run: what is measured then is not B, also where the run ends before a renewal."""
    with subprocess.Popen(("sleep", "300")) as other:
        words = ["verify", "--yes", "--set", f"process.io_class@{other.pid}=idle", "--", *where_set(other.pid, f"sleep {run_s}")]
        script = (
            "import sys\nfrom sysperf.cli import main\nfrom sysperf.engine.verify import lease as verify_lease\n"
            f"verify_lease.LEASE_S, verify_lease.RENEW_S = 60.0, {renew_s}\nsys.exit(main({words!r}))\n"
        )
        with subprocess.Popen((sys.executable, "-c", script), env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as study:
            applied = wait_for(other.pid, "idle")
            subprocess.run((sys.executable, "-m", "sysperf", "undo"), env=environment(tmp_path), check=True, capture_output=True)
            _, stderr = study.communicate(timeout=300)
        other.kill()

    assert applied
    assert study.returncode == 2
    assert "no lease that could be renewed" in stderr


@pytest.mark.parametrize(
    ("number", "delay_s"), [(signal.SIGINT, 0.0), (signal.SIGINT, 0.02), (signal.SIGINT, 0.05), (signal.SIGTERM, 0.02)]
)
def test_a_signal_while_a_setting_is_there_takes_it_back_at_once(tmp_path: Path, number: signal.Signals, delay_s: float) -> None:
    """Sent again and again, also while the setting is being taken back."""
    with subprocess.Popen(("sleep", "300")) as other:
        words = ("--limit", "100", "--yes", "--set", f"process.io_class@{other.pid}=idle", "--", *where_set(other.pid, "sleep 99"))
        with subprocess.Popen(
            (sys.executable, "-m", "sysperf", "verify", *words),
            env=environment(tmp_path),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as stopped:
            applied = wait_for(other.pid, "idle")
            for _ in range(10):
                stopped.send_signal(number)
                time.sleep(delay_s or 0.0005)
        after = io_class(other.pid)
        other.kill()

    assert applied
    assert after == "none"


def test_what_nohup_ignores_ends_no_study(tmp_path: Path) -> None:
    """The terminal is closed, and the study goes on."""
    command = ("nohup", sys.executable, "-m", "sysperf", "verify", "--max-pairs", "2", "--keep-disturbed", "--json", "--", "sleep", "0.3")
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as study:
        assert study.stderr
        study.stderr.readline()
        study.send_signal(signal.SIGHUP)
        stdout, stderr = study.communicate(timeout=300)

    assert json.loads(stdout)["comparison"]["pairs"] == 2, stderr


def test_a_study_is_not_gone_on_with_on_another_machine(tmp_path: Path) -> None:
    """A new kernel, say: pairs of before and after are none. A study whose file does not say how the machine was goes on."""
    both = (*SPEED, "--a", says(10), "--b", says(12))
    verify(tmp_path, *both)
    (file,) = (tmp_path / "verify").iterdir()
    state = json.loads(file.read_text())
    file.write_text(json.dumps({**state, "machine": {**state["machine"], "cpu.model_name": "Z80\x1b[2J"}}))
    refused = verify(tmp_path, *both, "--resume")
    file.write_text(json.dumps({name: value for name, value in state.items() if name != "machine"}))
    earlier = verify(tmp_path, *both, "--resume")

    assert refused.returncode == 2
    assert "the machine has changed since this study began: cpu.model_name was Z80" in refused.stderr
    assert "without --resume" in refused.stderr
    assert "\x1b" not in refused.stderr
    assert earlier.returncode == 0, earlier.stderr


def test_a_file_of_a_study_is_never_larger_than_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What would be larger is not written: the earlier part stays, and it is said once."""
    file = StudyFile(str(tmp_path / "study.json"))
    plan = Plan(a=Variant("a", ("true",)), b=Variant("b", ("true",)))
    huge = State(plan=plan, runs=(Run(0, "a", 1.0, 1.0, 1.0, step_times_s=tuple(map(float, range(2_000_000)))),))
    file.write(State(plan=plan))
    file.write(huge)
    file.write(huge)
    steps = tuple(1e9 + number / 3 for number in range(MAX_KEPT_STEPS))
    largest = State(plan=plan, runs=tuple(Run(0, arm, 1.0, 1.0, 1.0, step_times_s=steps) for arm in ("a", "b")))
    kept = file.read(State)
    file.write(largest)

    assert kept == State(plan=plan)
    assert capsys.readouterr().err.count("more than 16 MiB") == 1
    assert file.read(State) == largest


def on_terminal(home: Path, *options: str, **variables: str) -> bytes:
    """What a study writes to stderr, which is a terminal without a size."""
    master, slave = pty.openpty()
    argv = (sys.executable, "-m", "sysperf", "verify", *SPEED, *options, "--a", says(10), "--b", says(12))
    with subprocess.Popen(argv, env={**environment(home), **variables}, stdout=subprocess.DEVNULL, stderr=slave) as sysperf:
        os.close(slave)
        output = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last program
            while part := os.read(master, 1_000):
                output += part
    os.close(master)

    assert sysperf.returncode == 0
    return output


def test_a_terminal_that_does_not_know_its_size_shows_how_the_study_stands(tmp_path: Path) -> None:
    """As that of `script` in CI, which has 0 columns."""
    output = on_terminal(tmp_path, TERM="xterm")

    assert b"pairs, next look at 6" in output
    assert b"6 pairs, the last look" in output
    assert b"\x1b[K" in output


def test_a_terminal_that_can_take_no_line_back_gets_a_line_for_each_state(tmp_path: Path) -> None:
    """TERM=dumb, as in Emacs: no control sequences."""
    output = on_terminal(tmp_path, TERM="dumb")

    assert b"pairs, next look at 6" in output
    assert b"\x1b" not in output


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("verify", "--output", "/nothing/of/this/name/report"), "No such file or directory"),
        (("verify", "--json", "--output", "/"), "Is a directory"),
        (("verify", "--all", "--output", ""), "Is a directory"),
        (("verify", "--output", "/proc/report"), "/proc/report: "),
        (("tune", "--output", "/nothing/of/this/name/report"), "No such file or directory"),
        (("diagnose", "--output", "/nothing/of/this/name/report"), "No such file or directory"),
    ],
)
def test_a_report_that_cannot_be_written_is_found_out_before_the_first_run(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    """Not after an hour."""
    done = sysperf(*words, "--", "touch", str(tmp_path / "ran"), env=environment(tmp_path), timeout=300)

    assert done.returncode == 2
    assert problem in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_report_takes_the_place_of_an_older_one_alone(tmp_path: Path) -> None:
    """Looking whether it can be written changes nothing: a run that fails leaves the older one, and no other file."""
    report = tmp_path / "reports" / "verify.txt"
    report.parent.mkdir()
    report.write_text("older")
    verify(tmp_path, "--output", str(report), "--", "false")
    assert report.read_text() == "older"

    verify(tmp_path, *SPEED, "--output", str(report), "--a", says(10), "--b", says(12))
    assert "B is 20.0 % faster than A" in report.read_text()
    assert [path.name for path in report.parent.iterdir()] == ["verify.txt"]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([("unclear", False), ("unclear", False)], Exit.PARTIAL),
        ([("unclear", False), ("same", False)], Exit.CLEAN),
        ([("faster", False)], Exit.PARTIAL),
        ([("faster", True)], Exit.CLEAN),
        ([("slower", True), ("unclear", False)], Exit.FINDINGS),
        ([], Exit.PARTIAL),
    ],
)
def test_all_fixes_undecided_is_no_success(verdicts: list[tuple[Verdict, bool]], code: Exit) -> None:
    """Of all fixes together: one that was decided is enough; none that could be tried decides nothing."""
    variant = Variant("plain", ("true",))

    def compared(verdict: Verdict) -> Comparison:
        reason, ratio = ("the time is over after 1 pair", None) if verdict == "unclear" else ("", 1.1)
        return Comparison(
            a=variant, b=variant, metric=Metric("wall time", "s"), verdict=verdict, reason=reason, ratio=ratio, low=ratio, high=ratio, pairs=1
        )  # fmt: skip

    fixes = [TriedFix(rules=("x",), comparison=compared(verdict), certain=certain) for verdict, certain in verdicts]

    assert verify_all.exit_code(fixes or [TriedFix(rules=("x",), problem="it failed")]) == code
    unclear = ("unclear", False) in verdicts
    for page in (report.tried(fixes), report.tried_markdown(fixes), comparison_page.tried_page(fixes)):
        assert ("unclear, 1 pair" in page, "unclear of x" in page, "the time is over after 1 pair" in page) == (unclear,) * 3


def test_a_cause_that_no_audit_finds_says_how_to_compare(tmp_path: Path) -> None:
    """Its cure is a change of the program: nothing here would try it."""
    done = verify(tmp_path, "--fix", "sync.per-step", "--", "true")

    assert done.returncode == 2
    assert 'sysperf verify --a "python old.py" --b "python new.py"' in done.stderr


@pytest.mark.parametrize(
    ("names", "before", "after", "what"),
    [
        ("AB", "python /home/u/train_before.py", "python /home/u/train.py", "train.py instead of train_before.py"),
        ("AB", "python train.py", "python train.py --compile", "--compile instead of nothing"),
        ("AB", "./a", "./b", "B instead of A: a"),
        (("plain", "wrapped"), "python -u train.py", "sysperf wrap -- python -u train.py", "wrapped instead of plain: train.py"),
    ],
)
def test_a_result_says_what_was_compared(names: Any, before: str, after: str, what: str) -> None:
    """The dashboard's list of results tells two studies of one program apart."""
    a, b = (Variant(name=name, argv=tuple(command.split())) for name, command in zip(names, (before, after), strict=True))
    assert _measuring.compared(a, b) == what


def test_each_run_is_prepared_and_that_takes_no_time_of_it(tmp_path: Path) -> None:
    """What a run leaves is taken away before the next one, by sh; a run that found it would fail."""
    log, left = tmp_path / "log", tmp_path / "left"
    program = f"""sh -c 'test ! -e {left} && echo {{}} >> {log} && touch {left} && echo speed: 1{{}}'"""
    both = ("--a", program.format("a", "0"), "--b", program.format("b", "2"))
    prepare = f"sleep 0.3; rm -f {left}; echo p >> {log}"
    done = verify(tmp_path, *SPEED, "--json", "--prepare", prepare, *both)
    runs = json.loads(done.stdout)["comparison"]["runs"]

    assert done.returncode == 0, done.stderr
    assert log.read_text().split()[::2] == ["p"] * len(runs)
    assert sorted(log.read_text().split()[1::2]) == ["a"] * 7 + ["b"] * 7
    assert min(run["wall_s"] for run in runs) < 0.3
    assert verify(tmp_path, *SPEED, *both).returncode == 2  # without it, the next run finds what was left


def test_what_cannot_prepare_ends_the_study(tmp_path: Path) -> None:
    """With its last words, and before anything is measured."""
    done = verify(tmp_path, *SPEED, "--prepare", "echo no such bucket; exit 4", "--a", says(1), "--b", says(2))

    assert done.returncode == 2
    assert "--prepare ended with exit code 4" in done.stderr
    assert "no such bucket" in done.stderr


def test_ctrl_c_while_the_first_run_is_prepared_leaves_nothing_and_promises_nothing(tmp_path: Path) -> None:
    """No run was made: there is none to go on from, none to draw, and what prepared is gone."""
    prepare = f"touch {tmp_path / 'begun'}; exec sleep 54321.{os.getpid()}"
    command = ("verify", *SPEED, "--prepare", prepare, "--a", says(1), "--b", says(2))
    with subprocess.Popen(
        (sys.executable, "-m", "sysperf", *command), env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)

    assert process.returncode == Exit.PARTIAL
    assert "interrupted before a pair was complete" in printed
    for untrue in ("had ended", "--resume", "median"):
        assert untrue not in printed + said
    assert not [1 for path in Path("/proc").glob("[0-9]*/cmdline") if f"54321.{os.getpid()}" in _content(path)]


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_what_must_stay_is_not_started_to_prepare(tmp_path: Path) -> None:
    """The hint tells where to start it: a run in the foreground is no cure for a server."""
    done = verify(tmp_path, *SPEED, "--prepare", "sleep 300 & true", "--a", says(1), "--b", says(2))

    assert done.returncode == 2
    assert "--prepare left something running" in done.stderr
    assert "start before sysperf what has to stay" in done.stderr


def test_a_terminal_shows_that_a_run_is_prepared(tmp_path: Path) -> None:
    """From its first second on: who sees nothing ends it."""
    first = tmp_path / "first"
    output = on_terminal(tmp_path, "--prepare", f"test -e {first} || {{ touch {first}; sleep 1.5; }}", TERM="xterm")

    assert b"--prepare runs, 1 s" in output


def test_what_runs_print_is_shown_where_that_is_asked_for(tmp_path: Path) -> None:
    """On stderr, whole and in both variants; stdout holds the report alone."""
    both = ("--a", says(10.0), "--b", says(12.0))
    shown = verify(tmp_path, *SPEED, "--show-output", *both)

    assert shown.stderr.splitlines().count("speed: 10.0") == shown.stderr.splitlines().count("speed: 12.0") == 7
    assert "\nspeed: 1" not in shown.stdout
    assert "\nspeed: 1" not in verify(tmp_path, *SPEED, *both).stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("threads.one-busy", "--", "true"), "sysperf tune --fix threads.one-busy -- "),
        (("gpu.pcie-width-degraded",), "sysperf bench host --only gpu, before and after"),
        (("dataloader.pin-memory-off", "--", "true"), "programs of sysperf's own tell it"),
        (("dataloader.pin-memory-off", "--python", sys.executable), "this cannot be measured here: "),
    ],
)
def test_advice_that_a_comparison_does_not_tell_names_what_does(tmp_path: Path, words: tuple[str, ...], hint: str) -> None:
    """Before anything runs; nothing is kept."""
    done = sysperf("verify", "--fix", *words, env={**environment(tmp_path), "CUDA_VISIBLE_DEVICES": ""})

    assert done.returncode == 2
    assert hint in done.stderr
    assert not list(tmp_path.rglob("trials.jsonl"))

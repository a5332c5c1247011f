"""`sysperf wrap` as a person meets it: real programs, real signals, what the kernel says of the process afterwards."""

from __future__ import annotations

import functools
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf.cli import wrap
from sysperf.cli._options import parser
from sysperf.injected import FOLDER
from sysperf.ownership import stranger
from tests.conftest import fixture_folder
from tests.invoking import program, sysperf
from tests.privileges import AS_ROOT, as_a_user, real_root

WRAP = [sys.executable, "-m", "sysperf", "wrap"]
CPUS = sorted(os.sched_getaffinity(0))
MINE = ("OMP_", "MALLOC_", "LD_PRELOAD", "SYSPERF_", "GLIBC_TUNABLES", "LOCAL_", "SLURM_", "MKL_", "KMP_", "GOMP_", "PYTHONPATH")
BASE = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}
SHOW = "import os, json; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0)), os.getpid(), os.getppid()]), flush=True)"


@pytest.fixture(autouse=True)
def _no_site_rules(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("config")
    monkeypatch.setitem(BASE, "XDG_CONFIG_HOME", str(folder))
    monkeypatch.setitem(BASE, "XDG_CACHE_HOME", str(folder))


@pytest.fixture
def torch_python(tmp_path: Path) -> str:
    """An interpreter whose environment has a torch, as far as files tell."""
    site = tmp_path / "env/lib/python3.11/site-packages/torch"
    (site / "lib").mkdir(parents=True)
    (site / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    (site / "lib/libgomp.so.1").touch()
    (tmp_path / "env/bin").mkdir()
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    (tmp_path / "env/bin/python").symlink_to(os.path.realpath(sys.executable))
    return str(tmp_path / "env/bin/python")


def run(
    *words: str, env: dict[str, str] | None = None, stdin: str = "", options: tuple[str, ...] = (), **other: object
) -> subprocess.CompletedProcess[str]:
    """`sysperf wrap OPTIONS -- WORDS`."""
    if not other:
        return sysperf("wrap", *options, "--", *words, env={**BASE, **(env or {})}, stdin=stdin)
    return subprocess.run(  # type: ignore[call-overload,no-any-return]  # keyword arguments of a test
        [*WRAP, *options, "--", *words],
        env={**BASE, **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **other,
    )


def inside(python: str, *options: str, env: dict[str, str] | None = None) -> tuple[dict[str, str], list[int]]:
    """(environment, CPUs) of a wrapped program."""
    done = run(python, "-c", SHOW, options=options, env=env)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    return seen[0], seen[1]


# ---------------------------------------------------------------------- exec


@pytest.mark.parametrize("code", [0, 1, 2, 42, 255])
def test_exit_codes_are_the_programs(code: int) -> None:
    """Whatever it says."""
    assert run("sh", "-c", f"exit {code}").returncode == code


def test_nothing_of_us_stays() -> None:
    """The process that was started is the program: same number, our parent is its parent."""
    process = subprocess.Popen([*WRAP, "-q", "--", sys.executable, "-c", SHOW], stdout=subprocess.PIPE, env=BASE)
    out, _ = process.communicate(timeout=300)

    assert json.loads(out)[2:] == [process.pid, os.getpid()]


def test_nothing_on_stdout_and_one_line_on_stderr() -> None:
    """stdout is the program's, also with everything to say."""
    done = run("printf", "x", env={"GOMP_CPU_AFFINITY": "0"}, options=("--threads", "1", "--set", "A=1"))

    assert done.stdout == "x"
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("sysperf wrap: ")
    assert run("true", options=("-q",)).stderr == ""


def test_signals_end_the_program_itself() -> None:
    """A program ended by a signal is seen so by our parent."""
    assert run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_a_closed_pipe_ends_it() -> None:
    """Python ignores SIGPIPE; a wrapped `yes | head` must end all the same."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{shlex.join([*WRAP, '-q', '--', 'yes'])} | head -1"],
        capture_output=True,
        env=BASE,
        timeout=300,
        check=False,
    )

    assert (done.stdout, done.returncode) == (b"y\n", 128 + signal.SIGPIPE)


def test_ignored_signals_stay_ignored() -> None:
    """`nohup sysperf wrap …` keeps its protection, and nothing else changes."""
    grep = ["grep", "SigIgn", "/proc/self/status"]
    plain, wrapped = (
        int(subprocess.run(["nohup", *argv], capture_output=True, text=True, env=BASE, timeout=300, check=False).stdout.split()[1], 16)
        for argv in (grep, [*WRAP, "-q", "--", *grep])
    )

    assert wrapped == plain
    assert wrapped & 1 << (signal.SIGHUP - 1)


def test_stdin_is_the_programs() -> None:
    """Every byte of it."""
    assert run("cat", stdin="a\n" * 5000).stdout == "a\n" * 5000


def test_arguments_arrive_as_they_are() -> None:
    """Newlines, empty words, dashes and bytes that are no text."""
    words = ["a\nb", "", "--", "-x", "--debug", "ü", "$HOME", "*"]
    done = subprocess.run(
        [*map(os.fsencode, WRAP), b"-q", b"--", b"printf", b"%s|", *map(os.fsencode, words), b"\xff\xfe"],
        capture_output=True,
        env=BASE,
        timeout=300,
        check=False,
    )

    assert done.stdout == b"|".join([*map(os.fsencode, words), b"\xff\xfe", b""])


def test_a_command_that_begins_with_a_dash(tmp_path: Path) -> None:
    """After `--` every word is the command's."""
    (tmp_path / "-prog").write_text("#!/bin/sh\necho dash\n")
    (tmp_path / "-prog").chmod(0o755)

    assert run("-prog", env={"PATH": f"{tmp_path}:{BASE['PATH']}"}).stdout == "dash\n"


def test_without_the_two_dashes() -> None:
    """As with env and nice, the first word that is no option begins the command; its options are its own."""
    done = subprocess.run(
        [*WRAP, "--threads", "1", "printf", "%s", "--debug"], capture_output=True, text=True, env=BASE, timeout=300, check=False
    )

    assert done.stdout == "--debug"


def test_not_found_and_not_executable(tmp_path: Path) -> None:
    """127 and 126, as shells have them, and one line that says which."""
    (tmp_path / "script").write_text("#!/nowhere/python\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "data").write_bytes(b"\0\1\2")
    (tmp_path / "data").chmod(0o755)

    assert run("no-such-program").returncode == 127
    assert "not found" in run("no-such-program").stderr
    assert run("/no/such/program").returncode == 127
    assert run(str(tmp_path / "script")).returncode == 127
    assert run("/etc/passwd").returncode == 126
    assert run(str(tmp_path)).returncode == 126
    assert run(str(tmp_path / "data")).returncode == 126


def test_a_script_that_is_named_without_python_says_how_it_is_run(tmp_path: Path) -> None:
    """That is what a newcomer types; where the file is none, there is nothing to run."""
    (tmp_path / "train.py").write_text("print(1)\n")

    assert "train.py: Permission denied; a script is run as: python " in run(str(tmp_path / "train.py")).stderr
    assert "python " not in run(str(tmp_path / "missing.py")).stderr


def test_a_folder_of_path_that_may_not_be_searched_hides_nothing(tmp_path: Path) -> None:
    """A name that is nowhere else is not found."""
    (tmp_path / "secret").mkdir(mode=0)

    argv = (*as_a_user(), sys.executable, "-m", "sysperf", "wrap", "--", "no-such-program")
    env = {**BASE, "PATH": f"{tmp_path / 'secret'}:{os.environ['PATH']}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, "not found" in done.stderr) == (127, True)


def test_a_program_in_a_folder_that_may_not_be_searched_is_refused(tmp_path: Path) -> None:
    """It was named with its folder: that it is not there is not known."""
    (tmp_path / "secret").mkdir(mode=0)
    argv = (*as_a_user(), sys.executable, "-m", "sysperf", "wrap", "--", str(tmp_path / "secret" / "program"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert (done.returncode, "Permission denied" in done.stderr) == (126, True)


def test_a_script_without_a_first_line(tmp_path: Path) -> None:
    """It is the shell's, as when env, nice or a shell starts it."""
    (tmp_path / "script").write_text('echo "$0 $1"\n')
    (tmp_path / "script").chmod(0o755)

    assert run("script", "a b", env={"PATH": f"{tmp_path}:{BASE['PATH']}"}).stdout == f"{tmp_path}/script a b\n"


def test_a_name_that_a_terminal_would_act_on() -> None:
    """Escaped in what we say; one line stays one line."""
    for options in ((), ("--dry-run",), ("--explain",)):
        done = run("no\x1b[31m\nprogram", options=options)
        assert "\x1b" not in done.stdout + done.stderr, options
        assert "no\\x1b[31m\\x0aprogram" in done.stdout + done.stderr, options


def test_ten_thousand_variables_and_more_than_fit() -> None:
    """All arrive; too many are the kernel's refusal, not a traceback."""
    many = {f"VARIABLE_{index}": "x" * 20 for index in range(10_000)}

    assert len(inside(sys.executable, env=many)[0]) >= 10_000


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A program can be started from a folder that was removed."""
    folder = tmp_path / "gone"
    folder.mkdir()
    script = f"cd {shlex.quote(str(folder))} && rmdir {shlex.quote(str(folder))} && {shlex.join([*WRAP, '-q', '--', 'echo', 'ok'])}"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env={**BASE, "PYTHONPATH": os.getcwd()}, timeout=300, check=False
    )

    assert done.stdout == "ok\n"


@pytest.mark.parametrize("options", [(), ("-q",)])
def test_the_short_way_and_the_long_way_are_one(options: tuple[str, ...]) -> None:
    """Without options argparse is not loaded: the defaults are the same."""
    built, _ = parser("wrap")
    parsed = vars(built.parse_args([*options]))
    parsed.pop("command")

    assert {**wrap._DEFAULTS, "quiet": bool(options)} == parsed


# ---------------------------------------------------------------------- what is changed


def test_a_program_without_torch_is_left_alone() -> None:
    """No variable but the mark of the wrap, the same CPUs."""
    env, cpus = inside(sys.executable)

    assert {name for name in env if name not in BASE} <= {"SYSPERF_WRAPPED", "LC_CTYPE"}
    assert cpus == CPUS


def test_a_program_with_torch(torch_python: str) -> None:
    """glibc keeps its pages; nothing that binds OpenMP threads; the mask stays whole."""
    env, cpus = inside(torch_python)

    kept = int(env["MALLOC_TRIM_THRESHOLD_"])
    assert kept <= 4 << 30, "never more than 4 GiB, and an eighth of what is free"
    assert kept.bit_count() == 1, "the same from one start to the next"
    assert not {"GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY"} & set(env)
    assert cpus == CPUS


def test_the_user_wins(torch_python: str) -> None:
    """Variables, tools and options of the user stay, and the line says so."""
    done = run(torch_python, "-c", SHOW, env={"OMP_WAIT_POLICY": "active", "MALLOC_TOP_PAD_": "1"}, options=("--threads", "3"))
    env = json.loads(done.stdout)[0]

    assert (env["OMP_WAIT_POLICY"], env["MALLOC_TOP_PAD_"], env["OMP_NUM_THREADS"]) == ("active", "1", "3")
    assert "kept" in done.stderr
    assert "MALLOC_TOP_PAD_=1" in done.stderr


def test_skip_and_only(torch_python: str) -> None:
    """Rules are chosen by id; one that is not there is named with its neighbour."""
    assert "MALLOC_TRIM_THRESHOLD_" not in inside(torch_python, "--skip", "launch.page-faults-likely")[0]
    assert "MALLOC_TRIM_THRESHOLD_" in inside(torch_python, "--only", "launch.page-faults-likely")[0]
    done = run("true", options=("--skip", "launch.page-fault-likely"))
    assert (done.returncode, "did you mean `launch.page-faults-likely`" in done.stderr) == (2, True)


def test_a_sites_rules(torch_python: str, tmp_path: Path) -> None:
    """A site adds, changes and disables rules without code; a wrong file does not keep programs from starting."""
    rules = Path(BASE["XDG_CONFIG_HOME"]) / "sysperf/rules.d"
    rules.mkdir(parents=True, exist_ok=True)
    (rules / "site.toml").write_text(
        'schema = 1\n[[override]]\nrule = "launch.page-faults-likely"\ndisabled = true\n'
        '[[rule]]\nid = "site.tokenizers"\ntitle = "t"\nscope = "launch"\nseverity = "info"\nmessage = "m"\nwhen = "launch.torch"\n'
        'explain = "e"\nfix = [{ kind = "env", set = { TOKENIZERS_PARALLELISM = "false" }, safety = "safe" }]\n'
        '[[rule]]\nid = "site.host"\ntitle = "t"\nscope = "host"\nseverity = "info"\nmessage = "m"\nwhen = "memory.swappiness > 1"\nexplain = "e"\n'
    )
    env, _ = inside(torch_python)
    assert env.get("TOKENIZERS_PARALLELISM") == "false"
    assert "MALLOC_TRIM_THRESHOLD_" not in env

    (rules / "site.toml").write_text("schema = 9")
    done = run(torch_python, "-c", "print('started')")
    assert (done.stdout, "rules are not used" in done.stderr) == ("started\n", True)
    shutil.rmtree(rules)


def test_affinity_variables_are_warned_about(torch_python: str) -> None:
    """They pin every loader worker to one CPU; they stay, because they are the user's."""
    done = run(torch_python, "-c", SHOW, env={"GOMP_CPU_AFFINITY": "0"})

    assert "warning: GOMP_CPU_AFFINITY binds the main thread, and with it every loader worker" in done.stderr
    assert json.loads(done.stdout)[0]["GOMP_CPU_AFFINITY"] == "0"


def test_a_preload_that_is_not_there_is_noticed() -> None:
    """The loader only prints a line; we say which rule and what to do."""
    done = run("true", env={"LD_PRELOAD": "/nowhere/libjemalloc.so.1"})

    assert done.returncode == 0
    assert "/nowhere/libjemalloc.so.1, which is not there" in done.stderr


def test_an_allocator_that_is_not_installed(torch_python: str) -> None:
    """The program starts without it, and is told what to install; with one in its own environment it is preloaded."""
    missing = run(torch_python, "-c", SHOW, options=("--allocator", "mimalloc"))
    if "LD_PRELOAD" not in json.loads(missing.stdout)[0]:
        assert "no mimalloc was found here" in missing.stderr
    library = Path(torch_python).parent.parent / "lib/libmimalloc.so.2"
    source = next(path for path in map(Path, _mapped()) if path.name.startswith("libm.so") or path.name.startswith("libc.so"))
    shutil.copy(source, library)

    env, _ = inside(torch_python, "--allocator", "mimalloc")
    assert env["LD_PRELOAD"] == str(library)


def _mapped() -> Iterator[str]:
    yield from {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith((".so.6", ".so"))}


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_cpus_asked_for(torch_python: str) -> None:
    """The mask is what was asked for; threads follow; the kernel says so."""
    env, cpus = inside(torch_python, "--cpus", str(CPUS[1]))

    assert cpus == [CPUS[1]]
    assert env.get("OMP_NUM_THREADS") is None  # one CPU starts one thread by itself


def test_wishes_that_cannot_be_met() -> None:
    """Exit 2, the reason and what would work; the program is not started."""
    for options in (
        ("--cpus", "9999"),
        ("--node", "99"),
        ("--cpus", "x"),
        ("--memory", "much"),
        ("--threads", "0"),
        ("--set", "=1"),
        ("--nproc", "0"),
        ("--profile", "/nowhere"),
    ):
        done = run("echo", "started", options=options)
        assert (done.returncode, done.stdout) == (2, ""), options
        assert "Traceback" not in done.stderr
    assert run().returncode == 2
    assert run("").returncode == 2


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_taskset_in_the_command_and_outside(torch_python: str) -> None:
    """In the command it decides; outside it is the mask that we may use."""
    done = run("taskset", "-c", str(CPUS[0]), torch_python, "-c", SHOW)
    assert json.loads(done.stdout)[1] == [CPUS[0]]

    outside = subprocess.run(
        ["taskset", "-c", str(CPUS[1]), *WRAP, "-q", "--", torch_python, "-c", SHOW],
        capture_output=True,
        env=BASE,
        timeout=300,
        check=False,
    )
    assert json.loads(outside.stdout)[1] == [CPUS[1]]


@pytest.mark.parametrize("tool", [["taskset", "-c", "0-1:1"], ["numactl", "-C", "+0"], ["hwloc-bind", "core:0", "--"]])
def test_cpus_that_a_tool_chooses_in_words_of_its_own(torch_python: str, tool: list[str]) -> None:
    """How many they are is not known, so neither is how many threads: none are set, where the whole machine's would be too many."""
    decision = json.loads(run(*tool, torch_python, "x.py", options=("--json",)).stdout)

    assert (decision["launch"]["threads"], decision["launch"]["cpus"]) == (None, None)
    assert "OMP_NUM_THREADS" not in decision["plan"]["env"]


def test_a_variable_of_the_user_that_is_too_large(torch_python: str) -> None:
    """It stays, and the warning says what would fit, not what it is."""
    done = run(torch_python, "-c", "", env={"OMP_NUM_THREADS": "999"})

    assert "OMP_NUM_THREADS=999 (yours)" in done.stderr
    assert "999 would be right" not in done.stderr


def test_nested_wraps_change_nothing(torch_python: str) -> None:
    """What a wrapped program wraps again gets what the outer wrap gave, however busy the machine became meanwhile."""
    chain = f"{SHOW}; os.execv({WRAP[0]!r}, {[*WRAP, '--', torch_python, '-c', SHOW]!r})"
    done = run(torch_python, "-c", chain)
    once, twice = (json.loads(line) for line in done.stdout.splitlines())

    assert "SYSPERF_WRAPPED" in once[0]
    assert twice == once
    assert "placed it already" in done.stderr


def test_a_wrap_around_a_wrap(torch_python: str) -> None:
    """The outer one sees which program is meant, and decides; here the user has chosen what depends on how busy the machine is."""
    once, cpus = inside(torch_python, env={"OMP_WAIT_POLICY": "active"})
    done = run(*WRAP, "--", torch_python, "-c", SHOW, env={"OMP_WAIT_POLICY": "active"})
    twice = json.loads(done.stdout)

    assert (twice[0], twice[1]) == (once, cpus)
    assert "placed it already" in done.stderr


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_ranks_get_cpus_of_their_own(torch_python: str) -> None:
    """Two ranks of torchrun divide the CPUs."""
    masks = [inside(torch_python, env={"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"})[1] for rank in range(2)]

    assert not set(masks[0]) & set(masks[1])
    assert sorted(masks[0] + masks[1]) == CPUS


def test_torchruns_single_thread_is_replaced(torch_python: str) -> None:
    """A launcher that injects OMP_NUM_THREADS=1 is told from a user who did."""
    rank = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    launcher = f"import os, subprocess; subprocess.run({[*WRAP, '-q', '--json', '--', torch_python, 'x.py']!r}, env={{**os.environ, **{rank!r}, 'OMP_NUM_THREADS': '1'}})"

    def injected(**env: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", launcher], capture_output=True, text=True, env={**BASE, **env}, timeout=300, check=False
        )
        return list(json.loads(done.stdout)["launch"]["injected"])

    assert injected() == ["OMP_NUM_THREADS"]
    assert injected(OMP_NUM_THREADS="1") == []


def test_around_a_launcher(tmp_path: Path) -> None:
    """Nothing is bound; the ranks inherit the environment, and are told how they would be placed."""
    done = run("torchrun", "--nproc-per-node", "2", "train.py", options=("--json",))
    plan = json.loads(done.stdout)["plan"]

    assert plan["cpus"] is None
    assert json.loads(done.stdout)["launch"]["launcher_ranks"] == 2


def test_cpus_asked_for_around_a_launcher() -> None:
    """They are the user's word: its ranks inherit them, with their part of the threads."""
    done = run("torchrun", "--nproc-per-node", "2", "train.py", options=("--cpus", str(CPUS[0]), "--json"))
    decision = json.loads(done.stdout)

    assert decision["plan"]["cpus"] == str(CPUS[0]) or len(CPUS) == 1
    assert decision["launch"]["threads"] == 1


def test_threads_around_a_launcher_are_those_of_one_rank(tmp_path: Path) -> None:
    """Four ranks that inherit OMP_NUM_THREADS=64 on 64 cores would start 256."""
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-63\n")
    done = run("torchrun", "--nproc-per-node", "4", "x.py", options=("--root", str(tmp_path), "--json"))

    assert json.loads(done.stdout)["launch"]["threads"] == 16


# ---------------------------------------------------------------------- showing


def test_print_is_equal_in_effect(torch_python: str) -> None:
    """What is printed, pasted into a shell, gives the program the same environment and CPUs."""
    # what depends on the load of the moment is left out: the two starts are two moments
    options = ("--cpus", str(CPUS[0]), "--threads", "2", "--set", "A=x 'y'", "--skip", "launch.spinning-on-shared-cpus")
    line = run(torch_python, "-c", SHOW, options=(*options, "--print")).stdout
    pasted = json.loads(subprocess.run(["bash", "-c", line], capture_output=True, env=BASE, timeout=300, check=True).stdout)
    env, cpus = inside(torch_python, *options)

    assert pasted[1] == cpus
    besides = ("SYSPERF_WRAPPED", "_", "PWD", "OLDPWD", "SHLVL")  # our mark, and what a shell sets for itself
    assert {name: value for name, value in pasted[0].items() if name not in besides} == {
        name: value for name, value in env.items() if name not in besides
    }


def test_explain_names_rule_fact_and_file(torch_python: str) -> None:
    """Each part: who wants it, from what, and where that was read."""
    explanation = run(torch_python, "x.py", options=("--explain",), env={"OMP_WAIT_POLICY": "active"}).stdout

    assert "launch.page-faults-likely" in explanation
    assert "launch.torch = yes" in explanation
    assert "torch/version.py" in explanation.replace("\n", "")  # a long path is wrapped
    assert "command" in explanation
    assert "  untouched nothing here would help" in run("true", options=("--explain",)).stdout


def test_json_and_dry_run(torch_python: str) -> None:
    """The decision for programs; all but the start."""
    decision = json.loads(run(torch_python, "x.py", options=("--json",)).stdout)
    dry = run("sh", "-c", "echo started", options=("--dry-run",))

    assert decision["launch"]["torch_version"] == "2.13.0+cpu"
    assert {change["rule"] for change in decision["plan"]["changes"]} >= {"launch.page-faults-likely"}
    assert (dry.returncode, dry.stdout) == (0, "")
    assert run("no-such-program", options=("--dry-run",)).returncode == 127
    assert run("no-such-program", options=("--dry-run", "--nproc", "2")).returncode == 127


def test_arguments_that_are_no_text_are_shown() -> None:
    """Printed as the bytes they are; in JSON as what it can say of them."""
    env = {**BASE, "PYTHONIOENCODING": "utf-8:strict"}  # as in most locales
    words = [*map(os.fsencode, WRAP), b"--print", b"--", b"echo", b"\xff \xfe"]
    printed = subprocess.run(words, capture_output=True, env=env, timeout=300, check=True).stdout
    words[words.index(b"--print")] = b"--json"
    stdout = subprocess.run(words, capture_output=True, env=env, timeout=300, check=True).stdout

    assert printed == b"echo '\xff \xfe'\n"
    assert json.loads(stdout)["plan"]["argv"] == ["echo", "\udcff \udcfe"]


def test_secrets_are_not_shown() -> None:
    """Neither of the command nor of the environment."""
    done = run(
        "python", "train.py", "--token", "hf_abcdefghijklmnopqrstuvwxyz012345", env={"TORCH_API_KEY": "s3cr3t-s3cr3t"}, options=("--json",)
    )

    launch = json.loads(done.stdout)["launch"]
    assert "hf_abc" not in json.dumps(launch)
    assert "s3cr3t" not in done.stdout


def test_a_captured_machine_is_shown_and_never_bound_to() -> None:
    """`--root` with --print; without it, refused."""
    folder = fixture_folder("hwloc")
    root = f"{folder}/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2"

    assert run("python", "x.py", options=("--root", root, "--print")).stdout == "env OMP_NUM_THREADS=6 python x.py\n"
    assert run("echo", "started", options=("--root", root)).returncode == 2


def test_emulated_memory_nodes_are_neither_near_nor_far(tmp_path: Path) -> None:
    """With numa=fake the kernel lists a CPU under several nodes: ranks divide the cores, and no node is preferred."""
    system = tmp_path / "sys/devices/system"
    for cpu in range(4):
        topology = system / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        for name, text in {"core_id": cpu, "physical_package_id": 0, "thread_siblings_list": cpu}.items():
            (topology / name).write_text(f"{text}\n")
    (system / "cpu/online").write_text("0-3\n")
    for node in range(4):
        (system / f"node/node{node}").mkdir(parents=True)
        (system / f"node/node{node}/cpulist").write_text("0-3\n")
        (system / f"node/node{node}/meminfo").write_text(
            f"Node {node} MemTotal: {4 + node}000000 kB\nNode {node} MemFree: {4 + node}000000 kB\n"
        )
        (system / f"node/node{node}/distance").write_text("10 10 10 10\n")

    def shown(*options: str) -> str:
        return run("python", "x.py", options=("--root", str(tmp_path), "--print", *options)).stdout

    assert shown() == "python x.py\n"
    expected = "env SYSPERF_INSTANCE={} SYSPERF_INSTANCES=2 taskset -c {} python x.py\n"
    assert shown("--nproc", "2") == expected.format(0, "0-1") + expected.format(1, "2-3")


def test_a_profile(torch_python: str, tmp_path: Path) -> None:
    """Decisions kept in a file; the environment wins over it, an option over both."""
    path = tmp_path / "p.toml"
    path.write_text('threads = 5\nskip = ["launch.page-faults-likely"]\n[set]\nOMP_WAIT_POLICY = "passive"\nA = "file"\n')
    profile = ("--profile", str(path))

    env, _ = inside(torch_python, *profile, env={"A": "mine"})
    assert (env["OMP_NUM_THREADS"], env["OMP_WAIT_POLICY"], env["A"], env.get("MALLOC_TRIM_THRESHOLD_")) == ("5", "passive", "mine", None)
    assert inside(torch_python, *profile, "--threads", "2")[0]["OMP_NUM_THREADS"] == "2"


def test_characters_that_a_terminal_acts_on_do_not_reach_it(tmp_path: Path) -> None:
    """A profile may be somebody else's; into a file the very bytes are printed."""
    (tmp_path / "p.toml").write_text('[set]\nA = "\\u001b]0;owned\\u0007\\u202e"\n')
    argv = (*WRAP, "--profile", str(tmp_path / "p.toml"), "--print", "--", "true")
    ours, theirs = os.openpty()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, env=BASE, check=True, timeout=60)
    shown = os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)

    assert rb"A=\x1b]0;owned\x07\u202e" in shown
    assert b"into a file" in done.stderr
    assert "A=\x1b]0;owned\x07\u202e" in run("true", options=("--profile", str(tmp_path / "p.toml"), "--print")).stdout


@pytest.mark.root(users=True)
def test_root_starts_nothing_by_another_users_profile(tmp_path: Path) -> None:
    """It may set LD_PRELOAD and PATH."""
    (tmp_path / "p.toml").write_text('[set]\nPATH = "/theirs"\n')
    os.chown(tmp_path / "p.toml", 65_531, -1)
    done = run("true", options=("--profile", str(tmp_path / "p.toml")))

    assert done.returncode == 2
    assert "root takes orders from root's files only" in done.stderr


def test_traceable(torch_python: str, tmp_path: Path) -> None:
    """The sockets lie in a folder of the user's own that others cannot enter, with a path that Kineto's sockets have room beside."""
    with tempfile.TemporaryDirectory(prefix="run-", dir="/tmp") as short:
        env, _ = inside(torch_python, "--traceable", env={"XDG_RUNTIME_DIR": short})

        assert env["KINETO_USE_DAEMON"] == "1"
        assert env["KINETO_IPC_SOCKET_DIR"].startswith(short)
        assert os.stat(env["KINETO_IPC_SOCKET_DIR"]).st_mode & 0o077 == 0

    long = tmp_path / ("x" * 50)
    env, _ = inside(torch_python, "--traceable", env={"XDG_RUNTIME_DIR": str(long)})
    usual = f"/tmp/sysperf-{os.getuid()}/sysperf/kineto"
    own = stranger(usual) is None  # anybody may have made a folder of this name
    assert env["KINETO_IPC_SOCKET_DIR"] == usual if own else env["KINETO_IPC_SOCKET_DIR"].startswith("/tmp/sysperf-")


def test_a_traceable_program_waits_for_its_trace_at_its_end(torch_python: str, tmp_path: Path) -> None:
    """The module for that is in front of the user's folders, and not where the user's command says what the path is."""
    env, _ = inside(torch_python, "--traceable", env={"PYTHONPATH": str(tmp_path)})
    assert env["PYTHONPATH"] == f"{FOLDER}:{tmp_path}"

    (tmp_path / "p.toml").write_text("loader_workers = 3\n")
    env, _ = inside(torch_python, "--traceable", "--profile", str(tmp_path / "p.toml"))
    assert (env["PYTHONPATH"], env["SYSPERF_SET_LOADER_WORKERS"]) == (FOLDER, "3"), "what a profile sets in torch lies there, too"

    env, _ = inside(torch_python, env={"PYTHONPATH": str(tmp_path)})
    assert env["PYTHONPATH"] == str(tmp_path)

    env, _ = inside(torch_python, "--traceable", "--set", f"PYTHONPATH={tmp_path}")
    assert env["PYTHONPATH"] == str(tmp_path)

    done = run("env", f"PYTHONPATH={tmp_path}", torch_python, "-c", SHOW, options=("--traceable",))
    assert json.loads(done.stdout)[0]["PYTHONPATH"] == str(tmp_path)


@pytest.mark.root(users=True)
def test_a_link_of_somebody_else_is_no_folder_for_traces(torch_python: str) -> None:
    """It leads to a folder of ours today and to one of theirs tomorrow: nothing is made in either, and another folder is taken."""
    with tempfile.TemporaryDirectory(prefix="run-", dir="/tmp") as short:
        ours, link = Path(short, "ours"), Path(short, "link")
        ours.mkdir()
        link.symlink_to("ours")
        os.lchown(link, 12345, 12345)
        env, _ = inside(torch_python, "--traceable", env={"XDG_RUNTIME_DIR": str(link)})

        assert env["KINETO_IPC_SOCKET_DIR"].startswith("/tmp/sysperf-")
        assert list(ours.iterdir()) == []


def test_a_folder_for_traces_that_was_handed_on_stays(torch_python: str, tmp_path: Path) -> None:
    """By the user, by a launcher, or by the command that waits for the traces."""
    env, _ = inside(torch_python, "--traceable", env={"KINETO_IPC_SOCKET_DIR": str(tmp_path)})

    assert (env["KINETO_IPC_SOCKET_DIR"], env["KINETO_USE_DAEMON"]) == (str(tmp_path), "1")


@pytest.mark.parametrize(
    ("command", "variable", "value"),
    [
        ("uv run python x.py", "UV_PROJECT_ENVIRONMENT", "env"),
        ("python x.py", "PYENV_VERSION", "3.12.1"),
        ("pyenv exec python x.py", "PYENV_VERSION", "3.12.1"),
    ],
)
def test_variables_by_which_runners_choose_an_environment(
    torch_python: str, tmp_path: Path, command: str, variable: str, value: str
) -> None:
    """They explain no performance and are no facts, but they say which interpreter it will be."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims/python").touch()
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions/3.12.1").symlink_to(tmp_path / "env")
    env = {variable: value, "PATH": f"{tmp_path}/shims:/usr/bin:/bin", "PYENV_ROOT": str(tmp_path), "PYTHONPATH": os.getcwd()}
    launch = json.loads(run(*command.split(), options=("--json",), env=env, cwd=tmp_path).stdout)["launch"]

    assert os.path.realpath(os.path.dirname(launch["interpreter"])) == os.path.dirname(torch_python)
    assert launch["torch_version"] == "2.13.0+cpu"


# ---------------------------------------------------------------------- options of the environment


def test_options_from_the_environment() -> None:
    """SYSPERF_WRAP_OPTIONS stands before the options of the command line, which win."""
    assert "OMP_NUM_THREADS=3" in run("true", env={"SYSPERF_WRAP_OPTIONS": "--threads 3"}).stderr
    assert "OMP_NUM_THREADS=1" in run("true", env={"SYSPERF_WRAP_OPTIONS": "--threads 3"}, options=("--threads", "1")).stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--threads '", "No closing quotation"),
        ("--bogus", "unrecognized arguments: --bogus"),
        ("--threads x", "invalid int value: 'x'"),
        ("--threads 0", "--threads 0: not between 1 and"),
        ("--cpus a", "not a CPU number"),
        ("--only nope", "no rule matches `nope`"),
        ("--profile /nowhere.toml", "/nowhere.toml"),
        ("python", "begins a command"),
        ("-q -- true", "begins a command"),
        ("-q --help", "no program would ever start"),
    ],
)
def test_a_wrong_option_of_the_environment_says_where_it_stands(options: str, problem: str) -> None:
    """The command line is right: without the variable's name nobody would know what to mend."""
    done = run("echo", "started", env={"SYSPERF_WRAP_OPTIONS": options})

    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "SYSPERF_WRAP_OPTIONS" in done.stderr


def test_a_wrong_option_of_the_command_line_is_its_own() -> None:
    """Nothing is said of a variable that is not there."""
    assert "SYSPERF_WRAP_OPTIONS" not in run("true", options=("--threads", "0")).stderr


def test_switched_off() -> None:
    """SYSPERF_WRAP=off starts every program as it is, and says nothing."""
    done = run("sh", "-c", "echo $OMP_NUM_THREADS; exit 5", env={"SYSPERF_WRAP": "off"}, options=("--threads", "3"))

    assert (done.returncode, done.stdout, done.stderr) == (5, "\n", "")


def test_off_needs_no_right_options() -> None:
    """Whoever switches it off wants the program to start, whatever the other variable says."""
    done = run("echo", "started", env={"SYSPERF_WRAP": "No", "SYSPERF_WRAP_OPTIONS": "--bogus"})

    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_neither_on_nor_off() -> None:
    """A value that nobody knows is told, not taken for one of both."""
    done = run("echo", "started", env={"SYSPERF_WRAP": "of"})

    assert (done.returncode, done.stdout) == (2, "")
    assert "SYSPERF_WRAP='of' is neither on nor off" in done.stderr


def test_the_form_as_a_word_of_its_own() -> None:
    """`--print sh -- COMMAND` is the form; `--print sh FILE` is the program sh, as without the option."""
    assert run("true", options=("--print", "sh")).stdout.startswith("#!/bin/sh\n")
    command = subprocess.run([*WRAP, "--print", "sh", "x"], capture_output=True, text=True, env=BASE, timeout=300, check=True)
    assert command.stdout == "sh x\n"


def test_a_printed_script_starts_all_instances(tmp_path: Path) -> None:
    """One script, each instance with its number and part; it ends with the code of one that failed."""
    words = ("sh", "-c", "echo $SYSPERF_INSTANCE/$SYSPERF_INSTANCES; exit $SYSPERF_INSTANCE")
    script = tmp_path / "run.sh"
    script.write_text(run(*words, options=("--nproc", "2", "--print=sh")).stdout)
    done = subprocess.run(["sh", script], capture_output=True, text=True, env=BASE, timeout=300, check=False)

    assert sorted(done.stdout.split()) == ["0/2", "1/2"]
    assert done.returncode == 1


def test_a_printed_unit_starts_the_same_program_from_the_same_folder() -> None:
    """systemd looks for a bare name in folders of its own, and starts in `/`."""
    unit = run("sh", "x.sh", options=("--print=systemd",)).stdout

    assert f"WorkingDirectory={os.getcwd()}\n" in unit
    assert f"ExecStart={shutil.which('sh')} x.sh\n" in unit


def test_a_printed_unit_says_what_it_does_not_inherit() -> None:
    """A service gets nothing from the shell in which its unit was printed."""
    done = run("sh", "x.sh", options=("--print=systemd",), env={"OMP_NUM_THREADS": "1", "HF_TOKEN": "hf_secret"})

    assert "OMP_NUM_THREADS=1" in done.stderr.partition("not in the unit, but set in this shell: ")[2].split()
    assert "secret" not in done.stderr


def test_rules_over_the_environment(torch_python: str) -> None:
    """With --force-env a variable that is there stops no rule."""
    own = {"MALLOC_TOP_PAD_": "1"}

    assert inside(torch_python, env=own)[0]["MALLOC_TOP_PAD_"] == "1"
    assert inside(torch_python, "--force-env", env=own)[0]["MALLOC_TOP_PAD_"] == "67108864"


def test_too_many_threads_are_replaced_where_that_is_asked_for(torch_python: str) -> None:
    """A number of the user's stays, with a warning; --force-env takes the one that fits, as if nobody had said a number."""
    own = {"OMP_NUM_THREADS": "900"}
    cpus = len(os.sched_getaffinity(0))

    assert inside(torch_python, env=own)[0]["OMP_NUM_THREADS"] == "900"
    assert int(inside(torch_python, "--force-env", env=own)[0]["OMP_NUM_THREADS"]) <= cpus


def test_pinning_taken_away(torch_python: str) -> None:
    """--unpin unsets what binds the main thread, and the warning goes with it."""
    env = {"OMP_PROC_BIND": "close", "GOMP_CPU_AFFINITY": "0"}
    done = run(torch_python, "-c", SHOW, options=("--unpin",), env=env)

    assert not set(env) & set(json.loads(done.stdout)[0])
    assert "warning" not in done.stderr


def test_what_became_of_it() -> None:
    """--verify reads the masks of what was started, also of its children, and the exit code is the program's."""
    done = run("sh", "-c", "sleep 1.5 & wait; exit 3", options=("--verify", "--cpus", str(CPUS[0])))

    assert done.returncode == 3
    assert f"verify: 2 threads in 2 processes may run on CPUs {CPUS[0]} (as planned)" in done.stderr


def test_what_became_of_each_instance() -> None:
    """With --nproc each instance says it, with its number."""
    done = run("sleep", "1.5", options=("--verify", "--nproc", "2"))
    lines = [line for line in done.stderr.splitlines() if "verify: 1 thread in 1 process may run on CPUs" in line]

    assert sorted(line[:4] for line in lines) == ["[0] ", "[1] "]


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    """To open one waits until somebody writes."""
    os.mkfifo(tmp_path / "fifo", 0o755)

    assert run(str(tmp_path / "fifo"), options=("--allocator", "jemalloc")).returncode == 126


def test_an_absent_allocator_takes_nothing_away(torch_python: str) -> None:
    """glibc's variables stay in force, and nothing configures what is not there."""
    allocators = {"jemalloc", "mimalloc", "tcmalloc_minimal"}
    listed = subprocess.run([program("ldconfig") or "ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    absent = next(iter(sorted(name for name in allocators if f"lib{name}.so" not in listed)), None)
    if absent is None:
        pytest.skip("every allocator is installed here")
    env, _ = inside(torch_python, "--allocator", absent)

    assert "MALLOC_TRIM_THRESHOLD_" in env
    assert "MALLOC_CONF" not in env


# ---------------------------------------------------------------------- several instances


def test_instances_divide_cpus_and_share_one_exit_code(torch_python: str) -> None:
    """Prefixed output, CPUs of their own, 0 when all succeed."""
    done = run(torch_python, "-c", "import os; print(sorted(os.sched_getaffinity(0)))", options=("-q", "--nproc", "2"))
    seen = dict(line.split(" ", 1) for line in done.stdout.splitlines())

    assert done.returncode == 0
    assert set(seen) == {"[0]", "[1]"}
    if len(CPUS) >= 2:
        assert not set(json.loads(seen["[0]"])) & set(json.loads(seen["[1]"]))


def test_the_first_failure_ends_all() -> None:
    """One instance fails, the others are told to end, the code is its."""
    start = time.monotonic()
    done = run(
        "sh",
        "-c",
        'case $(cat /proc/self/stat | wc -c) in *) [ -e "$F" ] || { : > "$F"; exit 7; }; sleep 30;; esac',
        options=("-q", "--nproc", "2"),
        env={"F": f"/tmp/sysperf-test-{os.getpid()}"},
    )
    os.unlink(f"/tmp/sysperf-test-{os.getpid()}")

    assert done.returncode == 7
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(("number", "code"), [(signal.SIGSEGV, 139), (signal.SIGKILL, 137)])
def test_an_instance_ended_by_a_signal(number: int, code: int) -> None:
    """128+n, as shells have it."""
    assert run("sh", "-c", f"kill -{int(number)} $$", options=("-q", "--nproc", "2")).returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    """All instances hear it and may end in their own way; we end after them."""
    script = "trap 'echo heard; exit 0' TERM INT HUP; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen([*WRAP, "-q", "--nproc", "2", "--", "bash", "-c", script], stdout=subprocess.PIPE, text=True, env=BASE)
    assert process.stdout is not None
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)

    assert sorted(out.splitlines()) == ["[0] heard", "[1] heard"]
    assert process.returncode == 128 + number


def test_what_an_instance_leaves_behind_is_ended() -> None:
    """Children of a failed instance do not outlive it."""
    done = run("sh", "-c", "sleep 300 & echo $!; exit 3", options=("-q", "--nproc", "2"))
    time.sleep(0.2)

    assert done.returncode == 3
    for line in done.stdout.splitlines():
        assert not os.path.exists(f"/proc/{line.split()[1]}") or "Z" in Path(f"/proc/{line.split()[1]}/stat").read_text()


def test_only_the_first_reads_stdin() -> None:
    """Two readers of one input would each get half."""
    assert run("cat", options=("-q", "--nproc", "2"), stdin="once\n").stdout == "[0] once\n"


def test_a_terminal_is_read_by_none() -> None:
    """Whoever reads it in the background is stopped, and with it the whole job; Ctrl-C there is for all."""
    ours, theirs = os.openpty()
    script = f"exec {shlex.join([*WRAP, '-q', '--nproc', '2', '--', 'sh', '-c', 'read x; echo end'])} <{os.ttyname(theirs)}"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True, env=BASE)
    os.write(ours, b"typed\n")
    try:
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
        os.close(theirs)
        os.close(ours)

    assert sorted(out.splitlines()) == ["[0] end", "[1] end"]


@pytest.mark.slow
def test_more_instances_than_select_can_watch() -> None:
    """Two pipes each: 520 of them are more than 1,024 descriptors."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 1100:
        pytest.skip(f"{AS_ROOT}: fewer than 1,100 open files are allowed (ulimit -Hn)")
    raised = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (most, most))
    done = run("echo", "x", options=("-q", "--nproc", "520"), preexec_fn=raised)

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 520)


def test_fewer_descriptors_than_instances_need() -> None:
    """Said in one line, and those that were started do not stay."""
    seconds = f"300.{os.getpid()}"
    script = f"ulimit -n 40; exec {shlex.join([*WRAP, '-q', '--nproc', '30', '--', 'sleep', seconds])}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=BASE, timeout=300, check=False)
    time.sleep(0.2)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in _command(path)]

    assert (done.returncode, left) == (2, [])
    assert "of 30 instances could be started: Too many open files" in done.stderr


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_reader_that_does_not_wait() -> None:
    """A pipe that somebody made non-blocking takes what it has room for: the rest is written later, not lost."""
    source, target = os.pipe()
    os.set_blocking(target, False)
    process = subprocess.Popen([*WRAP, "-q", "--nproc", "1", "--", "seq", "40000"], stdout=target, env=BASE)
    os.close(target)
    time.sleep(1)
    with open(source, "rb") as file:
        assert len(file.read().splitlines()) == 40_000
    assert process.wait(30) == 0


def test_print_for_instances() -> None:
    """A line for each."""
    assert len(run("python", "x.py", options=("--nproc", "3", "--print")).stdout.splitlines()) == 3


# ---------------------------------------------------------------------- hard places


@pytest.mark.parametrize("where", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize("options", ["", "--nproc 2"])
def test_nobody_hears_us(where: str, options: str, tmp_path: Path) -> None:
    """What we cannot say, because stderr is closed or its disk full, keeps no program from starting."""
    script = f"{shlex.join(WRAP)} {options} -- sh -c {shlex.quote(f'echo x >> {tmp_path}/started')} {where}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=BASE, timeout=300, check=False)

    assert ((tmp_path / "started").read_text().split(), done.returncode) == (["x", "x"] if options else ["x"], 0)


@pytest.mark.root(mounts=True)
@pytest.mark.parametrize("hidden", ["/sys", "/proc", "/sys/fs/cgroup"])
def test_without_sys_or_proc(hidden: str) -> None:
    """Nothing can be read, and the program runs all the same."""
    script = f"mount -t tmpfs none {hidden} && exec {shlex.join([*WRAP, '--', 'echo', 'ok'])}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=BASE, timeout=300, check=False)

    assert (done.stdout, done.returncode) == ("ok\n", 0)
    assert "internal error" not in done.stderr


@pytest.mark.root(mounts=True)
def test_as_the_first_process_of_a_container() -> None:
    """PID 1 becomes the program; with --nproc it reaps what it is given."""
    single = subprocess.run(
        ["unshare", "-pf", "--mount-proc", *WRAP, "-q", "--", sys.executable, "-c", SHOW],
        capture_output=True,
        env=BASE,
        timeout=300,
        check=False,
    )
    several = subprocess.run(
        ["unshare", "-pf", "--mount-proc", *WRAP, "-q", "--nproc", "2", "--", "sh", "-c", "(sleep 0.1 &); echo ok"],
        capture_output=True,
        text=True,
        env=BASE,
        timeout=300,
        check=False,
    )

    assert json.loads(single.stdout)[2] == 1
    assert (several.returncode, sorted(several.stdout.splitlines())) == (0, ["[0] ok", "[1] ok"])


CPU_GROUP = next(
    (
        Path(line.split()[1])
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[2] == "cgroup" and "cpu" in line.split()[3].split(",")
    ),
    None,
)


@real_root("it makes a control group")
@pytest.mark.skipif(CPU_GROUP is None, reason="needs a cgroup v1 cpu controller")
@pytest.mark.parametrize(("quota_us", "threads"), [(50_000, "1"), (100_000, "1"), (150_000, "2")])
def test_a_cpu_quota(torch_python: str, quota_us: int, threads: str) -> None:
    """In a real control group: half a CPU and one CPU are one thread, one and a half are two that do not spin."""
    assert CPU_GROUP is not None
    group = CPU_GROUP / f"sysperf-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        script = f"echo $$ > {group}/cgroup.procs; exec {shlex.join([*WRAP, '--json', '--', torch_python, 'x.py'])}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=BASE, timeout=300, check=True)
    finally:
        time.sleep(0.05)
        group.rmdir()
    decision = json.loads(done.stdout)

    assert decision["launch"]["threads"] == min(int(threads), len(CPUS))
    if len(CPUS) > int(threads):
        assert decision["plan"]["env"]["OMP_NUM_THREADS"] == threads


def test_another_process_keeps_a_cpu_busy(torch_python: str) -> None:
    """Threads that wait sleep then; on an idle machine nothing is said of waiting."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in CPUS]
    try:
        time.sleep(0.5)
        decision = json.loads(run(torch_python, "x.py", options=("--json",)).stdout)
    finally:
        for process in busy:
            process.kill()
            process.wait()

    if decision["launch"]["threads"] > 1:
        assert decision["plan"]["env"]["OMP_WAIT_POLICY"] == "passive"


def test_a_fault_of_ours_does_not_keep_it_from_running(tmp_path: Path) -> None:
    """Whatever breaks inside, the program starts, unchanged, and the line says that it is."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sysperf.launch.interpreter as i\ndef broken(*a): raise KeyError('x')\ni.find = broken\n"
    )
    done = run("echo", "ok", env={"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"})

    assert (done.stdout, done.returncode) == ("ok\n", 0)
    assert "nothing changed: internal error: KeyError" in done.stderr


def test_instances_end_with_us(tmp_path: Path) -> None:
    """Whoever kills the parent with -9 leaves no instance behind."""
    process = subprocess.Popen(
        [*WRAP, "-q", "--nproc", "2", "--", "sh", "-c", "echo $$ $SYSPERF_INSTANCE of $SYSPERF_INSTANCES; exec sleep 300"],
        stdout=subprocess.PIPE, text=True, env=BASE,
    )  # fmt: skip
    assert process.stdout is not None
    lines = sorted(process.stdout.readline().split() for _ in range(2))
    process.kill()
    process.wait()

    assert [line[2:] for line in lines] == [["0", "of", "2"], ["1", "of", "2"]]
    for line in lines:
        _until_gone(int(line[1]))


def _until_gone(pid: int) -> None:
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail(f"{pid} still runs")


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR1])
def test_signals_that_end_nothing_are_passed_on(number: signal.Signals) -> None:
    """A terminal that changes its size, and a program that is continued."""
    heard = "lambda *_: (os.write(1, b'heard\\n'), os._exit(0))"  # print() may be interrupted in the one of 'ready'
    script = f"import os, signal\nsignal.signal({int(number)}, {heard})\nprint('ready', flush=True)\nsignal.pause()"
    process = subprocess.Popen(
        [*WRAP, "-q", "--nproc", "1", "--", sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=BASE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(number)

    assert process.stdout.readline() == "[0] heard\n"
    assert process.wait(60) == 0

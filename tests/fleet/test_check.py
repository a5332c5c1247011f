"""`sysperf check`: what each host is told, within its budget, whatever a file does."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf import paths
from sysperf.engine import check, judging
from sysperf.model.check import Checked, Fault
from sysperf.model.finding import Finding
from sysperf.report.fleet.check import HOSTS, MAX_NPD, MAX_REASON, reason
from tests.invoking import sysperf
from tests.privileges import real_root
from tests.shipped import rules, ruleset

ROOT = Path(__file__).resolve().parent.parent.parent
SICK = Fault("node", "gpu.ecc-uncorrectable", "error", "GPU 3 (NVIDIA H100)", "2 errors")
SITE = Fault("site", "memory.thp-never", "warning")
LOST = Fault("node", "gpu.undercount", "error", impossible=True)
USER = Fault("user", "environment.launch-blocking", "error", "python (pid 7)")
LEFT = Fault("site", "memory.shm-leftovers", "info", leftover=True)
HUNG = Checked(hung=("storage",), source="audit")


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for each other."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("slurm-health", (0, 0, 0, 0, 0)),
        ("slurm-prolog", (0, 0, 0, 0, 0)),
        ("slurm-epilog", (0, 0, 0, 0, 0)),
        ("npd", (0, 1, 0, 0, 2)),
        ("nagios", (0, 2, 1, 0, 3)),
    ],
)
def test_the_code_that_each_host_expects(host: str, code: tuple[int, ...]) -> None:
    """Nothing, a sick machine, a site's setting, a user's program, no answer."""
    states = [Checked(source="audit"), Checked(faults=(SICK,)), Checked(faults=(SITE,)), Checked(faults=(USER,)), HUNG]

    assert tuple(HOSTS[host](checked, False).code for checked in states) == code


def test_a_prolog_refuses_only_what_cannot_run_and_only_when_it_is_told_to() -> None:
    """Its 1 drains the node."""
    assert [HOSTS["slurm-prolog"](Checked(faults=(fault,)), refuse).code for fault in (SICK, LOST) for refuse in (False, True)] == [
        0,
        0,
        0,
        1,
    ]
    assert HOSTS["slurm-prolog"](Checked(faults=(LOST,)), True).lines == [f"print {reason(LOST)}"]


def test_each_host_is_told_its_part() -> None:
    """Health of the machine; what was left behind; never a user's program in the words for a machine."""
    checked = Checked(faults=(SICK, SITE, USER, LEFT), hung=("storage",))

    assert HOSTS["slurm-health"](checked, False).lines == [reason(SICK), "sysperf: unknown; no answer: storage"]
    assert HOSTS["slurm-epilog"](checked, False).lines == [reason(LEFT), "sysperf: unknown; no answer: storage"]
    assert "launch-blocking" not in "".join(HOSTS["nagios"](checked, False).lines)


def test_the_first_characters_tell() -> None:
    """`sinfo -R` shows twenty."""
    assert reason(SICK) == "sysperf: node gpu.ecc-uncorrectable GPU 3 (NVIDIA H100); sysperf explain gpu.ecc-uncorrectable"
    assert reason(SICK)[:20] == "sysperf: node gpu.ec"


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_reason_is_one_word_for_scontrol(rule: str, subject: str) -> None:
    """Printable ASCII, no quotes, `=`, `|`; bounded. A line of NPD is shorter."""
    fault = Fault("node", rule, "error", subject)
    said = HOSTS["npd"](Checked(faults=(fault, SICK)), False)

    assert re.fullmatch(r"[^\"'`=|\\$]*", reason(fault))
    assert reason(fault).isascii()
    assert reason(fault).isprintable()
    assert len(reason(fault)) <= MAX_REASON
    assert len(said.lines) == 1
    assert len(said.lines[0]) <= MAX_NPD
    assert said.lines[0].isprintable()


def test_the_lists_name_rules() -> None:
    """Each id exists; what makes a machine bad is no program's fault."""
    table = ruleset().tables["check"]
    scopes = {rule.id: rule.scope for rule in rules()}

    assert set(table) == {"node", "impossible", "leftover"}
    assert all(scopes[name] in ("host", "gpu") for names in table.values() for name in names)


def test_every_fault_of_a_gpu_is_the_machines() -> None:
    """But for settings, rights and licences: a new rule is either in the list of rules/check.toml or here."""
    settings = {"gpu.compute-prohibited", "gpu.vgpu-unlicensed", "gpu.vgpu-without-cuda", "gpu.arc-small-bar"}
    settings |= {"gpu.amd-node-closed", "gpu.intel-node-closed", "gpu.jetson-node-closed"}
    grave = {rule.id for rule in rules() if rule.id.startswith("gpu.") and rule.severity == "error" and rule.scope in ("host", "gpu")}

    assert grave - settings <= set(ruleset().tables["check"]["node"])


def test_whose_a_finding_is() -> None:
    """The machine's by the list, a program's by its scope, else the site's."""
    machine = judging.load_rules()
    said = [_outcome(rule) for rule in ("gpu.remap-failed", "environment.launch-blocking", "memory.thp-never")]

    assert [fault.of for fault in check.faults(said, machine)] == ["node", "site", "user"]


def _outcome(rule: str) -> Finding:
    found = next(each for each in rules() if each.id == rule)
    return Finding(rule=rule, state="finding", severity=found.severity, scope=found.scope, title=found.title)


def checked(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Return what the command says, in an environment of its own."""
    return sysperf("check", "--no-agent", "--budget", "30s", *words, env=env)


@pytest.mark.parametrize("host", HOSTS)
def test_an_empty_environment(host: str, tmp_path: Path) -> None:
    """slurmd gives SLURMD_NODENAME and nothing else: no PATH, no HOME."""
    done = subprocess.run(
        [sys.executable, "-m", "sysperf", "check", "--as", host, "--budget", "30s", "--no-agent"],
        env={"SLURMD_NODENAME": "n1", "PWD": "/", "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode in ((0,) if host.startswith("slurm") else (0, 1, 2)), done.stderr
    assert done.stderr == ""


@real_root("to mount a file system over a file of /proc")
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse: a file that never answers needs it")
@pytest.mark.parametrize("host", ["npd", *(pytest.param(host, marks=pytest.mark.slow) for host in HOSTS if host != "npd")])
def test_a_file_that_never_answers(host: str, tmp_path: Path) -> None:
    """The check ends, names the area, and what the others said stands."""
    word = [sys.executable, "-m", "sysperf", "check", "--as", host, "--budget", "5s", "--no-agent"]
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-m", "tests.fleet.silent_file", "/proc/sys/vm/swappiness", *word],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == {"npd": 2, "nagios": 3}.get(host, 0) or host == "nagios", (done.stdout, done.stderr)
    assert "no answer: memory" in done.stdout
    assert "not reached" not in done.stdout


@real_root("to mount a file system over a file of /proc")
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse: a file that never answers needs it")
def test_a_configuration_that_never_answers(tmp_path: Path) -> None:
    """What is read before the machine can hang, too."""
    config = tmp_path / "config.toml"
    config.write_text("")
    word = [sys.executable, "-m", "sysperf", "check", "--as", "npd", "--budget", "3s", "--no-agent", "--config", str(config)]
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-m", "tests.fleet.silent_file", str(config), *word],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (2, "no answer: configuration and rules\n")


def test_one_at_a_time(tmp_path: Path) -> None:
    """A second check ends at once, and tells what the first waits for: to Slurm that is fine, to a monitor unknown."""
    path = tmp_path / f"sysperf-check-{os.geteuid()}.lock"
    with path.open("w") as lock:
        lock.write("storage")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        health, monitor = checked("--as", "slurm-health"), checked("--as", "nagios")

    assert (health.returncode, monitor.returncode) == (0, 3)
    assert health.stdout == "sysperf: unknown; another check still runs, which waits for storage\n"
    assert checked("--as", "npd").returncode != 2


def test_a_lock_of_somebody_else_stops_nobody(tmp_path: Path) -> None:
    """A link, a further name of a file, a folder or a pipe in its place is left alone."""
    path = tmp_path / f"sysperf-check-{os.geteuid()}.lock"
    (tmp_path / "other").write_text("kept")
    path.hardlink_to(tmp_path / "other")
    assert checked("--as", "npd").returncode != 2
    assert (tmp_path / "other").read_text() == "kept"
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert checked("--as", "npd").returncode != 2
    path.unlink()
    path.mkdir()
    assert checked("--as", "npd").returncode != 2
    path.rmdir()
    os.mkfifo(path)
    assert checked("--as", "npd").returncode != 2


def test_a_child_that_breaks_is_unknown() -> None:
    """Its error is told; one that is killed, that says too much or nothing, is not waited for."""

    def breaks(say: check.Say, _: float) -> Checked:
        say("at something")
        raise ValueError("\x1b[2Jwhat")

    def killed(say: check.Say, _: float) -> Checked:
        say("at something")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def sleeps(say: check.Say, _: float) -> Checked:
        say("at something")
        time.sleep(1_000)
        raise AssertionError

    def talks(say: check.Say, _: float) -> Checked:
        while True:
            say("at " + "x" * 1_000)

    later = time.monotonic() + 20
    assert check.within(later, breaks) == Checked(problem="ValueError: \\x1b[2Jwhat")
    assert check.within(later, killed).hung == ("something",)
    assert check.within(time.monotonic() + 3, sleeps).hung == ("something",)
    assert check.within(later, talks).is_unknown
    assert check.within(later, lambda *_: Checked(faults=(SICK,) * 3_000)).faults == (SICK,) * 3_000


def test_the_configuration_for_node_problem_detector() -> None:
    """Its command answers as it expects, within the time that it gives."""
    config = json.loads((ROOT / "deploy/kubernetes/npd/sysperf.json").read_text())
    (rule,) = config["rules"]

    assert rule["condition"] in {condition["type"] for condition in config["conditions"]}
    assert config["pluginConfig"]["max_output_length"] == MAX_NPD
    assert sysperf(*rule["args"], "--no-agent").returncode in (0, 1, 2)


@pytest.mark.parametrize("budget", ["0", "-1s", "1h", "nan", "1e3", "61s", ""])
def test_budgets_that_are_none(budget: str) -> None:
    """They are refused with what is possible."""
    assert sysperf("check", "--as", "npd", f"--budget={budget}").returncode == 2


def test_the_agents_judgement_is_taken_while_it_is_fresh(tmp_path: Path) -> None:
    """One that is older than a minute, another machine's clock, or nonsense is not."""
    from sysperf.engine import reading

    taken = {"taken_at": reading.now(), "areas": {}}
    outcome = {"rule": "gpu.remap-failed", "state": "finding", "severity": "error", "scope": "gpu", "title": "x"}
    finding = {"outcome": outcome, "first_seen": 1.0, "last_seen": 2.0}
    gone = {**finding, "outcome": {**outcome, "rule": "gpu.fell-off-bus"}, "state": "gone"}
    answers = {"/v1/snapshot": taken, "/v1/findings": {"findings": [finding, gone]}}

    assert _beside_agent(tmp_path, answers) == (1, "gpu.remap-failed\n")
    old = {**answers, "/v1/snapshot": {**taken, "taken_at": "2020-01-01T00:00:00Z"}}
    assert "remap" not in _beside_agent(tmp_path, old)[1]
    assert "remap" not in _beside_agent(tmp_path, {"/v1/snapshot": [1], "/v1/findings": {}})[1]


AGENT = """
import http.server, json, os, socketserver, sys
answers = json.loads(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(answers[self.path]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def address_string(self): return "x"
    def log_message(self, *_): pass
with socketserver.UnixStreamServer(sys.argv[1], Handler) as server:
    print("up", flush=True)
    server.serve_forever()
"""


def _beside_agent(folder: Path, answers: object) -> tuple[int, str]:
    """(exit code, text) for NPD of a check where an agent answers like this."""
    path = folder / "agent.sock"
    path.unlink(missing_ok=True)
    with subprocess.Popen([sys.executable, "-c", AGENT, str(path), json.dumps(answers)], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        try:
            done = sysperf("check", "--as", "npd", "--budget", "30s", env={**os.environ, "RUNTIME_DIRECTORY": str(folder)})
        finally:
            agent.terminate()
    assert paths.default_socket({"RUNTIME_DIRECTORY": str(folder)}) == str(path)
    return done.returncode, done.stdout

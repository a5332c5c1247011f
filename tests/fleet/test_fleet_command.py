"""`sysperf node record` and `sysperf fleet …` as a user calls them, with what nodes may send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sysperf.model.node import MAX_RECORD_BYTES, NodeRecord
from sysperf.model.record import from_json
from tests.fleet.machines import FACTS, H100, node, planted, silent, write
from tests.invoking import sysperf

DRIVER = "driver.nvidia_version"
PEAK = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "sysperf", "fleet", "audit", sys.argv[1], "--fail-on", "never"], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
"""
"""KiB, and seconds of CPU time. In a small process: what one that was forked from a large one has used at most is the large one's."""


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write(tmp_path / "records", planted(60))


def audited(folder: Path, *options: str, stdin: str = "") -> dict[str, Any]:
    """What the command says of it, as JSON."""
    done = sysperf("fleet", "audit", str(folder), "--json", *options, stdin=stdin)
    assert done.returncode in (0, 1, 3), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def differing(fleet: dict[str, Any]) -> dict[str, list[str]]:
    """Who differs in what."""
    return {
        each["fact"]: [node for held in each["values"] for node in held["nodes"]]
        for each in fleet["differences"]
        if each["kind"] == "differs"
    }


def test_a_record_is_a_line_of_a_few_kilobytes(tmp_path: Path) -> None:
    """It holds what matters of this machine, under the name that it is given."""
    done = sysperf("node", "record", "--node", "n7")
    record = from_json(done.stdout, NodeRecord)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert len(done.stdout) < 16_000
    assert (record.node, record.problem) == ("n7", "")
    assert {"kernel.release", "memory.total_bytes", "cpu.cores"} <= record.comparables.keys()
    assert record.hardware["memory"].endswith("iB")


def test_the_name_is_slurms_where_slurm_runs() -> None:
    """Else it is the host's."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}

    assert json.loads(sysperf("node", "record", env={**variables, "SLURMD_NODENAME": "gpu-9"}).stdout)["node"] == "gpu-9"
    assert json.loads(sysperf("node", "record", env=variables).stdout)["node"] == os.uname().nodename


def test_this_machine_compares_with_itself(tmp_path: Path) -> None:
    """Three records of one machine do not differ; the fourth with another kernel does."""
    records = [json.loads(sysperf("node", "record", "--node", f"n{number}").stdout) for number in range(3)]
    for record in records:
        record["findings"] = []
        record["comparables"].pop("torch.installs.count", None)  # of programs, too, which other tests start
    records.append({**records[0], "node": "n3", "comparables": {**records[0]["comparables"], "kernel.release": "2.6.32"}})

    assert differing(audited(write(tmp_path / "records", records))) == {"kernel.release": ["n3"]}


def test_exactly_what_was_planted(records: Path) -> None:
    """A lost GPU, an old driver, a power limit, a library, an error; the roll-out as two groups; what is unread as unknown."""
    fleet = audited(records)

    assert differing(fleet) == {
        "gpu.devices.count": ["n1"],
        DRIVER: ["n2", "n3", "n4", "n5"],
        "gpu.devices[0-7].power.limit_watts": ["n6"],
        "torch.installs[1].pin_mismatches.nccl": ["n10"],
    }
    assert [each["fact"] for each in fleet["differences"] if each["kind"] == "groups"] == ["torch.installs[1].version"]
    assert [(each["area"], each["nodes"]) for each in fleet["unknown"]] == [("nic", ["n7"]), (DRIVER, ["n8"])]
    assert [(each["rule"], each["nodes"]) for each in fleet["findings"]] == [("gpu.ecc-uncorrectable", ["n9"])]
    assert [each["count"] for each in fleet["classes"]] == [45, 15]


def test_what_is_no_record_is_refused(records: Path) -> None:
    """Cut off, too large, of another node, of another schema, nested, empty: each with its reason, and the others are compared."""
    whole = (records / "n20.json").read_text()
    broken = {
        "n11": whole[:200],
        "n12": whole,
        "n13": json.dumps({**node("n13"), "job": "x" * MAX_RECORD_BYTES}),
        "n14": json.dumps({**node("n14"), "schema": 2}),
        "n15": '{"node":' * 100_000,
        "n16": "",
        "n17": json.dumps({**node("n17"), "problem": "the audit was killed"}),
        "n18": json.dumps({**node("n18"), "comparables": {f"x{number}": "y" for number in range(5_000)}}),
        "n19": json.dumps({**node("n19"), "findings": [{"rule": "a.b", "severity": "grave"}]}),
    }
    for name, text in broken.items():
        (records / f"{name}.json").write_text(text)
    os.mkfifo(records / "n21.json.pipe")
    (records / "n22.json").unlink()
    os.mkfifo(records / "n22.json")
    (records / "n23.json").unlink()
    (records / "n23.json").symlink_to("/dev/zero")
    answer = silent(fleet := audited(records))

    assert set(answer) == {*broken, "n22", "n23"}
    assert {state for state, _ in answer.values()} == {"refused"}
    assert "another node, n20" in answer["n12"][1]
    assert "too large" in answer["n13"][1] or "larger" in answer["n13"][1]
    assert answer["n17"][1] == "the audit was killed"
    assert fleet["answered"] == 49
    assert differing(fleet)["gpu.devices.count"] == ["n1"]


def test_a_newer_record_is_read_in_what_is_known(records: Path) -> None:
    """Fields that this version does not know are left out."""
    future = {**node("n11"), "sysperf": "9.9", "orbit": {"x": 1}, "unknown": [{"area": "nic", "why": "x", "how": "y"}]}
    (records / "n11.json").write_text(json.dumps(future))

    assert differing(audited(records))["sysperf.version"] == ["n11"]


@pytest.mark.parametrize("face", ["text", "json", "markdown", "html", "prometheus"])
def test_text_of_nodes_stays_text(tmp_path: Path, face: str) -> None:
    """Escapes, directions, markup and orders to the reader in all that a node may send."""
    evil = '\x1b[2J\u202e<script>"|`*\\\n# HELP'
    bad = node(
        "n9",
        {DRIVER: evil, "kernel.release": evil},
        {**H100, "gpu": evil},
        sysperf=evil,
        job=evil,
        findings=[{"rule": evil, "severity": "error", "subject": evil, "message": evil}],
        unknown=[{"area": evil, "why": evil}],
    )
    folder = write(tmp_path / "records", [*(node(f"n{number}") for number in range(5)), bad])
    text = sysperf("fleet", "audit", str(folder), "--format", face, "--verbose").stdout

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script" not in text or face in ("text", "json", "prometheus", "markdown")
    if face == "prometheus":
        assert {"sysperf_fleet_nodes", "sysperf_fleet_finding"} <= {family.name for family in text_string_to_metric_families(text)}


def test_who_wrote_nothing_is_unreachable(records: Path) -> None:
    """The first line counts those that were to be there, and --strict says so by its exit code."""
    (records / "n20.json").unlink()
    text = sysperf("fleet", "audit", str(records), "--hosts", "n[20-24]", "--strict")

    assert text.stdout.splitlines()[0] == "4 of 5 nodes (1 unreachable: n20), 1 class"
    assert text.returncode == 3


def test_an_old_record_is_no_answer(records: Path) -> None:
    """A node that died is in its folder still. A clock that is hours wrong is no death."""
    (records / "n20.json").write_text(json.dumps(node("n20", taken_at="2026-11-20T12:00:00Z")))
    (records / "n21.json").write_text(json.dumps(node("n21", taken_at="2026-11-23T03:00:00Z")))
    (records / "n22.json").write_text(json.dumps(node("n22", taken_at="2039-01-01T00:00:00Z")))

    assert silent(audited(records)) == {"n20": ("late", "its record is of 2026-11-20 12:00 UTC")}


@pytest.mark.parametrize("taken_at", ["2026-11-23T12:00+01", "2026-11-23T12+01:00:00", "", "now", "9999-99-99T99:99:99Z"])
def test_a_record_of_another_clock_is_none_of_that_time(records: Path, taken_at: str) -> None:
    """A time with a zone is none that sysperf writes: it is compared with no other."""
    (records / "n20.json").write_text(json.dumps(node("n20", taken_at=taken_at)))

    assert audited(records)["answered"] == 60


def test_lines_from_stdin() -> None:
    """What pdsh, Ansible or `kubectl logs` print; two records of one name are none, and noise around them is told."""
    lines = [json.dumps(node(f"n{number}", {DRIVER: "580.1"} if number == 4 else {})) for number in range(5)]
    twice = [json.dumps(node("n7")), json.dumps(node("n7", {DRIVER: "1.0"}))]
    fleet = audited(Path("-"), stdin="\n".join([*lines, "Welcome to n3!", *twice, "x" * (MAX_RECORD_BYTES + 10)]) + "\n")

    assert differing(fleet) == {DRIVER: ["n4"]}
    assert silent(fleet)["n7"] == ("refused", "2 records have its name")
    assert fleet["answered"] == 5


def test_golden(records: Path, tmp_path: Path) -> None:
    """The policy of a good day names who is not like it, whatever most are like today."""
    policy = tmp_path / "policy.toml"
    assert sysperf("fleet", "golden", str(records), "--output", str(policy)).returncode == 0
    updated = [node(f"n{number}", {DRIVER: "590.2" if number == 1 else "595.0"}) for number in range(1, 31)]
    new = write(tmp_path / "new", updated)

    assert differing(audited(new)) == {DRIVER: ["n1"]}
    assert differing(audited(new, "--golden", str(policy))) == {DRIVER: [f"n{number}" for number in range(2, 31)]}
    assert differing(audited(new, "--golden", "node:n1")) == {DRIVER: [f"n{number}" for number in range(2, 31)]}


@pytest.mark.parametrize("golden", ["node:n999", "missing.toml", "/dev/zero", "/etc/passwd", "node:"])
def test_a_wrong_reference(records: Path, golden: str) -> None:
    """It is named, and nothing is compared."""
    done = sysperf("fleet", "diff", str(records), "--golden", golden)

    assert done.returncode == 2
    assert done.stderr.startswith(f"sysperf: --golden {golden}")


def test_diff_shows_no_findings(records: Path) -> None:
    """Its exit code says whether nodes differ."""
    done = sysperf("fleet", "diff", str(records))

    assert done.returncode == 1
    assert "gpu.ecc-uncorrectable" not in done.stdout
    assert "n[2-5]" in done.stdout


def test_no_node_at_all(tmp_path: Path) -> None:
    """Nothing is known, which is never fine."""
    (tmp_path / "n1.json").write_text("x")

    assert sysperf("fleet", "audit", str(tmp_path)).returncode == 3
    assert "Nothing is known" in sysperf("fleet", "audit", str(tmp_path)).stdout
    assert sysperf("fleet", "audit", str(tmp_path / "missing")).returncode == 2
    assert sysperf("fleet", "audit").returncode == 2


@pytest.mark.slow
def test_one_record_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """200 records of 220 kB, each with findings of its own, are 44 MB together."""
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 10_000)))
    own = ({"rule": f"a.b{number}-{place}", "severity": "info", "message": "m" * 200} for number in range(200) for place in range(600))
    folder = write(tmp_path / "r", (node(f"n{number}", job=text, findings=[next(own) for _ in range(600)]) for number in range(200)))
    lines = b"".join((folder / f"n{number}.json").read_bytes() for number in range(200))

    assert spent(folder)[0] < 70
    assert spent("-", lines)[0] < 70


def spent(records: Path | str, lines: bytes = b"") -> tuple[float, float]:
    """(MiB, seconds of CPU time) of an audit of these records."""
    done = subprocess.run([sys.executable, "-c", PEAK, str(records)], input=lines, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    kib, seconds = done.stdout.split()
    return int(kib) / 1_024, float(seconds)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "mib", "seconds"), [(512, 100, 1.0), (10_000, 200, 10.0)])
def test_many_records(tmp_path: Path, count: int, mib: float, seconds: float) -> None:
    """Who differs is found; memory and CPU time are those that were promised, the time with room for a loaded machine."""
    folder = write(tmp_path / "records", planted(count))
    used = spent(folder)

    assert differing(audited(folder))["gpu.devices[0-7].power.limit_watts"] == ["n6"]
    assert used[0] < mib
    assert used[1] < 2 * seconds


INVENTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "facts": lambda name: {"facts": {f"cpu.{name}.x{number}\x1b[2J": "v" for number in range(300)}},
    "values": lambda name: {"facts": dict.fromkeys(FACTS, f"{name} {'v' * 150}")},
    "rules": lambda name: {"findings": [{"rule": f"{name}.r{number}", "severity": "error", "message": "m" * 100} for number in range(150)]},
    "hardware": lambda name: {"hardware": dict.fromkeys(H100, f"{name} {'h' * 150}")},
    "areas": lambda name: {"unknown": [{"area": f"{name}.{number}", "why": f"{name} {'w' * 60}"} for number in range(150)]},
}
"""Nodes that each make up their own."""


@pytest.mark.slow
@pytest.mark.parametrize("what", INVENTIONS)
def test_ten_thousand_hostile_records(tmp_path: Path, what: str) -> None:
    """The answer stays within 200 MiB, and comes."""
    folder = write(tmp_path / "records", (node(f"n{number}", **INVENTIONS[what](f"n{number}")) for number in range(10_000)))

    assert spent(folder)[0] < 200

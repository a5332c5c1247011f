"""Nodes that drain themselves, in a Slurm of four nodes on this machine: run as a program in namespaces, it answers facts as JSON.

unshare --mount --net --uts --pid --fork --mount-proc python -m tests.fleet.drain_inside FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fleet.marks_inside import HAND, KILLER
from tests.fleet.slurm_inside import NODES, ROOT, run, started

CHECK = """\
#!/bin/sh
# What slurmd starts with next to no environment: each node has a state of its own, and what it should have is in a file of its own.
export STATE_DIRECTORY={folder}/of-$SLURMD_NODENAME XDG_RUNTIME_DIR={folder}/of-$SLURMD_NODENAME SLURM_CONF={folder}/slurm.conf
export PATH=${{BEFORE:+$BEFORE:}}/usr/bin:/bin PYTHONPATH={root}
exec {python} -m sysperf check --as slurm-health --budget 30s --drain --config {folder}/$SLURMD_NODENAME.toml "$@"
"""
RULE = """\
schema = 1
pack = { id = "site", version = "1" }
[table.check]
node = ["site.cpus"]
impossible = []
leftover = []
[[rule]]
id = "site.cpus"
title = "Fewer CPUs than were bought"
scope = "host"
severity = "error"
confidence = "high"
params = { cpus = 0 }
applies = "p.cpus > 0"
when = "len(cpu.online) < p.cpus"
message = "{len(cpu.online)} CPUs are there."
explain = "For a test."
refs = ["https://docs.kernel.org/admin-guide/cputopology.html"]
impact = { metric = "throughput", basis = "arithmetic" }
fix = [{ kind = "advice", by = "hardware", safety = "manual", title = "count them" }]
test = [{ name = "few", expect = "skip", given = { cpu = { online = [0] } } }]
"""
EXPECTED = 'rules = ["{folder}/site.toml"]\n[[override]]\nrule = "site.cpus"\nparams = {{ cpus = {cpus} }}\n'


class Nodes:
    """The nodes, and what each of them sees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "site.toml").write_text(RULE)
        for name in self.names:
            (folder / f"of-{name}").mkdir(mode=0o700)
            self.is_sick(name, sick=False)
        (folder / "check").write_text(CHECK.format(folder=folder, root=ROOT, python=sys.executable))
        (folder / "check").chmod(0o755)
        (folder / "bin").mkdir()
        (folder / "bin/scontrol").write_text(KILLER.format(folder=folder, scontrol=shutil.which("scontrol")))
        (folder / "bin/scontrol").chmod(0o755)

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, NODES + 1)]

    def is_sick(self, name: str, *, sick: bool) -> None:
        """A node that is to have ten thousand CPUs is broken; one that is to have one is not."""
        self.expects(name, 10_000 if sick else 1)

    def expects(self, name: str, cpus: int) -> None:
        """What its configuration says; 0: nothing, and the rule says nothing."""
        (self.folder / f"{name}.toml").write_text(EXPECTED.format(folder=self.folder, cpus=cpus))

    def check(self, name: str, *words: str, **variables: str) -> list[Any]:
        """Exit code, lines, and what Slurm says then; asked once all nodes answer, since the brake counts those that do not."""
        self.answer()
        environment = {"SLURMD_NODENAME": name, "PWD": "/", **variables}
        done = subprocess.run(
            [self.folder / "check", *words], env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120
        )
        return [done.returncode, (done.stdout + done.stderr).replace("+NOT_RESPONDING", ""), self.seen(name)]

    def answer(self) -> None:
        """Wait until Slurm has heard of all nodes: it forgets that for some seconds when one is drained or resumed."""
        for _ in range(300):
            if "NOT_RESPONDING" not in run("scontrol", "show", "node")["out"]:
                return
            time.sleep(0.1)

    def seen(self, name: str) -> str:
        """State and reason of a node, as Slurm prints them."""
        lines = [line.strip() for line in run("scontrol", "show", "node", name)["out"].splitlines()]
        kept = [line.partition(" ThreadsPerCore")[0] for line in lines if line.startswith(("State=", "Reason="))]
        return "; ".join(kept).replace("+NOT_RESPONDING", "")

    def forget(self) -> None:
        """As new: healthy, idle, nothing remembered."""
        for name in self.names:
            self.is_sick(name, sick=False)
            shutil.rmtree(self.folder / f"of-{name}")
            (self.folder / f"of-{name}").mkdir(mode=0o700)
            run("scontrol", "update", f"nodename={name}", "state=undrain")

    def twice(self, name: str, *, sick: bool) -> list[Any]:
        """What two checks in a row say."""
        self.is_sick(name, sick=sick)
        return [self.check(name), self.check(name)]


def killed(nodes: Nodes) -> dict[str, Any]:
    """Killed at each call of scontrol: what stands then, what the next check makes of it, and what is left when the fault is gone."""
    facts: dict[str, Any] = {}
    for when in (f"{word} {number}" for number in range(1, 14) for word in ("before", "after")):
        nodes.is_sick("n1", sick=True)
        nodes.check("n1")
        (nodes.folder / "calls").write_text("0")
        code, _, then = nodes.check("n1", KILL=when, BEFORE=str(nodes.folder / "bin"))
        again = nodes.check("n1")
        facts[when] = {"code": code, "then": then, "again": again[2], "after": nodes.twice("n1", sick=False)[1][2]}
        nodes.forget()
        if code == 0:
            break
    return facts


def looks(nodes: Nodes) -> dict[str, Any]:
    """What one check does, and what two do."""
    facts: dict[str, Any] = {"fine": nodes.twice("n1", sick=False), "sick": nodes.twice("n1", sick=True), "still": nodes.check("n1")}
    nodes.is_sick("n1", sick=False)
    facts["once fine"] = nodes.check("n1")
    nodes.is_sick("n1", sick=True)
    facts["sick again"] = nodes.check("n1")
    nodes.expects("n1", 0)
    facts["no evidence"] = [nodes.check("n1"), nodes.check("n1")]
    facts["gone"] = nodes.twice("n1", sick=False)
    nodes.forget()
    for sick in (True, False):
        nodes.is_sick("n1", sick=sick)
        nodes.check("n1")
    nodes.is_sick("n1", sick=True)
    facts["flutters"] = nodes.check("n1")
    nodes.forget()
    return facts


def persons(nodes: Nodes) -> dict[str, Any]:
    """Where a person drains, takes a reason over, and resumes."""
    facts: dict[str, Any] = {}
    run("scontrol", "update", "nodename=n2", "state=drain", f"reason={HAND}")
    before = nodes.seen("n2")
    facts["by hand"] = [before, nodes.twice("n2", sick=True), nodes.twice("n2", sick=False), nodes.seen("n2")]
    nodes.forget()
    nodes.twice("n2", sick=True)
    run("scontrol", "update", "nodename=n2", "reason=mine now")
    before = nodes.seen("n2")
    facts["taken over"] = [before, nodes.check("n2"), nodes.twice("n2", sick=False), nodes.seen("n2")]
    nodes.forget()
    nodes.twice("n2", sick=True)
    run("scontrol", "update", "nodename=n2", "state=undrain")
    facts["resumed by hand"] = [nodes.check("n2"), nodes.check("n2")]
    nodes.forget()
    return facts


def many(nodes: Nodes) -> dict[str, Any]:
    """Where more nodes are sick than the brake allows: one after the other, and all in one moment."""
    facts: dict[str, Any] = {}
    nodes.twice("n1", sick=True)
    tripped = nodes.twice("n2", sick=True)
    nodes.twice("n1", sick=False)
    held = [nodes.check("n2"), nodes.check("n2")]
    facts["brake"] = {"tripped": tripped, "n1": nodes.seen("n1"), "held": held, "reset": [nodes.check("n2", "--reset"), nodes.check("n2")]}
    nodes.forget()
    for name in nodes.names:
        nodes.is_sick(name, sick=True)
        nodes.check(name)
    words, output = [nodes.folder / "check"], subprocess.PIPE
    together = [subprocess.Popen(words, env={"SLURMD_NODENAME": name}, stdout=output, text=True) for name in nodes.names]
    said = [each.communicate(timeout=120)[0] for each in together]
    facts["together"] = [said, [nodes.seen(name) for name in nodes.names]]
    nodes.forget()
    return facts


def by_slurmd(nodes: Nodes) -> list[str]:
    """What slurmd's own health checks do, every three seconds."""
    nodes.is_sick("n3", sick=True)
    (nodes.folder / "on").touch()
    for _ in range(300):
        if "DRAIN" in nodes.seen("n3"):
            break
        time.sleep(0.1)
    (nodes.folder / "on").unlink()
    time.sleep(2)  # the last one ends
    states = [nodes.seen("n3"), nodes.seen("n4")]
    nodes.forget()
    return states


def main(folder: Path) -> dict[str, Any]:
    """Facts, one after the other."""
    program = folder / "by-slurmd"
    program.write_text(f"#!/bin/sh\n[ -e {folder}/on ] && {folder}/check >>{folder}/said 2>&1\nexit 0\n")
    program.chmod(0o755)
    daemons = started(folder, f"HealthCheckProgram={program}\nHealthCheckInterval=3")
    nodes = Nodes(folder)
    facts = {**looks(nodes), **persons(nodes), **many(nodes), "killed": killed(nodes), "by slurmd": by_slurmd(nodes)}
    nodes.is_sick("n1", sick=True)
    nodes.check("n1")
    daemons[0].kill()
    daemons[0].wait()
    begun = time.monotonic()
    facts["dead"] = [nodes.check("n1"), time.monotonic() - begun]
    facts["changes"] = run(sys.executable, "-m", "sysperf", "changes", STATE_DIRECTORY=str(folder / "of-n1"))
    return facts


if __name__ == "__main__":
    os.environ.pop("XDG_RUNTIME_DIR", None)
    print(json.dumps(main(Path(sys.argv[1]))))

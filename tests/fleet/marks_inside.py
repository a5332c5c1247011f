"""Marks in a Slurm of four nodes on this machine: run as a program in namespaces of its own, it answers facts as JSON.

unshare --mount --net --uts --pid --fork --mount-proc python -m tests.fleet.marks_inside FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.fleet.machines import node, write
from tests.fleet.slurm_inside import run, started

KILLER = """#!/bin/sh
# scontrol, which kills sysperf before or after its call of this number
count=$(($(cat {folder}/calls) + 1))
echo $count >{folder}/calls
[ "$KILL" = "before $count" ] && kill -9 $PPID
{scontrol} "$@"
code=$?
[ "$KILL" = "after $count" ] && kill -9 $PPID && sleep 1
exit $code
"""
HAND = "by hand | = ; 'quoted' $HOME"


class Cluster:
    """Its nodes, and sysperf beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        os.environ["STATE_DIRECTORY"] = str(folder / "journal")
        (folder / "journal").mkdir()
        (folder / "bin").mkdir()
        (folder / "bin/scontrol").write_text(KILLER.format(folder=folder, scontrol=shutil.which("scontrol")))
        (folder / "bin/scontrol").chmod(0o755)

    def sysperf(self, *words: str, **variables: str) -> dict[str, Any]:
        return run(sys.executable, "-m", "sysperf", *words, seconds=60, **variables)

    def mark(self, *words: str) -> dict[str, Any]:
        return self.sysperf("fleet", "mark", *words, "--yes")

    def seen(self, name: str) -> str:
        """State, reason and comment of a node, as Slurm prints them."""
        shown = run("scontrol", "show", "node", name)["out"]
        lines = [line.strip() for line in shown.splitlines() if line.strip().startswith(("State=", "Reason=", "Comment="))]
        return "; ".join(line.partition(" ThreadsPerCore")[0].replace("+NOT_RESPONDING", "") for line in lines)

    def marks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.sysperf("fleet", "marks", "--json")["out"])["marks"]
        return found

    def clean(self) -> None:
        """No marks, an empty journal: the brake has seen nothing."""
        self.sysperf("fleet", "unmark", "--all")
        for path in (self.folder / "journal").rglob("*.jsonl"):
            path.unlink()

    def killed(self, when: str, *words: str) -> dict[str, Any]:
        """What is there after sysperf was killed at a call of scontrol, and after it was taken back."""
        (self.folder / "calls").write_text("0")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done = self.sysperf("fleet", *words, KILL=when, PATH=path)
        calls = int((self.folder / "calls").read_text())
        state, marks = self.seen("n1"), self.marks()
        undone = self.sysperf("fleet", "unmark", "--all")
        after = self.seen("n1")
        self.clean()
        return {"code": done["code"], "calls": calls, "state": state, "marks": marks, "undone": undone, "after": after}


def main(folder: Path) -> dict[str, Any]:
    """Facts, one after the other."""
    daemons = started(folder)
    c = Cluster(folder)
    facts = c.facts
    why = ("--why", "gpu.fell-off-bus")
    facts["asked"] = (c.sysperf("fleet", "mark", "n1", *why), c.seen("n1"), c.marks())
    facts["comment"] = (c.mark("n1", *why), c.seen("n1"), c.marks())
    facts["again"] = (c.mark("n1", *why), c.seen("n1"), c.marks())
    facts["uncomment"] = (c.sysperf("fleet", "unmark", "n1"), c.seen("n1"), c.marks())
    c.clean()
    facts["drain"] = (c.mark("n1", "--drain", *why), c.seen("n1"), c.marks())
    facts["brake"] = (c.mark("n2", "--drain", *why), c.seen("n2"))
    facts["keep"] = (c.mark("n[2-4]", "--drain", "--at-most", "4", *why), c.seen("n2"))
    facts["undrain"] = (c.sysperf("fleet", "unmark", "n1"), c.seen("n1"))
    facts["brake_after"] = (c.mark("n2", "--drain", *why), c.seen("n2"))
    c.clean()
    run("scontrol", "update", "nodename=n3", "state=drain", f"reason={HAND}")
    before = c.seen("n3")
    facts["foreign"] = (c.mark("n3", "--drain", *why), before, c.seen("n3"))
    facts["foreign_undone"] = (c.sysperf("fleet", "unmark", "n3"), c.seen("n3"))
    c.mark("n4", "--drain", "--why", "slow\nmemory")
    run("scontrol", "update", "nodename=n4", "reason=mine now")
    facts["taken"] = (c.marks(), c.sysperf("fleet", "unmark", "n4"), c.seen("n4"))
    facts["forced"] = (c.sysperf("undo", "--all", "--force"), c.seen("n4"))
    run("scontrol", "update", "nodename=n[3-4]", "state=undrain")
    c.clean()
    facts["everybody"] = (c.mark("ALL", *why), c.seen("n1"), c.seen("n4"))
    sick = [{"rule": "gpu.ecc-uncorrectable", "severity": "error", "subject": "GPU 3", "message": "m"}]
    fine = [{"rule": "memory.thp-never", "severity": "error", "message": "m"}]
    write(folder / "records", [node("n1"), node("n2", findings=sick), node("n4", findings=fine)])
    facts["records"] = (c.mark("--records", str(folder / "records"), "--drain"), c.seen("n2"), c.seen("n4"))
    c.clean()
    facts["killed"] = {}
    for when in (f"{word} {number}" for number in range(1, 9) for word in ("before", "after")):
        facts["killed"][when] = c.killed(when, "mark", "n1", "--drain", *why, "--yes")
        if facts["killed"][when]["code"] == 0:
            break
    facts["unmark_killed"] = {}
    for when in (f"{word} {number}" for number in range(2, 6) for word in ("before", "after")):
        c.mark("n1", "--drain", *why)
        facts["unmark_killed"][when] = c.killed(when, "unmark", "n1")
    c.mark("n1", "--drain", *why)
    daemons[0].kill()
    daemons[0].wait()
    facts["dead"] = (c.mark("n2", *why), c.sysperf("fleet", "unmark", "n1"), c.sysperf("changes"))
    return facts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

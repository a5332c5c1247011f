"""Three slow jobs and a newcomer who only pastes what is printed: from `diagnose` to the line, to its cure, to a proof that runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pasting import PYTHON, ROOT, shell

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch"),
]
OTHERS = "take the CPUs that the job wants"
"""What may be the truth of a machine where other tests run: then it is said first, and may be all that is clear."""


class Job(NamedTuple):
    """A program of `tests/newcomer`, and what is wrong with it."""

    name: str
    start: str
    title: str
    line: str
    better: str
    """The line once it is mended."""


JOBS = (
    Job(
        "images", "-- python train.py", "The main thread makes the batches itself",
        'pixels = numpy.asarray(image.convert("RGB").resize((SIZE, SIZE)))',
        'image.draft("RGB", (SIZE, SIZE)); pixels = numpy.asarray(image.convert("RGB").resize((SIZE, SIZE)))',
    ),
    Job(
        "language", "-- python train.py", "Logging takes a part of the steps",
        'logging.info("step %d: %s[%d] has norm %.6f", step, name, row, norm)',
        'step % 100 or logging.info("step %d: %s[%d] has norm %.6f", step, name, row, norm)',
    ),
    Job(
        "ranks", "--warm-up 30 -- torchrun --nproc-per-node 2 train.py", "One rank is slower than the others",
        "for _ in range(30 if rank == 1 else 1):",
        "for _ in range(1):",
    ),
)  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_from_suspicion_to_proof(job: Job, tmp_path: Path) -> None:
    """Each printed command is pasted; only the runs of the proof are shorter."""
    program = tmp_path / "train.py"
    shutil.copy(ROOT / f"tests/newcomer/{job.name}.py", program)
    paste = shell(tmp_path)

    answer = paste(f"sysperf diagnose {job.start}")
    causes = answer.stdout.split("\n\n")
    told = next((cause for cause in causes if job.title in cause), "")
    for command in re.findall(r"^ +(ps -.+)$", answer.stdout, flags=re.MULTILINE):
        assert paste(command).returncode == 0, command

    assert answer.returncode == 1, answer.stderr
    assert told or OTHERS in answer.stdout, answer.stdout
    assert not told or re.search(rf"{program}:[0-9]+ ", told), told
    if not told or not (keep := re.search(r"^  keep +(.+)$", told, flags=re.MULTILINE)):
        return
    prove = re.findall(r"^  prove +(.+)$", told, flags=re.MULTILINE)[0]
    assert paste(keep[1]).returncode == 0
    source = program.read_text()
    assert source.count(job.line) == 1
    program.write_text(source.replace(job.line, job.better))
    proof = paste(prove.replace("--run-seconds 10 --minutes 10", "--run-seconds 1 --max-pairs 2"))
    medians = [float(number) for number in re.findall(r"median ([0-9.]+) steps/s", proof.stdout)]

    assert proof.returncode in (0, 3), proof.stderr
    assert medians[1] > medians[0] or "others took" in proof.stdout, proof.stdout  # two short pairs beside them tell nothing

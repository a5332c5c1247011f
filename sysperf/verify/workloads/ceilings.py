"""Measure what the machine can give, one ceiling at a request: ``python ceilings.py``, JSON lines in and out.

A request names a task and its arguments; the answer has its rate, in units of the task a second, and the CPU time that was spent. The
tasks are in ceiling_tasks: `triad`, `matmul`, `transfer`, `all_reduce` and `send_recv` need torch, `decode` Pillow, the others neither.
It ends when its input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import shutil
import signal
import sys
from collections.abc import Iterator

sys.dont_write_bytecode = True  # nothing of another interpreter's stays in the folder of sysperf

from ceiling_tasks import memory, processes, products, ranks, storage  # noqa: E402 - beside this file
from ceiling_tasks.timing import KEPT, Arguments  # noqa: E402 - as above


def about(_: Arguments) -> Arguments:
    """Return what decides the figures: versions of Python, torch and the decoder. Imports torch where it is."""
    found = {"python": platform.python_version()}
    try:
        import torch

        found["torch"] = str(torch.__version__)
    except Exception as error:  # noqa: BLE001 - a broken torch may raise anything, and is named
        found["no torch"] = f"{type(error).__name__}: {error}"[:200]
    try:
        import PIL
        from PIL import features

        found["decoder"] = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}"
    except Exception as error:  # noqa: BLE001 - as above
        found["no decoder"] = f"{type(error).__name__}: {error}"[:200]
    return found


TASKS = {
    task.__name__: task
    for task in (
        memory.copy, memory.triad, products.matmul, products.transfer, ranks.all_reduce, ranks.send_recv,
        storage.big_file, storage.many_files, processes.decode, processes.start,
    )
}  # fmt: skip


def cpu_s() -> float:
    """Return the CPU time of this process and its children that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def answered(request: Arguments) -> Arguments:
    """Do what a request asks; what goes wrong is the answer."""
    before = cpu_s()
    try:
        if request["task"] == "about":
            return {"about": about(request)}
        rate, remark = TASKS[request["task"]](request)
    except Exception as error:  # noqa: BLE001 - torch raises what it likes, and one ceiling less is no reason to end
        return {"problem": f"{type(error).__name__}: {error}"[:400]}
    finally:
        os.sched_setaffinity(0, KEPT["allowed"])
    return {"rate": rate, "remark": remark, "cpu_s": cpu_s() - before}


def requests() -> Iterator[Arguments]:
    """Return the requests, until the input ends."""
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    """Answer requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides what Ctrl-C means, and closes our input
    KEPT["allowed"], KEPT["parent"] = os.sched_getaffinity(0), os.getppid()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    with contextlib.suppress(BrokenPipeError):
        for request in requests():
            answers.write(json.dumps(answered(request)) + "\n")
            answers.flush()
    for folder in KEPT.get("folders", ()):  # where whoever asked was killed, nobody else removes it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # not held up by threads of a library


if __name__ == "__main__":
    main()

"""Start sysperf on nodes of a Ray cluster: ``python tasks.py ADDRESS``, an order a line in, its answers a line each out, the end last.

It runs in an interpreter that has Ray, where sysperf may be absent. What starts on a node travels there by value.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

GIVEN_BACK = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")
"""What Ray sets for a task by the CPUs and GPUs that it takes. Ours takes none, and looks at all."""
DEATHS = ("unspecified", "expected_termination", "unexpected_termination", "drain_preempted", "drain_idle")
"""In the order of Ray's NodeDeathInfo.Reason."""
MAX_COMPLAINT_BYTES = 4_096
LOOK_S = 0.5
Line = dict[str, Any]  # any: of JSON, whose reader checks it
OfRay = Any  # any: Ray is imported where this runs, and nowhere else


def started(argv: list[str], limit_s: float, most: int) -> Line:
    """Run a program on a node, in a task there, until it ends, its time is over, or it prints too much."""
    begun, limits = time.monotonic(), [""]
    give_back()
    beside = os.path.join(os.path.dirname(sys.executable), argv[0])
    if os.sep not in argv[0] and os.access(beside, os.X_OK):
        argv = [beside, *argv[1:]]
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, start_new_session=True)
        except OSError as error:
            return {"reason": f"sysperf is not where it was looked for (--sysperf): {argv[0]}: {error.strerror}"}
        with contextlib.suppress(OSError):  # Ray's workers have a low priority; only root can give it back
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, os.getppid()))

        def end(state: str) -> None:
            limits[0] = limits[0] or state
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(limit_s, end, ("late",))
        timer.start()
        with process:
            output = process.stdout.read(most + 1) if process.stdout else b""
            if len(output) > most:
                end("loud")
        timer.cancel()
        complaints.seek(max(0, os.fstat(complaints.fileno()).st_size - MAX_COMPLAINT_BYTES))
        lines = complaints.read().decode("utf-8", "replace").split("\n")
    said = {"took_s": time.monotonic() - begun, "complaint": next((line for line in reversed(lines) if line.strip()), "")}
    if limits[0]:
        reasons = {"late": f"no answer within {limit_s:g} s", "loud": f"it printed more than {most >> 10} KiB"}
        return {**said, "state": limits[0], "reason": reasons[limits[0]]}
    return {**said, "code": process.returncode, "output": base64.b64encode(output).decode()}


def give_back() -> None:
    """Take the environment's values of whoever started Ray on this node, or none."""
    before: dict[str, str] = {}
    with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/environ", "rb") as file:
        before = {name: value for name, _, value in (each.partition("=") for each in os.fsdecode(file.read()).split("\0"))}
    for name in GIVEN_BACK:
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]


def listed(ray: OfRay) -> Line:
    """The nodes that Ray has, the dead ones, too."""
    nodes = []
    for each in ray.nodes():
        names = [each.get("NodeName"), each.get("NodeManagerHostname"), each.get("NodeManagerAddress")]
        if names[0] == names[2]:
            names.pop(0)  # nobody gave it one
        death = each.get("DeathReason") or 0
        nodes.append(
            {
                "id": each["NodeID"],
                "names": [name for name in names if name],
                "alive": bool(each.get("Alive")),
                "death": DEATHS[death] if isinstance(death, int) and death < len(DEATHS) else str(death),
                "why": each.get("DeathReasonMessage") or "",
            }
        )
    return {"nodes": nodes}


def answers(ray: OfRay, order: Line) -> Iterator[Line]:
    """What comes of each node, as it comes: so many tasks at a time, each bound to its node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task, waiting = ray.remote(started), list(order["nodes"])
    running: dict[OfRay, tuple[str, float]] = {}
    while waiting or running:
        while waiting and len(running) < order["at_once"]:
            node, argv = waiting.pop(0)
            there = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            running[options.remote(argv, order["limit_s"], order["most"])] = (node, time.monotonic())
        for done in ray.wait(list(running), timeout=LOOK_S)[0]:
            yield {"id": running.pop(done)[0], **came(ray, done)}
        for reference, (node, begun) in list(running.items()):
            if time.monotonic() - begun > order["limit_s"] + order["grace_s"]:
                ray.cancel(reference, force=True)
                del running[reference]
                yield {"id": node, "state": "late", "reason": f"no answer within {order['limit_s']:g} s; Ray started no task there"}


def came(ray: OfRay, done: OfRay) -> Line:
    """What a task returned, or how its node was lost."""
    try:
        said: Line = ray.get(done)
    except Exception as error:  # noqa: BLE001 - Ray has many, and a task's own come through
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"state": "lost", "reason": f"{type(error).__name__}: {lines[0] if lines else ''}"}
    return said


def reach(address: str) -> None:
    """Raise OSError where nobody listens at an address: Ray itself tries for a minute and a half."""
    host, _, port = address.replace("ray://", "").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def main() -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer

    def say(said: Line) -> None:
        print(json.dumps(said), file=out, flush=True)

    try:
        reach(sys.argv[1])
        import ray

        ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
        for line in sys.stdin:
            order = json.loads(line)
            for said in answers(ray, order) if order["nodes"] else [listed(ray)]:
                say(said)
            say({"end": True})
    except Exception as error:  # noqa: BLE001 - Ray raises what it likes, and it is told
        say({"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})


if __name__ == "__main__":
    main()

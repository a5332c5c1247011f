"""What is known of one program now, whichever pane draws it: its workers, its memory, its command line made short."""

from __future__ import annotations

from sysperf.collect.process.records import Process
from sysperf.model.text import neutral
from sysperf.tui.now import Now


def resident(now: Now, process: Process) -> float | None:
    live = now.of_process(process.pid, "rss_bytes")
    return live if live is not None else process.memory.rss_bytes


def number_of_workers(now: Now, process: Process) -> int | None:
    """Count those that the last sample saw; before it looked at the children, those of the facts. None there: some may have come since."""
    live = now.of_process(process.pid, "workers")
    if live is not None:
        return int(live)
    return process.workers.count or (None if now.of_process(process.pid, "threads") is not None else 0)


def has_workers(now: Now, process: Process) -> bool:
    """Whether there is something to unfold."""
    return bool(number_of_workers(now, process))


def data_wait(now: Now, process: Process) -> float | str:
    """The most that its main thread waits for DataLoader workers; ``-`` without any, ``?`` when it is unknown."""
    if number_of_workers(now, process) == 0:
        return "-"
    bound = now.of_process(process.pid, "data_wait")
    return "?" if bound is None else float(bound)


def locality(now: Now, process: Process) -> float | None:
    """The share of its memory that lies on the nodes of the CPUs it may use; None on one node, or when unknown."""
    name = ("locality", process.pid)
    if name not in now.derived:
        now.derived[name] = _locality(now, process)
    known: float | None = now.derived[name]
    return known


def _locality(now: Now, process: Process) -> float | None:
    pages, allowed, numa = process.memory.nodes, process.affinity.now, now.facts.numa
    if not pages or allowed is None or numa is None or not has_nodes(now):
        return None
    near = {node.id for node in numa.nodes if node.cpus and node.cpus & allowed}
    total = sum(page.bytes for page in pages)
    return sum(page.bytes for page in pages if page.node in near) / total if total else None


def has_nodes(now: Now) -> bool:
    """Whether memory can be near some CPUs and far from others."""
    return now.facts.numa is not None and (now.facts.numa.nodes_with_cpus or 0) >= 2


def program(process: Process) -> str:
    """Return its command line, the interpreter without its folder."""
    first, *rest = (process.command or process.name or "?").split(" ")
    return neutral(" ".join([first.rpartition("/")[2] or first, *rest]), 1_000)


def short(process: Process) -> str:
    """Return the name of its script, or its own."""
    words = program(process).split(" ")[1:]
    return next((word.rpartition("/")[2] for word in words if not word.startswith("-")), "") or neutral(process.name or "?", 40)


def without_folder(command: str) -> str:
    """The command with its script's name alone: where room is scarce, folders are what all of them share."""
    first, *rest = command.split(" ")
    place = next((place for place, word in enumerate(rest) if not word.startswith("-")), None)
    if place is not None and rest[place].endswith(".py"):
        rest[place] = rest[place].rpartition("/")[2]
    return " ".join([first, *rest])


def without_interpreter(command: str) -> str:
    """The command without Python's name, with which all rows would begin; beside `-c` it is what can be read.

    >>> without_interpreter("python3.11 train.py --rank 0"), without_interpreter("python -c '<hidden>'")
    ('train.py --rank 0', "python -c '<hidden>'")
    """
    first, _, rest = command.partition(" ")
    return rest if rest and first.startswith("python") and not rest.startswith("-c") else command

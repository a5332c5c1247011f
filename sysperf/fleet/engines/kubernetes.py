"""Nodes of Kubernetes: a DaemonSet's pods print records, and their logs are read. Nothing is run in a pod, and nothing listens.

deploy/kubernetes/record is that DaemonSet. `kubectl` asks with the rights and the context of whoever calls it.

kubectl  https://kubernetes.io/docs/reference/kubectl/generated/
"""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.fleet.engines import programs
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.node import Answer, Asked, Node, NodeState, Verb, is_name, record_line
from sysperf.model.text import neutral
from sysperf.plugin import Deliver
from sysperf.startup import lazy

NAMESPACE = "sysperf"
SELECTOR = "app.kubernetes.io/name=sysperf-record"
ASK_S = 30.0
MAX_LIST_BYTES = 16 << 20
MAX_LINES = 40
"""The kubelet counts pieces of 16 KiB: so many hold two records of the largest size, of which the last is whole."""
MAX_LOG_BYTES = (MAX_LINES + 1) * (16 << 10)
_NAMESPACE = lazy(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NODES = r'{range .items[*]}{.metadata.name}{"\t"}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'
_PODS = r'{range .items[*]}{.spec.nodeName}{"\t"}{.metadata.name}{"\t"}{.status.phase}{"\n"}{end}'


def nodes(asked: Asked) -> tuple[Node, ...]:
    """Return the cluster's nodes, or those that are named. Raises SysperfError."""
    _namespace(asked)
    found = {name: ready for name, ready in _rows(("get", "nodes", "-o", f"jsonpath={_NODES}"), 2) if is_name(name)}
    known = (Node(name, "answered", "" if ready == "True" else "the cluster says that it is not ready") for name, ready in found.items())
    strangers = (Node(name, "unreachable", "the cluster does not have it") for name in asked.hosts if name not in found)
    return (*(node for node in known if not asked.hosts or node.name in asked.hosts), *strangers)


def run(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """Read the log of the pod on each node. A node that is not ready may still answer: its kubelet decides."""
    if verb != "record":
        raise UsageError(f"Kubernetes' pods print records, and no `{verb}`", "`--engine ssh` or `--engine slurm` asks for it")
    namespace = _namespace(asked)
    rows = _rows(("get", "pods", "-n", namespace, "-l", SELECTOR, "-o", f"jsonpath={_PODS}"), 3)
    pods = {node: (pod, phase) for node, pod, phase in rows if is_name(pod)}

    def answer(node: Node) -> Answer:
        pod, phase = pods.get(node.name, ("", ""))
        if node.state != "answered":
            return Answer(node.name, node.state, node.reason)
        if not pod:
            return Answer(node.name, "unreachable", node.reason or f"no pod of sysperf runs there in namespace {namespace}")
        if phase != "Running":
            return Answer(node.name, "unreachable", f"its pod is {neutral(phase, 40)}")
        return _logged(node, pod, namespace, asked)

    for each in programs.each(answer, nodes, asked.at_once):
        deliver(each)


def _logged(node: Node, pod: str, namespace: str, asked: Asked) -> Answer:
    """The last record in the log of a pod."""
    limits = (f"--tail={MAX_LINES}", f"--limit-bytes={MAX_LOG_BYTES}")
    ended = programs.run(("kubectl", "logs", "-n", namespace, pod, "-c", "record", *limits), asked.node_limit_s, most=MAX_LOG_BYTES)
    took_s = round(ended.took_s, 2)
    if ended.code != 0:
        state: NodeState = "late" if ended.problem == programs.TOO_LATE.format(asked.node_limit_s) else "unreachable"
        return Answer(node.name, state, node.reason or ended.problem or ended.last_words, took_s=took_s)
    record = record_line(ended.output)
    return Answer(node.name, data=record, took_s=took_s) if record else Answer(node.name, "late", "its pod has printed no record yet")


def _namespace(asked: Asked) -> str:
    """The namespace of the DaemonSet: what stands where others name a folder. Raises UsageError."""
    namespace = asked.where or NAMESPACE
    if not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"{namespace[:80]}: no namespace", "the DaemonSet's, such as `sysperf fleet audit sysperf --engine kubernetes`")
    return namespace


def _rows(words: Sequence[str], columns: int) -> list[list[str]]:
    """What kubectl lists. A cluster that does not answer is an error, never an empty fleet."""
    ended = programs.run(("kubectl", *words, f"--request-timeout={ASK_S:.0f}s"), ASK_S, most=MAX_LIST_BYTES)
    if ended.code != 0:
        why = ended.problem or ended.last_words or f"code {ended.code}"
        raise SysperfError(f"`kubectl {' '.join(words[:2])}`: {why}", "`kubectl cluster-info` shows whether it reaches the cluster")
    rows = (line.split("\t") for line in ended.output.decode("utf-8", "replace").splitlines())
    return [row for row in rows if len(row) == columns]

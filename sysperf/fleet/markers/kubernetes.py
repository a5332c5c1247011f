"""Marks in Kubernetes: the condition `SysperfMark` of a node, in its status, of which nothing else is changed.

A strategic merge patch carries this condition only, and the version that was read. Whoever has written since makes that a conflict; then
the node is read and tried again, so words of others are not written over. sysperf drains nothing there: a taint follows from a condition
by the cluster's rule.

Conditions  https://kubernetes.io/docs/reference/node/node-status/#condition
Merged by their type  https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
A version in a patch is a precondition  https://github.com/kubernetes/kubernetes/issues/63104
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from sysperf.fleet.engines import programs
from sysperf.model.errors import SysperfError
from sysperf.model.mark import MAX_MARK, How, NodeMark, is_ours
from sysperf.model.node import is_name
from sysperf.model.record import DecodeError, JsonObject, Record, from_json, to_json

HOWS: tuple[How, ...] = ("mark",)
CONDITION = "SysperfMark"
KIND = "node.kubernetes.io/instance-type"
"""The brake's groups: Kubernetes has no partitions, and nodes of one type are one pool."""
ASK_S = 15.0
PAGE = 250
MAX_BYTES = 64 << 20
TRIES = 5


T = TypeVar("T")


class _Condition(Record, forbid_unknown_fields=False):
    type: str
    status: str = ""
    message: str = ""


class _Meta(Record, forbid_unknown_fields=False):
    name: str = ""
    labels: dict[str, str] = {}
    version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str = msgspec.field(default="", name="continue")


class _Spec(Record, forbid_unknown_fields=False):
    unschedulable: bool = False


class _Status(Record, forbid_unknown_fields=False):
    conditions: tuple[_Condition, ...] = ()


class _Node(Record, forbid_unknown_fields=False):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Page(Record, forbid_unknown_fields=False):
    items: tuple[_Node, ...] = ()
    metadata: _Meta = _Meta()


def states(nodes: Sequence[str] = ()) -> Mapping[str, NodeMark]:
    """What the cluster says of these nodes, of all where none is named. Raises SysperfError."""
    if len(nodes) == 1:
        found = _asked(f"/api/v1/nodes/{nodes[0]}", _Node) if is_name(nodes[0]) else None
        listed = [found] if found else []
    else:
        listed = [each for each in _pages() if not nodes or each.metadata.name in nodes]
    return {each.metadata.name: _described(each) for each in listed if is_name(each.metadata.name)}


def write(node: str, how: How, text: str) -> None:
    """Set the condition to true with these words, or take it away. Raises SysperfError."""
    if how != "mark" or not is_name(node) or len(text) > MAX_MARK:
        raise SysperfError(f"{node[:80]}: no mark that Kubernetes takes", "a drain is for `kubectl drain`, or for a rule of the cluster")
    for _ in range(TRIES):
        found = _asked(f"/api/v1/nodes/{node}", _Node)
        if found is None:
            raise SysperfError(f"{node}: the cluster does not have it", "`kubectl get nodes` lists them")
        patch = to_json(_patch(found, text)).decode()
        ended = _kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "--output=name", f"--patch={patch}")
        if ended.code == 0:
            return
        if "unknown flag: --subresource" in ended.complaint:
            raise SysperfError(
                "this kubectl is older than 1.24 and cannot patch the status of a node", "install a later one; nothing was changed"
            )
        if "(Conflict)" not in ended.complaint:
            raise _refused("patch", ended)
    raise SysperfError(f"{node}: others change its status faster than it can be read", "try again; nothing was changed")


def _patch(node: _Node, text: str) -> JsonObject:
    """What sets the condition, or takes it away. Raises SysperfError where its words are somebody else's."""
    if not node.metadata.version:
        raise SysperfError("the cluster's answer has no version of the node", "nothing was changed")
    theirs = [each for each in node.status.conditions if each.type == CONDITION]
    if any(each.status == "True" and not is_ours(each.message) for each in theirs):
        raise SysperfError(f"its condition {CONDITION} has words of somebody else", "nothing was changed")
    now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    ours = {"status": "True", "reason": "MarkedBySysperf", "message": text, "lastHeartbeatTime": now, "lastTransitionTime": now}
    condition = {"type": CONDITION, **(ours if text else {"$patch": "delete"})}
    return {"metadata": {"resourceVersion": node.metadata.version}, "status": {"conditions": [condition]}}


def _described(node: _Node) -> NodeMark:
    conditions = {each.type: each for each in node.status.conditions}
    ready = conditions.get("Ready", _Condition("Ready", "Unknown")).status == "True"
    mark = conditions.get(CONDITION)
    kind = node.metadata.labels.get(KIND)
    return NodeMark(
        node=node.metadata.name,
        partitions=(kind,) if kind else (),
        state=("Ready" if ready else "NotReady") + (",SchedulingDisabled" if node.spec.unschedulable else ""),
        usable=ready and not node.spec.unschedulable,
        comment=mark.message if mark and mark.status == "True" else "",
        reason="cordoned" if node.spec.unschedulable else "",
    )


def _pages() -> Iterator[_Node]:
    """All nodes, a page at a time: a node's own JSON may have a hundred kilobytes."""
    after = ""
    while True:
        page = _asked(f"/api/v1/nodes?limit={PAGE}{after}", _Page) or _Page()
        yield from page.items
        if not page.metadata.next_page:
            return
        after = f"&continue={urllib.parse.quote(page.metadata.next_page)}"


def _asked(path: str, kind: type[T]) -> T | None:
    """What lies there; None: nothing does. Raises SysperfError."""
    ended = _kubectl("get", "--raw", path)
    if ended.code != 0 and "(NotFound)" in ended.complaint:
        return None
    if ended.code != 0:
        raise _refused("get", ended)
    try:
        return from_json(ended.output, kind)
    except DecodeError as error:
        raise SysperfError(f"the cluster's answer cannot be read: {str(error)[:200]}", "nothing was changed") from None


def _kubectl(*words: str) -> programs.Ended:
    return programs.run(("kubectl", *words, f"--request-timeout={ASK_S:.0f}s"), ASK_S, most=MAX_BYTES)


def _refused(what: str, ended: programs.Ended) -> SysperfError:
    why = ended.problem or ended.last_words or f"code {ended.code}"
    return SysperfError(f"`kubectl {what}`: {why}", "deploy/kubernetes/marker has the rights that it needs")

"""What a node sent, as its record. It is untrusted: bounded, decoded strictly, and of the node that was asked."""

from __future__ import annotations

from sysperf.model.node import MAX_RECORD_BYTES, Answer, NodeRecord
from sysperf.model.record import from_json
from sysperf.model.text import neutral

MAX_FACTS = 4_000
MAX_FINDINGS = 2_000


class Refused(ValueError):
    """Why something is no record of this node."""


def decode(answer: Answer) -> NodeRecord:
    """The record in an answer. Raises Refused."""
    if len(answer.data) > MAX_RECORD_BYTES:
        raise Refused(f"its record is larger than {MAX_RECORD_BYTES >> 10} KiB")
    try:
        record = from_json(answer.data, NodeRecord)
    except ValueError as error:
        raise Refused(f"no record of a node: {neutral(str(error), 160)}") from None
    if record.node != answer.node:
        raise Refused(f"its record is of another node, {neutral(record.node, 80)}")
    if len(record.comparables) > MAX_FACTS or len(record.findings) > MAX_FINDINGS:
        raise Refused("its record has more facts or findings than a machine can have")
    if record.problem:
        raise Refused(neutral(record.problem, 300))
    return record

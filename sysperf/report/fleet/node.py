"""A node's record as Prometheus metrics, for the node exporter's textfile folder: its class, and what was measured."""

from __future__ import annotations

from statistics import median

from sysperf.fleet.classes import class_name, hardware_key
from sysperf.model.node import NodeRecord
from sysperf.report.formats.as_prometheus import gauge


def prometheus(record: NodeRecord) -> str:
    """Series with the node's name; `class` stands on one of them, and the others join it."""
    node = {"node": record.node}
    ceilings = [({**node, "metric": each.metric, "unit": each.unit}, median(each.values)) for each in record.ceilings if each.values]
    return "".join(
        (
            gauge("node_info", "The class of a node.", [({**node, "class": class_name(hardware_key(record.hardware))}, 1)]),
            gauge("node_ceiling", "The median of short runs; more is better.", ceilings),
        )
    )

"""The memory nodes beside the GPUs of a process, and how ranks whose GPUs share a node divide it."""

from sysperf.launch.cores import CoreMap
from sysperf.launch.gpus import MIXED, PlacedGpu, VisibleGpus, part
from sysperf.launch.machine import MemoryNode
from sysperf.launch.ranks import Ranks
from sysperf.model.record import Record


class NodeShare(Record):
    """A rank's part of the node beside its GPU: the `number`-th of `parts`."""

    node: MemoryNode
    number: int
    parts: int


class GpuNodes:
    """The GPUs of one process and their nodes. `notes` says what stays unknown."""

    def __init__(self, core_map: CoreMap, ranks: Ranks, gpus: VisibleGpus, notes: list[str]) -> None:
        self.core_map, self.ranks, self.gpus, self.notes = core_map, ranks, gpus, notes

    def nodes(self) -> list[MemoryNode]:
        """The nodes beside the GPUs of this process; none where that is unknown, or all is near."""
        mine = self._mine()
        if not mine or len(self.core_map.nodes) < 2:
            return []
        beside = [self._beside(gpu) for gpu in mine]
        if not all(beside):
            self.notes.append(
                "the firmware does not say which node its GPU is beside, or none of that node's CPUs may be used: not bound to it"
            )
            return []
        return list({node.id: node for node in beside if node}.values())

    def share(self) -> NodeShare | None:
        """Return this rank's part: ranks whose GPUs share a node divide it. None where that is unknown."""
        size, visible = self.ranks.size or 1, self.gpus.visible
        if not self.nodes() or not visible:
            return None
        if len(visible) > 1 or size == 1 or self.ranks.same_gpus:
            gpus_of_ranks = [self._of_rank(rank) for rank in range(size)]
            rank = self.ranks.rank
        else:  # each rank sees its own GPU only: take it that every GPU of the machine has one rank
            gpus_of_ranks = [[gpu] for gpu in self.gpus.machine]
            rank = next((index for index, (gpu,) in enumerate(gpus_of_ranks) if gpu.bus_id == visible[0].bus_id), 0)
            if size > len(gpus_of_ranks):
                self.notes.append(f"{size} ranks on {len(gpus_of_ranks)} GPUs, each seeing one: which of them share is not known")
                return None
        if not all(self._beside(gpu) for gpus in gpus_of_ranks for gpu in gpus):
            # Those ranks divide all CPUs: a rank that took its own node's would be on theirs.
            self.notes.append("another rank's GPU is beside no known node, or none of whose CPUs may be used: ranks divide all CPUs evenly")
            return None
        nodes = [node for gpus in gpus_of_ranks if (node := self._beside(gpus[0]))]
        sharing = [index for index, node in enumerate(nodes) if node.id == nodes[rank].id]
        return NodeShare(nodes[rank], sharing.index(rank), len(sharing))

    def _mine(self) -> list[PlacedGpu] | None:
        """The GPUs of this process; None when that is unknown."""
        if self.gpus.visible is None:
            self.notes.append(f"{self.gpus.problem}: not bound to its GPU's node")
            return None
        if self.ranks.source and self.gpus.visible and not self.gpus.ordered:
            self.notes.append(f"{MIXED}: not bound to its GPU's node")
            return None
        return self._of_rank(self.ranks.rank) if self.ranks.source else list(self.gpus.visible)

    def _of_rank(self, rank: int) -> list[PlacedGpu]:
        """The GPUs of a rank: its part when we divide them, else the one with its number, as programs choose."""
        visible = list(self.gpus.visible or ())
        if self.ranks.divides_gpus:
            return [visible[index] for index in part(len(visible), rank, self.ranks.size or 1)]
        return [visible[rank % len(visible)]] if visible else []

    def _beside(self, gpu: PlacedGpu) -> MemoryNode | None:
        """The node beside a GPU whose CPUs we may use; by its CPUs where the firmware gives no number."""
        for node in self.core_map.nodes:
            near = gpu.local_cpus & self.core_map.machine.online if gpu.local_cpus else None
            if node.id == gpu.node or (gpu.node is None and near and near == node.cpus):
                return node
        return None

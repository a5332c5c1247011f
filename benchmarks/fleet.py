"""How often `sysperf fleet bench` finds a slow node or link, and names a healthy one, in simulated fleets: the tables of docs/fleet.md.

  python benchmarks/fleet.py [--sweeps 100]

Each row is so many fleets: 12 figures a node, 5 runs a figure at the first look, 2 % of the runs disturbed by 3 to 30 %, one node slow in
one figure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fleet import networks
from tests.fleet.networks import Net
from tests.fleet.sweeps import World, rates

WORLDS = (
    World(512, 0.003, 0.005, 0.03),
    World(512, 0.005, 0.01, 0.03),
    World(512, 0.01, 0.01, 0.03),
    World(512, 0.01, 0.01, 0.05),
    World(512, 0.005, 0.03, 0.03, runs=15),
    World(512, 0.005, 0.03, 0.05, runs=15),
    World(512, 0.005, 0.03, 0.05),
    World(512, 0.005, 0.01),
    World(64, 0.005, 0.01, 0.03),
    World(8, 0.005, 0.01, 0.03),
    World(4, 0.005, 0.01, 0.03),
    World(4096, 0.005, 0.01, 0.03),
    World(64, 0.005, 0.01, alike=0.6),
    World(64, 0.005, 0.01, 0.03, alike=0.6),
    World(64, 0.005, 0.01, rack_noise=0.01),
    World(64, 0.005, 0.01, 0.03, rack_noise=0.01),
    World(64, 0.005, 0.01, rack_noise=0.01, scattered=True),
    World(64, 0.005, 0.01, 0.03, rack_noise=0.01, scattered=True),
    World(64, 0.005, 0.01, rack_noise=0.01, lasts=5, scattered=True),
    World(512, 0.005, 0.01, 0.03, slow_rack=True),
    World(512, 0.005, 0.01, 0.03, alike=0.6, rack_noise=0.005),
)
"""The first twelve are those of the design; the others have noise that runs, or nodes of a rack, share."""

NETWORKS = (
    Net(slow_node=0.15),
    Net(slow_link=0.3),
    Net(),
    Net(nodes=4, slow_node=0.5),
    Net(nodes=4, slow_link=0.5),
    Net(slow_node=0.15, alike=0.6),
    Net(slow_node=0.15, rack_noise=0.05),
    Net(slow_link=0.2, rack_noise=0.05),
    Net(rack_noise=0.05),
    Net(noise=0.1),
)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=100)
    sweeps = parser.parse_args().sweeps
    of_nodes(sweeps)
    print()
    of_pairs(sweeps)


def of_nodes(sweeps: int) -> None:
    """Nodes that are measured by themselves."""
    print(
        "| nodes | healthy nodes spread by | noise of a run | slow by | found | a healthy node is named | one look: found | healthy named |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for world in WORLDS:
        of_many = rates(world, sweeps)
        found, glance = (f"{rate:.2f}" if world.slow_by else "–" for rate in (of_many.found, of_many.glance_found))
        print(f"| {world.nodes} | {world.spread:.1%} | {noise(world)} | {what(world)} "
              f"| {found} | {of_many.healthy_named:.2f} | {glance} | {of_many.glance_healthy:.2f} |", flush=True)  # fmt: skip


def of_pairs(looks: int) -> None:
    """Pairs of nodes."""
    print("| nodes | slow | noise of a run | found as that | something else is named |")
    print("|---|---|---|---|---|")
    for net in NETWORKS:
        of_many = networks.rates(net, looks)
        what = f"a node, by {net.slow_node:.0%}" if net.slow_node else f"a link, by {net.slow_link:.0%}" if net.slow_link else "nothing"
        found = f"{of_many.found:.2f}" if what != "nothing" else "–"
        print(f"| {net.nodes} | {what} | {noise(net)} | {found} | {of_many.others_named:.2f} |", flush=True)


def what(world: World) -> str:
    """``3%``."""
    return f"{world.slow_by:.0%}{', a rack' if world.slow_rack else ''}" if world.slow_by else "nothing"


def noise(world: World | Net) -> str:
    """``1 %, each run like the one before (0.6)``."""
    alike = f", each run like the one before ({world.alike:g})" if world.alike else ""
    shared = f", and {100 * world.rack_noise:g}% that a rack shares for a while" if world.rack_noise else ""
    if not isinstance(world, World):
        return f"{world.noise:.1%}{alike}{shared}"
    many = f" ({world.runs} runs)" if world.runs != World().runs else ""
    shared += f", {world.lasts:g} rounds long" if world.lasts else ""
    return f"{world.noise:.1%}{many}{alike}{shared}{'; names do not tell racks' if world.scattered else ''}"


if __name__ == "__main__":
    main()

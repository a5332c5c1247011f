"""How often `sysperf fleet bench` finds a slow node, and names a healthy one, in simulated fleets.

  python benchmarks/fleet.py [--sweeps 100]

Each row is so many fleets: 12 figures a node, 5 runs a figure, 2 % of the runs disturbed by 3 to 30 %, one node slow in one figure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fleet.sweeps import World, rates

WORLDS = (
    World(512, 0.005, 0.01, 0.03),
    World(64, 0.005, 0.01, 0.03),
    World(64, 0.005, 0.01),
    World(8, 0.005, 0.01, 0.03),
    World(4, 0.005, 0.01, 0.03),
    World(64, 0.003, 0.005, 0.03),
    World(64, 0.01, 0.01, 0.03),
    World(64, 0.01, 0.01, 0.05),
    World(64, 0.005, 0.03, 0.03),
    World(64, 0.005, 0.03, 0.05),
    World(64, 0.005, 0.01, 0.03, alike=0.6),
    World(64, 0.005, 0.01, rack_noise=0.01),
    World(64, 0.005, 0.01, 0.03, rack_noise=0.01),
)


def main() -> None:
    """Print a row for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=100)
    sweeps = parser.parse_args().sweeps
    print("| nodes | healthy nodes spread by | noise of a run | slow by | found | a healthy node is named |")
    print("|---|---|---|---|---|---|")
    for world in WORLDS:
        of_many = rates(world, sweeps)
        found = f"{of_many.found:.2f}" if world.slow_by else "–"
        print(f"| {world.nodes} | {world.spread:.1%} | {noise(world)} | {world.slow_by or 'nothing':{'.0%' if world.slow_by else ''}} "
              f"| {found} | {of_many.healthy_named:.2f} |", flush=True)  # fmt: skip


def noise(world: World) -> str:
    """``1 %, each run like the one before (0.6)``."""
    alike = f", each run like the one before ({world.alike:g})" if world.alike else ""
    shared = f", and {world.rack_noise:.0%} that a rack shares for a while" if world.rack_noise else ""
    return f"{world.noise:.1%}{alike}{shared}"


if __name__ == "__main__":
    main()

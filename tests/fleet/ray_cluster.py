"""A real Ray of four nodes on this machine, for an interpreter that has Ray: it prints its address, and kills the node that a line names.

RAY_TMPDIR=FOLDER python ray_cluster.py
"""

import sys

from ray.cluster_utils import Cluster

MEMORY = 80 << 20
NODES = ("n1", "n2", "n3", "n4")
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


def main() -> None:
    """Start them, n2 by somebody who has set OMP_NUM_THREADS, and do what is said until the input ends."""
    shared = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    head = {**shared, "node_name": NODES[0], "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    variables = {"n2": {"OMP_NUM_THREADS": "3"}}
    nodes = {name: cluster.add_node(**shared, node_name=name, env_vars=variables.get(name)) for name in NODES[1:]}
    cluster.wait_for_nodes()
    print(f"at {cluster.address}", flush=True)
    for line in sys.stdin:
        cluster.remove_node(nodes.pop(line.strip()), allow_graceful=False)
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()

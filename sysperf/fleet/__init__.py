"""Many machines: records of nodes → classes of equal hardware, differences, findings by node sets. Pure functions, no I/O."""

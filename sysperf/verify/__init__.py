"""What changes gain on this machine: pairs of runs, their statistics, and results that were kept."""

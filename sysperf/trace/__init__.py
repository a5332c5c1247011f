"""What profilers saw, as facts: pure functions of stacks and traces."""

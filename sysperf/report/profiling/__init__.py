"""Stacks and traces: what was sampled, what a trace says, and what differs between two."""

"""The three sources: an agent, this process itself, a captured machine."""

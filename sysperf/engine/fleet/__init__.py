"""The verbs of many machines: each asks an engine, and merges what the nodes say."""

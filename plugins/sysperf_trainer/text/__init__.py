"""The text workload: GPT-2 on the sources of Python."""

"""The folder that `wrap --traceable` puts on a program's PYTHONPATH; nothing of sysperf imports it."""

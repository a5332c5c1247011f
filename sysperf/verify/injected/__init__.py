"""The folder that the probe puts on a program's PYTHONPATH; nothing of sysperf imports it."""

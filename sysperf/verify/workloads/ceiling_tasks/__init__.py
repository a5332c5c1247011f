"""What `ceilings.py` measures, beside it: it runs in interpreters without sysperf."""

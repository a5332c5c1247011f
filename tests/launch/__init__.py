"""Tests of sysperf.launch and of the verb that joins it."""

"""The verbs of sysperf, one a file: each joins two or three stages."""

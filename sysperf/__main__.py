"""`python -m sysperf` is `sysperf`."""

from sysperf.cli import entry

if __name__ == "__main__":
    entry()

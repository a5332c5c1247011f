"""`python -m sysperf` is `sysperf`."""

import sys

from sysperf.cli import main

if __name__ == "__main__":
    sys.exit(main())

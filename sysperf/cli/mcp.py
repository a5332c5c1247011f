"""Answer an agent's questions by the Model Context Protocol, read-only.

A client starts it, and speaks over standard input and output. It offers findings, explanations, programs, facts, reports of traces and
scripts, plans, results and fleets. It changes nothing, starts no program of yours, opens no port, and reads files below the folders that
you allow. It needs the official SDK: pip install 'mcp>=2.3,<3' beside sysperf.

examples:
  sysperf mcp
  sysperf mcp --allow traces --allow records      files below these folders may be read
  sysperf mcp --allow-observe                     diagnose may take samples and a trace of your programs
"""

from __future__ import annotations

import argparse
import os
import sys

from sysperf.model.errors import Exit, UsageError
from sysperf.model.text import quoted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--allow", action="append", default=[], metavar="FOLDER", help="traces, scripts and records below it may be read")
    parser.add_argument("--allow-observe", action="store_true", help="diagnose may also take samples and a trace")


def run(args: argparse.Namespace) -> int:
    for folder in args.allow:
        if not os.path.isdir(folder):
            raise UsageError(f"--allow {folder}: no folder")
    try:
        from sysperf.mcp import server  # noqa: PLC0415 - the SDK takes half a second and 65 MB, and is an extra
    except ImportError as error:
        raise UsageError(
            f"the SDK of the Model Context Protocol cannot be imported: {error}", f"{quoted(sys.executable)} -m pip install 'mcp>=2.3,<3'"
        ) from None
    from sysperf.mcp.tools import Allowed  # noqa: PLC0415 - as above

    server.serve(Allowed(tuple(map(os.path.abspath, args.allow)), args.allow_observe))
    return Exit.CLEAN

"""Record what an audit reads, to audit this machine elsewhere.

The capture holds no secrets: environment variables and arguments of processes are kept only as far as they explain
performance; host names, serial numbers and hardware addresses are hashed. It does hold the paths of the files that large
processes map and of the Python environments. Look into it with `tar tf` before you send it.

examples:
  sysperf capture machine.tar.zst
  sudo sysperf capture --deep machine.tar.zst
  sysperf audit --root machine.tar.zst
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sysperf.cli import _options
from sysperf.engine import reading
from sysperf.host.capture import write_capture
from sysperf.model.errors import Exit
from sysperf.model.text import neutral, size
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT.tar.zst", help="also .tar.gz, .tar.xz or .tar")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    _options.add_machine(parser)
    _options.add_format(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    host = _options.host(args, record=True)
    snapshot = reading.snapshot(host)
    summary = write_capture(host, args.out, force=args.force)
    unknown = [name for name, area in snapshot.areas.items() if area.facts is None]
    if args.format == "json":
        text = as_json.dump({"file": str(args.out), "unreadable": unknown, "holds": summary})
    else:
        text = f"wrote {neutral(str(args.out))} ({size(args.out.stat().st_size)}, {len(host.sources)} readings)\n"
        text += f"  not readable here: {', '.join(unknown)}\n" if unknown else ""
    _options.write(text, args)
    return Exit.CLEAN

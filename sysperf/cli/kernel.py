"""Install a Jupyter kernel that starts through `sysperf wrap`. Each notebook then runs in the right place.

examples:
  sysperf kernel install fast                          for the Python of this shell
  sysperf kernel install fast --python /opt/venv/bin/python
  sysperf kernel install fast --from python3           as the kernel `python3`, wrapped
  sysperf kernel install fast --wrap-options='--threads 8'
  sysperf kernel remove fast
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys

from sysperf.cli import _options
from sysperf.host import Host, interpreters
from sysperf.launch import interpreter, kernelspec
from sysperf.model.errors import Exit, UsageError
from sysperf.model.text import neutral
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "remove"))
    parser.add_argument("name", metavar="NAME", help="the kernel's name")
    parser.add_argument("--python", metavar="PATH", help="interpreter that runs the notebooks (default: the python of this shell)")
    parser.add_argument("--from", dest="source", metavar="KERNEL", help="wrap this installed kernel instead")
    parser.add_argument("--display-name", metavar="TEXT", help="how Jupyter shows it")
    parser.add_argument("--prefix", metavar="DIR", help="install into DIR/share/jupyter/kernels instead of the user's folder")
    parser.add_argument(
        "--wrap-options", type=_options.quoted, default="", metavar="OPTIONS", help="options of `sysperf wrap`, as a shell would split them"
    )
    _options.add_format(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    folder = f"{args.prefix}/share/jupyter/kernels" if args.prefix else kernelspec.user_folder(os.environ)
    if args.action == "remove":
        return _told(args, "removed", kernelspec.remove(args.name, folder))
    spec = kernelspec.find(args.source, os.environ) if args.source else _of_python(args)
    if args.display_name:
        spec["display_name"] = args.display_name
    elif args.source:
        spec["display_name"] = f"{spec.get('display_name', args.source)} (sysperf wrap)"
    path = kernelspec.install(args.name, kernelspec.wrapped(spec, shlex.split(args.wrap_options)), folder)
    return _told(args, "installed", path)


def _told(args: argparse.Namespace, what: str, path: str) -> int:
    _options.write(as_json.dump({what: path}) if args.format == "json" else f"{what} {neutral(path)}\n", args)
    return Exit.CLEAN


def _of_python(args: argparse.Namespace) -> dict[str, object]:
    python = interpreters.program(args.python) if args.python else shutil.which("python3") or shutil.which("python")
    if not python or not os.path.isfile(python) or not os.access(python, os.X_OK):
        raise UsageError(f"{python or 'python'}: no such interpreter", "name one with --python")
    python = os.path.abspath(python)  # not resolved: a virtual environment is known by the path of its link
    folders = list(interpreter.sites(Host(), python, os.environ))
    if folders and not any(os.path.isdir(f"{folder}/ipykernel") for folder in folders):
        sys.stderr.write(f"sysperf: {python} has no ipykernel: install it there before you start the kernel\n")
    return kernelspec.of_python(python, args.name)

"""The command line: one module a command, imported only when it is asked for.

Only this package prints. stdout is the report; everything else goes to stderr.
"""

from __future__ import annotations

import sys

from sysperf import __version__
from sysperf.model.errors import Exit, SysperfError

COMMANDS = {
    "audit": "inspect this machine and list what slows PyTorch down, with evidence and the fix",
    "ps": "list the running PyTorch processes and what is wrong with each",
    "explain": "explain a rule: what it looks at, why it matters, what to do",
    "facts": "show what is known about this machine, area by area",
    "diff": "compare machines: what differs that matters for speed",
    "capture": "record everything an audit reads, to audit it elsewhere",
    "baseline": "accept today's findings, so that only new ones fail",
    "rules": "list, show, check and test rules",
    "completion": "print a completion script for bash, zsh or tcsh",
}

HELP = """\
usage: sysperf COMMAND [options]

Finds what makes a PyTorch machine slow, and says what to do about it. Reads only; changes nothing.

commands:
{commands}

start with:
  sysperf audit                    what is wrong with this machine
  sudo sysperf audit               the same, with what only root can read
  sysperf explain numa.gpu-remote  why a finding matters and how to fix it

options:
  -h, --help     show this help; `sysperf COMMAND --help` explains a command
  -V, --version  show the version
  --debug        show the traceback of an internal error
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments[: arguments.index("--") if "--" in arguments else None]
    arguments = [argument for argument in arguments if argument != "--debug"] if debug else arguments
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except SysperfError as error:
        return _fail(str(error), error.hint, error.code)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130
    except BrokenPipeError:
        # The reader went away (`sysperf audit | head`): nobody is left to tell. Keep Python from flushing into it at exit.
        import os  # noqa: PLC0415 - rare

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # noqa: BLE001 - a traceback is never what a user sees
        if debug:
            raise
        return _fail(f"internal error: {type(error).__name__}: {error}", "run it again with --debug and report what it prints", Exit.USAGE)
    return code


def _run(arguments: list[str]) -> int:
    command = arguments[0] if arguments else "--help"
    if command in ("-V", "--version"):
        sys.stdout.write(f"sysperf {__version__}\n")
        return Exit.CLEAN
    if command in ("-h", "--help", "help"):
        sys.stdout.write(HELP.format(commands="\n".join(f"  {name:<11} {text}" for name, text in COMMANDS.items())))
        return Exit.CLEAN
    if command not in COMMANDS:
        import difflib  # noqa: PLC0415 - errors only

        close = difflib.get_close_matches(command, COMMANDS, n=1)
        return _fail(
            f"no command `{command}`", f"did you mean `sysperf {close[0]}`?" if close else "`sysperf --help` lists the commands", Exit.USAGE
        )
    from sysperf.cli import command_line  # noqa: PLC0415 - argparse costs 6 ms, which --version need not pay

    parser, run = command_line.parser(command)
    return int(run(parser.parse_args(arguments[1:])))


def _fail(message: str, hint: str, code: int) -> int:
    from sysperf.model.text import neutral  # noqa: PLC0415 - errors only

    sys.stderr.write(f"sysperf: {neutral(message, 2000)}\n")
    if hint:
        sys.stderr.write(f"  hint: {neutral(hint, 1000)}\n")
    return code

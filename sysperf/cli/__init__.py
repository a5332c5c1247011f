"""The command line: each module or package here without a leading underscore is a command, imported only when it is asked for.

The first line of its docstring is its text in `sysperf --help`; `add_arguments(parser)` and `run(args)` are what it needs.
Only this package prints. stdout is the report; everything else goes to stderr.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator

from sysperf import __version__, startup
from sysperf.model.errors import Exit, SysperfError

_FOLDER = os.path.dirname(__file__)
HELP = """\
usage: sysperf COMMAND [options]

Finds what makes a PyTorch machine slow, says what to do about it, and can undo every change that it makes to the machine.
Settings are changed by `apply`, `undo`, `verify --fix` and `--set`, keys of the dashboard (each after a question) and an agent in mode
`apply`. `service`, `kernel` and `lint --fix` write files. Everything else reads the machine and changes nothing on it.

start with:
  sysperf                          the dashboard, on a terminal
  sysperf audit                    what is wrong with this machine
  sysperf diagnose PID             what slows a running job down; `sysperf ps` lists the jobs
  sysperf lint train.py            what may be slow in a script
  sysperf wrap -- python train.py  start a program in the right place
  sysperf verify -- python train.py   is it faster under wrap, here, and by how much
{commands}

exit codes of every command:
  0  done: nothing found at or above the limit
  1  found: a finding, a slower program, a failed test, or settings that differ
  2  the command line, a file or the machine does not allow it; nothing was changed
  3  only a part was done or could be read; the report says which
  4  a change was refused and all of it was taken back
  130  ended by Ctrl-C

options:
  -h, --help     show this help; `sysperf COMMAND --help` or `sysperf help COMMAND` explains a command,
                 `sysperf help docs/wrap.md` prints a page of the documentation
  -V, --version  show the version
  --debug        show the traceback of an internal error
"""


GROUPS = {
    "is it sick": ("audit", "check", "ps", "diagnose", "lint", "top"),
    "why": ("explain", "analyze", "trace", "stacks", "facts", "diff"),
    "cure": ("wrap", "plan", "apply", "undo", "changes", "tune"),
    "prove": ("verify", "bench"),
    "watch": ("tui", "agent"),
    "many machines": ("fleet", "node"),
    "agents that ask": ("mcp",),
    "administer": (),
}
"""The commands by what a user wants; those that no other group names are for administrators."""


def entry() -> None:
    """The command: `main`, then out at once."""
    startup.leave(main())


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_what_is_closed()
    _print_utf8()
    startup.without_garbage()
    arguments = sys.argv[1:] if argv is None else argv
    debug, arguments = _without_debug(arguments)
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if debug:
            raise
        return _unexpected(error)
    return code


_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _unexpected(error: Exception) -> int:
    """A full disk and a folder that was removed are their owner's to mend; everything else is a bug in sysperf, in one line."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRORS:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would flush into it at exit, and fail again
        return _fail(f"the output could not be written: {error.strerror}", "make room, or choose another place with --output", Exit.USAGE)
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_folder():
        return _fail("the working folder is gone", "cd to one that is there", Exit.USAGE)
    return _fail(f"internal error: {type(error).__name__}: {error}", "run it again with --debug and report what it prints", Exit.USAGE)


def _has_folder() -> bool:
    """Whether the working folder is there."""
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _open_what_is_closed() -> None:
    """What is said to a stream that was closed (`>&-`) goes nowhere. A program that we become finds it closed, as it was."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as we run


def _print_utf8() -> None:
    """Reports are UTF-8 in every locale; so is the rest of stdout. stderr writes what its own encoding lacks as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")


def _without_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """(whether we shall show tracebacks, the rest): what follows `--`, or the command of `wrap`, is another program's."""
    ours = arguments.index("--") if "--" in arguments else 1 if arguments[:1] == ["wrap"] else len(arguments)
    kept = [argument for argument in arguments[:ours] if argument != "--debug"]
    return len(kept) < ours, kept + arguments[ours:]


def _run(arguments: list[str]) -> int:
    command = arguments[0] if arguments else _without_command()
    if command in ("-V", "--version", "version"):
        sys.stdout.write(f"sysperf {__version__}\n")
        return Exit.CLEAN
    if command == "help" and arguments[1:]:
        return _help(*arguments[1:3])
    if command in ("-h", "--help", "help"):
        sys.stdout.write(HELP.format(commands="\n".join(_grouped(described()))))
        return Exit.CLEAN
    if not _is_command(command):
        import difflib  # noqa: PLC0415 - errors only

        close = difflib.get_close_matches(command, commands(), n=1)
        return _fail(
            f"no command `{command}`", f"did you mean `sysperf {close[0]}`?" if close else "`sysperf --help` lists the commands", Exit.USAGE
        )
    startup.import_msgspec()
    if command == "wrap":
        from sysperf.cli import wrap  # noqa: PLC0415 - as all commands

        return wrap.main(arguments[1:])
    startup.import_argparse()
    from sysperf.cli import _options  # noqa: PLC0415 - argparse costs 6 ms, which --version need not pay

    parser, run = _options.parser(command)
    return int(run(parser.parse_args(arguments[1:])))


def commands() -> list[str]:
    """The names of all commands."""
    return sorted(name for file in os.listdir(_FOLDER) if not file.startswith("_") and _source(name := file.removesuffix(".py")))


def described() -> dict[str, str]:
    """Each command's text in the help."""
    return {name: _head(_source(name)) for name in commands()}


def _help(topic: str, action: str = "") -> int:
    """Print the help of a command or of its action, or the page of docs that a message names."""
    if not topic.startswith("docs/"):
        return _run([topic, *_with_help(topic, action), "--help"])
    from sysperf import paths  # noqa: PLC0415 - for this form only

    folder = paths.shipped("docs")
    found = (os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names)
    pages = sorted(name for name in found if name.endswith(".md"))
    page = topic.removeprefix("docs/").partition("#")[0]
    if page not in pages:
        return _fail(f"no page `{topic}`", f"there are {', '.join(f'docs/{name}' for name in pages)}", Exit.USAGE)
    with open(f"{folder}/{page}", encoding="utf-8") as file:
        sys.stdout.write(file.read())
    return Exit.CLEAN


def _with_help(command: str, action: str) -> list[str]:
    """The action, where the command has one of this name: what follows `wrap` would be a program to start."""
    if not action or not _is_command(command):
        return []
    startup.import_msgspec()
    startup.import_argparse()
    from sysperf.cli import _options  # noqa: PLC0415 - as all commands

    return [action] if _options.parser(command)[0].has_action(action) else []


def _grouped(texts: dict[str, str]) -> Iterator[str]:
    """Each group of commands with their texts."""
    others = tuple(name for name in texts if not any(name in names for names in GROUPS.values()))
    for title, names in GROUPS.items():
        yield f"\n{title}:"
        yield from (f"  {name:<11} {texts[name]}" for name in names or others)


def _source(name: str) -> str:
    """Return the file that a command's docstring stands in, "" where there is no such command."""
    return next((path for path in (f"{_FOLDER}/{name}.py", f"{_FOLDER}/{name}/__init__.py") if os.path.exists(path)), "")


def _head(path: str) -> str:
    """The first sentence of a module's docstring, as the rest of a sentence; the module is not imported."""
    with open(path, encoding="utf-8") as file:
        line = file.readline().strip().strip('"').partition(". ")[0].rstrip(".")
    return line[:1].lower() + line[1:]


def _is_command(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and bool(_source(name))


def _without_command() -> str:
    """What bare `sysperf` does: the dashboard where somebody sits at a terminal, the help elsewhere."""
    terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return "tui" if terminal and os.environ.get("TERM", "dumb") != "dumb" else "--help"


def _fail(message: str, hint: str, code: int) -> int:
    from sysperf import paths  # noqa: PLC0415 - errors only
    from sysperf.model.text import neutral  # noqa: PLC0415 - as above

    sys.stderr.write(f"sysperf: {neutral(message, 2000)}\n")
    if hint:
        sys.stderr.write(f"  hint: {paths.pasteable(neutral(hint, 1000))}\n")
    return code

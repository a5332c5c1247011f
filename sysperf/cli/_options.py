"""What the commands' options share: which machine, which rules, where the output goes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

from sysperf import paths
from sysperf.host import Host, files, interpreters
from sysperf.model.errors import Exit, UsageError

if TYPE_CHECKING:
    from types import ModuleType

    from _typeshed import SupportsWrite

    from sysperf.evaluate.ruleset import Ruleset
    from sysperf.model.record import JsonObject

Run = Callable[[argparse.Namespace], int]


def parser(command: str) -> tuple[_Parser, Run]:
    """The parser of one command and the function that runs it."""
    module = importlib.import_module(f"sysperf.cli.{command}")
    built = _Parser(prog=f"sysperf {command}", description=module.__doc__, formatter_class=formatter)
    module.add_arguments(built)
    return built, module.run


UNRECOGNIZED = "unrecognized arguments: "


class _Parser(argparse.ArgumentParser):
    """Complains as everything else here does: what is wrong in a line, the next step in another."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. argparse drops the error of a stdout that cannot be written; `main` reports it."""
        (file or sys.stdout).write(self.format_help())
        sys.stdout.flush()

    def parse_known_args(  # type: ignore[override]  # argparse has overloads for namespaces of other types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse. argparse takes a value `--` for the end of options, and gives a list of none: it is refused."""
        parsed, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(parsed, action.dest, None)
            if action.nargs is None and isinstance(value, list) and ([] in value or value == [] != action.default):
                self.error(f"argument {'/'.join(action.option_strings) or action.dest}: -- is no value")
        try:
            many = len(reports(parsed)) > 1 and not getattr(parsed, "several_reports", False)
        except UsageError as error:
            self.error(str(error))
        if many:
            self.error("this command writes one report: give --format and --output once")
        if rest:  # argparse has the command complain of what its action does not know
            self.error(f"{UNRECOGNIZED}{' '.join(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        from sysperf.evaluate.schema import suggest  # noqa: PLC0415 - errors only

        unknown = message.removeprefix(UNRECOGNIZED).partition(" ")[0]
        known = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        close = suggest(unknown[2:].partition("=")[0], known, "--") if unknown.startswith("--") else ""
        raise UsageError(f"{message}{close}{self._choices_of(message)}", f"`{self.prog} --help` lists its options")

    def _choices_of(self, message: str) -> str:
        """What can be chosen for the argument that a complaint ends with, such as an action that was left out."""
        for action in self._actions:
            if action.choices and not action.option_strings and message.endswith(f"are required: {action.metavar or action.dest}"):
                return f" ({', '.join(str(choice) for choice in action.choices)})"
        return ""

    def has_action(self, name: str) -> bool:
        """Whether the command has this action, with a help of its own."""
        return any(isinstance(action, argparse._SubParsersAction) and name in action.choices for action in self._actions)  # noqa: SLF001 - argparse has no other list


def formatter(prog: str) -> argparse.HelpFormatter:
    # A given width keeps argparse from importing shutil and its compressors, 3 ms, for every option that is added.
    return argparse.RawDescriptionHelpFormatter(prog, width=width())


def whole_parser(texts: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser of these commands, for completion scripts."""
    whole = argparse.ArgumentParser(prog="sysperf")
    whole.add_argument("-V", "--version", action="store_true", help="show the version")
    whole.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    commands = whole.add_subparsers(dest="command")
    for name, text in texts.items():
        importlib.import_module(f"sysperf.cli.{name}").add_arguments(commands.add_parser(name, help=text))
    return whole


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, ModuleType]) -> None:
    """The actions of a command, each a module whose docstring is its help."""
    below = parser.add_subparsers(dest="action", required=True)
    for name, module in actions.items():
        text = (module.__doc__ or "").partition("\n")[0].rstrip(".")
        action = below.add_parser(name, help=text[:1].lower() + text[1:], description=module.__doc__, formatter_class=formatter)
        module.add_arguments(action)


def run_action(args: argparse.Namespace, actions: Mapping[str, ModuleType]) -> int:
    """Run the action that was chosen."""
    check_output(args)
    run: Run = actions[args.action].run
    return run(args)


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Options that say which machine is read, and how deeply."""
    group = parser.add_argument_group("machine")
    group.add_argument("--root", default="/", metavar="CAPTURE", help="read a captured machine (a folder or tar) instead of this one")
    group.add_argument(
        "--deep",
        action="store_true",
        help="also ask py-cpuinfo, root-only tools and the users' Python interpreters, and look twice at what runs (seconds)",
    )
    group.add_argument("--python", action="append", default=[], metavar="PATH", help="also look at this interpreter or environment")


def host(args: argparse.Namespace, *, record: bool = False) -> Host:
    """The machine that the options name."""
    if args.deep and sys.stderr.isatty():
        sys.stderr.write("sysperf: reading deeply, this takes some seconds …\n")
    pythons = tuple(interpreters.place(given) for given in args.python)
    if missing := next((given for given in args.python if args.root == "/" and not os.path.exists(interpreters.place(given))), None):
        raise UsageError(f"--python {missing}: no such file or folder", "name an interpreter, or the folder of its environment")
    return Host(args.root, deep=args.deep, pythons=pythons, record=record)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Options that say which rules judge."""
    group = add_rule_files(parser)
    group.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="ID",
        help="only these rules (id, area, pattern, severity or ALL; commas or repeated)",
    )
    group.add_argument("--ignore", action="append", default=[], metavar="ID", help="not these rules")


def add_rule_files(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The option that adds rules, for commands whose arguments name the rule."""
    group = parser.add_argument_group("rules")
    group.add_argument("--rules", action="append", default=[], metavar="PATH", help="more rules: a TOML file or a folder of them")
    return group


def quoted(text: str) -> str:
    """Return words that a shell could split. Raises ArgumentTypeError, which argparse tells."""
    import shlex  # noqa: PLC0415 - for a few options

    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}".lower()) from None
    return text


def listed(values: list[str]) -> list[str]:
    """`--select a,b --select c` as a, b, c."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def note_replaced_rules(ruleset: Ruleset) -> None:
    """Tell the user which of our rules a site's file has replaced."""
    for note in ruleset.replaced_rules():
        sys.stderr.write(f"sysperf: {note}\n")


STDOUT = "-"
"""What `--output` calls the standard output, as elsewhere."""


class _Asked(argparse.Action):
    """Keeps the last value, as argparse does, and in `asked` all of --format and --output in their order."""

    def __call__(self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, _option: str | None = None) -> None:
        value = values if self.const is None else self.const
        value = None if (self.dest, value) == ("output", STDOUT) else value
        setattr(namespace, self.dest, value)
        namespace.asked = [*getattr(namespace, "asked", ()), (self.dest, value)]


def reports(args: argparse.Namespace) -> list[argparse.Namespace]:
    """The options once for each report: a --format goes with the --output beside it, in either order.

    Raises UsageError where two reports would go to the same place.
    """
    chosen: list[dict[str, object]] = [{}]
    for name, value in getattr(args, "asked", ()):
        if name in chosen[-1]:
            chosen.append({})
        chosen[-1][name] = value
    places = [report.get("output") for report in chosen]
    if twice := next((place for place in places if places.count(place) > 1), False) if len(places) > 1 else False:
        raise UsageError(f"two reports go to {twice}")
    if places.count(None) > 1:
        raise UsageError("two reports go to stdout", "give each --format but one an --output")
    plain = {"format": "text", "output": None}
    return [argparse.Namespace(**{**vars(args), **plain, **report}) for report in chosen] if len(chosen) > 1 else [args]


def add_output(parser: argparse.ArgumentParser, *, verbose: str = "", several: bool = False) -> argparse._ArgumentGroup:
    """Options that say how the report looks and where it goes.

    `verbose` says what --verbose adds; `several`: the command writes more than one report with `write_reports`.
    """
    group = parser.add_argument_group("output")
    again = "; once for each --format" if several else ""
    group.add_argument("--output", action=_Asked, metavar="FILE", help=f"write the report to a file instead of stdout{again}")
    parser.set_defaults(several_reports=several)
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal, unless NO_COLOR is set")
    if verbose:
        group.add_argument("-v", "--verbose", action="store_true", help=verbose)
    return group


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """`--format`, whose first one is the default, and `--json`, which other commands have alone."""
    default = formats[0] if formats else "text"
    parser.add_argument("--format", action=_Asked, choices=formats or ("text", "json"), default=default, help=f"default: {default}")
    parser.add_argument("--json", dest="format", action=_Asked, nargs=0, const="json", help="the same as --format json")


def add_schema(parser: argparse.ArgumentParser) -> None:
    """`--schema`; `write_schema` answers it."""
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of --format json and stop")


def write_schema(schema: JsonObject, args: argparse.Namespace) -> int:
    """Print what --format json prints, as a JSON schema."""
    from sysperf.report.formats import as_json  # noqa: PLC0415 - no other report needs it

    write(as_json.dump(schema), args)
    return Exit.CLEAN


def wants_color(args: argparse.Namespace) -> bool:
    """Whether to colour: asked for, or by https://force-color.org, or on a terminal; https://no-color.org wins over both."""
    if args.color != "auto" or args.output:
        return bool(args.color == "always")
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def width(otherwise: int = 100) -> int:
    """The columns of the terminal; where there is none, `otherwise`: `WHOLE_LINES` for tables that a program reads."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(sys.stdout.fileno()).columns
    except (ValueError, OSError):
        columns = 0
    return max(40, min(columns, 160)) if columns else otherwise


WHOLE_LINES = 10_000
"""Columns of a line that grep or a log takes."""


def check_output(args: argparse.Namespace) -> None:
    """Raise UsageError where the report could not be written to `--output`: before what takes long is done."""
    for report in reports(args):
        if report.output is not None:
            _into(report.output, files.check_replace)


def agreed(question: str) -> bool:
    """Ask whoever sits at the terminal; the end of the input (Ctrl-D) is a no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
    return answer.strip().lower() in ("y", "yes")


def rewrites_lines(stream: TextIO) -> bool:
    """Whether a line can be taken back there: a terminal that knows how."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def write_reports(args: argparse.Namespace, render: Callable[[argparse.Namespace], str]) -> None:
    """Write each report that was asked for: `render` makes one by the `format` of its options."""
    for report in reports(args):
        write(render(report), report)


def write(text: str, args: argparse.Namespace, *, verbatim: bool = False) -> None:
    """Print the report, or write it to `--output` in one step. What is verbatim, such as a patch, is printed to the byte."""
    if text and not text.endswith("\n"):
        text += "\n"
    if text.startswith("<!doctype html>"):
        from sysperf.cli import _stamp  # noqa: PLC0415 - for web pages only

        text = _stamp.stamped(text, args)
    if args.output is None:
        is_for_here = getattr(args, "root", "/") == "/" and not text.startswith("{")  # JSON is for programs, which may run elsewhere
        text = paths.pasteable(text) if is_for_here and not verbatim else text
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()  # before a question about it, or an error behind it
        return
    _into(args.output, lambda path: files.replace(path, text.encode("utf-8", "backslashreplace")))


def _into(path: str, act: Callable[[str], object]) -> None:
    try:
        act(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "choose a file that can be written with --output") from None

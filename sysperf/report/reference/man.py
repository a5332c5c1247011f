"""Manual pages, of the same text as the help.

Format  https://man7.org/linux/man-pages/man7/groff_man.7.html
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

_VERBATIM = ("examples:", "exit codes:", "start with:")
"""What stands below these lines keeps its columns."""


def pages(parsers: Mapping[str, argparse.ArgumentParser], heads: Mapping[str, str]) -> dict[str, str]:
    """Return a page for each command by its file's name, and one for all; `heads` are the commands' lines in the help."""
    made = {f"sysperf-{name}.1": _page(f"sysperf-{name}", heads[name], parser) for name, parser in parsers.items()}
    listed = "".join(f".TP\n.BR sysperf\\-{_roff(name)} (1)\n{_roff(heads[name])}\n" for name in sorted(parsers))
    about = "finds what makes a PyTorch machine slow, says what to do, and proves the gain"
    made["sysperf.1"] = f"{_head('sysperf', about)}.SH SYNOPSIS\n.B sysperf\n.I COMMAND\n[options]\n.SH COMMANDS\n{listed}"
    return made


def _page(name: str, head: str, parser: argparse.ArgumentParser) -> str:
    usage = (parser.usage or f"{name.replace('-', ' ', 1)} [options] {' '.join(_positionals(parser))}").strip()
    lines = "".join(f"{_roff(line.strip())}\n.br\n" for line in usage.splitlines())
    return f"{_head(name, head)}.SH SYNOPSIS\n{lines}.SH DESCRIPTION\n{''.join(_text(parser.description or ''))}{''.join(_options(parser))}"


def _head(name: str, about: str) -> str:
    return f'.TH {name.upper()} 1 "" sysperf "User Commands"\n.SH NAME\n{_roff(name)} \\- {_roff(about)}\n'


def _text(text: str) -> Iterator[str]:
    """Paragraphs of the help; lists and examples as they stand."""
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        title = lines[0].strip() if lines and lines[0].strip() in _VERBATIM else ""
        keeps = bool(title) or any(line.startswith("  ") for line in lines[1:])
        body = "".join(f"{_roff(line)}\n" for line in lines[bool(title) :])
        yield f".SS {_roff(title.rstrip(':').capitalize())}\n" if title else ".PP\n"
        yield f".nf\n{body}.fi\n" if keeps else body


def _positionals(parser: argparse.ArgumentParser) -> Iterator[str]:
    return (_value(action) for action in parser._actions if not action.option_strings)  # noqa: SLF001 - as above


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each group of arguments; those without a help are left out, as in the help."""
    for group in parser._action_groups:  # noqa: SLF001 - as above
        shown = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]  # noqa: SLF001 - as above
        if shown:
            yield f".SH {_roff((group.title or 'options').upper())}\n"
        yield from (f".TP\n{_roff(_invocation(action))}\n{_roff(_help(action, parser))}\n" for action in shown)


def _invocation(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    return ", ".join(f"{option} {value}".strip() for option in action.option_strings) or value


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return f"{{{','.join(map(str, action.choices))}}}" if action.choices is not None else action.dest.upper()


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Return what the help says, with its blanks filled in as argparse does."""
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _roff(text: str) -> str:
    """A line of text that roff prints as it is: no escape, no request, and hyphens that can be copied."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    plain = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain

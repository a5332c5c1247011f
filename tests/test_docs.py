"""What README and docs say of commands, rules, files and settings is so."""

from __future__ import annotations

import argparse
import functools
import re
from pathlib import Path

import msgspec
import pytest

from sysperf.cli import _options, commands
from sysperf.engine.configuration import read_config
from tests.shipped import rules

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RULE = re.compile(r"(?<![\w./-])[a-z]+\.[a-z0-9]+(?:-[a-z0-9]+)+(?![\w./-])")
OPTION = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[a-zA-Z](?![\w-]))")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_rule_exists(page: Path) -> None:
    """A reader looks it up with `sysperf explain`."""
    known = {rule.id for rule in rules()}
    written = re.sub(r"```toml.*?```", "", page.read_text(), flags=re.DOTALL) if page.name == "rules.md" else page.read_text()
    named = set(RULE.findall(written.replace("project.entry-points", "")))

    assert named <= known, named - known


def test_each_rule_in_the_help_exists() -> None:
    """Examples in the help can be typed."""
    known = {rule.id for rule in rules()}
    for command in commands():
        parser, _ = _options.parser(command)
        named = set(RULE.findall(parser.format_help()))
        assert named <= known, (command, named - known)


@functools.cache
def options(command: str) -> set[str]:
    """All options of a command, its subcommands' included."""

    def of(parser: argparse.ArgumentParser) -> set[str]:
        names = set(parser._option_string_actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                names |= {option for choice in action.choices.values() for option in of(choice)}
        return names

    return of(_options.parser(command)[0]) | {"--debug"}


def not_to_be_typed(line: str) -> str:
    """A command or an option of sysperf in a line that there is not; "" where all exist."""
    for command, rest in re.findall(r"(?:^|[\s/(=])sysperf(?: ([a-z]+))( [^#|&;)]*)?", line.partition("  #")[0]):
        if command == "help":  # of a command, or a page
            continue
        if command not in commands():
            return f"`sysperf {command}`"
        if unknown := set(OPTION.findall(rest.partition(" -- ")[0])) - options(command):
            return f"`sysperf {command}`: {', '.join(unknown)}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_and_option_exists(page: Path) -> None:
    """Every line of a code block, and every command between backticks, that starts with sysperf."""
    blocks = [line for _, block in BLOCK.findall(page.read_text()) for line in block.replace("\\\n", " ").splitlines()]
    prose = re.findall(r"`((?:sudo )?sysperf [^`]+)`", BLOCK.sub("", page.read_text()))
    for line in (*blocks, *prose):
        assert not not_to_be_typed(line), line


def test_each_command_that_the_program_advises_exists() -> None:
    """Between backticks in messages, hints, rules and comments; what it fills in stands in braces."""
    sources = [*(ROOT / "sysperf").glob("**/*.py"), *(ROOT / "plugins").glob("**/*.py"), *(ROOT / "rules").glob("**/*.toml")]
    wrong = {
        f"{path.relative_to(ROOT)}: {advised}"
        for path in sources
        for advised in re.findall(r"`((?:sudo )?sysperf [^`\n]+)`", path.read_text())
        if not_to_be_typed(advised)
    }
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_of_the_source_exist(page: Path) -> None:
    """Relative links, and paths that begin with a folder of this repository."""
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"(?<![\w./~$-])((?:docs|benchmarks|tests|rules|plugins|systemd)/[\w./-]*\w)", text):
        assert (ROOT / path).exists(), path


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    """The page's own block, and the agent's."""
    for name in ("configuration.md", "agent.md"):
        block = next(block for kind, block in BLOCK.findall((ROOT / "docs" / name).read_text()) if kind == "toml")
        (tmp_path / name).write_text(block)
        assert msgspec.to_builtins(read_config(tmp_path / name))


def test_nobody_is_told_to_install_another_project() -> None:
    """The name is taken on PyPI, by somebody else's program."""
    files = [*PAGES, *(ROOT / "sysperf").glob("**/*.py"), *(ROOT / "plugins").glob("**/*.py"), *(ROOT / "systemd").glob("*")]
    for path in files:
        if path.is_file():
            assert not re.search(r"pip3? install (?:-\S+ )*'?sysperf", path.read_text()), path


def test_the_rooms_and_trips_of_the_architecture_exist() -> None:
    """Each module that docs/architecture.md names between backticks, and each room of its table is a room."""
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+)`", text))
    absent = {
        name
        for name in named
        if not any((ROOT / place).exists() for place in (f"sysperf/{name}.py", f"sysperf/{name}", name, f"{name}.py"))
    }
    rooms = {path.name for path in (ROOT / "sysperf").iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    table = set(re.findall(r"^\| [a-z]* ?\| `([a-z]+)` \|", text, re.MULTILINE))

    assert not absent
    assert rooms <= table | {"plugin"}, rooms - table

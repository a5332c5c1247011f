"""Tools that start a program in an environment of theirs: what `conda run`, `uv run`, `hatch run` and the like say about which one.

conda   https://docs.conda.io/projects/conda/en/stable/commands/run.html
uv      https://docs.astral.sh/uv/reference/cli/#uv-run
poetry  https://python-poetry.org/docs/cli/#run
pixi    https://pixi.sh/latest/reference/cli/pixi/run/
pdm     https://pdm-project.org/latest/reference/cli/#run
hatch   https://hatch.pypa.io/latest/cli/reference/#hatch-run
pyenv   https://github.com/pyenv/pyenv/blob/master/COMMANDS.md#pyenv-exec
"""

from collections.abc import Sequence

from sysperf.launch.words import Words
from sysperf.model.record import Record

CONDA = frozenset(("conda", "mamba", "micromamba"))
_VERBS = {**dict.fromkeys((*CONDA, "uv", "poetry", "pixi", "pdm", "hatch", "pipenv"), "run"), "pyenv": "exec"}
_ENVIRONMENT = {
    **dict.fromkeys(CONDA, ("-p", "--prefix", "-n", "--name")),
    **dict.fromkeys(("pixi", "hatch"), ("-e", "--environment", "--env")),
}
_ENVIRONMENT["pdm"] = ("--venv",)
_PROJECT = {
    "uv": ("--project", "--directory"), "poetry": ("-P", "--project", "-C", "--directory"), "pixi": ("-m", "--manifest-path"),
    "pdm": ("-p", "--project"),
}  # fmt: skip


class Runner(Record):
    """Which environment a program is started in, as far as the command says it."""

    name: str = ""
    environment: str = ""
    """Its name, or its folder; empty for the project's own."""
    project: str = ""
    """The project's folder, or the file that describes it, where that is not the one we stand in."""
    unknown: bool = False
    """It is made for this run, or chosen by values of a matrix: where it lies is unknown."""
    layered: bool = False
    """Packages are laid over it for this run (`uv run --with`)."""
    active: bool = False
    """The active environment goes before the project's (`uv run --active`)."""
    without_project: bool = False
    script: str = ""
    """A script whose own first lines may ask for an environment (PEP 723)."""


def parse(name: str, argv: Sequence[str]) -> tuple[Runner, list[str]] | None:
    """(the runner, the command that it starts); None when `argv`, which begins behind the name, is no such call."""
    if name not in _VERBS:
        return None
    words = Words(argv)
    options = words.options(name)
    if name == "hatch" and words.rest[:1] == ["env"]:
        words.rest.pop(0)
    if words.rest[:1] != [_VERBS[name]]:
        return None
    words.rest.pop(0)
    given = dict([*options, *words.options(name)])
    runner = Runner(name, _first(given, _ENVIRONMENT.get(name, ())), _first(given, _PROJECT.get(name, ())))
    extra = {"uv": _uv, "hatch": _hatch}.get(name)
    return extra(runner, given, words.rest) if extra else (runner, words.rest)


def _first(given: dict[str, str], names: Sequence[str]) -> str:
    return next((given[name] for name in names if given.get(name)), "")


def _uv(runner: Runner, given: dict[str, str], rest: list[str]) -> tuple[Runner, list[str]]:
    is_script = bool({"-s", "--script"} & set(given)) or (bool(rest) and rest[0].endswith(".py"))
    known = Runner(
        runner.name,
        project=runner.project,
        unknown="--isolated" in given,
        layered=any(option in ("-w", "--with", "--with-editable", "--with-requirements") for option in given),
        active="--active" in given,
        without_project="--no-project" in given,
        script=rest[0] if is_script and rest else "",
    )
    if {"-m", "--module"} & set(given):
        return known, ["python", "-m", *rest]
    return known, ["python", *rest] if is_script else rest


def _hatch(runner: Runner, given: dict[str, str], rest: list[str]) -> tuple[Runner, list[str]]:
    """`hatch run gpu:python x.py` names the environment; `+py=3.12` chooses some of a matrix, `-p` a project by a name of hatch's."""
    matrix = bool(rest) and rest[0].startswith("+")
    name, colon, program = rest[0].partition(":") if rest else ("", "", "")
    chosen = set(given) & {"-p", "--project", "-i", "--include", "-f", "--filter"}
    environment = name if colon else runner.environment
    return Runner(runner.name, environment, unknown=matrix or bool(chosen)), [program, *rest[1:]] if colon else rest

"""What a command is: the tools in front of it that already decide something, and the program behind them.

Nothing is run. What the words do not determine stays unknown, and then nothing is decided for it.

numactl  https://man7.org/linux/man-pages/man8/numactl.8.html
taskset  https://man7.org/linux/man-pages/man1/taskset.1.html
torchrun https://docs.pytorch.org/docs/stable/elastic/run.html
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from sysperf.launch import runners
from sysperf.launch.runners import Runner
from sysperf.launch.words import Words
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, joined
from sysperf.procfs import cpulist
from sysperf.startup import lazy

PYTHON = lazy(r"(?:python|pypy)[0-9.]{0,6}t?d?")
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish", "ash"))
LAUNCHERS = frozenset((
    "torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun", "flux", "aprun", "jsrun",
))  # fmt: skip
_VERBS = {"accelerate": "launch", "flux": "run"}
"""These start ranks with this verb only."""
MODULES = {
    # python -m MODULE that starts ranks
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_POSITIONALS = {"timeout": 1, "chrt": 1}
_TRANSPARENT = frozenset(("env", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "time", "chrt"))
_TORCHRUN_RANKS = lazy(r"--nproc[-_]per[-_]node")
MAX_TOOLS = 16


class Command(Record):
    """What will be started."""

    kind: str = "program"
    """python, launcher (starts ranks), shell, environment (conda run, uv run), or program."""
    program: str = ""
    arguments: tuple[str, ...] = ()
    """Of the program behind the tools, with the program itself first."""
    env: dict[str, str] = {}
    """Variables that an `env` in the command sets."""
    unset: tuple[str, ...] = ()
    clears: bool = False
    """`env -i`: nothing of our environment reaches the program."""
    cpu_tool: str = ""
    """The tool in the command that chooses CPUs; its choice stays."""
    memory_tool: str = ""
    cpus: CpuSet | None = None
    """The CPUs that it chooses, where the command says so in numbers."""
    cpu_nodes: CpuSet | None = None
    launcher: str = ""
    launcher_ranks: int | None = None
    """How many ranks the launcher starts here; None when it does not say in numbers."""
    binds_ranks: str = ""
    """How the launcher binds its ranks (torchrun --numa-binding)."""
    module: str = ""
    script: str = ""
    environment: tuple[str, str] = ("", "")
    """(runner, environment's name or prefix) of `conda run -n NAME`, as `wrap --json` has always shown it."""
    runner: Runner = Runner()
    """Of `conda run -n NAME` and its like, what says which environment the program gets."""


def parse(argv: Sequence[str]) -> Command:
    """Look through the tools in front of a program. Never fails: what is not understood is a plain program."""
    found, words = Command(), Words(argv)
    for _ in range(MAX_TOOLS):
        if not words.rest:
            break
        name = words.rest[0].rpartition("/")[2]
        if name in _TRANSPARENT:
            words.rest.pop(0)
            found = _tool(name, words, found)
        elif name in _BINDERS:
            words.rest.pop(0)
            found = _BINDERS[name](words, found)
        elif _is_wrap(name, words.rest):
            del words.rest[: words.rest.index("--") + 1]
        else:
            return joined(found, _program(name, words, found))
    return found


def _is_wrap(name: str, words: Sequence[str]) -> bool:
    """`sysperf wrap … --` or `python -m sysperf wrap … --`: the program behind it is what counts."""
    behind = Words(words[1:])
    starts_us = _runs_sysperf(*_python_options(behind)) if PYTHON.fullmatch(name) else name == "sysperf"
    return starts_us and behind.rest[:1] == ["wrap"] and "--" in behind.rest


def _runs_sysperf(how: str, value: str) -> bool:
    """Whether `python -m` or `-c` with this value starts sysperf, by hand or by `sysperf_command`."""
    if how != "c":
        return (how, value) == ("m", "sysperf")
    from sysperf.host.commands import WITHOUT_FOLDER  # noqa: PLC0415 - 8 ms that only `python -c` needs

    return value == WITHOUT_FOLDER


def _tool(name: str, words: Words, found: Command) -> Command:
    if name == "env":
        return _env(words, found)
    words.options(name)
    del words.rest[: _POSITIONALS.get(name, 0)]
    return found


def _env(words: Words, found: Command) -> Command:
    clears, unset, env = found.clears, found.unset, dict(found.env)
    for option, value in words.options("env"):
        clears = clears or option in ("-i", "--ignore-environment")
        if option in ("-u", "--unset"):
            unset = (*unset, value)
    if words.rest and words.rest[0] == "-":
        words.rest.pop(0)
        clears = True
    while words.rest and "=" in words.rest[0]:
        name, _, value = words.rest.pop(0).partition("=")
        env[name] = value
    return joined(found, Command(clears=clears, unset=unset, env=env))


def _taskset(words: Words, found: Command) -> Command:
    options = [name for name, _ in words.options("taskset")]
    listed = any("c" in name.lstrip("-") if not name.startswith("--") else name == "--cpu-list" for name in options)
    text = words.rest.pop(0) if words.rest else ""
    return msgspec.structs.replace(found, cpu_tool="taskset", cpus=cpulist.parse(text) if listed else _mask(text))


def _numactl(words: Words, found: Command) -> Command:
    for name, value in words.options("numactl"):
        if name in ("-C", "--physcpubind"):
            found = msgspec.structs.replace(found, cpu_tool="numactl", cpus=cpulist.parse(value))
        elif name in ("-N", "--cpunodebind"):
            found = msgspec.structs.replace(found, cpu_tool="numactl", cpu_nodes=cpulist.parse(value))
        elif name not in ("-s", "-H", "-a", "--all", "-b", "--balancing"):
            found = joined(found, Command(memory_tool="numactl"))
    return found


def _hwloc_bind(words: Words, found: Command) -> Command:
    """Leave the decision to hwloc: its places are a language of their own, and how many CPUs that are is not known."""
    while words.rest and words.rest[0] != "--":
        words.rest.pop(0)
    del words.rest[:1]
    return joined(found, Command(cpu_tool="hwloc-bind"))


_BINDERS: dict[str, Callable[[Words, Command], Command]] = {"taskset": _taskset, "numactl": _numactl, "hwloc-bind": _hwloc_bind}


def _mask(text: str) -> CpuSet | None:
    try:
        return CpuSet.parse_mask(text.removeprefix("0x")) or None
    except ValueError:
        return None


def _program(name: str, words: Words, found: Command) -> Command:
    plain = Command(program=words.rest[0], arguments=tuple(words.rest))
    words.rest.pop(0)
    if PYTHON.fullmatch(name):
        return joined(plain, _python(words))
    if name in LAUNCHERS and (name not in _VERBS or words.rest[:1] == [_VERBS[name]]):
        return joined(plain, _launcher(name, words))
    if name in SHELLS:
        return joined(plain, Command(kind="shell"))
    if runner := runners.parse(name, words.rest):
        return joined(plain, _environment(*runner, found))
    return plain


def _python(words: Words) -> Command:
    how, value = _python_options(words)
    if how == "m":
        return _launcher(MODULES[value], words) if value in MODULES else Command(kind="python", module=value)
    return Command(kind="python", script=words.rest[0] if words.rest and not how else "")


def _python_options(words: Words) -> tuple[str, str]:
    """("m", module), ("c", code) or ("", "") for a script; options may be joined: ``-Im module``."""
    while words.rest and words.rest[0].startswith("-") and words.rest[0] != "-":
        word = words.rest.pop(0)
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                del words.rest[:1]
            continue
        at = next((at for at, letter in enumerate(word) if letter in "cmXW"), 0)
        if not at:
            continue
        value = word[at + 1 :] or (words.rest.pop(0) if words.rest else "")
        if word[at] in "cm":
            return word[at], value
    return "", ""


def _launcher(name: str, words: Words) -> Command:
    """A program that starts ranks: they are what must be placed, and each of them can be wrapped."""
    ranks, binding = None, ""
    if name == "torchrun":
        for option, value in words.options("torchrun"):
            if _TORCHRUN_RANKS.fullmatch(option):
                ranks = int(value) if re.fullmatch(r"[0-9]{1,4}", value) else None
            elif option in ("--numa-binding", "--numa_binding"):
                binding = value
    return Command(kind="launcher", launcher=name, launcher_ranks=ranks, binds_ranks=binding)


def _environment(runner: Runner, words: Sequence[str], found: Command) -> Command:
    """`conda run -n NAME CMD`: the program behind it is looked at too, for what kind it is."""
    inner = parse(words)
    return msgspec.structs.replace(
        inner,
        kind="launcher" if inner.kind == "launcher" else "environment",
        arguments=(),
        env=inner.env if inner.clears else {**found.env, **inner.env},
        unset=(*found.unset, *inner.unset),
        environment=(runner.name, runner.environment),
        runner=runner,
    )

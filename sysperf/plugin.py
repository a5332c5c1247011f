"""The interfaces that plugins implement, by kind, and the registry that finds them.

A plugin is a module that an installed distribution names in its entry points, ours and anybody's alike. There is one group a kind:

    [project.entry-points."sysperf.stacks"]
    pyspy = "sysperf_pyspy"

A plugin is imported when a command asks for it by name, and never otherwise. It sees `sysperf.model`, `sysperf.host`,
`sysperf.procfs`, `sysperf.trace`, `sysperf.paths` and this module. docs/plugins.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from sysperf.host import Host
from sysperf.model.errors import UsageError
from sysperf.model.mark import How, NodeMark
from sysperf.model.node import Answer, Asked, Node, Verb
from sysperf.model.profile import Samples, Stacks, Trace, TraceRequest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ReportProgress = Callable[[str], None]
"""Takes one line of progress, at least every second or so. What it raises ends the work, and nothing is left behind."""


Deliver = Callable[[Answer], None]
"""Takes what came of one node; from one thread at a time."""


class Kind(NamedTuple):
    """What a plugin can be."""

    name: str
    """As people write it, such as ``stacks``. Its group of entry points is ``sysperf.`` and this name."""
    purpose: str
    functions: tuple[str, ...]
    """What a module of this kind must offer."""
    default: str = ""
    """The plugin that commands use when the user names none."""

    @property
    def group(self) -> str:
        """The group of entry points."""
        return f"sysperf.{self.name}"


STACKS = Kind("stacks", "takes call stacks of a running program", ("dump", "sample"), "pyspy")
TRACES = Kind("traces", "takes traces of a running program", ("owner", "trace"), "torch")
TRACE_READERS = Kind("trace_readers", "reads a form of trace for `sysperf analyze`", ("recognises", "read"), "kineto")
TRAINERS = Kind("trainers", "trains a model with and without each piece of advice", ("rungs", "start"), "reference")
ENGINES = Kind("engines", "asks the nodes of a fleet", ("nodes", "run"), "folder")
MARKERS = Kind("markers", "tells a scheduler of a bad node", ("states", "write"), "slurm")
KINDS = (STACKS, TRACES, TRACE_READERS, TRAINERS, ENGINES, MARKERS)


class StackTaker(Protocol):
    """A plugin of kind `stacks`. Both functions raise SysperfError.

    It may have a third one, ``sequence(host, pid, rate_hz)``: the stacks of the main thread within one second, in the order of time,
    each with its innermost call first.
    """

    def dump(self, host: Host, pid: int) -> Stacks:
        """Return where all threads of a process are now."""

    def sample(self, host: Host, pid: int, seconds: int) -> Samples:
        """Return where its threads were, many times a second."""


class Tracer(Protocol):
    """A plugin of kind `traces`."""

    def owner(self, host: Host, pid: int) -> tuple[int, int]:
        """Return (uid, gid) of a process that can be traced from here. Raises SysperfError with the reason where it cannot."""

    def trace(self, host: Host, request: TraceRequest, progress: ReportProgress) -> Trace:
        """Have the process write a trace. Raises SysperfError."""


class TraceReader(Protocol):
    """A plugin of kind `trace_readers`: fills a `sysperf.trace.timeline.Timeline`."""

    def recognises(self, path: str, first: bytes) -> bool:
        """Whether the file is of this form; `first` are its first bytes."""

    def read(self, path: str, progress: Callable[[int], None]) -> object:
        """Read the file into a Timeline, and report how many bytes were read. Raises TraceError."""


class Rung(Protocol):
    """One piece of advice that a trainer can follow or not. `plugins/sysperf_trainer/rung.py` says what each of its own means."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def rules(self) -> tuple[str, ...]:
        """Return the rules whose advice it follows."""

    @property
    def seeds(self) -> tuple[str, ...]:
        """Return the articles' statements that it tests."""

    @property
    def role(self) -> str:
        """Return ``ladder``, ``variant``, ``memory`` or ``doubtful``."""

    @property
    def instead_of(self) -> str:
        """Return the rung whose place it takes; empty: none."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the rungs without which it changes nothing."""

    @property
    def loss_bound(self) -> float:
        """Return by which share the losses may differ; 0: not at all."""

    @property
    def signs(self) -> Sequence[tuple[str, str, str]]:
        """Return (figure of a rank's facts, ``falls`` or ``rises``, kind of device): how its mechanism shows in a trace."""

    @property
    def predicted_by(self) -> str:
        """Return the prediction of a trace's replay that is about it; empty: none."""


class TrainerStart(Protocol):
    """A command, and the variables that it needs beside those of its caller."""

    @property
    def argv(self) -> tuple[str, ...]: ...
    @property
    def environment(self) -> Mapping[str, str]: ...


class Trainer(Protocol):
    """A plugin of kind `trainers`: what can be switched on, and how a run is started. Neither needs torch here."""

    def rungs(self, workload: str) -> Sequence[Rung]:
        """Return the rungs of a workload, in the order in which they are climbed."""

    def start(
        self, python: str, workload: str, rungs: Iterable[str], arguments: Sequence[str], *, ranks: int, sysperf: Sequence[str]
    ) -> TrainerStart:
        """Return how this interpreter runs these rungs, with further arguments of the trainer."""


class Engine(Protocol):
    """A plugin of kind `engines`: how nodes are reached. It asks for one of our verbs, and never runs a command of the user's."""

    def nodes(self, asked: Asked) -> tuple[Node, ...]:
        """Return the nodes that are meant, also those that cannot be asked. Raises SysperfError."""

    def run(self, nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
        """Ask each node, and deliver one answer each as it comes; who is silent is an answer, too. Nothing stays on a node."""


class Marker(Protocol):
    """A plugin of kind `markers`. Acting needs other rights than reading, so it is no engine. Both functions raise SysperfError.

    One that cannot drain says so by ``HOWS = ("mark",)``.
    """

    def states(self, nodes: Sequence[str] = ()) -> Mapping[str, NodeMark]:
        """Return what the scheduler says of these nodes, of all where none is named. A node it does not have is missing."""

    def write(self, node: str, how: How, text: str) -> None:
        """Set the comment of a node, or drain it with a reason, in one step. An empty text takes either back."""


class Plugin(NamedTuple):
    """An installed plugin, known from its distribution's metadata without importing it."""

    kind: Kind
    name: str
    module: str
    distribution: str
    version: str


def installed(kind: Kind) -> list[Plugin]:
    """Return the plugins of a kind, in order of their names."""
    plugins = {_plugin(kind, entry) for entry in _entry_points(kind)}
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution))


def stack_taker(name: str = "") -> StackTaker:
    """Return the plugin of kind `stacks` with this name. Raises UsageError."""
    return cast("StackTaker", load(STACKS, name))


def tracer(name: str = "") -> Tracer:
    """Return the plugin of kind `traces` with this name. Raises UsageError."""
    return cast("Tracer", load(TRACES, name))


def trace_readers() -> list[TraceReader]:
    """Return all plugins of kind `trace_readers`, in order of their names. Raises UsageError where one cannot be used."""
    return [cast("TraceReader", load(TRACE_READERS, name)) for name in sorted({entry.name for entry in _entry_points(TRACE_READERS)})]


def trainer(name: str = "") -> Trainer:
    """Return the plugin of kind `trainers` with this name. Raises UsageError."""
    return cast("Trainer", load(TRAINERS, name))


def engine(name: str = "") -> Engine:
    """Return the plugin of kind `engines` with this name. Raises UsageError."""
    return cast("Engine", load(ENGINES, name))


def marker(name: str = "") -> Marker:
    """Return the plugin of kind `markers` with this name. Raises UsageError."""
    return cast("Marker", load(MARKERS, name))


def load(kind: Kind, name: str = "") -> object:
    """Import the plugin of this kind and name, or the kind's default. Raises UsageError."""
    entry = _chosen(kind, name or kind.default)
    try:
        module: object = entry.load()
    except Exception as error:  # noqa: BLE001 - a third party's module may raise anything when it is imported
        raise UsageError(
            f"the {kind.name} plugin `{entry.name}` ({entry.value}) cannot be imported: {type(error).__name__}: {error}",
            "install its package again, or choose another plugin: `sysperf plugins` lists them",
        ) from None
    absent = [function for function in kind.functions if not callable(getattr(module, function, None))]
    if absent:
        raise UsageError(
            f"the {kind.name} plugin `{entry.name}` ({entry.value}) has no {' and no '.join(absent)}", "use a version made for this sysperf"
        )
    return module


def _chosen(kind: Kind, name: str) -> EntryPoint:
    entries = {entry.value: entry for entry in _entry_points(kind) if entry.name == name}
    if len(entries) > 1:
        raise UsageError(f"several packages have a {kind.name} plugin `{name}`: {', '.join(sorted(entries))}", "uninstall all but one")
    if not entries:
        names = sorted({entry.name for entry in _entry_points(kind)})
        hint = f"installed: {', '.join(names)}" if names else "install sysperf again: its own plugins come with it"
        raise UsageError(f"no {kind.name} plugin `{name}` is installed", hint)
    return next(iter(entries.values()))


def _plugin(kind: Kind, entry: EntryPoint) -> Plugin:
    distribution = entry.dist
    name, version = (distribution.name, distribution.version) if distribution else ("", "")
    return Plugin(kind, entry.name, entry.value, name, version)


def _entry_points(kind: Kind) -> list[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms, which only commands with plugins pay

    return list(entry_points(group=kind.group))

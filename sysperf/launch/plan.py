"""What is changed for a program: the rules' fixes, merged with what the user decided. The user wins, and the line on stderr says so."""

from collections.abc import Iterable, Mapping, Sequence

from sysperf.launch.command import Command
from sysperf.launch.environment import MARKER, mark
from sysperf.launch.placement import Placement
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record

PRELOAD = "LD_PRELOAD"
ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "hoard", "snmalloc")
ASKED = "asked for"
UNKNOWN = "?"
IN_COMMAND, IN_ENVIRONMENT = "in the command", "in the environment"


class ProposedChange(Record):
    """A change that a rule, a profile or an option wants."""

    kind: str
    """env, unset, preload, cpus or memory."""
    name: str
    value: str
    rule: str
    """The rule's id; `asked for` for an option, `profile` for a profile."""


class DeclinedChange(Record):
    """A change that was not made because somebody had decided already."""

    rule: str
    name: str
    value: str
    because: str


class LaunchPlan(Record):
    """All that differs from starting the command plainly."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    """Variables to set."""
    unset: tuple[str, ...] = ()
    cpus: CpuSet | None = None
    """CPUs to bind to; None leaves the mask alone."""
    memory_nodes: CpuSet | None = None
    memory: str = ""
    """preferred, strict or interleave; empty leaves the policy alone."""
    changes: tuple[ProposedChange, ...] = ()
    kept: tuple[DeclinedChange, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    """(rule, message) of what the user should know."""
    notes: tuple[str, ...] = ()
    untouched: bool = False
    """An outer wrap has placed this program."""


def shown(change: ProposedChange) -> str:
    """A change in a few words."""
    if change.kind in ("env", "preload"):
        return f"{change.name}={change.value}"
    if change.kind == "memory":
        return f"memory {change.name} on node {change.value}"
    return f"CPUs {change.value}" if change.kind == "cpus" else f"without {change.name}"


def merge(
    argv: Sequence[str],
    wanted: Iterable[ProposedChange],
    env: Mapping[str, str],
    command: Command,
    placement: Placement,
    *,
    free: Iterable[str] = (),
    warnings: Iterable[tuple[str, str]] = (),
    keeps_policy: bool = False,
) -> LaunchPlan:
    """The plan. `env` is what reaches the program; variables in `free` were nobody's choice and may be replaced."""
    merger = _Merger(env, command, placement, frozenset(free), keeps_policy=keeps_policy)
    for change in wanted:
        merger.add(change)
    return LaunchPlan(
        argv=tuple(argv),
        env=merger.env,
        unset=tuple(merger.unset),
        cpus=merger.cpus,
        memory_nodes=merger.nodes,
        memory=merger.memory,
        changes=tuple(merger.changes),
        kept=tuple(merger.kept),
        warnings=tuple(warnings),
        notes=placement.notes,
    )


class _Merger:
    def __init__(
        self, given: Mapping[str, str], command: Command, placement: Placement, free: frozenset[str], *, keeps_policy: bool
    ) -> None:
        self.given, self.command, self.placement, self.free, self.keeps_policy = given, command, placement, free, keeps_policy
        self.env: dict[str, str] = {}
        self.unset: list[str] = []
        self.cpus: CpuSet | None = None
        self.nodes: CpuSet | None = None
        self.memory = ""
        self.changes: list[ProposedChange] = []
        self.kept: list[DeclinedChange] = []

    def add(self, change: ProposedChange) -> None:
        if UNKNOWN in change.value.split() or (change.value == UNKNOWN):
            return
        {"env": self._env, "unset": self._unset, "preload": self._preload, "cpus": self._cpus, "memory": self._memory}[change.kind](change)

    def _keep(self, change: ProposedChange, value: str, because: str) -> None:
        self.kept.append(DeclinedChange(change.rule, change.name, value, because))

    def _decided(self, name: str) -> str:
        """Return who decided on a variable already; "" when nobody did."""
        if self.command.clears or name in self.command.unset or name in self.command.env:
            return IN_COMMAND
        return "" if name not in self.given or name in self.free else IN_ENVIRONMENT

    def _env(self, change: ProposedChange) -> None:
        decided = self._decided(change.name)
        if decided and (change.rule != ASKED or decided == IN_COMMAND):  # what `env` does there is done after us
            if self.given.get(change.name) != change.value:
                self._keep(change, self.given.get(change.name, ""), decided)
        elif change.name not in self.env:  # the first rule, or the user's own option, decides
            self.env[change.name] = change.value
            self.changes.append(change)

    def _unset(self, change: ProposedChange) -> None:
        decided = self._decided(change.name)
        if decided and (change.rule != ASKED or decided == IN_COMMAND):
            self._keep(change, self.given.get(change.name, ""), decided)
        elif change.name in self.given:
            self.unset.append(change.name)
            self.changes.append(change)

    def _preload(self, change: ProposedChange) -> None:
        """An entry in front of those that are there; a second allocator is never added."""
        before = self.env.get(PRELOAD, self.given.get(PRELOAD, ""))
        entries = before.replace(":", " ").split()
        allocator = next((entry for entry in entries if any(name in entry.rpartition("/")[2] for name in ALLOCATORS)), "")
        if allocator:
            self._keep(change, allocator, "preloaded already")
            return
        if self._decided(PRELOAD) == IN_COMMAND:
            self._keep(change, before, IN_COMMAND)
            return
        self.env[PRELOAD] = ":".join((change.value, *entries))
        self.changes.append(change)

    def _cpus(self, change: ProposedChange) -> None:
        if self.command.cpu_tool:
            self._keep(change, str(self.command.cpus or ""), f"{self.command.cpu_tool} in the command")
        elif self.cpus is None and self.placement.cpus and self.placement.cpus != self.placement.allowed:
            self.cpus = self.placement.cpus
            self.changes.append(change)

    def _memory(self, change: ProposedChange) -> None:
        if self.command.memory_tool:
            self._keep(change, "", f"{self.command.memory_tool} in the command")
        elif self.keeps_policy and change.rule != ASKED:
            self._keep(change, "", "a memory policy that was set before")
        elif not self.memory and change.value and change.name:
            self.nodes, self.memory = CpuSet.parse(change.value), change.name
            self.changes.append(change)


def environment(plan: LaunchPlan, given: Mapping[str, str], command: Command, rank: str = "") -> dict[str, str]:
    """The whole environment to start the program with; one that an outer wrap placed keeps that wrap's mark."""
    env = {name: value for name, value in given.items() if name not in plan.unset}
    env.update(plan.env)
    if not plan.untouched:
        env[MARKER] = mark(launcher=command.kind == "launcher", rank=rank, names=plan.env)
    return env

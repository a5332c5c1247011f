"""The verb `wrap`: facts, launch rules, placement, and the plan that comes of them. Joins collect, evaluate and launch.

A launch must not wait: only the areas that placement and the rules in force name are read, and only launch rules are loaded.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sysperf.collect import AREAS, collect_area
from sysperf.collect.readers.cpu_topology import cores
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.expression import Scope
from sysperf.evaluate.judge import Judge
from sysperf.evaluate.ruleset import Compiled, Ruleset, site_files
from sysperf.evaluate.ruleset import load as load_rules
from sysperf.evaluate.schema import Schema
from sysperf.host import Host, redact
from sysperf.launch import environment, gpus, interpreter, load, plan, preload, ranks
from sysperf.launch.command import Command, parse
from sysperf.launch.facts import Launch
from sysperf.launch.placement import TARGETS, Machine, MemoryNode, Placement, Refused, Wishes, place
from sysperf.launch.profile import Profile
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import RuleError, UsageError
from sysperf.model.outcome import Outcome, Rewrap
from sysperf.model.path import StrPath
from sysperf.model.record import Record
from sysperf.model.rule import Advice, Bind, Env, Override, Preload, Rule
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral

RULES = "wrap.toml"
PLACED = ("cpu", "numa", "cgroup")
"""The areas that placement needs in any case."""
_AREA = re.compile(rf"\b({'|'.join(AREAS)})\.")
MEMORY = {"memory-preferred": "preferred", "memory-strict": "strict", "memory-interleave": "interleave"}


class Request(Record):
    """What the user asks of a launch."""

    argv: tuple[str, ...]
    cpus: CpuSet | None = None
    node: int | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    strict: bool = False
    allocator: str = ""
    traceable: bool = False
    trace_folder: str = ""
    set: dict[str, str] = {}
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    profile: Profile = Profile()
    instances: int = 1

    @property
    def explicit(self) -> bool:
        """Whether anything was asked for beyond the command."""
        return msgspec.structs.replace(self, argv=()) != Request(argv=())


class Decision(Record):
    """A launch, decided: the plan, and what it follows from."""

    plan: plan.Plan
    launch: Launch
    placement: Placement
    command: Command
    outcomes: tuple[Outcome, ...] = ()
    rank: str = ""
    """Which rank this is, in one word; empty for a process of its own."""


class _Areas(dict[str, Any]):
    """Record types by area, imported when a rule names them."""

    def __missing__(self, area: str) -> Any:
        if area not in AREAS:
            raise KeyError(area)
        self[area] = importlib.import_module(f"sysperf.collect.{area}").collect.__annotations__["return"]
        return self[area]

    def __contains__(self, area: object) -> bool:
        return area in AREAS or dict.__contains__(self, area)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*AREAS, *dict.keys(self))))

    def keys(self) -> Any:
        return list(self)


def rules(extra: Sequence[StrPath] = (), problems: list[str] | None = None) -> Ruleset:
    """The launch rules in force. A site's file that is wrong is left out and named in `problems`; one that was asked for raises."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    package = os.path.dirname(os.path.dirname(__file__))
    shipped = [f"{folder}/rules/{RULES}" for folder in (package, os.path.dirname(package))]
    ours = next((path for path in shipped if os.path.exists(path)), shipped[0])
    cache = f"{caches}/sysperf/wrap.json"
    schema = Schema(_Areas(launch=Launch))
    places = ("/etc/sysperf/rules.d", f"{home}/sysperf/rules.d")
    try:
        return load_rules((ours,), schema, scope="launch", site=site_files(places, extra), cache=cache)
    except RuleError as error:
        if extra or problems is None:
            raise
        problems.append(f"the site's rules are not used: {error}")
        return load_rules((ours,), schema, scope="launch", cache=cache)


def wrap(host: Host, ruleset: Ruleset, request: Request, env: Mapping[str, str], cwd: str, *, rank: int | None = None) -> Decision:
    """Decide how to start a program. Raises UsageError when a wish cannot be met."""
    return _Wrapper(host, ruleset, request, env, cwd, rank).decide()


MOST_REWRAPS = 16


def rewraps(host: Host, snapshot: Snapshot, ruleset: Callable[[], Ruleset]) -> tuple[Rewrap, ...]:
    """How the programs that run would have been started, where wrap would have done it otherwise. Cheap where none runs."""
    found = getattr(snapshot.areas["process"].facts, "processes", None) or () if "process" in snapshot.areas else ()
    running = [one for one in found if one.command and not one.launcher and environment.MARKER not in (one.env or {})][:MOST_REWRAPS]
    if not running:
        return ()
    rules_in_force = ruleset()
    return tuple(one for process in running if (one := _rewrap(host, rules_in_force, process, snapshot)) is not None)


def _rewrap(host: Host, ruleset: Ruleset, process: Any, snapshot: Snapshot) -> Rewrap | None:
    try:
        argv = tuple(shlex.split(process.command))
        decision = _Running(host, ruleset, process, argv, snapshot).decide()
    except (ValueError, UsageError):  # a command line that was cut, or that nobody could start again
        return None
    changes = [one for one in decision.plan.changes if not (one.kind == "cpus" and decision.placement.cpus == process.allowed)]
    if not changes:
        return None
    because = tuple(dict.fromkeys(one.rule for one in changes))
    return Rewrap(process.pid, f"sysperf wrap -- {process.command}", tuple(map(plan.shown, changes)), because)


class _Wrapper:
    """One launch: what is read once, and judged on."""

    def __init__(self, host: Host, ruleset: Ruleset, request: Request, env: Mapping[str, str], cwd: str, rank: int | None) -> None:
        self.host, self.ruleset, self.request, self.rank = host, ruleset, request, rank
        self.given = env
        self.looked = load.runnable(host)
        self.command = parse(request.argv)
        self.env = environment.of_program(env, self.command)
        self.deciding = environment.deciding(self.env)
        self.program = interpreter.find(host, self.command, self.deciding, cwd)
        self.areas: dict[str, Area] = {}
        _configure(ruleset, request)

    def decide(self) -> Decision:
        self.machine = self._machine()
        self.ranks = self._ranks()
        done, names = environment.decided_before(self.deciding, ranks.identity(self.ranks.source, self.ranks.rank))
        self.ranks = msgspec.structs.replace(self.ranks, injected=tuple(dict.fromkeys((*self.ranks.injected, *names))))
        self.gpus = self._gpus()
        targets = frozenset(fix.to for rule in self.ruleset.rules for fix in rule.fix if isinstance(fix, Bind)) & TARGETS
        decision = self._decided(targets, wrapped=done)
        target = decision.placement.target
        bound = any(change.kind == "cpus" for change in decision.plan.changes)
        if target in targets and decision.placement.cpus != decision.placement.allowed and not bound:
            # The rule that would bind does not fire: threads and memory are those of an unbound program.
            decision = self._decided(targets - {target}, wrapped=done)
        return msgspec.structs.replace(decision, rank=ranks.identity(self.ranks.source, self.ranks.rank))

    # ------------------------------------------------------------------ what is known

    def _area(self, name: str) -> Any:
        if name not in self.areas:
            self.areas[name] = collect_area(self.host, name)
        return self.areas[name].facts

    def _machine(self) -> Machine:
        cpu, numa, cgroup = (self._area(name) for name in PLACED)
        allowed = self._allowed(cpu)
        if cpu is None:
            return Machine(allowed=allowed, online=allowed or CpuSet(), quota=getattr(cgroup, "cpu_quota", None))
        return Machine(
            allowed=allowed,
            online=cpu.online,
            cores=cores(self.host, cpu.online),
            performance=cpu.performance_cpus if cpu.hybrid else None,
            l3_domains=cpu.l3_domains,
            isolated=cpu.isolated,
            nodes=self._nodes(numa.nodes) if numa else (),
            allowed_nodes=numa.allowed_nodes if numa else None,
            quota=getattr(cgroup, "cpu_quota", None),
        )

    def _nodes(self, found: Iterable[Any]) -> tuple[MemoryNode, ...]:
        """None where two claim the same CPU, as emulated ones (`numa=fake=8`) do: nothing is near or far then. Who names a node gets it."""
        nodes = tuple(map(_node, found))
        named = self.request.node is not None or self.request.profile.node is not None
        apart = sum(len(node.cpus) for node in nodes) == len(CpuSet.union(node.cpus for node in nodes))
        return nodes if apart or named else ()

    def _allowed(self, cpu: Any) -> CpuSet | None:
        """Our own mask, cut to what a taskset or numactl in the command leaves."""
        mask = CpuSet(os.sched_getaffinity(0)) if self.host.live else getattr(cpu, "allowed", None)
        chosen = self.command.cpus
        if self.command.cpu_nodes is not None and (numa := self._area("numa")):
            chosen = CpuSet.union(node.cpus or CpuSet() for node in numa.nodes if node.id in self.command.cpu_nodes)
        if chosen is None or mask is None:
            return mask
        return mask & chosen or mask

    def _ranks(self) -> ranks.Ranks:
        if self.rank is not None and self.command.kind != "launcher":
            return ranks.Ranks(ranks.OURS, self.rank, self.request.instances, divides_gpus=True, same_gpus=True)
        if self.command.kind == "launcher":
            size = self.command.launcher_ranks
            return ranks.Ranks(self.command.launcher, 0, size) if size else ranks.Ranks()
        return ranks.read(self.host, self.deciding, self.machine.allowed)

    def _gpus(self) -> gpus.Gpus:
        """Where all is near everything, which GPU it is does not matter; else the PCI bus says where each is."""
        near = sum(1 for node in self.machine.nodes if node.cpus and not node.gpu_memory) < 2
        if near and not (self.rank is not None or self.host.exists(gpus.GPUS)):
            return self._other_gpus()
        return gpus.read(self.host, getattr(self._area("pcie"), "devices", None), self.deciding)

    def _other_gpus(self) -> gpus.Gpus:
        """Those of other makers: we know that they are there, not which is which."""
        torch = self.program.torch
        if torch and torch.gpu and (self.host.exists("/dev/kfd") or self.host.exists("/dev/dri/renderD128")):
            return gpus.Gpus(None, problem="GPUs that are not NVIDIA's are not told apart")
        return gpus.Gpus()

    # ------------------------------------------------------------------ the decision

    def _decided(self, targets: frozenset[str], *, wrapped: bool) -> Decision:
        wishes = self._wishes(targets)
        try:
            placement = place(self.machine, self.ranks, self.gpus, wishes)
        except Refused as refused:
            raise UsageError(str(refused), refused.hint) from None
        if self.command.kind == "launcher":
            placement = _for_launcher(placement, self.ranks)
        elif self._placed_by_tool():
            placement = msgspec.structs.replace(placement, cpus=None, cores=None, threads=wishes.threads)
        launch = self._launch(placement, wrapped=wrapped)
        if wrapped and not self.request.explicit:
            kept = plan.Plan(self.request.argv, notes=("an outer sysperf wrap has placed it already",), untouched=True)
            return Decision(kept, launch, placement, self.command)
        outcomes, wanted, warnings = self._judged(launch, placement)
        merged = plan.merge(
            self.request.argv,
            (*self._asked(placement), *wanted),
            self.env,
            self.command,
            placement,
            free=self.ranks.injected,
            warnings=warnings,
            keeps_policy=self._policy(placement),
        )
        return Decision(merged, launch, placement, self.command, outcomes)

    def _placed_by_tool(self) -> bool:
        """Whether a tool in the command chooses CPUs that we cannot tell, or that other ranks may or may not have too."""
        command, ranks_of_others = self.command, bool(self.ranks.source) and self.ranks.size != 1 and not self.ranks.divides_gpus
        return bool(command.cpu_tool) and ((command.cpus is None and command.cpu_nodes is None) or ranks_of_others)

    def _wishes(self, targets: frozenset[str]) -> Wishes:
        """The options, then the profile, then what the user's own variables imply."""
        asked, kept = self.request, self.request.profile
        own = self.deciding.get("OMP_NUM_THREADS", "") if "OMP_NUM_THREADS" not in self.ranks.injected else ""
        threads = asked.threads or kept.threads or (int(own) if re.fullmatch(r"[1-9][0-9]{0,4}", own) else None)
        torch = self.program.torch
        return Wishes(
            cpus=asked.cpus if asked.cpus is not None or kept.cpus is None else CpuSet.parse(kept.cpus),
            node=asked.node if asked.node is not None else kept.node,
            threads=threads,
            memory_bytes=asked.memory_bytes,
            strict=asked.strict,
            targets=targets if self.command.kind != "launcher" and not self.command.cpu_tool else frozenset(),
            uses_gpu=torch.gpu is not False if torch else True,
        )

    def _policy(self, placement: Placement, /) -> bool:
        """Whether an outer numactl has set a memory policy: asked only where we would set one."""
        if not self.host.live or not placement.memory_nodes or self.request.strict:
            return False
        from sysperf.launch import bind  # noqa: PLC0415 - ctypes costs 4 ms; machines with one node do not pay

        return bind.has_policy()

    def _launch(self, placement: Placement, *, wrapped: bool) -> Launch:
        command, program, torch = self.command, self.program, self.program.torch
        total, available = load.memory_bytes(self.host)
        cgroup = self.areas["cgroup"].facts
        limit = getattr(cgroup, "memory_limit_bytes", None)
        if limit and total and limit < total:
            used = cgroup.memory_used_bytes
            total, available = limit, None if used is None else min(available or limit, limit - used)
        cpus = placement.cpus
        return Launch(
            command=tuple(redact.arguments("\0".join(self.request.argv).encode("utf-8", "replace")).decode().split("\0")),
            kind=command.kind,
            program=neutral(command.program, 300),
            script=neutral(command.script, 300),
            module=neutral(command.module, 100),
            launcher=command.launcher,
            launcher_ranks=command.launcher_ranks,
            cpu_tool=command.cpu_tool,
            memory_tool=command.memory_tool,
            is_python=program.is_python or command.kind == "python",
            interpreter=neutral(program.interpreter, 300),
            torch=True if torch else False if program.torch_known or command.kind == "program" else None,
            torch_version=torch.version if torch else "",
            torch_gpu=torch.gpu if torch else None,
            openmp_runtime=torch.openmp if torch else "",
            env=environment.shown(self.env),
            injected=self.ranks.injected,
            wrapped=wrapped,
            traceable=self.request.traceable,
            trace_folder=self.request.trace_folder,
            allocator=self.request.allocator or self.request.profile.allocator,
            rank_source=self.ranks.source,
            rank=self.ranks.rank,
            ranks=self.ranks.size,
            own_cpus=self.ranks.own_cpus,
            gpus=None if self.gpus.visible is None else tuple(gpu.bus_id for gpu in self.gpus.visible),
            gpu_problem=self.gpus.problem,
            other_runnable=load.steady(self.looked, load.runnable(self.host)),
            pressure=load.pressure(self.host),
            memory_total_bytes=total,
            memory_available_bytes=available,
            online_cpus=len(self.machine.online) or None,
            quota=self.machine.quota,
            allowed=placement.allowed,
            cpus=cpus,
            target=placement.target,
            nodes=placement.nodes,
            memory_nodes=placement.memory_nodes,
            strict_memory=placement.strict,
            cores=placement.cores,
            threads=placement.threads,
            default_threads=len(cpus) if cpus else None,
            threads_asked=self.request.threads is not None or self.request.profile.threads is not None,
            notes=placement.notes,
        )

    # ------------------------------------------------------------------ rules

    def _judged(self, launch: Launch, placement: Placement) -> tuple[tuple[Outcome, ...], list[plan.Wanted], list[tuple[str, str]]]:
        """What the rules say, the changes they want, and what the user should know."""
        rules = self._applying(launch)
        areas = {**self.areas, "launch": Area(launch)}
        names = {name: area.facts for name, area in areas.items()}
        ledger = Ledger(Snapshot(taken_at="", root=self.host.root, areas=areas), self.host.sources)
        court = Judge(names, self.ruleset.tables, ledger)
        for rule in rules:
            court.rule(rule)
        wanted: list[plan.Wanted] = []
        warnings: list[tuple[str, str]] = []
        for outcome in court.outcomes:
            if outcome.state == "finding":
                wanted += self._changes(outcome, names, placement, warnings)
        return tuple(court.outcomes), wanted, warnings

    def _applying(self, launch: Launch) -> list[Compiled]:
        """The rules that may say something. An area is read only for a rule that applies as far as is known without it."""
        kept = []
        for rule in self.ruleset.rules:
            compiled, missing = self.ruleset.compiled(rule.id), _named(rule) - self.areas.keys()
            if missing and compiled.applies and not compiled.loop:
                known = {**dict.fromkeys(missing), **{name: area.facts for name, area in self.areas.items()}, "launch": launch}
                if compiled.applies(Scope(known, self.ruleset.tables)) is False:
                    continue
            for name in missing:
                self._area(name)
            kept.append(compiled)
        return kept

    def _changes(
        self, outcome: Outcome, names: dict[str, Any], placement: Placement, warnings: list[tuple[str, str]]
    ) -> Iterator[plan.Wanted]:
        """The fixes of a rule that fires, with their blanks filled in."""
        rule = self.ruleset.compiled(outcome.rule)
        scope = Scope(dict(names), self.ruleset.tables)
        for fix in rule.rule.fix:
            if isinstance(fix, Env):
                yield from (plan.Wanted("env", name, rule.template(text).fill(scope), outcome.rule) for name, text in fix.set.items())
                yield from (plan.Wanted("unset", name, "", outcome.rule) for name in fix.unset)
            elif isinstance(fix, Preload):
                yield from self._preload(fix.library, outcome.rule, names, warnings)
            elif isinstance(fix, Bind) and fix.to in MEMORY:
                yield plan.Wanted("memory", MEMORY[fix.to], str(placement.memory_nodes or placement.nodes), outcome.rule)
            elif isinstance(fix, Bind) and fix.to == placement.target:
                yield plan.Wanted("cpus", "CPUs", str(placement.cpus), outcome.rule)
            elif isinstance(fix, Advice) and outcome.severity in ("error", "warning"):
                warnings.append((outcome.rule, outcome.message))

    def _preload(self, library: str, rule: str, names: dict[str, Any], warnings: list[tuple[str, str]]) -> Iterator[plan.Wanted]:
        """A file that is there and that the program will take; else a warning, and the program starts without it."""
        allocator = names.get("allocator") or self._area("allocator")
        known = {one.name: one.path for one in getattr(allocator, "libraries", None) or ()}
        torch = self.program.torch
        found = (
            preload.candidates(library, (torch.lib_folder if torch else "",), known)
            if self.host.live
            else [known[library]]
            if library in known
            else []
        )
        target = self.program.interpreter or self.program.path
        refusals = [preload.refusal(path, target) for path in found] if self.host.live else [""] * len(found)
        taken = next((path for path, refusal in zip(found, refusals, strict=True) if not refusal), None)
        if taken:
            yield plan.Wanted("preload", plan.PRELOAD, taken, rule)
        else:
            warnings.append((rule, next(iter(refusals), "") or f"no {library} was found here: install it (Debian: lib{_package(library)})"))

    def _asked(self, placement: Placement) -> Iterator[plan.Wanted]:
        """What options and the profile decide, before any rule."""
        request, profile = self.request, self.request.profile
        yield from (plan.Wanted("env", name, value, plan.ASKED) for name, value in request.set.items())
        if request.threads:
            yield plan.Wanted("env", "OMP_NUM_THREADS", str(request.threads), plan.ASKED)
        yield from self._my_gpus()
        if placement.target == "cpus":
            yield plan.Wanted("cpus", "CPUs", str(placement.cpus), plan.ASKED)
        if placement.strict:
            yield plan.Wanted("memory", "strict", str(placement.memory_nodes), plan.ASKED)
        if profile.threads and not request.threads:
            yield plan.Wanted("env", "OMP_NUM_THREADS", str(profile.threads), "profile")
        yield from (plan.Wanted("env", name, value, "profile") for name, value in profile.set.items())

    def _my_gpus(self) -> Iterator[plan.Wanted]:
        """With --nproc: the instance's part of the GPUs, in the words of CUDA_VISIBLE_DEVICES as it was given."""
        torch = self.program.torch
        if self.rank is None or not self.gpus.visible or (torch and torch.gpu is False):
            return
        given = self.deciding.get(gpus.VISIBLE)
        words = [word.strip() for word in given.split(",")] if given else [str(index) for index in range(len(self.gpus.visible))]
        mine = gpus.part(len(self.gpus.visible), self.rank, self.request.instances)
        yield plan.Wanted("env", gpus.VISIBLE, ",".join(words[index] for index in mine), plan.ASKED)


def _configure(ruleset: Ruleset, request: Request) -> None:
    """The rules that options and the profile choose, with the profile's parameters."""
    for name, params in request.profile.params.items():
        ruleset.override(Override(rule=name, params=params))
    only, skip = (*request.only, *request.profile.only), (*request.skip, *request.profile.skip)
    if only or skip:
        ruleset.select(only, skip)


def _named(rule: Rule) -> set[str]:
    """The areas that a rule names."""
    texts = (rule.for_each, rule.applies, rule.when, rule.message, *(guard.when for guard in rule.unless), *_values(rule.fix))
    return {found for text in texts for found in _AREA.findall(text)}


def _values(fixes: Iterable[Any]) -> Iterator[str]:
    for fix in fixes:
        if isinstance(fix, Env):
            yield from fix.set.values()
        elif isinstance(fix, Preload):
            yield "allocator."


def _node(node: Any) -> MemoryNode:
    return MemoryNode(
        id=node.id,
        cpus=node.cpus or CpuSet(),
        available_bytes=node.mem_available_bytes,
        gpu_memory=node.gpu_memory,
        has_memory=node.mem_total_bytes != 0,
    )


def _for_launcher(placement: Placement, found: ranks.Ranks) -> Placement:
    """Ranks inherit all that is set here. By rule that is the environment alone, with the threads of one rank."""
    asked = placement.target == "cpus"
    threads = max(1, (placement.threads or 1) // (found.size or 1)) if asked else placement.threads
    return msgspec.structs.replace(
        placement,
        cpus=placement.cpus if asked else placement.allowed,
        target=placement.target if asked else "",
        memory_nodes=placement.memory_nodes if asked or placement.strict else CpuSet(),
        threads=threads if found.source else None,
        cores=None,
        notes=(),
    )


def _package(library: str) -> str:
    return {"tcmalloc_minimal": "tcmalloc-minimal4", "jemalloc": "jemalloc2", "mimalloc": "mimalloc2.0"}[library]


class _Running(_Wrapper):
    """A program that runs already: how it would be started if it were started now, on a machine without it."""

    def __init__(self, host: Host, ruleset: Ruleset, process: Any, argv: tuple[str, ...], snapshot: Snapshot) -> None:
        folder = host.link(f"/proc/{process.pid}/cwd") or "/"
        super().__init__(host, ruleset, Request(argv=argv), process.env or {}, folder, None)
        self.looked = 0
        self.process = process
        self.areas = {name: area for name, area in snapshot.areas.items() if area.facts is not None}
        if process.cgroup is not None:  # its limits, not those of whoever asks
            self.areas["cgroup"] = Area(process.cgroup)

    def _allowed(self, cpu: Any) -> CpuSet | None:
        """What it was allowed before anything bound its threads."""
        return self.process.allowed_at_start or self.process.allowed or getattr(cpu, "online", None)

    def _ranks(self) -> ranks.Ranks:
        return ranks.of_running(self.deciding)

    def _policy(self, _placement: Placement, /) -> bool:
        return False

    def _launch(self, placement: Placement, *, wrapped: bool) -> Launch:
        """Its own load is not that of others."""
        return msgspec.structs.replace(super()._launch(placement, wrapped=wrapped), other_runnable=0, pressure=0.0)

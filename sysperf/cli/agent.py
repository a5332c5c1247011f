"""Watch this machine and answer questions about it on a socket. It samples, judges and remembers all the time.

  sysperf agent            run the agent in the foreground (as a service: `sysperf service`)
  sysperf agent status     how the running agent is doing, and what it found
  sysperf agent events     what happened lately; with --follow, what happens

It changes nothing itself, is built to cost less than 0.3 % of a CPU, and needs no root: as a user it sees the user's own processes.
Modes: `observe` keeps findings for whoever asks; `advise` also logs each new one with its fix; `apply` makes the
changes of the rules that the configuration lists, through the helper, and undoes them when the agent ends.

examples:
  sysperf agent                                    socket and history in the user's folders
  sysperf agent --mode advise --history none       log what is new, keep nothing on disk
  sysperf agent status --json
  sysperf agent events --follow
  curl --unix-socket /run/sysperf/agent.sock http://localhost/v1/findings

signals: HUP reads rules and configuration again, TERM and INT stop it.

exit codes:
  0  the agent was stopped, or it answered
  2  the command line or the configuration is wrong, or no agent answers

docs/agent.md describes the configuration, the socket and the meters.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from sysperf import paths, startup
from sysperf.cli import _options
from sysperf.model.agent_settings import MODES, Settings
from sysperf.model.errors import Exit, UsageError
from sysperf.model.text import neutral, size

if TYPE_CHECKING:
    from types import ModuleType

    from sysperf.agent.answers import Status
    from sysperf.agent.apply_policy import ChangeService
    from sysperf.agent.client import Client
    from sysperf.agent.setup import Options, Setup
    from sysperf.live.tracked_finding import TrackedFinding
    from sysperf.model.change import Setting
    from sysperf.model.finding import Finding

SHOWN = 50
KEPT = 200
"""Lines of the past; --json prints all."""
KINDS = ("finding", "gone", "flapping", "process", "change", "agent")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("run", "status", "events"), default="run", help="default: run")
    parser.add_argument(
        "--socket", metavar="PATH", help="where it listens (default: $RUNTIME_DIRECTORY, /run/sysperf, or $XDG_RUNTIME_DIR)"
    )
    run = parser.add_argument_group("run")
    run.add_argument("--mode", choices=MODES, help="default: observe, or what the configuration says")
    run.add_argument("--interval", type=float, metavar="SECONDS", help="between two samples while PyTorch runs (default: 1)")
    run.add_argument("--history", metavar="FILE", help="where samples and events are kept; `none`: in memory")
    run.add_argument("--config", metavar="FILE", help="use only this configuration file")
    run.add_argument("--rules", action="append", default=[], metavar="PATH", help="more rules: a TOML file or a folder of them")
    asking = parser.add_argument_group("status and events")
    asking.add_argument("--json", action="store_true", help="print JSON; events one a line")
    asking.add_argument("--follow", action="store_true", help="go on printing events as they happen")
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.action == "run":
        return _run(args)
    from sysperf.agent.client import Client  # noqa: PLC0415 - for the other actions

    client = Client(paths.find_socket(args.socket or ""))
    return _status(client, args) if args.action == "status" else _events(client, args)


# ---------------------------------------------------------------------- run


def _run(args: argparse.Namespace) -> int:
    startup.small_pages()
    loop, log = _imported()
    settings = _settings(args)
    options = _chosen(args, settings, loop.Options, paths.default_socket())
    loop.run(loop.Agent(lambda: _setup(args), options, log.logger()))
    return Exit.CLEAN


def _imported() -> tuple[ModuleType, ModuleType]:
    """The agent's modules."""
    with startup.without_ssl(), startup.with_c_datetime(), startup.with_late_tools():
        from sysperf.agent import log, loop  # noqa: PLC0415 - no other command needs asyncio, sqlite and h11
    return loop, log


def _chosen(args: argparse.Namespace, settings: Settings, make: type[Options], socket: str) -> Options:
    from sysperf.fix.past import PastTransactions  # noqa: PLC0415 - `agent status` does not watch the journal

    return make(args.socket or socket, _history(args.history or settings.history), _change_service, _settings_of, PastTransactions())


def _change_service() -> ChangeService | None:
    """Return who makes changes in mode `apply`."""
    from sysperf.agent.helper_client import HelperClient  # noqa: PLC0415 - only mode `apply` asks
    from sysperf.fix import helper_protocol  # noqa: PLC0415

    return HelperClient() if helper_protocol.available() else None


def _settings_of(outcome: Finding) -> tuple[Setting, ...]:
    """What the finding's fixes would set. The site named the rule: that covers a fix that asks for caution."""
    from sysperf.engine import change  # noqa: PLC0415 - as above

    return change.requested_settings([outcome], [outcome.rule]).settings


def _history(given: str) -> str | None:
    """The file of the history; None for memory."""
    if given:
        return None if given == "none" else os.path.abspath(given)
    folder = paths.service_state_folder()
    if not folder and os.geteuid() != 0:
        folder = paths.user_state_folder()
        with contextlib.suppress(OSError):  # the history says so, and goes on in memory
            os.makedirs(folder, mode=0o700, exist_ok=True)
    return f"{folder}/history.db" if folder else None


def _settings(args: argparse.Namespace) -> Settings:
    from sysperf.engine.configuration import read_config  # noqa: PLC0415 - with the rest of the agent

    settings = read_config(args.config).agent
    if args.interval is not None and not 0.2 <= args.interval <= 60:
        raise UsageError(f"--interval {args.interval:g}: not between 0.2 and 60 seconds")
    changed = {"mode": args.mode, "interval_s": args.interval}
    return msgspec.structs.replace(settings, **{name: value for name, value in changed.items() if value is not None})


def _setup(args: argparse.Namespace) -> Setup:
    """Rules and configuration as they are now. Raises SysperfError."""
    from sysperf.agent.setup import Setup  # noqa: PLC0415
    from sysperf.engine import judging  # noqa: PLC0415 - as above
    from sysperf.engine.configuration import read_config  # noqa: PLC0415

    config = read_config(args.config)
    settings, ruleset = _settings(args), judging.machine_rules(config, args.rules)
    return Setup(settings, judging.load_terms(config, ruleset))


# ---------------------------------------------------------------------- status and events


def _status(client: Client, args: argparse.Namespace) -> int:
    from sysperf.agent import answers  # noqa: PLC0415 - with the client

    status = client.ask("/v1/status", answers.Status)
    findings = [active for active in client.ask("/v1/findings", answers.Findings).findings if active.state == "active"]
    if args.json:
        from sysperf.report.formats import as_json  # noqa: PLC0415 - not for text

        _options.write(as_json.dump({"status": status, "findings": findings}), args)
        return Exit.CLEAN
    lines = _about(status, client.ask("/v1/meters", answers.Meters).meters)
    lines += ["", "findings:" if findings else "no findings"]
    lines += [_finding(active) for active in findings[:SHOWN]]
    _options.write("\n".join(lines), args)
    return Exit.CLEAN


def _about(status: Status, meters: dict[str, float]) -> list[str]:
    used = f"{100 * meters['agent.cpu']:.2g} % of a CPU, " if "agent.cpu" in meters else ""
    rss = f"{size(status.cost.rss_bytes)} of memory" if status.cost.rss_bytes else "memory unknown"
    lines = [
        f"sysperf {neutral(status.version)}, mode {neutral(status.mode)}, since {_when(status.started_at)}",
        f"samples: {status.samples}, cost: {used}{rss}",
    ]
    return lines + [f"problem: {neutral(problem)}" for problem in (status.store_problem, *status.problems) if problem]


def _finding(tracked: TrackedFinding) -> str:
    outcome = tracked.outcome
    where = f" [{neutral(outcome.about)}]" if outcome.about else ""
    return f"  {outcome.severity:<8} {neutral(outcome.rule)}{where}: {neutral(outcome.message)} (since {_when(tracked.first_seen)})"


def _events(client: Client, args: argparse.Namespace) -> int:
    """What is kept, then what happens. Samples are no events: they are on /v1/events for programs."""
    wanted: dict[str, str | float] = {"kinds": ",".join(KINDS), "since": 0}
    line = _line if args.json else _event
    if args.follow:
        if args.output:
            raise UsageError(
                "--output writes a report that ends, and --follow has no end", f"leave --output out, and append >> {args.output}"
            )
        for kind, event in client.events(**wanted):
            if text := line(kind, event):
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
        return Exit.CLEAN
    kept = collections.deque(client.events(**wanted, follow=0), maxlen=None if args.json else KEPT)
    _options.write("".join(f"{text}\n" for kind, event in kept if (text := line(kind, event))), args)
    return Exit.CLEAN


def _line(_kind: str, event: object) -> str:
    from sysperf.model.record import to_json  # noqa: PLC0415 - only for JSON

    return to_json(event).decode()


def _event(kind: str, raw: object) -> str:
    """A line of an event; empty for one that this version cannot show."""
    from sysperf.agent import answers  # noqa: PLC0415 - with the client

    event = answers.read(raw, answers.Event)
    if event is None:
        return ""
    subject = f" [{neutral(event.subject)}]" if event.subject else ""
    return f"{_when(event.at)} {neutral(kind)}{subject} {neutral(event.text)}"


def _when(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, OSError, ValueError):
        return "?"

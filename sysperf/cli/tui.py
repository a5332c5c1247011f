"""The dashboard: what is wrong, next to the meter that shows it. One key explains, previews, applies, undoes.

It asks the agent of this machine where one runs, and samples by itself otherwise. It needs no root and no GPU.

examples:
  sysperf                                 the dashboard (on a terminal)
  sysperf tui --demo                      a recorded GPU server to learn on; nothing is real
  sysperf tui --connect ssh://gpu-7       another machine's agent, through ssh
  sysperf tui --root server.tar.zst       a captured machine
  sysperf tui --no-agent                  sample here although an agent runs
  sysperf tui --fleet records/            many machines: who is bad, different or silent (also --hosts n[1-32])

  sysperf tui --serve                     in a browser, read-only: open the address that it prints

keys: 1 to 7 screens, arrows or j k, Enter, / filter, ? help, q quit. docs/dashboard.md shows more.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sysperf import paths, plugin, startup
from sysperf.cli import plugins
from sysperf.model.errors import Exit, UsageError

if TYPE_CHECKING:
    import socket

    from sysperf.engine.change import Changer
    from sysperf.engine.judging import Terms
    from sysperf.model.cause import Explained
    from sysperf.model.finding import Rewrap
    from sysperf.model.rule import Rule
    from sysperf.model.snapshot import Snapshot
    from sysperf.tui.actions import Actions
    from sysperf.tui.app import Dashboard
    from sysperf.tui.shell import Shell
    from sysperf.tui.source import Source

SWITCH_S = 0.0005
"""How long a thread that samples keeps the interpreter from the one that answers keys; Python's own 5 ms, some of which a key waits for."""


NODE_LIMIT_S = 20.0
EVERY_S, ASKED_EVERY_S = 10.0, 120.0
"""How often a folder is read again, and how often nodes are asked: each of those makes an audit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("--demo", action="store_true", help="a recorded GPU server to learn on, with five cards; nothing of it is real")
    parser.add_argument("--read-only", action="store_true", help="show only: nothing can be changed or waived from here")
    parser.add_argument(
        "--theme", default=os.environ.get("SYSPERF_THEME", ""), metavar="NAME", help="colours, such as nord or textual-light"
    )
    plugins.add_choice(parser, plugin.STACKS, "--stacks-with")
    plugins.add_choice(parser, plugin.TRACES, "--trace-with")
    many = parser.add_argument_group("many machines")
    many.add_argument(
        "--fleet",
        nargs="?",
        const="",
        metavar="RECORDS",
        help="a row a node: of a folder of records, of --hosts, or of a Slurm job",
    )
    many.add_argument("--hosts", default="", metavar="NAMES", help="these nodes, through ssh: n[1-32],login")
    many.add_argument("--engine", default="", metavar="PLUGIN", help="how nodes are asked (default: by what is given)")
    web = parser.add_argument_group("in a browser (needs `pip install textual-serve`)")
    web.add_argument("--serve", action="store_true", help="serve the dashboard on the loopback address, read-only, and print its address")
    web.add_argument("--port", type=int, default=8000, help="default: 8000; 0 takes any that is free")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Options that say where the facts come from; `top` has the same."""
    parser.add_argument("--connect", metavar="WHERE", help="an agent's socket, or ssh://HOST[:PORT][/SOCKET]")
    parser.add_argument("--root", metavar="CAPTURE", help="show a captured machine (a folder or tar)")
    parser.add_argument("--no-agent", action="store_true", help="sample in this process although an agent runs")
    parser.add_argument("--rules", action="append", default=[], metavar="PATH", help="more rules: a TOML file or a folder of them")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")


def run(args: argparse.Namespace) -> int:
    if getattr(args, "serve", False):
        if args.fleet is not None:
            raise UsageError("--serve shows one machine", "leave --fleet out; `sysperf fleet audit --format html` makes a page")
        return _serve(args)
    if "TEXTUAL_DRIVER" not in os.environ and (refusal := _no_terminal()):
        if getattr(args, "fleet", None) is not None:
            raise UsageError(refusal, "`sysperf fleet audit` prints the same once")
        raise UsageError(refusal, "`sysperf top --once` prints the same once; `sysperf audit` is for scripts")
    _prepare()
    with contextlib.ExitStack() as stack:
        with startup.without_ssl(), startup.with_late_parts():
            make = _imported()
            app: Shell
            if getattr(args, "fleet", None) is not None:
                app = _fleet(args)
            elif getattr(args, "demo", False):
                app = _demo(args, make, stack)
            else:
                origin = stack.enter_context(source(args))
                app = make(actions(args, origin), theme=args.theme)
        app.run()
        _settled()
        if app.failure is not None:
            raise app.failure
        return app.return_code or Exit.CLEAN


def _demo(args: argparse.Namespace, make: type[Dashboard], stack: contextlib.ExitStack) -> Dashboard:
    """The dashboard on a recorded machine; its one setting and its journal are in a folder that ends with it."""
    from sysperf.tui import demo  # noqa: PLC0415 - for this only
    from sysperf.tui.actions import Actions  # noqa: PLC0415

    folder = stack.enter_context(demo.folder())
    played = demo.Demo(lambda: terms(args), folder)
    does = Actions(played, lambda name: _rule(args, name), lambda: demo.DemoChanger(folder), diagnose=demo.diagnose)
    return make(does, theme=args.theme, cards=demo.CARDS)


def _fleet(args: argparse.Namespace) -> Shell:
    """The dashboard of many machines. Raises UsageError."""
    from sysperf.cli.fleet import _nodes  # noqa: PLC0415 - for this only
    from sysperf.engine.configuration import read_config  # noqa: PLC0415
    from sysperf.engine.fleet import gather  # noqa: PLC0415
    from sysperf.engine.judging import machine_rules  # noqa: PLC0415
    from sysperf.host.commands import sysperf_command  # noqa: PLC0415
    from sysperf.tui.fleet import FleetDashboard  # noqa: PLC0415

    asked = argparse.Namespace(**{**vars(args), "where": args.fleet, "at_once": 64, "node_limit": NODE_LIMIT_S, "sysperf": "sysperf"})
    engine, whom = _nodes.asked(asked)
    if args.fleet == "-":
        raise UsageError("--fleet -: stdin is the dashboard's keyboard", "name a folder of records, or --hosts")
    return FleetDashboard(
        lambda say: gather.fleet(engine, whom, machine_rules(read_config(args.config)), say=say)[0],
        lambda node: (*sysperf_command(), "tui", "--connect", f"ssh://{node}"),
        every_s=EVERY_S if args.fleet else ASKED_EVERY_S,
        theme=args.theme,
    )


def _no_terminal() -> str:
    """Why nothing can be drawn here; empty where it can. Textual draws on stderr."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return "the dashboard needs a terminal: for stdin, stdout and stderr"
    return "the dashboard needs a terminal whose cursor moves: TERM is dumb" if os.environ.get("TERM") == "dumb" else ""


def _prepare() -> None:
    """A long run collects garbage, and its threads share one heap: each of their own would cost 1 to 2 MB."""
    import gc  # noqa: PLC0415 - for the dashboard only

    gc.enable()
    sys.setswitchinterval(SWITCH_S)
    for stream in (sys.__stdout__, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # what terminals read, also where LANG says that files are Latin-1
    startup.share_one_heap()


def _settled() -> None:
    """A change that is being made is finished first."""
    from sysperf.tui import acting  # noqa: PLC0415 - the dashboard has it

    acting.finished()


def _imported() -> type[Dashboard]:
    try:
        from sysperf.tui.app import Dashboard  # noqa: PLC0415 - Textual costs 200 ms, which no other command pays
    except ImportError as error:
        raise UsageError(f"the dashboard needs Textual: {error}", "pip install textual") from None
    return Dashboard


def _serve(args: argparse.Namespace) -> int:
    """Serve each browser window a dashboard of its own, in a process of its own. Nothing can be changed from a browser."""
    try:
        from sysperf.tui.browser import Browser  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("--serve needs textual-serve", f"{sys.executable} -m pip install textual-serve") from None
    command = [sys.executable, "-c", _program(), "tui", "--read-only"]
    command += [f"--{name}={value}" for name in ("connect", "root", "theme", "config") if (value := getattr(args, name))]
    command += [f"--rules={path}" for path in args.rules]
    command += [f"--{flag}" for flag, given in (("no-agent", args.no_agent), ("demo", args.demo)) if given]
    with _listener(args.port) as listener:
        browser = Browser(shlex.join(command), listener, f"sysperf: {args.connect or args.root or os.uname().nodename}")
        sys.stdout.write(f"{browser.address}\n\nWho has this address sees what you see. Ctrl-C ends it.\n")
        sys.stdout.flush()
        browser.run()
    return Exit.CLEAN


def _listener(port: int) -> socket.socket:
    import socket  # noqa: PLC0415 - where a browser is served

    try:
        return socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--port {port}: {reason}", "choose another one; 0 takes any that is free") from None


def _program() -> str:
    """What `-m sysperf` runs, without the current folder on Python's path: what lies there may be anybody's."""
    import sysperf  # noqa: PLC0415 - where a browser is served

    ours = os.path.dirname(os.path.dirname(os.path.abspath(sysperf.__file__)))
    return f"import sys; del sys.path[0]; sys.path.append({ours!r}); from sysperf.cli import entry; entry()"


@contextlib.contextmanager
def source(args: argparse.Namespace) -> Iterator[Source]:
    """Yield where the facts come from: what was asked for, else an agent that answers, else this process."""
    if args.connect and args.root:
        raise UsageError("--connect and --root both name a machine", "give one of them")
    if args.root:
        from sysperf.host import Host  # noqa: PLC0415 - one source is imported
        from sysperf.tui.sources.captured import Captured  # noqa: PLC0415

        yield Captured(Host(args.root), lambda: terms(args))
    elif args.connect and args.connect.startswith("ssh:"):
        from sysperf.tui.sources import ssh  # noqa: PLC0415
        from sysperf.tui.sources.agent import Agent  # noqa: PLC0415

        with ssh.forwarded(args.connect) as forward:
            yield Agent(forward.path, name=args.connect.removeprefix("ssh://"), local=False, ended=forward.ended)
    else:
        path = args.connect or ("" if args.no_agent else _answering())
        if path:
            from sysperf.tui.sources.agent import Agent  # noqa: PLC0415

            yield Agent(path)
        else:
            from sysperf.tui.sources.here import Here  # noqa: PLC0415

            yield Here(lambda: terms(args))


def _answering() -> str:
    """The socket of an agent that answers; empty without one."""
    path = paths.find_socket()
    if not os.path.exists(path):
        return ""
    from sysperf.agent.answers import Status  # noqa: PLC0415
    from sysperf.agent.client import Client  # noqa: PLC0415
    from sysperf.model.errors import SysperfError  # noqa: PLC0415

    try:
        Client(path, timeout_s=2).ask("/v1/status", Status)
    except SysperfError as error:
        sys.stderr.write(f"sysperf: {error}; sampling here\n")
        return ""
    return path


def terms(args: argparse.Namespace) -> Terms:
    """Rules and waivers as they are now. Raises SysperfError."""
    from sysperf.engine import judging  # noqa: PLC0415 - in the thread that judges
    from sysperf.engine.configuration import read_config  # noqa: PLC0415

    config = read_config(args.config)
    return judging.load_terms(config, judging.configured_rules(config, args.rules))


def actions(args: argparse.Namespace, origin: Source) -> Actions:
    """What the dashboard may do: changes only on this machine."""
    from sysperf.tui import profilers, waive  # noqa: PLC0415 - as above
    from sysperf.tui.actions import READ_ONLY, Actions  # noqa: PLC0415

    if not origin.local:
        return Actions(origin, lambda name: _rule(args, name))
    from sysperf.engine import gains  # noqa: PLC0415

    refusal = READ_ONLY if args.read_only else ""
    return Actions(
        origin,
        lambda name: _rule(args, name),
        _changer,
        (paths.SYSTEM_STATE,),
        waive.write,
        _rewrap,
        gains.kept,
        refusal,
        profilers.here(args.stacks_plugin, args.traces_plugin),
        profilers.diagnosis(args.stacks_plugin, args.traces_plugin),
    )


def _changer() -> Changer:
    from sysperf.engine.change import Changer  # noqa: PLC0415 - when something is changed

    return Changer()


def _rule(args: argparse.Namespace, name: str) -> Rule | Explained:
    from sysperf.engine import judging  # noqa: PLC0415 - when one is explained

    return judging.find(terms(args).ruleset, name, args.rules)


def _rewrap(_: Snapshot, pid: int) -> Rewrap | None:
    """Read again for this: an agent's facts are no records, and wrap's placement needs them."""
    from sysperf.engine import reading  # noqa: PLC0415 - when a process is opened
    from sysperf.engine.wrap import rewrap  # noqa: PLC0415 - when a process is opened
    from sysperf.host import Host  # noqa: PLC0415

    host = Host()
    facts = reading.snapshot(host, ("cpu", "numa", "cgroup", "gpu", "process"))
    rewraps = rewrap.rewraps(host, facts, lambda: rewrap.rules(problems=[]))
    return next((rewrap for rewrap in rewraps if rewrap.pid == pid), None)

"""Install sysperf's services into systemd. They are the agent, a daily audit, and the helper that changes settings.

examples:
  sysperf service install --print          what would be written, and how it differs from what is there
  sudo sysperf service install --now       write the units, enable and start them
  sudo sysperf service install --now --no-helper --with see-all-users
  sysperf service status --json
  sudo sysperf service uninstall           remove what was written
  sysperf service install --prefix "$DESTDIR" --program /usr/bin/sysperf      for a package

Units that somebody changed are kept and named. docs/service.md tells what each unit may do.

exit codes:
  0  done; or all units are as they should be
  1  a unit was kept; or, of `status`, one failed or is of an older version
  2  the command line is wrong, or nothing can be installed here
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from sysperf import paths
from sysperf.cli import _options
from sysperf.engine.service import remains, systemd, units
from sysperf.model.errors import Exit, UsageError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.report.formats import as_json

_KEPT = {
    "changed": "changed since sysperf wrote it (--force replaces it)",
    "foreign": "sysperf did not write it (--force replaces it)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "uninstall", "status"))
    parser.add_argument("--print", action="store_true", help="show what would be written or removed, and change nothing")
    parser.add_argument("--now", action="store_true", help="enable the units, and start them")
    parser.add_argument("--force", action="store_true", help="replace or remove files that somebody changed, too")
    parser.add_argument("--no-helper", action="store_true", help="without the helper that changes settings, which runs as root")
    parser.add_argument(
        "--with",
        dest="drop_ins",
        action="append",
        default=[],
        choices=sorted(units.DROP_INS),
        help="let a service do more: see-all-users (agent and audit), apply (the agent), more-settings (the helper)",
    )
    _options.add_format(parser)
    _options.add_output(parser)
    group = parser.add_argument_group("for packages")
    group.add_argument("--prefix", metavar="DIR", help="write all units below DIR/usr/lib, and do nothing else")
    group.add_argument("--program", metavar="COMMAND", default="/usr/bin/sysperf", help="what they start then (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    if args.prefix is not None:
        return _package(args)
    return {"install": _install, "uninstall": _uninstall, "status": _status}[args.action](args)


class _Done:
    """What was done to what: a line each at once, or all of it at the end as JSON or in --output, also where an error ends it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args, self._all = args, list[dict[str, str]]()

    def __enter__(self) -> _Done:  # noqa: PYI034 - Python 3.10 has no typing.Self
        return self

    def __call__(self, did: str, what: str = "", why: str = "") -> None:
        self._all.append({"did": did, "what": what, "why": why})
        if not self._waits:
            sys.stdout.write(self._line(self._all[-1]))

    def __exit__(self, *_: object) -> None:
        if self._args.format == "json":
            _options.write(as_json.dump({"done": self._all}), self._args)
        elif self._waits:
            _options.write("".join(map(self._line, self._all)), self._args)

    @property
    def _waits(self) -> bool:
        return self._args.format == "json" or self._args.output is not None

    @staticmethod
    def _line(one: dict[str, str]) -> str:
        return f"{one['did']:<9} {one['what']}{': ' if one['why'] else ''}{one['why']}".rstrip() + "\n"


def _install(args: argparse.Namespace) -> int:
    drop_ins = list(dict.fromkeys(args.drop_ins))
    if args.no_helper and "more-settings" in drop_ins:
        raise UsageError("more-settings is for the helper, which --no-helper leaves out", "give one of the two")
    if args.print:
        return _show(args, units.wanted(_program_or_its_place(), helper=not args.no_helper, drop_ins=drop_ins))
    _needs_systemd()
    _needs_root(args)
    _no_package()
    with _Done(args) as done:
        kept = _write(done, units.wanted(units.this_program(), helper=not args.no_helper, drop_ins=drop_ins), force=args.force)
        systemd.run("systemd-sysusers", f"{units.SYSUSERS}/sysperf.conf")
        systemd.run("systemctl", "daemon-reload")
        started = [name for name in units.STARTED if not (args.no_helper and name in units.HELPER)]
        if args.now:
            systemd.start(started)
            done("started", " ".join(started))
    if not args.now:
        sys.stderr.write(f"  next: sudo systemctl enable --now {' '.join(started)}\n")
    return Exit.FINDINGS if kept else Exit.CLEAN


def _write(done: _Done, files: Iterable[units.File], *, force: bool) -> bool:
    """Write what is missing or older; whether something was kept."""
    kept = False
    for file in files:
        if file.state in _KEPT and not force:
            done("kept", file.path, _KEPT[file.state])
            kept = True
        elif file.state == "ours":
            done("unchanged", file.path)
        else:
            _or_usage(units.write, file.path, file.content)
            done("wrote", file.path)
    return kept


def _uninstall(args: argparse.Namespace) -> int:
    files = list(units.written())
    if args.print:
        with _Done(args) as done:
            for file in files:
                done("keep" if file.state == "changed" and not args.force else "remove", file.path)
        return Exit.CLEAN
    _needs_root(args)
    with _Done(args) as done:
        gone = _remove(done, files, force=args.force)
    if files:
        _say_what_stays()
    return Exit.FINDINGS if gone < len(files) else Exit.CLEAN


def _remove(done: _Done, files: Sequence[units.File], *, force: bool) -> int:
    """Remove what sysperf wrote, and end what it holds; how many files are gone."""
    gone = [file for file in files if file.state != "changed" or force]
    names = [os.path.basename(file.path) for file in gone if os.path.dirname(file.path) == units.UNITS]
    if names and systemd.is_running():
        agent = [name for name in names if name in units.AGENT]
        if agent:
            systemd.run("systemctl", "disable", "--now", *agent)  # first, or it would make its changes again
        remains.end_leases(lambda number: done("undid", f"transaction {number}, whose lease would otherwise never end"))
        systemd.run("systemctl", "disable", "--now", *names)
    for file in files:
        if file in gone:
            _or_usage(units.remove, file.path)
            done("removed", file.path)
        else:
            done("kept", file.path, _KEPT["changed"].replace("replaces", "removes"))
    if names and systemd.is_running():
        systemd.run("systemctl", "daemon-reload")
        systemd.run("systemctl", "reset-failed", *names, quiet=True)
    with contextlib.suppress(OSError):
        os.rmdir(paths.SYSTEM_RUNTIME)
    if not files:
        done("nothing of sysperf is installed")
    return len(gone)


def _say_what_stays() -> None:
    """All that is still there, by name; changes in force too."""
    sys.stderr.write(f"  still there: {', '.join(['the group sysperf', *remains.files()])}\n")
    if live := remains.changes():
        sys.stderr.write(f"  still in force: transaction{'s' if len(live) > 1 else ''} {', '.join(live)} (`sudo sysperf undo --all`)\n")


class _Unit(Record, omit_defaults=True):
    """One unit, as systemd sees it."""

    name: str
    installed: bool = True
    active: str = ""
    enabled: str = ""
    exposure: str = ""
    differs: str = ""
    """How its file differs from this version's."""
    drop_ins: str = ""
    says: str = ""
    problem: str = ""


def _status(args: argparse.Namespace) -> int:
    _needs_systemd()
    drift = {os.path.basename(file.path): file.state for file in systemd.drift()}
    seen = [_unit(name, drift) for name in units.ALL]
    older = any(state == "older" for state in drift.values())
    _options.write(as_json.dump({"units": seen, "older": older}) if args.format == "json" else "".join(map(_lines, seen)), args)
    if older:
        sys.stderr.write("  next: `sudo sysperf service install` brings the units to this version\n")
    return Exit.FINDINGS if older or any(unit.problem for unit in seen) else Exit.CLEAN


def _unit(name: str, drift: Mapping[str, str]) -> _Unit:
    facts = systemd.shown(name)
    if facts.get("LoadState") == "not-found":
        return _Unit(name, installed=False)
    return _Unit(
        name, active=f"{facts.get('ActiveState', '?')} ({facts.get('SubState', '?')})", enabled=facts.get("UnitFileState", ""),
        exposure=systemd.exposure(name) if name.endswith(".service") else "", differs=_WORDS.get(drift.get(name, ""), ""),
        drop_ins=facts.get("DropInPaths", ""), says=neutral(facts.get("StatusText", ""), 200), problem=systemd.problem(facts),
    )  # fmt: skip


def _lines(unit: _Unit) -> str:
    if not unit.installed:
        return f"{unit.name:<24} not installed\n"
    words = [unit.active, unit.enabled, f"exposure {unit.exposure}" if unit.exposure else "", unit.differs]
    words += [f"drop-ins: {unit.drop_ins}" if unit.drop_ins else "", unit.says]
    problem = f"{'':<24} {unit.problem}; why: journalctl -e -u {unit.name}\n" if unit.problem else ""
    return f"{unit.name:<24} {', '.join(word for word in words if word)}\n{problem}"


_WORDS = {
    "older": "written by another version of sysperf",
    "changed": "changed since sysperf wrote it",
}


def _package(args: argparse.Namespace) -> int:
    if args.action != "install":
        raise UsageError(f"--prefix is for install, not for {args.action}", "remove the folder, or leave --prefix out")
    files = units.packaged(args.program, args.prefix.rstrip("/"))
    if args.print:
        return _show(args, files)
    with _Done(args) as done:
        for file in files:
            _or_usage(units.write, file.path, file.content)
            done("wrote", file.path)
    return Exit.CLEAN


def _show(args: argparse.Namespace, files: Iterable[units.File]) -> int:
    """What would be written, as a diff."""
    told = [{"path": file.path, "kept": _KEPT.get(file.state, ""), "diff": _diff(file)} for file in files]
    notes = ((f"# kept {one['path']}: {one['kept']}\n" if one["kept"] else "") + one["diff"] for one in told)
    _options.write(as_json.dump({"files": told}) if args.format == "json" else "".join(notes), args)
    return Exit.CLEAN


def _diff(file: units.File) -> str:
    before, after = file.now.splitlines(keepends=True), file.content.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, file.path if file.now else "/dev/null", file.path))


def _program_or_its_place() -> str:
    """The program for `--print`, which shall work anywhere; what hinders a real installation goes to stderr."""
    try:
        return units.this_program()
    except UsageError as error:
        sys.stderr.write(f"sysperf: {error}\n  hint: {error.hint}\n")
        return "/opt/sysperf/bin/python -I -m sysperf"


def _needs_systemd() -> None:
    if not systemd.is_running():
        raise UsageError(
            "systemd does not run here",
            "have your init system or entry point start `sysperf agent`; `sysperf service install --prefix DIR` writes units for elsewhere",
        )


def _needs_root(args: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        words = [args.action, *(["--now"] if args.now else []), *(["--force"] if args.force else [])]
        words += ["--no-helper"] if args.no_helper else []
        words += [word for name in args.drop_ins for word in ("--with", name)]
        raise UsageError("only root may change system services", f"sudo {sys.executable} -I -m sysperf service {' '.join(words)}")


def _no_package() -> None:
    """Units of a package would be hidden by ours, and the package's next version with them."""
    path = f"{units.PACKAGED}/sysperf-agent.service"
    if os.path.exists(path):
        raise UsageError(f"{path}: a package has installed the units", f"sudo systemctl enable --now {' '.join(units.STARTED)}")


def _or_usage(action: Callable[..., None], path: str, *rest: str) -> None:
    try:
        action(path, *rest)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "what was done before it stays; mend this and run it again") from None
